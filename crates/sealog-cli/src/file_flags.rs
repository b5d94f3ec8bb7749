//! Flags that name a file to be written, and what is said of one that cannot be.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};

use super::exit::Failure;

pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name.replace('_', "-")).value_name("FILE").help(help)
}

/// Where a command writes instead of to standard output.
pub fn output(help: &'static str) -> Arg {
    flag("output", help).short('o')
}

pub fn path(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<String>(name).map(PathBuf::from)
}

/// What could not be opened before the work began.
pub fn unwritable(path: &Path, error: &dyn Display) -> Failure {
    Failure::usage(format!("cannot write {}: {error}; give another file", path.display()))
}
