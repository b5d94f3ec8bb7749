//! What these commands share: flags, exit codes, and how they end when a store cannot be opened.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::write_new;
use sealog_engine::Unopened;

pub(super) use sealog_cli::exit::EXIT_CODES;

/// Figures, and no secret.
const METRICS_MODE: u32 = 0o644;

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

pub(super) fn metrics_flag() -> Arg {
    Arg::new("metrics")
        .long("metrics")
        .value_name("FILE")
        .help("After success, write figures for Prometheus to this file, such as sealog-backup.prom of the textfile collector")
}

/// What a command that has succeeded tells Prometheus: name, meaning and value of each gauge. The collector
/// of its node exporter reads the file, as another user and at any moment.
pub(super) fn write_metrics(matches: &ArgMatches, gauges: &[(&str, &str, f64)]) -> Result<(), Failure> {
    let Some(path) = matches.get_one::<String>("metrics").map(Path::new) else { return Ok(()) };
    let text = gauges
        .iter()
        .map(|(name, help, value)| format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"));
    let written = || {
        write_new(path, text.collect::<String>().as_bytes())?;
        fs::set_permissions(path, Permissions::from_mode(METRICS_MODE))
    };
    written().map_err(|error| Failure::of_path(path, &error))
}

/// As Prometheus has times.
pub(super) fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
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
