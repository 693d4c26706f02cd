//! `${NAME}` and `${NAME:-default}` in string values.
//!
//! Expansion happens in the tree, after parsing, so that a value can never change the structure.

use crate::{
    limits::MAX_EXPANDED_BYTES,
    problem::Problem,
    tree::{At, Node, Value, push_index, push_key},
};

/// Where variables come from: the process environment, a map in tests.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the references in every string of the tree. Keys stay as they are.
pub(crate) fn expand(root: &mut Node, environment: Environment<'_>) -> Vec<Problem> {
    let mut expansion = Expansion::new(environment);
    expansion.node(root, &mut String::new());
    expansion.problems
}

/// Checks how references are written and leaves them alone; a literal `$${` becomes `${`. Beside the problems: the
/// paths at which there are references.
pub(crate) fn keep(root: &mut Node) -> (Vec<Problem>, Vec<String>) {
    let mut expansion = Expansion::new(&|_| Some(String::new()));
    expansion.node(root, &mut String::new());
    (expansion.problems, expansion.referring)
}

/// Writes every literal `${` so that [`expand`] gives it back.
pub(crate) fn escape(node: &mut Node) {
    match &mut node.value {
        Value::Text(text) => text.text = text.text.replace("${", "$${"),
        Value::List(items) => items.iter_mut().for_each(escape),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| escape(&mut entry.value)),
        Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
    }
}

struct Expansion<'a> {
    environment: Environment<'a>,
    left: usize,
    problems: Vec<Problem>,
    /// Paths of texts with at least one well-written reference.
    referring: Vec<String>,
}

impl<'a> Expansion<'a> {
    fn new(environment: Environment<'a>) -> Self {
        Self {
            environment,
            left: MAX_EXPANDED_BYTES,
            problems: Vec::new(),
            referring: Vec::new(),
        }
    }

    fn node(&mut self, node: &mut Node, path: &mut String) {
        let length = path.len();
        match &mut node.value {
            Value::Text(text) if text.text.contains("${") => {
                match self.text(&text.text) {
                    Ok((expanded, references)) => {
                        text.text = expanded;
                        if references > 0 {
                            self.referring.push(path.clone());
                        }
                    }
                    Err(message) => self.report(path, node.at, message),
                }
                text.expanded = true;
            }
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    push_index(path, index);
                    self.node(item, path);
                    path.truncate(length);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    push_key(path, &entry.key);
                    self.node(&mut entry.value, path);
                    path.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {}
        }
    }

    fn report(&mut self, path: &str, at: At, message: String) {
        self.problems.push(Problem {
            path: path.to_owned(),
            line: at.line,
            column: at.column,
            message,
        });
    }

    /// The text with its references replaced, and how many there were.
    fn text(&mut self, text: &str) -> Result<(String, usize), String> {
        let mut out = String::new();
        let mut references = 0_usize;
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            // "$${" is how a literal "${" is written.
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let Some((reference, after)) = after.split_once('}') else {
                return Err(
                    "\"${\" has no \"}\"; write ${NAME} or ${NAME:-default}, or $${ for a literal \"${\""
                        .to_owned(),
                );
            };
            let value = self.variable(reference)?;
            self.left = self
                .left
                .checked_sub(value.len())
                .ok_or("the variables are too long in all")?;
            out.push_str(&value);
            references = references.saturating_add(1);
            rest = after;
        }
        out.push_str(rest);
        Ok((out, references))
    }

    fn variable(&self, reference: &str) -> Result<String, String> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let starts_well = name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !starts_well || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') || name.len() > 256 {
            return Err(
                "write ${NAME} or ${NAME:-default}, with letters, digits and \"_\" in the name".to_owned(),
            );
        }
        match ((self.environment)(name), default) {
            (Some(value), None) => Ok(value),
            (Some(value), Some(_)) if !value.is_empty() => Ok(value),
            (_, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(format!(
                "the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn expanded(text: &str) -> Result<String, Vec<String>> {
        let environment = |name: &str| match name {
            "HOST" => Some("etcd-0".to_owned()),
            "EMPTY" => Some(String::new()),
            "EVIL" => Some("x\nadmin: {token: y}".to_owned()),
            "LONG" => Some("x".repeat(600_000)),
            _ => None,
        };
        let mut root = tree::parse(text).unwrap();
        let problems = expand(&mut root, &environment);
        if problems.is_empty() {
            Ok(tree::emit::emit(&root))
        } else {
            Err(problems.iter().map(ToString::to_string).collect())
        }
    }

    #[test]
    fn references_become_values_and_never_structure() {
        for (text, out) in [
            ("a: http://${HOST}:2379", "a: http://etcd-0:2379\n"),
            ("a: ${NONE:-b}", "a: b\n"),
            ("a: '${EMPTY:-b}${EMPTY}'", "a: b\n"),
            ("a: $${HOST}", "a: \"${HOST}\"\n"),
            ("a: $5 $", "a: \"$5 $\"\n"),
            ("a: ${EVIL}", "a: \"x\\nadmin: {token: y}\"\n"),
            ("[\"${HOST}\", \"${NONE:-}\"]", "- etcd-0\n- \"\"\n"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(out), "{text}");
        }
    }

    #[test]
    fn what_was_escaped_expands_to_itself() {
        for text in ["${HOST}", "$${HOST}", "$$${", "a$", "${", "$$$", "x${y}z${"] {
            let mut root = tree::parse("a: x").unwrap();
            let Value::Map(entries) = &mut root.value else {
                panic!()
            };
            entries[0].value.value = Value::Text(tree::Text {
                text: text.to_owned(),
                expanded: false,
            });
            escape(&mut root);
            assert!(expand(&mut root, &|_| None).is_empty(), "{text}");
            let Value::Map(entries) = &root.value else {
                panic!()
            };
            assert!(
                matches!(&entries[0].value.value, Value::Text(found) if found.text == text),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_expanded_is_said_once_per_place() {
        let wrong = expanded("a:\n  - ${NONE}\n  - ${HO ST}\n  - ${HOST\nb: ${LONG}${LONG}\n").unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:#?}");
        assert!(
            wrong[0].starts_with("2:5: a[0]: the environment variable NONE is not set"),
            "{}",
            wrong[0]
        );
        assert!(
            wrong[3].starts_with("5:4: b: the variables are too long"),
            "{}",
            wrong[3]
        );
    }
}
