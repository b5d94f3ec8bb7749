//! A server with and without a signed log, on one directory.

use std::time::Duration;

use crate::http::sealog::Sealog;
use crate::outcome::Outcome;
use crate::process::Process;

pub type Environment = &'static [(&'static str, &'static str)];
pub const OFF: Environment = &[("SEALOG_TRUST_ENABLED", "false")];
/// Sixty times as often as by default, so that a measurement of seconds has its share of the work.
pub const EVERY_SECOND: Environment = &[("SEALOG_TRUST_INTERVAL_S", "1")];

/// How long the trees may take to have all events.
pub const PATIENCE: Duration = Duration::from_secs(1800);

/// Starts the server again, with these settings.
pub fn restart(sealog: &mut Sealog, environment: Environment) -> Outcome<Duration> {
    sealog.environment = environment;
    sealog.while_stopped(Process::stop, |_| Ok(()))?;
    Ok(sealog.process().ready_after)
}
