use serde_json::{Value, json};

use super::*;
use crate::routerconfig::{
    build::{Files, children},
    kept::SPEC_KEY,
    validate::tests::{fleet_of, object, settings},
};

/// The present spec, which says nothing that could be used.
fn now() -> RouterConfig {
    object(json!({ "nonsense": 1 }), json!({ "replicas": 9 }))
}

/// What an earlier life made of an accepted spec.
fn map(config: Value, router: Value) -> (Vec<String>, BTreeMap<String, String>) {
    let object = object(config, router);
    let mut earlier = settings();
    earlier.fleet_namespaces = crate::cli::Namespaces::All;
    let accepted = validate(&object, &earlier).unwrap();
    let files = Files {
        config: &accepted.text,
        proven: true,
        ca: "authority",
    };
    let all = children(&object, &accepted, &earlier, files);
    let data = all
        .iter()
        .find(|child| child.resource.kind == "ConfigMap")
        .unwrap();
    (wanted(&all), kept::strings(&data.object.data))
}

fn wanted(children: &[crate::routerconfig::build::Child]) -> Vec<String> {
    let but_the_map = children.iter().filter(|child| child.resource.kind != "ConfigMap");
    but_the_map
        .map(|child| serde_yaml_ng::to_string(&child.object).unwrap())
        .collect()
}

/// The children that a later life wants.
fn again(in_force: &InForce) -> Vec<String> {
    let (object, accepted) = in_force.made_of.as_ref().unwrap();
    let files = Files {
        config: &in_force.text,
        proven: true,
        ca: "authority",
    };
    wanted(&children(object, accepted, &settings(), files))
}

fn kubernetes(namespace: &str) -> Value {
    fleet_of(json!({ "source": "kubernetes", "kubernetes": { "namespace": namespace } }))
}

#[test]
fn a_later_life_wants_what_the_earlier_one_wanted() {
    let router = json!({ "replicas": 5, "env": [{ "name": "A", "value": "b" }] });
    let local = json!({ "replicas": 5, "fleetView": "Local" });
    let process = {
        let mut config = kubernetes("dynamo");
        config["server"] = json!({ "threads": 3, "graceful_period": "60s" });
        config["backends"][0]["url"] = json!("${FRONTEND}");
        config
    };
    for (config, router) in [
        (kubernetes("dynamo"), router.clone()),
        (kubernetes("dynamo"), local.clone()),
        (kubernetes("shared"), local),
        (process, router.clone()),
        (
            fleet_of(json!({ "source": "etcd", "etcd": { "endpoints": ["http://etcd:2379"] } })),
            router.clone(),
        ),
        (json!({ "backends": [] }), router),
    ] {
        let (before, mut data) = map(config, router);
        let whole = in_force(&now(), &data, &settings()).unwrap();
        assert_eq!(again(&whole), before);
        // As for a spec that this version refuses, or one that was too large.
        let kept: Value = serde_json::from_str(&data[SPEC_KEY]).unwrap();
        let refused = {
            let mut kept = kept.clone();
            kept["spec"]["config"] = json!({ "nonsense": 1 });
            kept
        };
        let cut = json!({ "generation": kept["generation"], "router": kept["spec"]["router"] });
        for other in [refused, cut] {
            data.insert(SPEC_KEY.to_owned(), other.to_string());
            let given = in_force(&now(), &data, &settings()).unwrap();
            assert_eq!(again(&given), before);
            assert_eq!((&given.text, given.generation), (&whole.text, whole.generation));
            assert_eq!((&given.fleet, &given.pools), (&whole.fleet, &whole.pools));
        }
        // Nothing but the text.
        for nonsense in [
            None,
            Some("{"),
            Some("{}"),
            Some(r#"{"generation":1,"router":{"replicas":"many"}}"#),
        ] {
            match nonsense {
                Some(text) => drop(data.insert(SPEC_KEY.to_owned(), text.to_owned())),
                None => drop(data.remove(SPEC_KEY)),
            }
            let alone = in_force(&now(), &data, &settings()).unwrap();
            assert!(alone.made_of.is_none());
            assert_eq!((&alone.text, &alone.fleet), (&whole.text, &whole.fleet));
        }
    }
}

#[test]
fn what_another_one_of_this_name_accepted_comes_before_anything_of_this_one() {
    let (_, mut data) = map(kubernetes("dynamo"), json!({}));
    let mut anew = now();
    anew.metadata.uid = Some("0-2".to_owned());
    anew.metadata.generation = Some(1);
    let whole = in_force(&anew, &data, &settings()).unwrap();
    assert_eq!((whole.uid.as_str(), whole.generation), ("0-2", 0));
    assert!(whole.text.contains("uid: 0-2") && whole.text.contains("generation: 0"));
    // Of the text alone, as it is.
    data.remove(SPEC_KEY);
    let alone = in_force(&anew, &data, &settings()).unwrap();
    assert_eq!((alone.uid.as_str(), alone.generation), ("0-1", 7));
}

#[test]
fn a_foreign_fleet_comes_back_only_if_it_may_be_read() {
    for fleet_view in ["Pushed", "Local"] {
        let (_, mut data) = map(kubernetes("victim"), json!({ "fleetView": fleet_view }));
        for _ in 0..2 {
            let refused = in_force(&now(), &data, &settings()).unwrap_err();
            assert_eq!(refused, Absent::NotAccepted, "{fleet_view}");
            // And not by the text alone.
            data.remove(SPEC_KEY);
        }
        // Nor by a text that somebody wrote who may not write RouterConfigs.
        let (_, mut data) = map(kubernetes("dynamo"), json!({ "fleetView": fleet_view }));
        data.remove(SPEC_KEY);
        let text = data[CONFIG_KEY].replace("namespace: dynamo", "namespace: ${FLEET}");
        data.insert(CONFIG_KEY.to_owned(), text);
        let refused = in_force(&now(), &data, &settings()).unwrap_err();
        assert_eq!(refused, Absent::Unreadable, "{fleet_view}");
    }
}

#[test]
fn what_the_operator_never_gave_to_routers_is_not_restored() {
    for text in ["", "nonsense", "backends: []"] {
        let data = BTreeMap::from([(CONFIG_KEY.to_owned(), text.to_owned())]);
        assert_eq!(
            in_force(&now(), &data, &settings()).unwrap_err(),
            Absent::Unreadable
        );
        assert!(!is_given(text));
    }
}
