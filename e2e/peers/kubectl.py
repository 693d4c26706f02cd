"""The cluster that the Kubernetes tests run in, used as its users do: through kubectl and helm."""

import json
import os
import subprocess

from .process import Failed, Process, eventually, free_port

COMMAND_SECONDS = 180
"""No command that ends by itself takes longer."""


class Cluster:
    """Runs kubectl and helm against $KUBECONFIG."""

    def __init__(self, folder):
        self.folder = folder
        self._forwards = {}

    def run(self, *command, check=True, text=None, seconds=COMMAND_SECONDS):
        """Runs a command; returns what it printed."""
        command = [str(part) for part in command]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def kubectl(self, *arguments, **options):
        return self.run("kubectl", *arguments, **options)

    def helm(self, *arguments, **options):
        return self.run("helm", *arguments, **options)

    def apply(self, *objects):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    def refused(self, *objects):
        """Applies what must be refused; returns the message."""
        for found in objects:
            text = json.dumps(found)
            done = subprocess.run(
                ["kubectl", "apply", "--server-side", "-f", "-"], input=text, capture_output=True, text=True,
                timeout=COMMAND_SECONDS, check=False,
            )
            assert done.returncode != 0, f"was accepted: {text}"
        return done.stderr

    def read(self, kind, name, namespace):
        """The object, or None."""
        text = self.kubectl("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def items(self, kind, namespace, selector=""):
        chosen = ["-l", selector] if selector else []
        return json.loads(self.kubectl("get", kind, "-n", namespace, *chosen, "-o", "json"))["items"]

    def ready_pods(self, namespace, selector):
        """Pods that are ready and not on their way out."""
        return [pod for pod in self.items("pods", namespace, selector) if is_ready(pod)]

    def wait_pods(self, namespace, selector, count, seconds=120):
        """Waits until exactly `count` pods exist and are ready; returns them."""

        def check():
            ready = self.ready_pods(namespace, selector)
            return ready if len(ready) == count == len(self.items("pods", namespace, selector)) else None

        if count == 0:
            eventually(lambda: not self.items("pods", namespace, selector), seconds, f"no pods {selector}")
            return []
        return eventually(check, seconds, f"{count} ready pods {selector}")

    def url(self, namespace, service, port):
        """Where a Service answers: by its name from inside the cluster's network, else through a port-forward."""
        if os.environ.get("E2E_IN_CLUSTER_NETWORK"):
            return f"http://{service}.{namespace}.svc.cluster.local:{port}"
        key = (namespace, f"service/{service}", port)
        return self.forward(*key)

    def forward(self, namespace, what, port):
        """Forwards a local port to a pod or Service, for as long as that pod lives; returns the URL."""
        key = (namespace, what, port)
        process, local = self._forwards.get(key, (None, None))
        if process is None or not process.alive:
            local = free_port()
            name = f"forward-{len(self._forwards)}-{what.replace('/', '-')}-{local}"
            process = Process(name, ["kubectl", "port-forward", "-n", namespace, what, f"{local}:{port}"], self.folder)
            self._forwards[key] = (process, local)
            eventually(lambda: process.must_live() or "Forwarding from" in process.text(), 20, f"a port-forward to {what}")
        return f"http://127.0.0.1:{local}"

    def logs(self, namespace, selector, lines=30):
        """The last lines of each pod, for messages."""
        text = self.kubectl("get", "pods", "-n", namespace, "-o", "wide", check=False)
        return text + self.kubectl(
            "logs", "-n", namespace, "-l", selector, "--tail", lines, "--prefix", "--all-containers", "--ignore-errors", check=False,
        )

    def stop(self):
        for process, _ in self._forwards.values():
            process.stop()


def is_ready(pod):
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return condition(pod, "Ready").get("status") == "True"


def condition(found, kind):
    """The condition of one type; an empty one when it is absent."""
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})
