//! What is wrong with a configuration, and where.

use std::fmt;

use crate::limits::MAX_PROBLEMS;

/// One finding: an error, or a piece of advice. The message never repeats a secret or the value of an
/// environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where in the structure: `backends[2].url`. Empty for the file as a whole.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Why a configuration cannot be used: every reason that was found, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The first of the reasons, at most [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more: usize,
}

impl Error {
    /// Orders the problems by place and keeps those that somebody will read.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        order(&mut problems);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        Self { problems, more }
    }

    /// How many reasons there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len() + self.more
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

/// Orders findings by their place in the file.
pub(crate) fn order(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| {
        (a.line, a.column, &a.path, &a.message).cmp(&(b.line, b.column, &b.path, &b.message))
    });
    problems.dedup();
}
