//! Where workers are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use continuum_fleet::graphs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{DurationText, Endpoint, EndpointText, KeyFile, Scheme, Secret, SizeText, duration, size};

/// Where workers are found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Discovery {
    /// Where the workers' records are.
    pub source: DiscoverySource,
    /// Which namespaces of the fleet belong to a configured name.
    pub namespace_match: NamespaceMatch,
    /// For `source: etcd`.
    pub etcd: Etcd,
    /// For `source: file`.
    pub file: FileStore,
    /// For `source: kubernetes` and `source: kubernetes_pods`, and for `source: controller`, which stands for one of them.
    pub kubernetes: Kubernetes,
    /// How much of what the fleet writes is kept. An operator that reads the fleet for its routers has limits of its own.
    pub limits: DiscoveryLimits,
}

impl Discovery {
    /// The configured Dynamo namespaces of the source in use, in configured order.
    #[must_use]
    pub fn namespaces(&self) -> Vec<&str> {
        let (one, many) = match self.source {
            DiscoverySource::Etcd => (&self.etcd.namespace, &self.etcd.namespaces),
            DiscoverySource::File => (&self.file.namespace, &self.file.namespaces),
            DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods | DiscoverySource::Controller => (
                &self.kubernetes.dynamo_namespace,
                &self.kubernetes.dynamo_namespaces,
            ),
        };
        if many.is_empty() {
            vec![one.as_str()]
        } else {
            many.iter().map(String::as_str).collect()
        }
    }

    /// For each Dynamo namespace that is configured for this Kubernetes source, what its workers are found by, in one
    /// line: two configurations with an equal line see the same workers of it. Controllers tell routers these lines,
    /// so a change of their form is a change of what is said between the two.
    #[must_use]
    pub fn origins(&self, source: DiscoverySource) -> BTreeMap<String, String> {
        let kubernetes = &self.kubernetes;
        let line = |name: &str| {
            let place = [
                source.as_str(),
                &kubernetes.namespace,
                self.namespace_match.of_fleet().as_str(),
                name,
            ];
            if source == DiscoverySource::KubernetesPods {
                serde_json::json!([place, kubernetes.model, kubernetes.models_of(name)]).to_string()
            } else {
                // Cards tell the models.
                serde_json::json!(place).to_string()
            }
        };
        let names = if kubernetes.dynamo_namespaces.is_empty() {
            std::slice::from_ref(&kubernetes.dynamo_namespace)
        } else {
            kubernetes.dynamo_namespaces.as_slice()
        };
        names.iter().map(|name| (name.clone(), line(name))).collect()
    }

    /// How the source in use waits before it connects again.
    #[must_use]
    pub const fn backoff(&self) -> &WatchBackoff {
        match self.source {
            DiscoverySource::Etcd => &self.etcd.watch_reconnect_backoff,
            DiscoverySource::File => &self.file.watch_reconnect_backoff,
            DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods | DiscoverySource::Controller => {
                &self.kubernetes.watch_reconnect_backoff
            }
        }
    }
}

/// Where the records of a fleet are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DiscoverySource {
    /// An etcd cluster.
    #[default]
    Etcd,
    /// A directory on this machine, as Dynamo's file store writes it.
    File,
    /// `DynamoWorkerMetadata` resources joined with endpoint slices.
    Kubernetes,
    /// Pods with the operator's labels.
    KubernetesPods,
    /// The controllers of the operator that started this router (`controller`); written by the operator.
    Controller,
}

impl DiscoverySource {
    /// The word that is written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::File => "file",
            Self::Kubernetes => "kubernetes",
            Self::KubernetesPods => "kubernetes_pods",
            Self::Controller => "controller",
        }
    }
}

/// Which namespaces of the fleet belong to a configured name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum NamespaceMatch {
    /// The name and its worker generations: `<name>-legacy` and `<name>-<8 lower-case hex digits>`.
    #[default]
    Generation,
    /// The name alone.
    Exact,
    /// Whatever begins with the name.
    Prefix,
}

impl NamespaceMatch {
    /// The rule as the fleet's reducer has it.
    #[must_use]
    pub const fn of_fleet(self) -> graphs::NamespaceMatch {
        match self {
            Self::Generation => graphs::NamespaceMatch::Generation,
            Self::Exact => graphs::NamespaceMatch::Exact,
            Self::Prefix => graphs::NamespaceMatch::Prefix,
        }
    }
}

/// An etcd cluster that workers register in. The router only reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Etcd {
    /// Members of the cluster, 1 to 16: `http://host:port`, `https://host:port` or `host:port`, all of one scheme.
    #[schemars(with = "Vec<EndpointText>", length(max = 16))]
    pub endpoints: Vec<Endpoint>,
    /// The workers' `DYN_NAMESPACE`.
    #[schemars(length(min = 1, max = 253))]
    pub namespace: String,
    /// Several namespaces (2 to 16) instead of `namespace`, each with a shim pool of its own.
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub namespaces: Vec<String>,
    /// TLS to the members. Without it `https` endpoints are checked against the system's roots.
    pub tls: Option<EtcdTls>,
    /// User and password, where etcd asks for them.
    pub auth: Option<EtcdAuth>,
    /// How long to wait before connecting again.
    pub watch_reconnect_backoff: WatchBackoff,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            namespace: "dynamo".to_owned(),
            namespaces: Vec::new(),
            tls: None,
            auth: None,
            watch_reconnect_backoff: WatchBackoff::default(),
        }
    }
}

impl Etcd {
    /// Whether the members are reached over TLS: a `tls` block, or `https` endpoints.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.tls.is_some()
            || self
                .endpoints
                .iter()
                .any(|endpoint| endpoint.scheme == Some(Scheme::Https))
    }
}

/// TLS to etcd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdTls {
    /// Certificates to trust instead of the system's, PEM.
    #[schemars(length(min = 1))]
    pub ca_cert: Option<PathBuf>,
    /// Our certificate, PEM; goes with `client_key`.
    #[schemars(length(min = 1))]
    pub client_cert: Option<PathBuf>,
    /// The key of that certificate, PEM; goes with `client_cert`.
    pub client_key: Option<KeyFile>,
    /// The name that the members' certificates must carry, where that is not the endpoint's host.
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// A user of etcd. Read permission on the `v1/` prefixes is all it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdAuth {
    /// The user's name.
    #[schemars(length(min = 1), example = &"router")]
    pub username: String,
    /// The user's password.
    pub password: Secret,
}

/// How long to wait before connecting again: doubled after each failure, back to the start after a session
/// that lasted `max`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WatchBackoff {
    /// The first wait.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "10ms", "x-max" = "1h"))]
    pub initial: Duration,
    /// The longest wait; at least `initial`.
    #[serde(with = "duration")]
    #[schemars(with = "DurationText", extend("x-min" = "10ms", "x-max" = "1h"))]
    pub max: Duration,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
        }
    }
}

/// Dynamo's file store, for a fleet on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileStore {
    /// The store's root: the workers' `DYN_FILE_KV`. Needed with `source: file`.
    #[schemars(length(min = 1))]
    pub path: Option<PathBuf>,
    /// The workers' `DYN_NAMESPACE`.
    #[schemars(length(min = 1, max = 253))]
    pub namespace: String,
    /// Several namespaces (2 to 16) instead of `namespace`, each with a shim pool of its own.
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    pub namespaces: Vec<String>,
    /// How long to wait before reading again after a failure.
    pub watch_reconnect_backoff: WatchBackoff,
}

impl Default for FileStore {
    fn default() -> Self {
        Self {
            path: None,
            namespace: "dynamo".to_owned(),
            namespaces: Vec::new(),
            watch_reconnect_backoff: WatchBackoff::default(),
        }
    }
}

/// A fleet that Dynamo's operator runs in Kubernetes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// The Kubernetes namespace of the fleet's pods.
    pub namespace: String,
    /// The workers' `DYN_NAMESPACE`, as their label carries it.
    #[schemars(length(min = 1))]
    pub dynamo_namespace: String,
    /// Several of them (2 to 16) instead of `dynamo_namespace`, each with a shim pool of its own.
    #[schemars(length(max = 16), inner(length(min = 1)))]
    pub dynamo_namespaces: Vec<String>,
    /// For `kubernetes_pods`: the model that every worker serves. Either this or `models`.
    #[schemars(length(min = 1, max = 256))]
    pub model: Option<String>,
    /// For `kubernetes_pods`: the model of each component, where one namespace serves several.
    #[schemars(length(max = 256))]
    pub models: Vec<KubernetesModel>,
    /// How long to wait before listing again.
    pub watch_reconnect_backoff: WatchBackoff,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            namespace: "dynamo".to_owned(),
            dynamo_namespace: "dynamo".to_owned(),
            dynamo_namespaces: Vec::new(),
            model: None,
            models: Vec::new(),
            watch_reconnect_backoff: WatchBackoff::default(),
        }
    }
}

impl Kubernetes {
    /// Component and model of what a Dynamo namespace serves.
    pub(crate) fn models_of(&self, name: &str) -> BTreeSet<(&str, &str)> {
        let holds = |model: &&KubernetesModel| model.dynamo_namespace.as_deref().is_none_or(|of| of == name);
        self.models
            .iter()
            .filter(holds)
            .map(|model| (model.component.as_str(), model.model.as_str()))
            .collect()
    }
}

/// The model that the pods of one component serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KubernetesModel {
    /// The pods' `nvidia.com/dynamo-component` label, case included.
    #[schemars(length(min = 1), example = &"worker")]
    pub component: String,
    /// The model that they serve.
    #[schemars(length(min = 1, max = 256), example = &"model")]
    pub model: String,
    /// The Dynamo namespace that this holds for; needed when there are several.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub dynamo_namespace: Option<String>,
}

/// How much of what the fleet writes is kept. Everything in a registry is untrusted input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryLimits {
    /// A larger record is refused before it is parsed.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1KiB", "x-max" = "1GiB"))]
    pub max_record_bytes: u64,
    /// The largest model card whose full JSON is kept; of a larger one the known fields alone.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-max" = "1GiB"))]
    pub max_retained_card_bytes: u64,
    /// All kept cards together; equal cards count once.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-max" = "64GiB"))]
    pub max_retained_cards_total_bytes: u64,
    /// Instances, and cards; one more is refused. Of event channels, and of event sources, five times as many are kept.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_records_per_keyspace: u32,
    /// Kubernetes resources of one kind (metadata, endpoint slices, pods).
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_resources: u32,
    /// All records of Kubernetes metadata resources together.
    #[serde(with = "size")]
    #[schemars(with = "SizeText", extend("x-min" = "1MiB", "x-max" = "64GiB"))]
    pub max_resource_bytes: u64,
}

impl Default for DiscoveryLimits {
    fn default() -> Self {
        Self {
            max_record_bytes: 16 << 20,
            max_retained_card_bytes: 1 << 20,
            max_retained_cards_total_bytes: 256 << 20,
            max_records_per_keyspace: 16_384,
            max_resources: 16_384,
            max_resource_bytes: 256 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovery(text: &str) -> Discovery {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn of(text: &str, source: DiscoverySource) -> Vec<String> {
        discovery(text).origins(source).into_values().collect()
    }

    fn kubernetes(text: &str) -> Vec<String> {
        of(text, DiscoverySource::Kubernetes)
    }

    fn pods(text: &str) -> Vec<String> {
        of(text, DiscoverySource::KubernetesPods)
    }

    #[test]
    fn a_namespaces_line_says_all_that_its_workers_are_found_by_and_no_more() {
        // Routers and controllers of different releases compare them: the form does not change by accident.
        assert_eq!(
            kubernetes("{}"),
            [r#"["kubernetes","dynamo","generation","dynamo"]"#]
        );
        assert_eq!(
            pods(
                r#"{"kubernetes":{"namespace":"x","models":[{"component":"b","model":"m"},{"component":"a","model":"n"}]}}"#
            ),
            [r#"[["kubernetes_pods","x","generation","dynamo"],null,[["a","n"],["b","m"]]]"#]
        );
        let base = r#"{"kubernetes":{"model":"m","dynamo_namespaces":["a","b"]}}"#;
        let same = [
            r#"{"kubernetes":{"model":"m","dynamo_namespaces":["b","a"]}}"#,
            r#"{"source":"controller","kubernetes":{"model":"m","dynamo_namespaces":["a","b"],"watch_reconnect_backoff":{"initial":"9s"}}}"#,
        ];
        let other = [
            r#"{"kubernetes":{"namespace":"x","model":"m","dynamo_namespaces":["a","b"]}}"#,
            r#"{"namespace_match":"exact","kubernetes":{"model":"m","dynamo_namespaces":["a","b"]}}"#,
            r#"{"kubernetes":{"model":"m","dynamo_namespaces":["c","d"]}}"#,
        ];
        for how in [kubernetes, pods] as [fn(&str) -> Vec<String>; 2] {
            for text in same {
                assert_eq!(how(text), how(base), "{text}");
            }
            for text in other {
                assert!(how(text).iter().all(|line| !how(base).contains(line)), "{text}");
            }
        }
        assert!(kubernetes(base).iter().all(|line| !pods(base).contains(line)));
        let model = r#"{"kubernetes":{"model":"n","dynamo_namespaces":["a","b"]}}"#;
        assert_eq!(kubernetes(model), kubernetes(base), "cards tell the models");
        assert_ne!(pods(model), pods(base));
        // What is given to one namespace leaves the other's line alone.
        let of_b = r#"{"kubernetes":{"dynamo_namespaces":["a","b"],"models":[{"component":"w","model":"MODEL","dynamo_namespace":"b"},{"component":"w","model":"m","dynamo_namespace":"a"}]}}"#;
        let (one, two) = (
            pods(&of_b.replace("MODEL", "one")),
            pods(&of_b.replace("MODEL", "two")),
        );
        assert_eq!(one.first(), two.first());
        assert_ne!(one.last(), two.last());
    }
}
