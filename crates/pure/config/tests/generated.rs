//! The generated files are current, and every template is a valid configuration.
#![expect(
    clippy::disallowed_methods,
    reason = "a test may read the files that it is about"
)]

use std::{fs, path::PathBuf};

use continuum_config::{Build, model::DiscoverySource, parse, plan, reference, schema, show};

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).join(path)
}

#[test]
fn reference_and_schema_are_what_the_model_says() {
    for (path, text) in [
        ("docs/reference/configuration.md", reference::markdown()),
        ("docs/reference/continuum-router.schema.json", schema::json()),
    ] {
        let committed = fs::read_to_string(repository(path)).unwrap_or_default();
        assert!(committed == text, "{path} is old: run `make generate`");
    }
}

#[test]
fn every_section_of_the_schema_is_in_the_reference_with_every_field() {
    let page = reference::markdown();
    let schema: serde_json::Value = serde_json::from_str(&schema::json()).unwrap();
    let mut fields = 0;
    for (name, section) in schema["$defs"].as_object().unwrap() {
        for field in section["properties"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("\n| `{field}` |")), "{name}.{field}");
            fields += 1;
        }
    }
    assert!(fields > 120, "{fields}");
}

#[test]
fn templates_are_valid_and_survive_being_shown() {
    for folder in ["docs/config-templates", "examples"] {
        let mut seen = 0;
        for entry in fs::read_dir(repository(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            // Resources of Kubernetes are the custom resource's to judge, values of the chart its schema's.
            let values = path.to_string_lossy().ends_with("values.yaml");
            if values || text.contains("\nkind: ") {
                continue;
            }
            seen += 1;
            let loaded =
                parse(&text, &|_| None, Build::FULL).unwrap_or_else(|e| panic!("{}:\n{e}", path.display()));
            // A fleet of Pods alone lacks signals whatever its template says, and its warning says so.
            let of_pods = loaded.config.dynamo.discovery.source == DiscoverySource::KubernetesPods;
            let unexpected: Vec<_> = loaded
                .warnings
                .iter()
                .filter(|warning| !of_pods || warning.path != "dynamo.discovery.source")
                .collect();
            assert!(unexpected.is_empty(), "{}: {unexpected:?}", path.display());
            let again = parse(&show(&loaded.config), &|_| None, Build::FULL).unwrap();
            assert!(
                plan(&loaded.config, &again.config).is_nothing(),
                "{}",
                path.display()
            );
        }
        assert!(seen > 0, "{folder}");
    }
}
