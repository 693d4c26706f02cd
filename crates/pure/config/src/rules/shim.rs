//! Shim pools: which backends stand for which namespace.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::model::{BackendRole, Config};

const BACKENDS: &str = "dynamo.shim.backends";
const POOLS: &str = "dynamo.shim.pools";

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let shim = &config.dynamo.shim;
    report.unique(BACKENDS, "", shim.backends.iter().map(String::as_str), "backend");
    for (index, name) in shim.backends.iter().enumerate() {
        replica(config, &format!("{BACKENDS}[{index}]"), name, report);
    }
    let mut pool_of: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, pool) in shim.pools.iter().enumerate() {
        let path = format!("{POOLS}[{index}].backends");
        report.unique(&path, "", pool.backends.iter().map(String::as_str), "backend");
        for (nth, name) in pool.backends.iter().enumerate() {
            let path = format!("{path}[{nth}]");
            replica(config, &path, name, report);
            match pool_of.insert(name, &pool.namespace) {
                Some(other) if other != pool.namespace => report.add(
                    &path,
                    format!("\"{name}\" is in the pool of \"{other}\" already; a replica knows the workers of one namespace only"),
                ),
                Some(_) | None => {}
            }
        }
    }
    report.unique(
        POOLS,
        ".namespace",
        shim.pools.iter().map(|pool| pool.namespace.as_str()),
        "namespace",
    );
    if !shim.backends.is_empty() && !shim.pools.is_empty() {
        report.add(
            BACKENDS,
            "set shim.backends (one namespace) or shim.pools (one pool for each), not both",
        );
    }
    namespaces(config, report);
    for (from, to) in &shim.model_map {
        let mut path = "dynamo.shim.model_map".to_owned();
        crate::tree::push_key(&mut path, from);
        if from.is_empty() || to.is_empty() {
            report.add(&path, "neither side of model_map may be empty");
        } else if from.chars().chain(to.chars()).any(char::is_control) {
            report.add(&path, "a model name cannot contain control characters");
        }
    }
}

fn replica(config: &Config, path: &str, name: &str, report: &mut Report<'_>) {
    match config.backend(name) {
        Some(backend) if backend.role != BackendRole::Unified => {
            report.add(
                path,
                format!("\"{name}\" is not of role unified; a shim replica does whole requests"),
            );
        }
        Some(_) => {}
        // With a name in doubt, nobody can say which names exist.
        None if names_in_doubt(config, report) => {}
        None => {
            let near =
                crate::check::nearest(name, config.backends.iter().map(|backend| backend.name.as_str()));
            let hint = near.map_or_else(
                || "add it to backends".to_owned(),
                |near| format!("did you mean \"{near}\"?"),
            );
            report.add(path, format!("there is no backend named \"{name}\"; {hint}"));
        }
    }
}

fn names_in_doubt(config: &Config, report: &Report<'_>) -> bool {
    (0..config.backends.len()).any(|index| report.places.in_doubt(&format!("backends[{index}].name")))
}

/// One pool for each configured namespace, and for no other.
fn namespaces(config: &Config, report: &mut Report<'_>) {
    let shim = &config.dynamo.shim;
    let configured = config.dynamo.discovery.namespaces();
    if shim.pools.is_empty() {
        if configured.len() > 1 && (config.dynamo.enabled || !shim.backends.is_empty()) {
            let path = if shim.backends.is_empty() { POOLS } else { BACKENDS };
            report.add(
                path,
                format!(
                    "there are {} Dynamo namespaces: use shim.pools, one pool for each",
                    configured.len()
                ),
            );
        }
        return;
    }
    if !config.dynamo.enabled && !report.places.written("dynamo.discovery") {
        return;
    }
    for (index, pool) in shim.pools.iter().enumerate() {
        if !configured.contains(&pool.namespace.as_str()) {
            report.add(
                &format!("{POOLS}[{index}].namespace"),
                format!(
                    "\"{}\" is none of the configured Dynamo namespaces",
                    pool.namespace
                ),
            );
        }
    }
    let with_pool: BTreeSet<&str> = shim.pools.iter().map(|pool| pool.namespace.as_str()).collect();
    for name in configured {
        if !with_pool.contains(name) {
            report.add(POOLS, format!("the Dynamo namespace \"{name}\" has no pool"));
        }
    }
}
