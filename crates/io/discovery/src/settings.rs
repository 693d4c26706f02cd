//! What the config asks of discovery, in the terms of sources. What a change of it means is `continuum_config::plan`.

use std::{path::PathBuf, time::Duration};

use continuum_config::{
    Config,
    model::{DiscoverySource, Upstream},
};
use continuum_fleet::{NamespaceMatch, ids::Graph, limits::Limits};

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
    /// Controllers watch this kind and push the view.
    Controller(SourceKind),
    /// A source that this build or release cannot read; its settings do not matter here.
    Unsupported(SourceKind),
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
            DiscoverySource::Kubernetes => Place::Unsupported(SourceKind::Kubernetes),
            DiscoverySource::KubernetesPods => Place::Unsupported(SourceKind::KubernetesPods),
            DiscoverySource::Controller => {
                let upstream = config
                    .controller
                    .as_ref()
                    .and_then(|controller| controller.upstream);
                Place::Controller(match upstream {
                    Some(Upstream::KubernetesPods) => SourceKind::KubernetesPods,
                    Some(Upstream::Kubernetes) | None => SourceKind::Kubernetes,
                })
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

    pub(crate) const fn kind(&self) -> SourceKind {
        match &self.place {
            Place::Etcd { .. } => SourceKind::Etcd,
            Place::File { .. } => SourceKind::File,
            Place::Controller(_) => SourceKind::Controller,
            Place::Unsupported(kind) => *kind,
        }
    }

    /// What the records of the source can tell.
    pub(crate) const fn signals(&self) -> Signals {
        match &self.place {
            Place::Controller(upstream) => upstream.signals(),
            Place::Etcd { .. } | Place::File { .. } | Place::Unsupported(_) => self.kind().signals(),
        }
    }

    /// What the controllers watch, where they push the view.
    pub(crate) const fn upstream(&self) -> Option<SourceKind> {
        match &self.place {
            Place::Controller(upstream) => Some(*upstream),
            Place::Etcd { .. } | Place::File { .. } | Place::Unsupported(_) => None,
        }
    }

    /// Whether this build can read the source.
    pub(crate) const fn supported(&self) -> bool {
        match &self.place {
            Place::Etcd { .. } => cfg!(feature = "etcd"),
            Place::File { .. } | Place::Controller(_) => true,
            Place::Unsupported(_) => false,
        }
    }

    pub(crate) fn reducer(&self) -> continuum_fleet::Settings {
        continuum_fleet::Settings {
            namespaces: self.namespaces.clone(),
            namespace_match: self.namespace_match,
            limits: self.limits,
        }
    }

    /// Source, place and namespaces in words: what a kept view must have come from to be used.
    pub(crate) fn scope(&self) -> String {
        let place = match &self.place {
            Place::Etcd { endpoints, .. } => endpoints.join(","),
            Place::File { root } => root.display().to_string(),
            Place::Controller(upstream) => upstream.as_str().to_owned(),
            Place::Unsupported(_) => String::new(),
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
            Place::File { .. } | Place::Controller(_) | Place::Unsupported(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
