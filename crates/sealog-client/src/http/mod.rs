//! Requests to a service, as commands make them: one place that connects, retries, and says what an answer
//! means at a terminal.
//!
//! [`Client`] sends a request and gives back an answer or a [`ClientError`]; [`wire`] makes one attempt,
//! [`address`] reads the URL of a service, [`connection`] opens connections to it, [`retry`] decides whether
//! and when it is worth another attempt.

pub(crate) mod address;
mod client;
pub(crate) mod connection;
mod error;
mod once;
mod retry;
pub(crate) mod wire;

pub use address::is_same_origin;
pub use client::{Client, Settings};
pub use error::{ClientError, Problem};
pub use hyper::Method;
pub use once::Once;
pub use retry::Retries;
pub use wire::Answer;
