//! A request's body as the frontend reads it: known fields of known messages, in the frontend's order; the rest is
//! dropped there and so is dropped here. What the frontend refuses, and what is not rendered here, is [`Refused`].

mod chat;

#[cfg(test)]
mod tests;

use crate::{ask::Endpoint, json::Json, template::Given};

/// What a body asks for.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) prompt: Prompt,
    /// `nvext.cache_salt`, else `cache_salt`.
    pub(crate) salt: Option<String>,
}

/// The prompt of a body.
#[derive(Debug, PartialEq)]
pub(crate) enum Prompt {
    /// Goes through the chat template.
    Chat {
        given: Given,
        /// The last message is left open: the prompt ends with it.
        open: bool,
    },
    /// Is encoded as it is.
    Text(String),
    /// Is encoded already.
    Tokens(Vec<u32>),
}

/// The frontend refuses the body, or this crate does not know what it makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Whether the frontend would take the body, and its prompt is of a form that is rendered here.
#[must_use]
pub fn readable(endpoint: Endpoint, body: &[u8]) -> bool {
    read(endpoint, body).is_ok()
}

pub(crate) fn read(endpoint: Endpoint, body: &[u8]) -> Result<Request, Refused> {
    let body: Json = serde_json::from_slice(body).map_err(|_| Refused)?;
    let body = body.as_object().ok_or(Refused)?;
    let nvext = body.get("nvext");
    if nvext
        .and_then(|nvext| nvext.get("use_raw_prompt"))
        .is_some_and(|raw| raw.as_bool() == Some(true))
    {
        return Err(Refused);
    }
    let salt = nvext
        .and_then(|nvext| nvext.get("cache_salt"))
        .and_then(Json::as_str)
        .filter(|salt| !salt.is_empty())
        .or_else(|| {
            body.get("cache_salt")
                .and_then(Json::as_str)
                .filter(|salt| !salt.is_empty())
        })
        .map(str::to_owned);
    let prompt = match endpoint {
        Endpoint::Chat => chat::read(body)?,
        Endpoint::Completions => completions(body.get("prompt").ok_or(Refused)?)?,
    };
    Ok(Request { prompt, salt })
}

fn completions(prompt: &Json) -> Result<Prompt, Refused> {
    match prompt {
        Json::Text(text) => Ok(Prompt::Text(text.to_string())),
        Json::List(items) => match items.as_slice() {
            [Json::Text(text)] => Ok(Prompt::Text(text.to_string())),
            [Json::List(tokens)] => ids(tokens),
            [Json::Int(_), ..] => ids(items),
            _ => Err(Refused),
        },
        Json::Null | Json::Bool(_) | Json::Int(_) | Json::Uint(_) | Json::Float(_) | Json::Object(_) => {
            Err(Refused)
        }
    }
}

fn ids(tokens: &[Json]) -> Result<Prompt, Refused> {
    let ids = tokens.iter().map(|token| match token {
        Json::Int(id) => u32::try_from(*id).map_err(|_| Refused),
        Json::Null
        | Json::Bool(_)
        | Json::Uint(_)
        | Json::Float(_)
        | Json::Text(_)
        | Json::List(_)
        | Json::Object(_) => Err(Refused),
    });
    Ok(Prompt::Tokens(ids.collect::<Result<_, _>>()?))
}
