//! Rules of the library that the behaviour suite of all languages (`sdk/suite`) does not state.

mod connection;
mod context;
mod queue;
mod receipts;
mod recorder;
mod signals;

use std::time::Duration;

use sealog_client::Options;

/// Only ends a hang.
const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options {
        api_key: format!("at_live_{}", "A".repeat(49)),
        flush_interval: Duration::from_millis(1),
        retry_base: Duration::from_millis(1),
        ..Options::default()
    }
}
