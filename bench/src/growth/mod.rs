//! `sealog-bench growth`: the same questions to a store of 1, 5 and 20 million events, and to one with 10,000
//! chains.
//!
//! It is filled through the store, since only there can the events spread over 90 days; everything else goes
//! through the real server, but for the verification of the whole store.

mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use serde_json::json;

use crate::bare::Messages;
use crate::driver::wait;
use crate::http::Programs;
use crate::http::case::load;
use crate::http::load::{Load, Pace};
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::report::number;
use crate::setting::{Setting, SettingArgs, Slice};
use crate::side::Side;
use crate::store::reads::LISTS;
use crate::store::reopen::disk_bytes;
use crate::store::verify::hashed_bytes;
use rows::{Kind, Size};

#[derive(Args, Debug)]
pub struct GrowthArgs {
    /// Events in the end; it is also measured with a twentieth and a quarter of them [default: 20000000; with
    /// --quick 20000]
    #[arg(long)]
    events: Option<u64>,
    /// Chains of a second store, with a quarter of the events; 0 for none [default: 10000; with --quick 50]
    #[arg(long)]
    chains: Option<usize>,
    #[command(flatten)]
    programs: Programs,
    /// Writes the plot to this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<std::path::PathBuf>,
    #[command(flatten)]
    setting: SettingArgs,
}

pub fn run(args: &GrowthArgs) -> Outcome<()> {
    let quick = args.setting.quick;
    let events = args.events.unwrap_or(if quick { 20_000 } else { 20_000_000 });
    let chains = args.chains.unwrap_or(if quick { 50 } else { 10_000 });
    if events < 2000 {
        return Err("--events must be at least 2000".into());
    }
    let setting = Setting::new(&args.setting, "growth")?;
    let program = args.programs.sealog();
    let mut sizes = Vec::new();
    let mut sealog = Sealog::create(&setting, &program, "one", 1, None)?;
    let mut filled = 0;
    for size in [events / 20, events / 4, events] {
        sizes.push(measure(&setting, &mut sealog, filled..size, events)?);
        filled = size;
    }
    sealog.retire()?;
    let many = if chains > 0 {
        let mut sealog = Sealog::create(&setting, &program, "many", chains, None)?;
        let many = measure(&setting, &mut sealog, 0..events / 4, events / 4)?;
        sealog.retire()?;
        Some(many)
    } else {
        None
    };
    if let Some(dir) = &args.plots {
        rows::write_plot(dir, &sizes)?;
    }
    let settings = format!(
        "one chain that grows to {} events, and {} with a quarter of them; reads on one connection, ingest in batches of 100 on 16 connections into a chain of its own in the same store",
        number(events as f64),
        number(chains as f64)
    );
    let sections = rows::sections(&sizes, many.as_ref());
    setting.report("Sealog: growth", &settings, &json!({ "events": events, "chains": chains }), sections)
}

fn measure(
    setting: &Setting,
    sealog: &mut Sealog,
    range: std::ops::Range<u64>,
    events: u64,
) -> Outcome<Size> {
    let chains = sealog.accounts.len() - 1;
    let size = range.end;
    let (mut filled_per_s, mut verified) = (0.0, Slice { value: (0.0, 0.0), others: 0.0 });
    sealog.while_stopped(Process::stop, |sealog| {
        let (store, per_s) = sealog.fill_stopped(setting, range, events)?;
        filled_per_s = per_s;
        verified = verify(setting, sealog, &store)?;
        store.close();
        Ok(())
    })?;
    let (disk, stored) = (disk_bytes(sealog.dir())?, sealog.events());
    let resident_started = sealog.process().resident_bytes();
    let mut reads: Vec<Kind> = kinds().map(|send| Kind { send, sides: Vec::new(), others: 0.0 }).collect();
    let mut ingest = Kind { send: Send::Batch, sides: Vec::new(), others: 0.0 };
    for repeat in 1..=setting.repeats {
        // Some together, since looking whether the machine is idle takes as long as one of them.
        for group in reads.chunks_mut(5) {
            sample(setting, sealog, group, Shape { first_chain: 0, chains, connections: 1 }, repeat, size)?;
        }
        let shape = Shape { first_chain: chains, chains: 1, connections: 16 };
        sample(setting, sealog, std::slice::from_mut(&mut ingest), shape, repeat, size)?;
    }
    let resident_read = sealog.process().resident_bytes();
    sealog.check(0)?;
    let (mut starts_ms, mut starts_others) = (Vec::new(), 0f64);
    for repeat in 1..=setting.repeats {
        let what = format!("repeat {repeat} of {}: {size} events, start after kill -9", setting.repeats);
        let slice = setting.quietly(&what, || {
            kill_while_it_writes(setting, sealog, chains)?;
            Ok(sealog.process().ready_after)
        })?;
        starts_ms.push(slice.value.as_secs_f64() * 1e3);
        starts_others = starts_others.max(slice.others);
    }
    Ok(Size {
        chains,
        events: size,
        stored,
        filled_per_s,
        ingest,
        reads,
        verified,
        starts_ms,
        starts_others,
        resident_started,
        resident_read,
        disk,
    })
}

/// Every list, and the other reads.
fn kinds() -> impl Iterator<Item = Send> {
    [Send::Read, Send::Verify].into_iter().chain(LISTS.iter().map(|(name, _)| Send::List((*name).to_owned())))
}

/// Which chains are asked, and how.
#[derive(Clone, Copy, Debug)]
struct Shape {
    first_chain: usize,
    chains: usize,
    connections: usize,
}

fn sample(
    setting: &Setting,
    sealog: &mut Sealog,
    kinds: &mut [Kind],
    shape: Shape,
    repeat: usize,
    size: u64,
) -> Outcome<()> {
    let mut requests = Vec::new();
    for kind in &*kinds {
        requests.push(Requests::new(sealog, &kind.send, shape.first_chain, shape.chains, false)?);
    }
    let what = format!("repeat {repeat} of {}: {size} events", setting.repeats);
    let slice = setting.quietly(&what, || {
        let mut sides = Vec::new();
        for (kind, requests) in kinds.iter().zip(&mut requests) {
            let tick = |text: &str| setting.progress.say(&format!("{what}, {}: {text}", kind.send.name()));
            let limit = if kind.send.events() > 0 { setting.slice } else { setting.slice / 6 };
            let counters = || sealog.counters();
            let (loaded, cpu, bytes) = load(
                (sealog.addresses(), None),
                shape.connections,
                Pace::Closed,
                limit,
                requests,
                &counters,
                None,
                &tick,
            )?;
            sealog.acknowledge(&loaded);
            sides.push(Side::of_load(&loaded, cpu, bytes)?);
        }
        Ok(sides)
    })?;
    for (kind, side) in kinds.iter_mut().zip(slice.value) {
        kind.others = kind.others.max(slice.others);
        kind.sides.push(side);
    }
    Ok(())
}

/// The whole store, on all cores.
fn verify(setting: &Setting, sealog: &Sealog, store: &EmbeddedStore) -> Outcome<Slice<(f64, f64)>> {
    let messages = Messages::of(100_000, 64 << 20);
    let chains: Vec<_> = sealog.accounts.iter().map(|account| account.chain).collect();
    let events = sealog.events();
    let mb = hashed_bytes(events) / 1e6;
    // Once: a store of this size is read for many seconds, which is repeat enough.
    let slice = setting.quietly(&format!("{events} events, verification of the whole store"), || {
        let hash = messages.hash_whole(setting.slice / 3).per_s;
        let start = Instant::now();
        let verdicts = wait(store.audit(chains.clone(), Arc::default()))?;
        let elapsed = start.elapsed().as_secs_f64();
        let checked: u64 = verdicts.iter().map(|verdict| verdict.checked).sum();
        if checked != events || verdicts.iter().any(|verdict| !verdict.valid()) {
            return Err(format!("of {events} events {checked} were verified, or not found valid").into());
        }
        Ok((mb / elapsed, hash))
    })?;
    Ok(slice)
}

/// Kills the server with requests under way, starts it again, and looks for everything that it had
/// acknowledged.
fn kill_while_it_writes(setting: &Setting, sealog: &mut Sealog, chain: usize) -> Outcome<()> {
    const CONNECTIONS: usize = 16;
    let tally = AtomicU64::new(0);
    let mut requests = Requests::new(sealog, &Send::Batch, chain, 1, false)?;
    let addresses = sealog.addresses().to_owned();
    let writing = (setting.slice / 10).max(Duration::from_millis(50));
    sealog.while_stopped(
        |process| {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let load = Load {
                        tls: None,
                        addresses: &addresses,
                        connections: CONNECTIONS,
                        pace: Pace::Closed,
                        warm_up: Duration::ZERO,
                        limit: Duration::from_secs(3600),
                        busy: None,
                        stop: None,
                        tally: Some(&tally),
                        tick: &|_| {},
                    };
                    // It ends when the connections do.
                    load.run(&mut requests, &mut || {}).is_err()
                });
                std::thread::sleep(writing);
                process.kill()?;
                match writer.join() {
                    Ok(true) => Ok(()),
                    _ => Err("the generator did not notice that the server was killed".into()),
                }
            })
        },
        |_| Ok(()),
    )?;
    sealog.acknowledge_last(tally.load(Ordering::Relaxed));
    // What was under way may be there: it was never said to be.
    sealog.check(CONNECTIONS as u64 * 100)
}
