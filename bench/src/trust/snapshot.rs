//! A snapshot of many chains that all got an event since the one before: its CPU time, what a POST beside it
//! notices, and the memory of the server.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::server::{Environment, OFF, PATIENCE, restart};
use crate::http::case::load;
use crate::http::load::{Loaded, Pace};
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::report::{Row, Target, number};
use crate::setting::{Setting, doubt};
use crate::side::Side;
use crate::stats::{Spread, median};

/// Long enough for an event to each chain between two snapshots.
const SELDOM: Environment = &[("SEALOG_TRUST_INTERVAL_S", "10")];
const SELDOM_S: u64 = 10;
const QUICK: Environment = &[("SEALOG_TRUST_INTERVAL_S", "2")];
const QUICK_S: u64 = 2;

/// POSTs a second beside a snapshot: far from what the machine can do.
const RATE: f64 = 500.0;
const CONNECTIONS: usize = 4;
/// Clients that give each chain its event.
const WRITERS: usize = 4;

const CPU_S: f64 = 1.0;
const P99: f64 = 1.5;
const MEMORY_MB: f64 = 64.0;

pub fn rows(setting: &Setting, program: &Path, chains: usize) -> Outcome<Vec<Row>> {
    let (environment, interval_s) = if setting.quick { (QUICK, QUICK_S) } else { (SELDOM, SELDOM_S) };
    let interval = Duration::from_secs(interval_s);
    let mut sealog = Sealog::create_with(setting, program, "many", chains, environment)?;
    let (mut cpu_s, mut p99_us, mut others) = (Vec::new(), Vec::new(), [0f64; 2]);
    for repeat in 1..=setting.repeats {
        let name = |what: &str| format!("repeat {repeat} of {}: {what}", setting.repeats);
        let slice = setting.quietly(&name("a snapshot"), || snapshot(setting, &mut sealog))?;
        others[0] = others[0].max(slice.others);
        cpu_s.push(slice.value);
        let slice = setting.quietly(&name("POSTs beside a snapshot"), || {
            next_snapshot(&sealog)?;
            let idle = posts(&mut sealog, interval)?;
            an_event_for_each(setting, &mut sealog)?;
            Ok((idle, posts(&mut sealog, interval)?))
        })?;
        others[1] = others[1].max(slice.others);
        p99_us.push(slice.value);
    }
    let memory = memory(setting, &mut sealog, environment)?;
    sealog.retire()?;
    let cpu = Spread::of(cpu_s.iter().copied()).ok_or("there is a repeat")?;
    let ratio = Spread::of(p99_us.iter().map(|(idle, busy)| busy.us.p99 / idle.us.p99));
    let wrong = p99_us.iter().find_map(|(idle, busy)| idle.errors.clone().or_else(|| busy.errors.clone()));
    let of = |of: &dyn Fn(&(Side, Side)) -> f64| number(median(p99_us.iter().map(of)));
    Ok(vec![
        Row {
            what: format!("CPU of a snapshot of {} chains", number(chains as f64)),
            ratio: None,
            target: Some((Target::AtMost(CPU_S, " s"), cpu.median)),
            doubt: doubt([others[0]]),
            sealog: format!("{} s ({}–{})", number(cpu.median), number(cpu.min), number(cpu.max)),
            beside: String::new(),
            json: json!({ "cpu_s": cpu_s }),
        },
        Row {
            what: format!(
                "p99 of {} POSTs a second, over {interval_s} s that have such a snapshot",
                number(RATE)
            ),
            ratio,
            target: ratio.map(|ratio| (Target::AtMost(P99, "x"), ratio.median)),
            doubt: wrong.or_else(|| doubt([others[1]])),
            sealog: format!("{} us", of(&|(_, busy)| busy.us.p99)),
            beside: format!("{} us with a snapshot of one chain", of(&|(idle, _)| idle.us.p99)),
            json: json!({
                "repeats": p99_us.iter().map(|(idle, busy)| json!({ "idle": idle.json(), "busy": busy.json() })).collect::<Vec<_>>(),
            }),
        },
        Row {
            what: format!("memory more, with {} chains", number(chains as f64)),
            ratio: None,
            target: Some((Target::AtMost(MEMORY_MB, " MB"), memory.0 - memory.1)),
            doubt: None,
            sealog: format!("{} MB", number(memory.0)),
            beside: format!("{} MB without", number(memory.1)),
            json: json!({ "with_mb": memory.0, "without_mb": memory.1 }),
        },
    ])
}

/// CPU time of the server from the last of these events until they are published, as far as it is more than
/// that of waiting.
fn snapshot(setting: &Setting, sealog: &mut Sealog) -> Outcome<f64> {
    loop {
        next_snapshot(sealog)?;
        let before = size(sealog)?;
        an_event_for_each(setting, sealog)?;
        let cpu = sealog.process().cpu();
        if size(sealog)? == before {
            next_snapshot(sealog)?;
            // What comes behind the checkpoint is part of it.
            std::thread::sleep(Duration::from_millis(200));
            return Ok(sealog.process().cpu().saturating_sub(cpu).as_secs_f64());
        }
        setting.progress.say("a snapshot came between the events; once more");
    }
}

/// Entries of the store log.
fn size(sealog: &Sealog) -> Outcome<u64> {
    let answer =
        sealog.client()?.raw(b"GET /tlog/v1/store/checkpoint HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (_, note) = answer.split_once("\r\n\r\n").ok_or("an answer without a head")?;
    let size = note.lines().nth(1).and_then(|size| size.parse().ok());
    size.ok_or_else(|| format!("this is no checkpoint: {note}").into())
}

/// Waits for the next checkpoint. The first one is made when the trees are complete.
fn next_snapshot(sealog: &Sealog) -> Outcome<()> {
    let (start, before) = (Instant::now(), size(sealog).unwrap_or(0));
    while size(sealog).unwrap_or(0) == before {
        if start.elapsed() > PATIENCE {
            return Err("the signed log does not go on".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// One event for each chain but that of the other tenant.
fn an_event_for_each(setting: &Setting, sealog: &mut Sealog) -> Outcome<()> {
    let chains = sealog.accounts.len() - 1;
    setting.progress.say(&format!("an event for each of {chains} chains"));
    let event = r#"{"action":"user.login","actor_id":"somebody"}"#;
    let shared = &*sealog;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || -> Result<(), String> {
                    let mut client = shared.client().map_err(|error| error.to_string())?;
                    for account in shared.accounts[..chains].iter().skip(writer).step_by(WRITERS) {
                        let answer = client.with_token(&account.key).ask("POST", "/v1/events", event, 202);
                        answer.map_err(|error| error.to_string())?;
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().map_err(|_| "a writer panicked")?)
    })?;
    sealog.acknowledge(&Loaded { acknowledged: vec![1; chains], ..Loaded::default() });
    Ok(())
}

/// Events of the other tenant, at a rate that leaves the machine idle.
fn posts(sealog: &mut Sealog, long: Duration) -> Outcome<Side> {
    let last = sealog.accounts.len() - 1;
    let mut requests = Requests::new(sealog, &Send::Single, last, 1, false)?;
    let counters = || sealog.counters();
    let (loaded, cpu, bytes) = load(
        (sealog.addresses(), None),
        CONNECTIONS,
        Pace::Open(RATE),
        long,
        &mut requests,
        &counters,
        None,
        &|_| {},
    )?;
    sealog.acknowledge(&loaded);
    Side::of_load(&loaded, cpu, bytes)
}

/// Megabytes with and without, after a start and an event for each chain.
fn memory(setting: &Setting, sealog: &mut Sealog, with: Environment) -> Outcome<(f64, f64)> {
    let mut resident = |environment: Environment| -> Outcome<f64> {
        restart(sealog, environment)?;
        an_event_for_each(setting, sealog)?;
        if environment == with {
            next_snapshot(sealog)?;
            next_snapshot(sealog)?;
        }
        Ok(sealog.process().resident_bytes() as f64 / 1e6)
    };
    let without = resident(OFF)?;
    Ok((resident(with)?, without))
}
