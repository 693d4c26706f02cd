//! What was already said: a bounded memory of conditions, so that a lasting one is logged once.

use std::collections::{BTreeSet, VecDeque};

use crate::limits::MAX_SAID;

/// Sixteen bytes of a hash stand for a condition.
pub(crate) type Mark = [u8; 16];

/// Remembers the last [`MAX_SAID`] conditions.
#[derive(Debug, Default)]
pub(crate) struct Said {
    marks: BTreeSet<Mark>,
    order: VecDeque<Mark>,
}

impl Said {
    /// Whether this condition is new; it is remembered from now on.
    pub(crate) fn first_time<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mark = mark(parts);
        if !self.marks.insert(mark) {
            return false;
        }
        self.order.push_back(mark);
        if self.order.len() > MAX_SAID
            && let Some(oldest) = self.order.pop_front()
        {
            self.marks.remove(&oldest);
        }
        true
    }
}

/// A hash of several parts; their borders count.
pub(crate) fn mark<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Mark {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut mark = Mark::default();
    hasher.finalize_xof().fill(&mut mark);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_new_once_and_the_memory_is_bounded() {
        let mut said = Said::default();
        assert!(said.first_time([b"ab".as_slice(), b"c"]));
        assert!(!said.first_time([b"ab".as_slice(), b"c"]));
        assert!(said.first_time([b"a".as_slice(), b"bc"]));
        for n in 0..MAX_SAID {
            assert!(said.first_time([n.to_le_bytes().as_slice()]));
        }
        assert_eq!((said.marks.len(), said.order.len()), (MAX_SAID, MAX_SAID));
        assert!(
            said.first_time([b"ab".as_slice(), b"c"]),
            "the oldest was forgotten"
        );
    }
}
