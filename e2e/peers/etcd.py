"""A private etcd on free ports, with its data in the run's folder."""

import base64
import json
import shutil

import httpx

from .process import Process, eventually, free_port


class Etcd:
    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.peer_port = free_port()
        self.process = None
        self.start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Starts etcd, or starts it again on the same ports with the same data."""
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.process = Process("etcd", [
            shutil.which("etcd", path="/usr/bin:/usr/sbin:/usr/local/bin") or "etcd",
            "--data-dir", f"{self.folder}/etcd-data",
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--log-level", "warn",
        ], self.folder)

        def up():
            self.process.must_live()
            return httpx.get(f"{self.endpoint}/health").json()["health"] == "true"

        eventually(up, 20, "etcd answers")

    def values(self, prefix):
        """The records under a prefix: {key: parsed JSON}."""
        start = prefix.encode()
        end = start[:-1] + bytes([start[-1] + 1])
        answer = httpx.post(f"{self.endpoint}/v3/kv/range", json={
            "key": base64.b64encode(start).decode(), "range_end": base64.b64encode(end).decode(),
        }).json()
        return {
            base64.b64decode(pair["key"]).decode(): json.loads(base64.b64decode(pair["value"]))
            for pair in answer.get("kvs", [])
        }

    def replace(self, key, value):
        """Writes a record again; it keeps the lease of whoever wrote it first."""
        httpx.post(f"{self.endpoint}/v3/kv/put", json={
            "key": base64.b64encode(key.encode()).decode(),
            "value": base64.b64encode(json.dumps(value).encode()).decode(),
            "ignore_lease": True,
        }).raise_for_status()

    def instances(self, namespace):
        """The instance ids that serve `generate`, by component. The namespace is a string prefix, so generations are found too."""
        found = {}
        for value in self.values(f"v1/instances/{namespace}").values():
            if value["endpoint"] == "generate":
                found.setdefault(value["component"], []).append(int(value["instance_id"]))
        return {component: sorted(ids) for component, ids in found.items()}

    def stop(self):
        self.process.stop()
