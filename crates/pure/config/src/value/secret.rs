//! Values that are never shown: secrets, key files, token hashes.

use std::{fmt, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::value::text_form;

/// What stands in place of a secret in logs, in `config show` and in the admin view.
pub const MASK: &str = "********";

/// A password, token or key. `Debug` and `Serialize` show a mask; only [`Self::expose`] gives the text.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that sends or compares it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(MASK)
    }
}

/// Says in the schema that the field holds a secret, so that no message repeats what stands there.
impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "secret".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string", "format": "secret", "minLength": 1, "writeOnly": true, "examples": ["secret"],
        })
    }
}

/// The path of a private key. The path is not shown either: it is masked wherever a configuration is shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct KeyFile(Box<Path>);

impl KeyFile {
    /// Wraps a path.
    #[must_use]
    pub fn new(path: impl Into<Box<Path>>) -> Self {
        Self(path.into())
    }

    /// Where the key is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for KeyFile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(MASK)
    }
}

impl JsonSchema for KeyFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "key file".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string", "format": "key-file", "minLength": 1, "writeOnly": true, "examples": ["/key.pem"],
        })
    }
}

text_form! {
    /// A token's hash.
    TokenHashText, "token hash", "token-hash", "^sha256:[0-9a-f]{64}$",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000"
}

/// The SHA-256 of a bearer token, written `sha256:<64 lower-case hex>`. The token itself is not in the file.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// What is expected, for error messages.
    pub const FORM: &'static str =
        "\"sha256:\" and 64 lower-case hex digits (printf %s \"$TOKEN\" | sha256sum)";

    /// Reads `sha256:<64 lower-case hex>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let (&[high, low], _) = pair.split_first_chunk::<2>()?;
            *byte = nibble(high)? << 4 | nibble(low)?;
        }
        Some(Self(bytes))
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(MASK)
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("expected {}", Self::FORM)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), MASK);
        assert_eq!(serde_json::to_value(&secret).unwrap(), MASK);
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(format!("{:?}", KeyFile::new(Path::new("/k"))), MASK);
    }

    #[test]
    fn a_token_hash_is_lower_case_hex() {
        let digits = "0f".repeat(32);
        assert_eq!(
            TokenHash::parse(&format!("sha256:{digits}")).unwrap().bytes(),
            &[0x0f; 32]
        );
        for wrong in [
            "",
            "sha256:",
            &digits,
            &format!("sha256:{}", "0F".repeat(32)),
            &format!("sha256:{digits}0"),
        ] {
            assert!(TokenHash::parse(wrong).is_none(), "{wrong}");
        }
    }
}
