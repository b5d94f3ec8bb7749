//! Everything that requests share, put together. What is below it takes the parts that it uses; what is above
//! it (endpoints, connections) takes all of it.

use std::sync::Arc;

use sealog_control::KeyAccess;
use sealog_engine::Service;
use sealog_service::Secret;
use sealog_service::records::replication::Replication;

use crate::auth::Auth;
use crate::budget::Budget;
use crate::client_address::UntrustedForwarders;
use crate::config::Config;
use crate::connections::Connections;
use crate::docs::Docs;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::ready::LastAnswer;

/// Everything that requests share.
pub struct App {
    pub service: Arc<Service>,
    pub(crate) keys: Arc<dyn KeyAccess>,
    pub config: Config,
    pub(crate) auth: Auth,
    pub(crate) limits: Limits,
    pub(crate) connections: Arc<Connections>,
    pub(crate) metrics: Metrics,
    /// Memory for answers, from the first byte that is read until the last one has left the write buffer.
    pub(crate) reads: Budget,
    /// Memory for large request bodies.
    pub(crate) bodies: Budget,
    pub(crate) openapi: OpenApi,
    pub(crate) docs: Docs,
    pub(crate) started_ms: u64,
    /// Nothing where it is off.
    pub(crate) replication: Option<Replication>,
    pub(crate) last_ready: LastAnswer,
    pub(crate) untrusted_forwarders: UntrustedForwarders,
}

impl App {
    pub fn new(service: Arc<Service>, config: Config) -> Arc<App> {
        let keys = Arc::clone(&service.control) as _;
        App::with_keys(service, keys, config)
    }

    /// As [`App::new`], with keys that are looked up elsewhere.
    pub fn with_keys(service: Arc<Service>, keys: Arc<dyn KeyAccess>, config: Config) -> Arc<App> {
        let replication = if config.replication {
            Replication::new(Arc::clone(&service.store), Arc::clone(&service.control))
        } else {
            None
        };
        let auth = Auth::new(Arc::clone(&keys), service.settings.plans.clone(), &config);
        Arc::new(App {
            replication,
            auth,
            started_ms: service.world.now_ms(),
            service,
            keys,
            limits: Limits::default(),
            connections: Connections::new(config.connections_max, config.limits.connections_per_ip as usize),
            metrics: Metrics::default(),
            reads: Budget::new(config.memory.answers_bytes),
            bodies: Budget::new(config.memory.bodies_bytes),
            openapi: OpenApi::default(),
            docs: Docs::default(),
            last_ready: LastAnswer::default(),
            untrusted_forwarders: UntrustedForwarders::default(),
            config,
        })
    }
}

impl App {
    /// Takes another operator token, without a restart. Whether it is another one.
    pub fn replace_operator_token(&self, token: Option<Secret>) -> bool {
        self.auth.replace_operator_token(token)
    }

    /// The operator token that counts now.
    pub fn operator_token(&self) -> Option<Secret> {
        self.auth.operator_token()
    }

    /// Makes the pages of `/docs` before the first one is asked for. Takes a moment: for a thread of its own.
    pub fn prepare_docs(&self) {
        self.openapi.prepare(&self.config, &self.service.settings.plans);
        self.docs.prepare(&self.config, &self.service.settings.plans);
    }
}
