use std::{fs, path::PathBuf};

use clap::{CommandFactory, Parser};
use tempfile::TempDir;

use super::*;
use crate::cli::{BUILD, Cli, Command};

struct Ran {
    code: ExitCode,
    out: String,
    err: String,
}

/// Runs `continuum-router config <arguments> FILE` on a text.
fn ran(arguments: &[&str], text: Option<&str>) -> Ran {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("router.yaml");
    if let Some(text) = text {
        fs::write(&file, text).unwrap();
    }
    let line: Vec<&str> = ["continuum-router", "config"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let line = line.into_iter().map(|word| {
        if word == "FILE" {
            file.clone()
        } else {
            PathBuf::from(word)
        }
    });
    let Some(Command::Config(command)) = Cli::try_parse_from(line).unwrap().command else {
        panic!("a command")
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(
        &command,
        &|name| (name == "KEY").then(|| "sk-secret".to_owned()),
        BUILD,
        &mut out,
        &mut err,
    );
    let plain = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(&file.display().to_string(), "FILE")
    };
    Ran {
        code,
        out: plain(out),
        err: plain(err),
    }
}

fn is(code: ExitCode, number: u8) -> bool {
    format!("{code:?}") == format!("{:?}", ExitCode::from(number))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
    let cli = Cli::try_parse_from(["continuum-router", "--config", "a.yaml"]).unwrap();
    assert_eq!((cli.config, cli.command.is_none()), (Some("a.yaml".into()), true));
    assert!(Cli::try_parse_from(["continuum-router", "config", "validate"]).is_err());
}

#[test]
fn every_help_says_what_the_command_is_for() {
    for (line, part) in [
        (vec!["--help"], "SIGTERM"),
        (vec!["config", "--help"], "validate"),
        (vec!["config", "validate", "--help"], "file:line:column"),
        (vec!["config", "show", "--help"], "secrets masked"),
        (vec!["config", "schema", "--help"], "JSON Schema"),
    ] {
        let text = Cli::try_parse_from(std::iter::once("continuum-router").chain(line.clone()))
            .unwrap_err()
            .to_string();
        assert!(text.contains(part), "{line:?}: {text}");
    }
}

#[test]
fn errors_come_with_their_places_and_fail() {
    let ran = ran(
        &["validate", "FILE"],
        Some("server:\n  bind_adress: x\n  max_in_flight: 0\n"),
    );
    assert!(is(ran.code, 1));
    assert_eq!(
        ran.out,
        "FILE:2:3: server.bind_adress: unknown key \"bind_adress\"; did you mean \"bind_address\"?\n\
         FILE:3:18: server.max_in_flight: must be from 1 to 1000000, found 0\n\
         FILE is not valid: 2 errors\n"
    );
}

#[test]
fn warnings_do_not_fail_unless_asked_to() {
    let text = "backends: [{name: a, url: 'http://a'}]\ndynamo: {shim: {backends: [a]}}";
    let out = "FILE:2:27: dynamo.shim.backends: dynamo.enabled is off, so these replicas get no requests (warning)\n\
               FILE is valid, 1 warning\n";
    let lenient = ran(&["validate", "FILE"], Some(text));
    assert_eq!((lenient.out.as_str(), is(lenient.code, 0)), (out, true));
    assert!(is(ran(&["validate", "--strict", "FILE"], Some(text)).code, 1));
    let fine = ran(&["validate", "--strict", "FILE"], Some("backends: []\n"));
    assert_eq!((fine.out.as_str(), is(fine.code, 0)), ("FILE is valid\n", true));
}

#[test]
fn a_file_that_is_not_there_is_another_failure() {
    let ran = ran(&["validate", "FILE"], None);
    assert!(is(ran.code, 2));
    assert!(ran.err.starts_with("FILE: cannot be read: "), "{}", ran.err);
}

#[test]
fn a_file_without_text_is_not_read_as_one_of_defaults() {
    for text in ["", " \n\n"] {
        let ran = ran(&["validate", "FILE"], Some(text));
        assert!(is(ran.code, 2));
        assert_eq!(ran.err, "FILE: cannot be read: the file is empty\n");
    }
}

#[test]
fn showing_prints_a_configuration_and_nothing_else() {
    let text = "backends: [{name: a, url: 'http://a', api_key: '${KEY}'}]";
    let shown = ran(&["show", "FILE"], Some(text));
    assert!(is(shown.code, 0));
    assert!(
        shown.out.contains("    api_key: \"********\"\n") && !shown.out.contains("sk-secret"),
        "{}",
        shown.out
    );
    assert!(parse(&shown.out, &|_| None, BUILD).is_ok());
    let wrong = ran(&["show", "FILE"], Some("x: 1"));
    assert!(is(wrong.code, 1));
    assert_eq!(wrong.out, "");
    assert!(
        wrong.err.ends_with("FILE is not valid: 1 error\n"),
        "{}",
        wrong.err
    );
    assert!(ran(&["show"], None).out.contains("  body_limit: 32MiB\n"));
}

#[test]
fn the_schema_is_json() {
    let ran = ran(&["schema"], None);
    assert!(is(ran.code, 0));
    let schema: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(schema["title"], "Continuum Router configuration");
}
