//! Which key prefixes to read: as few as cover the configured namespaces, narrower ones where that is refused.

use continuum_fleet::{graphs::NamespaceMatch, ids::Graph, keys::Bucket};

/// The prefixes of the configured namespaces, by bucket.
#[derive(Debug)]
pub(super) struct Ranges {
    namespaces: Vec<Graph>,
    how: NamespaceMatch,
}

/// A prefix to try, and the narrower one to try when it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The wide prefix.
    pub(super) wide: String,
    /// The namespace alone; equal to the wide one with exact matching.
    pub(super) narrow: String,
}

impl Ranges {
    pub(super) fn new(namespaces: &[Graph], how: NamespaceMatch) -> Self {
        let mut namespaces = namespaces.to_vec();
        // The shortest first: a prefix that covers others is tried before them.
        namespaces.sort_by(|a, b| a.as_str().len().cmp(&b.as_str().len()).then_with(|| a.cmp(b)));
        namespaces.dedup();
        Self { namespaces, how }
    }

    /// What to try in a bucket, in order.
    pub(super) fn candidates(&self, bucket: Bucket) -> impl Iterator<Item = Candidate> {
        self.namespaces.iter().map(move |graph| Candidate {
            wide: bucket.range_prefix(graph, self.how),
            narrow: bucket.range_prefix(graph, NamespaceMatch::Exact),
        })
    }
}

/// Whether `granted` prefixes hold every key of `prefix` already.
pub(super) fn covered(granted: &[String], prefix: &str) -> bool {
    granted.iter().any(|granted| prefix.starts_with(granted.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_that_covers_others_comes_first() {
        let names = ["prod-eu", "prod", "dev", "prod"].map(Graph::from);
        let ranges = Ranges::new(&names, NamespaceMatch::Generation);
        let mut granted = Vec::new();
        for candidate in ranges.candidates(Bucket::Instances) {
            if !covered(&granted, &candidate.wide) {
                granted.push(candidate.wide);
            }
        }
        assert_eq!(granted, ["v1/instances/dev", "v1/instances/prod"]);
    }

    #[test]
    fn exact_matching_covers_the_namespace_alone() {
        let ranges = Ranges::new(&["prod", "prod-eu"].map(Graph::from), NamespaceMatch::Exact);
        let all: Vec<_> = ranges.candidates(Bucket::EventChannels).collect();
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|c| c.wide == c.narrow && c.wide.ends_with('/')));
        assert!(!covered(&[all[0].wide.clone()], &all[1].wide));
    }
}
