//! `sealog-bench trust`: what the signed log costs. Each row stands beside the same program with
//! `trust.enabled = false`, or beside what is done without a proof.

mod server;
mod snapshot;

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::beside::{Beside, ingest};
use crate::http::Programs;
use crate::http::case::load;
use crate::http::load::Pace;
use crate::http::sealog::{Account, Sealog};
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, SettingArgs, doubt};
use crate::side::Side;
use crate::stats::{Spread, median};
use crate::store::reopen::disk_bytes;
use server::{EVERY_SECOND, OFF, PATIENCE, restart};

#[derive(Args, Debug)]
pub struct TrustArgs {
    /// Events of the chain whose proofs are asked for [default: 20000000; with --quick 20000]
    #[arg(long)]
    events: Option<u64>,
    /// Chains that all change between two snapshots [default: 10000; with --quick 50]
    #[arg(long)]
    chains: Option<usize>,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    setting: SettingArgs,
}

pub fn run(args: &TrustArgs) -> Outcome<()> {
    let quick = args.setting.quick;
    let events = args.events.unwrap_or(if quick { 20_000 } else { 20_000_000 });
    let chains = args.chains.unwrap_or(if quick { 50 } else { 10_000 });
    let setting = Setting::new(&args.setting, "trust")?;
    let program = args.programs.sealog();
    let section =
        |name: &'static str, ratio_of: &'static str, rows: Vec<Row>| Section { name, ratio_of, rows };
    let mut sealog = Sealog::create_with(&setting, &program, "with", 1, EVERY_SECOND)?;
    let mut without = Sealog::create_with(&setting, &program, "without", 1, OFF)?;
    let (rows, batches_per_s) = beside_ingest(&setting, &mut sealog, &mut without)?;
    let mut sections = vec![section("Ingest", "requests/s over those without a signed log", rows)];
    sealog.retire()?;
    without.retire()?;
    let mut sealog = Sealog::create_with(&setting, &program, "grown", 1, OFF)?;
    let rows = grown(&setting, &mut sealog, events, batches_per_s)?;
    sections.push(section("A chain with its tree", "what the row says", rows));
    sealog.retire()?;
    let rows = snapshot::rows(&setting, &program, chains)?;
    sections.push(section("A snapshot in which every chain has changed", "what the row says", rows));
    let settings = format!(
        "ingest on 64 connections, beside it a snapshot every second; proofs and reads on one connection, of a chain of {} events; {} chains that got one event each",
        number(events as f64),
        number(chains as f64)
    );
    let details = json!({ "events": events, "chains": chains });
    setting.report("Sealog: the signed log", &settings, &details, sections)
}

/// Waits until the signed log has all events of a chain, and says how long that took.
fn published(setting: &Setting, sealog: &Sealog, account: &Account) -> Outcome<Duration> {
    let (start, mut client) = (Instant::now(), sealog.client()?);
    client.with_token(&account.key);
    loop {
        let overview = client.ask("GET", "/tlog/v1/chain", "", 200)?;
        let count = |name: &str| overview[name].as_u64().unwrap_or(0);
        if count("lag_events") == 0 {
            return Ok(start.elapsed());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("the signed log does not come to an end: {overview}").into());
        }
        setting.progress.say(&format!("building trees: {} events are left", count("lag_events")));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ingest with and without, and how many events a second batches reach without.
fn beside_ingest(setting: &Setting, sealog: &mut Sealog, without: &mut Sealog) -> Outcome<(Vec<Row>, f64)> {
    let (mut rows, mut per_s) = (Vec::new(), 0.0);
    for (send, kept) in [(Send::Single, 0.95), (Send::Batch, 0.9)] {
        let (mut pairs, mut others, mut cpu_us, mut lags_s) = (Vec::new(), 0f64, Vec::new(), Vec::new());
        for repeat in 1..=setting.repeats {
            let name = format!("repeat {repeat} of {}: {} with and without", setting.repeats, send.name());
            let slice = setting.quietly(&name, || {
                let (with, with_us, lag) = one(setting, sealog, &send, true)?;
                let (alone, alone_us, _) = one(setting, without, &send, false)?;
                Ok(((alone, with), (with_us, alone_us), lag))
            })?;
            others = others.max(slice.others);
            pairs.push(slice.value.0);
            cpu_us.push(slice.value.1);
            lags_s.push(slice.value.2.as_secs_f64());
        }
        per_s = median(pairs.iter().map(|(alone, _)| alone.events_per_s));
        let name = send.name();
        let beside = Beside { send, what: "snapshots", pairs, others, done: 0, kept };
        let mut row = beside.row();
        row.what = format!("{name}, requests/s");
        rows.push(row);
        let of = |of: &dyn Fn(&(f64, f64)) -> f64| number(median(cpu_us.iter().map(of)));
        rows.push(Row {
            what: format!("{name}, CPU of an event until the log has it"),
            ratio: Spread::of(cpu_us.iter().map(|(with, alone)| with / alone)),
            target: None,
            doubt: doubt([others]),
            sealog: format!(
                "{} us; the log had all {} s after the last answer",
                of(&|(with, _)| *with),
                number(median(lags_s.iter().copied()))
            ),
            beside: format!("{} us", of(&|(_, alone)| *alone)),
            json: json!({ "cpu_us": cpu_us, "lags_s": lags_s }),
        });
    }
    Ok((rows, per_s))
}

/// One measurement: what it did, and its CPU time for an event, from the first request until everything is
/// published.
fn one(
    setting: &Setting,
    sealog: &mut Sealog,
    send: &Send,
    publishes: bool,
) -> Outcome<(Side, f64, Duration)> {
    let (cpu, events) = (sealog.process().cpu(), sealog.events());
    let side = ingest(setting, sealog, 0, send)?;
    let lag = match publishes {
        true => published(setting, sealog, &sealog.accounts[0])?,
        false => Duration::ZERO,
    };
    let cpu = sealog.process().cpu().saturating_sub(cpu);
    Ok((side, cpu.as_secs_f64() * 1e6 / (sealog.events() - events) as f64, lag))
}

/// Of a long chain: its tree from nothing, proofs beside reads, disk and start.
fn grown(setting: &Setting, sealog: &mut Sealog, events: u64, batches_per_s: f64) -> Outcome<Vec<Row>> {
    sealog.fill(setting, events)?;
    sealog.environment = EVERY_SECOND;
    let cpu = setting.quietly("building all trees", || {
        sealog.while_stopped(Process::stop, |sealog| {
            // A measurement that is made again begins without trees.
            match std::fs::remove_dir_all(sealog.dir().join("trust")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            }
        })?;
        let took = published(setting, sealog, &sealog.accounts[0])?;
        Ok((took, sealog.process().cpu()))
    })?;
    let ((took, cpu), others) = (cpu.value, cpu.others);
    let per_core_s = events as f64 / cpu.as_secs_f64();
    let mut rows = vec![Row {
        what: "all trees from nothing, events a second of one core".to_owned(),
        ratio: Spread::of([per_core_s / batches_per_s]),
        target: Some((Target::AtLeast(2.0, "x"), per_core_s / batches_per_s)),
        doubt: doubt([others]),
        sealog: format!("{}/s; {} s in all", number(per_core_s), number(took.as_secs_f64())),
        beside: format!("{} events/s by batches", number(batches_per_s)),
        json: json!({ "took_s": took.as_secs_f64(), "cpu_s": cpu.as_secs_f64() }),
    }];
    rows.extend(proofs(setting, sealog)?);
    rows.push(starts(setting, sealog)?);
    let mut bytes = 0;
    sealog.while_stopped(Process::stop, |sealog| {
        let disk = disk_bytes(&sealog.dir().join("trust"))?;
        bytes = disk.log + disk.index + disk.other;
        Ok(())
    })?;
    let per_event = bytes as f64 / events as f64;
    rows.push(Row {
        what: "disk, bytes an event".to_owned(),
        ratio: None,
        target: Some((Target::AtMost(36.0, ""), per_event)),
        doubt: None,
        sealog: number(per_event),
        beside: String::new(),
        json: json!({ "bytes": bytes }),
    });
    Ok(rows)
}

fn proofs(setting: &Setting, sealog: &mut Sealog) -> Outcome<Vec<Row>> {
    let (mut pairs, mut others) = (Vec::new(), 0f64);
    let mut requests = [Send::Proof, Send::Read].map(|send| Requests::new(sealog, &send, 0, 1, false));
    for repeat in 1..=setting.repeats {
        let name = format!("repeat {repeat} of {}: proofs and reads", setting.repeats);
        let slice = setting.quietly(&name, || {
            let mut sides = Vec::new();
            for requests in &mut requests {
                let requests = requests.as_mut().map_err(|error| error.to_string())?;
                let counters = || sealog.counters();
                let (loaded, cpu, bytes) = load(
                    (sealog.addresses(), None),
                    1,
                    Pace::Closed,
                    setting.slice,
                    requests,
                    &counters,
                    None,
                    &|_| {},
                )?;
                sides.push(Side::of_load(&loaded, cpu, bytes)?);
            }
            Ok(sides)
        })?;
        others = others.max(slice.others);
        let [proof, read] = slice.value.try_into().map_err(|_| "proofs and reads")?;
        pairs.push((proof, read));
    }
    let ratio = Spread::of(pairs.iter().map(|(proof, read)| proof.us.p99 / read.us.p99));
    let us = |of: &dyn Fn(&(Side, Side)) -> f64| median(pairs.iter().map(of));
    let text = |p50: f64, p99: f64| format!("p50 {}, p99 {} us", number(p50), number(p99));
    let wrong = pairs.iter().find_map(|(proof, read)| proof.errors.clone().or_else(|| read.errors.clone()));
    let p99 = us(&|(proof, _)| proof.us.p99);
    let row = |what: &str, ratio, target| Row {
        what: what.to_owned(),
        ratio,
        target: Some(target),
        doubt: wrong.clone().or_else(|| doubt([others])),
        sealog: text(us(&|(proof, _)| proof.us.p50), p99),
        beside: text(us(&|(_, read)| read.us.p50), us(&|(_, read)| read.us.p99)),
        json: json!({ "repeats": pairs.iter().map(|(proof, read)| json!({ "proof": proof.json(), "read": read.json() })).collect::<Vec<_>>() }),
    };
    let of_read = ratio.map_or(f64::NAN, |ratio| ratio.median);
    Ok(vec![
        row("proof of one event beside a point read, p99", ratio, (Target::AtMost(10.0, "x"), of_read)),
        row("the same by the clock", None, (Target::AtMost(1000.0, " us"), p99)),
    ])
}

fn starts(setting: &Setting, sealog: &mut Sealog) -> Outcome<Row> {
    let (mut pairs, mut others) = (Vec::new(), 0f64);
    for repeat in 1..=setting.repeats {
        let slice = setting.quietly(&format!("repeat {repeat} of {}: starts", setting.repeats), || {
            Ok((
                restart(sealog, OFF)?.as_secs_f64() * 1e3,
                restart(sealog, EVERY_SECOND)?.as_secs_f64() * 1e3,
            ))
        })?;
        others = others.max(slice.others);
        pairs.push(slice.value);
    }
    let ratio = Spread::of(pairs.iter().map(|(without, with)| with / without));
    Ok(Row {
        what: "start".to_owned(),
        ratio,
        target: ratio.map(|ratio| (Target::AtMost(1.2, "x"), ratio.median)),
        doubt: doubt([others]),
        sealog: format!("{} ms", number(median(pairs.iter().map(|(_, with)| *with)))),
        beside: format!("{} ms without", number(median(pairs.iter().map(|(without, _)| *without)))),
        json: json!({ "ms": pairs }),
    })
}
