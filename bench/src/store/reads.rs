//! Lists by every kind of filter, and single events by id.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_core::time::DAY_MS;
use sealog_store::{List, Store};
use serde_json::{Value, json};

use super::filled::{Filled, page};
use crate::driver::{nanos, wait};
use crate::outcome::Outcome;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, doubt};
use crate::stats::{Percentiles, Spread, median};
use crate::workload::{self, ABSENT_ACTION, ABSENT_ACTOR, ABSENT_RESOURCE, Dice, RARE_ACTION, RARE_ACTOR};

/// A page, as the API's default has it.
const LIMIT: usize = 50;
const GET_P99_US: f64 = 100.0;
const LIST_P99_US: f64 = 5000.0;
/// Of a search by a member of `metadata` that few events have.
const FIELD_LIST_P99_US: f64 = 10_000.0;

/// A kind of list: for each sample a filter, and where to begin.
pub type Ask = fn(&mut Dice, u64) -> (Filter, Option<u64>);

/// What every list is compared with.
pub const PLAIN: &str = "newest page, no filter";

#[rustfmt::skip]
pub const LISTS: [(&str, Ask); 23] = [
    (PLAIN, |_, _| (Filter::default(), None)),
    ("page at a random cursor", |dice, events| (Filter::default(), Some(dice.below(events) + 1))),
    ("action", |dice, events| (of(dice, events, true, false, false), None)),
    ("actor (by its share of events)", |dice, events| (of(dice, events, false, true, false), None)),
    ("actor (each as likely)", |dice, _| {
        (Filter { actor_id: Some(workload::actor_text(dice.below(workload::ACTORS))), ..Filter::default() }, None)
    }),
    ("resource", |dice, events| (of(dice, events, false, false, true), None)),
    ("action + actor", |dice, events| (of(dice, events, true, true, false), None)),
    ("action + resource", |dice, events| (of(dice, events, true, false, true), None)),
    ("actor + resource", |dice, events| (of(dice, events, false, true, true), None)),
    ("action + actor + resource", |dice, events| (of(dice, events, true, true, true), None)),
    ("one day", |dice, _| (day(dice, Filter::default()), None)),
    ("one day + action", |dice, events| { let f = of(dice, events, true, false, false); (day(dice, f), None) }),
    ("one day + actor", |dice, events| { let f = of(dice, events, false, true, false); (day(dice, f), None) }),
    ("one day + resource", |dice, events| { let f = of(dice, events, false, false, true); (day(dice, f), None) }),
    ("one day + all three", |dice, events| { let f = of(dice, events, true, true, true); (day(dice, f), None) }),
    ("rare action", |_, _| (Filter { action: Some(RARE_ACTION.into()), ..Filter::default() }, None)),
    ("rare actor", |_, _| (Filter { actor_id: Some(RARE_ACTOR.into()), ..Filter::default() }, None)),
    ("absent action", |_, _| (Filter { action: Some(ABSENT_ACTION.into()), ..Filter::default() }, None)),
    ("absent actor", |_, _| (Filter { actor_id: Some(ABSENT_ACTOR.into()), ..Filter::default() }, None)),
    ("absent resource", |_, _| (Filter { resource: Some(ABSENT_RESOURCE.into()), ..Filter::default() }, None)),
    ("frequent action + actor that never meet", |_, _| (never_together(), None)),
    ("frequent action + actor that never meet, in 30 days", |_, _| {
        let until_ms = Some(workload::START_MS + 45 * DAY_MS);
        (Filter { from_ms: Some(workload::START_MS + 15 * DAY_MS), until_ms, ..never_together() }, None)
    }),
    ("dates before the first event", |_, _| (Filter { until_ms: Some(workload::START_MS - DAY_MS), ..Filter::default() }, None)),
];

/// By members of `metadata`, which the API does not filter by: the dashboard's searches do.
const FIELD_LISTS: [(&str, Ask); 2] = [
    ("member of metadata that one event has", |dice, events| {
        (by_session(&session(dice.below(events))), None)
    }),
    ("absent member of metadata", |_, _| (by_session("ses_absent"), None)),
];

fn by_session(session: &str) -> Filter {
    Filter { fields: vec![FieldIs::new("session_id", session)], ..Filter::default() }
}

fn session(n: u64) -> String {
    let metadata = workload::metadata(n);
    let behind = metadata.split("\"session_id\":\"").nth(1).unwrap_or_default();
    behind.split('"').next().unwrap_or_default().to_owned()
}

/// What some event of the store has, so that there is at least one match.
fn of(dice: &mut Dice, events: u64, action: bool, actor_id: bool, resource: bool) -> Filter {
    let keys = workload::keys(dice.below(events));
    Filter {
        action: action.then_some(keys.action),
        actor_id: actor_id.then_some(keys.actor_id),
        resource: resource.then_some(keys.resource),
        ..Filter::default()
    }
}

fn day(dice: &mut Dice, filter: Filter) -> Filter {
    let from_ms = workload::START_MS + dice.below(workload::DAYS) * DAY_MS;
    Filter { from_ms: Some(from_ms), until_ms: Some(from_ms + DAY_MS), ..filter }
}

fn never_together() -> Filter {
    let (action, actor_id) = workload::never_together();
    Filter { action: Some(action), actor_id: Some(actor_id), ..Filter::default() }
}

/// The list that can skip nothing and finds nothing.
pub fn slowest() -> List {
    List { filter: never_together(), before_seq: None, limit: LIMIT, bytes_max: 1 << 20 }
}

/// One kind of read, in all repeats.
struct Kind {
    name: String,
    repeats: Vec<Percentiles>,
    /// Events that an answer had, on average.
    items: f64,
    others: Vec<f64>,
}

impl Kind {
    fn of(&self, value: impl Fn(&Percentiles) -> f64) -> f64 {
        median(self.repeats.iter().map(value))
    }

    fn text(&self) -> String {
        format!("p50 {} p99 {} µs", number(self.of(|us| us.p50)), number(self.of(|us| us.p99)))
    }

    fn json(&self) -> Value {
        json!({
            "p50_us": self.of(|us| us.p50), "p99_us": self.of(|us| us.p99), "p999_us": self.of(|us| us.p999), "max_us": self.of(|us| us.max),
            "samples": self.repeats.iter().map(|us| us.samples).collect::<Vec<_>>(), "items": self.items,
        })
    }

    fn ratio(&self, beside: &Kind) -> Option<Spread> {
        Spread::of(self.repeats.iter().zip(&beside.repeats).map(|(a, b)| a.p50 / b.p50))
    }
}

pub fn measure(setting: &Setting, filled: &Filled) -> Outcome<Section> {
    let store = &filled.store;
    let kind =
        |name: &str| Kind { name: name.to_owned(), repeats: Vec::new(), items: 0.0, others: Vec::new() };
    let mut lists: Vec<Kind> = LISTS.iter().chain(&FIELD_LISTS).map(|(name, _)| kind(name)).collect();
    let (mut get, mut absent, mut hop, mut pread) =
        (kind("one event by log_id"), kind("a log_id that is not there"), kind("empty read"), kind("pread"));
    let segment = File::open(largest_segment(&filled.dir)?)?;
    let segment_bytes = segment.metadata()?.len();
    for repeat in 1..=setting.repeats {
        let mut dice = Dice::new(repeat as u64);
        let mut buffer = [0; 1024];
        pread.sample(setting, repeat, || {
            let at = dice.below(segment_bytes - buffer.len() as u64);
            let (start, read) = (Instant::now(), segment.read_at(&mut buffer, at)?);
            Ok((start.elapsed(), usize::from(read > 0)))
        })?;
        hop.sample(setting, repeat, || {
            timed_list(store, workload::empty_chain(), List { filter: Filter::default(), ..slowest() })
        })?;
        get.sample(setting, repeat, || {
            let at = usize::try_from(dice.below(filled.log_ids.len() as u64))?;
            let (start, event) = (Instant::now(), wait(store.get(workload::chain(), filled.log_ids[at]))?);
            let took = start.elapsed();
            event.filter(|event| event.sealed.log_id == filled.log_ids[at]).ok_or("an event is not found")?;
            Ok((took, 1))
        })?;
        absent.sample(setting, repeat, || {
            let at = usize::try_from(dice.below(filled.log_ids.len() as u64))?;
            let mut log_id = filled.log_ids[at];
            log_id.0 ^= 1 << 70;
            let (start, event) = (Instant::now(), wait(store.get(workload::chain(), log_id))?);
            Ok((start.elapsed(), usize::from(event.is_some())))
        })?;
        for ((_, ask), list) in LISTS.iter().chain(&FIELD_LISTS).zip(&mut lists) {
            list.sample(setting, repeat, || {
                let (filter, before_seq) = ask(&mut dice, filled.events);
                timed_list(store, workload::chain(), List { filter, before_seq, ..slowest() })
            })?;
        }
    }
    let mut rows = vec![
        Row { target: None, ..row(&hop, &pread, 0.0) },
        row(&get, &pread, GET_P99_US),
        row(&absent, &pread, GET_P99_US),
    ];
    rows[0].what = "an empty read: to the store's reader threads and back (beside: one `pread`)".into();
    rows[1].what += " (beside: one `pread`)";
    rows[2].what += " (beside: one `pread`)";
    rows.extend(lists.iter().map(|list| {
        let is_of_field = FIELD_LISTS.iter().any(|(name, _)| list.name.contains(name));
        let p99_max_us = if is_of_field { FIELD_LIST_P99_US } else { LIST_P99_US };
        let mut row = row(list, &lists[0], p99_max_us);
        row.what = format!("list: {}", row.what);
        row.sealog += &format!("; {} events", number(list.items));
        row
    }));
    Ok(Section {
        name: "Reads",
        ratio_of: "median time over that of one `pread` of 1 KiB at a random place, for single reads; over that of the newest page without a filter, for lists",
        rows,
    })
}

impl Kind {
    /// Asks until the time is over; what an answer took, and how many events it had, is up to `ask`.
    fn sample(
        &mut self,
        setting: &Setting,
        repeat: usize,
        mut ask: impl FnMut() -> Outcome<(Duration, usize)>,
    ) -> Outcome<()> {
        const WARM_UP: usize = 3;
        const SAMPLES_MIN: usize = 20;
        let what = format!("repeat {repeat} of {}: reads, {}", setting.repeats, self.name);
        let slice = setting.quietly(&what, || {
            for _ in 0..WARM_UP {
                ask()?;
            }
            let (start, mut samples, mut items) = (Instant::now(), Vec::new(), 0);
            while samples.len() < SAMPLES_MIN || start.elapsed() < setting.slice / 3 {
                let (took, had) = ask()?;
                samples.push(nanos(took));
                items += had;
            }
            Ok((samples, items))
        })?;
        let (mut samples, items) = slice.value;
        self.items = items as f64 / samples.len() as f64;
        self.repeats.extend(Percentiles::of_ns(&mut samples));
        self.others.push(slice.others);
        Ok(())
    }
}

fn timed_list(store: &dyn Store, chain: sealog_core::id::ChainId, list: List) -> Outcome<(Duration, usize)> {
    let start = Instant::now();
    let items = page(store, chain, list)?.len();
    Ok((start.elapsed(), items))
}

fn row(kind: &Kind, beside: &Kind, p99_max_us: f64) -> Row {
    Row {
        what: kind.name.clone(),
        ratio: kind.ratio(beside),
        target: Some((Target::AtMost(p99_max_us, " µs p99"), kind.of(|us| us.p99))),
        doubt: doubt(kind.others.iter().chain(&beside.others).copied()),
        sealog: kind.text(),
        beside: beside.text(),
        json: kind.json(),
    }
}

fn largest_segment(dir: &Path) -> Outcome<PathBuf> {
    let mut largest = None;
    for entry in std::fs::read_dir(dir.join("live"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            largest = largest.max(Some((std::fs::metadata(&path)?.len(), path)));
        }
    }
    Ok(largest.ok_or("the store has no segment")?.1)
}
