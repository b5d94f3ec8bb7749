//! Where sealed events are kept.
//!
//! [`Store`] is a seam of whole operations, never of rows: each store is free inside, and one conformance
//! suite (`tests/conformance`) holds for all of them.
//!
//! This file only names what others import. Inside the crate an item is imported from the file that defines
//! it.

mod append;
mod bytes;
pub mod clock;
pub mod counts;
pub mod cpu;
mod derived;
pub mod embedded;
mod error;
pub mod fair_queue;
pub mod feed;
pub mod lacking;
pub mod loss;
pub mod pool;
pub mod postgres;
mod query;
mod reading;
pub mod reference;
pub mod segments;
pub mod shares;
pub mod stats;
mod store;
pub mod supervise;
pub mod sync;
mod types;
pub mod verify;
pub mod world;

pub use append::{
    Append, Appended, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, Receipt, Reservation, Reserved,
    WantedKeys,
};
pub use clock::HEAD_AHEAD_MS;
pub use derived::DerivedStep;
pub use error::StoreError;
pub use query::{ChainHead, Chunk, List, Range};
pub use store::{DropPlan, DropStep, Store};
pub use types::{BoxFuture, IdMap};
