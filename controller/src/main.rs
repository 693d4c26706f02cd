//! The operator's process.

use std::process::ExitCode;

use clap::Parser as _;
use continuum_controller::{app, cli::Cli};

#[expect(clippy::print_stderr, reason = "there may be no log yet")]
fn main() -> ExitCode {
    match app::run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("continuum-controller: {error}");
            ExitCode::FAILURE
        }
    }
}
