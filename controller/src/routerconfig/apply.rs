//! Children into the cluster: server-side apply, with no hand on what belongs to somebody else.

mod failure;
mod rollout;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use continuum_crds::{RouterConfig, conditions::Reason};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject, PartialObjectMeta},
};
use serde_json::json;
use tokio::sync::watch;

use self::failure::{failure, left_behind, sum};
pub(crate) use self::{
    failure::{Failure, reason_of},
    rollout::rollout_of,
};
use super::{
    MANAGED_BY, MANAGER, OWNER_NAMESPACE, OWNER_UID,
    build::{Child, kinds, pod_monitor, template},
    child_name,
    limits::{MAX_ELSEWHERE, PAGE},
    live::{self, Live, Look, Settled},
};
use crate::{
    cli::Namespaces,
    leader::while_leading,
    status::facts::{Applied, Rollout},
};

/// Kept on a RouterConfig while something of it is in the namespace of a fleet elsewhere.
pub(crate) const FINALIZER: &str = "router.continuum.dev/fleet-namespace";
/// Who writes the finalizer: of its own, so that applying it says nothing about other fields.
const FINALIZER_MANAGER: &str = "continuum-controller-finalizer";

/// On a RouterConfig with that finalizer: the namespaces in which something of it may be, separated by commas. A later
/// installation may not be allowed to look there.
pub(crate) const ELSEWHERE: &str = "router.continuum.dev/fleet-namespaces";

/// Applied before what names it.
const SERVICE_ACCOUNT: &str = "ServiceAccount";
const CONFIG_MAP: &str = "ConfigMap";
const ROLE_BINDING: &str = "RoleBinding";
const DEPLOYMENT: &str = "Deployment";
/// What others name, and must be of this RouterConfig for that.
const NAMED: [&str; 2] = [SERVICE_ACCOUNT, CONFIG_MAP];

/// Writes children.
pub(crate) struct Applier<'a> {
    pub(crate) client: &'a Client,
    /// What the watches have seen.
    pub(crate) live: &'a Live,
    /// Whether this replica may write: looked at before and during each write.
    pub(crate) leads: &'a watch::Receiver<bool>,
    /// Something was not written, since this replica does not lead any more.
    pub(crate) lost: AtomicBool,
    pub(crate) object: &'a RouterConfig,
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) applied: Applied,
    /// As the API server has the Deployment.
    pub(crate) rollout: Option<Rollout>,
    /// The name of the routers' Service is somebody else's.
    pub(crate) foreign_service: bool,
}

/// What is known of the children of one RouterConfig, by kind, so that nothing is asked or written twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// As they were applied last.
    settled: BTreeMap<String, Settled>,
    /// Kinds without a leftover.
    pruned: BTreeSet<String>,
    /// The newest ServiceAccount seen.
    account: Option<Account>,
}

/// Whose tokens the pods hold. One of the same name that came later is another: tokens of the first end with it.
#[derive(Clone, Debug)]
struct Account {
    uid: String,
    version: u64,
}

impl Known {
    /// What a watch shows may be older than what a write was answered.
    fn note_account(&mut self, live: &Look) {
        let version = live.version();
        if let Some(uid) = live.uid()
            && self.account.as_ref().is_none_or(|seen| seen.version < version)
        {
            self.account = Some(Account { uid, version });
        }
    }
}

impl Applier<'_> {
    /// Makes the cluster be like `children`. What `known` says to be as wanted is left alone, and the kind of which nobody
    /// is sure whether it is wanted.
    pub(crate) async fn apply(
        &self,
        children: &[Child],
        unsure: Option<&ApiResource>,
        known: &mut Known,
    ) -> Outcome {
        let mut failures = Vec::new();
        let mut rollout = None;
        let mut foreign_service = false;
        // Kinds that pods are given by name, and that are not known to be of this RouterConfig.
        let mut strange: Vec<(&str, Reason)> = Vec::new();
        for child in children {
            let kind = child.resource.kind.as_str();
            let done = match (kind, withheld(child, &strange)) {
                (_, Some(failure)) => Err(failure),
                (DEPLOYMENT, None) => self.deployment(child, known).await,
                (_, None) => self.one(child, known).await,
            };
            match done {
                Ok(Some(live)) if kind == DEPLOYMENT => rollout = Some(live.rollout.clone()),
                Ok(Some(live)) if kind == SERVICE_ACCOUNT => known.note_account(&live),
                Ok(_) => {}
                Err(failure) => {
                    known.settled.remove(kind);
                    let theirs = failure.reason == Reason::OwnedByOther;
                    foreign_service |= kind == "Service" && theirs;
                    if kind == SERVICE_ACCOUNT
                        && !theirs
                        && let Ok(Some(there)) = self.own(&child.resource).await
                    {
                        known.note_account(&there);
                    }
                    // An account that could not be looked at may be anybody's.
                    if (theirs && NAMED.contains(&kind))
                        || (kind == SERVICE_ACCOUNT && known.account.is_none())
                    {
                        strange.push((kind, failure.reason));
                    }
                    failures.push(failure);
                }
            }
        }
        if rollout.is_none()
            && !strange.is_empty()
            && let Ok(Some(there)) = self.own(&ApiResource::erase::<Deployment>(&())).await
        {
            rollout = Some(there.rollout.clone());
        }
        let wanted: BTreeSet<&str> = children
            .iter()
            .filter(|child| !child.foreign)
            .map(|child| child.resource.kind.as_str())
            .collect();
        for kind in kinds().into_iter().filter(|kind| Some(kind) != unsure) {
            if wanted.contains(kind.kind.as_str()) {
                known.pruned.remove(&kind.kind);
            } else if !known.pruned.contains(&kind.kind) {
                match self.prune(&kind).await {
                    Ok(()) if self.lost() => {}
                    Ok(()) => {
                        known.pruned.insert(kind.kind.clone());
                    }
                    Err(failure) => failures.push(failure),
                }
            }
        }
        Outcome {
            applied: sum(&failures),
            rollout,
            foreign_service,
        }
    }

    /// Puts the finalizer on, with the namespaces that it is for, or takes it off where there is none.
    pub(crate) async fn finalizer(&self, elsewhere: &BTreeSet<String>) -> Result<(), kube::Error> {
        let on = !elsewhere.is_empty();
        if (self.has_finalizer() == on && self.elsewhere() == *elsewhere) || !self.may_write() {
            return Ok(());
        }
        let api: Api<RouterConfig> = Api::namespaced(self.client.clone(), self.namespace());
        let names: Vec<&str> = elsewhere.iter().map(String::as_str).collect();
        let patch = json!({
            "apiVersion": "router.continuum.dev/v1alpha1",
            "kind": "RouterConfig",
            "metadata": {
                // Never the RouterConfig of the same name that came after this one.
                "uid": self.object.metadata.uid,
                "finalizers": if on { vec![FINALIZER] } else { Vec::new() },
                "annotations": if on { json!({ ELSEWHERE: names.join(",") }) } else { json!({}) },
            },
        });
        let params = PatchParams::apply(FINALIZER_MANAGER).force();
        let patch = Patch::Apply(&patch);
        let write = api.patch(self.name(), &params, &patch);
        self.writing(write).await.transpose()?;
        Ok(())
    }

    /// One child as wanted; the others are left alone.
    pub(crate) async fn keep(&self, child: &Child, known: &mut Known) -> Result<(), Failure> {
        self.one(child, known).await.map(drop)
    }

    /// Whether something was not written, since this replica does not lead any more.
    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// The namespaces in which something of it may be.
    pub(crate) fn elsewhere(&self) -> BTreeSet<String> {
        self.noted().take(MAX_ELSEWHERE).map(str::to_owned).collect()
    }

    /// All names in the note that can be those of namespaces.
    fn noted(&self) -> impl Iterator<Item = &str> {
        let noted = self.object.annotations().get(ELSEWHERE);
        noted
            .into_iter()
            .flat_map(|names| names.split(','))
            // Users can write annotations: what is no namespace must not become a part of a path.
            .filter(|name| is_namespace(name))
    }

    /// Deletes what is in the namespaces of fleets, but for the namespace `keep`.
    pub(crate) async fn leave_foreign(
        &self,
        allowed: &Namespaces,
        keep: Option<&str>,
    ) -> Result<(), Failure> {
        let selector = format!(
            "{MANAGED_BY}={MANAGER},{OWNER_UID}={}",
            self.object.metadata.uid.as_deref().unwrap_or_default()
        );
        let params = ListParams::default().labels(&selector);
        if self.noted().nth(MAX_ELSEWHERE).is_some() {
            tracing::warn!(
                routerconfig = format!("{}/{}", self.namespace(), self.name()),
                most = MAX_ELSEWHERE,
                "more namespaces are noted in the annotation than are looked at: the rest is left alone"
            );
        }
        let mut places: Vec<Option<String>> = match allowed {
            Namespaces::All => vec![None],
            // What this installation may not look at any more was noted when it might.
            Namespaces::Some(names) => {
                let names: BTreeSet<String> = names.iter().cloned().chain(self.elsewhere()).collect();
                names.into_iter().map(Some).collect()
            }
        };
        places.retain(|place| place.is_none() || place.as_deref() != keep);
        for place in places {
            for kind in kinds()
                .into_iter()
                .filter(|kind| kind.group == "rbac.authorization.k8s.io")
            {
                self.leave_kind(&kind, place.as_deref(), &params, keep)
                    .await
                    .map_err(|error| left_behind(&kind.kind, place.as_deref(), self.object, &error))?;
            }
        }
        Ok(())
    }

    async fn leave_kind(
        &self,
        kind: &ApiResource,
        place: Option<&str>,
        params: &ListParams,
        keep: Option<&str>,
    ) -> Result<(), kube::Error> {
        let api: Api<DynamicObject> = match place {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, kind),
            None => Api::all_with(self.client.clone(), kind),
        };
        // By pages, and without what is in them: anybody may have written them.
        let mut params = params.clone().limit(PAGE);
        loop {
            let page = api.list_metadata(&params).await?;
            self.leave_page(kind, &page.items, keep).await?;
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(());
            }
        }
    }

    async fn leave_page(
        &self,
        kind: &ApiResource,
        page: &[PartialObjectMeta<DynamicObject>],
        keep: Option<&str>,
    ) -> Result<(), kube::Error> {
        for left in page {
            let namespace = left.namespace().unwrap_or_default();
            // The answer is looked at, and not only asked for: nothing of others is deleted.
            if !self.is_ours(left, true) || keep == Some(namespace.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, kind);
            self.writing(delete(&api, left)).await.transpose()?;
        }
        Ok(())
    }

    /// A child in the RouterConfig's namespace as it is, if it is there and belongs to it.
    pub(crate) async fn own(&self, kind: &ApiResource) -> Result<Option<Arc<Look>>, Failure> {
        let name = child_name(self.name());
        let there = self.live.fetch(self.client, kind, self.namespace(), &name).await;
        let there = there.map_err(|error| failure(&kind.kind, self.namespace(), &name, &error))?;
        Ok(there.filter(|there| self.is_ours(&**there, false)))
    }

    /// The same with everything in it, which costs a request.
    pub(crate) async fn whole(&self, kind: &ApiResource) -> Result<Option<DynamicObject>, Failure> {
        let name = child_name(self.name());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace(), kind);
        let there = api.get_opt(&name).await;
        let there = there.map_err(|error| failure(&kind.kind, self.namespace(), &name, &error))?;
        Ok(there.filter(|there| self.is_ours(there, false)))
    }

    /// The Deployment, with the account that its pods are to be of in the template: where that is another one, they are
    /// replaced. It was applied before.
    async fn deployment(&self, child: &Child, known: &mut Known) -> Result<Option<Arc<Look>>, Failure> {
        let mut child = child.clone();
        if let Some(account) = &known.account {
            template::put_account(&mut child.object.data, account.uid.clone());
        }
        self.one(&child, known).await
    }

    async fn one(&self, child: &Child, known: &mut Known) -> Result<Option<Arc<Look>>, Failure> {
        let kind = &child.resource.kind;
        let name = child.object.name_any();
        let namespace = child.object.namespace().unwrap_or_default();
        let failed = |error: &kube::Error| failure(kind, &namespace, &name, error);
        let there = self
            .live
            .fetch(self.client, &child.resource, &namespace, &name)
            .await
            .map_err(|error| failed(&error))?;
        let wanted = live::wanted(&child.object);
        if let Some(there) = there {
            if !self.is_ours(&*there, child.foreign) {
                return Err(Failure {
                    reason: Reason::OwnedByOther,
                    message: format!("{kind} {namespace}/{name} exists and belongs to something else"),
                });
            }
            if known
                .settled
                .get(kind)
                .is_some_and(|settled| settled.holds(wanted, &there))
            {
                return Ok(Some(there));
            }
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &child.resource);
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&child.object);
        let write = api.patch(&name, &params, &patch);
        let Some(live) = self.writing(write).await else {
            return Ok(None);
        };
        let live = Look::of(&live.map_err(|error| failed(&error))?);
        known.settled.insert(kind.clone(), Settled::of(wanted, &live));
        Ok(Some(Arc::new(live)))
    }

    /// Deletes the child of a kind that is not wanted.
    async fn prune(&self, kind: &ApiResource) -> Result<(), Failure> {
        let name = child_name(self.name());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace(), kind);
        let there = match self.own(kind).await {
            Ok(there) => there,
            // Without that API there are no leftovers in it; without the right to it we never made one.
            Err(_) if kind.kind == pod_monitor().kind => None,
            Err(failure) => return Err(failure),
        };
        match there {
            Some(there) => self
                .writing(delete(&api, &*there))
                .await
                .transpose()
                .map(drop)
                .map_err(|error| failure(&kind.kind, self.namespace(), &name, &error)),
            None => Ok(()),
        }
    }

    /// A write, while this replica leads. After one that was not done there are no more: what follows relies on it.
    async fn writing<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        if self.lost() {
            return None;
        }
        let done = while_leading(self.leads, write).await;
        if done.is_none() {
            self.lost.store(true, Ordering::Relaxed);
        }
        done
    }

    fn is_ours(&self, there: &impl Resource, foreign: bool) -> bool {
        if foreign {
            let labels = there.labels();
            let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
            return is(MANAGED_BY, MANAGER)
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

/// Why a child is not applied while what it names is somebody else's: a Deployment would run the pods of whoever may
/// write RouterConfigs under that account, and a RoleBinding would give it rights.
fn withheld(child: &Child, strange: &[(&str, Reason)]) -> Option<Failure> {
    let kind = child.resource.kind.as_str();
    let needs: &[&str] = match kind {
        ROLE_BINDING => &[SERVICE_ACCOUNT],
        DEPLOYMENT => &NAMED,
        _ => &[],
    };
    let (missing, reason) = strange.iter().find(|(named, _)| needs.contains(named))?;
    Some(Failure {
        reason: *reason,
        message: format!(
            "{kind} {}/{} is not applied, since the {missing} that it names is not known to be of this RouterConfig",
            child.object.namespace().unwrap_or_default(),
            child.object.name_any(),
        ),
    })
}

async fn delete(api: &Api<DynamicObject>, there: &impl Resource) -> Result<(), kube::Error> {
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: there.meta().uid.clone(),
        resource_version: None,
    });
    match api.delete(&there.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the text can be the name of a namespace: a DNS-1123 label.
fn is_namespace(name: &str) -> bool {
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(label)
}

#[cfg(test)]
mod tests;
