//! Reads of what is durable: single events, pages, ranges, idempotency keys, whole chains.

pub(crate) mod audit;
pub(crate) mod failures;
pub(crate) mod idempotency;
pub(crate) mod reader;
pub(crate) mod window;
