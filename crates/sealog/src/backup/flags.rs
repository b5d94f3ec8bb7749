//! Flags that these commands share, and the program's one table of exit codes.

use clap::{Arg, ArgAction};

pub(super) use crate::cli::exit::EXIT_CODES;

pub(super) fn json_flag() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints one JSON object for machines")
}

pub(super) fn quiet_flag() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .short('q')
        .action(ArgAction::SetTrue)
        .help("No progress, and nothing on standard error but errors")
}

pub(super) fn dir_argument(help: &'static str) -> Arg {
    Arg::new("dir").value_name("DIR").required(true).help(help)
}
