//! Who may ask, and what they see.
//!
//! A request goes straight down and straight back: [`http`] (request id, per-address window), [`router`] (for all but the two requests that bring events), [`auth`] (who is calling),
//! `api` (one file for each endpoint), then `sealog-service`, which does what was asked for. One folder for each audience; they never import each other.

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
mod http;
mod limits;
mod metrics;
pub mod openapi;
mod operator;
mod ready;
mod respond;
mod router;
mod routes;
mod wire;

use std::sync::Arc;

use sealog_service::ControlData;
use sealog_service::admin::Admin;
use sealog_service::background::Jobs;
use sealog_service::ingest::Ingest;
use sealog_service::mail::Mailer;
use sealog_service::quota::{Changed, Quotas};
use sealog_service::system_chain::Wake;
use sealog_store::Store;
use sealog_store::world::World;

pub use http::{Server, serve, serve_metrics, serve_with_pages};

use config::Config;

/// Everything that requests share.
pub struct App {
    pub store: Arc<dyn Store>,
    pub control: ControlData,
    pub world: Arc<dyn World>,
    pub config: Config,
    callers: auth::Callers,
    limits: limits::Limits,
    connections: Arc<connections::Connections>,
    ingest: Ingest,
    admin: Admin,
    jobs: Jobs,
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
        let changed = Arc::new(Changed::default());
        let jobs = Jobs {
            store: Arc::clone(&store),
            world: Arc::clone(&world),
            geo: config.geo.clone(),
            quotas: Quotas {
                store: Arc::clone(&store),
                control: control.clone(),
                world: Arc::clone(&world),
                plans: config.plans.clone(),
                changed: Arc::clone(&changed),
                every: config.background.quota_every,
            },
            mailer: Mailer {
                outbox: Arc::clone(&control.outbox),
                world: Arc::clone(&world),
                smtp: config.smtp.clone(),
                app_url: config.app_url.clone(),
                every: config.background.mail_every,
                attempt_max: config.background.mail_attempt_max,
            },
            intervals: config.background,
        };
        Arc::new(App {
            admin: Admin::new(control.clone(), Arc::clone(&world), &config.plans, Wake::default()),
            ingest: Ingest::new(Arc::clone(&store), config.geo.clone(), changed),
            jobs,
            store,
            control,
            world,
            callers: auth::Callers::default(),
            limits: limits::Limits::default(),
            connections: connections::Connections::new(
                config.connections_max,
                config.limits.connections_per_ip as usize,
            ),
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
