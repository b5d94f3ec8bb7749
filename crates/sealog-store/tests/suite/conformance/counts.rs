//! The rules of counts.

use std::collections::BTreeMap;

use sealog_core::event::Draft;
use sealog_core::id::{ChainId, Mode};
use sealog_core::json;
use sealog_core::time::DAY_MS;
use sealog_core::verify::Item;
use sealog_store::Store;
use sealog_store::counts::{
    ACTIONS_MAX, Counted, Counts, DAYS_MAX, DayCounts, Days, STANDARD_ERROR_PERCENT, day_of,
};
use sealog_store::world::World;
use sealog_testing::*;

use super::loss::Lossy;

fn year() -> Days {
    let today = day_of(MORNING_MS);
    Days::new(today - 100, today + 100)
}

/// The counts once everything is counted.
pub fn counted(store: &dyn Store, chain: ChainId, days: Days) -> Counts {
    let mut counts = Counts::default();
    eventually("everything is counted", || {
        counts = wait(store.counts(chain, days)).unwrap();
        counts.uncounted == 0
    });
    counts
}

/// What a look at every event says.
pub fn looked(store: &dyn Store, chain: ChainId, days: Days) -> BTreeMap<u32, DayCounts> {
    let mut counts: BTreeMap<u32, DayCounts> = BTreeMap::new();
    for item in range(store, chain, 1, u64::MAX >> 1, 1 << 20) {
        let Item::Event(event) = item else { continue };
        let day = day_of(event.timestamp_ms);
        if !days.range().contains(&day) {
            continue;
        }
        let fields = event.text.fields();
        let actor_id = fields.actor_id.map(|actor_id| json::decode(actor_id).unwrap());
        let of_event = Counted {
            action: &json::decode(fields.action).unwrap(),
            actor_id: actor_id.as_deref(),
            severity: event.annotations.severity.as_deref(),
            country: event.annotations.country.as_deref(),
        };
        counts.entry(day).or_default().add(&of_event);
    }
    counts
}

#[track_caller]
pub fn assert_counted(store: &dyn Store, chain: ChainId, days: Days) {
    assert_eq!(counted(store, chain, days).days, looked(store, chain, days));
}

fn event(n: u64) -> Draft {
    let actions = ["user.login", "document.viewed", "a\\\"b\\n", "é.ü"];
    let action = actions[usize::try_from(n).unwrap() % actions.len()];
    let actor = if n.is_multiple_of(5) { "null".to_owned() } else { format!("\"usr\\u0001{}\"", n % 7) };
    let mut sent = draft(&format!(r#"{{"action":"{action}","actor_id":{actor},"metadata":{{"n":{n}}}}}"#));
    if n.is_multiple_of(3) {
        sent.annotations.severity = Some(["info", "warning"][usize::try_from(n).unwrap() % 2].into());
        sent.annotations.country = Some("DE".into());
    }
    sent
}

/// Several days of several chains, so many that the embedded store fills segments.
fn fill(store: &dyn Store, world: &StillWorld) -> [ChainId; 3] {
    let chains = [live(), chain(1, 1, Mode::Test), chain(2, 2, Mode::Live)];
    for n in 0..60 {
        for chain in chains {
            append(store, chain, (0..7).map(|k| event(n * 7 + k)).collect());
        }
        append(store, live(), vec![event(n)]);
        world.advance(DAY_MS / 10);
    }
    chains
}

pub fn counts_are_what_looking_at_every_event_counts(store: &dyn Store, world: &StillWorld) {
    assert_eq!(wait(store.counts(live(), year())).unwrap(), Counts::default());
    append(store, live(), vec![event(1)]);
    // Whoever asks counts what is behind, unless somebody else is just doing it.
    let one = counted(store, live(), year());
    assert_eq!(one.events(), 1, "an event counts once after its acknowledgement");
    for chain in fill(store, world) {
        assert_counted(store, chain, year());
    }
    let counts = counted(store, live(), year());
    assert_eq!((counts.events(), counts.days.len()), (1 + 60 * 8, 6));
    assert!(counts.total().actions.get("a\"b\n") > 100, "names are values, not JSON");
    assert_eq!(counted(store, chain(3, 3, Mode::Live), year()), Counts::default());
}

pub fn counts_are_of_the_days_that_were_asked_for_and_of_no_more_than_a_year(
    store: &dyn Store,
    world: &StillWorld,
) {
    fill(store, world);
    let today = day_of(MORNING_MS);
    for (from, until) in [(0, 1), (1, 3), (5, 6), (6, 60), (3, 3)] {
        let days = Days::new(today + from, today + until);
        assert_counted(store, live(), days);
    }
    world.advance(u64::from(DAYS_MAX) * DAY_MS);
    append(store, live(), vec![event(1)]);
    let until = day_of(world.now_ms()) + 1;
    let all = Days::new(0, until);
    assert_eq!(all.range(), until - DAYS_MAX..until);
    assert_counted(store, live(), all);
}

pub fn a_day_counts_so_many_actions_apart_and_the_others_together(store: &dyn Store, _: &StillWorld) {
    let actions = ACTIONS_MAX + 50;
    for from in (0..actions).step_by(50) {
        let sent = (from..(from + 50).min(actions)).map(|n| draft(&format!(r#"{{"action":"custom.a{n}"}}"#)));
        append(store, live(), sent.collect());
    }
    let day = counted(store, live(), year()).total();
    assert_eq!(day.actions.iter().count(), ACTIONS_MAX);
    assert_eq!((day.events, day.actions.other()), (actions as u64, 50));
}

pub fn distinct_actors_are_estimated_within_a_few_percent(store: &dyn Store, world: &StillWorld) {
    for from in (0..3000).step_by(100) {
        append(store, live(), (from..from + 100).map(|n| login(&format!("usr_{}", n % 2000))).collect());
        world.advance(DAY_MS / 8);
    }
    let actors = counted(store, live(), year()).total().actors.estimate();
    assert!(actors.abs_diff(2000) * 100 <= 2000 * 3 * u64::from(STANDARD_ERROR_PERCENT), "{actors}");
}

pub fn imported_events_are_counted(store: &dyn Store, _: &StillWorld) {
    let other = chain(2, 1, Mode::Live);
    let source = sealog_store::reference::ReferenceStore::new(StillWorld::new() as _);
    append(&source, other, (0..20).map(event).collect());
    let events = list(&source, other, &sealog_core::query::Filter::default(), None, 100);
    let events = events.into_iter().rev().collect();
    wait(store.import(other, events, None)).unwrap();
    assert_counted(store, other, year());
    assert_eq!(counted(store, other, year()).events(), 20);
}

pub fn counts_outlive_a_restart(lossy: &mut dyn Lossy, world: &StillWorld) {
    let chains = fill(lossy.store(), world);
    for _ in 0..2 {
        lossy.restart();
        for chain in chains {
            assert_counted(lossy.store(), chain, year());
        }
        append(lossy.store(), live(), vec![event(3)]);
        assert_counted(lossy.store(), live(), year());
    }
    assert_eq!(counted(lossy.store(), live(), year()).events(), 60 * 8 + 2);
}

pub fn events_that_are_lost_are_not_counted_any_more(lossy: &mut dyn Lossy, world: &StillWorld) {
    let chains = fill(lossy.store(), world);
    for chain in chains {
        counted(lossy.store(), chain, year());
    }
    lossy.lose_from(live(), 401);
    wait(lossy.store().accept_loss(live(), "a disk".into())).unwrap();
    for _ in 0..40 {
        append(lossy.store(), live(), vec![event(2)]);
    }
    for chain in chains {
        assert_counted(lossy.store(), chain, year());
    }
    assert_eq!(counted(lossy.store(), live(), year()).total().actions.get("sealog.loss_accepted"), 1);
}
