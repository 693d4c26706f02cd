//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;

/// A name that can be asked for at the moment, from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
    /// The id.
    pub id: &'a str,
    /// Who serves it.
    pub owner: Owner,
    /// Longest context, in tokens, where it is known.
    pub max_model_len: Option<u64>,
}

/// `owned_by` of a model. The order is the order of precedence when several sources offer one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Workers of a Dynamo fleet, under their base name, an alias or an adapter.
    Fleet,
    /// A key of `dynamo.shim.model_map`.
    Mapped,
    /// A configured backend.
    Backend,
}

impl Owner {
    /// The text on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fleet | Self::Mapped => "dynamo",
            Self::Backend => "backend",
        }
    }
}

/// The models that can be asked for, each id once.
#[derive(Clone, Debug, Default)]
pub struct Models<'a> {
    by_id: BTreeMap<&'a str, (Owner, Option<u64>)>,
}

impl<'a> Models<'a> {
    /// Merges offers: the first owner wins, and of several context lengths the shortest, since any of the
    /// workers may get the request.
    #[must_use]
    pub fn new(offers: impl IntoIterator<Item = Offer<'a>>) -> Self {
        let mut by_id = BTreeMap::new();
        for offer in offers {
            let (owner, length) = by_id
                .entry(offer.id)
                .or_insert((offer.owner, offer.max_model_len));
            *owner = (*owner).min(offer.owner);
            *length = match (*length, offer.max_model_len) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        Self { by_id }
    }

    /// The longest context of an id; `None`: no such model.
    #[must_use]
    pub fn max_model_len(&self, id: &str) -> Option<Option<u64>> {
        self.by_id.get(id).map(|(_, length)| *length)
    }

    /// The body of `GET /v1/models`, ids in order. `created` is in Unix seconds; it has no meaning here, but
    /// clients insist on it.
    #[must_use]
    pub fn list(&self, created: u64) -> Bytes {
        let data = self
            .by_id
            .iter()
            .map(|(id, model)| object(id, *model, created))
            .collect();
        json(&List { object: "list", data })
    }

    /// The body of `GET /v1/models/{id}`; `None`: no such model.
    #[must_use]
    pub fn one(&self, id: &str, created: u64) -> Option<Bytes> {
        self.by_id
            .get_key_value(id)
            .map(|(id, model)| json(&object(id, *model, created)))
    }
}

fn object(id: &str, (owner, max_model_len): (Owner, Option<u64>), created: u64) -> Object<'_> {
    Object {
        id,
        object: "model",
        created,
        owned_by: owner.as_str(),
        max_model_len,
    }
}

fn json(value: &impl Serialize) -> Bytes {
    // Texts and numbers only: it cannot fail.
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Object<'a>>,
}

#[derive(Serialize)]
struct Object<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const fn offer(id: &str, owner: Owner, max_model_len: Option<u64>) -> Offer<'_> {
        Offer {
            id,
            owner,
            max_model_len,
        }
    }

    #[test]
    fn ids_are_sorted_and_unique() {
        let models = Models::new([
            offer("qwen", Owner::Backend, Some(4096)),
            offer("alias", Owner::Fleet, None),
            offer("qwen", Owner::Fleet, Some(8192)),
            offer("qwen", Owner::Fleet, None),
            offer("모델 \"x\"", Owner::Mapped, Some(1)),
        ]);
        let list: Value = serde_json::from_slice(&models.list(7)).expect("JSON");
        assert_eq!(
            list,
            json!({"object": "list", "data": [
                {"id": "alias", "object": "model", "created": 7, "owned_by": "dynamo"},
                {"id": "qwen", "object": "model", "created": 7, "owned_by": "dynamo", "max_model_len": 4096},
                {"id": "모델 \"x\"", "object": "model", "created": 7, "owned_by": "dynamo", "max_model_len": 1},
            ]})
        );
    }

    #[test]
    fn one_model_has_the_same_form() {
        let models = Models::new([offer("org/m", Owner::Backend, None)]);
        let one: Value = serde_json::from_slice(&models.one("org/m", 7).expect("known")).expect("JSON");
        assert_eq!(
            one,
            json!({"id": "org/m", "object": "model", "created": 7, "owned_by": "backend"})
        );
        assert_eq!(models.one("org", 7), None);
    }

    #[test]
    fn an_empty_list_is_a_list() {
        assert_eq!(Models::new([]).list(0), r#"{"object":"list","data":[]}"#);
    }
}
