"""The product under test: the built binary with a configuration file of the test's own."""

import copy
import json
import os
import signal
from pathlib import Path

import httpx

from .fleet import MODEL, NAMESPACE
from .process import Failed, Process, eventually, free_port

READY_SECONDS = 30


def binary():
    found = os.environ.get("E2E_ROUTER") or Path(__file__).parents[2] / "target/debug/continuum-router"
    if not Path(found).exists():
        raise Failed(f"{found} is missing: run scripts/e2e.sh, or cargo build -p continuum-router and set E2E_ROUTER")
    return found


def config_for(fleet, frontends=None):
    """The bare-metal configuration: one namespace, one pool of frontends. A test may change it before the router starts."""
    frontends = frontends if frontends is not None else fleet.frontends
    names = [f"frontend-{n}" for n in range(len(frontends))]
    if fleet.store:
        discovery = {"source": "file", "file": {"path": str(fleet.store)}}
    else:
        discovery = {"source": "etcd", "etcd": {"endpoints": [fleet.etcd.endpoint], "namespace": NAMESPACE}}
    return {
        "server": {"bind_address": f"127.0.0.1:{free_port()}"},
        "admin": {"bind_address": f"127.0.0.1:{free_port()}"},
        "logging": {"format": "text", "level": "info"},
        "backends": [
            {"name": name, "type": "openai", "url": frontend.url, "models": [MODEL]} for name, frontend in zip(names, frontends)
        ],
        "disaggregated_serving": {"enabled": True, "fallback_to_unified": False},
        "dynamo": {
            "enabled": True,
            "discovery": discovery,
            "load": {"direct_allow_cidrs": ["127.0.0.0/8"]},
            "shim": {"backends": names},
        },
    }


class Router:
    """A running router. The configuration is written as JSON, which is YAML too."""

    def __init__(self, config, folder, name="router"):
        self.config = copy.deepcopy(config)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / f"{name}.yaml"
        self.name = name
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http://{self.config['server']['bind_address']}"

    @property
    def admin_url(self):
        return f"http://{self.config['admin']['bind_address']}"

    def start(self):
        self.write(self.config)
        self.start_as_written()

    def start_as_written(self):
        """Starts the router with the file as it is."""
        self.process = Process(self.name, [binary(), "--config", self.file], self.folder)
        eventually(self.ready, READY_SECONDS, "the router is ready")

    def write(self, config):
        """Replaces the configuration file, as an editor or a deployment tool does: a new file renamed over the old one."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(config if isinstance(config, str) else json.dumps(config, indent=2))
        os.replace(fresh, self.file)

    def ready(self):
        self.process.must_live()
        return httpx.get(f"{self.url}/ready", timeout=5).status_code == 200

    def workers(self):
        """The parsed answer of GET /admin/dynamo/workers."""
        answer = httpx.get(f"{self.admin_url}/admin/dynamo/workers", timeout=5)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self):
        answer = httpx.get(f"{self.admin_url}/admin/status", timeout=5)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metrics(self):
        """Every sample of GET /metrics: {(name, frozenset of label pairs): value}."""
        return parse_metrics(httpx.get(f"{self.admin_url}/metrics", timeout=5).text)

    def metric(self, name, **labels):
        """The sum of the samples of one name that carry these labels."""
        wanted = set(labels.items())
        return sum(value for (found, pairs), value in self.metrics().items() if found == name and wanted <= pairs)

    def sees(self, fleet):
        """Whether the view holds exactly the registered living workers, in their roles."""
        roles = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}
        wanted = {(str(w.instance), roles[w.role]) for w in fleet.living()}
        return {(w["worker_id"], w["role"]) for w in self.workers()["workers"]} == wanted

    def settle(self, fleet, seconds=60):
        """Waits until the view is the fleet, and (where load is published) each subscription is connected."""
        eventually(lambda: self.ready() and self.sees(fleet), seconds, "the router's view is the fleet")

        def connected():
            rows = self.workers()["subscriptions"]
            assert all(row["state"] == "connected" for row in rows), rows
            return rows

        eventually(connected, seconds, "the load subscriptions are connected")
        return self

    def reload_signal(self):
        self.process.send(signal.SIGHUP)

    def stop(self):
        if self.process:
            self.process.stop()


def parse_metrics(text):
    samples = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        head, _, value = line.rpartition(" ")
        name, _, rest = head.partition("{")
        labels = set()
        for pair in rest.rstrip("}").split('",'):
            if pair:
                key, _, word = pair.partition("=")
                labels.add((key.strip(), word.strip().strip('"')))
        samples[name, frozenset(labels)] = float(value)
    return samples
