"""A real Dynamo fleet without GPUs: mocker workers and direct-mode frontends of one version.

Everything listens on the loopback device. Versions before 1.6 advertise the machine's outward address for their load publishers, so for
those the whole test run happens in a network namespace where the loopback device is all there is (scripts/e2e.sh sees to it).
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import httpx

from .etcd import Etcd
from .process import Failed, Process, eventually, free_port

MODEL = "Qwen/Qwen3-0.6B"
NAMESPACE = "dynamo"
READY_SECONDS = 120
"""A fleet is up in 4 to 10 s on an idle machine; CI machines are not idle."""
LEASE_SECONDS = 45
"""After a crash a worker's records live on for its lease: 10 s before 1.6, 30 s since."""


def home():
    """Where scripts/install-dynamo.sh has put the versions and the model."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = os.environ.get("CONTINUUM_CACHE") or f"{cache}/continuum-router"
    return Path(os.environ.get("E2E_DYNAMO_HOME") or f"{root}/dynamo")


@dataclass
class Worker:
    role: str
    namespace: str
    process: Process
    instance: int = 0


@dataclass
class Frontend:
    port: int
    arguments: list
    process: Process

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Fleet:
    """Starts and stops the processes of one fleet. `store` is a folder for file discovery; without it an etcd is started."""

    def __init__(self, version, folder, *, store=None, speedup=10):
        self.version = version
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.speedup = speedup
        self.store = Path(store) if store else None
        self.etcd = None if store else Etcd(self.folder)
        self.workers = []
        self.frontends = []
        self._python = home() / version / "bin" / "python"
        self._count = 0
        if not self._python.exists():
            raise Failed(f"Dynamo {version} is not installed: run scripts/install-dynamo.sh {version}")

    @property
    def old(self):
        """Versions before 1.6: other names for some settings, and no way to say which address the publishers advertise."""
        return tuple(int(part) for part in self.version.split(".")[:2]) < (1, 6)

    def _env(self, namespace):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("DYN_", "ETCD_"))}
        env |= {
            "DYN_NAMESPACE": namespace,
            "DYN_DISCOVERY_BACKEND": "file" if self.store else "etcd",
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_TCP_RPC_HOST": "127.0.0.1",
            "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
            "DYN_EVENT_PLANE_HOST": "127.0.0.1",
            "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
            "DYN_LOG": "info",
            "NO_COLOR": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        if self.store:
            env["DYN_FILE_KV"] = str(self.store)
        else:
            env["ETCD_ENDPOINTS"] = self.etcd.endpoint
        return env

    def start_worker(self, role, *, namespace=NAMESPACE, ranks=1, model=MODEL, lease=None, arguments=()):
        """Starts one worker: `role` is prefill, decode or agg; `lease` is how many seconds its records outlive it after a crash.
        Does not wait: see `settle`."""
        # The workers serve their tokenizer files themselves; otherwise the frontends of older versions would ask the model hub.
        env = self._env(namespace) | {"DYN_SYSTEM_HOST": "127.0.0.1", "DYN_SYSTEM_PORT": "0", "DYN_SELF_HOST_METADATA": "1"}
        if lease:
            env["ETCD_LEASE_TTL"] = str(lease)
        self._count += 1
        process = Process(f"{role}{self._count}", [
            self._python, "-m", "dynamo.mocker", "--model-path", home() / "model", "--model-name", model,
            "--disaggregation-mode", role, "--endpoint", f"dyn://{namespace}.{role}.generate",
            "--block-size", 16, "--num-gpu-blocks-override", 2048, "--speedup-ratio", self.speedup,
            "--data-parallel-size", ranks, *arguments,
        ], self.folder, env)
        worker = Worker(role, namespace, process)
        self.workers.append(worker)
        return worker

    def start_bindings_worker(self, *, model=MODEL, adapters=(), eagle=False):
        """Starts an aggregated worker that keeps blocks by adapter and salt: see `bindings_worker.py`. Does not wait: see `settle`."""
        env = self._env(NAMESPACE) | {"DYN_SYSTEM_HOST": "127.0.0.1", "DYN_SYSTEM_PORT": "0", "DYN_SELF_HOST_METADATA": "1"}
        self._count += 1
        settings = {
            "discovery": env["DYN_DISCOVERY_BACKEND"], "endpoint": f"{NAMESPACE}.agg.generate", "model": model,
            "model_path": str(home() / "model"), "adapters": list(adapters), "eagle": eagle, "block_size": 16,
        }
        script = Path(__file__).with_name("bindings_worker.py")
        process = Process(f"agg{self._count}", [self._python, script, json.dumps(settings)], self.folder, env)
        worker = Worker("agg", NAMESPACE, process)
        self.workers.append(worker)
        return worker

    def start_frontend(self, *arguments, namespace=NAMESPACE, port=None):
        """Starts one direct-mode frontend. Does not wait: see `settle`."""
        env = self._env(namespace)
        if self.old:
            # An interface's name there, an address since 1.6.
            env["DYN_TCP_RESPONSE_STREAM_HOST"] = "lo"
        port = port or free_port()
        scope = [] if "--namespace-prefix" in arguments else ["--namespace", namespace]
        self._count += 1
        process = Process(f"frontend{self._count}", [
            self._python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", port,
            "--router-mode", "direct", *scope, *arguments,
        ], self.folder, env)
        frontend = Frontend(port, [*arguments], process)
        self.frontends.append(frontend)
        return frontend

    def restart_frontend(self, frontend):
        """Starts a frontend again on the port that it had, after its end."""
        self.frontends.remove(frontend)
        return self.start_frontend(*frontend.arguments, port=frontend.port)

    def revive_frontends(self):
        """Starts every frontend that has ended, as a supervisor would."""
        for frontend in [frontend for frontend in self.frontends if not frontend.process.alive]:
            self.restart_frontend(frontend)

    def instances(self):
        """Every registered instance id, as {component: sorted ids}; a crashed worker is among them until its lease ends."""
        if self.etcd:
            return self.etcd.instances(NAMESPACE)
        found = {}
        for path in (self.store / "v1" / "instances").glob("*"):
            if path.name.startswith(".tmp_"):
                continue
            value = json.loads(path.read_text())
            if value["endpoint"] == "generate":
                found.setdefault(value["component"], []).append(int(value["instance_id"]))
        return {component: sorted(ids) for component, ids in found.items()}

    def settle(self, *, listed=True):
        """Waits until every living worker is registered and (with `listed`) every frontend lists the model. Fills `Worker.instance`."""

        def registered():
            for process in [*self.living(), *self.frontends]:
                process.process.must_live()
            known = {instance for ids in self.instances().values() for instance in ids}
            for worker in self.living():
                if not worker.instance:
                    text = worker.process.text()
                    mine = [i for i in known if f"{i:x}" in text or str(i) in text]
                    assert mine, f"{worker.process.name} is not registered yet"
                    worker.instance = mine[0]
                assert worker.instance in known
            return True

        eventually(registered, READY_SECONDS, "all workers are registered")
        if listed:
            for frontend in self.frontends:
                eventually(lambda: self.lists(frontend), READY_SECONDS, f"{frontend.process.name} lists the model\n{frontend.process.tail(5)}")
        return self

    @staticmethod
    def lists(frontend, model=MODEL):
        frontend.process.must_live()
        answer = httpx.get(f"{frontend.url}/v1/models", timeout=5).json()
        return any(entry["id"] == model for entry in answer["data"])

    def living(self, role=None):
        return [w for w in self.workers if w.process.alive and role in (None, w.role)]

    def ids(self, role):
        """Instance ids of the living workers of a role."""
        return sorted(w.instance for w in self.living(role))

    def by_instance(self, instance):
        return next(w for w in self.workers if w.instance == instance)

    def stop(self):
        everything = [*self.frontends, *self.workers]
        for peer in everything:
            peer.process.terminate()
        for peer in everything:
            peer.process.stop()
        if self.etcd:
            self.etcd.stop()


def disaggregated(version, folder, prefill=2, decode=2, ranks=1, **settings):
    """A fleet of prefill and decode workers behind one frontend, up and listed."""
    fleet = Fleet(version, folder, **settings)
    for _ in range(prefill):
        fleet.start_worker("prefill", ranks=ranks)
    for _ in range(decode):
        fleet.start_worker("decode", ranks=ranks)
    fleet.start_frontend()
    return fleet.settle()


def aggregated(version, folder, workers=2, **settings):
    """A fleet of aggregated workers behind one frontend, up and listed."""
    fleet = Fleet(version, folder, **settings)
    for _ in range(workers):
        fleet.start_worker("agg")
    fleet.start_frontend()
    return fleet.settle()
