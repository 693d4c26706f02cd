//! The names in a server's `GET /v1/models`.

use serde::Deserialize;

/// Bytes of a model list that are read: 16,384 names of 256 bytes.
pub(super) const LISTING_BYTES: usize = 4 << 20;

/// The names that a server says it serves, in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    names: Vec<Box<str>>,
}

impl Listing {
    /// Reads the answer of `GET /v1/models`.
    ///
    /// # Errors
    /// It is no list of models.
    pub fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Answer {
            data: Vec<Model>,
        }
        #[derive(Deserialize)]
        struct Model {
            id: Box<str>,
        }
        let answer: Answer = serde_json::from_slice(body)?;
        let mut names: Vec<_> = answer.data.into_iter().map(|model| model.id).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Self { names })
    }

    /// Whether the name is in the list.
    #[must_use]
    pub fn holds(&self, model: &str) -> bool {
        self.names.binary_search_by(|name| (**name).cmp(model)).is_ok()
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_frontends_and_servers_answer() {
        let listing = Listing::parse(
            br#"{"object":"list","data":[{"id":"b","object":"model","context_window":0},{"id":"a"},{"id":"b"}]}"#,
        )
        .unwrap();
        assert_eq!(listing.names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(listing.holds("a") && !listing.holds("c"));
        assert_eq!(
            Listing::parse(br#"{"object":"list","data":[]}"#)
                .unwrap()
                .names()
                .count(),
            0
        );
        for broken in [
            "",
            "[]",
            "{}",
            r#"{"data":[{"name":"a"}]}"#,
            r#"{"data":{"id":"a"}}"#,
        ] {
            assert!(Listing::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
