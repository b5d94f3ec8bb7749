//! Flags that these commands share, and the program's one table of exit codes.

use clap::{Arg, ArgAction};

pub(super) use crate::cli::exit::EXIT_CODES;

pub(super) fn json_flag() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object")
}

pub(super) fn quiet_flag() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .short('q')
        .action(ArgAction::SetTrue)
        .help("Print only errors to standard error")
}

pub(super) fn dir_argument(help: &'static str) -> Arg {
    Arg::new("dir").value_name("DIR").required(true).help(help)
}
