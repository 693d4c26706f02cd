//! JSON with the order of its keys: a template prints a tool's schema as the client wrote it.

use std::{fmt, sync::Arc};

use indexmap::IndexMap;
use minijinja::value::Value;
use serde::{
    Serialize, Serializer,
    de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor},
};

/// Members of an object, in the order in which they were first named; the last value of a name counts.
pub(crate) type Members = IndexMap<Arc<str>, Json>;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64`.
    Uint(u64),
    Float(f64),
    Text(Arc<str>),
    List(Vec<Json>),
    Object(Members),
}

impl Json {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Float(_)
            | Self::List(_)
            | Self::Object(_) => None,
        }
    }

    pub(crate) const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Null
            | Self::Text(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Float(_)
            | Self::List(_)
            | Self::Object(_) => None,
        }
    }

    pub(crate) const fn as_object(&self) -> Option<&Members> {
        match self {
            Self::Object(members) => Some(members),
            Self::Null
            | Self::Bool(_)
            | Self::Text(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Float(_)
            | Self::List(_) => None,
        }
    }

    pub(crate) const fn as_list(&self) -> Option<&Vec<Self>> {
        match self {
            Self::List(items) => Some(items),
            Self::Null
            | Self::Bool(_)
            | Self::Text(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Float(_)
            | Self::Object(_) => None,
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A member of an object; `None` where there is none, or no object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.get(name)
    }

    /// Whether a number in it has a fraction, an exponent, or more than 64 bits.
    pub(crate) fn has_float(&self) -> bool {
        match self {
            Self::Float(_) => true,
            Self::List(items) => items.iter().any(Self::has_float),
            Self::Object(members) => members.values().any(Self::has_float),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Text(_) => false,
        }
    }

    /// As templates see it.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::from(()),
            Self::Bool(value) => Value::from(*value),
            Self::Int(value) => Value::from(*value),
            Self::Uint(value) => Value::from(*value),
            Self::Float(value) => Value::from(*value),
            Self::Text(text) => Value::from(text.clone()),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(members) => object(members),
        }
    }
}

/// An object as templates see it.
pub(crate) fn object(members: &Members) -> Value {
    Value::from_pairs(
        members
            .iter()
            .map(|(name, value)| (name.clone(), value.to_value())),
    )
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Int(value) => to.serialize_i64(*value),
            Self::Uint(value) => to.serialize_u64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Text(text) => to.serialize_str(text),
            Self::List(items) => to.collect_seq(items),
            Self::Object(members) => to.collect_map(members.iter().map(|(name, value)| (&**name, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Json, E> {
        Ok(i64::try_from(value).map_or(Json::Uint(value), Json::Int))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::text(text))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Json, E> {
        Ok(Json::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut members = Members::new();
        while let Some((name, value)) = from.next_entry::<String, Json>()? {
            members.insert(name.into(), value);
        }
        Ok(Json::Object(members))
    }
}
