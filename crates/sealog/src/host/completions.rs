//! `sealog completions`: what a shell needs to complete commands and flags.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use sealog_cli::exit::Failure;
use sealog_cli::output;

pub(super) fn command() -> Command {
    Command::new("completions")
        .about("Print shell completions")
        .long_about(
            "Print shell completions.\n\n\
             bash   sealog completions bash > ~/.local/share/bash-completion/completions/sealog\n\
             zsh    sealog completions zsh > \"${fpath[1]}/_sealog\"\n\
             fish   sealog completions fish > ~/.config/fish/completions/sealog.fish",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell"),
        )
}

pub(super) fn run(matches: &ArgMatches, mut program: Command) -> Result<ExitCode, Failure> {
    let shell = *matches.get_one::<Shell>("shell").expect("clap asks for it");
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut program, "sealog", &mut text);
    output::put_bytes(&text)?;
    Ok(ExitCode::SUCCESS)
}
