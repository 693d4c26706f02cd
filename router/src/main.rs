//! `continuum-router`: the data plane, and the commands about its configuration.

use std::{fmt::Display, io, process::ExitCode};

use clap::Parser as _;
use continuum_router::{
    cli::{self, BUILD, Cli, Command},
    run,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    match &cli.command {
        Some(Command::Config(command)) => {
            return cli::config::run(command, &run::environment, BUILD, &mut out, &mut err);
        }
        #[cfg(feature = "dynamo-kv")]
        Some(Command::Artifacts(command)) => {
            return ended(
                cli::artifacts::run(command, &run::environment, &mut out, &mut err),
                &mut io::stderr(),
            );
        }
        Some(Command::Probe { url }) => {
            return ended(cli::probe::run(url).map(|()| ExitCode::SUCCESS), &mut err);
        }
        None => {}
    }
    let Some(file) = &cli.config else {
        return ExitCode::from(2);
    };
    ended(run::router(file), &mut err)
}

/// An error is told and fails the process.
fn ended<E: Display>(result: Result<ExitCode, E>, err: &mut dyn io::Write) -> ExitCode {
    result.unwrap_or_else(|error| {
        let _nobody_reads = writeln!(err, "{error}");
        ExitCode::FAILURE
    })
}
