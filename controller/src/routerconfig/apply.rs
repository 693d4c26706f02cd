//! Children into the cluster: server-side apply, with no hand on what belongs to somebody else.

use std::collections::BTreeSet;

use continuum_crds::{RouterConfig, conditions::Reason};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;
use tokio::sync::watch;

use super::{
    MANAGER, OWNER_NAMESPACE, OWNER_UID,
    build::{Child, kinds, pod_monitor},
    child_name,
};
use crate::{
    cli::Namespaces,
    status::facts::{Applied, Rollout},
};

/// Kept on a RouterConfig while something of it is in the namespace of a fleet elsewhere.
pub(crate) const FINALIZER: &str = "router.continuum.dev/fleet-namespace";
/// Who writes the finalizer: of its own, so that applying it says nothing about other fields.
const FINALIZER_MANAGER: &str = "continuum-controller-finalizer";

/// Writes children.
pub(crate) struct Applier<'a> {
    pub(crate) client: &'a Client,
    /// Whether this replica may write: looked at before each write.
    pub(crate) leads: &'a watch::Receiver<bool>,
    pub(crate) object: &'a RouterConfig,
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) applied: Applied,
    /// As the API server has the Deployment.
    pub(crate) rollout: Option<Rollout>,
}

/// Something that could not be done.
struct Failure {
    reason: Reason,
    message: String,
}

impl Applier<'_> {
    /// Makes the cluster be like `children`. `pruned`: the kinds that are known to have no leftover.
    pub(crate) async fn apply(&self, children: &[Child], pruned: &mut BTreeSet<String>) -> Outcome {
        let mut failures = Vec::new();
        let mut rollout = None;
        for child in children {
            match self.one(child).await {
                Ok(Some(live)) if child.resource.kind == "Deployment" => rollout = Some(rollout_of(&live)),
                Ok(_) => {}
                Err(failure) => failures.push(failure),
            }
        }
        let wanted: BTreeSet<&str> = children
            .iter()
            .filter(|child| !child.foreign)
            .map(|child| child.resource.kind.as_str())
            .collect();
        for kind in kinds() {
            if wanted.contains(kind.kind.as_str()) {
                pruned.remove(&kind.kind);
            } else if !pruned.contains(&kind.kind) {
                match self.prune(&kind).await {
                    Ok(()) => {
                        pruned.insert(kind.kind.clone());
                    }
                    Err(failure) => failures.push(failure),
                }
            }
        }
        Outcome {
            applied: sum(&failures),
            rollout,
        }
    }

    /// Puts the finalizer on or takes it off. Says whether the RouterConfig is as it should be.
    pub(crate) async fn finalizer(&self, on: bool) -> Result<(), kube::Error> {
        if self.has_finalizer() == on || !self.may_write() {
            return Ok(());
        }
        let api: Api<RouterConfig> = Api::namespaced(self.client.clone(), self.namespace());
        let patch = json!({
            "apiVersion": "router.continuum.dev/v1alpha1",
            "kind": "RouterConfig",
            "metadata": {
                // Never the RouterConfig of the same name that came after this one.
                "uid": self.object.metadata.uid,
                "finalizers": if on { vec![FINALIZER] } else { Vec::new() },
            },
        });
        let params = PatchParams::apply(FINALIZER_MANAGER).force();
        api.patch(self.name(), &params, &Patch::Apply(&patch)).await?;
        Ok(())
    }

    /// Deletes what is in the namespaces of fleets, but for the namespace `keep`.
    pub(crate) async fn leave_foreign(
        &self,
        allowed: &Namespaces,
        keep: Option<&str>,
    ) -> Result<(), kube::Error> {
        let selector = format!(
            "app.kubernetes.io/managed-by={MANAGER},{OWNER_UID}={}",
            self.object.metadata.uid.as_deref().unwrap_or_default()
        );
        let params = ListParams::default().labels(&selector);
        for kind in kinds()
            .into_iter()
            .filter(|kind| kind.group == "rbac.authorization.k8s.io")
        {
            let apis: Vec<Api<DynamicObject>> = match allowed {
                Namespaces::All => vec![Api::all_with(self.client.clone(), &kind)],
                Namespaces::Some(names) => names
                    .iter()
                    .map(|name| Api::namespaced_with(self.client.clone(), name, &kind))
                    .collect(),
            };
            for api in apis {
                for left in api.list(&params).await? {
                    let namespace = left.namespace().unwrap_or_default();
                    if keep == Some(namespace.as_str()) || !self.may_write() {
                        continue;
                    }
                    let api: Api<DynamicObject> =
                        Api::namespaced_with(self.client.clone(), &namespace, &kind);
                    delete(&api, &left).await?;
                }
            }
        }
        Ok(())
    }

    async fn one(&self, child: &Child) -> Result<Option<DynamicObject>, Failure> {
        let kind = &child.resource.kind;
        let name = child.object.name_any();
        let namespace = child.object.namespace().unwrap_or_default();
        let failed = |error: &kube::Error| failure(kind, &namespace, &name, error);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &child.resource);
        if let Some(there) = api.get_opt(&name).await.map_err(|error| failed(&error))?
            && !self.is_ours(&there, child.foreign)
        {
            return Err(Failure {
                reason: Reason::OwnedByOther,
                message: format!("{kind} {namespace}/{name} exists and belongs to something else"),
            });
        }
        if !self.may_write() {
            return Ok(None);
        }
        let params = PatchParams::apply(MANAGER).force();
        let live = api.patch(&name, &params, &Patch::Apply(&child.object)).await;
        live.map(Some).map_err(|error| failed(&error))
    }

    /// Deletes the child of a kind that is not wanted.
    async fn prune(&self, kind: &ApiResource) -> Result<(), Failure> {
        let name = child_name(self.name());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace(), kind);
        let failed = |error: &kube::Error| failure(&kind.kind, self.namespace(), &name, error);
        let there = match api.get_opt(&name).await {
            Ok(there) => there,
            // Without that API there are no leftovers in it; without the right to it we never made one.
            Err(_) if kind.kind == pod_monitor().kind => None,
            Err(error) => return Err(failed(&error)),
        };
        match there {
            Some(there) if self.is_ours(&there, false) && self.may_write() => {
                delete(&api, &there).await.map_err(|error| failed(&error))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_ours(&self, there: &DynamicObject, foreign: bool) -> bool {
        if foreign {
            let labels = there.labels();
            let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
            return is("app.kubernetes.io/managed-by", MANAGER)
                && is("app.kubernetes.io/instance", self.name())
                && is(OWNER_NAMESPACE, self.namespace())
                && is(OWNER_UID, self.object.metadata.uid.as_deref().unwrap_or_default());
        }
        let uid = self.object.metadata.uid.as_deref();
        there
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == uid)
    }

    /// Whether something of it may be outside its namespace.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|name| name == FINALIZER)
    }

    fn may_write(&self) -> bool {
        *self.leads.borrow()
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// Why the API server did not do it.
pub(crate) fn reason_of(error: &kube::Error) -> Reason {
    let kube::Error::Api(status) = error else {
        return Reason::ApiUnavailable;
    };
    // Quotas and admission answer 403 too; the authorizer names the user.
    let authorizer = status.message.contains("is forbidden: User")
        || status.message.contains("attempting to grant RBAC permissions");
    match status.code {
        403 if authorizer => Reason::Forbidden,
        429 | 500.. => Reason::ApiUnavailable,
        _ => Reason::Refused,
    }
}

async fn delete(api: &Api<DynamicObject>, there: &DynamicObject) -> Result<(), kube::Error> {
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: there.metadata.uid.clone(),
        resource_version: None,
    });
    match api.delete(&there.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

fn failure(kind: &str, namespace: &str, name: &str, error: &kube::Error) -> Failure {
    let why = if let kube::Error::Api(status) = error {
        status.message.clone()
    } else {
        error.to_string()
    };
    Failure {
        reason: reason_of(error),
        message: format!("{kind} {namespace}/{name}: {why}"),
    }
}

/// The worst reason, and all messages.
fn sum(failures: &[Failure]) -> Applied {
    let Some(worst) = failures.iter().map(|failure| failure.reason).min() else {
        return Applied::All;
    };
    let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    Applied::Failed {
        reason: worst,
        message: messages.join("; "),
    }
}

fn rollout_of(deployment: &DynamicObject) -> Rollout {
    let number = |path: &str| {
        let value = deployment.data.pointer(path).and_then(serde_json::Value::as_i64);
        value
            .and_then(|value| i32::try_from(value).ok())
            .unwrap_or_default()
    };
    let observed = deployment
        .data
        .pointer("/status/observedGeneration")
        .and_then(serde_json::Value::as_i64);
    Rollout {
        desired: number("/spec/replicas"),
        replicas: number("/status/replicas"),
        updated: number("/status/updatedReplicas"),
        ready: number("/status/readyReplicas"),
        available: number("/status/availableReplicas"),
        observed: observed.is_some_and(|seen| Some(seen) >= deployment.metadata.generation),
    }
}

/// The Deployment as the API server has it, without a write.
pub(crate) async fn rollout(client: &Client, namespace: &str, name: &str) -> Option<Rollout> {
    let kind = ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    Some(rollout_of(&api.get_opt(name).await.ok()??))
}
