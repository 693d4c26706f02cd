//! The naive model: JSON as a tree that keeps every pair of an object, in order, equal keys too.

use std::fmt;

use proptest::prelude::*;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Leaf(String),
    Text(String),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Tree {
    /// What has to leave for the backend.
    pub(super) fn cleaned(self, asked: bool, mapped: Option<&str>) -> Self {
        self.pairs(&|key, value| {
            Some(match (key, mapped) {
                ("model", Some(name)) => Self::Text(name.to_owned()),
                ("nvext", _) => {
                    value.pairs(&|key, value| match key {
                        "token_data"
                        | "backend_instance_id"
                        | "decode_worker_id"
                        | "prefill_worker_id"
                        | "dp_rank"
                        | "prefill_dp_rank"
                        | "routing_constraints"
                        | "router"
                        | "request_timestamp_ms"
                        | "metadata_upload" => None,
                        "agent_hints" => Some(value.pairs(&|key, value| {
                            (!matches!(key, "priority" | "strict_priority")).then_some(value)
                        })),
                        "annotations" => Some(value.elements(&|text| !text.starts_with("query_instance_id"))),
                        "extra_fields" if !asked => Some(value.elements(&|text| {
                            !matches!(text, "worker_id" | "engine_data" | "routed_experts")
                        })),
                        _ => Some(value),
                    })
                }
                _ => value,
            })
        })
    }

    fn pairs(self, keep: &dyn Fn(&str, Self) -> Option<Self>) -> Self {
        match self {
            Self::Object(pairs) => Self::Object(
                pairs
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.clone(), keep(&key, value)?)))
                    .collect(),
            ),
            other @ (Self::Leaf(_) | Self::Text(_) | Self::Array(_)) => other,
        }
    }

    fn elements(self, keep: &dyn Fn(&str) -> bool) -> Self {
        match self {
            Self::Array(all) => Self::Array(
                all.into_iter()
                    .filter(|one| match one {
                        Self::Text(text) => keep(text),
                        Self::Leaf(_) | Self::Array(_) | Self::Object(_) => true,
                    })
                    .collect(),
            ),
            other @ (Self::Leaf(_) | Self::Text(_) | Self::Object(_)) => other,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf("null".to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = seq.next_element()? {
            all.push(one);
        }
        Ok(Tree::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(pair) = map.next_entry()? {
            all.push(pair);
        }
        Ok(Tree::Object(all))
    }
}

/// A body as a hostile or sloppy client writes it: keys from our list in several spellings, doubled,
/// misplaced, with odd white space.
pub(super) fn body_text() -> impl Strategy<Value = String> {
    let nvext = prop_oneof![8 => object(nvext_member(), 6), 1 => Just("null".to_owned()), 1 => value()];
    let member = prop_oneof![
        3 => (key("model"), prop_oneof![6 => Just("\"m\""), 2 => Just("\"\\u006d\""), 1 => Just("\"n\""), 1 => Just("7")])
            .prop_map(|(key, value)| format!("{key}{value}")),
        2 => (key("stream"), prop_oneof![4 => Just("true"), 1 => Just("false"), 1 => Just("null")])
            .prop_map(|(key, value)| format!("{key}{value}")),
        6 => (key("nvext"), nvext).prop_map(|(key, value)| format!("{key}{value}")),
        2 => (prop_oneof![key("messages"), key("prompt"), key("tools"), key("x"), key("dp_rank")], value())
            .prop_map(|(key, value)| format!("{key}{value}")),
    ];
    object(member, 6).prop_map(|body| match body.find('{') {
        // Most bodies name a model, or there is little to test.
        Some(at) if body[at..].trim_start_matches('{').trim_start().starts_with('"') => {
            format!("{}{{\"model\":\"m\",{}", &body[..at], &body[at + 1..])
        }
        _ => body,
    })
}

fn nvext_member() -> BoxedStrategy<String> {
    let strings = |words: &'static [&'static str]| {
        let word = prop_oneof![4 => proptest::sample::select(words).prop_flat_map(spelled), 1 => value()];
        (proptest::collection::vec(word, 0..5), white())
            .prop_map(|(all, white)| format!("[{white}{}{white}]", all.join(&format!("{white},"))))
    };
    let plain = proptest::sample::select(
        &[
            "token_data",
            "backend_instance_id",
            "decode_worker_id",
            "prefill_worker_id",
            "dp_rank",
            "prefill_dp_rank",
            "routing_constraints",
            "router",
            "request_timestamp_ms",
            "metadata_upload",
            "cache_salt",
            "use_raw_prompt",
            "priority",
        ][..],
    );
    prop_oneof![
        6 => (plain.prop_flat_map(key), value()).prop_map(|(key, value)| key + &value),
        2 => (key("agent_hints"), object(
            (prop_oneof![key("priority"), key("strict_priority"), key("osl")], value()).prop_map(|(key, value)| key + &value), 5,
        )).prop_map(|(key, value)| key + &value),
        2 => (key("annotations"), strings(&["query_instance_id", "query_instance_id:1", "token_ids", ""]))
            .prop_map(|(key, value)| key + &value),
        2 => (key("extra_fields"), strings(&["worker_id", "engine_data", "routed_experts", "timing"]))
            .prop_map(|(key, value)| key + &value),
    ]
    .boxed()
}

fn object(member: impl Strategy<Value = String> + 'static, most: usize) -> BoxedStrategy<String> {
    (proptest::collection::vec(member, 0..most), white(), white())
        .prop_map(|(members, inner, outer)| {
            format!(
                "{outer}{{{inner}{}{inner}}}{outer}",
                members.join(&format!("{outer},{inner}"))
            )
        })
        .boxed()
}

fn value() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("1".to_owned()),
        Just("-0.50e+1".to_owned()),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("\"a,\\\"}]\"".to_owned()),
        Just("\"모\"".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(" , "))),
            object(
                (prop_oneof![key("nvext"), key("dp_rank"), key("a")], inner)
                    .prop_map(|(key, value)| key + &value),
                3
            ),
        ]
    })
    .boxed()
}

/// A key in one of its spellings, with its colon.
fn key(name: &'static str) -> BoxedStrategy<String> {
    (spelled(name), white(), white())
        .prop_map(|(name, before, behind)| format!("{name}{before}:{behind}"))
        .boxed()
}

/// A string with some characters escaped.
fn spelled(name: &'static str) -> BoxedStrategy<String> {
    (0_u32..6, any::<u32>())
        .prop_map(move |(often, which)| {
            let mut out = String::from("\"");
            for (i, c) in name.chars().enumerate() {
                if often == 0 && which >> (i % 32) & 1 == 1 {
                    out.push_str(&format!("\\u{:04x}", u32::from(c)));
                } else {
                    out.push(c);
                }
            }
            out.push('"');
            out
        })
        .boxed()
}

fn white() -> BoxedStrategy<&'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n\t"), 1 => Just("\r\n ")].boxed()
}
