//! From what was measured at each size to the rows of the report: each beside the smallest size.

use std::path::Path;

use serde_json::{Value, json};

use crate::http::source::Send;
use crate::outcome::Outcome;
use crate::plot;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Slice, doubt};
use crate::side::Side;
use crate::stats::{Spread, median};
use crate::store::reads::PLAIN;
use crate::store::reopen::{DiskBytes, KILLED_OPEN_MS, MEMORY_FIXED, MEMORY_PER_EVENT};
use crate::store::verify::cores;
use crate::workload;

/// One kind of request, in all repeats.
#[derive(Debug)]
pub struct Kind {
    pub send: Send,
    pub sides: Vec<Side>,
    pub others: f64,
}

/// What was measured at one size.
#[derive(Debug)]
pub struct Size {
    pub chains: usize,
    pub events: u64,
    /// With those that were written to measure ingest at smaller sizes.
    pub stored: u64,
    /// Events/s of the last tenth that was filled.
    pub filled_per_s: f64,
    pub ingest: Kind,
    pub reads: Vec<Kind>,
    /// MB/s of verification on all cores, and of SHA-256 on one.
    pub verified: Slice<(f64, f64)>,
    /// Of a server that was killed while it wrote, in milliseconds.
    pub starts_ms: Vec<f64>,
    pub starts_others: f64,
    pub resident_started: u64,
    pub resident_read: u64,
    pub disk: DiskBytes,
}

const LIST_P99_US: f64 = 5000.0;
const READ_P99_US: f64 = 100.0;

pub fn sections(sizes: &[Size], many: Option<&Size>) -> Vec<Section> {
    let Some(first) = sizes.first() else { return Vec::new() };
    let all = || sizes.iter().chain(many);
    let section =
        |name: &'static str, ratio_of: &'static str, rows: Vec<Row>| Section { name, ratio_of, rows };
    let kinds = first.reads.iter().enumerate();
    let reads = kinds.flat_map(|(at, _)| all().map(move |size| read(size, first, at))).collect();
    vec![
        section(
            "Ingest",
            "events/s over those of the smallest size",
            all().flat_map(|size| ingest(size, first)).collect(),
        ),
        section("Reads, warm, on one connection", "p99 over that of the smallest size", reads),
        section(
            "Verification of the whole store",
            "MB/s of verified hash input a core over those of SHA-256 on one core",
            all().map(verification).collect(),
        ),
        section(
            "Starting after kill -9",
            "time from the start of the process until it listens, over that of the smallest size",
            all().map(|size| start(size, first)).collect(),
        ),
        section(
            "Memory of the server",
            "resident memory over 25 B an event + 300 MB",
            all().flat_map(memory).collect(),
        ),
        section("Disk", "bytes on disk an event over its canonical text", all().map(disk).collect()),
    ]
}

/// Everything that should stay flat, as a multiple of what it was at the smallest size.
pub fn write_plot(dir: &Path, sizes: &[Size]) -> Outcome<()> {
    let list = |size: &Size, name: &str| {
        let kind = size.reads.iter().find(|kind| kind.send == Send::List(name.to_owned()));
        kind.map_or(0.0, |kind| kind.of(|side| side.us.p99))
    };
    let line = |of: &dyn Fn(&Size) -> f64| {
        let first = sizes.first().map_or(1.0, of).max(f64::MIN_POSITIVE);
        sizes.iter().map(|size| (size.events as f64, of(size) / first)).collect::<Vec<_>>()
    };
    let lines = [
        ("time to ingest an event", line(&|size| 1.0 / size.ingest.of(|side| side.events_per_s))),
        ("newest page, p99", line(&|size| list(size, PLAIN))),
        ("action + actor, p99", line(&|size| list(size, "action + actor"))),
        ("one event by log_id, p99", line(&|size| size.reads[0].of(|side| side.us.p99))),
        ("start after kill -9", line(&|size| median(size.starts_ms.iter().copied()))),
        ("memory", line(&|size| size.resident_read as f64)),
    ];
    let svg = plot::lines(
        "Cost against size, as a multiple of the smallest",
        "events in the store",
        "multiple",
        &lines,
    );
    plot::write(dir, "growth.svg", &svg)
}

impl Kind {
    fn of(&self, value: impl Fn(&Side) -> f64) -> f64 {
        median(self.sides.iter().map(value))
    }

    /// Over the median of the other, since the two were not measured side by side.
    fn ratio(&self, first: &Kind, value: impl Fn(&Side) -> f64) -> Option<Spread> {
        let base = first.of(&value);
        Spread::of(self.sides.iter().map(|side| value(side) / base))
    }

    fn doubt(&self, first: &Kind) -> Option<String> {
        let wrong = self.sides.iter().chain(&first.sides).find_map(|side| side.errors.clone());
        wrong.or_else(|| doubt([self.others, first.others]))
    }

    fn text(&self) -> String {
        let of = |value: fn(&Side) -> f64| number(self.of(value));
        format!(
            "p50 {} p99 {} p99.9 {} µs",
            of(|side| side.us.p50),
            of(|side| side.us.p99),
            of(|side| side.us.p999)
        )
    }

    fn json(&self) -> Value {
        json!({ "repeats": self.sides.iter().map(Side::json).collect::<Vec<_>>() })
    }
}

impl Size {
    fn name(&self) -> String {
        let chains = if self.chains > 1 {
            format!(" in {} chains", number(self.chains as f64))
        } else {
            String::new()
        };
        format!("{} events{chains}", number(self.events as f64))
    }
}

fn ingest(size: &Size, first: &Size) -> [Row; 2] {
    let ratio = size.ingest.ratio(&first.ingest, |side| side.events_per_s);
    let text = |kind: &Kind| {
        format!(
            "{} ev/s; {}; CPU {} µs an event; {} B to the device an event",
            number(kind.of(|side| side.events_per_s)),
            kind.text(),
            number(kind.of(|side| side.cpu_us) / 100.0),
            number(kind.of(|side| side.device_bytes))
        )
    };
    [
        Row {
            what: format!("through the server, at {}", size.name()),
            ratio,
            target: ratio.map(|ratio| (Target::AtLeast(0.7, "x"), ratio.median)),
            doubt: size.ingest.doubt(&first.ingest),
            sealog: text(&size.ingest),
            beside: text(&first.ingest),
            json: size.ingest.json(),
        },
        Row {
            what: format!("filling through the store, the last tenth up to {}", size.name()),
            ratio: Spread::of([size.filled_per_s / first.filled_per_s]),
            target: None,
            doubt: None,
            sealog: format!("{} ev/s", number(size.filled_per_s)),
            beside: format!("{} ev/s", number(first.filled_per_s)),
            json: json!({ "events_per_s": size.filled_per_s }),
        },
    ]
}

fn read(size: &Size, first: &Size, at: usize) -> Row {
    let (kind, beside) = (&size.reads[at], &first.reads[at]);
    let ratio = kind.ratio(beside, |side| side.us.p99);
    let p99 = kind.of(|side| side.us.p99);
    let target = match &kind.send {
        Send::List(name) if name == PLAIN => ratio.map(|ratio| (Target::AtMost(2.0, "x"), ratio.median)),
        Send::List(_) => Some((Target::AtMost(LIST_P99_US, " µs p99"), p99)),
        Send::Read => Some((Target::AtMost(READ_P99_US, " µs p99"), p99)),
        _ => None,
    };
    Row {
        what: format!("{}, at {}", kind.send.name(), size.name()),
        ratio,
        target,
        doubt: kind.doubt(beside),
        sealog: kind.text(),
        beside: beside.text(),
        json: kind.json(),
    }
}

fn verification(size: &Size) -> Row {
    let (mb_per_s, hash) = size.verified.value;
    let ratio = mb_per_s / cores() / hash;
    Row {
        what: size.name(),
        ratio: Spread::of([ratio]),
        target: Some((Target::AtLeast(0.5, "x"), ratio)),
        doubt: doubt([size.verified.others]),
        sealog: format!("{} MB/s on all cores", number(mb_per_s)),
        beside: format!("{} MB/s on one", number(hash)),
        json: json!({ "mb_per_s": mb_per_s, "sha256_mb_per_s": hash }),
    }
}

fn start(size: &Size, first: &Size) -> Row {
    let (own, base) = (median(size.starts_ms.iter().copied()), median(first.starts_ms.iter().copied()));
    Row {
        what: format!("at {}", size.name()),
        ratio: Spread::of(size.starts_ms.iter().map(|ms| ms / base)),
        target: Some((Target::AtMost(KILLED_OPEN_MS, " ms"), own)),
        doubt: doubt([size.starts_others, first.starts_others]),
        sealog: format!("{} ms", number(own)),
        beside: format!("{} ms", number(base)),
        json: json!({ "ms": size.starts_ms }),
    }
}

fn memory(size: &Size) -> [Row; 2] {
    let limit = MEMORY_PER_EVENT * size.stored as f64 + MEMORY_FIXED;
    let row = |what: &str, bytes: u64| Row {
        what: format!("{what}, at {}", size.name()),
        ratio: Spread::of([bytes as f64 / limit]),
        target: Some((Target::AtMost(limit / 1e6, " MB"), bytes as f64 / 1e6)),
        doubt: None,
        sealog: format!("{} MB", number(bytes as f64 / 1e6)),
        beside: format!("{} MB", number(limit / 1e6)),
        json: json!({ "bytes": bytes }),
    };
    [row("after starting", size.resident_started), row("after all reads and ingest", size.resident_read)]
}

fn disk(size: &Size) -> Row {
    let text = (0..10_000).map(|n| workload::text(n).as_str().len()).sum::<usize>() as f64 / 10_000.0;
    let of = |bytes: u64| bytes as f64 / size.stored as f64;
    let per_event = of(size.disk.log + size.disk.index);
    Row {
        what: format!("at {}", size.name()),
        ratio: Spread::of([per_event / text]),
        target: None,
        doubt: None,
        sealog: format!(
            "{} bytes an event: log {}, index {}; and {} MB of prepared segments, marks and control data",
            number(per_event),
            number(of(size.disk.log)),
            number(of(size.disk.index)),
            number(size.disk.other as f64 / 1e6)
        ),
        beside: format!("{} bytes", number(text)),
        json: json!({ "log": size.disk.log, "index": size.disk.index, "other": size.disk.other }),
    }
}
