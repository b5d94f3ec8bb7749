//! Who may ask, and what they see.
//!
//! A request goes straight down and straight back: [`http`] (request id, per-address window), [`router`] (for
//! all but the two requests that bring events), [`auth`] (who is calling), `api` (one file for each
//! endpoint), then `sealog-service`, which does what was asked for. One folder for each audience; they never
//! import each other.

mod api;
mod app;
mod auth;
pub mod background;
mod body;
mod budget;
mod catch_panic;
mod client_address;
pub mod config;
mod connections;
mod docs;
mod exposition;
mod framing;
mod http;
mod http2;
mod limits;
mod metrics;
pub mod openapi;
mod operator;
mod operator_routes;
pub mod peer;
mod ready;
mod redirect;
mod replication;
mod respond;
mod router;
mod routes;
mod tlog;
mod tlog_routes;
pub mod tls;
pub mod traces;
mod wire;

pub use app::App;
pub use http::{Server, serve, serve_console, serve_metrics, serve_plain, serve_with_pages};
