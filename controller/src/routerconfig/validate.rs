//! Whether a RouterConfig can be served, and what it asks for.

use continuum_config::{
    Build, Config, Unexpanded, check_unexpanded,
    model::{Discovery, DiscoverySource, Upstream},
    plan::{Class, class_of},
};
use continuum_crds::{FleetView, RouterConfig, conditions::Reason};
use continuum_messages::limits::MAX_CONFIG_BYTES;
use serde_json::{Map, Value};

use super::{
    Rejected, Settings,
    build::{self, template},
    limits::MAX_MESSAGE_CHARS,
    render::{self, View},
};

/// What a valid RouterConfig asks for.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The UID of the RouterConfig, with which generations are compared; empty if it is not known.
    pub uid: String,
    /// The generation that was judged.
    pub generation: i64,
    /// The configuration of the routers: for the ConfigMap and for their sessions.
    pub text: String,
    /// What the user wrote, defaults filled in. Where a reference to the environment stands there is a placeholder.
    pub config: Config,
    /// What works but may not be meant.
    pub warnings: Vec<String>,
    /// Where the fleet is and who reads it.
    pub fleet: Fleet,
    /// The pod template, overrides merged.
    pub(crate) template: Value,
}

/// Where the fleet is and who reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fleet {
    /// There is none: discovery is off.
    None,
    /// Routers read it.
    Local {
        /// Where.
        source: DiscoverySource,
        /// The Kubernetes namespace, for the two sources that have one.
        namespace: Option<String>,
    },
    /// The operator reads it for them.
    Pushed {
        /// Where.
        upstream: Upstream,
        /// The Kubernetes namespace.
        namespace: String,
        /// Everything that the source needs to know.
        discovery: Box<Discovery>,
    },
}

impl Fleet {
    /// The Kubernetes namespace of the fleet, if it has one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Local { namespace, .. } => namespace.as_deref(),
            Self::Pushed { namespace, .. } => Some(namespace),
        }
    }
}

impl Accepted {
    /// The message of the condition `Accepted`.
    #[must_use]
    pub fn message(&self) -> String {
        if self.warnings.is_empty() {
            return "the config is valid".to_owned();
        }
        clip(&format!("the config is valid; {}", self.warnings.join("; ")))
    }

    /// What changes when pods must be started anew for the configuration.
    pub(crate) fn process_hash(&self) -> Option<&str> {
        let annotations = self.template.pointer("/metadata/annotations")?;
        annotations.get(template::PROCESS_CONFIG)?.as_str()
    }

    /// The reason of the condition `Accepted`.
    #[must_use]
    pub fn reason(&self) -> Reason {
        if self.warnings.is_empty() {
            Reason::Valid
        } else {
            Reason::ValidWithWarnings
        }
    }
}

/// Judges a RouterConfig. Nothing but the arguments is looked at: no path, URL or variable that it names.
///
/// # Errors
/// Why it cannot be served, by field.
pub fn validate(object: &RouterConfig, settings: &Settings) -> Result<Accepted, Rejected> {
    let own = object.metadata.namespace.as_deref().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let document = &object.spec.config.0;
    reserved(document)?;
    source_is_written(document)?;

    let written = serde_yaml_ng::to_string(document).unwrap_or_default();
    let Unexpanded {
        config,
        warnings,
        opaque,
        plain_secrets,
    } = check_unexpanded(&written, Build::FULL).map_err(invalid)?;
    let mut warnings: Vec<String> = warnings
        .into_iter()
        .map(|problem| at(&problem.path, &problem.message))
        .collect();
    warnings.extend(plain_secrets.iter().map(|path| {
        at(
            path,
            "a secret in clear text, here and in the routers' ConfigMap; write ${NAME}, and give routers that variable \
             with spec.router.env or spec.router.envFrom from a Secret",
        )
    }));

    let fleet = fleet(object, &config)?;
    if matches!(fleet, Fleet::Pushed { .. }) && writes_limits(document) {
        warnings.push(
            "spec.config.dynamo.discovery.limits: the operator reads this fleet, within limits of its own; these are for \
             routers that read it themselves (spec.router.fleetView: Local)"
                .to_owned(),
        );
    }
    literal(&opaque, &fleet)?;
    if let Some(namespace) = fleet.namespace()
        && !may_name(own, &fleet, settings)
    {
        return Err(Rejected {
            reason: Reason::FleetNamespaceNotAllowed,
            message: format!(
                "spec.config.dynamo.discovery.kubernetes.namespace: the fleet is in namespace {namespace}, and this operator \
                 may not read it for {own}; name a fleet in {own}, or have {namespace} added to the chart's fleetNamespaces"
            ),
        });
    }

    let view = match &fleet {
        Fleet::Pushed { upstream, .. } => View::Pushed(*upstream),
        Fleet::None | Fleet::Local { .. } => View::Local,
    };
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let text = render::render(document, view, (&uid, generation), settings);
    if text.len() > MAX_CONFIG_BYTES {
        return Err(Rejected {
            reason: Reason::InvalidConfig,
            message: format!(
                "spec.config: as the text that routers are sent it has {} bytes, and {MAX_CONFIG_BYTES} are the most; shorten it, \
                 or split its backends up among several RouterConfigs",
                text.len(),
            ),
        });
    }
    let rendered = check_unexpanded(&text, Build::FULL).map_err(invalid)?;
    if opaque.iter().any(|path| path == "server.graceful_period") {
        warnings.push(
            "spec.config.server.graceful_period: it is not known here, so pods are given the time of the default".to_owned(),
        );
    }
    let hash = process_hash(&rendered, document);
    let template = template::build(object, &config, &fleet, &hash, settings, &mut warnings)?;
    build::left_out(object, &mut warnings);
    router(object)?;
    Ok(Accepted {
        uid,
        generation,
        text,
        config,
        warnings,
        fleet,
        template,
    })
}

/// Refuses what the operator sets. The API server does as well; an older definition may not.
fn reserved(document: &Map<String, Value>) -> Result<(), Rejected> {
    for (path, instead) in render::RESERVED {
        let mut at = Some(document);
        let mut names = path.split('.').peekable();
        while let (Some(fields), Some(name)) = (at, names.next()) {
            let found = fields.get(name);
            if names.peek().is_none() && found.is_some_and(|value| !value.is_null()) {
                return Err(Rejected {
                    reason: Reason::InvalidConfig,
                    message: format!("spec.config.{path}: the operator sets it, remove it; {instead}"),
                });
            }
            at = found.and_then(Value::as_object);
        }
    }
    Ok(())
}

fn fleet(object: &RouterConfig, config: &Config) -> Result<Fleet, Rejected> {
    let wanted = object.spec.router.fleet_view;
    let discovery = &config.dynamo.discovery;
    let pushable = |upstream| {
        if wanted == Some(FleetView::Local) {
            Fleet::Local {
                source: discovery.source,
                namespace: Some(discovery.kubernetes.namespace.clone()),
            }
        } else {
            Fleet::Pushed {
                upstream,
                namespace: discovery.kubernetes.namespace.clone(),
                discovery: Box::new(discovery.clone()),
            }
        }
    };
    let local = || Fleet::Local {
        source: discovery.source,
        namespace: None,
    };
    let fleet = match discovery.source {
        _ if !config.dynamo.enabled => Fleet::None,
        DiscoverySource::Kubernetes => pushable(Upstream::Kubernetes),
        DiscoverySource::KubernetesPods => pushable(Upstream::KubernetesPods),
        DiscoverySource::Etcd | DiscoverySource::File => local(),
        DiscoverySource::Controller => {
            return Err(Rejected {
                reason: Reason::InvalidConfig,
                message: "spec.config.dynamo.discovery.source: the operator sets controller itself where views are pushed; \
                          write kubernetes or kubernetes_pods"
                    .to_owned(),
            });
        }
    };
    if wanted == Some(FleetView::Pushed) && !matches!(fleet, Fleet::Pushed { .. }) {
        return Err(Rejected {
            reason: Reason::InvalidRouter,
            message: "spec.router.fleetView: only the sources kubernetes and kubernetes_pods can be pushed; write Local"
                .to_owned(),
        });
    }
    Ok(fleet)
}

/// The router's default source is etcd; whoever asks for a fleet here must say where it is.
fn source_is_written(document: &Map<String, Value>) -> Result<(), Rejected> {
    let dynamo = document.get("dynamo");
    let enabled = dynamo.and_then(|dynamo| dynamo.get("enabled"));
    let source = dynamo.and_then(|dynamo| dynamo.get("discovery")?.get("source"));
    if source.is_none() && enabled.is_some_and(|enabled| enabled != false) {
        return Err(Rejected {
            reason: Reason::InvalidConfig,
            message: "spec.config.dynamo.discovery.source: say where the fleet is: kubernetes, kubernetes_pods, etcd or file"
                .to_owned(),
        });
    }
    Ok(())
}

fn writes_limits(document: &Map<String, Value>) -> bool {
    let discovery = document.get("dynamo").and_then(|dynamo| dynamo.get("discovery"));
    let limits = discovery.and_then(|discovery| discovery.get("limits")?.as_object());
    limits.is_some_and(|limits| !limits.is_empty())
}

/// Whether a RouterConfig of this namespace may name that fleet.
pub(super) fn may_name(own: &str, fleet: &Fleet, settings: &Settings) -> bool {
    let allowed = |namespace| namespace == own || settings.fleet_namespaces.contains(namespace);
    fleet.namespace().is_none_or(allowed)
}

/// What the operator acts on must be written out: it has no environment of the router's.
pub(super) fn literal(opaque: &[String], fleet: &Fleet) -> Result<(), Rejected> {
    let needed = |path: &str| {
        let always = [
            "dynamo.enabled",
            "dynamo.discovery.source",
            "dynamo.discovery.kubernetes.namespace",
        ];
        let pushed = ["dynamo.discovery.kubernetes", "dynamo.discovery.namespace_match"];
        always.contains(&path)
            || (matches!(fleet, Fleet::Pushed { .. })
                && pushed.iter().any(|section| path.starts_with(section)))
    };
    match opaque.iter().find(|path| needed(path)) {
        Some(path) => Err(Rejected {
            reason: Reason::InvalidConfig,
            message: format!(
                "spec.config.{path}: the operator acts on it and does not know the routers' environment; write the value out"
            ),
        }),
        None => Ok(()),
    }
}

fn router(object: &RouterConfig) -> Result<(), Rejected> {
    let refuse = |field: &str, problem: &str| {
        Err(Rejected {
            reason: Reason::InvalidRouter,
            message: format!("spec.router.{field}: {problem}"),
        })
    };
    let router = &object.spec.router;
    if let Some(autoscaling) = &router.autoscaling
        && autoscaling.min_replicas.unwrap_or(1) > autoscaling.max_replicas
    {
        return refuse("autoscaling.maxReplicas", "it is less than minReplicas");
    }
    if let Some(budget) = &router.pod_disruption_budget
        && budget.min_available.is_some()
        && budget.max_unavailable.is_some()
    {
        return refuse(
            "podDisruptionBudget",
            "set minAvailable or maxUnavailable, not both",
        );
    }
    Ok(())
}

/// What changes when routers must be started anew for the configuration, and at no other time.
pub(super) fn process_hash(rendered: &Unexpanded, document: &Map<String, Value>) -> String {
    let values = serde_json::to_value(&rendered.config).unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    leaves(&values, &mut String::new(), &mut |path, value| {
        if class_of(path) == Some(Class::Process) {
            hasher.update(format!("{path}={value}\n").as_bytes());
        }
    });
    // A running router stays with the address that it was sent, and an operator that is elsewhere now could not send it
    // another one.
    if let Some(controller) = &rendered.config.controller {
        hasher.update(format!("controller.endpoint={}\n", controller.endpoint).as_bytes());
    }
    // A reference stands for itself: its value is the environment's, which is in the template.
    for path in rendered
        .opaque
        .iter()
        .filter(|path| class_of(path) == Some(Class::Process))
    {
        let written = path
            .split('.')
            .try_fold(None, |at: Option<&Value>, name| {
                at.map_or_else(|| document.get(name), |at| at.get(name)).map(Some)
            })
            .flatten();
        hasher.update(format!("{path}: {}\n", written.cloned().unwrap_or_default()).as_bytes());
    }
    hasher.finalize().to_hex().chars().take(16).collect()
}

fn leaves(value: &Value, path: &mut String, each: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                leaves(value, path, each);
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            each(path, value)
        }
    }
}

fn invalid(error: continuum_config::Error) -> Rejected {
    let mut messages: Vec<String> = error
        .problems
        .iter()
        .map(|problem| at(&problem.path, &problem.message))
        .collect();
    if error.more > 0 {
        messages.push(format!("and {} more", error.more));
    }
    Rejected {
        reason: Reason::InvalidConfig,
        message: clip(&messages.join("; ")),
    }
}

fn at(path: &str, message: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("spec.config{dot}{path}: {message}")
}

fn clip(message: &str) -> String {
    if message.chars().count() <= MAX_MESSAGE_CHARS {
        return message.to_owned();
    }
    message.chars().take(MAX_MESSAGE_CHARS).chain(['…']).collect()
}

#[cfg(test)]
pub(crate) mod tests;
