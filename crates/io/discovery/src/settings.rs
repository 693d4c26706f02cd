//! What the config asks of discovery, in the terms of sources. What a change of it means is `continuum_config::plan`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use continuum_config::{
    Config,
    model::{Discovery, DiscoveryLimits, DiscoverySource, Upstream},
};
use continuum_fleet::{
    NamespaceMatch, Reducer,
    ids::Graph,
    kubernetes::{self, pods},
    limits::Limits,
};

#[cfg(feature = "etcd")]
use crate::etcd;
use crate::{
    etcd::{Auth, Tls},
    source::{Signals, SourceKind},
};

/// A watcher's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) place: Place,
    pub(crate) namespaces: Vec<Graph>,
    pub(crate) namespace_match: NamespaceMatch,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) limits: Limits,
    pub(crate) state_dir: Option<PathBuf>,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Etcd {
        endpoints: Vec<String>,
        tls: Option<Tls>,
        auth: Option<Auth>,
    },
    File {
        root: PathBuf,
    },
    Kubernetes {
        namespace: String,
        limits: kubernetes::Limits,
    },
    KubernetesPods {
        namespace: String,
        fleet: pods::Settings,
    },
    /// Controllers watch this kind and push the view.
    Controller {
        upstream: SourceKind,
        /// What a view must be of, for each namespace.
        origins: BTreeMap<Graph, String>,
    },
}

impl Settings {
    /// `None` when discovery is off.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let dynamo = &config.dynamo;
        if !dynamo.enabled {
            return None;
        }
        let discovery = &dynamo.discovery;
        let place = match discovery.source {
            DiscoverySource::Etcd => Place::etcd(&discovery.etcd),
            DiscoverySource::File => Place::File {
                root: discovery.file.path.clone().unwrap_or_default(),
            },
            DiscoverySource::Kubernetes => Place::Kubernetes {
                namespace: discovery.kubernetes.namespace.clone(),
                limits: resources(&discovery.limits),
            },
            DiscoverySource::KubernetesPods => Place::pods(discovery),
            DiscoverySource::Controller => {
                let upstream = config
                    .controller
                    .as_ref()
                    .and_then(|controller| controller.upstream)
                    .unwrap_or(Upstream::Kubernetes);
                let origins = discovery.origins(upstream.source()).into_iter();
                Place::Controller {
                    upstream: match upstream {
                        Upstream::KubernetesPods => SourceKind::KubernetesPods,
                        Upstream::Kubernetes => SourceKind::Kubernetes,
                    },
                    origins: origins
                        .map(|(name, origin)| (Graph::from(name.as_str()), origin))
                        .collect(),
                }
            }
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = &discovery.limits;
        let backoff = discovery.backoff();
        Some(Self {
            place,
            namespaces: discovery.namespaces().into_iter().map(Graph::from).collect(),
            namespace_match: discovery.namespace_match.of_fleet(),
            backoff: (backoff.initial, backoff.max),
            limits: Limits {
                record_bytes: size(limits.max_record_bytes),
                retained_card_bytes: size(limits.max_retained_card_bytes),
                retained_cards_total_bytes: size(limits.max_retained_cards_total_bytes),
                records_per_keyspace: size(limits.max_records_per_keyspace.into()),
            },
            state_dir: dynamo.state_dir.clone(),
        })
    }

    /// Whether nothing but the Dynamo namespaces differs, of a source that can be told of others while it is watched.
    pub(crate) fn differs_by_names_alone(&self, other: &Self) -> bool {
        let nameless = |of: &Self| {
            let mut of = Self {
                namespaces: Vec::new(),
                ..of.clone()
            };
            if let Place::KubernetesPods { fleet, .. } = &mut of.place {
                fleet.namespaces.clear();
            }
            of
        };
        let told = match &self.place {
            Place::Kubernetes { .. } | Place::KubernetesPods { .. } => true,
            Place::Etcd { .. } | Place::File { .. } | Place::Controller { .. } => false,
        };
        told && nameless(self) == nameless(other)
    }

    pub(crate) const fn kind(&self) -> SourceKind {
        match &self.place {
            Place::Etcd { .. } => SourceKind::Etcd,
            Place::File { .. } => SourceKind::File,
            Place::Kubernetes { .. } => SourceKind::Kubernetes,
            Place::KubernetesPods { .. } => SourceKind::KubernetesPods,
            Place::Controller { .. } => SourceKind::Controller,
        }
    }

    /// What the records of the source can tell.
    pub(crate) const fn signals(&self) -> Signals {
        match &self.place {
            Place::Controller { upstream, .. } => upstream.signals(),
            Place::Etcd { .. }
            | Place::File { .. }
            | Place::Kubernetes { .. }
            | Place::KubernetesPods { .. } => self.kind().signals(),
        }
    }

    /// What the controllers watch, where they push the view.
    pub(crate) const fn upstream(&self) -> Option<SourceKind> {
        match &self.place {
            Place::Controller { upstream, .. } => Some(*upstream),
            Place::Etcd { .. }
            | Place::File { .. }
            | Place::Kubernetes { .. }
            | Place::KubernetesPods { .. } => None,
        }
    }

    /// Whether this build can read the source.
    pub(crate) const fn supported(&self) -> bool {
        match &self.place {
            Place::Etcd { .. } => cfg!(feature = "etcd"),
            Place::Kubernetes { .. } | Place::KubernetesPods { .. } => cfg!(feature = "kubernetes"),
            Place::File { .. } | Place::Controller { .. } => true,
        }
    }

    /// Joins the records of this source.
    pub(crate) fn reducer(&self) -> Reducer {
        let reducer = Reducer::new(continuum_fleet::Settings {
            namespaces: self.namespaces.clone(),
            namespace_match: self.namespace_match,
            limits: self.limits,
        });
        match &self.place {
            Place::KubernetesPods { .. } => reducer.without_cards(),
            Place::Etcd { .. } | Place::File { .. } | Place::Kubernetes { .. } | Place::Controller { .. } => {
                reducer
            }
        }
    }

    /// Source, place and namespaces in words: what a kept view must have come from to be used.
    pub(crate) fn scope(&self) -> String {
        let place = match &self.place {
            Place::Etcd { endpoints, .. } => endpoints.join(","),
            Place::File { root } => root.display().to_string(),
            Place::Controller { upstream, .. } => upstream.as_str().to_owned(),
            Place::Kubernetes { namespace, .. } => namespace.clone(),
            // Pods do not say what they serve: records of other models are of another fleet.
            Place::KubernetesPods { namespace, fleet } => {
                format!("{namespace} {:?} {:?}", fleet.model, fleet.models)
            }
        };
        let names: Vec<&str> = self.namespaces.iter().map(Graph::as_str).collect();
        format!(
            "{} {place} {} {}",
            self.kind().as_str(),
            self.namespace_match.as_str(),
            names.join(",")
        )
    }
}

impl Place {
    fn pods(discovery: &Discovery) -> Self {
        let kubernetes = &discovery.kubernetes;
        let models = kubernetes.models.iter().map(|of| pods::ModelOf {
            component: of.component.clone(),
            model: of.model.clone(),
            namespace: of.dynamo_namespace.clone(),
        });
        Self::KubernetesPods {
            namespace: kubernetes.namespace.clone(),
            fleet: pods::Settings {
                namespaces: discovery.namespaces().into_iter().map(str::to_owned).collect(),
                generations: discovery.namespace_match.of_fleet() != NamespaceMatch::Exact,
                model: kubernetes.model.clone(),
                models: models.collect(),
                limits: resources(&discovery.limits),
            },
        }
    }

    fn etcd(etcd: &continuum_config::model::Etcd) -> Self {
        let tls = etcd.tls.as_ref().map(|tls| Tls {
            ca_cert: tls.ca_cert.clone(),
            client: match (&tls.client_cert, &tls.client_key) {
                (Some(cert), Some(key)) => Some((cert.clone(), key.path().to_owned())),
                (Some(_) | None, Some(_) | None) => None,
            },
            server_name: tls.server_name.clone(),
        });
        Self::Etcd {
            endpoints: etcd.endpoints.iter().map(ToString::to_string).collect(),
            // `https` endpoints without a block of their own: the system's roots.
            tls: tls.or_else(|| etcd.uses_tls().then(Tls::default)),
            auth: etcd.auth.as_ref().map(|auth| Auth {
                username: auth.username.clone(),
                password: auth.password.expose().to_owned(),
            }),
        }
    }
}

fn resources(limits: &DiscoveryLimits) -> kubernetes::Limits {
    kubernetes::Limits {
        resources: usize::try_from(limits.max_resources).unwrap_or(usize::MAX),
        bytes: usize::try_from(limits.max_resource_bytes).unwrap_or(usize::MAX),
    }
}

#[cfg(feature = "etcd")]
impl Settings {
    /// Settings of the etcd source.
    pub(crate) fn etcd(&self) -> Option<etcd::Settings> {
        match &self.place {
            Place::Etcd { endpoints, tls, auth } => Some(etcd::Settings {
                tls: tls.clone(),
                auth: auth.clone(),
                ..etcd::Settings::new(endpoints.clone(), self.namespaces.clone(), self.namespace_match)
            }),
            Place::File { .. }
            | Place::Kubernetes { .. }
            | Place::KubernetesPods { .. }
            | Place::Controller { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
