//! Who may use whom: the arrows between the workspace's crates go one way, and some libraries have one home.

#![expect(clippy::unwrap_used, reason = "a test may fail this way")]

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;

/// Each crate, and the crates of ours that it may use outside its tests.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("continuum-fleet", &[]),
    ("continuum-wire", &["continuum-fleet"]),
    (
        "continuum-routing",
        &["continuum-fleet", "continuum-kv-index", "continuum-wire"],
    ),
    ("continuum-kv-index", &["continuum-fleet", "continuum-wire"]),
    ("continuum-config", &["continuum-fleet"]),
    ("continuum-runtime", &[]),
    (
        "continuum-discovery",
        &["continuum-fleet", "continuum-config", "continuum-runtime"],
    ),
    (
        "continuum-events",
        &[
            "continuum-fleet",
            "continuum-wire",
            "continuum-routing",
            "continuum-kv-index",
            "continuum-config",
            "continuum-runtime",
        ],
    ),
    ("continuum-messages", &["continuum-fleet"]),
    (
        "continuum-prompt",
        &["continuum-fleet", "continuum-config", "continuum-runtime"],
    ),
    (
        "continuum-push",
        &[
            "continuum-fleet",
            "continuum-messages",
            "continuum-config",
            "continuum-runtime",
        ],
    ),
    ("continuum-crds", &["continuum-config"]),
    (
        "continuum-controller",
        &[
            "continuum-crds",
            "continuum-fleet",
            "continuum-messages",
            "continuum-config",
            "continuum-discovery",
            "continuum-runtime",
        ],
    ),
    (
        "continuum-router",
        &[
            "continuum-fleet",
            "continuum-wire",
            "continuum-routing",
            "continuum-config",
            "continuum-runtime",
            "continuum-discovery",
            "continuum-events",
            "continuum-kv-index",
            "continuum-prompt",
            "continuum-push",
        ],
    ),
    ("continuum-fleet-sim", &["continuum-fleet", "continuum-wire"]),
    (
        "continuum-testkit",
        &[
            "continuum-fleet",
            "continuum-wire",
            "continuum-kv-index",
            "continuum-messages",
            "continuum-prompt",
            "continuum-config",
        ],
    ),
    ("continuum-tests", &["continuum-controller", "continuum-router"]),
];

/// Libraries that touch a foreign system, and the crates that may use them outside their tests.
const HOMES: [(&str, &[&str]); 3] = [
    (
        "kube",
        &[
            "continuum-discovery",
            "continuum-crds",
            "continuum-controller",
            "continuum-testkit",
        ],
    ),
    ("etcd-client", &["continuum-discovery"]),
    ("zeromq", &["continuum-testkit"]),
];

/// Crates that do no IO, and what they therefore never use outside their tests.
const PURE: [&str; 6] = [
    "continuum-fleet",
    "continuum-messages",
    "continuum-wire",
    "continuum-kv-index",
    "continuum-routing",
    "continuum-config",
];
const IO: [&str; 6] = [
    "tokio",
    "hyper",
    "rand",
    "notify",
    "etcd-client",
    "tracing-subscriber",
];

/// Name of each workspace crate, with the names of what it uses outside its tests.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let used = package["dependencies"].as_array().unwrap();
            let used = used
                .iter()
                .filter(|d| d["kind"] != "dev")
                .map(|d| text(&d["name"]));
            (text(&package["name"]), used.collect())
        })
        .collect()
}

#[test]
fn crates_use_only_what_they_may() {
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    for (name, used) in dependencies() {
        let may = allowed.get(name.as_str());
        let may = may.unwrap_or_else(|| panic!("{name} has no row in ALLOWED: say what it may use"));
        for ours in used.iter().filter(|used| used.starts_with("continuum-")) {
            assert!(may.contains(&ours.as_str()), "{name} may not use {ours}");
        }
        for (library, homes) in HOMES {
            let at_home = homes.contains(&name.as_str());
            assert!(
                at_home || !used.iter().any(|used| used == library),
                "{name} may not use {library}"
            );
        }
        if PURE.contains(&name.as_str()) {
            for library in IO {
                assert!(
                    !used.iter().any(|used| used == library),
                    "{name} does no IO and may not use {library}"
                );
            }
        }
    }
}
