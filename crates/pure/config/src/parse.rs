//! Text to a checked configuration.

use crate::{
    advice::{self, Build},
    check,
    env::{self, Environment},
    model::Config,
    problem::{self, Error, Problem},
    rules, tree,
};

/// A configuration that satisfies every rule, and what its author should know nevertheless.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values, defaults filled in.
    pub config: Config,
    /// What works but may not be meant, in the order of the file.
    pub warnings: Vec<Problem>,
}

/// Reads a configuration.
///
/// `environment` answers for `${NAME}` in string values. `build` says what the program can do; a configuration
/// that asks for more is valid and is warned of.
///
/// # Errors
/// Everything that is wrong, each with its path, line and column.
pub fn parse(text: &str, environment: Environment<'_>, build: Build) -> Result<Loaded, Error> {
    let mut root = tree::parse(text).map_err(Error::new)?;
    let problems = env::expand(&mut root, environment);
    judge(&root, problems, Vec::new(), build).map(|(loaded, _secrets)| loaded)
}

/// A configuration as far as it can be judged without its environment.
#[derive(Clone, Debug)]
pub struct Unexpanded {
    /// The values. Where a reference stands there is a placeholder (a default or an example) instead.
    pub config: Config,
    /// What works but may not be meant, in the order of the file.
    pub warnings: Vec<Problem>,
    /// The paths at which references stand.
    pub opaque: Vec<String>,
    /// The paths of secrets that are written out, where a reference could stand.
    pub plain_secrets: Vec<String>,
}

/// Judges a configuration that another process will run, without its environment: references are not expanded, and
/// nothing of this process's environment is looked at.
///
/// A scalar that holds `${NAME}` is opaque: how the reference is written is checked, its type, form and bounds are
/// not, nor are rules that hang on it. Everything else is checked as by [`parse`].
///
/// # Errors
/// Everything that is wrong, each with its path, line and column.
pub fn check_unexpanded(text: &str, build: Build) -> Result<Unexpanded, Error> {
    let mut root = tree::parse(text).map_err(Error::new)?;
    let (problems, opaque) = env::keep(&mut root);
    let (Loaded { config, warnings }, plain_secrets) = judge(&root, problems, opaque.clone(), build)?;
    Ok(Unexpanded {
        config,
        warnings,
        opaque,
        plain_secrets,
    })
}

fn judge(
    root: &tree::Node,
    mut problems: Vec<Problem>,
    opaque: Vec<String>,
    build: Build,
) -> Result<(Loaded, Vec<String>), Error> {
    let doubtful: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let checked = check::check(root, doubtful, opaque);
    problems.extend(checked.problems);
    let config: Config = match serde_json::from_value(checked.json) {
        Ok(config) => config,
        Err(error) => {
            // The schema and the model come from the same types, so this is a gap in the check; still, it must
            // be reported. The message of serde names the field, and values only by their type.
            if problems.is_empty() {
                let message = format!("this configuration cannot be read: {error}");
                problems.push(Problem {
                    path: String::new(),
                    line: 1,
                    column: 1,
                    message,
                });
            }
            return Err(Error::new(problems));
        }
    };
    problems.extend(rules::check(&config, &checked.places));
    if !problems.is_empty() {
        return Err(Error::new(problems));
    }
    let mut warnings = advice::advise(&config, &checked.places, build);
    problem::order(&mut warnings);
    Ok((Loaded { config, warnings }, checked.secrets))
}

/// The effective configuration as YAML: every field with its value, secrets masked. But for those it can be read
/// again: a literal `${` is written `$${`.
#[must_use]
pub fn show(config: &Config) -> String {
    // JSON is YAML, and the tree keeps the order of the fields.
    let json = serde_json::to_string(config).unwrap_or_default();
    let Ok(mut root) = tree::parse(&json) else {
        return String::new();
    };
    env::escape(&mut root);
    tree::emit::emit(&root)
}

/// Feeds arbitrary bytes to everything that reads a configuration. Never panics, whatever they are; what was
/// valid once is valid when it is written out (but for masked secrets).
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let environment = |name: &str| name.len().is_multiple_of(2).then(|| name.to_owned());
    let Ok(loaded) = parse(&text, &environment, Build::FULL) else {
        return;
    };
    let shown = show(&loaded.config);
    let masked = shown.contains(crate::value::MASK);
    let again = parse(&shown, &environment, Build::FULL);
    assert!(
        masked || again.is_ok_and(|again| crate::plan(&loaded.config, &again.config).is_nothing()),
        "{shown}"
    );
}

#[cfg(test)]
mod tests;
