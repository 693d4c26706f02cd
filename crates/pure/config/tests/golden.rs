//! What people read when something is wrong, as a whole: each `golden/*.yaml` against the `.txt` beside it.
//! `UPDATE_GOLDEN=1 cargo test -p continuum-config --test golden` writes the texts anew.
#![expect(
    clippy::disallowed_methods,
    reason = "a test may read the files that it is about"
)]

use std::{fs, path::Path};

use continuum_config::{Build, parse};

fn environment(name: &str) -> Option<String> {
    match name {
        "ETCD_PASSWORD" => Some("pa55word-from-the-environment".to_owned()),
        "PORT" => Some("not-a-number".to_owned()),
        "URL" => Some("http://user:pa55word@etcd:2379".to_owned()),
        "RETRIES" => Some("3".to_owned()),
        _ => None,
    }
}

fn report(text: &str) -> String {
    let bare = Build {
        dynamo: true,
        kubernetes: false,
        dynamo_kv: false,
        dynamo_event_bus: false,
    };
    match parse(text, &environment, bare) {
        Ok(loaded) => {
            let warnings: Vec<String> = loaded
                .warnings
                .iter()
                .map(|warning| format!("warning: {warning}\n"))
                .collect();
            format!("valid\n{}", warnings.concat())
        }
        Err(error) => format!("errors: {}\n{error}\n", error.count()),
    }
}

#[test]
fn findings_read_as_they_should() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        seen += 1;
        let found = report(&fs::read_to_string(&path).unwrap());
        assert!(
            !found.contains("pa55word"),
            "a secret in {}:\n{found}",
            path.display()
        );
        let golden = path.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &found).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != found {
            wrong.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(seen >= 5, "the folder is complete");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
