//! Ingest, and what something that happens beside it costs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use crate::http::case::load;
use crate::http::load::Pace;
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::report::{Row, Target, number};
use crate::setting::{Setting, doubt};
use crate::side::Side;
use crate::stats::{Spread, median};

/// Connections that send events.
const CONNECTIONS: usize = 64;
/// What ingest keeps beside five people, an export, a search of a case, or a backup.
const KEPT: f64 = 0.9;

/// Ingest without and with something beside it.
#[derive(Debug)]
pub struct Beside {
    pub send: Send,
    pub what: &'static str,
    pub pairs: Vec<(Side, Side)>,
    /// What others took of the machine meanwhile, at most.
    pub others: f64,
    /// How often that was done meanwhile: pages that were looked at, downloads or backups that were ended.
    pub done: u64,
    /// What of the requests/s is to be left.
    pub kept: f64,
}

impl Beside {
    pub fn row(&self) -> Row {
        let Beside { send, what, pairs, others, done, kept } = self;
        let ratio = Spread::of(pairs.iter().map(|(alone, with)| with.requests_per_s / alone.requests_per_s));
        let wrong =
            pairs.iter().find_map(|(alone, with)| alone.errors.clone().or_else(|| with.errors.clone()));
        let rate = |of: &dyn Fn(&(Side, Side)) -> f64| number(median(pairs.iter().map(of)));
        Row {
            what: format!("{} beside {what} ({} done)", send.name(), number(*done as f64)),
            ratio,
            target: ratio.map(|ratio| (Target::AtLeast(*kept, "x"), ratio.median)),
            doubt: wrong.or_else(|| doubt([*others])),
            sealog: format!("{} requests/s", rate(&|(_, with)| with.requests_per_s)),
            beside: format!("{} requests/s alone", rate(&|(alone, _)| alone.requests_per_s)),
            json: json!({
                "repeats": pairs.iter().map(|(alone, with)| json!({ "alone": alone.json(), "beside": with.json() })).collect::<Vec<_>>(),
            }),
        }
    }
}

/// What somebody does until it is over; the number says which of them it is.
pub type Act<'a> = dyn Fn(usize, &AtomicBool, &AtomicU64) -> Outcome<()> + Sync + 'a;

/// Sends events into a chain, alone and then while this `number` of them act.
pub fn beside_ingest(
    setting: &Setting,
    sealog: &mut Sealog,
    (chain, send): (usize, Send),
    what: &'static str,
    number: usize,
    act: &Act<'_>,
) -> Outcome<Beside> {
    let (mut pairs, mut others, done) = (Vec::new(), 0f64, AtomicU64::new(0));
    for repeat in 1..=setting.repeats {
        let name = format!("repeat {repeat} of {}: {} beside {what}", setting.repeats, send.name());
        let slice = setting.quietly(&name, || {
            let alone = ingest(setting, sealog, chain, &send)?;
            let over = AtomicBool::new(false);
            let beside = std::thread::scope(|scope| {
                let (over, done) = (&over, &done);
                let start =
                    |one| scope.spawn(move || act(one, over, done).map_err(|error| error.to_string()));
                let acting: Vec<_> = (0..number).map(start).collect();
                let beside = ingest(setting, sealog, chain, &send);
                over.store(true, Ordering::Relaxed);
                for one in acting {
                    one.join().map_err(|_| "what was beside ingest has panicked")??;
                }
                beside
            })?;
            Ok((alone, beside))
        })?;
        others = others.max(slice.others);
        pairs.push(slice.value);
    }
    Ok(Beside { send, what, pairs, others, done: done.into_inner(), kept: KEPT })
}

pub fn ingest(setting: &Setting, sealog: &mut Sealog, chain: usize, send: &Send) -> Outcome<Side> {
    let mut requests = Requests::new(sealog, send, chain, 1, false)?;
    let counters = || sealog.counters();
    let (loaded, cpu, bytes) = load(
        (sealog.addresses(), None),
        CONNECTIONS,
        Pace::Closed,
        setting.slice,
        &mut requests,
        &counters,
        None,
        &|_| {},
    )?;
    sealog.acknowledge(&loaded);
    Side::of_load(&loaded, cpu, bytes)
}
