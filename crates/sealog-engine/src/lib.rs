//! The whole product without its interfaces. [`Service`] is put together here and nowhere else: whoever
//! serves HTTP, pages or the console holds one, and a test that needs the product makes one.

mod loops;
mod opened;
pub mod proofs;
pub mod restoring_mark;
mod service;
mod settings;
mod trust;

pub use opened::{OpenOptions, Opened, Place, Unopened};
pub use sealog_tlog::log as trust_log;
pub use sealog_tlog::trees;
pub use service::Service;
pub use settings::{Intervals, Settings};
pub use trust::{Begins, Status as TrustStatus, Trust};

/// What this program keeps beside the events, each in a database of its own.
pub const SCHEMAS: [&sealog_control::Schema; 3] = [&sealog_control::SCHEMA, &trees::TREES, &trust_log::LOG];
