//! What a status is made of, as plain data: the caller has asked the cluster and the sessions.

use std::time::Duration;

use continuum_crds::conditions::Reason;
use continuum_fleet::Refused;
use continuum_messages::{ConfigId, Digest, push};

/// Everything that is known of one `RouterConfig` at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `metadata.generation`.
    pub generation: i64,
    /// What was found of the spec.
    pub verdict: Verdict,
    /// How applying the children went.
    pub applied: Applied,
    /// The config that routers are given; `None` when none was ever accepted.
    pub config: Option<ConfigId>,
    /// The fleet.
    pub fleet: Fleet,
    /// The Deployment of the routers.
    pub rollout: Option<Rollout>,
    /// The routers that are connected to this replica.
    pub routers: Vec<Router>,
    /// Dynamo namespaces that have a shim pool.
    pub pools: Vec<String>,
    /// A backend of ordinary routing is configured.
    pub ordinary: bool,
    /// For how long users have had reason to notice that nothing is served.
    pub unserved: Option<Duration>,
    /// The label selector of router pods.
    pub selector: String,
    /// The routers' Service; `None` while that name is somebody else's.
    pub url: Option<String>,
}

/// What was found of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in force.
    Accepted {
        /// Things that are probably not meant so.
        warnings: Vec<String>,
    },
    /// It is not.
    Rejected {
        /// A reason of `Accepted`.
        reason: Reason,
        /// What is wrong, with the field.
        message: String,
        /// An older one is in force.
        older_in_force: bool,
    },
}

/// How applying the children went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All of them are as they should be.
    All,
    /// There is nothing to apply.
    Nothing,
    /// It has not been done yet for the present spec, or not by the replica that leads now.
    Pending,
    /// An earlier life of the operator accepted what is in force, and nothing but its configuration is known.
    ConfigAlone {
        /// What is kept up, and what is not.
        message: String,
    },
    /// Some are not.
    Failed {
        /// A reason of `ResourcesApplied`.
        reason: Reason,
        /// Which, and why.
        message: String,
    },
}

/// The fleet of a `RouterConfig`.
#[derive(Clone, Debug, PartialEq)]
pub enum Fleet {
    /// No config was accepted yet.
    NotWatched,
    /// The operator reads no more different ones for this namespace.
    TooMany,
    /// The config asks for no discovery.
    Off,
    /// Routers read it themselves; their reports tell.
    Local {
        /// The source's word.
        kind: &'static str,
    },
    /// The operator reads it and pushes views.
    Pushed {
        /// What the source does.
        source: push::SourceState,
        /// Content of the newest view; `None` before the first.
        view: Option<Digest>,
        /// That view, counted.
        counts: push::FleetCounts,
        /// What is kept out of it, or is in it as it was before.
        refused: Refused,
    },
}

/// The Deployment of the routers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Wanted pods.
    pub desired: i32,
    /// Pods of any template.
    pub replicas: i32,
    /// Pods of the present template.
    pub updated: i32,
    /// Ready pods.
    pub ready: i32,
    /// Available pods.
    pub available: i32,
    /// The controller of Deployments has seen the present spec.
    pub observed: bool,
    /// Pods of the present template have all been there before: what is missing now was lost.
    pub complete: bool,
    /// Why it does not get on, in the words of the controller of Deployments; empty while it does.
    pub stuck: String,
}

/// One connected router.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Its pod.
    pub pod: String,
    /// The config that it has in force.
    pub config: Option<ConfigId>,
    /// Content of the view that it has in force.
    pub view: Option<Digest>,
    /// How long ago that view was known to be current, by the replica that the router follows.
    pub view_age: Duration,
    /// How long ago this replica had another view instead of that one.
    pub behind: Duration,
    /// Everything else that it said; `None` before its first report.
    pub report: Option<push::Report>,
}

impl Rollout {
    /// Every pod is of the present template, and none of another is left.
    #[must_use]
    pub const fn done(&self) -> bool {
        self.observed
            && self.updated >= self.desired
            && self.replicas == self.updated
            && self.available >= self.desired
    }
}

impl Fleet {
    /// Whether routers need a view of some age from the operator.
    #[must_use]
    pub const fn is_pushed(&self) -> bool {
        matches!(self, Self::Pushed { .. })
    }
}
