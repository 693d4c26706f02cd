//! What the ConfigMap keeps beside the authority: the configuration that a router pod starts with, and the spec that
//! was accepted last.
//!
//! **The text that a pod starts with is one that routers have run.** Whether a configuration works in the pods only they
//! can tell: a variable or a file may be missing there. Routers that run hear of a new one over their session and
//! refuse it if it does not work; one that starts has nothing else. So a new text takes the place of the old one when a
//! router has it in force, and not before, except where nobody could tell: see [`Moment`]. What was given to pods so is
//! marked until a router has proven it, and another new text takes its place without any proof: it may be what keeps
//! pods from starting.
//!
//! **The spec** is for an operator that starts while the present one is rejected: it goes on from what was accepted. See
//! [`super::restore`].

use std::{collections::BTreeMap, sync::Arc};

use continuum_crds::{
    RouterConfig,
    spec::{RouterConfigSpec, RouterSpec},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::MAX_KEPT_BYTES;

/// The key of the accepted spec in the ConfigMap.
pub(crate) const SPEC_KEY: &str = "accepted.json";

/// On the ConfigMap, while no router is known to have run the text in it.
pub(crate) const UNPROVEN: &str = "router.continuum.dev/config-unproven";

/// What a router pod starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) text: Arc<str>,
    /// A router has had it in force.
    pub(crate) proven: bool,
}

/// What is known about a new text at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// A router says that it has it in force.
    pub(crate) in_force: bool,
    /// A router says that it has in force what pods have started with until now.
    pub(crate) before_in_force: bool,
    /// It differs in what only new processes take, so pods are replaced: the rollout proves it, and has to start with it.
    pub(crate) new_process: bool,
    /// There is no pod, or none has had a session for so long that the ConfigMap is the only way to them.
    pub(crate) nobody: bool,
}

/// What a pod starts with from now on; `before` is what it was until now.
pub(crate) fn start(wanted: &Arc<str>, before: Option<&Start>, moment: Moment) -> Start {
    let now = |proven| Start {
        text: Arc::clone(wanted),
        proven,
    };
    match before {
        Some(before) if before.text == *wanted => now(before.proven || moment.in_force),
        Some(before) => {
            let proven = before.proven || moment.before_in_force;
            if proven && !moment.in_force && !moment.new_process && !moment.nobody {
                let text = Arc::clone(&before.text);
                return Start { text, proven };
            }
            now(moment.in_force)
        }
        None => now(moment.in_force),
    }
}

/// What is kept: the whole spec, or `spec.router` alone.
#[derive(Serialize, Deserialize)]
struct Kept<S, R> {
    /// Whose generation that is; an older version did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    generation: i64,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    spec: Option<S>,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    router: Option<R>,
}

const fn none<T>() -> Option<T> {
    None
}

/// What was accepted last.
#[derive(Debug)]
pub(crate) struct Before {
    /// The RouterConfig as it was.
    pub(crate) object: RouterConfig,
    /// It has its `spec.config`, and not only its `spec.router`.
    pub(crate) whole: bool,
}

/// The accepted spec as text, beside a configuration of this length. Where both would be too much for a ConfigMap, the
/// configuration speaks for `spec.config`; `None` where even the rest is too much.
pub(crate) fn spec_of(object: &RouterConfig, beside: usize) -> Option<String> {
    let RouterConfigSpec { config, router } = &object.spec;
    let generation = object.metadata.generation.unwrap_or_default();
    let text = |spec: Option<&RouterConfigSpec>| {
        let kept = Kept {
            uid: object.metadata.uid.clone(),
            generation,
            router: spec.is_none().then_some(router),
            spec,
        };
        let text = serde_json::to_string(&kept).ok()?;
        (text.len().saturating_add(beside) <= MAX_KEPT_BYTES).then_some(text)
    };
    // One that was kept without its configuration is kept so on.
    let whole = Some(&object.spec).filter(|_| !config.0.is_empty());
    whole.and_then(|spec| text(Some(spec))).or_else(|| text(None))
}

/// The RouterConfig as it was when its spec was accepted last.
pub(crate) fn accepted(object: &RouterConfig, data: &BTreeMap<String, String>) -> Option<Before> {
    let kept: Kept<RouterConfigSpec, RouterSpec> = serde_json::from_str(data.get(SPEC_KEY)?).ok()?;
    let (spec, whole) = match (kept.spec, kept.router) {
        (Some(spec), _) => (spec, true),
        (None, Some(router)) => {
            let config = Default::default();
            (RouterConfigSpec { config, router }, false)
        }
        (None, None) => return None,
    };
    let mut object = RouterConfig {
        metadata: object.metadata.clone(),
        spec,
        status: None,
    };
    // Of what another one of this name accepted, before anything that this one says.
    let own = kept.uid.is_none() || kept.uid == object.metadata.uid;
    object.metadata.generation = Some(if own { kept.generation } else { 0 });
    Some(Before { object, whole })
}

/// The strings of a ConfigMap.
pub(crate) fn strings(data: &Value) -> BTreeMap<String, String> {
    let fields = data.get("data").and_then(Value::as_object);
    fields
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::routerconfig::validate::tests::{fleet_of, object};

    #[test]
    fn a_new_text_waits_for_its_proof() {
        let not_yet = Moment::default();
        let in_force = Moment {
            in_force: true,
            ..not_yet
        };
        let before_in_force = Moment {
            before_in_force: true,
            ..not_yet
        };
        let new_process = Moment {
            new_process: true,
            ..not_yet
        };
        let nobody = Moment {
            nobody: true,
            ..not_yet
        };
        let still_before = Moment {
            new_process: true,
            ..before_in_force
        };
        let text = |(text, proven): (&str, bool)| Start {
            text: text.into(),
            proven,
        };
        for (before, moment, expected) in [
            (None, not_yet, ("new", false)),
            (None, in_force, ("new", true)),
            (Some(("new", false)), not_yet, ("new", false)),
            (Some(("new", false)), in_force, ("new", true)),
            (Some(("new", true)), not_yet, ("new", true)),
            (Some(("old", true)), not_yet, ("old", true)),
            (Some(("old", true)), before_in_force, ("old", true)),
            (Some(("old", true)), in_force, ("new", true)),
            (Some(("old", true)), new_process, ("new", false)),
            (Some(("old", true)), still_before, ("new", false)),
            (Some(("old", true)), nobody, ("new", false)),
            // What nobody has run is no better than another.
            (Some(("old", false)), not_yet, ("new", false)),
            (Some(("old", false)), before_in_force, ("old", true)),
            (Some(("old", false)), in_force, ("new", true)),
        ] {
            let found = start(&"new".into(), before.map(text).as_ref(), moment);
            assert_eq!(found, text(expected), "{before:?} {moment:?}");
        }
    }

    #[test]
    fn an_accepted_spec_comes_back_as_it_was() {
        let config = fleet_of(json!({ "source": "kubernetes" }));
        let good = object(
            config,
            json!({ "replicas": 5, "env": [{ "name": "A", "value": "b" }] }),
        );
        let text = spec_of(&good, 0).unwrap();
        let mut now = object(json!({ "nonsense": 1 }), json!({}));
        now.metadata.generation = Some(9);
        let data = BTreeMap::from([(SPEC_KEY.to_owned(), text)]);
        let before = accepted(&now, &data).unwrap();
        assert!(before.whole);
        assert_eq!(before.object.spec, good.spec);
        assert_eq!(before.object.metadata.generation, Some(7));
        assert!(accepted(&now, &BTreeMap::new()).is_none());
    }

    #[test]
    fn what_is_too_large_beside_the_configuration_is_kept_without_it() {
        let mut good = object(
            fleet_of(json!({ "source": "kubernetes" })),
            json!({ "replicas": 5 }),
        );
        good.spec
            .config
            .0
            .insert("note".to_owned(), json!("x".repeat(2000)));
        let text = spec_of(&good, MAX_KEPT_BYTES - 1000).unwrap();
        assert!(text.len() < 1000);
        let data = BTreeMap::from([(SPEC_KEY.to_owned(), text.clone())]);
        let before = accepted(&good, &data).unwrap();
        assert!(!before.whole && before.object.spec.config.0.is_empty());
        assert_eq!(before.object.spec.router, good.spec.router);
        assert_eq!(spec_of(&before.object, 0).unwrap(), text, "and so on");
        assert!(spec_of(&good, MAX_KEPT_BYTES).is_none());
    }
}
