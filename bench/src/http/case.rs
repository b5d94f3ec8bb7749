//! One case: Sealog and what stands beside it, in turn, as often as was asked for.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use super::load::{Load, Loaded, Pace};
use super::plan::{Beside, Case, PlannedPace};
use super::sealog::Sealog;
use super::source::{Requests, Send};
use crate::bare::BareLog;
use crate::outcome::Outcome;
use crate::peers::{Peer, Peers};
use crate::process::Process;
use crate::setting::{Setting, Slice};
use crate::side::Side;
use crate::stats::median;
use crate::store::append::single_request_bytes;

/// Connections of the tenant that sends without pause.
const NEIGHBOUR_CONNECTIONS: usize = 16;

#[derive(Debug)]
pub struct Repeat {
    pub sealog: Side,
    /// In the order of the case; why not, where it could not be measured.
    beside: Vec<(Beside, Result<Side, String>)>,
    /// The largest share that others took of any of them.
    pub others: f64,
}

impl Repeat {
    pub fn beside(&self, wanted: Beside) -> Option<&Side> {
        self.beside.iter().find(|(beside, _)| *beside == wanted)?.1.as_ref().ok()
    }

    pub fn refusal(&self, wanted: Beside) -> Option<&str> {
        self.beside.iter().find(|(beside, _)| *beside == wanted)?.1.as_ref().err().map(String::as_str)
    }
}

#[derive(Debug)]
pub struct Measured {
    pub case: Case,
    /// In the open loop.
    pub rate: Option<f64>,
    pub repeats: Vec<Repeat>,
}

impl Measured {
    /// The median of all repeats that have this number; 0 for none.
    pub fn median(&self, of: impl Fn(&Repeat) -> Option<f64>) -> f64 {
        median(self.repeats.iter().filter_map(of))
    }
}

/// A server's memory at the end of its cases.
#[derive(Debug)]
pub struct Memory {
    pub chains: usize,
    pub events: u64,
    pub resident_bytes: u64,
}

pub struct Bench<'a> {
    pub setting: &'a Setting,
    pub program: PathBuf,
    pub peers: Peers<'a>,
    /// The bare log, and the bytes of a single event in it.
    pub sync: Option<(BareLog, usize)>,
}

impl Bench<'_> {
    pub fn measure(
        &mut self,
        sealog: &mut Sealog,
        mut other: Option<&mut Sealog>,
        case: &Case,
    ) -> Outcome<Measured> {
        let name = case.name();
        let requests_of = |sealog: &mut Sealog| {
            // A tenant with a neighbour is the other one.
            let first_chain = if case.neighbour.is_some() { sealog.accounts.len() - 1 } else { 0 };
            let chains = if case.neighbour.is_some() { 1 } else { case.chains };
            Requests::new(sealog, &case.send, first_chain, chains, case.idempotency)
        };
        let mut requests = requests_of(sealog)?;
        let mut other_requests = other.as_deref_mut().map(requests_of).transpose()?;
        let bare = if case.beside.contains(&Beside::Bare) {
            Some(self.start_bare(sealog, &mut requests)?)
        } else {
            None
        };
        let pace = match case.pace {
            PlannedPace::Closed => Pace::Closed,
            PlannedPace::Rate(rate) => Pace::Open(rate),
            PlannedPace::Half => {
                self.setting.progress.say(&format!("{name}: looking for the full load"));
                let full =
                    self.drive(sealog, case, &mut requests, None, Pace::Closed, self.setting.slice / 2)?;
                Pace::Open(full.requests_per_s / 2.0)
            }
        };
        let mut repeats = Vec::new();
        for repeat in 0..self.setting.repeats {
            let say = |what: &str| format!("repeat {} of {}: {name}{what}", repeat + 1, self.setting.repeats);
            let mut sealog_side = None;
            let mut beside: Vec<Option<Slice<Result<Side, String>>>> =
                case.beside.iter().map(|_| None).collect();
            // Each goes first in turn, so that none always finds the machine as the same other left it.
            let sides = case.beside.len() + 1;
            for turn in 0..sides {
                match (turn + repeat) % sides {
                    0 => {
                        let neighbour = case.neighbour.as_ref();
                        sealog_side = Some(self.setting.quietly(&say(""), || {
                            self.drive(sealog, case, &mut requests, neighbour, pace, self.setting.slice)
                        })?);
                    }
                    at if matches!(case.beside[at - 1], Beside::Other | Beside::Plain) => {
                        let (Some(other), Some(requests)) = (other.as_deref_mut(), &mut other_requests)
                        else {
                            return Err("no other build was given: --compare FILE".into());
                        };
                        let neighbour = case.neighbour.as_ref();
                        let slice = self.setting.quietly(&say(", the other server"), || {
                            self.drive(other, case, requests, neighbour, pace, self.setting.slice)
                        })?;
                        beside[at - 1] = Some(Slice { value: Ok(slice.value), others: slice.others });
                    }
                    at => {
                        let side = case.beside[at - 1];
                        let slice =
                            self.beside(sealog, case, side, &mut requests, bare.as_ref(), pace, &say)?;
                        beside[at - 1] = Some(slice);
                    }
                }
            }
            let sealog_side = sealog_side.ok_or("a repeat has every side")?;
            let beside: Vec<_> = case.beside.iter().copied().zip(beside.into_iter().flatten()).collect();
            let others = beside.iter().map(|(_, slice)| slice.others).fold(sealog_side.others, f64::max);
            repeats.push(Repeat {
                sealog: sealog_side.value,
                beside: beside.into_iter().map(|(side, slice)| (side, slice.value)).collect(),
                others,
            });
        }
        let rate = match pace {
            Pace::Open(rate) => Some(rate),
            Pace::Closed => None,
        };
        Ok(Measured { case: case.clone(), rate, repeats })
    }

    /// Checks that everything that was acknowledged is there, and stops the server. Its memory, where it
    /// keeps the events itself.
    pub fn retire(&self, mut sealog: Sealog) -> Outcome<Option<Memory>> {
        self.setting.progress.say("looking for every acknowledged event");
        sealog.check(0)?;
        let memory = (!sealog.is_on_postgres()).then(|| Memory {
            chains: sealog.accounts.len() - 1,
            events: sealog.events(),
            resident_bytes: sealog.process().resident_bytes(),
        });
        let dir = sealog.dir().to_owned();
        sealog.stop()?;
        std::fs::remove_dir_all(dir)?;
        Ok(memory)
    }

    #[allow(clippy::too_many_arguments, reason = "all of them change from call to call")]
    fn beside(
        &mut self,
        sealog: &mut Sealog,
        case: &Case,
        side: Beside,
        requests: &mut Requests,
        bare: Option<&(Process, SocketAddr)>,
        pace: Pace,
        say: &dyn Fn(&str) -> String,
    ) -> Outcome<Slice<Result<Side, String>>> {
        let setting = self.setting;
        let measured = |slice: Slice<Side>| Slice { value: Ok(slice.value), others: slice.others };
        let batch = usize::try_from(case.send.events())?.max(1);
        let peer = match side {
            Beside::Bare => {
                let (process, address) = bare.ok_or("the bare server was not started")?;
                let slice = setting.quietly(&say(", bare hyper server"), || {
                    let tick =
                        |text: &str| setting.progress.say(&say(&format!(", bare hyper server: {text}")));
                    let (loaded, cpu, _) = load(
                        (&[*address], None),
                        case.connections,
                        pace,
                        setting.slice,
                        requests,
                        &|| (process.cpu(), 0),
                        None,
                        &tick,
                    )?;
                    Side::of_load(&loaded, cpu, 0)
                })?;
                return Ok(measured(slice));
            }
            Beside::Sync => {
                let (log, bytes) = match &mut self.sync {
                    Some(sync) => sync,
                    none => {
                        let bytes = single_request_bytes(setting)?;
                        let file_bytes = if setting.quick { 16 << 20 } else { 256 << 20 };
                        none.insert((
                            BareLog::create(&setting.dir.join("bare.log"), file_bytes, bytes)?,
                            bytes,
                        ))
                    }
                };
                let slice = setting.quietly(&say(", bare pwrite + fdatasync"), || {
                    log.append(*bytes, 1, setting.slice / 10)?;
                    Side::of_run(&log.append(*bytes, 1, setting.slice)?)
                })?;
                return Ok(measured(slice));
            }
            Beside::Alone => {
                let slice = setting.quietly(&say(", without the neighbour"), || {
                    self.drive(sealog, case, requests, None, pace, setting.slice)
                })?;
                return Ok(measured(slice));
            }
            Beside::OneNode => {
                let slice = setting.quietly(&say(", one node"), || {
                    self.drive_nodes(sealog, 1, case, requests, None, pace, setting.slice)
                })?;
                return Ok(measured(slice));
            }
            Beside::Trigger => Peer::Trigger { batch, connections: case.connections },
            Beside::Copy => Peer::Copy { group: 100 },
            Beside::LargeCopy => Peer::Copy { group: 1000 },
            Beside::SameTable => Peer::SameTable { group: 1000 },
            Beside::Quipu => Peer::Quipu { connections: case.connections },
            Beside::Other | Beside::Plain => {
                return Err("another server has requests of its own".into());
            }
        };
        let what = say(&format!(", {}", peer.name()));
        let peers = &mut self.peers;
        match peers.ready(&peer) {
            Err(refusal) => Ok(Slice { value: Err(refusal), others: 0.0 }),
            // What fails in a peer is said in its row, and is no reason to lose everything else.
            Ok(()) => setting.quietly(&what, || Ok(peers.run(&peer).map_err(|error| error.to_string()))),
        }
    }

    /// A server that gives the answer that Sealog gave to one of these requests.
    fn start_bare(&self, sealog: &mut Sealog, requests: &mut Requests) -> Outcome<(Process, SocketAddr)> {
        let (request, adds) = requests.sample();
        let answer = sealog.client()?.raw(&request)?;
        if !answer.starts_with("HTTP/1.1 20") {
            return Err(format!("the server does not take the request: {answer}").into());
        }
        sealog.acknowledge(&adds);
        let path = self.setting.dir.join("answer.http");
        std::fs::write(&path, answer)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare-http").arg(&path);
        Process::start("bare-http", command, |line| line.strip_prefix("listening on ")?.trim().parse().ok())
    }

    fn drive(
        &self,
        sealog: &mut Sealog,
        case: &Case,
        requests: &mut Requests,
        neighbour: Option<&Send>,
        pace: Pace,
        limit: Duration,
    ) -> Outcome<Side> {
        self.drive_nodes(sealog, case.nodes, case, requests, neighbour, pace, limit)
    }

    /// Drives only the first of the nodes, or more of them.
    #[allow(clippy::too_many_arguments, reason = "all of them change from call to call")]
    fn drive_nodes(
        &self,
        sealog: &mut Sealog,
        nodes: usize,
        case: &Case,
        requests: &mut Requests,
        neighbour: Option<&Send>,
        pace: Pace,
        limit: Duration,
    ) -> Outcome<Side> {
        let name = case.name();
        let tick = |text: &str| self.setting.progress.say(&format!("{name}: {text}"));
        let (addresses, tls) = (&sealog.addresses()[..nodes], sealog.tls());
        let parts = RefCell::new(Vec::new());
        let counters = || {
            parts.borrow_mut().push(sealog.parts());
            sealog.counters()
        };
        let over = AtomicBool::new(false);
        let (outcome, noise) = std::thread::scope(|scope| -> Outcome<_> {
            let noise = match neighbour {
                None => None,
                Some(send) => {
                    let mut source = Requests::new(sealog, send, 0, 1, false)?;
                    let over = &over;
                    Some(scope.spawn(move || {
                        let limit = Duration::from_secs(3600);
                        let noise = load(
                            (addresses, tls),
                            NEIGHBOUR_CONNECTIONS,
                            Pace::Closed,
                            limit,
                            &mut source,
                            &|| (Duration::ZERO, 0),
                            Some(over),
                            &|_| {},
                        );
                        noise.map_err(|error| error.to_string())
                    }))
                }
            };
            let outcome =
                load((addresses, tls), case.connections, pace, limit, requests, &counters, None, &tick);
            over.store(true, Ordering::Relaxed);
            let noise = match noise {
                None => None,
                Some(thread) => Some(thread.join().map_err(|_| "the neighbour panicked")??.0),
            };
            Ok((outcome?, noise))
        })?;
        let (loaded, cpu, device_bytes) = outcome;
        sealog.acknowledge(&loaded);
        let mut side = Side::of_load(&loaded, cpu, device_bytes)?;
        if let [before, after] = &parts.into_inner()[..] {
            let us = |(before, after): (&(String, Duration), &(String, Duration))| {
                (
                    after.0.clone(),
                    (after.1.saturating_sub(before.1)).as_secs_f64() * 1e6 / loaded.events as f64,
                )
            };
            side.parts_us = before.iter().zip(after).map(us).collect();
        }
        if let Some(noise) = noise {
            sealog.acknowledge(&noise);
            if noise.acknowledged.iter().sum::<u64>() == 0 || !noise.errors.is_empty() {
                side.errors = Some(format!("the neighbour was not served: {}", noise.first_error));
            }
        }
        Ok(side)
    }
}

/// Drives a server for this long after a warm-up; also returns its CPU time and device bytes.
#[allow(clippy::too_many_arguments, reason = "all of them change from call to call")]
pub fn load(
    (addresses, tls): (&[SocketAddr], Option<&Arc<ClientConfig>>),
    connections: usize,
    pace: Pace,
    limit: Duration,
    requests: &mut Requests,
    counters: &dyn Fn() -> (Duration, u64),
    stop: Option<&AtomicBool>,
    tick: &dyn Fn(&str),
) -> Outcome<(Loaded, Duration, u64)> {
    let warm_up = (limit / 5).min(Duration::from_secs(1));
    let load =
        Load { addresses, tls, connections, pace, warm_up, limit, busy: None, stop, tally: None, tick };
    let mut marks = Vec::new();
    let loaded = load.run(requests, &mut || marks.push(counters()))?;
    match marks[..] {
        [(cpu, bytes), (cpu_after, bytes_after)] => {
            Ok((loaded, cpu_after.saturating_sub(cpu), bytes_after.saturating_sub(bytes)))
        }
        _ => Err("a run has a beginning and an end".into()),
    }
}
