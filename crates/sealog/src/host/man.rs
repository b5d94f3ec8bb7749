//! `sealog man`: pages for man, one for each command.

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use clap_mangen::Man;

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output;

pub(super) fn command() -> Command {
    Command::new("man")
        .about("Print the manual page of a command, or write all pages to a directory")
        .long_about(
            "Print the manual page of a command, or write all pages to a directory.\n\n\
             To read one: sealog man follow | man -l -\n\
             To install all: sealog man --dir /usr/local/share/man/man1",
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..)
                .conflicts_with("dir")
                .help("Command, such as follow or admin key [default: the whole program]"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .help("Write sealog.1, sealog-log.1 and so on to this directory"),
        )
}

pub(super) fn run(matches: &ArgMatches, mut program: Command) -> Result<ExitCode, Failure> {
    program.build();
    if let Some(dir) = matches.get_one::<String>("dir") {
        let pages = written(&program, "sealog", Path::new(dir))?;
        eprintln!("sealog: wrote {pages} pages to {dir}");
        return Ok(ExitCode::SUCCESS);
    }
    let (mut found, mut name) = (&program, "sealog".to_owned());
    for part in matches.get_many::<String>("command").into_iter().flatten() {
        found = found.find_subcommand(part).ok_or_else(|| {
            let known: Vec<&str> = found.get_subcommands().map(Command::get_name).collect();
            Failure::new(
                Exit::NotFound,
                format!("{name} has no command {part:?}; choose from {}", known.join(", ")),
            )
        })?;
        name.push_str(&format!("-{part}"));
    }
    output::put_bytes(&page(found, &name)?)?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    // With its whole name: man finds a page by it.
    Man::new(command.clone().name(name.to_owned())).render(&mut text)?;
    Ok(text)
}

fn written(command: &Command, name: &str, dir: &Path) -> Result<usize, Failure> {
    let path = dir.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).map_err(|error| {
        let shown = path.display();
        Failure::usage(format!("cannot write {shown}: {error}; give an existing directory with --dir"))
    })?;
    let mut pages = 1;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        pages += written(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(pages)
}
