//! Duplicates and gaps of one publisher's stream.

/// What a sequence number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first since the connection began; any number is.
    First,
    /// The successor of the last one.
    Next,
    /// Numbers before it are missing.
    Gap,
    /// Not above the last one.
    Duplicate,
}

/// Judges a number against the last accepted one.
pub(crate) const fn step(last: Option<u64>, sequence: u64) -> Step {
    match last {
        None => Step::First,
        Some(last) if sequence <= last => Step::Duplicate,
        Some(last) if sequence - last == 1 => Step::Next,
        Some(_) => Step::Gap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_a_number_like_any_other() {
        assert_eq!(step(None, 0), Step::First);
        assert_eq!(
            step(None, 41),
            Step::First,
            "a late joiner has missed nothing that it was promised"
        );
        assert_eq!(step(Some(0), 0), Step::Duplicate);
        assert_eq!(step(Some(0), 1), Step::Next);
        assert_eq!(step(Some(0), 2), Step::Gap);
        assert_eq!(step(Some(u64::MAX), u64::MAX), Step::Duplicate);
        assert_eq!(step(Some(u64::MAX - 1), u64::MAX), Step::Next);
    }
}
