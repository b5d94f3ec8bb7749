//! Flags and exit codes that these commands share.

use clap::{Arg, ArgAction};

/// When a chain is broken.
pub(super) const EXIT_BROKEN: u8 = 10;

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   something went wrong, or a file is damaged
  2   the command line or a setting is wrong
  10  a chain is broken";

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
