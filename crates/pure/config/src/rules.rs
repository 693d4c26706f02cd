//! The rules that look at values rather than at types: what belongs together, what excludes what, what must
//! exist. Each rule reports at the field that has to change.

mod backends;
mod controller;
mod discovery;
mod event_bus;
mod kv;
mod server;
mod shim;

use std::collections::BTreeSet;

use crate::{check::Places, model::Config, problem::Problem};

/// Checks everything. Places in doubt are passed over.
pub(crate) fn check(config: &Config, places: &Places) -> Vec<Problem> {
    let mut report = Report {
        places,
        problems: Vec::new(),
    };
    server::check(config, &mut report);
    backends::check(config, &mut report);
    discovery::check(config, &mut report);
    shim::check(config, &mut report);
    kv::check(config, &mut report);
    event_bus::check(config, &mut report);
    controller::check(config, &mut report);
    report.problems
}

/// Findings on their way to their places.
pub(crate) struct Report<'a> {
    pub(crate) places: &'a Places,
    pub(crate) problems: Vec<Problem>,
}

impl Report<'_> {
    /// Adds a finding, unless the place is in doubt anyway.
    pub(crate) fn add(&mut self, path: &str, message: impl Into<String>) {
        if self.places.in_doubt(path) || self.places.hangs_on_opaque(path) {
            return;
        }
        self.push(path, message.into());
    }

    /// Adds a finding that follows from what stands at `decided`, whatever the value at `path` is.
    pub(crate) fn add_for(&mut self, path: &str, decided: &[&str], message: impl Into<String>) {
        if decided.iter().any(|path| self.places.in_doubt(path)) {
            return;
        }
        self.push(path, message.into());
    }

    fn push(&mut self, path: &str, message: String) {
        let at = self.places.of(path);
        self.problems.push(Problem {
            path: path.to_owned(),
            line: at.line,
            column: at.column,
            message,
        });
    }

    /// Reports every value that stands in a list before.
    fn unique<'v>(&mut self, path: &str, key: &str, values: impl Iterator<Item = &'v str>, what: &str) {
        let mut seen = BTreeSet::new();
        for (index, value) in values.enumerate() {
            let place = format!("{path}[{index}]{key}");
            if !self.places.in_doubt(&place) && !seen.insert(value) {
                self.add(&place, format!("the {what} \"{value}\" stands here twice"));
            }
        }
    }
}

/// A Dynamo namespace, as it becomes part of an etcd key.
fn namespace_problem(name: &str) -> Option<&'static str> {
    if name.contains('/') {
        Some("a Dynamo namespace cannot contain \"/\"")
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Some("a Dynamo namespace cannot contain white space or control characters")
    } else {
        None
    }
}

/// What can be sent in a header: a bearer token.
fn is_token(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
