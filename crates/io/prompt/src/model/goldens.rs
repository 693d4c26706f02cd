//! Widely used templates, against what a real frontend and Hugging Face's transformers make of them. The files are
//! written by `scripts/make-prompt-goldens.sh`; each difference is named here and explained in
//! `docs/prompt-differences.md`.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;

#[derive(Deserialize)]
struct Head {
    bos: Option<String>,
    eos: Option<String>,
    now: i64,
}

#[derive(Deserialize)]
struct Case<'a> {
    case: String,
    #[serde(borrow)]
    request: &'a RawValue,
    huggingface: Option<String>,
    frontend: Option<String>,
}

fn templates_dir() -> PathBuf {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/install-templates.sh");
    let output = Command::new(script).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// Template, case, what transformers and the frontend made of it, and what we do.
type Row = (String, String, Option<String>, Option<String>, Option<String>);

/// Each template's cases with what is expected and what we make of them.
fn rendered() -> Vec<Row> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates");
    let sources = templates_dir();
    let mut all = Vec::new();
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines();
        let head: Head = serde_json::from_str(lines.next().unwrap()).unwrap();
        let source = fs::read_to_string(sources.join(format!("{name}.jinja"))).unwrap();
        let templates = Templates::load(&Sources {
            templates: vec![("default".to_owned(), source)],
            tokens: [head.bos, head.eos, None],
        })
        .unwrap();
        for line in lines {
            let case: Case<'_> = serde_json::from_str(line).unwrap();
            let request = body::read(Endpoint::Chat, case.request.get().as_bytes());
            let ours = request.ok().and_then(|request| {
                let Prompt::Chat { mut given, open } = request.prompt else {
                    unreachable!()
                };
                if open {
                    mark_end(&mut given)?;
                }
                let text = templates
                    .render(&given, Timestamp::from_second(head.now).unwrap(), 1 << 20)
                    .ok()?;
                if open { cut_at_end(text) } else { Some(text) }
            });
            all.push((name.clone(), case.case, case.huggingface, case.frontend, ours));
        }
    }
    assert!(all.len() > 600, "{}", all.len());
    all
}

/// (template, case) where we differ, `*` for all.
fn check(which: &str, differences: &[(&str, &str)], expected: impl Fn(&Row) -> Option<Option<String>>) {
    let mut unexplained = Vec::new();
    let mut used = BTreeSet::new();
    for row in rendered() {
        let (template, case, .., ours) = &row;
        let Some(expected) = expected(&row) else { continue };
        if expected == *ours {
            continue;
        }
        match differences
            .iter()
            .position(|(t, c)| (*t == "*" || template.contains(t)) && (*c == "*" || c == case))
        {
            Some(at) => drop(used.insert(at)),
            None => unexplained.push(format!(
                "{template} {case}\n  {which}: {expected:?}\n  ours: {ours:?}"
            )),
        }
    }
    assert!(
        unexplained.is_empty(),
        "{} differences:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
    let unused: Vec<_> = differences
        .iter()
        .enumerate()
        .filter(|(at, _)| !used.contains(at))
        .collect();
    assert!(unused.is_empty(), "no longer there: {unused:?}");
}

#[test]
fn widely_used_templates_render_as_a_real_frontend_renders_them() {
    check("frontend", &[], |(.., frontend, _)| Some(frontend.clone()));
}

#[test]
fn widely_used_templates_render_as_transformers_renders_them() {
    // What transformers cannot render, a frontend may still: only texts are compared.
    let by_the_frontend = [
        // Parts become one text, a line each.
        ("*", "parts"),
        // A tool without a description gets an empty one.
        ("*", "tool-bare"),
        // Templates that do not know `reasoning_content` get it in the content.
        ("*", "reasoning"),
        ("*", "reasoning-call"),
        // One decision on thinking, in every spelling: these templates read `thinking`, or `enable_thinking`.
        ("granite", "thinking-on"),
        ("*", "effort"),
        // It opens a thought that the frontend closes again.
        ("MiniMax", "thinking-off"),
        ("MiniMax", "thinking-mode"),
    ];
    check("transformers", &by_the_frontend, |(_, _, huggingface, ..)| {
        Some(Some(huggingface.clone()?))
    });
}
