//! Figures of a command for Prometheus: the textfile collector of its node exporter reads them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches};

use super::exit::Failure;
use super::file_flags;
use super::files::write_new;

/// Figures, and no secret.
const MODE: u32 = 0o644;

pub fn flag() -> Arg {
    file_flags::flag(
        "metrics",
        "After success, write figures for Prometheus to this file, such as sealog-backup.prom of the textfile collector",
    )
}

/// Name, meaning and value of each gauge of a command that has succeeded. The collector reads the file as
/// another user and at any moment. A label keeps figures of several files apart.
pub fn write(
    matches: &ArgMatches,
    label: Option<(&str, &str)>,
    gauges: &[(&str, &str, f64)],
) -> Result<(), Failure> {
    let Some(path) = matches.get_one::<String>("metrics").map(Path::new) else { return Ok(()) };
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let label = label.map(|(name, value)| format!("{{{name}=\"{}\"}}", escaped(value))).unwrap_or_default();
    let text = gauges.iter().map(|(name, help, value)| {
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name}{label} {value}\n")
    });
    let written = || {
        write_new(path, text.collect::<String>().as_bytes())?;
        fs::set_permissions(path, Permissions::from_mode(MODE))
    };
    written().map_err(|error| Failure::of_path(path, &error))
}

/// As Prometheus has times.
pub fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}
