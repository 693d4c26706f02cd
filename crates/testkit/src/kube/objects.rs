//! What `kubectl apply` and `kubectl delete` do, for a test.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Cluster, eventually};

/// How long a new kind may take to be served.
const SERVED: Duration = Duration::from_secs(20);
/// The field manager of tests.
const MANAGER: &str = "continuum-test";

impl Cluster {
    /// Applies every document of a YAML text (server-side, taking fields over), and its `status` too. Waits until a CRD is served.
    /// Returns the objects as stored.
    ///
    /// # Panics
    /// When the API server refuses: see [`Cluster::try_apply`] for refusals on purpose.
    pub async fn apply(&self, yaml: &str) -> Vec<DynamicObject> {
        self.try_apply(yaml)
            .await
            .unwrap_or_else(|error| panic!("apply: {error}"))
    }

    /// As [`Cluster::apply`]; the first refusal is returned.
    ///
    /// # Errors
    /// What the API server answered.
    ///
    /// # Panics
    /// When the text is no YAML of Kubernetes objects, or names a kind that is not served.
    pub async fn try_apply(&self, yaml: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        let client = self.client().await;
        let mut stored = Vec::new();
        for document in documents(yaml) {
            stored.push(apply(&client, document).await?);
        }
        Ok(stored)
    }

    /// Deletes every object that a YAML text names; those that are gone already are fine.
    ///
    /// # Panics
    /// When the API server refuses.
    pub async fn delete(&self, yaml: &str) {
        let client = self.client().await;
        for document in documents(yaml) {
            let (api, name) = locate(&client, &document).await;
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_deleted) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => panic!("delete {name}: {error}"),
            }
        }
    }
}

/// Applies one object and its status.
pub(super) async fn apply(client: &Client, document: Value) -> Result<DynamicObject, kube::Error> {
    let (api, name) = locate(client, &document).await;
    let parameters = PatchParams::apply(MANAGER).force();
    let mut stored = api.patch(&name, &parameters, &Patch::Apply(&document)).await?;
    let is_crd = document["kind"] == "CustomResourceDefinition";
    if let Some(status) = document.get("status").filter(|_| !is_crd) {
        let status = Patch::Merge(json!({ "status": status }));
        stored = api.patch_status(&name, &PatchParams::default(), &status).await?;
    }
    if is_crd {
        eventually("the new kind is served", SERVED, || established(&api, &name)).await;
    }
    Ok(stored)
}

async fn established(api: &Api<DynamicObject>, name: &str) -> Option<()> {
    let crd = api.get(name).await.ok()?;
    let conditions = crd.data["status"]["conditions"].as_array()?.clone();
    conditions
        .iter()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
        .then_some(())
}

/// Where an object lives. A kind that was made a moment ago may need another look.
async fn locate(client: &Client, document: &Value) -> (Api<DynamicObject>, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&document["apiVersion"]);
    let kind = text(&document["kind"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let look = || async { pinned_kind(client, &gvk).await.ok() };
    let (resource, capabilities): (ApiResource, _) =
        eventually(&format!("{kind} is served"), SERVED, look).await;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = document["metadata"]["namespace"].as_str();
            Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), &resource)
        }
    };
    (api, text(&document["metadata"]["name"]))
}

fn documents(yaml: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(yaml)
        .map(|document| Value::deserialize(document).expect("YAML of Kubernetes objects"))
        .filter(|document| !document.is_null())
        .collect()
}
