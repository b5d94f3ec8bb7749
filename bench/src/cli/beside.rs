//! Commands that follow a service while it takes events: how far behind they are when the events end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::case::load;
use crate::http::load::Pace;
use crate::http::sealog::{Sealog, TOKEN};
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, doubt};
use crate::side::Side;
use crate::stats::{Spread, median};

/// Of the rate at which the service takes batches, what is sent beside a command.
const SHARE: f64 = 0.5;
/// How far behind a command may be, in seconds.
const BEHIND_MAX_S: f64 = 2.0;
/// Below this part of what was meant to be sent, nothing is said of a command: the machine was too small for
/// all of them.
const SENT_MIN: f64 = 0.9;
/// Slices of ingest: enough for a command that is a little too slow to fall behind by more than it may.
const SLICES: u32 = 3;
/// A command that does not come to the end by then never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// The commands that are measured.
pub const FOLLOWERS: [Follower; 2] = [Follower::Follow, Follower::Replicate];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follower {
    Follow,
    Replicate,
    /// The same of a server on PostgreSQL, by its database.
    ReplicateDatabase,
}

impl Follower {
    pub fn name(self) -> &'static str {
        match self {
            Follower::Follow => "`sealog follow` into a file",
            Follower::Replicate => "`sealog replicate`",
            Follower::ReplicateDatabase => "`sealog replicate` of a database",
        }
    }

    fn command(self, program: &Path, sealog: &Sealog, dir: &Path) -> Command {
        let mut command = client(program, sealog.addresses()[0], &sealog.accounts[0].key);
        match self {
            Follower::Follow => {
                command.args(["follow", "--new", "--quiet", "--output"]).arg(dir.join("out"));
            }
            Follower::Replicate => {
                let url = format!("http://{}", sealog.addresses()[0]);
                command.args(["replicate", "--quiet", "--from", &url, "--to"]).arg(dir.join("copy"));
                command.arg("--status").arg(self.report(dir)).env("SEALOG_OPERATOR_TOKEN", TOKEN);
            }
            Follower::ReplicateDatabase => {
                let url = sealog.store_url().unwrap_or_default();
                command.args(["replicate", "--quiet", "--from", url, "--to"]).arg(dir.join("copy"));
                command.arg("--status").arg(self.report(dir));
            }
        }
        command
    }

    /// The file in which it says how far it is.
    fn report(self, dir: &Path) -> PathBuf {
        match self {
            Follower::Follow => dir.join("out.cursor"),
            Follower::Replicate | Follower::ReplicateDatabase => dir.join("status.json"),
        }
    }

    /// How far it is; nothing until it says so.
    fn place(self, dir: &Path) -> Option<u64> {
        let report: Value = serde_json::from_slice(&std::fs::read(self.report(dir)).ok()?).ok()?;
        match self {
            Follower::Follow => report["position"]["seq"].as_u64(),
            Follower::Replicate => report["head"]["live"].as_u64(),
            Follower::ReplicateDatabase => report["events"].as_u64(),
        }
    }

    /// How far the service is, in the same measure.
    fn head(self, sealog: &Sealog) -> Outcome<u64> {
        let mut client = sealog.client()?;
        let head = match self {
            Follower::Follow => {
                let key = &sealog.accounts[0].key;
                let newest = client.with_token(key).ask("GET", "/v1/events?limit=1", "", 200)?;
                newest["events"][0]["chain_seq"].as_u64()
            }
            Follower::Replicate => {
                let path = "/operator/v1/replication/moment";
                let moment = client.with_token(TOKEN).ask("GET", path, "", 200)?;
                let mut logs = moment["logs"].as_array().into_iter().flatten();
                logs.find(|log| log["mode"] == "live").and_then(|log| log["commit"].as_u64())
            }
            Follower::ReplicateDatabase => Some(events_in(sealog.store_url().unwrap_or_default())?),
        };
        Ok(head.ok_or("the service does not say how far it is")?)
    }

    fn wait_for(self, dir: &Path, head: u64) -> Outcome<()> {
        let start = Instant::now();
        while self.place(dir).is_none_or(|place| place < head) {
            if start.elapsed() > PATIENCE {
                return Err(format!("{} is at {:?} of {head}", self.name(), self.place(dir)).into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Starts it, waits until it has what is there, sends events, and waits until it has these.
    pub fn measure(
        self,
        setting: &Setting,
        program: &Path,
        sealog: &mut Sealog,
        connections: usize,
        batches: f64,
    ) -> Outcome<Beside> {
        let dir = setting.dir.join(format!("{self:?}"));
        if self == Follower::Follow {
            // A copy goes on from where it was; a file is begun anew, for the room that it takes.
            let _ = std::fs::remove_dir_all(&dir);
        }
        std::fs::create_dir_all(&dir)?;
        // A chain without events says not even whose it is.
        let (request, adds) = Requests::new(sealog, &Send::Batch, 0, 1, true)?.sample();
        let answer = sealog.client()?.raw(&request)?;
        if !answer.starts_with("HTTP/1.1 202") {
            return Err(format!("the server does not take a batch: {answer}").into());
        }
        sealog.acknowledge(&adds);
        let process = Process::spawn("sealog", &mut self.command(program, sealog, &dir))?;
        self.wait_for(&dir, self.head(sealog)?)?;
        let mut requests = Requests::new(sealog, &Send::Batch, 0, 1, true)?;
        let counters = || sealog.counters();
        let pace = Pace::Open(batches * SHARE / f64::from(Send::Batch.events()));
        let (start, length) = (Instant::now(), setting.slice * SLICES);
        let (loaded, cpu, bytes) = load(
            (sealog.addresses(), None),
            connections,
            pace,
            length,
            &mut requests,
            &counters,
            None,
            &|_| {},
        )?;
        let (sending_s, end) = (start.elapsed().as_secs_f64(), Instant::now());
        self.wait_for(&dir, self.head(sealog)?)?;
        let behind_s = end.elapsed().as_secs_f64();
        // Any moment will do: what it has is kept.
        process.kill()?;
        sealog.acknowledge(&loaded);
        let sent = loaded.acknowledged.iter().sum::<u64>() as f64 / sending_s;
        Ok(Beside { ingest: Side::of_load(&loaded, cpu, bytes)?, batches, sent, sending_s, behind_s })
    }
}

/// Events of all chains.
fn events_in(url: &str) -> Outcome<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let sql = "SELECT coalesce(sum(chain_seq), 0)::bigint FROM sealog.chains";
        let events: i64 = client.query_one(sql, &[]).await?.get(0);
        Ok(u64::try_from(events)?)
    })
}

/// A command beside ingest.
#[derive(Debug)]
pub struct Beside {
    ingest: Side,
    /// Events/s of the service by itself.
    batches: f64,
    /// Events/s that were sent beside the command, and for how long, the warm-up included.
    sent: f64,
    sending_s: f64,
    /// From the last answer until the command had everything.
    behind_s: f64,
}

pub fn section(measured: &[(Follower, Vec<(Beside, f64)>)]) -> Section {
    Section {
        name: "Beside ingest at half of the batch rate",
        ratio_of: "events/s of the command, until it has the last one, to those of ingest; the target is for the seconds that it is behind when ingest ends",
        rows: measured.iter().map(|(follower, repeats)| row(*follower, repeats)).collect(),
    }
}

fn row(follower: Follower, repeats: &[(Beside, f64)]) -> Row {
    let of = |value: &dyn Fn(&Beside) -> f64| median(repeats.iter().map(|(beside, _)| value(beside)));
    let behind_s = of(&|beside| beside.behind_s);
    let wrong = repeats.iter().find_map(|(beside, _)| beside.ingest.errors.clone());
    let share = of(&|beside| beside.sent / beside.batches);
    let too_few = (share < SENT_MIN * SHARE)
        .then(|| format!("ingest came to {} of the batch rate only", number(share)));
    Row {
        what: format!("{} beside ingest", follower.name()),
        ratio: Spread::of(
            repeats.iter().map(|(beside, _)| beside.sending_s / (beside.sending_s + beside.behind_s)),
        ),
        target: Some((Target::AtMost(BEHIND_MAX_S, " s"), behind_s)),
        doubt: wrong.or(too_few).or_else(|| doubt(repeats.iter().map(|(_, others)| *others))),
        sealog: format!("{} s behind at the end", number(behind_s)),
        beside: format!(
            "{} events/s, p99 {} ms",
            number(of(&|beside| beside.sent)),
            number(of(&|beside| beside.ingest.us.p99 / 1e3))
        ),
        json: json!({
            "repeats": repeats.iter().map(|(beside, _)| json!({
                "behind_s": beside.behind_s, "sending_s": beside.sending_s, "sent_events_per_s": beside.sent,
                "batch_events_per_s": beside.batches, "ingest": beside.ingest.json(),
            })).collect::<Vec<_>>(),
        }),
    }
}

/// A command that knows nothing but the service and its key.
pub fn client(program: &Path, address: SocketAddr, key: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEALOG_")) {
        command.env_remove(name);
    }
    command.env("SEALOG_URL", format!("http://{address}")).env("SEALOG_API_KEY", key).stdout(Stdio::null());
    command
}
