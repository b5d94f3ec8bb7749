//! The client that all commands share: plain requests, retries, and the meaning of an answer.

pub mod http;
