//! `config validate`, `config show`, `config schema`.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use continuum_config::{Build, Environment, Loaded, limits::MAX_TEXT_BYTES, parse, schema, show};

use super::ConfigCommand;

/// Does a command: its result on `out`, complaints on `err`.
///
/// Exit codes: 0 fine, 1 the configuration has errors, 2 it cannot be read or the output cannot be written.
pub fn run(
    command: &ConfigCommand,
    environment: Environment<'_>,
    build: Build,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> ExitCode {
    let done = match command {
        ConfigCommand::Validate { file, strict } => validate(file, *strict, environment, build, out, err),
        ConfigCommand::Show { file } => show_effective(file.as_deref(), environment, build, out, err),
        ConfigCommand::Schema => out.write_all(schema::json().as_bytes()).map(|()| Outcome::Fine),
    };
    match done {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Invalid) => ExitCode::from(1),
        Ok(Outcome::Unreadable) => ExitCode::from(2),
        // Whoever read the output has read enough (`config show | head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to complain of a failure here.
            let _ = writeln!(err, "cannot write: {error}");
            ExitCode::from(2)
        }
    }
}

/// Reads a configuration's text; "-" is standard input. A file that is too large is not read to its end.
///
/// # Errors
/// Those of the file system, text that is not UTF-8, and a file without any text: nobody means that, and a writer
/// that was interrupted leaves one.
pub fn read(file: &Path) -> io::Result<String> {
    // One byte more than the parser takes, so that it can say what is wrong.
    let most = MAX_TEXT_BYTES as u64 + 1;
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().take(most).read_to_string(&mut text)?;
    } else {
        File::open(file)?.take(most).read_to_string(&mut text)?;
    }
    if text.trim().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    Ok(text)
}

enum Outcome {
    Fine,
    Invalid,
    Unreadable,
}

fn validate(
    file: &Path,
    strict: bool,
    environment: Environment<'_>,
    build: Build,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Outcome> {
    let name = file.display();
    match load(file, environment, build, out, err)? {
        Ok(Loaded { warnings, .. }) => {
            for warning in &warnings {
                writeln!(out, "{name}:{warning} (warning)")?;
            }
            let count = counted(warnings.len(), "warning");
            writeln!(
                out,
                "{name} is valid{}",
                if warnings.is_empty() {
                    String::new()
                } else {
                    format!(", {count}")
                }
            )?;
            Ok(if strict && !warnings.is_empty() {
                Outcome::Invalid
            } else {
                Outcome::Fine
            })
        }
        Err(outcome) => Ok(outcome),
    }
}

fn show_effective(
    file: Option<&Path>,
    environment: Environment<'_>,
    build: Build,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Outcome> {
    let config = match file {
        None => continuum_config::Config::default(),
        // Errors are complaints here: standard output is for the configuration alone.
        Some(file) => match load(file, environment, build, err, &mut io::sink())? {
            Ok(loaded) => loaded.config,
            Err(outcome) => return Ok(outcome),
        },
    };
    out.write_all(show(&config).as_bytes())?;
    Ok(Outcome::Fine)
}

/// Reads and checks a file; what is wrong with it goes to `findings`, that it cannot be read to `err`.
fn load(
    file: &Path,
    environment: Environment<'_>,
    build: Build,
    findings: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Result<Loaded, Outcome>> {
    let name = file.display();
    let text = match read(file) {
        Ok(text) => text,
        Err(error) => {
            writeln!(err, "{name}: cannot be read: {error}")?;
            return Ok(Err(Outcome::Unreadable));
        }
    };
    match parse(&text, environment, build) {
        Ok(loaded) => Ok(Ok(loaded)),
        Err(error) => {
            for problem in &error.problems {
                writeln!(findings, "{name}:{problem}")?;
            }
            if error.more > 0 {
                writeln!(findings, "and {} more", error.more)?;
            }
            writeln!(
                findings,
                "{name} is not valid: {}",
                counted(error.count(), "error")
            )?;
            Ok(Err(Outcome::Invalid))
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

#[cfg(test)]
mod tests;
