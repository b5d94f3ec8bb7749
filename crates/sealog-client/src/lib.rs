//! Logs events from Rust, with a queue that loses nothing by accident.
//!
//! [`Client::log`] returns after the service has stored the event, with a receipt. [`Client::enqueue`]
//! returns at once; a task sends batches, in order, and every event ends in a callback. With a spool, what
//! is queued survives the process. `sdk/suite/README.md` has the rules, which are the same in every
//! language.
//!
//! [`http`] has the plain requests that the command line makes, [`outbox`] the events that it sends with
//! them.

mod backlog;
mod catalog;
mod client;
mod context;
mod endpoint;
mod error;
mod event;
mod hooks;
pub mod http;
mod journal;
mod options;
pub mod outbox;
mod proofs;
mod queue;
mod read;
mod receipt;
mod receipts;
#[cfg(unix)]
mod signals;
mod spool;
mod store;
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;
mod value;
mod verify;

pub use backlog::Backlog;
pub use client::{Client, pseudonymize};
pub use context::{TrustedProxies, with, with_traceparent};
pub use error::{Details, Error, Kind};
pub use event::Event;
pub use hooks::{OnError, OnReceipt, OnWarning};
pub use options::{BeforeSend, Now, OnFull, Options};
pub use proofs::{ProofResult, verify_proof};
pub use read::{Action, Events, Filter, StoredEvent, Verification};
pub use receipt::Receipt;
pub use receipts::Audit;
/// For the functions that `sealog actions --emit rs` writes.
pub use serde::Serialize;
pub use store::{Choice, Held};
pub use verify::{ChainResult, Head, Verifier, verify_events};
