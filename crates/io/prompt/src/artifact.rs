//! The files that a model's cards name: what they are for, where they are, and which content they must have.

use std::{fmt, path::PathBuf, sync::Arc};

use continuum_fleet::view::Artifacts;
use serde::Deserialize;

use crate::limits::MAX_URI_BYTES;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// `tokenizer`.
    Tokenizer,
    /// `prompt_formatter`: the tokenizer's configuration, often with the chat template in it.
    PromptFormatter,
    /// `chat_template_file`: a chat template in a file of its own.
    ChatTemplate,
}

impl Slot {
    /// The card's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokenizer => "tokenizer",
            Self::PromptFormatter => "prompt_formatter",
            Self::ChatTemplate => "chat_template_file",
        }
    }
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// `tokenizer.json`.
    TokenizerJson,
    /// `tokenizer_config.json`.
    TokenizerConfig,
    /// A Jinja template.
    Jinja,
    /// JSON with a template in it.
    TemplateJson,
}

impl Form {
    /// What such a file is called.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::TokenizerJson => "tokenizer.json",
            Self::TokenizerConfig => "tokenizer_config.json",
            Self::Jinja => "chat_template.jinja",
            Self::TemplateJson => "chat_template.json",
        }
    }
}

/// BLAKE3 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// Reads `blake3:` and 64 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("blake3:")?;
        if hex.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        blake3::Hash::from_hex(hex).ok().map(|hash| Self(hash.into()))
    }

    /// Of this content.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(blake3::hash(content).into())
    }

    /// The hex digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blake3:{}", self.hex())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// On this machine.
    Local(PathBuf),
    /// At a worker's metadata server, or another one.
    Http(String),
    /// On the Hugging Face Hub.
    Hub {
        /// `owner/name`, or a name alone.
        repository: String,
        /// Branch, tag or commit.
        revision: String,
        /// Path within the repository.
        file: String,
    },
    /// A scheme that is not known here.
    Other,
}

impl Origin {
    /// Reads the `path` of a card's file.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        if path.is_empty() || path.len() > MAX_URI_BYTES || path.contains('\0') {
            return None;
        }
        let Some((scheme, rest)) = path.split_once("://") else {
            return Some(Self::Local(path.into()));
        };
        Some(match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => Self::Http(path.to_owned()),
            "file" => {
                // The host of a file is this one, or empty.
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
                if path.starts_with('/') {
                    Self::Local(path.into_owned().into())
                } else {
                    Self::Other
                }
            }
            "hf" => {
                let (repository, file) = rest.rsplit_once('/')?;
                let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
                let part = |text: &str| {
                    !text.is_empty()
                        && !text.split('/').any(|part| matches!(part, "" | "." | ".."))
                        && text
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
                };
                if ![repository, revision, file].into_iter().all(part) || repository.split('/').count() > 2 {
                    return None;
                }
                Self::Hub {
                    repository: repository.to_owned(),
                    revision: revision.to_owned(),
                    file: file.to_owned(),
                }
            }
            _ => Self::Other,
        })
    }

    /// The kind of place, for logs: addresses of the fleet are not shown.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Local(_) => "local",
            Self::Http(_) => "http",
            Self::Hub { .. } => "hf",
            Self::Other => "other",
        }
    }
}

/// One file of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What it is for.
    pub slot: Slot,
    /// What is in it.
    pub form: Form,
    /// Where it is.
    pub origin: Origin,
    /// What its content must be.
    pub checksum: Checksum,
    /// Its declared length in bytes.
    pub size: Option<u64>,
}

/// The files of one worker's card: a tokenizer first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(pub Arc<[File]>);

/// Which content the files have, wherever they are: what workers must agree on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Arc<[(Slot, Form, Checksum)]>);

/// Why a card's files cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unusable {
    /// It names no tokenizer.
    #[error("the card names no tokenizer")]
    NoTokenizer,
    /// A slot is not what cards have there.
    #[error("a slot of the card cannot be read")]
    Malformed,
    /// A tokenizer that is no `tokenizer.json`.
    #[error("the tokenizer is in a form that is not supported")]
    Form,
}

impl Files {
    /// Reads the slots of a card.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn of(artifacts: &Artifacts) -> Result<Self, Unusable> {
        let tokenizer = artifacts.tokenizer.as_deref().ok_or(Unusable::NoTokenizer)?;
        let tokenizer: TokenizerSlot = serde_json::from_str(tokenizer).map_err(|_| Unusable::Malformed)?;
        let mut files = vec![match (tokenizer.hf_tokenizer_json, tokenizer.tik_token_model) {
            (Some(file), None) => file.read(Slot::Tokenizer, Form::TokenizerJson)?,
            (None, Some(_)) => return Err(Unusable::Form),
            _ => return Err(Unusable::Malformed),
        }];
        for (slot, text) in [
            (Slot::PromptFormatter, &artifacts.prompt_formatter),
            (Slot::ChatTemplate, &artifacts.chat_template_file),
        ] {
            if let Some(text) = text {
                let found: TemplateSlot = serde_json::from_str(text).map_err(|_| Unusable::Malformed)?;
                files.push(found.read(slot)?);
            }
        }
        Ok(Self(files.into()))
    }

    /// Which content they have.
    #[must_use]
    pub fn key(&self) -> Key {
        Key(self
            .0
            .iter()
            .map(|file| (file.slot, file.form, file.checksum))
            .collect())
    }
}

impl Key {
    /// The checksums, in the order of the slots.
    pub fn checksums(&self) -> impl Iterator<Item = Checksum> {
        self.0.iter().map(|(_, _, checksum)| *checksum)
    }
}

#[derive(Deserialize)]
struct TokenizerSlot {
    hf_tokenizer_json: Option<CheckedFile>,
    tik_token_model: Option<CheckedFile>,
}

#[derive(Deserialize)]
struct TemplateSlot {
    hf_tokenizer_config_json: Option<CheckedFile>,
    #[serde(alias = "hf_chat_template_jinja")]
    hf_chat_template: Option<CustomFile>,
    hf_chat_template_json: Option<CustomFile>,
}

impl TemplateSlot {
    fn read(self, slot: Slot) -> Result<File, Unusable> {
        match (
            slot,
            self.hf_tokenizer_config_json,
            self.hf_chat_template,
            self.hf_chat_template_json,
        ) {
            (Slot::PromptFormatter, Some(file), None, None) => file.read(slot, Form::TokenizerConfig),
            (Slot::ChatTemplate, None, Some(custom), None) => custom.file.read(slot, Form::Jinja),
            (Slot::ChatTemplate, None, None, Some(custom)) => custom.file.read(slot, Form::TemplateJson),
            _ => Err(Unusable::Malformed),
        }
    }
}

#[derive(Deserialize)]
struct CustomFile {
    file: CheckedFile,
}

#[derive(Deserialize)]
struct CheckedFile {
    path: String,
    checksum: String,
    size: Option<u64>,
}

impl CheckedFile {
    fn read(self, slot: Slot, form: Form) -> Result<File, Unusable> {
        Ok(File {
            slot,
            form,
            origin: Origin::parse(&self.path).ok_or(Unusable::Malformed)?,
            checksum: Checksum::parse(&self.checksum).ok_or(Unusable::Malformed)?,
            size: self.size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex() -> String {
        format!("blake3:{}", "0a".repeat(32))
    }

    fn card(tokenizer: &str, formatter: Option<&str>, template: Option<&str>) -> Artifacts {
        Artifacts {
            tokenizer: Some(tokenizer.into()),
            prompt_formatter: formatter.map(Into::into),
            chat_template_file: template.map(Into::into),
        }
    }

    #[test]
    fn places_are_read_as_cards_write_them() {
        let hub = |repository: &str, revision: &str, file: &str| {
            Some(Origin::Hub {
                repository: repository.into(),
                revision: revision.into(),
                file: file.into(),
            })
        };
        for (path, expected) in [
            (
                "/models/a/tokenizer.json",
                Some(Origin::Local("/models/a/tokenizer.json".into())),
            ),
            (
                "relative/tokenizer.json",
                Some(Origin::Local("relative/tokenizer.json".into())),
            ),
            (
                "file:///models/a%20b/t.json",
                Some(Origin::Local("/models/a b/t.json".into())),
            ),
            ("file://localhost/t.json", Some(Origin::Local("/t.json".into()))),
            ("file://elsewhere/t.json", Some(Origin::Other)),
            (
                "http://10.0.0.1:9090/v1/t.json",
                Some(Origin::Http("http://10.0.0.1:9090/v1/t.json".into())),
            ),
            (
                "hf://Qwen/Qwen3-0.6B/tokenizer.json",
                hub("Qwen/Qwen3-0.6B", "main", "tokenizer.json"),
            ),
            (
                "hf://qwen3-mock/config.json",
                hub("qwen3-mock", "main", "config.json"),
            ),
            ("hf://a/b@v1/t.json", hub("a/b", "v1", "t.json")),
            ("hf://a/../t.json", None),
            ("hf://a/b?x/t.json", None),
            ("hf://t.json", None),
            ("s3://bucket/t.json", Some(Origin::Other)),
            ("", None),
        ] {
            assert_eq!(Origin::parse(path), expected, "{path}");
        }
    }

    #[test]
    fn slots_are_read_in_every_form_that_cards_have() {
        let file = format!(r#"{{"path":"/t","checksum":"{}","size":3}}"#, hex());
        let tokenizer = format!(r#"{{"hf_tokenizer_json":{file}}}"#);
        let config = format!(r#"{{"hf_tokenizer_config_json":{file}}}"#);
        let forms = |template: &str| {
            let files = Files::of(&card(&tokenizer, Some(&config), Some(template)))?;
            Ok(files.0.iter().map(|file| file.form).collect::<Vec<_>>())
        };
        let custom = |name: &str| format!(r#"{{"{name}":{{"is_custom":true,"file":{file}}}}}"#);
        let expected = |form| Ok(vec![Form::TokenizerJson, Form::TokenizerConfig, form]);
        assert_eq!(forms(&custom("hf_chat_template")), expected(Form::Jinja));
        assert_eq!(forms(&custom("hf_chat_template_jinja")), expected(Form::Jinja));
        assert_eq!(
            forms(&custom("hf_chat_template_json")),
            expected(Form::TemplateJson)
        );
        assert_eq!(forms(&config), Err(Unusable::Malformed));
        let tiktoken = card(&format!(r#"{{"tik_token_model":{file}}}"#), None, None);
        assert_eq!(Files::of(&tiktoken), Err(Unusable::Form));
        assert_eq!(Files::of(&Artifacts::default()), Err(Unusable::NoTokenizer));
        for broken in [
            "{}",
            "[]",
            r#"{"hf_tokenizer_json":{"path":"/t","checksum":"sha256:00"}}"#,
        ] {
            assert_eq!(
                Files::of(&card(broken, None, None)),
                Err(Unusable::Malformed),
                "{broken}"
            );
        }
    }

    #[test]
    fn a_checksum_is_64_lower_case_digits() {
        assert_eq!(Checksum::parse(&hex()).map(|sum| sum.to_string()), Some(hex()));
        for wrong in [
            "",
            "blake3:",
            "0a",
            &hex().to_uppercase(),
            &hex().replace("0a0a", "0A0a"),
            &format!("{}00", hex()),
        ] {
            assert_eq!(Checksum::parse(wrong), None, "{wrong}");
        }
        assert_eq!(
            Checksum::of(b"").to_string(),
            "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
    }
}
