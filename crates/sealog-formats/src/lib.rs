//! Events in the formats of other programs.
//!
//! [`input`] makes events of what shippers send (`POST /ingest/…`); [`output`] writes stored events for what
//! reads them (`sealog follow --format …`). Which field becomes which is in one table for each direction: the
//! code goes through it, the documentation is written from it, and tests hold it against examples.
//!
//! Text that must not change, such as `metadata`, is cut out and passed on; it is never parsed into values
//! and written again.

pub mod input;
pub mod output;
