//! Backends.

use super::{Report, is_token};
use crate::{
    model::{Backend, Config},
    value::{BackendUrl, Scheme},
};

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    report.unique(
        "backends",
        ".name",
        config.backends.iter().map(|backend| backend.name.as_str()),
        "backend name",
    );
    for (index, backend) in config.backends.iter().enumerate() {
        one(&format!("backends[{index}]"), backend, report);
    }
}

fn one(path: &str, backend: &Backend, report: &mut Report<'_>) {
    if !backend
        .name
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b',' | b'/'))
    {
        report.add(
            &format!("{path}.name"),
            "a backend's name stands in headers and metrics: use visible ASCII characters without spaces, quotes, \",\", \"/\" and \"\\\"",
        );
    }
    report.unique(
        &format!("{path}.models"),
        "",
        backend.models.iter().map(String::as_str),
        "model",
    );
    for (index, model) in backend.models.iter().enumerate() {
        if model.chars().any(char::is_control) {
            report.add(
                &format!("{path}.models[{index}]"),
                "a model name cannot contain control characters",
            );
        }
    }
    let https = matches!(
        backend.url,
        BackendUrl::Tcp {
            scheme: Scheme::Https,
            ..
        }
    );
    if backend.tls.is_some() && !https {
        report.add(
            &format!("{path}.tls"),
            "this URL is no https URL, so nothing is encrypted; use https:// or remove tls",
        );
    }
    if backend
        .api_key
        .as_ref()
        .is_some_and(|key| !is_token(key.expose()))
    {
        report.add(
            &format!("{path}.api_key"),
            "a key is sent in a header: use visible ASCII characters without spaces",
        );
    }
    let health = &backend.health.path;
    if !health.starts_with('/') || !health.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        report.add(
            &format!("{path}.health.path"),
            "a path begins with \"/\" and holds visible ASCII characters only",
        );
    }
}
