//! What an operator decides.

use ipnet::IpNet;
use sealog_core::plan::Plan;
use std::sync::Arc;
use std::time::Duration;

use crate::geo::Geo;
use crate::mail::Smtp;

#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients reach the server.
    pub base_url: String,
    /// Where error codes are documented.
    pub docs_url: String,
    /// Where people reach the dashboard.
    pub app_url: String,
    /// Without one, the operator's interface does not exist.
    pub operator_token: Option<Secret>,
    pub trusted_proxies: Vec<IpNet>,
    /// Without one, events have no `country` and no `city`.
    pub geo: Option<Arc<Geo>>,
    /// Without one, mails wait.
    pub smtp: Option<Smtp>,
    pub limits: LimitConfig,
    pub plans: Vec<Plan>,
    pub deadlines: Deadlines,
    pub memory: Memory,
    pub background: Background,
    /// Connections at a time, of each event loop; more wait to be accepted.
    pub connections_max: usize,
}

/// Requests in a second; 0 for no limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    pub per_ip_rps: u32,
    /// Takes the place of the plans' rate.
    pub live_rps: Option<u32>,
    pub test_rps: u32,
    /// How many servers share the limits.
    pub nodes: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    pub first_byte: Duration,
    pub headers: Duration,
    pub body: Duration,
    /// How long a client may take nothing of its answer.
    pub write: Duration,
}

/// What requests may hold together; beyond it they wait. One tenant gets at most half.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub answers_bytes: usize,
    pub bodies_bytes: usize,
}

/// How often background work looks for something to do, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    pub geo_every: Duration,
    pub quota_every: Duration,
    pub mail_every: Duration,
    /// For one mail, from the connection to the server's word that it has it.
    pub mail_attempt_max: Duration,
}

/// Text that must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

impl Config {
    /// The defaults for a server that clients reach at this address.
    pub fn at(base_url: &str) -> Config {
        Config {
            base_url: base_url.to_owned(),
            docs_url: format!("{base_url}/docs"),
            app_url: format!("{base_url}/app"),
            operator_token: None,
            trusted_proxies: Vec::new(),
            geo: None,
            smtp: None,
            limits: LimitConfig { per_ip_rps: 100, live_rps: None, test_rps: 60, nodes: 1 },
            plans: Plan::defaults(),
            deadlines: Deadlines {
                first_byte: Duration::from_secs(10),
                headers: Duration::from_secs(10),
                body: Duration::from_secs(30),
                write: Duration::from_secs(30),
            },
            memory: Memory { answers_bytes: 256 << 20, bodies_bytes: 256 << 20 },
            background: Background {
                geo_every: Duration::from_secs(10),
                quota_every: Duration::from_secs(1),
                mail_every: Duration::from_secs(5),
                mail_attempt_max: Duration::from_secs(60),
            },
            connections_max: 10_000,
        }
    }

    /// The documentation of an error code.
    pub fn doc_url(&self, code: &str) -> String {
        format!("{}/errors/{code}", self.docs_url)
    }
}
