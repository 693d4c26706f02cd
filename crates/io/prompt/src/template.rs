//! Chat templates: how messages become the text of a prompt.
//!
//! A template is a program. It runs without a loader, files, network or clock (the time is an argument), with a budget
//! of instructions and a cap on its output. What it is given is what the frontend would give it: which shapes of
//! messages a template takes is found out once, when it is loaded, with the probes that the frontend uses.

mod bounded;
mod families;
mod messages;
mod probes;
mod python;
mod syntax;

#[cfg(test)]
mod tests;

use std::io;

use jiff::Timestamp;
use minijinja::{
    AutoEscape, Environment, Error as EngineError, ErrorKind, UndefinedBehavior,
    syntax::SyntaxConfig,
    value::{Kwargs, Value},
};

use crate::{
    json::{self, Json, Members},
    limits::{MAX_TEMPLATE_BYTES, MAX_TEMPLATE_DEPTH, TEMPLATE_FUEL},
};

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// The time of a rendering, for `strftime_now`; a name that no template and no request can mean.
const NOW: &str = "continuum now";

/// The longest text of a rendering, for what makes texts; such a name as well.
const CAP: &str = "continuum cap";

/// The templates of a model, compiled.
#[derive(Debug)]
pub(crate) struct Templates {
    env: Environment<'static>,
    tokens: [Option<String>; 3],
    plain: Shape,
    with_tools: Shape,
    lists_of_parts: bool,
}

/// Sources of a model's templates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    /// Name and text; one template alone is `default`.
    pub(crate) templates: Vec<(String, String)>,
    /// `bos_token`, `eos_token`, `unk_token`.
    pub(crate) tokens: [Option<String>; 3],
}

/// What a template is rendered with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Given {
    pub(crate) messages: Vec<Members>,
    pub(crate) tools: Option<Vec<Json>>,
    pub(crate) add_generation_prompt: bool,
    /// `chat_template_kwargs`: further names, before all others.
    pub(crate) arguments: Members,
    /// Nothing but the messages is known to the template, not even its tokens.
    pub(crate) bare: bool,
}

/// What a template does with shapes of messages that templates differ on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    /// Prints the arguments of a tool call that are a text.
    arguments_as_text: bool,
    /// Prints `reasoning_content` by itself.
    reasoning: bool,
    /// Prints it as a text, not as a list.
    reasoning_as_text: bool,
    /// Refuses system messages that are not the first.
    one_leading_system: bool,
    /// Refuses two user messages in a row.
    alternating: bool,
    /// Opens a thought, which the frontend closes where none is wanted.
    closes_thought: bool,
}

/// Why a template cannot be used, or not for this request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no chat template")]
    Missing,
    #[error("the template is over {MAX_TEMPLATE_BYTES} bytes")]
    TooLarge,
    #[error("the frontend changes templates of this family")]
    Adapted,
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("the text is over {0} bytes")]
    Output(usize),
}

impl Templates {
    pub(crate) fn load(sources: &Sources) -> Result<Self, Error> {
        if sources.templates.is_empty() {
            return Err(Error::Missing);
        }
        let mut env = environment();
        for (name, source) in &sources.templates {
            check(source)?;
            env.add_template_owned(name.clone(), syntax::respell(source))?;
        }
        if let [(name, source)] = sources.templates.as_slice()
            && name == DEFAULT
        {
            env.add_template_owned(TOOL_USE, syntax::respell(source))?;
        }
        let mut templates = Self {
            env,
            tokens: sources.tokens.clone(),
            plain: Shape::default(),
            with_tools: Shape::default(),
            lists_of_parts: false,
        };
        templates.lists_of_parts = templates.wants_lists_of_parts();
        templates.plain = templates.shape(DEFAULT, None);
        templates.with_tools = templates.shape(TOOL_USE, Some(vec![probes::tool()]));
        Ok(templates)
    }

    /// The text of a prompt, at most `cap` bytes of it.
    pub(crate) fn render(&self, given: &Given, now: Timestamp, cap: usize) -> Result<String, Error> {
        let (name, shape) = match &given.tools {
            Some(tools) if !tools.is_empty() => (TOOL_USE, self.with_tools),
            Some(_) | None => (DEFAULT, self.plain),
        };
        let mut messages = given.messages.clone();
        messages::shape(&mut messages, shape, self.lists_of_parts);
        let mut text = self.run(name, &messages, given, now, cap)?;
        if shape.closes_thought && given.add_generation_prompt && families::wants_no_thought(&given.arguments)
        {
            text.push_str(families::END_OF_THOUGHT);
        }
        if text.len() > cap {
            return Err(Error::Output(cap));
        }
        Ok(text)
    }

    fn run(
        &self,
        name: &str,
        messages: &[Members],
        given: &Given,
        now: Timestamp,
        cap: usize,
    ) -> Result<String, Error> {
        let messages: Value = messages.iter().map(json::object).collect();
        let tools = given.tools.as_ref().map_or_else(
            || Value::from(()),
            |tools| tools.iter().map(Json::to_value).collect(),
        );
        let [bos, eos, unk] = &self.tokens;
        let token = |token: &Option<String>| token.as_deref().map_or_else(|| Value::from(()), Value::from);
        let known = [
            ("messages", messages),
            ("add_generation_prompt", Value::from(given.add_generation_prompt)),
            ("tools", tools),
            ("bos_token", token(bos)),
            ("eos_token", token(eos)),
            ("unk_token", token(unk)),
        ];
        let arguments = given
            .arguments
            .iter()
            .map(|(name, value)| (&**name, value.to_value()));
        let context = Value::from_pairs(
            known
                .into_iter()
                .take(if given.bare { 2 } else { usize::MAX })
                .chain(arguments)
                .chain([(NOW, Value::from(now.as_second())), (CAP, Value::from(cap))]),
        );
        let mut out = Capped {
            text: Vec::new(),
            cap,
            over: false,
        };
        let result = self
            .env
            .get_template(name)?
            .render_captured_to(context, &mut out)
            .map(|_| ());
        // Nothing else than a text that is too long keeps anything from being written.
        if out.over
            || result
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::WriteFailure)
        {
            return Err(Error::Output(cap));
        }
        result?;
        String::from_utf8(out.text).map_err(|_| Error::Missing)
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    // As Hugging Face sets its engine up.
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    if let Ok(syntax) = syntax.build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_fuel(Some(TEMPLATE_FUEL));
    env.set_recursion_limit(MAX_TEMPLATE_DEPTH);
    env.set_unknown_method_callback(bounded::method);
    env.set_formatter(python::print);
    env.add_filter(
        "tojson",
        |state: &minijinja::State, value: Value, indent: Option<Value>, options: Kwargs| {
            python::tojson(state, &value, indent, options)
        },
    );
    env.add_filter("fromjson", python::fromjson);
    env.add_filter("from_json", python::fromjson);
    env.add_filter("string", |state: &minijinja::State, value: Value| {
        python::string(state, &value)
    });
    env.add_filter("pprint", |state: &minijinja::State, value: Value| {
        bounded::pprint(state, &value)
    });
    env.add_filter("join", bounded::join);
    env.add_filter("format", bounded::format);
    // It prints all that a rendering knows, indented.
    env.remove_global("debug");
    // Templates ask for the length of `tools` that are not there.
    env.add_filter("length", |value: Value| value.len().unwrap_or(0));
    env.add_function("raise_exception", |text: String| -> Result<Value, EngineError> {
        Err(EngineError::new(ErrorKind::InvalidOperation, text))
    });
    env.add_function("strftime_now", |state: &minijinja::State, format: String| {
        let now = state
            .lookup(NOW)
            .and_then(|now| i64::try_from(now).ok())
            .unwrap_or(0);
        let now = Timestamp::from_second(now).unwrap_or_default();
        // A directive may ask for 255 characters.
        state.consume_fuel(u64::try_from(format.len()).unwrap_or(u64::MAX))?;
        jiff::fmt::strtime::format(format, now)
            .map_err(|_| EngineError::new(ErrorKind::InvalidOperation, "not a time format"))
    });
    env
}

/// Refuses sources that are not to be compiled.
fn check(source: &str) -> Result<(), Error> {
    if source.len() > MAX_TEMPLATE_BYTES {
        return Err(Error::TooLarge);
    }
    if families::is_changed(source) {
        return Err(Error::Adapted);
    }
    Ok(())
}

/// A text that ends at a cap.
struct Capped {
    text: Vec<u8>,
    cap: usize,
    over: bool,
}

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.cap.saturating_sub(self.text.len()) {
            self.over = true;
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
