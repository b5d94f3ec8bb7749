//! What is derived from the log to find events and idempotency keys, in memory and in sidecar files.

pub(crate) mod block;
pub(crate) mod build;
pub(crate) mod chain_index;
pub(crate) mod compare;
pub(crate) mod fields;
pub(crate) mod filter;
pub(crate) mod keys;
pub(crate) mod rebuild;
pub(crate) mod salt;
pub(crate) mod sidecar;
