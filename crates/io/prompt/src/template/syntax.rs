//! Spellings of real templates that the engine does not know, respelled before they are compiled.
//!
//! `{% generation %}` marks what a model is trained on and prints nothing of its own. `x.items()` asks a mapping for
//! its members, but where the mapping has a member of that name (every JSON schema of an array does) the engine would
//! call that; the filter `items` cannot be shadowed.

/// The template in spellings that the engine knows.
pub(super) fn respell(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{") {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        let close = match tag.as_bytes().get(1) {
            Some(b'#') => "#}",
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(_) | None => {
                out.push('{');
                rest = tag.get(1..).unwrap_or_default();
                continue;
            }
        };
        let inner_and_rest = tag.get(2..).unwrap_or_default();
        let end = if close == "#}" {
            inner_and_rest.find(close)
        } else {
            end_of_code(inner_and_rest, close)
        };
        let Some(end) = end else {
            out.push_str(tag);
            return out;
        };
        let (inner, after) = inner_and_rest.split_at(end);
        rest = after.get(2..).unwrap_or_default();
        out.push_str(tag.get(..2).unwrap_or_default());
        if close == "#}" {
            out.push_str(inner);
        } else {
            out.push_str(&code(inner));
        }
        out.push_str(close);
        if close == "%}" && word(inner) == "raw" {
            let end = end_of_raw(rest);
            let (raw, after) = rest.split_at(end);
            out.push_str(raw);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// What a statement says, without its whitespace marks.
fn word(inner: &str) -> &str {
    inner.trim_matches(['-', '+']).trim()
}

fn code(inner: &str) -> String {
    match word(inner) {
        "generation" => return inner.replacen("generation", "with", 1),
        "endgeneration" => return inner.replacen("endgeneration", "endwith", 1),
        _ => {}
    }
    let mut out = String::with_capacity(inner.len());
    let mut from = 0;
    for (at, quoted) in pieces(inner) {
        let piece = inner.get(from..at).unwrap_or_default();
        if quoted {
            out.push_str(piece);
        } else {
            out.push_str(&piece.replace(".items()", "|items"));
        }
        from = at;
    }
    out
}

/// Ends of the parts of a piece of code, each with whether it is a quoted text.
fn pieces(code: &str) -> Vec<(usize, bool)> {
    let mut ends = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in code.char_indices() {
        match quote {
            None if c == '\'' || c == '"' => {
                ends.push((at, false));
                quote = Some(c);
            }
            None => {}
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => {
                ends.push((at + c.len_utf8(), true));
                quote = None;
            }
            Some(_) => {}
        }
    }
    ends.push((code.len(), quote.is_some()));
    ends
}

/// Where code ends: at `close` outside of quotes and braces.
fn end_of_code(code: &str, close: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    let mut braces = 0_usize;
    for (at, c) in code.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if braces == 0 && code.get(at..).is_some_and(|rest| rest.starts_with(close)) => {
                return Some(at);
            }
            None => match c {
                '\'' | '"' => quote = Some(c),
                '{' => braces += 1,
                '}' => braces = braces.saturating_sub(1),
                _ => {}
            },
        }
    }
    None
}

/// Where the statement that ends a raw block starts; the end of the text without one.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find("{%")) {
        let at = from + found;
        let statement = text.get(at + 2..).unwrap_or_default();
        if statement
            .trim_start_matches(['-', '+'])
            .trim_start()
            .starts_with("endraw")
        {
            return at;
        }
        from = at + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_real_templates_are_respelled_and_text_is_not() {
        for (source, expected) in [
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            (
                "{%- generation -%}a{%+ endgeneration -%}",
                "{%- with -%}a{%+ endwith -%}",
            ),
            ("{% for k, v in x.items() %}", "{% for k, v in x|items %}"),
            ("{{ '.items()' ~ x.items() }}", "{{ '.items()' ~ x|items }}"),
            (r"{{ 'it\'s .items()' }}", r"{{ 'it\'s .items()' }}"),
            ("{# x.items() #}", "{# x.items() #}"),
            ("x.items() { {", "x.items() { {"),
            (
                "{% raw %}{{ x.items() }}{% endraw %}{{ y.items() }}",
                "{% raw %}{{ x.items() }}{% endraw %}{{ y|items }}",
            ),
            ("{{ {'a': {'b': 1}}.items() }}", "{{ {'a': {'b': 1}}|items }}"),
            ("{{ '}}' }}", "{{ '}}' }}"),
            ("{{ open", "{{ open"),
            ("{", "{"),
            ("한글 {{ x }}", "한글 {{ x }}"),
        ] {
            assert_eq!(respell(source), expected, "{source}");
        }
    }
}
