//! Which of the operator's configurations is the newer one: the file's, or what controllers sent.
//!
//! Those of one `RouterConfig` are numbered by its generation. One that was made anew under the same name counts from 1
//! again, so between two of them the numbers say nothing: what came later is the newer. Where no UID is told, as by an
//! older operator, the numbers are all there is.

use std::sync::Arc;

use continuum_push::{ConfigId, Update};

/// What controllers sent, and how it stands to the file.
#[derive(Default)]
pub(super) struct Newest {
    /// The newest that they sent.
    sent: Option<Arc<Update>>,
    /// The `RouterConfig` that the file was of when that came; `None` until the file was looked at.
    passed: Option<Option<String>>,
    /// What was not taken over, once that is logged.
    said: Option<ConfigId>,
}

/// What the file says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct File<'a> {
    pub(super) uid: Option<&'a str>,
    pub(super) generation: i64,
}

impl Newest {
    /// Controllers sent something. Whether there is something to do.
    pub(super) fn came(&mut self, update: Arc<Update>) -> bool {
        if let Some(sent) = &self.sent {
            if sent.id == update.id {
                return false;
            }
            let newest = sent.id.generation;
            if !differ(sent.uid.as_deref(), update.uid.as_deref()) && newest > update.id.generation {
                self.say(update.id, newest);
                return false;
            }
        }
        self.sent = Some(update);
        self.passed = None;
        true
    }

    /// What they sent last, unless the file is newer. `file`: `None` if it is no configuration of an operator.
    pub(super) fn over(&mut self, file: Option<File<'_>>) -> Option<Arc<Update>> {
        let sent = self.sent.clone()?;
        let uid = || file.and_then(|file| file.uid.map(str::to_owned));
        let passed = self.passed.get_or_insert_with(uid);
        let Some(file) = file else { return Some(sent) };
        let newer = if differ(file.uid, sent.uid.as_deref()) {
            // It became so later, and not only now again what it was: a file may be late.
            passed.as_deref() != file.uid
        } else {
            file.generation > sent.id.generation
        };
        if newer {
            self.say(sent.id, file.generation);
            return None;
        }
        Some(sent)
    }

    fn say(&mut self, older: ConfigId, newer: i64) {
        if self.said != Some(older) {
            self.said = Some(older);
            tracing::info!(
                sent = older.generation,
                newer,
                "a configuration that a controller sent is older than what is there, and is not taken over"
            );
        }
    }
}

/// Whether these are two, and not perhaps the same.
fn differ(one: Option<&str>, other: Option<&str>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thing that happens.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Sent(&'static str, i64),
        /// It is looked at, changed or not.
        File(&'static str, i64),
        /// It is no configuration any more.
        NoFile,
    }
    use Step::{File as InFile, NoFile, Sent};

    fn uid(word: &str) -> Option<&str> {
        Some(word).filter(|word| !word.is_empty())
    }

    fn update(of: &str, generation: i64) -> Arc<Update> {
        let text = format!("{of}/{generation}");
        Arc::new(Update {
            id: ConfigId::of(generation, &text),
            uid: uid(of).map(str::to_owned),
            text,
        })
    }

    #[test]
    fn numbers_are_compared_within_one_routerconfig() {
        let cases: &[(&[Step], &str)] = &[
            (&[InFile("a", 1), Sent("a", 2)], "a/2"),
            (&[InFile("a", 2), Sent("a", 1)], "file a/2"),
            (&[InFile("a", 1), Sent("a", 2), Sent("a", 1)], "a/2"),
            (&[InFile("a", 1), Sent("a", 2), InFile("a", 3)], "file a/3"),
            (&[InFile("a", 1), Sent("a", 2), NoFile], "a/2"),
            // One that was made anew.
            (&[InFile("a", 7), Sent("b", 1)], "b/1"),
            (&[InFile("a", 7), Sent("a", 8), Sent("b", 1)], "b/1"),
            // A file that is late, and one that follows.
            (&[InFile("a", 7), Sent("b", 1), InFile("a", 8)], "b/1"),
            (&[InFile("a", 7), Sent("b", 2), InFile("b", 1)], "b/2"),
            (&[InFile("a", 7), Sent("b", 1), InFile("b", 2)], "file b/2"),
            // It took over while no controller could be reached.
            (&[InFile("a", 7), Sent("a", 8), InFile("b", 1)], "file b/1"),
            (
                &[InFile("a", 7), Sent("a", 8), InFile("b", 1), Sent("a", 8)],
                "file b/1",
            ),
            (
                &[InFile("a", 7), Sent("a", 8), InFile("b", 1), Sent("b", 2)],
                "b/2",
            ),
            // A replica of the operator that has not heard of it yet.
            (&[InFile("b", 1), Sent("a", 7), Sent("b", 1)], "b/1"),
            // Without a UID the numbers decide.
            (&[InFile("", 7), Sent("b", 1)], "file /7"),
            (&[InFile("", 7), Sent("b", 7)], "b/7"),
            (&[InFile("a", 7), Sent("", 8)], "/8"),
            (&[InFile("a", 7), Sent("", 8), Sent("b", 1)], "/8"),
        ];
        for (steps, in_force) in cases {
            let mut newest = Newest::default();
            let mut file = None;
            let mut found = String::new();
            for step in *steps {
                let looked = match *step {
                    Sent(of, generation) => newest.came(update(of, generation)),
                    InFile(of, generation) => {
                        file = Some((of, generation));
                        true
                    }
                    NoFile => {
                        file = None;
                        true
                    }
                };
                if looked {
                    let there = file.map(|(of, generation)| File {
                        uid: uid(of),
                        generation,
                    });
                    found = match (newest.over(there), file) {
                        (Some(sent), _) => sent.text.clone(),
                        (None, Some((of, generation))) => format!("file {of}/{generation}"),
                        (None, None) => "nothing".to_owned(),
                    };
                }
            }
            assert_eq!(found, *in_force, "{steps:?}");
        }
    }

    #[test]
    fn what_is_not_taken_over_is_said_once() {
        let mut newest = Newest::default();
        assert!(newest.came(update("a", 2)));
        for _ in 0..2 {
            assert!(!newest.came(update("a", 1)));
            assert_eq!(newest.said, Some(update("a", 1).id));
        }
        let file = Some(File {
            uid: Some("a"),
            generation: 3,
        });
        assert!(newest.over(file).is_none());
        assert_eq!(newest.said, Some(update("a", 2).id));
    }
}
