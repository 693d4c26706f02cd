//! Which configured namespace (graph) a worker's own namespace belongs to.
//!
//! The operator registers each generation of a deployment under `<name>-<8 hex>` or `<name>-legacy`, so the
//! configured name alone would see an empty fleet.

use std::{fmt, sync::Arc};

use crate::ids::Graph;

/// How configured names match the namespaces of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NamespaceMatch {
    /// The name itself, `<name>-legacy`, and `<name>-` with eight lower-case hex digits.
    #[default]
    Generation,
    /// The name itself alone.
    Exact,
    /// Every namespace that begins with the name.
    Prefix,
}

impl NamespaceMatch {
    /// The word of the config.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Exact => "exact",
            Self::Prefix => "prefix",
        }
    }
}

/// Which rollout of a graph a worker belongs to. A prefill and a decode worker of different generations are
/// never paired.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// Registered under the configured name itself.
    Base,
    /// Registered under `<name>-legacy`.
    Legacy,
    /// Registered under `<name>-<8 hex>`: the operator's hash of the worker generation.
    Hash(u32),
    /// Any other suffix, with prefix matching only.
    Suffix(Arc<str>),
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::Legacy => f.write_str("legacy"),
            Self::Hash(hash) => write!(f, "{hash:08x}"),
            Self::Suffix(suffix) => f.write_str(suffix),
        }
    }
}

/// The configured graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graphs {
    names: Vec<Graph>,
    how: NamespaceMatch,
}

impl Graphs {
    /// Graphs in any order; repeated names count once.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = Graph>, how: NamespaceMatch) -> Self {
        let mut names: Vec<Graph> = names.into_iter().collect();
        // The longest first: with prefix matching the most specific name wins.
        names.sort_by(|a, b| b.as_str().len().cmp(&a.as_str().len()).then_with(|| a.cmp(b)));
        names.dedup();
        Self { names, how }
    }

    /// The configured names, longest first.
    #[must_use]
    pub fn names(&self) -> &[Graph] {
        &self.names
    }

    /// How they match.
    #[must_use]
    pub const fn how(&self) -> NamespaceMatch {
        self.how
    }

    /// The graph and generation of a namespace, `None` when it is not configured. A name that is configured
    /// exactly wins over any other match.
    #[must_use]
    pub fn graph_of(&self, namespace: &str) -> Option<(Graph, Generation)> {
        if let Some(graph) = self.names.iter().find(|g| g.as_str() == namespace) {
            return Some((graph.clone(), Generation::Base));
        }
        self.names.iter().find_map(|graph| {
            let suffix = namespace.strip_prefix(graph.as_str())?;
            generation(suffix, self.how).map(|generation| (graph.clone(), generation))
        })
    }
}

/// Whether a text is the operator's hash of a worker generation.
pub(crate) fn is_generation(hash: &str) -> bool {
    hash.len() == 8 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn generation(suffix: &str, how: NamespaceMatch) -> Option<Generation> {
    let known = match suffix.strip_prefix('-') {
        Some("legacy") => Some(Generation::Legacy),
        Some(hash) if is_generation(hash) => u32::from_str_radix(hash, 16).ok().map(Generation::Hash),
        Some(_) | None => None,
    };
    match how {
        NamespaceMatch::Exact => None,
        NamespaceMatch::Generation => known,
        NamespaceMatch::Prefix => Some(known.unwrap_or_else(|| Generation::Suffix(suffix.into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graphs(names: &[&str], how: NamespaceMatch) -> Graphs {
        Graphs::new(names.iter().map(|n| Graph::from(*n)), how)
    }

    #[test]
    fn a_generation_belongs_to_the_name_it_was_rolled_out_from() {
        let graphs = graphs(&["prod", "canary"], NamespaceMatch::Generation);
        for (namespace, expected) in [
            ("prod", Some(("prod", Generation::Base))),
            ("prod-legacy", Some(("prod", Generation::Legacy))),
            ("prod-0a1b2c3d", Some(("prod", Generation::Hash(0x0a1b_2c3d)))),
            ("canary-ffffffff", Some(("canary", Generation::Hash(u32::MAX)))),
            ("prod-0A1B2C3D", None),
            ("prod-0a1b2c3", None),
            ("prod-0a1b2c3d4", None),
            ("prod-", None),
            ("prod2", None),
            ("prodlegacy", None),
            ("pro", None),
            ("", None),
        ] {
            let expected = expected.map(|(g, generation)| (Graph::from(g), generation));
            assert_eq!(graphs.graph_of(namespace), expected, "{namespace:?}");
        }
    }

    #[test]
    fn exact_and_prefix_are_what_they_say() {
        let exact = graphs(&["prod"], NamespaceMatch::Exact);
        assert_eq!(
            exact.graph_of("prod"),
            Some((Graph::from("prod"), Generation::Base))
        );
        assert_eq!(exact.graph_of("prod-legacy"), None);

        let prefix = graphs(&["prod", "prod-eu"], NamespaceMatch::Prefix);
        assert_eq!(
            prefix.graph_of("prodigy"),
            Some((Graph::from("prod"), Generation::Suffix("igy".into())))
        );
        assert_eq!(
            prefix.graph_of("prod-legacy"),
            Some((Graph::from("prod"), Generation::Legacy))
        );
        assert_eq!(
            prefix.graph_of("prod-eu-1"),
            Some((Graph::from("prod-eu"), Generation::Suffix("-1".into())))
        );
    }

    #[test]
    fn a_name_configured_exactly_wins() {
        let graphs = graphs(&["prod", "prod-legacy"], NamespaceMatch::Generation);
        assert_eq!(
            graphs.graph_of("prod-legacy"),
            Some((Graph::from("prod-legacy"), Generation::Base))
        );
        assert_eq!(
            graphs.graph_of("prod"),
            Some((Graph::from("prod"), Generation::Base))
        );
    }
}
