//! What an operator decides.

use ipnet::IpNet;
use sealog_core::plan::Plan;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

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
    /// Whether `/metrics` has a listener of its own (`serve_metrics`). The main one does not have it then.
    pub metrics_apart: bool,
    /// Without one, events have no `country` and no `city`.
    pub geo: Option<Arc<Geo>>,
    /// Without one, mails wait.
    pub smtp: Option<Smtp>,
    pub limits: LimitConfig,
    pub plans: Vec<Plan>,
    pub deadlines: Deadlines,
    pub memory: Memory,
    pub background: Background,
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

/// How often background work looks for something to do, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    pub geo_every: Duration,
    pub quota_every: Duration,
    pub mail_every: Duration,
    /// For one mail, from the connection to the server's word that it has it.
    pub mail_attempt_max: Duration,
}

/// Text that must not be printed, and that is overwritten in memory when it is dropped. Whoever takes it apart makes a copy that is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

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
            metrics_apart: false,
            geo: None,
            smtp: None,
            limits: LimitConfig {
                connections_per_ip: 512,
                per_ip_rps: 100,
                live_rps: None,
                test_rps: 60,
                nodes: 1,
            },
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_secret_shows_nothing_wherever_it_stands() {
        let mut config = Config::at("http://x");
        config.operator_token = Some(Secret("hunter2".into()));
        config.smtp = Some(Smtp {
            relay: crate::mail::Relay::parse("smtp://u:hunter2@mail.example").unwrap(),
            from: crate::mail::Sender::parse("log@example.org").unwrap(),
        });
        for text in [format!("{config:?}"), format!("{config:#?}"), format!("{:?}", config.operator_token)] {
            assert!(text.contains("(secret)") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_secret_is_gone_from_memory_once_it_is_dropped() {
        // The memory that was freed, through the kernel's eyes: Rust does not let anyone look there. The allocator may have used a part of it again.
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let left_in = |address: usize| {
            let mut bytes = vec![0; 700];
            memory.read_exact_at(&mut bytes, address as u64).unwrap();
            bytes.windows(7).filter(|bytes| *bytes == b"hunter2").count()
        };
        let secret = Secret("hunter2".repeat(100));
        let address = secret.0.as_ptr() as usize;
        assert_eq!(left_in(address), 100);
        drop(secret);
        assert_eq!(left_in(address), 0);
    }
}
