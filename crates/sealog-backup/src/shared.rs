//! What these commands share: flags, exit codes, and how they end when a store cannot be opened.

use clap::{Arg, ArgAction, ArgMatches};
use sealog_cli::exit::{Exit, Failure};
use sealog_engine::Unopened;

pub(super) use sealog_cli::exit::EXIT_CODES;
use sealog_cli::metrics;
pub(super) use sealog_cli::metrics::{flag as metrics_flag, seconds};
pub(super) use sealog_cli::output::quiet_flag;

pub(super) fn json_flag() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object")
}

/// One store on a machine: its figures need no label.
pub(super) fn write_metrics(matches: &ArgMatches, gauges: &[(&str, &str, f64)]) -> Result<(), Failure> {
    metrics::write(matches, None, gauges)
}

pub(super) fn dir_argument(help: &'static str) -> Arg {
    Arg::new("dir").value_name("DIR").required(true).help(help)
}

/// As a command ends when a store cannot be opened.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
pub fn unopened(why: Unopened) -> Failure {
    let exit = match why {
        Unopened { is_setting: true, .. } => Exit::Usage,
        Unopened { may_pass: true, .. } => Exit::Unavailable,
        _ => Exit::Failure,
    };
    Failure::new(exit, why.to_string())
}
