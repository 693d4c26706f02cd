//! Which statuses cannot be written, so that each reason is told of once.

use std::collections::BTreeMap;

use continuum_crds::conditions::Reason;

use crate::push::Key;

/// The RouterConfigs whose statuses could not be written last.
#[derive(Debug, Default)]
pub(super) struct Failing(BTreeMap<Key, Reason>);

impl Failing {
    /// Whether it is the first of all that fail for this reason.
    pub(super) fn failed(&mut self, key: &Key, reason: Reason) -> bool {
        let first = !self.fails(reason);
        self.0.insert(key.clone(), reason);
        first
    }

    /// The reason why some failed, when this was the last of them.
    pub(super) fn succeeded(&mut self, key: &Key) -> Option<Reason> {
        let reason = self.0.remove(key)?;
        (!self.fails(reason)).then_some(reason)
    }

    /// Keeps those that are still there.
    pub(super) fn retain(&mut self, there: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| there(key));
    }

    fn fails(&self, reason: Reason) -> bool {
        self.0.values().any(|other| *other == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_of_once() {
        let key = |name: &str| Key {
            namespace: "n".into(),
            name: name.into(),
        };
        let mut failing = Failing::default();
        assert!(failing.failed(&key("a"), Reason::ApiUnavailable));
        assert!(!failing.failed(&key("a"), Reason::ApiUnavailable));
        assert!(!failing.failed(&key("b"), Reason::ApiUnavailable));
        assert!(failing.failed(&key("c"), Reason::Forbidden));
        assert_eq!(failing.succeeded(&key("a")), None);
        assert_eq!(failing.succeeded(&key("b")), Some(Reason::ApiUnavailable));
        assert_eq!(failing.succeeded(&key("b")), None);
        assert!(failing.failed(&key("b"), Reason::ApiUnavailable), "anew");
        failing.retain(|known| known.name.as_ref() != "c");
        assert!(failing.failed(&key("d"), Reason::Forbidden));
    }
}
