//! Who may ask, and what they see.
//!
//! A request goes straight down and straight back: [`http`] (request id, per-address window), [`router`] (for all but the two requests that bring events), [`auth`] (who is calling),
//! `api` (one file for each endpoint), [`ingest`] (the write path, the only caller of `Store::append`), the store. One folder for each audience; they never import each other.

mod api;
mod auth;
pub mod background;
mod body;
mod budget;
mod client_address;
pub mod config;
mod connections;
mod docs;
mod framing;
pub mod geo;
mod http;
mod ingest;
mod limits;
pub mod mail;
mod metrics;
mod notices;
pub mod openapi;
mod operator;
pub mod password;
mod quota;
mod ready;
mod respond;
mod router;
mod routes;
mod wire;

use std::sync::Arc;

use sealog_control::{Administration, Control, KeyAccess, Outbox, People};
use sealog_store::Store;
use sealog_store::world::World;

pub use http::{Server, serve, serve_metrics, serve_with_pages};

use config::Config;

/// Control data, by who asks for it.
#[derive(Clone)]
pub struct ControlData {
    pub keys: Arc<dyn KeyAccess>,
    pub administration: Arc<dyn Administration>,
    pub people: Arc<dyn People>,
    pub outbox: Arc<dyn Outbox>,
}

impl From<Arc<Control>> for ControlData {
    fn from(control: Arc<Control>) -> ControlData {
        ControlData {
            keys: Arc::clone(&control) as _,
            administration: Arc::clone(&control) as _,
            people: Arc::clone(&control) as _,
            outbox: control,
        }
    }
}

impl std::fmt::Debug for ControlData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlData")
    }
}

/// Everything that requests share.
pub struct App {
    pub store: Arc<dyn Store>,
    pub control: ControlData,
    pub world: Arc<dyn World>,
    pub config: Config,
    callers: auth::Callers,
    limits: limits::Limits,
    connections: Arc<connections::Connections>,
    changed: quota::Changed,
    metrics: metrics::Metrics,
    /// Memory for answers, from the first byte that is read until the last one has left the write buffer.
    reads: budget::Budget,
    /// Memory for large request bodies.
    bodies: budget::Budget,
    openapi: openapi::Served,
    last_ready: ready::LastAnswer,
}

impl App {
    pub fn new(
        store: Arc<dyn Store>,
        control: ControlData,
        world: Arc<dyn World>,
        config: Config,
    ) -> Arc<App> {
        Arc::new(App {
            store,
            control,
            world,
            callers: auth::Callers::default(),
            limits: limits::Limits::default(),
            connections: connections::Connections::new(
                config.connections_max,
                config.limits.connections_per_ip as usize,
            ),
            changed: quota::Changed::default(),
            metrics: metrics::Metrics::default(),
            reads: budget::Budget::new(config.memory.answers_bytes),
            bodies: budget::Budget::new(config.memory.bodies_bytes),
            openapi: openapi::Served::new(&config),
            last_ready: ready::LastAnswer::default(),
            config,
        })
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}
