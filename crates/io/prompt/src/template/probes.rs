//! What a template does with messages is found out by rendering some. The frontend asks the same questions, and shapes
//! messages by the answers: a question asked differently here would be a prompt that differs.

use jiff::Timestamp;

use super::{DEFAULT, Error, Given, Shape, Templates};
use crate::json::{Json, Members};

/// More than any probe prints.
const CAP: usize = 1024 * 1024;

/// Marks that appear in no template.
const FIRST: &str = "\u{1}first thought\u{1}";
const LAST: &str = "\u{1}last thought\u{1}";

impl Templates {
    /// Whether content must be a list of parts: as a text it is not printed.
    pub(super) fn wants_lists_of_parts(&self) -> bool {
        let part = object(&[
            ("type", Json::text("text")),
            ("text", Json::text("template_test")),
        ]);
        let prints = |content| {
            let given = Given {
                bare: true,
                ..Given::default()
            };
            self.run(
                DEFAULT,
                &[message("user", content)],
                &given,
                Timestamp::UNIX_EPOCH,
                CAP,
            )
            .is_ok_and(|text| text.contains("template_test"))
        };
        prints(Json::List(vec![Json::Object(part)])) && !prints(Json::text("template_test"))
    }

    pub(super) fn shape(&self, name: &str, tools: Option<Vec<Json>>) -> Shape {
        let Ok(source) = self
            .env
            .get_template(name)
            .map(|template| template.source().to_owned())
        else {
            return Shape::default();
        };
        let tools = tools.as_ref();
        let arguments_as_text =
            source.contains("arguments is string") && self.prints_arguments_as_text(name, tools);
        let reasoning = source.contains("reasoning_content");
        Shape {
            arguments_as_text,
            reasoning,
            closes_thought: super::families::closes_thought(&source),
            reasoning_as_text: reasoning && self.wants_reasoning_as_text(name, tools, arguments_as_text),
            ..self.strictness(name, tools)
        }
    }

    fn prints_arguments_as_text(&self, name: &str, tools: Option<&Vec<Json>>) -> bool {
        let arguments = r#"{"probe": "value"}"#;
        self.probe(name, call(Json::text(arguments), None), tools, true)
            .is_ok_and(|text| text.contains(arguments))
    }

    fn wants_reasoning_as_text(
        &self,
        name: &str,
        tools: Option<&Vec<Json>>,
        arguments_as_text: bool,
    ) -> bool {
        let print = |reasoning| {
            let arguments = if arguments_as_text {
                Json::text("{}")
            } else {
                Json::Object(Members::new())
            };
            self.probe(name, call(arguments, Some(reasoning)), tools, true)
                .unwrap_or_default()
        };
        if !print(Json::text(FIRST)).contains(FIRST) {
            return false;
        }
        let listed = print(Json::List(vec![Json::text(FIRST), Json::text(LAST)]));
        !listed.contains(FIRST) && !listed.contains(LAST)
    }

    fn strictness(&self, name: &str, tools: Option<&Vec<Json>>) -> Shape {
        let refuses = |roles: &[&str]| {
            let messages = roles.iter().map(|role| message(role, Json::text("s"))).collect();
            self.probe(name, messages, tools, false).is_err()
        };
        if refuses(&["system", "user"]) {
            return Shape::default();
        }
        Shape {
            one_leading_system: refuses(&["system", "user", "system"])
                || refuses(&["system", "user", "assistant", "system", "user"]),
            alternating: refuses(&["system", "user", "user"]),
            ..Shape::default()
        }
    }

    fn probe(
        &self,
        name: &str,
        messages: Vec<Members>,
        tools: Option<&Vec<Json>>,
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        let given = Given {
            tools: tools.cloned(),
            add_generation_prompt,
            ..Given::default()
        };
        self.run(name, &messages, &given, Timestamp::UNIX_EPOCH, CAP)
    }
}

pub(super) fn tool() -> Json {
    let parameters = object(&[
        ("type", Json::text("object")),
        ("properties", Json::Object(Members::new())),
    ]);
    let function = object(&[
        ("name", Json::text("probe")),
        ("description", Json::text("")),
        ("parameters", Json::Object(parameters)),
    ]);
    Json::Object(object(&[
        ("type", Json::text("function")),
        ("function", Json::Object(function)),
    ]))
}

/// A conversation in which a tool was called.
fn call(arguments: Json, reasoning: Option<Json>) -> Vec<Members> {
    let function = object(&[("name", Json::text("probe")), ("arguments", arguments)]);
    let call = object(&[
        ("id", Json::text("call_probe")),
        ("type", Json::text("function")),
        ("function", Json::Object(function)),
    ]);
    let mut assistant = message("assistant", Json::text(""));
    if let Some(reasoning) = reasoning {
        assistant.insert("reasoning_content".into(), reasoning);
    }
    assistant.insert("tool_calls".into(), Json::List(vec![Json::Object(call)]));
    let mut tool = object(&[
        ("role", Json::text("tool")),
        ("tool_call_id", Json::text("call_probe")),
    ]);
    tool.insert("content".into(), Json::text("r"));
    vec![message("user", Json::text("u")), assistant, tool]
}

fn message(role: &str, content: Json) -> Members {
    object(&[("role", Json::text(role)), ("content", content)])
}

fn object(members: &[(&str, Json)]) -> Members {
    members
        .iter()
        .map(|(name, value)| ((*name).into(), value.clone()))
        .collect()
}
