//! From what was measured to the rows of the report.

use serde_json::json;

use super::visitor;
use crate::beside::Beside;
use crate::report::{Row, Section, Target, number};
use crate::setting::doubt;
use crate::stats::{Percentiles, Spread, median};
use crate::store::reopen::{MEMORY_FIXED, MEMORY_PER_EVENT};

/// One page at one size.
#[derive(Debug)]
pub struct Page {
    pub path: String,
    /// Of every repeat, and what others took of the machine meanwhile.
    pub times: Vec<(Percentiles, f64)>,
    pub bytes: usize,
}

#[derive(Debug)]
pub struct Size {
    pub events: u64,
    pub pages: Vec<Page>,
    pub resident: u64,
}

/// Downloads of a whole chain, one after the other, with nothing beside them: MB/s of every repeat.
#[derive(Debug)]
pub struct Downloads {
    pub mb_per_s: Vec<f64>,
    pub bytes: u64,
    pub others: f64,
}

/// At the 95th percentile, at this many events and fewer; more have the second.
const PAGE_MS: [(u64, f64); 2] = [(1_000_000, 50.0), (u64::MAX, 150.0)];
const EXPORT_MB_PER_S: f64 = 100.0;

pub fn sections(sizes: &[Size], downloads: &Downloads, beside: &[Beside]) -> Vec<Section> {
    let pages = sizes.iter().flat_map(|size| {
        let first = sizes.first();
        size.pages.iter().map(move |page| row(page, size, first))
    });
    vec![
        Section {
            name: "Pages, warm, on one connection",
            ratio_of: "p95 over that of the smallest size",
            rows: pages.collect(),
        },
        Section { name: "Exports", ratio_of: "none", rows: vec![export(downloads)] },
        Section {
            name: "Ingest beside people, exports and searches of cases",
            ratio_of: "requests/s over those without them",
            rows: beside.iter().map(Beside::row).collect(),
        },
        Section {
            name: "Memory of the server",
            ratio_of: "resident memory over 25 B an event + 300 MB",
            rows: sizes.iter().map(memory).collect(),
        },
    ]
}

impl Page {
    fn p95_ms(&self) -> f64 {
        median(self.times.iter().map(|(times, _)| times.p95)) / 1e3
    }
}

fn row(page: &Page, size: &Size, first: Option<&Size>) -> Row {
    let name = visitor::name(&page.path);
    let base = first.and_then(|first| first.pages.iter().find(|other| visitor::name(&other.path) == name));
    let ratio =
        base.and_then(|base| Spread::of(page.times.iter().map(|(times, _)| times.p95 / 1e3 / base.p95_ms())));
    let limit = PAGE_MS.iter().find(|(events, _)| size.events <= *events).map_or(0.0, |(_, ms)| *ms);
    let of = |value: fn(&Percentiles) -> f64| {
        number(median(page.times.iter().map(|(times, _)| value(times))) / 1e3)
    };
    Row {
        what: format!("{} events, `{name}`", number(size.events as f64)),
        ratio,
        target: Some((Target::AtMost(limit, " ms p95"), page.p95_ms())),
        doubt: doubt(page.times.iter().map(|(_, others)| *others)),
        sealog: format!(
            "p50 {} p95 {} p99 {} ms; {} KB",
            of(|times| times.p50),
            of(|times| times.p95),
            of(|times| times.p99),
            number(page.bytes as f64 / 1e3)
        ),
        beside: String::new(),
        json: json!({
            "path": name, "events": size.events, "bytes": page.bytes,
            "p95_us": page.times.iter().map(|(times, _)| times.p95).collect::<Vec<_>>(),
        }),
    }
}

fn export(downloads: &Downloads) -> Row {
    let rate = median(downloads.mb_per_s.iter().copied());
    Row {
        what: format!("NDJSON of {} MB, alone", number(downloads.bytes as f64 / 1e6)),
        ratio: None,
        target: Some((Target::AtLeast(EXPORT_MB_PER_S, " MB/s"), rate)),
        doubt: doubt([downloads.others]),
        sealog: format!("{} MB/s", number(rate)),
        beside: String::new(),
        json: json!({ "bytes": downloads.bytes, "mb_per_s": downloads.mb_per_s }),
    }
}

fn memory(size: &Size) -> Row {
    let allowed = MEMORY_PER_EVENT * size.events as f64 + MEMORY_FIXED;
    let ratio = size.resident as f64 / allowed;
    Row {
        what: format!("{} events, after every page was looked at", number(size.events as f64)),
        ratio: Spread::of([ratio]),
        target: Some((Target::AtMost(1.0, "x"), ratio)),
        doubt: None,
        sealog: format!("{} MB", number(size.resident as f64 / 1e6)),
        beside: format!("{} MB", number(allowed / 1e6)),
        json: json!({ "resident": size.resident, "allowed": allowed }),
    }
}
