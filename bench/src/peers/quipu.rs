//! quipu-server: the closest open-source peer. Its 202 means that an event is queued, so the clock stops only
//! when its flush returns.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::json;

use crate::driver::Run;
use crate::http::client::Client;
use crate::http::load::{Load, Loaded, Pace, Request, Source};
use crate::outcome::Outcome;
use crate::process::{Process, free_port};
use crate::side::Side;
use crate::workload;

const TOKEN: &str = "token-of-the-benchmark";
const POOL: u64 = 4096;
/// Its answer when its queue is full: come again.
const BUSY: u16 = 503;

#[derive(Debug)]
pub struct Quipu {
    program: PathBuf,
    dir: PathBuf,
    loss: Loss,
}

/// What a `kill -9` left of what had been answered.
#[derive(Clone, Copy, Debug)]
struct Loss {
    flushed: u64,
    queued: u64,
    found: u64,
}

impl Quipu {
    /// Starts one and kills it, to see what it means when it says yes.
    pub fn create(dir: PathBuf, program: PathBuf) -> Outcome<Quipu> {
        let mut quipu = Quipu { program, dir, loss: Loss { flushed: 0, queued: 0, found: 0 } };
        let (process, address) = quipu.start(true)?;
        let mut client = Client::connect(address, TOKEN)?;
        let before = load(address, 16, Duration::from_millis(500))?;
        client.ask("POST", "/v1/admin/flush", "", 204)?;
        let after = load(address, 16, Duration::from_millis(500))?;
        process.kill()?;
        let (process, address) = quipu.start(false)?;
        let answer = Client::connect(address, TOKEN)?.ask("POST", "/v1/logs/count", "{}", 200)?;
        let found = answer["count"].as_u64().ok_or_else(|| format!("no count in {answer}"))?;
        process.stop_with(Signal::INT)?;
        quipu.loss = Loss { flushed: events(&before), queued: events(&after), found };
        Ok(quipu)
    }

    pub fn keeps_what_it_flushed(&self) -> Result<(), String> {
        let Loss { flushed, found, .. } = self.loss;
        if found >= flushed {
            return Ok(());
        }
        Err(format!("of {flushed} events that it had flushed, {found} were there after kill -9"))
    }

    pub fn describe(&self) -> String {
        let Loss { flushed, queued, found } = self.loss;
        format!(
            "quipu-server with sync_policy always, its numbers up to the return of its flush; of {} events that it had answered with 202, {flushed} of them flushed, {found} were there after kill -9",
            flushed + queued
        )
    }

    /// Many connections with one event after the other, then a flush; its queue is bounded, and what it
    /// refused is not counted.
    pub fn run(&mut self, connections: usize, limit: Duration) -> Outcome<Side> {
        let (process, address) = self.start(true)?;
        let mut client = Client::connect(address, TOKEN)?;
        let (start, cpu) = (Instant::now(), process.cpu());
        let loaded = load(address, connections, limit)?;
        client.ask("POST", "/v1/admin/flush", "", 204)?;
        let run = Run {
            requests: events(&loaded),
            events: events(&loaded),
            elapsed: start.elapsed(),
            cpu: process.cpu().saturating_sub(cpu),
            latencies_ns: loaded.latencies_ns.clone(),
        };
        let answer = client.ask("POST", "/v1/logs/count", "{}", 200)?;
        let count = answer["count"].as_u64().unwrap_or(0);
        if count != run.events {
            return Err(format!("quipu-server acknowledged {} events and has {count}", run.events).into());
        }
        process.stop_with(Signal::INT)?;
        Side::of_run(&run)
    }

    fn start(&self, empty: bool) -> Outcome<(Process, SocketAddr)> {
        let root = self.dir.join("data");
        if empty && self.dir.exists() {
            std::fs::remove_dir_all(&self.dir)?;
        }
        std::fs::create_dir_all(&root)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        std::fs::write(self.dir.join("hmac.key"), [7; 32])?;
        let config = json!({
            "listen": address.to_string(),
            "store": { "root": root, "sync_policy": "always" },
            "keys": { "hmac_key_file": self.dir.join("hmac.key") },
            "auth": { "tokens": { TOKEN: "bench" }, "grants": { "bench": ["emit", "query", "administer"] } },
        });
        let path = self.dir.join("config.json");
        std::fs::write(&path, config.to_string())?;
        let mut command = Command::new(&self.program);
        let process = Process::spawn("quipu-server", command.arg(&path).stderr(Stdio::null()))?;
        let start = Instant::now();
        let mut client = loop {
            match Client::connect(address, TOKEN) {
                Ok(client) => break client,
                Err(error) if start.elapsed() > Duration::from_secs(20) => {
                    return Err(format!("quipu-server does not listen: {error}").into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if empty {
            client.ask(
                "POST",
                "/v1/types",
                &json!({ "type_name": "user", "fields": [] }).to_string(),
                204,
            )?;
        }
        Ok((process, address))
    }
}

fn events(loaded: &Loaded) -> u64 {
    loaded.acknowledged.iter().sum()
}

fn load(address: SocketAddr, connections: usize, limit: Duration) -> Outcome<Loaded> {
    let load = Load {
        tls: None,
        addresses: &[address],
        connections,
        pace: Pace::Closed,
        warm_up: Duration::ZERO,
        limit,
        busy: Some(BUSY),
        stop: None,
        tally: None,
        tick: &|_| {},
    };
    let loaded = load.run(&mut Logs::new(), &mut || {})?;
    match loaded.errors.is_empty() {
        true => Ok(loaded),
        false => Err(format!("quipu-server: {}", loaded.first_error).into()),
    }
}

/// The events of the workload, as quipu-server takes them.
struct Logs {
    requests: Vec<Bytes>,
    at: usize,
}

impl Logs {
    fn new() -> Logs {
        let requests = (0..POOL).map(|n| {
            let keys = workload::keys(n);
            let plain = |text: &str| text.trim_matches('"').to_owned();
            let body = json!({
                "actor_type": "user", "actor": { "entity_id": plain(&keys.actor_id), "fields": {} },
                "method": plain(&keys.action), "url": plain(&keys.resource), "content": { "Json": workload::metadata(n) },
            });
            Bytes::from(crate::http::client::request("POST", "/v1/logs", TOKEN, &body.to_string()))
        });
        Logs { requests: requests.collect(), at: 0 }
    }
}

impl Source for Logs {
    fn next(&mut self) -> Request {
        self.at = (self.at + 1) % self.requests.len();
        let parts = [self.requests[self.at].clone(), Bytes::new(), Bytes::new()];
        Request { parts, events: 1, chain: 0, expected: 202 }
    }
}
