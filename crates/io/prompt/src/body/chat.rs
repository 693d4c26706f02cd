//! Chat requests.

use super::{Prompt, Refused};
use crate::{
    json::{Json, Members},
    template::Given,
};

/// Both spellings of the same decision; the first that is there counts.
const TOGGLES: [&str; 2] = ["thinking", "enable_thinking"];

pub(super) fn read(body: &Members) -> Result<Prompt, Refused> {
    let messages = body.get("messages").and_then(Json::as_list).ok_or(Refused)?;
    let open = flag(body, "continue_final_message")?.unwrap_or(false);
    let prompt = flag(body, "add_generation_prompt")?;
    if open && prompt != Some(false) {
        return Err(Refused);
    }
    let tool_choice = body.get("tool_choice").and_then(Json::as_str);
    let tools = match body.get("tools") {
        None | Some(Json::Null) => None,
        Some(Json::List(tools)) => Some(tools.iter().map(tool).collect::<Result<Vec<_>, _>>()?),
        Some(_) => return Err(Refused),
    };
    Ok(Prompt::Chat {
        given: Given {
            messages: messages.iter().map(message).collect::<Result<_, _>>()?,
            // A model that may call nothing is told of nothing.
            tools: tools.filter(|_| tool_choice != Some("none")),
            add_generation_prompt: !open && prompt.unwrap_or(true),
            arguments: arguments(body)?,
            bare: false,
        },
        open,
    })
}

fn flag(body: &Members, name: &str) -> Result<Option<bool>, Refused> {
    match body.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => value.as_bool().map(Some).ok_or(Refused),
    }
}

/// A message with the members that its role has, in order; optional ones only where they are set.
fn message(message: &Json) -> Result<Members, Refused> {
    let from = message.as_object().ok_or(Refused)?;
    let role = from.get("role").and_then(Json::as_str).ok_or(Refused)?;
    let mut to = Members::from_iter([("role".into(), Json::text(role))]);
    let required = |to: &mut Members| {
        let content = content(from.get("content"))?.ok_or(Refused)?;
        to.insert("content".into(), content);
        Ok(())
    };
    if from.get("tools").is_some_and(|tools| !tools.is_null())
        || from.get("partial").is_some_and(|partial| !partial.is_null())
    {
        return Err(Refused);
    }
    match role {
        "developer" | "system" | "user" => {
            required(&mut to)?;
            text(from, &mut to, "name")?;
        }
        "assistant" => {
            if let Some(content) = content(from.get("content"))? {
                to.insert("content".into(), content);
            }
            reasoning(from, &mut to)?;
            text(from, &mut to, "refusal")?;
            text(from, &mut to, "name")?;
            if from.get("audio").is_some_and(|audio| !audio.is_null()) {
                return Err(Refused);
            }
            match from.get("tool_calls") {
                None | Some(Json::Null) => {}
                Some(Json::List(calls)) => {
                    let calls = calls.iter().map(call).collect::<Result<_, _>>()?;
                    to.insert("tool_calls".into(), Json::List(calls));
                }
                Some(_) => return Err(Refused),
            }
            match from.get("function_call") {
                None | Some(Json::Null) => {}
                Some(function) => {
                    to.insert("function_call".into(), called(function)?);
                }
            }
        }
        "tool" => {
            required(&mut to)?;
            let id = from.get("tool_call_id").and_then(Json::as_str).ok_or(Refused)?;
            to.insert("tool_call_id".into(), Json::text(id));
        }
        "function" => {
            let content = content(from.get("content"))?.unwrap_or(Json::Null);
            to.insert("content".into(), content);
            let name = from.get("name").and_then(Json::as_str).ok_or(Refused)?;
            to.insert("name".into(), Json::text(name));
        }
        _ => return Err(Refused),
    }
    Ok(to)
}

/// A text, or parts that are all text. Pictures and sound become tokens that only the workers know.
fn content(content: Option<&Json>) -> Result<Option<Json>, Refused> {
    match content {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Text(text)) => Ok(Some(Json::Text(text.clone()))),
        Some(Json::List(parts)) => {
            let part = |part: &Json| {
                let text = part.get("text").and_then(Json::as_str).ok_or(Refused)?;
                if part.get("type").and_then(Json::as_str) != Some("text") {
                    return Err(Refused);
                }
                let part = [
                    ("type".into(), Json::text("text")),
                    ("text".into(), Json::text(text)),
                ];
                Ok(Json::Object(Members::from_iter(part)))
            };
            Ok(Some(Json::List(
                parts.iter().map(part).collect::<Result<_, _>>()?,
            )))
        }
        Some(_) => Err(Refused),
    }
}

fn text(from: &Members, to: &mut Members, name: &str) -> Result<(), Refused> {
    match from.get(name) {
        None | Some(Json::Null) => Ok(()),
        Some(Json::Text(text)) => {
            to.insert(name.into(), Json::Text(text.clone()));
            Ok(())
        }
        Some(_) => Err(Refused),
    }
}

/// `reasoning_content`, or `reasoning`, as it is called elsewhere: a text or texts.
fn reasoning(from: &Members, to: &mut Members) -> Result<(), Refused> {
    let found = match (from.get("reasoning_content"), from.get("reasoning")) {
        (Some(_), Some(_)) => return Err(Refused),
        (Some(found), None) | (None, Some(found)) => found,
        (None, None) => return Ok(()),
    };
    match found {
        Json::Null => {}
        Json::Text(_) => {
            to.insert("reasoning_content".into(), found.clone());
        }
        Json::List(segments) if segments.iter().all(|segment| segment.as_str().is_some()) => {
            to.insert("reasoning_content".into(), found.clone());
        }
        Json::List(_) | Json::Bool(_) | Json::Int(_) | Json::Uint(_) | Json::Float(_) | Json::Object(_) => {
            return Err(Refused);
        }
    }
    Ok(())
}

fn call(call: &Json) -> Result<Json, Refused> {
    let id = call.get("id").and_then(Json::as_str).ok_or(Refused)?;
    let function = called(call.get("function").ok_or(Refused)?)?;
    Ok(Json::Object(Members::from_iter([
        ("id".into(), Json::text(id)),
        ("type".into(), Json::text("function")),
        ("function".into(), function),
    ])))
}

/// Name and arguments of a function; arguments that are no text become their JSON, without spaces.
fn called(function: &Json) -> Result<Json, Refused> {
    let name = function.get("name").and_then(Json::as_str).ok_or(Refused)?;
    let arguments = match function.get("arguments") {
        Some(Json::Text(text)) => Json::Text(text.clone()),
        // The frontend writes these anew; its versions spell fractions differently.
        Some(arguments @ Json::Object(_)) if !arguments.has_float() => {
            Json::text(serde_json::to_string(arguments).map_err(|_| Refused)?)
        }
        Some(_) | None => return Err(Refused),
    };
    Ok(Json::Object(Members::from_iter([
        ("name".into(), Json::text(name)),
        ("arguments".into(), arguments),
    ])))
}

/// A tool, with what templates rely on: a description, and parameters that say that they are an object.
fn tool(tool: &Json) -> Result<Json, Refused> {
    let from = tool.get("function").and_then(Json::as_object).ok_or(Refused)?;
    if tool
        .get("type")
        .is_none_or(|kind| kind.as_str() != Some("function"))
    {
        return Err(Refused);
    }
    let name = from.get("name").and_then(Json::as_str).ok_or(Refused)?;
    let mut function = Members::from_iter([("name".into(), Json::text(name))]);
    text(from, &mut function, "description")?;
    if let Some(parameters) = from.get("parameters").filter(|parameters| !parameters.is_null()) {
        let mut parameters = parameters.clone();
        if let Json::Object(members) = &mut parameters {
            if !members.contains_key("type") {
                members.insert("type".into(), Json::text("object"));
            }
            if !members.contains_key("properties") {
                members.insert("properties".into(), Json::Object(Members::new()));
            }
        }
        function.insert("parameters".into(), parameters);
    }
    if let Some(strict) = from.get("strict").filter(|strict| !strict.is_null()) {
        function.insert("strict".into(), Json::Bool(strict.as_bool().ok_or(Refused)?));
    }
    if !function.contains_key("description") {
        function.insert("description".into(), Json::text(""));
    }
    Ok(Json::Object(Members::from_iter([
        ("type".into(), Json::text("function")),
        ("function".into(), Json::Object(function)),
    ])))
}

/// `chat_template_args`, or `chat_template_kwargs`, with the request's decision on thinking in every spelling.
fn arguments(body: &Members) -> Result<Members, Refused> {
    let given = match (body.get("chat_template_args"), body.get("chat_template_kwargs")) {
        (Some(_), Some(_)) => return Err(Refused),
        (Some(given), None) | (None, Some(given)) => given,
        (None, None) => &Json::Null,
    };
    let mut arguments = match given {
        Json::Null => Members::new(),
        Json::Object(members) => members.clone(),
        Json::Bool(_) | Json::Int(_) | Json::Uint(_) | Json::Float(_) | Json::Text(_) | Json::List(_) => {
            return Err(Refused);
        }
    };
    let asked = thinking(body.get("thinking"))?;
    let effort = body
        .get("reasoning_effort")
        .or_else(|| arguments.get("reasoning_effort"))
        .filter(|effort| !effort.is_null())
        .cloned();
    match asked {
        Some(Thinking::On) => set(&mut arguments, true),
        Some(Thinking::Off) => set(&mut arguments, false),
        Some(Thinking::Adaptive) => {
            TOGGLES.iter().for_each(|name| {
                arguments.shift_remove(*name);
            });
            arguments.insert("thinking_mode".into(), Json::text("adaptive"));
        }
        None => {}
    }
    let toggled = TOGGLES
        .iter()
        .find_map(|name| arguments.get(*name).and_then(Json::as_bool));
    let mode = arguments
        .get("thinking_mode")
        .and_then(Json::as_str)
        .map(str::to_ascii_lowercase);
    let decided = toggled.or_else(|| match mode.as_deref() {
        Some("adaptive") => None,
        Some("enabled") => Some(true),
        Some("disabled") => Some(false),
        Some(_) | None => effort
            .as_ref()
            .and_then(Json::as_str)
            .map(|effort| effort != "none"),
    });
    if let Some(on) = decided {
        set(&mut arguments, on);
    }
    if let Some(effort) = effort {
        arguments.insert("reasoning_effort".into(), effort);
    }
    Ok(arguments)
}

enum Thinking {
    On,
    Off,
    Adaptive,
}

fn thinking(asked: Option<&Json>) -> Result<Option<Thinking>, Refused> {
    let Some(asked) = asked.filter(|asked| !asked.is_null()) else {
        return Ok(None);
    };
    match (asked.as_bool(), asked.get("type").and_then(Json::as_str)) {
        (Some(true), _) | (_, Some("enabled")) => Ok(Some(Thinking::On)),
        (Some(false), _) | (_, Some("disabled")) => Ok(Some(Thinking::Off)),
        (None, Some("adaptive")) => Ok(Some(Thinking::Adaptive)),
        _ => Err(Refused),
    }
}

fn set(arguments: &mut Members, on: bool) {
    for name in TOGGLES {
        arguments.insert(name.into(), Json::Bool(on));
    }
    arguments.insert(
        "thinking_mode".into(),
        Json::text(if on { "enabled" } else { "disabled" }),
    );
}
