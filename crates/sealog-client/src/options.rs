//! The options of a client, their defaults and bounds.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::event::Event;
use crate::hooks::{OnError, OnReceipt, OnWarning};
use crate::proofs::Proofs;

pub type BeforeSend = Box<dyn Fn(Event) -> Result<Event, Box<dyn std::error::Error>> + Send + Sync>;
pub type Now = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What `enqueue` does if there is no room. It never drops an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Waits.
    #[default]
    Block,
    /// Fails with `QueueFull`.
    Error,
}

/// Options of a client. Defaults are in brackets.
///
/// ```
/// use sealog_client::Options;
/// let options = Options { url: "https://sealog.example.org".into(), ..Options::default() };
/// ```
pub struct Options {
    /// `SEALOG_URL`, or http://127.0.0.1:8080.
    pub url: String,
    /// `SEALOG_API_KEY`.
    pub api_key: String,

    /// Callbacks run in the sender's task, one at a time; until they return, nothing else is sent.
    pub on_receipt: Option<OnReceipt>,
    /// [logged at level error, or to standard error]
    pub on_error: Option<OnError>,
    /// Warnings are also logged.
    pub on_warning: Option<OnWarning>,
    /// Gets each event before it is serialised, and returns the one to send. An error: `log` and `enqueue`
    /// fail.
    pub before_send: Option<BeforeSend>,

    /// A directory for queued events; they survive kill -9. [in memory]
    pub spool_dir: Option<PathBuf>,
    /// Syncs each event; they survive a power failure.
    pub spool_sync: bool,
    /// [268,435,456]
    pub spool_max_bytes: u64,
    /// [10,000]
    pub queue_max_events: usize,
    /// [33,554,432]
    pub queue_max_bytes: u64,
    pub on_full: OnFull,
    /// [100]
    pub batch_max_events: usize,
    /// [1,900,000]
    pub batch_max_bytes: u64,
    /// [1 s]
    pub flush_interval: Duration,
    /// How often to look for files that dead processes left. [10 s]
    pub adopt_interval: Duration,
    /// Hold a spooled batch whose first attempt is this long ago. [23 h 55 min]
    pub hold_after: Duration,

    /// [5]
    pub max_attempts: u32,
    /// The longest first wait; it doubles up to 8 times this. [1 s]
    pub retry_base: Duration,
    /// Of all waits of one call. [60 s]
    pub retry_budget: Duration,
    /// Of one attempt, from connecting to the last byte. [30 s]
    pub timeout: Duration,

    /// Certificates of authorities, PEM. [the system's]
    pub ca_file: Option<PathBuf>,
    /// A file for receipts. [the newest 10,000 in memory]
    pub receipts: Option<PathBuf>,
    /// The key of the server's log, with which `audit` checks the signatures of proofs.
    pub vkey: Option<String>,
    /// Check actions against the catalog before sending.
    pub check_actions: bool,
    /// Add `trace_id` and `span_id` of the traceparent to the metadata.
    pub trace_metadata: bool,
    /// The wall clock, for tests.
    pub now: Now,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Options {
    fn default() -> Options {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Options {
            url: variable("SEALOG_URL").unwrap_or_else(|| "http://127.0.0.1:8080".into()),
            api_key: variable("SEALOG_API_KEY").unwrap_or_default(),
            on_receipt: None,
            on_error: None,
            on_warning: None,
            before_send: None,
            spool_dir: None,
            spool_sync: false,
            spool_max_bytes: 268_435_456,
            queue_max_events: 10_000,
            queue_max_bytes: 33_554_432,
            on_full: OnFull::Block,
            batch_max_events: 100,
            batch_max_bytes: 1_900_000,
            flush_interval: Duration::from_secs(1),
            adopt_interval: Duration::from_secs(10),
            hold_after: DAY - Duration::from_secs(300),
            max_attempts: 5,
            retry_base: Duration::from_secs(1),
            retry_budget: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            ca_file: None,
            receipts: None,
            vkey: None,
            check_actions: false,
            trace_metadata: false,
            now: Arc::new(SystemTime::now),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let key = self.api_key.strip_prefix("at_live_").or(self.api_key.strip_prefix("at_test_"));
        if !key.is_some_and(|rest| rest.len() == 49 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        {
            let problem = "must be at_live_ or at_test_ and 49 letters or digits; copy the whole key, or set SEALOG_API_KEY";
            return Err(Error::option("api_key", problem));
        }
        Proofs::new(self.vkey.as_deref())?;
        let number = |name: &str, value: u64, bounds: RangeInclusive<u64>| {
            let problem = || format!("must be between {} and {}", bounds.start(), bounds.end());
            if bounds.contains(&value) { Ok(()) } else { Err(Error::option(name, &problem())) }
        };
        number("batch_max_events", self.batch_max_events as u64, 1..=100)?;
        number("batch_max_bytes", self.batch_max_bytes, 1..=2_097_152)?;
        number("queue_max_events", self.queue_max_events as u64, 1..=1_000_000_000)?;
        number("queue_max_bytes", self.queue_max_bytes, 1..=1_000_000_000_000)?;
        number("spool_max_bytes", self.spool_max_bytes, 1..=10_000_000_000_000)?;
        number("max_attempts", self.max_attempts.into(), 1..=1000)?;
        let span = |name: &str, value: Duration, most: Duration| {
            let problem = || format!("must be at most {} s", most.as_secs());
            if value <= most { Ok(()) } else { Err(Error::option(name, &problem())) }
        };
        span("retry_base", self.retry_base, DAY / 24)?;
        span("retry_budget", self.retry_budget, DAY)?;
        span("flush_interval", self.flush_interval, DAY)?;
        span("timeout", self.timeout, DAY)?;
        span("hold_after", self.hold_after, DAY)?;
        span("adopt_interval", self.adopt_interval, DAY)?;
        if self.timeout.is_zero() || self.adopt_interval.is_zero() {
            let name = if self.timeout.is_zero() { "timeout" } else { "adopt_interval" };
            return Err(Error::option(name, "must be more than 0"));
        }
        Ok(())
    }
}
