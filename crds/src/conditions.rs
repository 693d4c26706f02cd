//! The conditions of a `RouterConfig`, and why they are what they are. Both lists are closed: scripts may rely on them.

/// A condition in `status.conditions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Safe to gate a rollout on: everything below but `Degraded` is true for the present generation, and every router has a
    /// model that clients can ask for.
    Ready,
    /// The config is valid and is what routers are given.
    Accepted,
    /// Every child resource is in the cluster as the operator wants it.
    ResourcesApplied,
    /// The source of the fleet is connected, and its view is published and current.
    FleetSynced,
    /// The rollout is done, and every router has the current config and a current view.
    RoutersReady,
    /// Routers report a healthy frontend replica for every namespace that has a pool.
    ShimReachable,
    /// Something that users would notice is wrong, although requests may be served.
    Degraded,
}

impl ConditionType {
    /// Every condition, in the order in which the status lists them.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Accepted,
        Self::ResourcesApplied,
        Self::FleetSynced,
        Self::RoutersReady,
        Self::ShimReachable,
        Self::Degraded,
    ];

    /// The word in `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Accepted => "Accepted",
            Self::ResourcesApplied => "ResourcesApplied",
            Self::FleetSynced => "FleetSynced",
            Self::RoutersReady => "RoutersReady",
            Self::ShimReachable => "ShimReachable",
            Self::Degraded => "Degraded",
        }
    }
}

macro_rules! reasons {
    ($($name:ident of $condition:ident, $status:literal: $meaning:literal; $todo:literal.)*) => {
        /// Why a condition is what it is: the word in `reason`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)*
        }

        impl Reason {
            /// Every reason, in the order of the conditions.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in `reason`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The condition that it belongs to.
            #[must_use]
            pub const fn condition(self) -> ConditionType {
                match self {
                    $(Self::$name => ConditionType::$condition,)*
                }
            }

            /// The `status` of the condition with this reason: `True`, `False` or `Unknown`.
            #[must_use]
            pub const fn status(self) -> &'static str {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// What it means, one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }

            /// What to do about it, one sentence.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $todo,)*
                }
            }
        }
    };
}

reasons! {
    AllReady of Ready, "True": "Config, resources, fleet, routers and frontends are as they should be";
        "Nothing".
    NotAccepted of Ready, "False": "`Accepted` is false";
        "See `Accepted`".
    ResourcesNotApplied of Ready, "False": "`ResourcesApplied` is not true";
        "See `ResourcesApplied`".
    FleetNotSynced of Ready, "False": "`FleetSynced` is not true";
        "See `FleetSynced`".
    RoutersNotReady of Ready, "False": "`RoutersReady` is false";
        "See `RoutersReady`".
    ShimNotReachable of Ready, "False": "`ShimReachable` is not true";
        "See `ShimReachable`".
    NoRouterWanted of Ready, "False": "No router is wanted, so nobody answers requests";
        "Set `spec.router.replicas`".
    NoModelServed of Ready, "False": "A router has no model that clients could ask for now: none of the fleet, or without a shim pool none of a backend";
        "Read the message and `Degraded`: no backend and no pool is configured, no backend is healthy, no model is there, one half of a pair is missing, or no frontend lists it yet".

    Valid of Accepted, "True": "The config is valid";
        "Nothing".
    ValidWithWarnings of Accepted, "True": "The config is valid, but something in it is probably not meant so";
        "Read the warnings in the message".
    InvalidConfig of Accepted, "False": "`spec.config` is not valid; the last accepted one stays in force";
        "Correct the field that the message names".
    InvalidRouter of Accepted, "False": "`spec.router` is not valid; the last accepted one stays in force";
        "Correct the field that the message names".
    FleetNamespaceNotAllowed of Accepted, "False": "The fleet is in another namespace, and this operator may not read there";
        "Name a fleet in the RouterConfig's own namespace, or have the namespace added to the chart's `fleetNamespaces`".

    Applied of ResourcesApplied, "True": "Every resource is as the operator wants it";
        "Nothing".
    Applying of ResourcesApplied, "Unknown": "Resources have not all been applied yet for the present spec";
        "Wait; see the operator's log if it lasts".
    NothingAccepted of ResourcesApplied, "False": "No config of this RouterConfig is in force, so nothing is applied";
        "See `Accepted`".
    SpecNotKept of ResourcesApplied, "False": "The present spec is rejected, and of the one before only the configuration is known: its ConfigMap is kept up, other resources stay as they are";
        "See `Accepted`: with a valid spec everything is applied again".
    NoCertificate of ResourcesApplied, "False": "The operator has no certificate for the port that routers connect to, so it applies nothing";
        "Read in the message what is missing: the operator's Secret, the right to it, or the files of cert-manager".
    OwnedByOther of ResourcesApplied, "False": "A resource with the name of a child exists and belongs to something else; it is not touched, and no pod is started with it";
        "Delete or rename the resource that the message names, or rename the RouterConfig".
    Refused of ResourcesApplied, "False": "The API server refused a resource: a quota, an admission rule, or a field that it does not take";
        "Read the API server's words in the message".
    Forbidden of ResourcesApplied, "False": "The operator is not permitted to write a resource";
        "Install the chart with this namespace in `watchNamespaces`, or restore the operator's Role".
    ApiUnavailable of ResourcesApplied, "False": "The API server could not be reached or failed";
        "Wait: it is tried again; see the operator's log if it lasts".

    Synced of FleetSynced, "True": "The source is connected, and the view of the fleet is current";
        "Nothing".
    NoFleet of FleetSynced, "True": "The config asks for no discovery: there is no fleet to find";
        "Nothing".
    Connecting of FleetSynced, "False": "The source has not been listed for the first time yet";
        "Wait; if it lasts, the message says why the last attempt failed".
    Disconnected of FleetSynced, "False": "The source was lost; routers go on with the last view";
        "Read the source's error in the message: permissions, the source itself, or the network".
    Stale of FleetSynced, "False": "Routers work on a view that nobody has confirmed lately";
        "Look why the source cannot be read; the message has its last error".
    TooManyFleets of FleetSynced, "False": "The RouterConfigs of this namespace name as many different fleets already as the operator reads for one namespace: this one is not read";
        "Write the fleet alike where it is the same one (with `kubernetes_pods`: `model` and `models` too), or delete a RouterConfig; it is tried again within five minutes".
    NotWatched of FleetSynced, "Unknown": "Nobody watches the source: no config is in force";
        "See `Accepted`".
    NotReported of FleetSynced, "Unknown": "Routers read the fleet themselves, and none has reported yet";
        "See `RoutersReady`".

    UpToDate of RoutersReady, "True": "The rollout is done, and every router has the current config and view";
        "Nothing".
    ScaledToZero of RoutersReady, "True": "No router is wanted";
        "Nothing; set `spec.router.replicas` to serve requests".
    NoDeployment of RoutersReady, "False": "There is no Deployment of routers yet";
        "See `ResourcesApplied`".
    RollingOut of RoutersReady, "False": "The rollout of router pods is not done";
        "Wait; if it lasts, the message quotes what the Deployment says of itself, and `kubectl describe` of its pods says more".
    NotConnected of RoutersReady, "False": "Some routers have no session with the operator";
        "Wait some seconds: routers come back to a new leader by themselves; if it lasts, look at the router's log, check that a NetworkPolicy does not close the push port, and start the routers anew with `kubectl rollout restart deploy/NAME-router`".
    ConfigRefused of RoutersReady, "False": "A router cannot take over the current config; it goes on with the one before";
        "Correct what the message says: most often an environment variable or a file that the pod does not have".
    ConfigPending of RoutersReady, "False": "A router has not acknowledged the current config yet";
        "Wait; if it lasts, look at the router's log".
    ViewPending of RoutersReady, "False": "A router has no view of the fleet, or one that is older than 10 s";
        "Wait; if it lasts, look at the router's log".
    RouterNotReady of RoutersReady, "False": "A router says that it is not ready for requests";
        "Look at the router's log and at its `/readyz`".

    Reachable of ShimReachable, "True": "Every namespace that has a pool has a healthy frontend";
        "Nothing".
    NoPool of ShimReachable, "True": "The config has no shim pool: there is nothing to reach";
        "Nothing".
    NoHealthyReplica of ShimReachable, "False": "A namespace has a pool without a healthy frontend. A frontend counts as healthy until its checks have failed `health.down_after` times, one each `health.interval`: with the defaults about 15 to 20 s after it is lost";
        "Check the URLs under `backends` and that the frontends run; the message names the namespaces".
    NotKnown of ShimReachable, "Unknown": "No config is in force, or no router has reported about its pools yet";
        "See `Accepted` and `RoutersReady`".

    AsExpected of Degraded, "False": "Nothing that users would notice is wrong, as far as is known: a first rollout is under way, or no router is wanted, where `Ready` says so";
        "Nothing".
    NotServing of Degraded, "True": "Requests are not served, or not those of a whole pool: certainly, or no router has been known to serve for 30 s";
        "See the condition that the message names".
    ConfigNotInForce of Degraded, "True": "Routers run with an older config, since the present one was rejected";
        "See `Accepted`".
    RecordsRefused of Degraded, "True": "Records of the fleet are not used, or not as they are now: malformed, contradictory, claimed twice, of an unknown pod, or beyond a cap";
        "Mend the resource that the log of who reads the fleet names (the operator, or the routers with `fleetView: Local`). For a cap: where the operator reads the fleet, its caps are fixed and `dynamo.discovery.limits` is not used: remove what is too much, or set `spec.router.fleetView: Local` and raise the limit there; where routers read it, raise the limit there".
    NoModels of Degraded, "True": "The fleet is synced and serves no model: requests are answered with 404 or 503";
        "Check that workers run, are ready, and register in the configured Dynamo namespaces".
    ModelsWithoutPair of Degraded, "True": "A model has prefill workers or decode workers, but not both";
        "Bring up the missing role; the message names the models".
    ModelsNotListed of Degraded, "True": "A model has its workers, and no healthy frontend of its pool lists it";
        "Wait: a frontend takes some seconds to find workers; if it lasts, look at its log and at the Dynamo namespace that it serves".
    PublishersUnreachable of Degraded, "True": "Routers cannot subscribe to load or KV events of some workers";
        "Check `direct_allow_cidrs`, NetworkPolicies and the publishers' ports".
    RestartNeeded of Degraded, "True": "A changed field needs new router processes, and they were not rolled";
        "Run `kubectl rollout restart` on the Deployment of the routers".
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_has_reasons_for_true_and_for_false() {
        for condition in ConditionType::ALL {
            for status in ["True", "False"] {
                assert!(
                    Reason::ALL
                        .iter()
                        .any(|reason| reason.condition() == condition && reason.status() == status),
                    "{} {status}",
                    condition.as_str()
                );
            }
        }
    }

    #[test]
    fn a_reason_belongs_to_one_condition() {
        let mut words: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
