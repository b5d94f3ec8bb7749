//! Verification of a whole chain beside SHA-256 over the same bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_store::Store;
use serde_json::json;

use super::filled::Filled;
use crate::bare::{Messages, Rate};
use crate::driver::wait;
use crate::machine::cpu_time;
use crate::outcome::Outcome;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, doubt};
use crate::stats::{Spread, median};
use crate::workload;

struct Repeat {
    events_per_s: f64,
    mb_per_s: f64,
    /// MB hashed for each second of CPU time, all threads together.
    mb_per_cpu_s: f64,
    whole: Rate,
    each: Rate,
    others: f64,
}

pub fn measure(setting: &Setting, filled: &Filled) -> Outcome<Section> {
    setting.progress.say("preparing the bytes to hash");
    let messages = Messages::of(filled.events, 64 << 20);
    let bytes = hashed_bytes(filled.events);
    let mut repeats = Vec::new();
    for repeat in 1..=setting.repeats {
        let what = format!("repeat {repeat} of {}: verification", setting.repeats);
        let slice = setting.quietly(&what, || {
            let whole = messages.hash_whole(setting.slice / 3);
            let each = messages.hash_each(setting.slice / 3);
            let (start, cpu) = (Instant::now(), cpu_time());
            let mut rounds = 0;
            while rounds == 0 || start.elapsed() < setting.slice {
                let verdict = wait(filled.store.audit(vec![workload::chain()], Arc::default()))?[0];
                if !verdict.valid() || verdict.checked != filled.events {
                    return Err(format!("the chain does not verify: {verdict:?}").into());
                }
                rounds += 1;
            }
            let rate = |amount: f64, time: Duration| amount * f64::from(rounds) / time.as_secs_f64();
            let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu);
            Ok(Repeat {
                events_per_s: rate(filled.events as f64, elapsed),
                mb_per_s: rate(bytes / 1e6, elapsed),
                mb_per_cpu_s: rate(bytes / 1e6, cpu),
                whole,
                each,
                others: 0.0,
            })
        })?;
        repeats.push(Repeat { others: slice.others, ..slice.value });
    }
    let of = |value: fn(&Repeat) -> f64| median(repeats.iter().map(value));
    let row = |what: &str, ratio: fn(&Repeat) -> f64, beside: fn(&Repeat) -> f64, target: Option<f64>| {
        let ratio = Spread::of(repeats.iter().map(ratio));
        Row {
            what: what.to_owned(),
            ratio,
            target: target.zip(ratio).map(|(limit, ratio)| (Target::AtLeast(limit, "x"), ratio.median)),
            doubt: doubt(repeats.iter().map(|r| r.others)),
            sealog: format!(
                "{} ev/s, {} MB/s hashed ({} MB for each CPU second)",
                number(of(|r| r.events_per_s)),
                number(of(|r| r.mb_per_s)),
                number(of(|r| r.mb_per_cpu_s))
            ),
            beside: format!("{} MB/s", number(median(repeats.iter().map(beside)))),
            json: json!({
                "events_per_s": of(|r| r.events_per_s), "mb_per_s": of(|r| r.mb_per_s), "mb_per_cpu_s": of(|r| r.mb_per_cpu_s),
                "sha256_mb_per_s": median(repeats.iter().map(beside)), "bytes_hashed": bytes,
            }),
        }
    };
    Ok(Section {
        name: "Verification of a whole chain",
        ratio_of: "MB/s of verified hash input over MB/s of raw SHA-256 on one core, from memory; verification uses all cores",
        rows: vec![
            row(
                "each core, beside SHA-256 in one piece",
                |r| r.mb_per_s / cores() / r.whole.per_s,
                |r| r.whole.per_s,
                Some(0.5),
            ),
            row(
                "all cores, beside one with SHA-256",
                |r| r.mb_per_s / r.whole.per_s,
                |r| r.whole.per_s,
                None,
            ),
            row(
                "each core, beside SHA-256 event by event",
                |r| r.mb_per_s / cores() / r.each.per_s,
                |r| r.each.per_s,
                None,
            ),
            // The same where others are on the machine too.
            Row {
                doubt: None,
                ..row(
                    "by CPU time, beside SHA-256 in one piece",
                    |r| r.mb_per_cpu_s / r.whole.per_cpu_s,
                    |r| r.whole.per_cpu_s,
                    Some(0.5),
                )
            },
        ],
    })
}

pub fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

/// All hash input of the chain; the sizes of a sample stand for all.
pub fn hashed_bytes(events: u64) -> f64 {
    let sample = events.min(100_000);
    let bytes: usize = (0..sample).map(|n| workload::hashed_bytes(n).len()).sum();
    bytes as f64 / sample as f64 * events as f64
}
