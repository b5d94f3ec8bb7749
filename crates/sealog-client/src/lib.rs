//! The client that all commands share: one place that connects, retries, and says what an answer means.
//!
//! [`Client`] sends a request and gives back an answer or an [`ClientError`]; [`address`] reads the URL of a
//! service, [`connection`] opens connections to it, [`retry`] decides whether and when it is worth another
//! attempt.

mod address;
mod client;
mod connection;
mod error;
mod once;
mod retry;

pub use address::is_same_origin;
pub use client::{Answer, Client, Settings};
pub use error::{ClientError, Problem};
pub use hyper::Method;
pub use once::Once;
pub use retry::Retries;
