//! The committed corpora of all fuzz targets, on the stable compiler.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

use std::{fs, path::PathBuf};

use continuum_testkit::fuzz;

/// Runs a target over its corpus and says which input it fails on.
fn replay(target: &str, at_least: usize, run: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(
        inputs.len() >= at_least,
        "{} holds {} inputs",
        folder.display(),
        inputs.len()
    );
    for input in inputs {
        let bytes = fs::read(&input).unwrap();
        if std::panic::catch_unwind(|| run(&bytes)).is_err() {
            panic!("target {target} fails on {}", input.display());
        }
    }
}

#[test]
fn zmtp() {
    replay("zmtp", 14, fuzz::zmtp);
}

#[test]
fn envelope() {
    replay("envelope", 12, fuzz::envelope);
}

#[test]
fn active_load() {
    replay("active_load", 11, fuzz::active_load);
}

#[test]
fn router_event() {
    replay("router_event", 12, fuzz::router_event);
}

#[test]
fn records() {
    replay("records", 10, fuzz::records);
}

#[test]
fn kubernetes() {
    replay("kubernetes", 6, fuzz::kubernetes);
}

#[test]
fn kv_index() {
    replay("kv_index", 6, fuzz::kv_index);
}

#[test]
fn push() {
    replay("push", 5, fuzz::push);
}

#[test]
fn config() {
    replay("config", 9, fuzz::config);
}

#[test]
fn every_target_has_a_corpus_and_a_replay() {
    let targets =
        fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets")).unwrap();
    let mut names: Vec<String> = targets
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "active_load",
            "config",
            "envelope",
            "kubernetes",
            "kv_index",
            "prompt",
            "push",
            "records",
            "router_event",
            "zmtp"
        ],
        "add the new target above"
    );
}

#[test]
fn prompt() {
    replay("prompt", 8, fuzz::prompt);
}
