//! Broker subjects: `namespace.<ns>[.component.<c>[.endpoint.<e>]].<topic>`, segments percent-encoded.
//!
//! Through a broker, frame 1 of a message is such a subject. A fleet that only sets a broker URL registers
//! no channel, so the subjects to ask for are derived from its workers.

use std::fmt::Write;

/// The scope of a channel. Wider scopes leave out the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Namespace, as registered (generation suffix included).
    pub namespace: &'a str,
    /// Component.
    pub component: Option<&'a str>,
    /// Endpoint; only with a component.
    pub endpoint: Option<&'a str>,
}

impl Scope<'_> {
    /// The full subject of a topic in this scope.
    #[must_use]
    pub fn subject(&self, topic: &str) -> String {
        let mut subject = String::with_capacity(64);
        segment(&mut subject, "namespace.", self.namespace);
        if let Some(component) = self.component {
            segment(&mut subject, ".component.", component);
            if let Some(endpoint) = self.endpoint {
                segment(&mut subject, ".endpoint.", endpoint);
            }
        }
        subject.push('.');
        subject.push_str(topic);
        subject
    }
}

fn segment(out: &mut String, label: &str, name: &str) {
    out.push_str(label);
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_follow_the_scope() {
        let endpoint = Scope {
            namespace: "ns.one",
            component: Some("backend"),
            endpoint: Some("generate"),
        };
        assert_eq!(
            endpoint.subject("kv_metrics"),
            "namespace.ns%2Eone.component.backend.endpoint.generate.kv_metrics"
        );
        let namespace = Scope {
            namespace: "a-b_c",
            component: None,
            endpoint: None,
        };
        assert_eq!(namespace.subject("kv_metrics"), "namespace.a-b_c.kv_metrics");
    }
}
