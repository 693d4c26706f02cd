//! Two families of templates that the frontend changes when it loads them.
//!
//! MiniMax M2 always opens a thought; the frontend closes it at once where the request wants none. Of Gemma 4 it changes
//! those that know thoughts only under the name `reasoning`: how is not repeated here, so these are not rendered.

use crate::json::{Json, Members};

/// How the template of MiniMax M2 ends, as its authors publish it.
const OPENS_THOUGHT: [&str; 3] = [
    "{%- if add_generation_prompt -%}",
    r"{{- ']~b]ai' ~ '\n' ~ '<think>' ~ '\n' }}",
    "{%- endif -%}",
];

/// What closes a thought that the template has opened.
pub(super) const END_OF_THOUGHT: &str = "</think>\n";

/// Whether the frontend would render it in another way than it says, and it is not known how.
pub(super) fn is_changed(source: &str) -> bool {
    let gemma = source.contains("<|channel>thought") && source.contains("<|tool_call>call:");
    let reasoning =
        source.contains("message.get('reasoning')") || source.contains("message.get(\"reasoning\")");
    gemma && reasoning && !source.contains("reasoning_content")
}

/// Whether the frontend closes the thought that it opens, where none is wanted.
pub(super) fn closes_thought(source: &str) -> bool {
    source.contains("<minimax:tool_call>") && source.trim_end().ends_with(&OPENS_THOUGHT.join("\n"))
}

/// Whether a request wants no thoughts, as the changed template asks: the first of these that decides.
pub(super) fn wants_no_thought(arguments: &Members) -> bool {
    ["thinking", "enable_thinking"]
        .iter()
        .find_map(|name| arguments.get(*name)?.as_bool())
        .map_or_else(
            || arguments.get("thinking_mode").and_then(Json::as_str) == Some("chat"),
            |on| !on,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_templates_as_published_are_changed() {
        let end = OPENS_THOUGHT.join("\n");
        for (source, closes) in [
            (format!("<minimax:tool_call>{end}"), true),
            (format!("<minimax:tool_call>{end}\n\n"), true),
            (format!("<minimax:tool_call>{end}x"), false),
            (format!("<minimax:tool_call>{}", end.replace('\n', "")), false),
            (end, false),
        ] {
            assert_eq!(closes_thought(&source), closes, "{source}");
        }
        let gemma = "<|channel>thought <|tool_call>call:";
        for (source, changed) in [
            (format!("{gemma} message.get('reasoning')"), true),
            (format!("{gemma} message.get(\"reasoning\")"), true),
            (
                format!("{gemma} message.get('reasoning') or message.get('reasoning_content')"),
                false,
            ),
            (gemma.to_owned(), false),
            ("message.get('reasoning')".to_owned(), false),
        ] {
            assert_eq!(is_changed(&source), changed, "{source}");
        }
    }

    #[test]
    fn the_first_that_decides_counts() {
        for (arguments, none) in [
            ("{}", false),
            (r#"{"thinking":false,"enable_thinking":true}"#, true),
            (r#"{"thinking":"no","enable_thinking":false}"#, true),
            (r#"{"enable_thinking":true,"thinking_mode":"chat"}"#, false),
            (r#"{"thinking_mode":"chat"}"#, true),
            (r#"{"thinking_mode":"adaptive"}"#, false),
        ] {
            let json: Json = serde_json::from_str(arguments).unwrap();
            assert_eq!(wants_no_thought(json.as_object().unwrap()), none, "{arguments}");
        }
    }
}
