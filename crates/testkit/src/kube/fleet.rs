//! What a Dynamo fleet writes to Kubernetes: its kind, pods, endpoint slices and metadata.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Cluster, objects};

/// How many writers a big fleet is made by; more do not make the API server faster.
const WRITERS: usize = 16;
/// Endpoints of one slice, as the controllers cut them.
const SLICE: usize = 100;

/// The kind that Dynamo's own charts install. Its real schema is as open as this one.
const WORKER_METADATA: &str = include_str!("dynamo-worker-metadata.yaml");

/// A worker, as the Dynamo operator and the worker itself would write it.
#[derive(Clone, Debug)]
pub struct Worker {
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod, and the metadata resource.
    pub pod: String,
    /// The value of the label `nvidia.com/dynamo-namespace`.
    pub dynamo_namespace: String,
    /// The value of the label `nvidia.com/dynamo-component-type`: prefill, decode, worker.
    pub component_type: String,
    /// The value of the label `nvidia.com/dynamo-component`, which is the component of the records too.
    pub component: String,
    /// Whether the pod is ready.
    pub ready: bool,
    /// The records: `spec.data` of the metadata resource. None for a worker that wrote nothing.
    pub data: Option<Value>,
}

impl Worker {
    /// A ready worker of a role (`prefill`, `decode` or `worker`) that serves a model, with one endpoint and one model card.
    #[must_use]
    pub fn new(namespace: &str, pod: &str, role: &str, model: &str) -> Self {
        let dynamo_namespace = "dynamo".to_owned();
        let component = if role == "worker" { "backend" } else { role };
        Self {
            namespace: namespace.into(),
            pod: pod.into(),
            component_type: role.into(),
            component: component.into(),
            ready: true,
            data: Some(records(&dynamo_namespace, component, pod, role, model)),
            dynamo_namespace,
        }
    }

    /// The id that the worker registers.
    #[must_use]
    pub fn instance(&self) -> u64 {
        instance(&self.pod)
    }

    fn labels(&self) -> Value {
        json!({
            "nvidia.com/dynamo-discovery-backend": "kubernetes",
            "nvidia.com/dynamo-discovery-enabled": "true",
            "nvidia.com/dynamo-namespace": self.dynamo_namespace,
            "nvidia.com/dynamo-component": self.component,
            "nvidia.com/dynamo-component-type": self.component_type,
        })
    }
}

impl Cluster {
    /// Installs the kind `DynamoWorkerMetadata`.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn install_worker_metadata(&self) {
        self.apply(WORKER_METADATA).await;
    }

    /// Writes (or changes) a worker: pod with status, an EndpointSlice of its own named as the pod, and its metadata. Returns the pod's uid.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn write_worker(&self, worker: &Worker) -> String {
        let uid = self.write_pod(worker).await;
        self.write_slice(
            &worker.namespace,
            &worker.pod,
            &[(&worker.pod, &uid, worker.ready)],
        )
        .await;
        if let Some(data) = &worker.data {
            self.write_metadata(&worker.namespace, &worker.pod, &worker.pod, &uid, data)
                .await;
        }
        uid
    }

    /// Takes a worker away: metadata, slice and pod.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn remove_worker(&self, worker: &Worker) {
        let (namespace, name) = (&worker.namespace, &worker.pod);
        let mut yaml = String::new();
        for (version, kind) in [
            ("nvidia.com/v1alpha1", "DynamoWorkerMetadata"),
            ("discovery.k8s.io/v1", "EndpointSlice"),
        ] {
            if kind != "DynamoWorkerMetadata" || worker.data.is_some() {
                yaml += &format!(
                    "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
                );
            }
        }
        self.delete(&yaml).await;
        self.remove_pod(namespace, name).await;
    }

    /// Writes a worker's pod with its status; returns the pod's uid.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn write_pod(&self, worker: &Worker) -> String {
        let stored = self.put(pod(worker)).await;
        stored.metadata.uid.expect("a stored pod has a uid")
    }

    /// Removes a pod at once: there is no kubelet that would end it.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn remove_pod(&self, namespace: &str, name: &str) {
        use k8s_openapi::api::core::v1::Pod;
        let pods: Api<Pod> = Api::namespaced(self.client().await, namespace);
        let now = kube::api::DeleteParams::default().grace_period(0);
        match pods.delete(name, &now).await {
            Ok(_deleted) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("delete pod {name}: {error}"),
        }
    }

    /// Writes an EndpointSlice with discovery labels: one endpoint per (pod, uid of the pod, ready).
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn write_slice(&self, namespace: &str, name: &str, pods: &[(&str, &str, bool)]) {
        self.put(slice(namespace, name, pods)).await;
    }

    /// Writes a metadata resource that a pod owns.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn write_metadata(&self, namespace: &str, name: &str, pod: &str, uid: &str, data: &Value) {
        self.put(metadata(namespace, name, pod, uid, data)).await;
    }

    /// Writes a big new fleet of one namespace, as fast as the API server takes it: pods with status, metadata, and slices of 100
    /// endpoints named `slice-<n>`. Returns the pods' uids in order.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn write_fleet(&self, workers: &[Worker]) -> Vec<String> {
        let Some(first) = workers.first() else {
            return Vec::new();
        };
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let share: Vec<(usize, Worker)> = workers
                .iter()
                .cloned()
                .enumerate()
                .skip(writer)
                .step_by(WRITERS)
                .collect();
            let client = self.client().await;
            writers.spawn(async move { create(&client, share).await });
        }
        let mut uids = vec![String::new(); workers.len()];
        for (index, uid) in writers.join_all().await.into_iter().flatten() {
            if let Some(slot) = uids.get_mut(index) {
                *slot = uid;
            }
        }
        let members: Vec<(&Worker, &String)> = workers.iter().zip(&uids).collect();
        for (number, part) in members.chunks(SLICE).enumerate() {
            let pods: Vec<(&str, &str, bool)> = part
                .iter()
                .map(|(worker, uid)| (worker.pod.as_str(), uid.as_str(), worker.ready))
                .collect();
            self.write_slice(&first.namespace, &format!("slice-{number}"), &pods)
                .await;
        }
        uids
    }

    async fn put(&self, object: Value) -> DynamicObject {
        let name = object["metadata"]["name"].clone();
        objects::apply(&self.client().await, object)
            .await
            .unwrap_or_else(|error| panic!("apply {name}: {error}"))
    }
}

/// Creates each worker's pod, its status and its metadata. Returns the pods' uids with the workers' numbers.
async fn create(client: &Client, share: Vec<(usize, Worker)>) -> Vec<(usize, String)> {
    let pod_kind = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let metadata_kind = ApiResource {
        group: "nvidia.com".into(),
        version: "v1alpha1".into(),
        api_version: "nvidia.com/v1alpha1".into(),
        kind: "DynamoWorkerMetadata".into(),
        plural: "dynamoworkermetadatas".into(),
    };
    let object =
        |value: Value| -> DynamicObject { serde_json::from_value(value).expect("a Kubernetes object") };
    let mut made = Vec::new();
    for (index, worker) in share {
        let (namespace, name) = (&worker.namespace, &worker.pod);
        let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &pod_kind);
        let value = pod(&worker);
        let status = Patch::Merge(json!({ "status": value["status"] }));
        let stored = pods
            .create(&PostParams::default(), &object(value))
            .await
            .unwrap_or_else(|error| panic!("create pod {name}: {error}"));
        pods.patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap_or_else(|error| panic!("status of pod {name}: {error}"));
        let uid = stored.metadata.uid.expect("a stored pod has a uid");
        if let Some(data) = &worker.data {
            let resources: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), namespace, &metadata_kind);
            let resource = object(metadata(namespace, name, name, &uid, data));
            resources
                .create(&PostParams::default(), &resource)
                .await
                .unwrap_or_else(|error| panic!("create metadata {name}: {error}"));
        }
        made.push((index, uid));
    }
    made
}

fn pod(worker: &Worker) -> Value {
    let ready = if worker.ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": worker.pod, "namespace": worker.namespace, "labels": worker.labels()},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
        "status": {
            "phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{
                "name": "main", "ready": worker.ready, "restartCount": 0, "image": "x", "imageID": "x",
                "state": {"running": {}},
            }],
        },
    })
}

fn slice(namespace: &str, name: &str, pods: &[(&str, &str, bool)]) -> Value {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|&(pod, uid, ready)| {
            json!({
                "addresses": ["10.1.2.3"],
                "conditions": {"ready": ready, "serving": ready, "terminating": false},
                "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace, "uid": uid},
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": name,
                "nvidia.com/dynamo-discovery-backend": "kubernetes",
                "nvidia.com/dynamo-discovery-enabled": "true",
            },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "system", "port": 9090, "protocol": "TCP"}],
    })
}

fn metadata(namespace: &str, name: &str, pod: &str, uid: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata",
        "metadata": {
            "name": name, "namespace": namespace,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid,
                "controller": name == pod, "blockOwnerDeletion": false,
            }],
        },
        "spec": {"data": data},
    })
}

/// The id that Dynamo derives from a resource's name.
#[must_use]
pub fn instance(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() & 0x001F_FFFF_FFFF_FFFF
}

/// The records of a worker with one endpoint and one model card. Nothing listens at its addresses.
#[must_use]
pub fn records(dynamo_namespace: &str, component: &str, pod: &str, role: &str, model: &str) -> Value {
    let id = instance(pod);
    let path = format!("{dynamo_namespace}/{component}/generate/{id:x}");
    let (model_type, worker_type, needs) = match role {
        "prefill" => ("", "prefill", json!([["decode"]])),
        "decode" => ("Chat | Completions", "decode", json!([["prefill"]])),
        _ => ("Chat | Completions", "aggregated", json!([])),
    };
    json!({
        "endpoints": {path.clone(): {
            "type": "Endpoint", "namespace": dynamo_namespace, "component": component, "endpoint": "generate",
            "instance_id": id, "device_type": "cuda", "request_plane_codec": "msgpack",
            "transport": {"tcp": format!("127.0.0.1:9/{id:x}/{dynamo_namespace}/{component}/generate")},
        }},
        "model_cards": {path: {
            "type": "Model", "namespace": dynamo_namespace, "component": component, "endpoint": "generate",
            "instance_id": id,
            "card_json": {
                "display_name": model, "slug": model, "model_input": "Tokens",
                "model_type": model_type, "worker_type": worker_type, "needs": needs,
                "context_length": 40960, "kv_cache_block_size": 16,
                "runtime_config": {"total_kv_blocks": 1024, "max_num_batched_tokens": 8192, "data_parallel_size": 1},
            },
        }},
        "event_channels": null,
        "event_sources": null,
    })
}
