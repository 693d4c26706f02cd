//! What an earlier life of the operator accepted, for a RouterConfig whose present spec is rejected: out of the ConfigMap
//! that it made.
//!
//! Three things may be there, and the first that can be used is. The accepted spec as a whole: judged as any other. The
//! part of it that says how routers are run, beside the configuration that they start with, for a spec that this version
//! would refuse or that was too large to be kept: nothing new is asked for, so nothing is judged but the fleet. And that
//! configuration alone: then it is pushed, and its ConfigMap kept up, but what the other children should be is not known.

use std::{collections::BTreeMap, sync::Arc};

use continuum_config::{Build, Unexpanded, check_unexpanded, model::DiscoverySource};
use continuum_crds::{RouterConfig, conditions::Reason};

use super::{
    Rejected, Settings,
    build::template,
    kept,
    memory::{Absent, InForce, ordinary, pools},
    render::CONFIG_KEY,
    validate::{Accepted, Fleet, literal, may_name, process_hash, validate},
};

/// What was in force, of the data of the ConfigMap. Nothing of a fleet that this life may not read.
pub(crate) fn in_force(
    object: &RouterConfig,
    data: &BTreeMap<String, String>,
    settings: &Settings,
) -> Result<InForce, Absent> {
    let before = kept::accepted(object, data);
    if let Some(before) = before.as_ref().filter(|before| before.whole) {
        match validate(&before.object, settings) {
            Ok(accepted) => return Ok(InForce::of(Arc::new(before.object.clone()), accepted)),
            Err(Rejected {
                reason: Reason::FleetNamespaceNotAllowed,
                ..
            }) => return Err(Absent::NotAccepted),
            // A newer operator is stricter: routers go on with what they have.
            Err(_) => {}
        }
    }
    let text = data.get(CONFIG_KEY).ok_or(Absent::Unreadable)?;
    let given = Given::read(text).ok_or(Absent::Unreadable)?;
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    if !may_name(own, &given.fleet, settings) {
        return Err(Absent::NotAccepted);
    }
    Ok(match before {
        Some(before) => match given.accepted(&before.object, text, settings) {
            Ok(accepted) => InForce::of(Arc::new(before.object), accepted),
            Err(_not_a_pod_template_any_more) => given.alone(text),
        },
        None => given.alone(text),
    })
}

/// Whether the text is a configuration that the operator gave to routers.
pub(crate) fn is_given(text: &str) -> bool {
    Given::read(text).is_some()
}

/// A configuration as it was given to routers.
struct Given {
    rendered: Unexpanded,
    uid: String,
    generation: i64,
    fleet: Fleet,
}

impl Given {
    fn read(text: &str) -> Option<Self> {
        let rendered = check_unexpanded(text, Build::FULL).ok()?;
        let config = &rendered.config;
        let controller = config.controller.as_ref()?;
        let discovery = &config.dynamo.discovery;
        let namespace = || discovery.kubernetes.namespace.clone();
        let fleet = match discovery.source {
            _ if !config.dynamo.enabled => Fleet::None,
            DiscoverySource::Controller => {
                let upstream = controller.upstream?;
                let mut discovery = Box::new(discovery.clone());
                discovery.source = upstream.source();
                Fleet::Pushed {
                    upstream,
                    namespace: namespace(),
                    discovery,
                }
            }
            source @ (DiscoverySource::Kubernetes | DiscoverySource::KubernetesPods) => Fleet::Local {
                source,
                namespace: Some(namespace()),
            },
            source @ (DiscoverySource::Etcd | DiscoverySource::File) => Fleet::Local {
                source,
                namespace: None,
            },
        };
        literal(&rendered.opaque, &fleet).ok()?;
        Some(Self {
            uid: controller.uid.clone().unwrap_or_default(),
            generation: controller.generation,
            rendered,
            fleet,
        })
    }

    /// What the RouterConfig asked for when it was accepted, with this configuration.
    fn accepted(&self, object: &RouterConfig, text: &str, settings: &Settings) -> Result<Accepted, Rejected> {
        let document = serde_yaml_ng::from_str(text).unwrap_or_default();
        let hash = process_hash(&self.rendered, &document);
        let config = &self.rendered.config;
        let mut said_before = Vec::new();
        let template = template::build(object, config, &self.fleet, &hash, settings, &mut said_before)?;
        Ok(Accepted {
            uid: self.uid.clone(),
            generation: self.generation,
            text: text.to_owned(),
            config: config.clone(),
            warnings: Vec::new(),
            fleet: self.fleet.clone(),
            template,
        })
    }

    fn alone(self, text: &str) -> InForce {
        InForce {
            uid: self.uid,
            generation: self.generation,
            text: text.into(),
            pools: pools(&self.rendered.config),
            ordinary: ordinary(&self.rendered.config),
            fleet: self.fleet,
            made_of: None,
        }
    }
}

#[cfg(test)]
mod tests;
