"""Routers that nobody operates: a Deployment that reads the API server itself, with the rights that the documentation lists."""

import json
import os

import pytest

from peers.ask import ask, chat, check_pair
from peers.process import eventually
from peers.release import ADMIN_PORT, DATA_PORT, SERVICE_PORT, Routers

FLEET_NAMESPACE = "dynamo"
READ = ["get", "list", "watch"]
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": READ}
METADATA = [
    {"apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"], "verbs": READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": READ},
]


class Alone(Routers):
    """One router Deployment with its own account."""

    @property
    def children(self):
        return self.name

    @property
    def selector(self):
        return f"app={self.name}"


def config(source, **kubernetes):
    return {
        "server": {"bind_address": f"0.0.0.0:{DATA_PORT}"},
        "admin": {"bind_address": f"127.0.0.1:{ADMIN_PORT}"},
        "backends": [{"name": "frontend", "url": f"http://frontend.{FLEET_NAMESPACE}.svc.cluster.local:8000"}],
        "dynamo": {
            "enabled": True,
            "discovery": {
                "source": source,
                "kubernetes": {"namespace": FLEET_NAMESPACE, "dynamo_namespace": "dynamo", **kubernetes},
            },
            "load": {"direct_allow_cidrs": ["10.0.0.0/8"]},
            "shim": {"backends": ["frontend"]},
        },
    }


def start(cluster, name, rules, document, namespace="alone"):
    meta = {"name": name, "namespace": namespace}
    reader = {"name": f"{name}-reader", "namespace": FLEET_NAMESPACE}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": reader, "rules": rules},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": reader,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": reader["name"]},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"router.yaml": json.dumps(document)}},
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "serviceAccountName": name,
                        "containers": [{
                            "name": "router", "image": os.environ["E2E_ROUTER_IMAGE"], "imagePullPolicy": "IfNotPresent",
                            "args": ["--config", "/etc/continuum-router/router.yaml"],
                            "readinessProbe": {"httpGet": {"path": "/ready", "port": DATA_PORT}, "periodSeconds": 1},
                            "volumeMounts": [{"name": "config", "mountPath": "/etc/continuum-router"}],
                        }],
                        "volumes": [{"name": "config", "configMap": {"name": name}}],
                    },
                },
            },
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": meta,
            "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": DATA_PORT}]},
        },
    )
    found = Alone(cluster, name, namespace)
    return found, found.pods(1)[0]


@pytest.fixture(scope="module")
def namespace(cluster):
    yield "alone"
    cluster.kubectl("delete", "namespace", "alone", "--wait=false")


def test_metadata_source(cluster, fleet, namespace):
    routers, pod = start(cluster, "metadata", [PODS, *METADATA], config("kubernetes"), namespace)
    ids = fleet.settle(prefill=2, decode=2, frontend=1)
    told = routers.admin(pod, "/admin/dynamo/workers")
    assert told["signals"] == {"load": True, "capacity": True}, told["signals"]
    assert {(w["worker_id"], w["role"]) for w in told["workers"]} == {
        (str(i), role) for role in ("prefill", "decode") for i in ids[role]
    }

    def connected():
        rows = routers.admin(pod, "/admin/dynamo/workers")["subscriptions"]
        assert rows and all(row["state"] == "connected" for row in rows), rows
        return True

    eventually(connected, 30, "the load publishers of the pods are reached")
    used = [check_pair(ask(routers.url, chat(f"question {n}"))) for n in range(16)]
    assert ({p for p, _ in used}, {d for _, d in used}) == (ids["prefill"], ids["decode"])

    # Another worker, and then one fewer.
    for count in (3, 2):
        fleet.scale("decode", count)
        ids = fleet.settle(decode=count, prefill=2)

        def sees():
            rows = routers.admin(pod, "/admin/dynamo/workers")["workers"]
            return {w["worker_id"] for w in rows if w["role"] == "decode"} == {str(i) for i in ids["decode"]}

        eventually(sees, 30, f"the router sees {count} decode workers")


def test_pod_source(cluster, fleet, namespace):
    """With the right to read pods alone; ids are derived from names."""
    ids = fleet.settle(prefill=2, decode=2, frontend=1)
    document = config("kubernetes_pods", model="Qwen/Qwen3-0.6B")
    routers, pod = start(cluster, "pods", [PODS], document, namespace)
    told = routers.admin(pod, "/admin/dynamo/workers")
    assert told["signals"] == {"load": False, "capacity": False}, told["signals"]
    assert {w["worker_id"] for w in told["workers"]} == {str(i) for role in ids.values() for i in role}
    used = [check_pair(ask(routers.url, chat(f"question {n}"))) for n in range(16)]
    assert ({p for p, _ in used}, {d for _, d in used}) == (ids["prefill"], ids["decode"])
