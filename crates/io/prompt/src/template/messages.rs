//! Messages as the frontend hands them to a template: what a template refuses or would print wrongly is put into the
//! shape that it takes. Each rewrite depends on what the template was found to do, and on nothing else.

use std::sync::Arc;

use super::Shape;
use crate::json::{Json, Members};

pub(super) fn shape(messages: &mut Vec<Members>, shape: Shape, lists_of_parts: bool) {
    if shape.one_leading_system {
        one_leading_system(messages);
    }
    if shape.alternating {
        join_users(messages);
    }
    for message in messages.iter_mut() {
        content(message, lists_of_parts);
        if !shape.arguments_as_text {
            parse_arguments(message);
        }
        parse_member(message.get_mut("function_call"), "arguments");
        if !shape.reasoning {
            reasoning_into_content(message);
        } else if shape.reasoning_as_text {
            reasoning_as_text(message);
        }
    }
}

fn role(message: &Members) -> &str {
    message.get("role").and_then(Json::as_str).unwrap_or_default()
}

/// Leading system messages become one, later ones become the user's.
fn one_leading_system(messages: &mut Vec<Members>) {
    let leading = messages
        .iter()
        .take_while(|message| role(message) == "system")
        .count();
    if leading > 1 {
        let others: Vec<Members> = messages.drain(1..leading).collect();
        if let Some(first) = messages.first_mut() {
            others.into_iter().for_each(|other| append(first, other));
        }
    }
    for message in messages.iter_mut().skip(leading.min(1)) {
        if role(message) == "system" {
            message.insert("role".into(), Json::text("user"));
        }
    }
}

fn join_users(messages: &mut Vec<Members>) {
    let mut joined: Vec<Members> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match joined.last_mut() {
            Some(last) if role(&message) == "user" && role(last) == "user" => append(last, message),
            Some(_) | None => joined.push(message),
        }
    }
    *messages = joined;
}

/// Appends the content of a message to another, with an empty line between texts.
fn append(to: &mut Members, mut from: Members) {
    let take = |message: &mut Members| {
        message
            .get_mut("content")
            .map_or(Json::Null, |content| std::mem::replace(content, Json::Null))
    };
    let (left, right) = (take(to), take(&mut from));
    let part = |text: Arc<str>| {
        Json::Object(Members::from_iter([
            ("type".into(), Json::text("text")),
            ("text".into(), Json::Text(text)),
        ]))
    };
    let parts = |content: Json| match content {
        Json::Text(text) if text.is_empty() => Vec::new(),
        Json::Text(text) => vec![part(text)],
        Json::List(parts) => parts,
        Json::Null | Json::Bool(_) | Json::Int(_) | Json::Uint(_) | Json::Float(_) | Json::Object(_) => {
            Vec::new()
        }
    };
    let content = match (left, right) {
        (Json::Null, right) => right,
        (left, Json::Null) => left,
        (Json::Text(left), Json::Text(right)) if left.is_empty() || right.is_empty() => {
            Json::Text(if left.is_empty() { right } else { left })
        }
        (Json::Text(left), Json::Text(right)) => Json::text(format!("{left}\n\n{right}")),
        (left, right) => {
            let mut all = parts(left);
            all.extend(parts(right));
            Json::List(all)
        }
    };
    // Taken out and put back, so that it is the last member, as it is there.
    to.shift_remove("content");
    to.insert("content".into(), content);
}

/// Parts that are all text become one text, a line each; or a text a list of one part, where the template wants lists.
fn content(message: &mut Members, lists_of_parts: bool) {
    let Some(content) = message.get_mut("content") else {
        return;
    };
    match content {
        Json::Text(text) if lists_of_parts => {
            let part = [
                ("type".into(), Json::text("text")),
                ("text".into(), Json::Text(text.clone())),
            ];
            *content = Json::List(vec![Json::Object(Members::from_iter(part))]);
        }
        Json::List(parts) if !lists_of_parts && !parts.is_empty() => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect();
            *content = Json::text(texts.join("\n"));
        }
        Json::Text(_)
        | Json::List(_)
        | Json::Null
        | Json::Bool(_)
        | Json::Int(_)
        | Json::Uint(_)
        | Json::Float(_)
        | Json::Object(_) => {}
    }
}

fn parse_arguments(message: &mut Members) {
    let Some(Json::List(calls)) = message.get_mut("tool_calls") else {
        return;
    };
    for call in calls {
        if let Json::Object(call) = call {
            parse_member(call.get_mut("function"), "arguments");
        }
    }
}

/// A member that is JSON in a text becomes what the text says.
fn parse_member(object: Option<&mut Json>, name: &str) {
    if let Some(Json::Object(members)) = object
        && let Some(value) = members.get_mut(name)
        && let Some(parsed) = value.as_str().and_then(|text| serde_json::from_str(text).ok())
    {
        *value = parsed;
    }
}

/// What an assistant thought goes before what it said, in the marks that reasoning models write.
fn reasoning_into_content(message: &mut Members) {
    if role(message) != "assistant" {
        return;
    }
    let thought = match message.get("reasoning_content") {
        Some(Json::Text(text)) if !text.is_empty() => format!("<think>{text}</think>"),
        Some(Json::List(segments)) => segments
            .iter()
            .filter_map(Json::as_str)
            .filter(|segment| !segment.is_empty())
            .map(|segment| format!("<think>{segment}</think>"))
            .collect(),
        Some(_) | None => String::new(),
    };
    if thought.is_empty() {
        return;
    }
    let content = match message.get("content") {
        Some(Json::Text(text)) => Json::text(format!("{thought}{text}")),
        None | Some(Json::Null) => Json::text(thought),
        Some(Json::List(parts)) => {
            let part = [
                ("type".into(), Json::text("text")),
                ("text".into(), Json::text(thought)),
            ];
            let mut all = vec![Json::Object(Members::from_iter(part))];
            all.extend(parts.iter().cloned());
            Json::List(all)
        }
        Some(_) => return,
    };
    message.insert("content".into(), content);
    message.shift_remove("reasoning_content");
}

fn reasoning_as_text(message: &mut Members) {
    if role(message) != "assistant" {
        return;
    }
    if let Some(reasoning) = message.get_mut("reasoning_content")
        && let Json::List(segments) = reasoning
    {
        let texts: Vec<&str> = segments
            .iter()
            .filter_map(Json::as_str)
            .filter(|text| !text.is_empty())
            .collect();
        *reasoning = Json::text(texts.join("\n"));
    }
}
