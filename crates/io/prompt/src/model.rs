//! A model's loaded files: what its prompts are made with.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::Deserialize;

use crate::{
    ask::{Endpoint, Unavailable},
    body::{self, Prompt, Refused},
    json::Json,
    metrics::{Metrics, Stage},
    template::{self, Given, Sources, Templates},
    tokenizer::{self, Cache, Tokenizer},
};

/// Put at the end of a message that is left open, and cut off with all that follows it. A text that is no message's.
const OPEN_END: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A tokenizer and the templates that go with it.
#[derive(Debug)]
pub(crate) struct Model {
    tokenizer: Tokenizer,
    /// `None`: only prompts that need no template.
    templates: Option<Templates>,
}

/// A prompt's ids, and the salt that its body names.
#[derive(Debug, PartialEq)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    pub(crate) salt: Option<String>,
}

/// What one request may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) text_bytes: usize,
    pub(crate) tokens: usize,
    pub(crate) until: Instant,
}

/// The files of a model as they were fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    pub(crate) tokenizer: &'a [u8],
    /// `tokenizer_config.json`.
    pub(crate) config: Option<&'a [u8]>,
    pub(crate) template: Option<TemplateFile<'a>>,
}

/// A chat template in a file of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TemplateFile<'a> {
    /// The template itself.
    Jinja(&'a [u8]),
    /// JSON with a member `chat_template`.
    Json(&'a [u8]),
}

/// Why files make no model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    #[error("tokenizer configuration: {0}")]
    Config(serde_json::Error),
    #[error("chat template: it is no text")]
    NoText,
    #[error("chat template: {0}")]
    Template(#[from] template::Error),
}

impl Error {
    /// The files are fine, but of a kind that is not known here.
    pub(crate) const fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::Tokenizer(tokenizer::Error::Unsupported(_)) | Self::Template(template::Error::Adapted)
        )
    }
}

impl Model {
    pub(crate) fn load(files: Files<'_>, cache: Arc<Cache>) -> Result<Self, Error> {
        let sources = sources(files)?;
        Ok(Self {
            tokenizer: Tokenizer::load(files.tokenizer, cache)?,
            templates: if sources.templates.is_empty() {
                None
            } else {
                Some(Templates::load(&sources)?)
            },
        })
    }

    /// Tells it from other loaded models.
    pub(crate) const fn serial(&self) -> u64 {
        self.tokenizer.serial()
    }

    /// The ids of the prompt that a body asks for.
    pub(crate) fn encode(
        &self,
        endpoint: Endpoint,
        body: &[u8],
        caps: Caps,
        now: Timestamp,
        metrics: &Metrics,
    ) -> Result<Encoded, Unavailable> {
        let started = Instant::now();
        let request = body::read(endpoint, body).map_err(|Refused| Unavailable::Unsupported)?;
        let salt = request.salt;
        let text = match request.prompt {
            Prompt::Tokens(ids) if ids.len() > caps.tokens => return Err(Unavailable::TooLarge),
            Prompt::Tokens(ids) => return Ok(Encoded { ids, salt }),
            Prompt::Text(text) if text.len() > caps.text_bytes => return Err(Unavailable::TooLarge),
            Prompt::Text(text) => text,
            Prompt::Chat { given, open } => self.render(given, open, caps, now)?,
        };
        metrics.observe(Stage::Template, started.elapsed());
        let started = Instant::now();
        let ids = self
            .tokenizer
            .encode(&text, caps.tokens, caps.until)
            .map_err(|error| match error {
                tokenizer::Error::TooLong(_) => Unavailable::TooLarge,
                tokenizer::Error::Json(_)
                | tokenizer::Error::Refused(_)
                | tokenizer::Error::Unsupported(_)
                | tokenizer::Error::Encode
                | tokenizer::Error::Late => Unavailable::Render,
            })?;
        metrics.observe(Stage::Encode, started.elapsed());
        Ok(Encoded { ids, salt })
    }

    /// The text of a chat's prompt.
    pub(crate) fn render(
        &self,
        mut given: Given,
        open: bool,
        caps: Caps,
        now: Timestamp,
    ) -> Result<String, Unavailable> {
        let templates = self.templates.as_ref().ok_or(Unavailable::Unsupported)?;
        if open {
            mark_end(&mut given).ok_or(Unavailable::Unsupported)?;
        }
        let text = templates.render(&given, now, caps.text_bytes).map_err(|error| {
            tracing::debug!(%error, "a prompt was not rendered");
            match error {
                template::Error::Output(_) => Unavailable::TooLarge,
                template::Error::Missing
                | template::Error::TooLarge
                | template::Error::Adapted
                | template::Error::Engine(_) => Unavailable::Render,
            }
        })?;
        if open {
            cut_at_end(text).ok_or(Unavailable::Unsupported)
        } else {
            Ok(text)
        }
    }
}

/// Marks the end of the last message.
fn mark_end(given: &mut Given) -> Option<()> {
    let mark = |text: &Json| {
        text.as_str()
            .filter(|text| !text.is_empty())
            .map(|text| Json::text(format!("{text}{OPEN_END}")))
    };
    match given.messages.last_mut()?.get_mut("content")? {
        Json::List(parts) => {
            let last = parts.iter_mut().rev().find_map(|part| match part {
                Json::Object(part) => part
                    .get_mut("text")
                    .filter(|text| text.as_str().is_some_and(|text| !text.is_empty())),
                Json::Null
                | Json::Bool(_)
                | Json::Int(_)
                | Json::Uint(_)
                | Json::Float(_)
                | Json::Text(_)
                | Json::List(_) => None,
            })?;
            *last = mark(last)?;
        }
        content @ (Json::Text(_)
        | Json::Null
        | Json::Bool(_)
        | Json::Int(_)
        | Json::Uint(_)
        | Json::Float(_)
        | Json::Object(_)) => *content = mark(content)?,
    }
    Some(())
}

/// The text up to the mark. Where the template took the mark's last space, it trims its messages, and the end is
/// trimmed as well.
fn cut_at_end(mut text: String) -> Option<String> {
    let at = text.rfind(OPEN_END.trim_end())?;
    let trimmed = !text.get(at..).is_some_and(|rest| rest.starts_with(OPEN_END));
    text.truncate(at);
    if trimmed {
        text.truncate(text.trim_end().len());
    }
    Some(text)
}

fn sources(files: Files<'_>) -> Result<Sources, Error> {
    let config: TokenizerConfig = match files.config {
        Some(config) => serde_json::from_slice(config).map_err(Error::Config)?,
        None => TokenizerConfig::default(),
    };
    let template = match files.template {
        None => config.chat_template,
        Some(TemplateFile::Jinja(text)) => {
            let text = str::from_utf8(text).map_err(|_| Error::NoText)?;
            Some(ChatTemplate::One(text.to_owned()))
        }
        Some(TemplateFile::Json(json)) => {
            let file: TokenizerConfig = serde_json::from_slice(json).map_err(Error::Config)?;
            Some(file.chat_template.ok_or(Error::NoText)?)
        }
    };
    let templates = match template {
        None => Vec::new(),
        Some(ChatTemplate::One(text)) => vec![("default".to_owned(), text)],
        Some(ChatTemplate::Named(named)) => named
            .into_iter()
            .map(|named| (named.name, named.template))
            .collect(),
    };
    let token = |token: Option<Token>| {
        token.map(|token| match token {
            Token::Text(text) | Token::Added { content: text } => text,
        })
    };
    Ok(Sources {
        templates,
        tokens: [
            token(config.bos_token),
            token(config.eos_token),
            token(config.unk_token),
        ],
    })
}

/// What is read of a `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    unk_token: Option<Token>,
    chat_template: Option<ChatTemplate>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Added { content: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ChatTemplate {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
pub(crate) mod tests;
