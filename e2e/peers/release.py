"""The operator as a user installs it, and the routers that a RouterConfig brings."""

import json
import os
import signal
from pathlib import Path

import httpx

from .kubectl import condition
from .process import eventually

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "continuum-router"
EXAMPLE = ROOT / "examples" / "routerconfig.yaml"
KIND = "routerconfigs.router.continuum.dev"
DATA_PORT = 8080
SERVICE_PORT = 80  # of a RouterConfig's Service, by default
ADMIN_PORT = 9090
READY_SECONDS = 120


def image_values(name, prefix):
    """--set arguments for the image of this run."""
    image = os.environ[f"E2E_{name}_IMAGE"]
    repository, _, tag = image.rpartition(":")
    return ["--set", f"{prefix}.repository={repository}", "--set", f"{prefix}.tag={tag}"]


class Release:
    """One installation of the chart."""

    def __init__(self, cluster, name="continuum", namespace="continuum-system"):
        self.cluster = cluster
        self.name = name
        self.namespace = namespace

    @property
    def controller(self):
        return f"{self.name}-controller"

    def install(self, *arguments):
        return self._helm("install", *arguments)

    def upgrade(self, *arguments):
        return self._helm("upgrade", *arguments)

    def uninstall(self):
        return self.cluster.helm("uninstall", self.name, "-n", self.namespace, "--wait", "--timeout", "60s")

    def test(self):
        return self.cluster.helm("test", self.name, "-n", self.namespace, "--timeout", "60s")

    def pods(self, count):
        return self.cluster.wait_pods(self.namespace, "app.kubernetes.io/component=controller", count)

    def scale(self, replicas):
        self.cluster.kubectl("scale", "-n", self.namespace, f"deployment/{self.controller}", f"--replicas={replicas}")
        return self.pods(replicas)

    def leader(self):
        """The pod that holds the lease; None when nobody does."""
        lease = self.cluster.read("lease", self.controller, self.namespace)
        return ((lease or {}).get("spec") or {}).get("holderIdentity") or None

    def _helm(self, verb, *arguments):
        return self.cluster.helm(
            verb, self.name, CHART, "-n", self.namespace, "--create-namespace", "--wait", "--timeout", "120s",
            *image_values("CONTROLLER", "controller.image"), *image_values("ROUTER", "router.image"), *arguments,
        )


class Routers:
    """What one RouterConfig brings."""

    def __init__(self, cluster, name, namespace):
        self.cluster = cluster
        self.name = name
        self.namespace = namespace

    @property
    def children(self):
        """The name that all children carry."""
        return f"{self.name}-router"

    @property
    def selector(self):
        return f"app.kubernetes.io/name=continuum-router,app.kubernetes.io/instance={self.name},app.kubernetes.io/component=router"

    @property
    def url(self):
        return self.cluster.url(self.namespace, self.children, SERVICE_PORT)

    def read(self):
        return self.cluster.read(KIND, self.name, self.namespace)

    def status(self):
        return (self.read() or {}).get("status") or {}

    def condition(self, kind):
        """(status, reason, message) of a condition."""
        found = condition(self.read(), kind)
        return found.get("status"), found.get("reason"), found.get("message")

    def patch(self, **spec):
        self.cluster.kubectl("patch", KIND, self.name, "-n", self.namespace, "--type=merge", "-p", json.dumps({"spec": spec}))

    def wait(self, kind="Ready", status="True", reason=None, seconds=READY_SECONDS):
        """Waits for a condition that speaks of the present generation; returns its message."""

        def check():
            found = self.read()
            told = condition(found, kind)
            assert told.get("status") == status and (reason is None or told.get("reason") == reason), found.get("status")
            assert told.get("observedGeneration") == found["metadata"]["generation"], found["status"]
            return [told.get("message")]

        return eventually(check, seconds, f"{self.name}: {kind}={status} {reason or ''}")[0]

    def pods(self, count, seconds=READY_SECONDS):
        return self.cluster.wait_pods(self.namespace, self.selector, count, seconds)

    def admin(self, pod, path="/admin/status"):
        """The answer of one router's admin listener, which only a port-forward reaches."""
        url = self.cluster.forward(self.namespace, f"pod/{pod['metadata']['name']}", ADMIN_PORT)
        answer = httpx.get(f"{url}{path}", timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def serves(self):
        return httpx.get(f"{self.url}/v1/models", timeout=5).status_code == 200

    def logs(self):
        return self.cluster.logs(self.namespace, self.selector)


def kill_container(pod):
    """Kills the processes of a pod's containers (SIGKILL), as a crash would; the kubelet starts them again. Only on a node of our own."""
    uid = pod["metadata"]["uid"]
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            groups, command = (folder / "cgroup").read_text(), (folder / "comm").read_text().strip()
        except OSError:
            continue
        if f"pod{uid}" in groups and command != "pause":
            os.kill(int(folder.name), signal.SIGKILL)
            killed += 1
    assert killed, f"no process of pod {pod['metadata']['name']} on this machine"
