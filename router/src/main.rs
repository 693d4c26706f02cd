//! `continuum-router`: the data plane, and the commands about its configuration.

use std::{io, process::ExitCode};

use clap::Parser as _;
use continuum_router::{
    cli::{self, BUILD, Cli, Command},
    run,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    if let Some(Command::Config(command)) = &cli.command {
        return cli::config::run(command, &run::environment, BUILD, &mut out, &mut err);
    }
    let Some(file) = &cli.config else {
        return ExitCode::from(2);
    };
    run::router(file).unwrap_or_else(|error| {
        use io::Write as _;
        let _nobody_reads = writeln!(err, "{error}");
        ExitCode::FAILURE
    })
}
