//! What the ConfigMap keeps beside the authority: the configuration that a router pod starts with, and the spec that
//! was accepted last.
//!
//! **The text that a pod starts with is one that routers have run.** Whether a configuration works in the pods only they
//! can tell: a variable or a file may be missing there. Routers that run hear of a new one over their session and
//! refuse it if it does not work; one that starts has nothing else. So a new text takes the place of the old one when a
//! router has it in force, and not before, except where nobody could tell: see [`Moment`].
//!
//! **The spec** is for an operator that starts while the present one is rejected: it goes on from what was accepted.

use std::{collections::BTreeMap, sync::Arc};

use continuum_crds::{RouterConfig, spec::RouterConfigSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::MAX_KEPT_BYTES;

/// The key of the accepted spec in the ConfigMap.
pub(crate) const SPEC_KEY: &str = "accepted.json";

/// What is known about a new text at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// A router says that it has it in force.
    pub(crate) in_force: bool,
    /// It differs in what only new processes take, so pods are replaced: the rollout proves it, and has to start with it.
    pub(crate) new_process: bool,
    /// There is no pod, or none has had a session for so long that the ConfigMap is the only way to them.
    pub(crate) nobody: bool,
}

/// The text that a pod starts with from now on; `before` is the one until now.
pub(crate) fn start(wanted: &Arc<str>, before: Option<&Arc<str>>, moment: Moment) -> Arc<str> {
    let proven = moment.in_force || moment.new_process || moment.nobody;
    Arc::clone(before.filter(|_| !proven).unwrap_or(wanted))
}

#[derive(Serialize, Deserialize)]
struct Spec<S> {
    generation: i64,
    spec: S,
}

/// The accepted spec as text, beside a configuration of this length; `None` where both would be too much for a ConfigMap.
pub(crate) fn spec_of(object: &RouterConfig, generation: i64, beside: usize) -> Option<String> {
    let spec = &object.spec;
    let text = serde_json::to_string(&Spec { generation, spec }).ok()?;
    (text.len().saturating_add(beside) <= MAX_KEPT_BYTES).then_some(text)
}

/// The RouterConfig as it was when its spec was accepted last.
pub(crate) fn accepted(object: &RouterConfig, data: &BTreeMap<String, String>) -> Option<RouterConfig> {
    let kept: Spec<RouterConfigSpec> = serde_json::from_str(data.get(SPEC_KEY)?).ok()?;
    let mut before = RouterConfig {
        metadata: object.metadata.clone(),
        spec: kept.spec,
        status: None,
    };
    before.metadata.generation = Some(kept.generation);
    Some(before)
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
        let (old, new): (Arc<str>, Arc<str>) = ("old".into(), "new".into());
        let not_yet = Moment::default();
        for (before, moment, expected) in [
            (None, not_yet, &new),
            (Some(&new), not_yet, &new),
            (Some(&old), not_yet, &old),
            (
                Some(&old),
                Moment {
                    in_force: true,
                    ..not_yet
                },
                &new,
            ),
            (
                Some(&old),
                Moment {
                    new_process: true,
                    ..not_yet
                },
                &new,
            ),
            (
                Some(&old),
                Moment {
                    nobody: true,
                    ..not_yet
                },
                &new,
            ),
        ] {
            assert_eq!(start(&new, before, moment), *expected, "{before:?} {moment:?}");
        }
    }

    #[test]
    fn an_accepted_spec_comes_back_as_it_was() {
        let config = fleet_of(json!({ "source": "kubernetes" }));
        let good = object(
            config,
            json!({ "replicas": 5, "env": [{ "name": "A", "value": "b" }] }),
        );
        let text = spec_of(&good, 7, 0).unwrap();
        let mut now = object(json!({ "nonsense": 1 }), json!({}));
        now.metadata.generation = Some(9);
        let data = BTreeMap::from([(SPEC_KEY.to_owned(), text)]);
        let before = accepted(&now, &data).unwrap();
        assert_eq!(before.spec, good.spec);
        assert_eq!(before.metadata.generation, Some(7));
        assert!(spec_of(&good, 7, MAX_KEPT_BYTES).is_none());
        assert!(accepted(&now, &BTreeMap::new()).is_none());
    }
}
