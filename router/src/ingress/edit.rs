//! Splices: bytes leave a body, or one name takes the place of another, and no other byte changes.

use std::{borrow::Cow, ops::Range};

use bytes::{Bytes, BytesMut};

/// The body with `removals` left out and the strings at `model.0` (with their quotes) replaced by `model.1`.
///
/// Ranges lie inside the body, in order, and do not overlap. With nothing to change the same bytes come back,
/// not a copy.
#[must_use]
pub fn apply(body: &Bytes, removals: &[Range<usize>], model: Option<(&[Range<usize>], &str)>) -> Bytes {
    let quoted;
    let (models, name): (&[Range<usize>], &[u8]) = match model {
        Some((models, name)) => {
            quoted = quote(name);
            (models, &quoted)
        }
        None => (&[], b""),
    };
    if removals.is_empty() && models.is_empty() {
        return body.clone();
    }
    let mut splices: Vec<(&Range<usize>, &[u8])> = removals
        .iter()
        .map(|range| (range, b"".as_slice()))
        .chain(models.iter().map(|range| (range, name)))
        .collect();
    splices.sort_unstable_by_key(|(range, _)| range.start);
    let mut out = BytesMut::with_capacity(body.len() + models.len() * name.len());
    let mut kept = 0;
    for (range, instead) in splices {
        out.extend_from_slice(body.get(kept..range.start).unwrap_or_default());
        out.extend_from_slice(instead);
        kept = range.end;
    }
    out.extend_from_slice(body.get(kept..).unwrap_or_default());
    out.freeze()
}

/// A name as a JSON string.
pub(super) fn quote(name: &str) -> Cow<'static, [u8]> {
    // A text can always be written; the fallback keeps this free of panics.
    serde_json::to_vec(name).map_or(Cow::Borrowed(b"\"\"".as_slice()), Cow::Owned)
}

/// Turns "this element goes" into ranges that leave valid JSON, separator and white space included.
///
/// An element behind one that stays takes the comma before it along; elements in front of the first that
/// stays take the comma behind them.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    kept_one: bool,
    previous_end: usize,
    open_since: Option<usize>,
}

impl Gaps {
    /// An element begins here.
    pub(super) fn begin(&mut self, at: usize, removals: &mut Vec<Range<usize>>) {
        if let Some(since) = self.open_since.take() {
            leave_out(since..at, removals);
        }
        if !self.kept_one {
            // Only used if this element goes and stays the first.
            self.previous_end = at;
        }
    }

    /// It ends here, and stays or goes.
    pub(super) fn end(&mut self, at: usize, keep: bool, removals: &mut Vec<Range<usize>>) {
        match (keep, self.kept_one) {
            (true, _) => self.kept_one = true,
            (false, true) => leave_out(self.previous_end..at, removals),
            (false, false) => self.open_since = Some(self.previous_end),
        }
        self.previous_end = at;
    }

    /// The object or array ends.
    pub(super) fn close(&mut self, removals: &mut Vec<Range<usize>>) {
        if let Some(since) = self.open_since.take() {
            leave_out(since..self.previous_end, removals);
        }
    }
}

/// Neighbours become one range.
fn leave_out(range: Range<usize>, removals: &mut Vec<Range<usize>>) {
    match removals.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => removals.push(range),
    }
}

#[cfg(test)]
mod tests;
