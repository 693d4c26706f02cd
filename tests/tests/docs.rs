//! The pages that people read: links lead somewhere, configuration keys exist, examples are valid, and the
//! README says the same in both languages.

#![expect(clippy::unwrap_used, reason = "a test may fail this way")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Texts that look like configuration keys: Dynamo's own modules.
const NO_KEYS: [&str; 3] = ["dynamo.frontend", "dynamo.mocker", "dynamo.vllm"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Markdown file of the checkout, without what is built or hidden.
fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" || name == "node_modules" {
                continue;
            }
            if path.is_dir() {
                walk(&path, found);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    found
}

/// Folders that paths in pages begin with.
const FOLDERS: [&str; 15] = [
    "bench/",
    "charts/",
    "controller/",
    "crds/",
    "docker/",
    "kustomize/",
    "crates/",
    "docs/",
    "e2e/",
    "examples/",
    "fleet-sim/",
    "fuzz/",
    "router/",
    "scripts/",
    "tests/",
];

#[test]
fn files_that_pages_name_exist() {
    let (mut found, mut missing) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (line, fenced) in lines(&text) {
            if fenced {
                continue;
            }
            for span in spans(line).1 {
                let path = span.split_whitespace().next().unwrap_or_default();
                let from_root = FOLDERS
                    .iter()
                    .any(|folder| path.len() > folder.len() && path.starts_with(folder));
                if !from_root || path.contains(['*', '<', '{', ':', '%']) {
                    continue;
                }
                found += 1;
                if !root().join(path).exists() {
                    missing.push(format!("{}: {path}", page.display()));
                }
            }
        }
    }
    assert!(found > 20);
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

/// The text of every source file of the product.
fn sources() -> String {
    fn walk(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    for folder in ["crates", "router/src", "controller/src"] {
        walk(&root().join(folder), &mut text);
    }
    text
}

/// One line of a page, and whether it lies in a fenced block (fences themselves do).
fn lines(text: &str) -> Vec<(&str, bool)> {
    let mut fenced = false;
    text.lines()
        .map(|line| {
            let fence = line.trim_start().starts_with("```");
            let inside = fenced || fence;
            if fence {
                fenced = !fenced;
            }
            (line, inside)
        })
        .collect()
}

/// Fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language.trim().to_owned(), String::new())),
            (Some(_), Some(block)) => found.push(block),
            (None, Some((language, body))) => open = Some((language, body + line + "\n")),
            (None, None) => {}
        }
    }
    found
}

/// Splits a line into text outside and inside of code spans.
fn spans(line: &str) -> (String, Vec<String>) {
    let mut outside = String::new();
    let mut inside = Vec::new();
    for (index, part) in line.split('`').enumerate() {
        if index % 2 == 0 {
            outside.push_str(part);
        } else {
            inside.push(part.to_owned());
        }
    }
    (outside, inside)
}

fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (line, fenced) in lines(text) {
        if fenced {
            continue;
        }
        let (outside, _) = spans(line);
        let mut rest = outside.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else {
                break;
            };
            found.push(target.to_owned());
            rest = after;
        }
    }
    found
}

/// The anchors that GitHub gives the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, u32>::new();
    let mut anchors = BTreeSet::new();
    for (line, fenced) in lines(text) {
        let title = line.trim_start_matches('#');
        if fenced || !line.starts_with('#') || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c if c.is_alphanumeric() => Some(c),
                _ => None,
            })
            .collect();
        let count = seen.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 {
            slug.clone()
        } else {
            format!("{slug}-{count}")
        });
        *count += 1;
    }
    anchors
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            let missing = !target.exists()
                || (!anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if missing {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn metrics_in_pages_exist() {
    let sources = sources();
    let (mut found, mut unknown) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        for name in words.filter(|word| word.starts_with("continuum_") || word.starts_with("disaggregated_"))
        {
            // Crates, sections of the configuration, error codes.
            let other = name.starts_with("disaggregated_") && !name.ends_with("_total");
            if other || sources.contains(&format!("{name}::")) {
                continue;
            }
            found += 1;
            if !sources.contains(&format!("\"{name}\"")) {
                unknown.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(found > 20);
    assert!(unknown.is_empty(), "no such metrics:\n{}", unknown.join("\n"));
}

#[test]
fn every_error_code_is_explained() {
    let rescue = fs::read_to_string(root().join("router/src/ingress/rescue.rs")).unwrap();
    let codes = rescue.split_once("impl Code {").unwrap().1;
    let codes = codes.split_once("\n}\n").unwrap().0;
    let codes: Vec<&str> = codes
        .lines()
        .filter_map(|line| line.trim().split_once("=> \"")?.1.strip_suffix("\","))
        .collect();
    assert!(codes.len() > 15);
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    for code in codes {
        // Seen in logs and counters alone.
        if code == "client_closed_request" {
            continue;
        }
        assert!(page.contains(&format!("`{code}`")), "{code} is not explained");
    }
}

/// Whether the schema has this path. A path may go on below what the schema leaves open.
fn has_key(schema: &Value, node: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    if let Some(target) = node["$ref"].as_str() {
        let target = target.strip_prefix("#").unwrap();
        return has_key(schema, schema.pointer(target).unwrap(), path);
    }
    let alternatives = ["anyOf", "oneOf", "allOf"]
        .iter()
        .flat_map(|key| node[key].as_array().into_iter().flatten());
    for alternative in alternatives {
        if has_key(schema, alternative, path) {
            return true;
        }
    }
    if node["items"].is_object() && has_key(schema, &node["items"], path) {
        return true;
    }
    node["properties"]
        .get(*first)
        .is_some_and(|next| has_key(schema, next, rest))
}

#[test]
fn configuration_keys_in_pages_exist() {
    let schema = root().join("docs/reference/continuum-router.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let sections: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert!(sections.len() >= 7);
    // The chart has values of its own, some below the same words.
    let values = root().join("charts/continuum-router/values.schema.json");
    let values: Value = serde_json::from_str(&fs::read_to_string(values).unwrap()).unwrap();
    let mut unknown = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (line, fenced) in lines(&text) {
            if fenced {
                continue;
            }
            for span in spans(line).1 {
                let key: String = span
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '[' | ']' | '0'..='9'))
                    .collect();
                let value: String = span
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '.')
                    .collect();
                if has_key(&values, &values, &value.split('.').collect::<Vec<_>>()) {
                    continue;
                }
                let key = key.replace("[]", "");
                let path: Vec<&str> = key.split('.').collect();
                let names_a_key = path.len() > 1
                    && sections.iter().any(|section| section.as_str() == path[0])
                    && !NO_KEYS.contains(&key.as_str())
                    && !matches!(path[path.len() - 1], "rs" | "yaml" | "md" | "");
                if names_a_key && !has_key(&schema, &schema, &path) {
                    unknown.push(format!("{}: {span}", page.display()));
                }
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "no such configuration keys:\n{}",
        unknown.join("\n")
    );
}

#[test]
fn configurations_in_pages_are_valid() {
    let mut checked = 0;
    for page in pages() {
        for (language, text) in blocks(&fs::read_to_string(&page).unwrap()) {
            let configuration = text.contains("dynamo:") || text.contains("server:");
            if language != "yaml" || !configuration {
                continue;
            }
            checked += 1;
            let environment = |_: &str| Some("a-value-long-enough".to_owned());
            let parsed = continuum_config::parse(&text, &environment, continuum_config::Build::FULL);
            if let Err(error) = parsed {
                panic!("{}:\n{text}\n{:?}", page.display(), error.problems);
            }
        }
    }
    assert!(checked >= 2);
}

#[test]
fn the_readme_is_the_same_in_both_languages() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap();
    let (english, korean) = (read("README.md"), read("README.ko.md"));
    let headings = |text: &str| -> Vec<usize> {
        lines(text)
            .into_iter()
            .filter(|(line, fenced)| !fenced && line.starts_with('#'))
            .map(|(line, _)| line.chars().take_while(|c| *c == '#').count())
            .collect()
    };
    assert_eq!(headings(&english), headings(&korean));
    // Comments may be translated, commands may not.
    let commands = |text: &str| -> Vec<(String, String)> {
        blocks(text)
            .into_iter()
            .map(|(language, body)| {
                let body: Vec<&str> = body
                    .lines()
                    .map(|line| line.split(" #").next().unwrap().trim_end())
                    .collect();
                (language, body.join("\n"))
            })
            .collect()
    };
    assert_eq!(commands(&english), commands(&korean));
}
