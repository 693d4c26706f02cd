//! Server-sent events on their way through: only whole ones pass.
//!
//! A client cannot use a part of an event, and a backend that dies inside one must not leave half of it to a
//! client's JSON parser. So the part behind the last event boundary of a chunk is held back until the rest arrives.
//! Frontends write whole events, so that nearly every chunk passes as it is. An event larger than
//! [`HELD_EVENT`] passes in parts.

use std::{collections::VecDeque, sync::LazyLock};

use bytes::Bytes;
use memchr::{memchr2, memmem, memrchr2_iter};

use super::limits::HELD_EVENT;

/// The state of one stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Parts of the unfinished event, in order, not passed yet.
    held: VecDeque<Bytes>,
    held_bytes: usize,
    /// A part of the unfinished event has been passed.
    open: bool,
    /// The last two bytes that arrived.
    tail: [u8; 2],
    /// An error event has passed.
    failed: bool,
}

impl Events {
    /// Takes a chunk and appends to `out` what may pass now.
    pub(crate) fn pass(&mut self, mut chunk: Bytes, out: &mut VecDeque<Bytes>) {
        self.failed |= holds_error(&chunk);
        let boundary = last_boundary(self.tail, &chunk);
        self.tail = match *chunk {
            [] => self.tail,
            [only] => [self.tail[1], only],
            [.., before, last] => [before, last],
        };
        if let Some(end) = boundary {
            out.append(&mut self.held);
            self.held_bytes = 0;
            self.open = false;
            out.push_back(chunk.split_to(end));
        }
        if chunk.is_empty() {
            return;
        }
        if self.open || self.held_bytes + chunk.len() > HELD_EVENT {
            out.append(&mut self.held);
            self.held_bytes = 0;
            self.open = true;
            out.push_back(chunk);
        } else {
            self.held_bytes += chunk.len();
            self.held.push_back(chunk);
        }
    }

    /// The stream ended well: what is held passes, whatever it is.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) {
        out.append(&mut self.held);
    }

    /// The stream broke: what is held is dropped, and `last` ends the stream.
    pub(crate) fn cut(&mut self, last: Bytes, out: &mut VecDeque<Bytes>) {
        self.held.clear();
        if self.open {
            out.push_back(Bytes::from_static(b"\n\n"));
        }
        out.push_back(last);
    }

    /// Whether an error event has passed.
    pub(crate) const fn failed(&self) -> bool {
        self.failed
    }
}

/// The place behind the last blank line of the chunk; `tail` are the two bytes before it. Lines end with LF, CR
/// or CR LF.
fn last_boundary(tail: [u8; 2], chunk: &[u8]) -> Option<usize> {
    let before = |at: usize, back: usize| match at.checked_sub(back) {
        Some(index) => chunk.get(index).copied(),
        None => tail.get(2 + at - back).copied(),
    };
    let is_end = |byte: Option<u8>| matches!(byte, Some(b'\n' | b'\r'));
    memrchr2_iter(b'\n', b'\r', chunk)
        .find(|at| {
            let at = *at;
            let crlf = chunk.get(at) == Some(&b'\n') && before(at, 1) == Some(b'\r');
            is_end(before(at, if crlf { 2 } else { 1 }))
        })
        .map(|at| at + 1)
}

/// Whether an event of the chunk carries an error: `data: {"error": …}` or `event: error`.
fn holds_error(chunk: &[u8]) -> bool {
    static OBJECT: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(br#"{"error""#));
    static EVENT: &[u8] = b"event: error";
    let starts_line = |at: usize| {
        at == 0
            || chunk
                .get(at - 1)
                .is_some_and(|byte| memchr2(b'\n', b'\r', &[*byte]).is_some())
    };
    if chunk.starts_with(EVENT) {
        return true;
    }
    OBJECT.find_iter(chunk).any(|at| {
        let line = chunk.get(..at).unwrap_or_default();
        [&b"data: "[..], b"data:"]
            .into_iter()
            .any(|field| line.ends_with(field) && starts_line(at - field.len()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(chunks: &[&[u8]]) -> (Vec<Vec<u8>>, Events) {
        let mut events = Events::default();
        let mut passed = Vec::new();
        for chunk in chunks {
            let mut out = VecDeque::new();
            events.pass(Bytes::copy_from_slice(chunk), &mut out);
            passed.push(out.into_iter().flatten().collect());
        }
        (passed, events)
    }

    fn cut(mut events: Events) -> Vec<u8> {
        let mut out = VecDeque::new();
        events.cut(Bytes::from_static(b"data: end\n\n"), &mut out);
        out.into_iter().flatten().collect()
    }

    #[test]
    fn whole_events_pass_as_they_come() {
        let (passed, events) = run(&[
            b"data: 1\n\n",
            b"data: 2\r\n\r\n",
            b": ping\n\ndata: 3\n\n",
            b"data: 4\r\r",
        ]);
        assert_eq!(
            passed,
            [
                &b"data: 1\n\n"[..],
                b"data: 2\r\n\r\n",
                b": ping\n\ndata: 3\n\n",
                b"data: 4\r\r"
            ]
        );
        assert_eq!(cut(events), b"data: end\n\n");
    }

    #[test]
    fn a_part_waits_for_the_rest_and_never_reaches_the_client_alone() {
        let (passed, events) = run(&[b"data: 1\n\ndata: {\"a", b"\":1}", b"\n", b"\ndata: "]);
        assert_eq!(passed, [&b"data: 1\n\n"[..], b"", b"", b"data: {\"a\":1}\n\n"]);
        assert_eq!(cut(events), b"data: end\n\n");
        let (passed, events) = run(&[b"data: 1\r", b"\n\r", b"\n"]);
        assert_eq!(passed.concat(), b"data: 1\r\n\r\n");
        assert_eq!(cut(events), b"data: end\n\n");
    }

    #[test]
    fn a_huge_event_passes_in_parts_and_is_closed_when_cut() {
        let huge = vec![b'x'; HELD_EVENT];
        let (passed, events) = run(&[b"data: ", &huge, b"more"]);
        assert_eq!(
            passed.iter().map(Vec::len).collect::<Vec<_>>(),
            [0, 6 + HELD_EVENT, 4]
        );
        assert_eq!(cut(events), b"\n\ndata: end\n\n");
        let (passed, events) = run(&[b"data: ", &huge, b"\n\ndata: next"]);
        assert_eq!(passed[2], b"\n\n");
        assert_eq!(cut(events), b"data: end\n\n");
    }

    #[test]
    fn error_events_are_noticed() {
        let frontend = br#"data: {"error":{"message":"Service temporarily unavailable","type":"service_unavailable","code":503}}"#;
        for chunk in [
            &frontend[..],
            b"data: 1\n\ndata:{\"error\":1}\n\n",
            b"event: error\ndata: {}\n\n",
        ] {
            assert!(run(&[chunk]).1.failed(), "{}", String::from_utf8_lossy(chunk));
        }
        for chunk in [
            &br#"data: {"choices":[{"text":"data: {\"error\""}]}"#[..],
            br#"data: {"a":{"error":1}}"#,
            b": {\"error\"",
        ] {
            assert!(!run(&[chunk]).1.failed(), "{}", String::from_utf8_lossy(chunk));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// However a stream is cut into chunks: what has passed is a prefix of it that ends at a boundary, as long
        /// a one as can be, and nothing is lost in the end.
        #[test]
        fn only_whole_events_pass(stream in "[ab\n\r]{0,40}", cuts in proptest::collection::vec(0usize..40, 0..6)) {
            let stream = stream.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).chain([0, stream.len()]).collect();
            cuts.sort_unstable();
            let mut events = Events::default();
            let mut out = VecDeque::new();
            for pair in cuts.windows(2) {
                events.pass(Bytes::copy_from_slice(&stream[pair[0]..pair[1]]), &mut out);
                let passed: Vec<u8> = out.iter().flatten().copied().collect();
                let arrived = &stream[..pair[1]];
                prop_assert_eq!(&passed[..], &arrived[..naive_boundary(arrived)]);
            }
            events.finish(&mut out);
            let passed: Vec<u8> = out.into_iter().flatten().collect();
            prop_assert_eq!(&passed[..], stream);
        }
    }

    /// Walks from the front: a blank line is a line end right behind another.
    fn naive_boundary(bytes: &[u8]) -> usize {
        (1..=bytes.len())
            .rev()
            .find(|end| {
                let text = &bytes[..*end];
                ["\n\n", "\r\r", "\n\r", "\n\r\n", "\r\r\n"]
                    .iter()
                    .any(|blank| text.ends_with(blank.as_bytes()))
            })
            .unwrap_or(0)
    }
}
