//! Durable appends beside `pwrite` + `fdatasync` of as many bytes.

use std::time::Duration;

use sealog_core::event::Draft;
use sealog_store::Store;
use serde_json::{Value, json};

use crate::bare::BareLog;
use crate::driver::{self, Run, Until, wait};
use crate::meter::{Counted, Meter};
use crate::outcome::Outcome;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, doubt};
use crate::stats::{Percentiles, Spread, median};
use crate::workload;

/// How requests come in.
#[derive(Clone, Copy, Debug)]
struct Shape {
    in_flight: usize,
    batch: usize,
}

const SHAPES: [Shape; 6] = [
    Shape { in_flight: 1, batch: 1 },
    Shape { in_flight: 16, batch: 1 },
    Shape { in_flight: 100, batch: 1 },
    Shape { in_flight: 1000, batch: 1 },
    Shape { in_flight: 1, batch: 100 },
    Shape { in_flight: 16, batch: 100 },
];

impl Shape {
    fn name(self) -> String {
        match self.batch {
            1 => format!("single events, {} in flight", self.in_flight),
            batch => format!("batches of {batch}, {} in flight", self.in_flight),
        }
    }

    /// Events that are in flight together.
    fn events(self) -> usize {
        self.in_flight * self.batch
    }
}

/// One repeat of one shape.
struct Repeat {
    store: Run,
    written: Counted,
    store_us: Percentiles,
    bare: Run,
    bare_us: Percentiles,
    others: f64,
}

impl Repeat {
    fn events_per_sync(&self) -> f64 {
        self.store.events as f64 / self.written.syncs.max(1) as f64
    }
}

/// Drafts to send again and again. Copying one costs the driver about as much as a server's own handling
/// would.
struct Pool {
    drafts: Vec<Draft>,
    at: usize,
}

impl Pool {
    fn new() -> Pool {
        Pool { drafts: (0..4096).map(workload::draft).collect(), at: 0 }
    }

    fn take(&mut self, count: usize) -> Vec<Draft> {
        let drafts = (0..count).map(|at| self.drafts[(self.at + at) % self.drafts.len()].clone()).collect();
        self.at = (self.at + count) % self.drafts.len();
        drafts
    }
}

pub fn measure(setting: &Setting) -> Outcome<Vec<Section>> {
    let mut pool = Pool::new();
    setting.progress.say("preparing the bare log");
    let request_bytes = [1, 100].map(|batch| request_bytes(setting, &mut pool, batch));
    let [single_bytes, batch_bytes] = request_bytes;
    let (single_bytes, batch_bytes) = (single_bytes?, batch_bytes?);
    let group_bytes =
        |shape: Shape| shape.in_flight * if shape.batch == 1 { single_bytes } else { batch_bytes };
    let largest = SHAPES.map(group_bytes).into_iter().max().unwrap_or(0);
    let bare_bytes = if setting.quick { 16 << 20 } else { 256 << 20 };
    let mut bare = BareLog::create(&setting.dir.join("bare.log"), bare_bytes, largest)?;
    let mut measured: Vec<Vec<Repeat>> = SHAPES.iter().map(|_| Vec::new()).collect();
    for repeat in 0..setting.repeats {
        for (shape, repeats) in SHAPES.into_iter().zip(&mut measured) {
            let what = format!("repeat {} of {}: appends, {}", repeat + 1, setting.repeats, shape.name());
            let mut bare_run = || {
                setting.quietly(&format!("{what}, bare"), || {
                    bare.append(group_bytes(shape), shape.events() as u64, setting.slice / 10)?;
                    Ok(bare.append(group_bytes(shape), shape.events() as u64, setting.slice)?)
                })
            };
            let mut store_run = || setting.quietly(&what, || store_run(setting, &mut pool, shape));
            // Each goes first in turn, so that neither always finds the disk as the other left it.
            let (bare, store) = if repeat % 2 == 0 {
                let bare = bare_run()?;
                (bare, store_run()?)
            } else {
                let store = store_run()?;
                (bare_run()?, store)
            };
            let others = bare.others.max(store.others);
            let (bare, (store, written)) = (bare.value, store.value);
            let percentiles = |run: &Run| {
                Percentiles::of_ns(&mut run.latencies_ns.clone()).ok_or("a run without a single answer")
            };
            let (store_us, bare_us) = (percentiles(&store)?, percentiles(&bare)?);
            repeats.push(Repeat { store, written, store_us, bare, bare_us, others });
        }
    }
    std::fs::remove_file(setting.dir.join("bare.log"))?;
    let latency = latency_section(&measured[0]);
    let rows = SHAPES.into_iter().zip(&measured);
    Ok(vec![
        Section {
            name: "Durable appends",
            ratio_of: "events/s of the store over events/s of a bare log, where one `pwrite` + `fdatasync` takes everything that is in flight",
            rows: rows.map(|(shape, repeats)| row(shape, repeats, group_bytes(shape))).collect(),
        },
        latency,
    ])
}

/// What a single event takes in the log.
pub fn single_request_bytes(setting: &Setting) -> Outcome<usize> {
    request_bytes(setting, &mut Pool::new(), 1)
}

/// What a request of this many events takes in the log.
fn request_bytes(setting: &Setting, pool: &mut Pool, batch: usize) -> Outcome<usize> {
    const REQUESTS: u64 = 40;
    let dir = setting.dir.join("calibrate");
    let meter = Meter::default();
    let store = setting.open(&dir, &setting.options(&meter))?;
    let before = meter.read();
    let mut left = REQUESTS;
    driver::append(&store, 1, Until::Exhausted, || {
        left = left.checked_sub(1)?;
        Some((workload::chain(), pool.take(batch)))
    })?;
    let bytes = meter.since(before).bytes / REQUESTS;
    drop(store);
    std::fs::remove_dir_all(&dir)?;
    Ok(usize::try_from(bytes)?)
}

/// Appends to a new store, after a warm-up that is not counted.
fn store_run(setting: &Setting, pool: &mut Pool, shape: Shape) -> Outcome<(Run, Counted)> {
    let dir = setting.dir.join("append");
    let meter = Meter::default();
    let store = setting.open(&dir, &setting.options(&meter))?;
    let mut sent = 0;
    let mut run = |limit: Duration| {
        driver::append(&store, shape.in_flight, Until::Elapsed(limit), || {
            sent += shape.batch as u64;
            Some((workload::chain(), pool.take(shape.batch)))
        })
    };
    run(setting.slice / 10)?;
    let before = meter.read();
    let measured = run(setting.slice)?;
    let written = meter.since(before);
    let head = wait(store.head(workload::chain()))?.durable;
    if head.chain_seq != sent {
        return Err(format!("{sent} events were acknowledged, but the chain has {}", head.chain_seq).into());
    }
    drop(store);
    std::fs::remove_dir_all(&dir)?;
    Ok((measured, written))
}

fn row(shape: Shape, repeats: &[Repeat], group_bytes: usize) -> Row {
    let of = |value: &dyn Fn(&Repeat) -> f64| median(repeats.iter().map(value));
    let cpu_us = |run: &Run| run.cpu.as_secs_f64() * 1e6 / run.events as f64;
    let mb_per_s = |run: &Run| run.events_per_s() * group_bytes as f64 / shape.events() as f64 / 1e6;
    let side = |run: &dyn Fn(&Repeat) -> &Run, us: &dyn Fn(&Repeat) -> Percentiles| {
        format!(
            "{} ev/s, {} MB/s; p50 {} p99 {} µs; CPU {} µs an event",
            number(of(&|r| run(r).events_per_s())),
            number(of(&|r| mb_per_s(run(r)))),
            number(of(&|r| us(r).p50)),
            number(of(&|r| us(r).p99)),
            number(of(&|r| cpu_us(run(r)))),
        )
    };
    let repeats_json: Vec<Value> = repeats
        .iter()
        .map(|repeat| {
            json!({
                "store": run_json(&repeat.store, &repeat.store_us),
                "bare": run_json(&repeat.bare, &repeat.bare_us),
                "log_syncs": repeat.written.syncs, "log_bytes": repeat.written.bytes,
                "events_per_sync": repeat.events_per_sync(), "others": repeat.others,
            })
        })
        .collect();
    Row {
        what: shape.name(),
        ratio: Spread::of(repeats.iter().map(|r| r.store.events_per_s() / r.bare.events_per_s())),
        target: None,
        doubt: doubt_of(repeats),
        sealog: format!(
            "{}; {} events a sync",
            side(&|r| &r.store, &|r| r.store_us),
            number(of(&Repeat::events_per_sync))
        ),
        beside: side(&|r| &r.bare, &|r| r.bare_us),
        json: json!({
            "in_flight": shape.in_flight, "batch": shape.batch, "bare_group_bytes": group_bytes, "repeats": repeats_json,
        }),
    }
}

/// A lone request contains the very calls that the bare log makes: where it is the faster one, it is the
/// measurement that is wrong.
fn doubt_of(repeats: &[Repeat]) -> Option<String> {
    let alone = |r: &&Repeat| r.store.requests <= r.written.syncs + 1 && r.store_us.p50 < r.bare_us.p50;
    let impossible = repeats.iter().filter(alone).count();
    let impossible =
        (impossible > 0).then(|| "the store cannot be faster than a sync that it contains".to_owned());
    doubt(repeats.iter().map(|r| r.others)).or(impossible)
}

fn run_json(run: &Run, us: &Percentiles) -> Value {
    json!({
        "events": run.events, "requests": run.requests, "seconds": run.elapsed.as_secs_f64(), "events_per_s": run.events_per_s(),
        "cpu_s": run.cpu.as_secs_f64(), "p50_us": us.p50, "p99_us": us.p99, "p999_us": us.p999, "max_us": us.max,
    })
}

/// The lone request: what a client on one connection waits for.
fn latency_section(repeats: &[Repeat]) -> Section {
    type Pick = fn(&Percentiles) -> f64;
    let percentiles: [(&str, Pick, Option<f64>); 3] =
        [("p50", |us| us.p50, Some(3.0)), ("p99", |us| us.p99, None), ("p99.9", |us| us.p999, None)];
    let rows = percentiles.map(|(name, of, limit)| {
        let ratio = Spread::of(repeats.iter().map(|r| of(&r.store_us) / of(&r.bare_us)));
        let (store, bare) =
            (median(repeats.iter().map(|r| of(&r.store_us))), median(repeats.iter().map(|r| of(&r.bare_us))));
        Row {
            what: format!("{name} of a single event, alone"),
            ratio,
            target: limit.zip(ratio).map(|(limit, ratio)| (Target::AtMost(limit, "x"), ratio.median)),
            doubt: doubt_of(repeats),
            sealog: format!("{} µs", number(store)),
            beside: format!("{} µs", number(bare)),
            json: json!({ "store_us": store, "bare_us": bare }),
        }
    });
    Section {
        name: "Latency of one request in flight",
        ratio_of: "the store's time over that of one `pwrite` + `fdatasync` of as many bytes",
        rows: rows.into(),
    }
}
