//! The controllers of the operator that this router belongs to.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DiscoverySource;
use crate::value::{Endpoint, EndpointText};

/// The controllers of the operator that started this router. The operator writes this section: do not write it by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// `https://host:port`. Every address behind the host's name is a controller, and each gets a session.
    #[schemars(with = "EndpointText", example = &"https://continuum-controller-push.continuum.svc:9443")]
    pub endpoint: Endpoint,
    /// Certificates that the controllers are checked against, PEM. Read again when the file changes.
    #[schemars(length(min = 1), example = &"/etc/continuum-router/ca.crt")]
    pub ca_file: PathBuf,
    /// The token that this router shows to the controllers. Read for each session.
    #[schemars(length(min = 1), example = &"/var/run/secrets/continuum-router/token")]
    pub token_file: PathBuf,
    /// The generation of the `RouterConfig` that this configuration was made from. The newer of the file and what the
    /// controllers send is in force.
    #[schemars(range(min = 0), example = &1)]
    pub generation: i64,
    /// The UID of that `RouterConfig`. Generations of two say nothing: one that was made anew under the same name counts
    /// from 1 again.
    #[serde(default)]
    #[schemars(length(min = 1), example = &"0d6f6a1c-6c1e-4c38-9d0c-0a4f5f2b7a11")]
    pub uid: Option<String>,
    /// With `source: controller`: what the controllers watch for this router.
    #[serde(default)]
    pub upstream: Option<Upstream>,
}

/// What the controllers watch for a router whose view of the fleet is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Upstream {
    /// `DynamoWorkerMetadata` resources joined with endpoint slices.
    Kubernetes,
    /// Pods with the operator's labels.
    KubernetesPods,
}

impl Upstream {
    /// The source that reads it.
    #[must_use]
    pub const fn source(self) -> DiscoverySource {
        match self {
            Self::Kubernetes => DiscoverySource::Kubernetes,
            Self::KubernetesPods => DiscoverySource::KubernetesPods,
        }
    }
}
