//! Reads of what is durable: single events, pages, ranges, whole chains.

pub(crate) mod audit;
pub(crate) mod reader;
