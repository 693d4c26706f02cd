//! Sizes in bytes: an integer, or a number with a binary or decimal unit (`32MiB`, `64KB`).

use serde::{Deserialize, Deserializer, Serializer, de};

/// Stands for a size in the schema.
pub(crate) struct SizeText;

impl schemars::JsonSchema for SizeText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "size".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "integer"],
            "format": "size",
            "minimum": 0,
            "pattern": "^[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)?$",
            "examples": ["1MiB"],
        })
    }
}

/// What is expected of a size, for error messages.
pub const FORM: &str = "a number of bytes, or a number with a unit such as \"16KiB\", \"32MiB\" or \"1GiB\"";

const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
    ("", 1),
];

/// Reads `32MiB` or `33554432`. `None` for anything else and for more than 2^63 bytes.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let size = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    (size <= 1 << 63).then_some(size)
}

/// Writes a size in the largest binary unit that divides it, a bare number otherwise.
#[must_use]
pub fn text(size: u64) -> String {
    for (unit, factor) in UNITS.iter().take(3) {
        if size != 0 && size.is_multiple_of(*factor) {
            return format!("{}{unit}", size / factor);
        }
    }
    size.to_string()
}

/// Serializes a size field.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(*value))
}

/// Reads a size field.
///
/// # Errors
/// When the value is neither an integer nor a size with a unit.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Bytes(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Bytes(bytes) => Ok(bytes),
        Written::Text(text) => parse(&text).ok_or_else(|| de::Error::custom(format!("expected {FORM}"))),
    }
}

/// The same for a field that may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Serializer};

    /// Serializes an optional size field.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    /// Reads an optional size field.
    ///
    /// # Errors
    /// When there is something and it is not a size.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Size>::deserialize(from)?.map(|Size(size)| size))
    }

    struct Size(u64);

    impl<'de> Deserialize<'de> for Size {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            super::deserialize(from).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_a_number_with_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("16KiB", 16_384),
            ("32MiB", 33_554_432),
            ("1MB", 1_000_000),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for wrong in [
            "",
            "MiB",
            "1 MiB",
            "1mib",
            "-1",
            "1.5MiB",
            "99999999999GiB",
            "18446744073709551615",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(text(33_554_432), "32MiB");
        assert_eq!(text(1_000), "1000");
        assert_eq!(text(0), "0");
    }
}
