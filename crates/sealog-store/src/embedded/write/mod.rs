//! The write path: from a request to its acknowledgement.

pub(crate) mod batching;
pub(crate) mod writer;
