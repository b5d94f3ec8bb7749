//! What is sent: requests that are written once, before the clock starts, and sent again and again.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sealog_core::query::{Filter, encode_cursor};
use sealog_core::time::{DAY_MS, iso_ms};
use serde::Deserialize;

use super::client::request;
use super::load::{Loaded, Request, Source};
use super::sealog::{Account, Sealog};
use crate::outcome::Outcome;
use crate::store::reads::LISTS;
use crate::workload::{self, Dice};

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Send {
    /// `POST /v1/events`
    Single,
    /// `POST /v1/events/batch` with 100 events
    Batch,
    /// The same with two megabytes, the largest that is accepted
    LargestBatch,
    /// Of ten requests eight are single events, one lists and one reads an event
    Mixed,
    /// `GET /v1/events` with filters, by their name among the store's reads
    List(String),
    /// `GET /v1/events/{log_id}`
    Read,
    /// `GET /tlog/v1/chain/proof`, of a random event
    Proof,
    /// `GET /v1/events/verify`: 1000 events at a random place
    Verify,
}

impl Send {
    pub fn name(&self) -> String {
        match self {
            Send::Single => "single POST".into(),
            Send::Batch => "batch of 100".into(),
            Send::LargestBatch => "batch of 100 with 2 MB".into(),
            Send::Mixed => "80 % single POST, 10 % list, 10 % point read".into(),
            Send::List(filter) => format!("list: {filter}"),
            Send::Read => "one event by log_id".into(),
            Send::Proof => "proof of one event".into(),
            Send::Verify => "verify 1000 events".into(),
        }
    }

    /// Events in a request.
    pub fn events(&self) -> u32 {
        match self {
            Send::Single | Send::Mixed => 1,
            Send::Batch | Send::LargestBatch => 100,
            _ => 0,
        }
    }
}

const SINGLES: u64 = 4096;
const BATCHES: u64 = 64;
const BATCH: u64 = 100;
/// Below 2,097,152 by what the frame around the events takes.
const LARGEST_METADATA_BYTES: usize = 20_500;
const READS: usize = 2048;

/// Idempotency keys that were given out, so that none is used twice in a run.
static KEYS: AtomicU64 = AtomicU64::new(0);

/// Requests for some chains of a server.
#[derive(Debug)]
pub struct Requests {
    /// Up to the idempotency key, for each chain.
    heads: Vec<Bytes>,
    /// The number of the first of them among the server's.
    first_chain: usize,
    /// From the length on.
    tails: Vec<Bytes>,
    /// Whole requests that only read.
    reads: Vec<Bytes>,
    send: Send,
    idempotency: bool,
    sent: u64,
    dice: Dice,
}

impl Requests {
    /// For chains `first_chain` to `first_chain + chains - 1` of this server.
    pub fn new(
        sealog: &Sealog,
        send: &Send,
        first_chain: usize,
        chains: usize,
        idempotency: bool,
    ) -> Outcome<Requests> {
        let accounts = &sealog.accounts[first_chain..first_chain + chains];
        let path = if *send == Send::Batch || *send == Send::LargestBatch {
            "/v1/events/batch"
        } else {
            "/v1/events"
        };
        let head = |account: &Account| {
            let key = &account.key;
            Bytes::from(format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
            ))
        };
        let tail = |body: String| Bytes::from(format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let tails = match send {
            Send::Single | Send::Mixed => (0..SINGLES).map(|n| tail(workload::body(n))).collect(),
            Send::Batch => (0..BATCHES).map(|n| tail(batch(n, &workload::body))).collect(),
            Send::LargestBatch => (0..2).map(|n| tail(batch(n, &large_body))).collect(),
            Send::List(_) | Send::Read | Send::Proof | Send::Verify => Vec::new(),
        };
        Ok(Requests {
            heads: accounts.iter().map(head).collect(),
            first_chain,
            tails,
            reads: reads(sealog, send, first_chain, chains)?,
            send: send.clone(),
            idempotency,
            sent: 0,
            dice: Dice::new(first_chain as u64),
        })
    }

    /// One of these requests, whole, and what it adds when it is accepted.
    pub fn sample(&mut self) -> (Vec<u8>, Loaded) {
        let request = self.next();
        let mut loaded = Loaded { acknowledged: vec![0; request.chain + 1], ..Loaded::default() };
        loaded.acknowledged[request.chain] = request.events.into();
        (request.parts.concat(), loaded)
    }
}

impl Source for Requests {
    fn next(&mut self) -> Request {
        self.sent += 1;
        let at = |length: usize, n: u64| usize::try_from(n % length as u64).unwrap_or(0);
        let reads = match self.send {
            Send::Single | Send::Batch | Send::LargestBatch => false,
            Send::Mixed => self.sent % 10 < 2,
            Send::List(_) | Send::Read | Send::Proof | Send::Verify => true,
        };
        if reads {
            // Half of the pool lists and half reads where both are mixed; neighbours in it are of the same
            // kind.
            let n = if self.send == Send::Mixed { self.sent / 10 * 2 + self.sent % 10 } else { self.sent };
            let parts = [self.reads[at(self.reads.len(), n)].clone(), Bytes::new(), Bytes::new()];
            return Request { parts, events: 0, chain: self.first_chain, expected: 200 };
        }
        let chain = match self.heads.len() {
            1 => 0,
            chains => at(chains, self.dice.below(chains as u64)),
        };
        let key = if self.idempotency {
            let key = KEYS.fetch_add(1, Ordering::Relaxed);
            Bytes::from(format!("Idempotency-Key: {:016x}-{key:016x}\r\n", workload::mix(key)))
        } else {
            Bytes::new()
        };
        let tail = self.tails[at(self.tails.len(), self.sent)].clone();
        Request {
            parts: [self.heads[chain].clone(), key, tail],
            events: self.send.events(),
            chain: self.first_chain + chain,
            expected: 202,
        }
    }
}

fn batch(n: u64, body: &dyn Fn(u64) -> String) -> String {
    let events: Vec<String> = (n * BATCH..(n + 1) * BATCH).map(body).collect();
    format!("{{\"events\":[{}]}}", events.join(","))
}

fn large_body(n: u64) -> String {
    let mut filling = String::new();
    while filling.len() < LARGEST_METADATA_BYTES {
        let _ = write!(filling, "{:016x}", workload::mix(n ^ filling.len() as u64));
    }
    let workload::Keys { action, actor_id, resource } = workload::keys(n);
    format!(
        "{{\"action\":{action},\"actor_id\":{actor_id},\"resource\":{resource},\"metadata\":{{\"snapshot\":\"{filling}\"}}}}"
    )
}

/// Of chains that have been filled.
fn reads(sealog: &Sealog, send: &Send, first_chain: usize, chains: usize) -> Outcome<Vec<Bytes>> {
    let accounts = &sealog.accounts[first_chain..first_chain + chains.min(100)];
    let mut client = sealog.client()?;
    let mut dice = Dice::new(1);
    let mut heads = Vec::new();
    if matches!(send, Send::Read | Send::Proof | Send::Verify | Send::List(_) | Send::Mixed) {
        for account in accounts {
            let newest = client.with_token(&account.key).ask("GET", "/v1/events?limit=1", "", 200)?;
            heads.push(newest["events"][0]["chain_seq"].as_u64().ok_or("a chain without events is read")?);
        }
    }
    let mut paths = Vec::new();
    match send {
        Send::Single | Send::Batch | Send::LargestBatch => {}
        Send::Verify => {
            for at in 0..READS {
                let (account, head) = (at % accounts.len(), heads[at % accounts.len()]);
                let from_seq = dice.below(head.saturating_sub(999).max(1)) + 1;
                paths.push((account, format!("/v1/events/verify?from_seq={from_seq}")));
            }
        }
        Send::Proof => {
            for at in 0..READS {
                let account = at % accounts.len();
                let seq = dice.below(heads[account]) + 1;
                paths.push((account, format!("/tlog/v1/chain/proof?seq={seq}")));
            }
        }
        Send::List(name) => {
            let (_, ask) = LISTS.iter().find(|(own, _)| own == name).ok_or_else(|| {
                let names = LISTS.map(|(name, _)| name).join("\", \"");
                format!("there is no list {name:?}, but \"{names}\"")
            })?;
            for at in 0..READS {
                let (account, head) = (at % accounts.len(), heads[at % accounts.len()]);
                let (filter, before_seq) = ask(&mut dice, head);
                let mut query = query(&filter);
                if let Some(seq) = before_seq {
                    query.push(("cursor", encode_cursor(seq, accounts[account].chain)));
                }
                paths.push((account, path(&query)));
            }
        }
        Send::Read | Send::Mixed => {
            let pages = 40;
            for page in 0..pages {
                let account = page % accounts.len();
                let seq = dice.below(heads[account]) + 1;
                let cursor = encode_cursor(seq + 1, accounts[account].chain);
                let list = format!("/v1/events?cursor={cursor}");
                let events = client.with_token(&accounts[account].key).ask("GET", &list, "", 200)?;
                for event in events["events"].as_array().into_iter().flatten() {
                    let log_id = event["log_id"].as_str().ok_or("an event without an id")?;
                    paths.push((account, format!("/v1/events/{log_id}")));
                    if *send == Send::Mixed {
                        paths.push((account, "/v1/events".to_owned()));
                    }
                }
            }
        }
    }
    let request =
        |(account, path): &(usize, String)| Bytes::from(request("GET", path, &accounts[*account].key, ""));
    Ok(paths.iter().map(request).collect())
}

fn path(query: &[(&str, String)]) -> String {
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if query.is_empty() { "/v1/events".to_owned() } else { format!("/v1/events?{}", query.join("&")) }
}

/// The workload's values are letters, digits and a few signs that a query may hold as they are.
fn query(filter: &Filter) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    for (name, value) in
        [("action", &filter.action), ("actor_id", &filter.actor_id), ("resource", &filter.resource)]
    {
        query.extend(value.as_ref().map(|value| (name, value.trim_matches('"').to_owned())));
    }
    let date = |ms: u64| iso_ms(ms)[..10].to_owned();
    query.extend(filter.from_ms.map(|ms| ("date_from", date(ms))));
    query.extend(filter.until_ms.map(|ms| ("date_to", date(ms - DAY_MS))));
    query
}
