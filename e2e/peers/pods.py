"""A real Dynamo fleet as pods: mocker workers in Kubernetes discovery mode and direct-mode frontends, with the labels, Services and rights
that the Dynamo operator gives them. The pods run the installed versions of this machine: an image that holds nothing, and host paths.
On a cluster whose nodes are elsewhere, E2E_DYNAMO_IMAGE names an image with Dynamo and the model in it (E2E_DYNAMO_MODEL)."""

import os
import subprocess

from .fleet import MODEL, home
from .process import eventually

DISCOVERY = {"nvidia.com/dynamo-discovery-backend": "kubernetes", "nvidia.com/dynamo-discovery-enabled": "true"}
COMPONENT_TYPES = {"prefill": "prefill", "decode": "decode", "agg": "worker"}
FRONTEND_PORT = 8000
SYSTEM_PORT = 9090
KIND = "dynamoworkermetadatas.nvidia.com"

WORKER_METADATA = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": KIND},
    "spec": {
        "group": "nvidia.com",
        "scope": "Namespaced",
        "names": {
            "kind": "DynamoWorkerMetadata", "listKind": "DynamoWorkerMetadataList", "plural": "dynamoworkermetadatas",
            "singular": "dynamoworkermetadata", "shortNames": ["dwm"],
        },
        "versions": [{
            "name": "v1alpha1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "data": {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True},
            }}}}},
        }],
    },
}
"""The kind that Dynamo's charts install."""


class Fleet:
    """One Dynamo namespace in one Kubernetes namespace."""

    def __init__(self, cluster, version, namespace="dynamo", dynamo_namespace="dynamo", speedup=10):
        self.cluster = cluster
        self.version = version
        self.namespace = namespace
        self.dynamo_namespace = dynamo_namespace
        self.speedup = speedup

    def install(self):
        """What a cluster has where Dynamo is installed: the kind, and an account that may write it."""
        self.cluster.apply(WORKER_METADATA, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
        meta = {"name": "dynamo", "namespace": self.namespace}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
                "rules": [
                    {"apiGroups": [""], "resources": ["pods", "endpoints"], "verbs": ["get", "list", "watch"]},
                    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
                    {
                        "apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"],
                        "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
                    },
                ],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dynamo"},
                "subjects": [{"kind": "ServiceAccount", **meta}],
            },
        )

    def workers(self, role, replicas):
        """Starts the workers of a role (prefill, decode or agg), or changes how many there are. Does not wait."""
        model = os.environ.get("E2E_DYNAMO_MODEL") or home() / "model"
        arguments = [
            "-m", "dynamo.mocker", "--model-path", model, "--model-name", MODEL, "--disaggregation-mode", role,
            "--endpoint", f"dyn://{self.dynamo_namespace}.{role}.generate", "--block-size", 16, "--num-gpu-blocks-override", 2048,
            "--speedup-ratio", self.speedup,
        ]
        # Ready once its endpoint is: the mocker itself waits to see its own pod as ready before it calls the whole process healthy.
        env = {
            "DYN_SYSTEM_PORT": str(SYSTEM_PORT), "DYN_SELF_HOST_METADATA": "1",
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        }
        self._deploy(role, COMPONENT_TYPES[role], replicas, arguments, env, SYSTEM_PORT, "/health")

    def frontends(self, replicas=1, name="frontend"):
        """Starts direct-mode frontends behind one Service. Does not wait."""
        arguments = [
            "-m", "dynamo.frontend", "--http-host", "0.0.0.0", "--http-port", FRONTEND_PORT, "--router-mode", "direct",
            "--namespace", self.dynamo_namespace,
        ]
        self._deploy(name, "frontend", replicas, arguments, {}, FRONTEND_PORT, "/health")

    def scale(self, component, replicas):
        self.cluster.kubectl("scale", "-n", self.namespace, f"deployment/{component}", f"--replicas={replicas}")

    def pods(self, component, count):
        """Waits for the pods of a component."""
        return self.cluster.wait_pods(self.namespace, f"nvidia.com/dynamo-component={component}", count)

    def settle(self, **counts):
        """Waits until exactly so many pods of each component are ready and have registered; returns their ids by component."""
        for component, count in counts.items():
            self.pods(component, count)
        wanted = {name: count for name, count in counts.items() if name in COMPONENT_TYPES and count}

        def check():
            found = self.instances()
            return found if {name: len(ids) for name, ids in found.items()} == wanted else None

        return eventually(check, 60, f"registered workers: {wanted}")

    def instances(self):
        """The ids that workers have registered, by component."""
        found = {}
        for item in self.cluster.items(KIND, self.namespace):
            for record in ((item["spec"].get("data") or {}).get("endpoints") or {}).values():
                if record["endpoint"] == "generate" and record["namespace"] == self.dynamo_namespace:
                    found.setdefault(record["component"], set()).add(record["instance_id"])
        return found

    def pod_of(self, instance):
        """The name of the pod that registered an id."""
        for item in self.cluster.items(KIND, self.namespace):
            for record in ((item["spec"].get("data") or {}).get("endpoints") or {}).values():
                if record["instance_id"] == instance:
                    return item["metadata"]["name"]
        return None

    def _deploy(self, component, component_type, replicas, arguments, env, port, probe):
        labels = {
            **DISCOVERY,
            "nvidia.com/dynamo-namespace": self.dynamo_namespace,
            "nvidia.com/dynamo-component": component,
            "nvidia.com/dynamo-component-type": component_type,
        }
        selector = {key: labels[key] for key in ("nvidia.com/dynamo-namespace", "nvidia.com/dynamo-component")}
        meta = {"name": component, "namespace": self.namespace, "labels": labels}
        downward = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
        env = {
            "DYN_NAMESPACE": self.dynamo_namespace, "DYN_DISCOVERY_BACKEND": "kubernetes", "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq", "DYN_SDK_DISABLE_ANSI_LOGGING": "1", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1", "HOME": "/tmp", **env,
        }
        image, python, mounts = runtime(self.version)
        container = {
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
            "command": [str(part) for part in (python, *arguments)],
            "env": [
                *({"name": name, "value": value} for name, value in env.items()),
                *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in downward.items()),
            ],
            "ports": [{"name": "system" if port == SYSTEM_PORT else "http", "containerPort": port}],
            # As often as a test may ask: the default of 10 s would be most of its time.
            "readinessProbe": {"httpGet": {"path": probe, "port": port}, "periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 5},
            "volumeMounts": [{"name": f"host-{i}", "mountPath": path, "readOnly": True} for i, path in enumerate(mounts)],
        }
        self.cluster.apply(
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
                "spec": {
                    "replicas": replicas, "selector": {"matchLabels": selector},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "serviceAccountName": "dynamo", "containers": [container], "terminationGracePeriodSeconds": 10,
                            "volumes": [{"name": f"host-{i}", "hostPath": {"path": path}} for i, path in enumerate(mounts)],
                        },
                    },
                },
            },
            # The Service's labels are its EndpointSlices' labels, which is where discovery looks for readiness.
            {
                "apiVersion": "v1", "kind": "Service", "metadata": meta,
                "spec": {"selector": selector, "ports": [{"name": "http", "port": port, "targetPort": port}]},
            },
        )


def runtime(version):
    """(image, interpreter, host paths to mount)."""
    if image := os.environ.get("E2E_DYNAMO_IMAGE"):
        return image, "python3", []
    python = home() / version / "bin" / "python"
    base = subprocess.run([python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True).stdout.strip()
    system = [path for path in ("/usr", "/bin", "/lib", "/lib64") if os.path.isdir(path)]
    own = [] if base.startswith("/usr") else [base]
    return "localhost/continuum/userland:dev", python, [*system, *own, str(home() / version), str(home() / "model")]
