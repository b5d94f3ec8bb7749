//! What an operator decides.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ipnet::IpNet;
use sealog_docs::Program;
use sealog_service::Secret;

use crate::peer::Peer;
use crate::tls::Tls;
use crate::traces::Traces;

#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients reach the server.
    pub base_url: String,
    /// Where error codes are documented.
    pub docs_url: String,
    /// Without one, the operator's interface does not exist. A reload replaces it.
    pub operator_token: Option<Secret>,
    /// Whether replicas of the store may be made by whoever has the operator's token.
    pub replication: bool,
    /// The other server of a pair, which is asked for its epoch.
    pub peer: Option<Arc<Peer>>,
    pub trusted_proxies: Vec<IpNet>,
    /// Whether `/metrics` has a listener of its own (`serve_metrics`). The main one does not have it then.
    pub metrics_apart: bool,
    /// The directory whose disk `/metrics` tells of.
    pub data_dir: Option<PathBuf>,
    /// With one, the main listener and the console's speak TLS.
    pub tls: Option<Arc<Tls>>,
    /// How long browsers that came with TLS come with nothing else; 0 to not tell them.
    pub hsts_seconds: u32,
    /// Who is told of every request.
    pub traces: Option<Arc<dyn Traces>>,
    pub limits: LimitConfig,
    pub deadlines: Deadlines,
    pub memory: Memory,
    /// Commands and settings, for the documentation: put together when a page is asked for.
    pub program: Arc<LazyLock<Program>>,
    /// Connections at a time, of all event loops. Beyond it, those that are not in use make room.
    pub connections_max: usize,
}

/// Requests in a second, and connections at a time; 0 for no limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitConfig {
    /// Connections of one address at a time; never more than half of all. Trusted proxies have no such limit.
    pub connections_per_ip: u32,
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

impl Config {
    /// The defaults for a server that clients reach at this address.
    pub fn at(base_url: &str) -> Config {
        Config {
            base_url: base_url.to_owned(),
            docs_url: format!("{base_url}/docs"),
            operator_token: None,
            replication: false,
            peer: None,
            trusted_proxies: Vec::new(),
            metrics_apart: false,
            data_dir: None,
            tls: None,
            hsts_seconds: 0,
            traces: None,
            limits: LimitConfig {
                connections_per_ip: 512,
                per_ip_rps: 100,
                live_rps: None,
                test_rps: 60,
                nodes: 1,
            },
            deadlines: Deadlines {
                first_byte: Duration::from_secs(10),
                headers: Duration::from_secs(10),
                body: Duration::from_secs(30),
                write: Duration::from_secs(30),
            },
            memory: Memory { answers_bytes: 256 << 20, bodies_bytes: 256 << 20 },
            program: Arc::default(),
            connections_max: 4096,
        }
    }

    /// The documentation of an error code.
    pub fn doc_url(&self, code: &str) -> String {
        format!("{}/errors/{code}", self.docs_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_wherever_it_stands() {
        let mut config = Config::at("http://x");
        config.operator_token = Some(Secret("hunter2".into()));
        for text in [format!("{config:?}"), format!("{config:#?}"), format!("{:?}", config.operator_token)] {
            assert!(text.contains("(secret)") && !text.contains("hunter2"), "{text}");
        }
    }
}
