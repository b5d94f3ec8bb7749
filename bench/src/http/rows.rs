//! From what was measured to the rows of the report.

use serde_json::{Value, json};

use super::case::{Measured, Memory, Repeat};
use super::plan::{Beside, Bounds, PlannedPace};
use crate::report::{Row, Section, Target, number};
use crate::setting::doubt;
use crate::side::Side;
use crate::stats::{Spread, median};
use crate::store::reopen::{MEMORY_FIXED, MEMORY_PER_EVENT};

pub fn sections(measured: &[Measured], memory: &[Memory]) -> Vec<Section> {
    let section =
        |name: &'static str, ratio_of: &'static str, rows: Vec<Row>| Section { name, ratio_of, rows };
    let closed = |case: &Measured| case.case.pace == PlannedPace::Closed;
    // What a case has to keep beside this.
    let bound = |case: &Measured, beside: Beside, of: fn(&Bounds) -> Option<f64>| {
        case.case.targets.get(&beside).and_then(of)
    };
    let rows = |beside: Beside, wanted: &dyn Fn(&Measured) -> bool, of: &dyn Fn(&Measured) -> Vec<Row>| {
        let cases = measured.iter().filter(|case| case.case.beside.contains(&beside) && wanted(case));
        cases.flat_map(of).collect::<Vec<Row>>()
    };
    let bare = rows(Beside::Bare, &closed, &|case| {
        let target = bound(case, Beside::Bare, |bounds| bounds.requests_min);
        vec![row(case, Beside::Bare, "", |side| side.requests_per_s, target.map(at_least))]
    });
    let cpu = rows(Beside::Bare, &closed, &|case| {
        let target = bound(case, Beside::Bare, |bounds| bounds.cpu_max);
        vec![row(case, Beside::Bare, "", |side| side.cpu_us, target.map(at_most))]
    });
    let open = rows(Beside::Bare, &|case| !closed(case), &|case| {
        let at = format!(" ({} requests/s)", number(case.rate.unwrap_or(0.0)));
        vec![
            row(case, Beside::Bare, &format!("{at}, p99.9"), |side| side.us.p999, None),
            row(case, Beside::Bare, &format!("{at}, p50"), |side| side.us.p50, None),
        ]
    });
    let sync = rows(Beside::Sync, &|_| true, &|case| {
        let target = bound(case, Beside::Sync, |bounds| bounds.p50_max);
        vec![
            row(case, Beside::Sync, ", p50", |side| side.us.p50, target.map(at_most)),
            row(case, Beside::Sync, ", p99", |side| side.us.p99, None),
            row(case, Beside::Sync, ", p99.9", |side| side.us.p999, None),
        ]
    });
    let mut peers = Vec::new();
    for (beside, name) in [
        (Beside::Trigger, "PostgreSQL, hash chain by a trigger"),
        (Beside::Copy, "PostgreSQL, hash chain by the client, COPY of 100"),
        (Beside::LargeCopy, "PostgreSQL, hash chain by the client, COPY of 1000"),
        (Beside::SameTable, "PostgreSQL, bare COPY of 1000 into the same table and indexes"),
        (Beside::Quipu, "quipu-server"),
    ] {
        peers.extend(rows(beside, &|_| true, &|case| {
            let target = bound(case, beside, |bounds| bounds.events_min);
            vec![row(
                case,
                beside,
                &format!(" (beside: {name})"),
                |side| side.events_per_s,
                target.map(at_least),
            )]
        }));
    }
    let one_node = rows(Beside::OneNode, &|_| true, &|case| {
        let target = bound(case, Beside::OneNode, |bounds| bounds.events_min);
        vec![row(case, Beside::OneNode, "", |side| side.events_per_s, target.map(at_least))]
    });
    let alone = rows(Beside::Alone, &|_| true, &|case| {
        let target = bound(case, Beside::Alone, |bounds| bounds.p99_max);
        vec![
            row(case, Beside::Alone, ", p99", |side| side.us.p99, target.map(at_most)),
            row(case, Beside::Alone, ", p50", |side| side.us.p50, None),
        ]
    });
    let other = rows(Beside::Other, &|_| true, &|case| {
        vec![
            row(case, Beside::Other, ", requests/s", |side| side.requests_per_s, None),
            row(case, Beside::Other, ", CPU a request", |side| side.cpu_us, None),
            row(case, Beside::Other, ", p50", |side| side.us.p50, None),
            row(case, Beside::Other, ", p99", |side| side.us.p99, None),
        ]
    });
    let plain = rows(Beside::Plain, &|_| true, &|case| {
        let target = bound(case, Beside::Plain, |bounds| bounds.requests_min);
        vec![
            row(case, Beside::Plain, ", requests/s", |side| side.requests_per_s, target.map(at_least)),
            row(case, Beside::Plain, ", CPU a request", |side| side.cpu_us, None),
            row(case, Beside::Plain, ", p50", |side| side.us.p50, None),
            row(case, Beside::Plain, ", p99", |side| side.us.p99, None),
        ]
    });
    let lone: Vec<Row> = measured.iter().filter(|case| case.case.beside.is_empty()).map(lone).collect();
    let sections = [
        section(
            "Requests beside a bare hyper server",
            "requests/s of Sealog over those of a server that gives the same answer and does nothing",
            bare,
        ),
        section(
            "CPU time of the server beside that of a bare hyper server",
            "CPU time a request, all threads, user and system",
            cpu,
        ),
        section(
            "Latency at a fixed rate",
            "time from the moment when a request was due, over that of a bare hyper server at the same rate",
            open,
        ),
        section(
            "Latency beside the bare sync",
            "time of a request over HTTP over that of one `pwrite` + `fdatasync` of as many bytes",
            sync,
        ),
        section(
            "Beside what a user could take instead",
            "durable events/s of Sealog over those of the other",
            peers,
        ),
        section(
            "Several nodes on one database",
            "durable events/s of all nodes over those of one of them with as many connections",
            one_node,
        ),
        section(
            "A neighbour that sends without pause",
            "time of a request with the neighbour over that without",
            alone,
        ),
        section("Beside another build", "Sealog over the build that was given with `--compare`", other),
        section("With TLS", "Sealog over TLS over the same program without it", plain),
        section("Others", "none: nothing stands beside these", lone),
        section(
            "Memory of the server at the end of its cases",
            "resident memory over 25 B an event + 300 MB",
            memory.iter().map(memory_row).collect(),
        ),
    ];
    sections.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

fn at_least(limit: f64) -> Target {
    Target::AtLeast(limit, "x")
}

fn at_most(limit: f64) -> Target {
    Target::AtMost(limit, "x")
}

fn row(case: &Measured, beside: Beside, suffix: &str, of: fn(&Side) -> f64, target: Option<Target>) -> Row {
    let ratios =
        case.repeats.iter().filter_map(|repeat| Some(of(&repeat.sealog) / of(repeat.beside(beside)?)));
    let ratio = Spread::of(ratios);
    let refusal = case.repeats.iter().find_map(|repeat| repeat.refusal(beside));
    Row {
        what: format!("{}{suffix}", case.case.name()),
        ratio,
        target: target.zip(ratio).map(|(target, ratio)| (target, ratio.median)),
        doubt: doubt_of(case, beside),
        sealog: text(case, &|repeat| Some(&repeat.sealog)),
        beside: refusal.map_or_else(
            || text(case, &|repeat| repeat.beside(beside)),
            |refusal| format!("no number: {refusal}"),
        ),
        json: json!({
            "connections": case.case.connections, "chains": case.case.chains, "idempotency": case.case.idempotency, "rate": case.rate,
            "repeats": case.repeats.iter().map(|repeat| json!({
                "sealog": repeat.sealog.json(), "beside": repeat.beside(beside).map(Side::json), "others": repeat.others,
            })).collect::<Vec<Value>>(),
        }),
    }
}

fn lone(case: &Measured) -> Row {
    Row {
        what: case.case.name(),
        ratio: None,
        target: None,
        doubt: doubt_of(case, Beside::Alone),
        sealog: text(case, &|repeat| Some(&repeat.sealog)),
        beside: String::new(),
        json: json!({
            "connections": case.case.connections, "chains": case.case.chains, "idempotency": case.case.idempotency, "rate": case.rate,
            "repeats": case.repeats.iter().map(|repeat| json!({ "sealog": repeat.sealog.json(), "others": repeat.others })).collect::<Vec<Value>>(),
        }),
    }
}

fn doubt_of(case: &Measured, beside: Beside) -> Option<String> {
    let errors = case.repeats.iter().find_map(|repeat| {
        let sides = [Some(&repeat.sealog), repeat.beside(beside)];
        sides.into_iter().flatten().find_map(|side| side.errors.clone())
    });
    errors.or_else(|| doubt(case.repeats.iter().map(|repeat| repeat.others)))
}

fn text(case: &Measured, side: &dyn Fn(&Repeat) -> Option<&Side>) -> String {
    let of = |value: fn(&Side) -> f64| number(median(case.repeats.iter().filter_map(side).map(value)));
    let has = |value: fn(&Side) -> f64| case.repeats.iter().filter_map(side).any(|side| value(side) > 0.0);
    let mut text = format!("{} requests/s", of(|side| side.requests_per_s));
    if has(|side| side.events_per_s) && case.case.send.events() > 1 {
        text += &format!(", {} ev/s", of(|side| side.events_per_s));
    }
    text += &format!(
        "; p50 {} p90 {} p99 {} p99.9 {} µs",
        of(|side| side.us.p50),
        of(|side| side.us.p90),
        of(|side| side.us.p99),
        of(|side| side.us.p999)
    );
    if has(|side| side.cpu_us) {
        text += &format!("; CPU {} µs a request", of(|side| side.cpu_us));
    }
    let first = case.repeats.iter().find_map(side);
    for (at, (part, _)) in first.map_or(&[][..], |side| &side.parts_us).iter().enumerate() {
        let us = case.repeats.iter().filter_map(side).filter_map(|side| Some(side.parts_us.get(at)?.1));
        text += &format!(", {part} {} µs an event", number(median(us)));
    }
    if has(|side| side.generator) {
        text += &format!(" (generator {} cores)", of(|side| side.generator));
    }
    if has(|side| side.device_bytes) {
        text += &format!("; {} B to the device an event", of(|side| side.device_bytes));
    }
    text
}

fn memory_row(memory: &Memory) -> Row {
    let limit = MEMORY_PER_EVENT * memory.events as f64 + MEMORY_FIXED;
    let resident = memory.resident_bytes as f64;
    Row {
        what: match memory.chains {
            1 => format!("one chain, {} events", number(memory.events as f64)),
            chains => format!("{} chains, {} events", number(chains as f64), number(memory.events as f64)),
        },
        ratio: Spread::of([resident / limit]),
        target: Some((Target::AtMost(1.0, "x"), resident / limit)),
        doubt: None,
        sealog: format!("{} MB", number(resident / 1e6)),
        beside: format!("{} MB", number(limit / 1e6)),
        json: json!({ "chains": memory.chains, "events": memory.events, "resident_bytes": memory.resident_bytes }),
    }
}
