//! The rules of retention: old test events are dropped, oldest first, and nothing else is. Each is given an
//! empty store.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_core::verify::Item;
use sealog_store::feed::{Scope, Start};
use sealog_store::{DropStep, Receipt, Store};
use sealog_testing::*;

/// Everything is older.
const FAR: u64 = u64::MAX >> 8;

fn test(project: u8) -> ChainId {
    chain(1, project, Mode::Test)
}

fn fill(store: &dyn Store, chain: ChainId, events: u64) -> Vec<Receipt> {
    let drafts: Vec<_> = (0..events).map(|n| login(&n.to_string())).collect();
    drafts.chunks(100).map(|drafts| append(store, chain, drafts.to_vec())).collect()
}

fn dropped(store: &dyn Store, chain: ChainId) -> u64 {
    wait(store.head(chain)).unwrap().dropped.chain_seq
}

/// Drops until a chain has lost so many events. A segment is dropped when its index and the mark are on disk.
fn drop_beyond(store: &dyn Store, chain: ChainId, seq: u64) -> u64 {
    eventually("enough is dropped", || {
        while wait(store.drop_test_events(FAR)).unwrap().more {}
        dropped(store, chain) > seq
    });
    dropped(store, chain)
}

/// Lists, ranges, verification and audits all have the events from `first` to `last`, and no others.
#[track_caller]
pub fn assert_has(store: &dyn Store, chain: ChainId, first: u64, last: u64) {
    let verdict = verify(store, chain);
    assert_eq!((verdict.broken, verdict.first_seq, verdict.last_seq), (None, first, last));
    assert_eq!(verdict.checked, last + 1 - first);
    let audited = wait(store.audit(vec![chain], Arc::new(AtomicU64::new(0)))).unwrap();
    assert_eq!(audited[0], verdict);
    let listed = list(store, chain, &Filter::default(), None, 10_000);
    let seqs: Vec<u64> = listed.iter().map(|event| event.sealed.chain_seq).collect();
    assert_eq!(seqs, (first..=last).rev().collect::<Vec<_>>());
    let ranged = range(store, chain, 1, u64::MAX >> 1, 1 << 16);
    let seqs: Vec<u64> = ranged
        .iter()
        .map(|item| match item {
            Item::Event(event) => event.sealed.chain_seq,
            Item::Damaged { chain_seq } => panic!("#{chain_seq} is damaged"),
        })
        .collect();
    assert_eq!(seqs, (first..=last).collect::<Vec<_>>());
}

pub fn old_test_events_are_dropped_oldest_first_and_the_chain_begins_behind_them(
    store: &dyn Store,
    _: &StillWorld,
) {
    let receipts = fill(store, test(1), 1000);
    fill(store, test(2), 600);
    fill(store, live(), 1000);
    fill(store, chain(2, 1, Mode::Live), 100);
    let before = verify(store, test(1)).last_seq;
    let through = drop_beyond(store, test(1), 300);
    assert_has(store, test(1), through + 1, before);
    assert_has(store, test(2), dropped(store, test(2)) + 1, 600);
    // What was dropped is like what never was.
    assert_eq!(get(store, test(1), receipts[0].log_ids[0]), None);
    // No window can be asked for that begins in it.
    if through < 1000 {
        let window = verify_window(store, test(1), 1, 1000);
        assert_eq!((window.first_seq, window.last_seq, window.broken), (through + 1, 1000, None));
        let early = verify_window(store, test(1), 1, 10);
        let last = (through + 10).min(1000);
        assert_eq!((early.first_seq, early.last_seq, early.broken), (through + 1, last, None));
    }
    // The first event that is kept still names the one that was dropped.
    if let Some(Item::Event(first)) = range(store, test(1), through + 1, through + 1, 1).pop() {
        assert_eq!(first.sealed.prev_hash, wait(store.head(test(1))).unwrap().dropped.hash);
    }
    for live in [(live(), 1000), (chain(2, 1, Mode::Live), 100)] {
        assert_valid(store, live.0, live.1);
        assert_has(store, live.0, 1, live.1);
        assert_eq!(dropped(store, live.0), 0);
    }
}

pub fn a_chain_goes_on_behind_what_was_dropped(store: &dyn Store, world: &StillWorld) {
    let receipts = fill(store, test(1), 800);
    fill(store, test(2), 300);
    drop_beyond(store, test(1), 300);
    let next = append(store, test(1), vec![login("next")]);
    assert_eq!(next.first_seq, 801);
    let event = get(store, test(1), next.log_ids[0]).unwrap();
    assert_eq!(event.sealed.prev_hash, receipts.last().unwrap().hash);
    assert!(event.sealed.log_id > *receipts.last().unwrap().log_ids.last().unwrap());
    assert_has(store, test(1), dropped(store, test(1)) + 1, 801);
    world.advance(1000);
    let once = || append_once(store, test(1), vec![login("once")], key("k", "b"), Ulid(7));
    let Outcome::Sealed(first) = once() else { panic!("the key is new") };
    assert_eq!(once(), Outcome::Replayed(first), "a key counts as before");
    assert_eq!(wait(store.head(test(1))).unwrap().durable.chain_seq, 802);
}

pub fn what_is_young_is_kept(store: &dyn Store, world: &StillWorld) {
    assert_eq!(wait(store.drop_test_events(FAR)), Ok(DropStep::default()), "there is nothing");
    fill(store, test(1), 600);
    world.advance(10_000);
    for before_ms in [0, MORNING_MS - 1, MORNING_MS] {
        assert_eq!(wait(store.drop_test_events(before_ms)), Ok(DropStep::default()));
    }
    assert_has(store, test(1), 1, 600);
    assert_eq!(wait(store.head(test(1))).unwrap().dropped.hash, Hash::ZERO);
}

pub fn a_follower_hears_of_what_is_kept_from_any_position(store: &dyn Store, _: &StillWorld) {
    fill(store, test(1), 500);
    let mut follower = wait(store.follow(Scope::Chain(test(1)), Start::Beginning)).unwrap();
    let position = wait(follower.next(10)).unwrap().position;
    fill(store, test(1), 500);
    let through = drop_beyond(store, test(1), 300);
    append(store, test(1), vec![login("last")]);
    for start in [Start::Beginning, Start::After(position)] {
        let mut follower = wait(store.follow(Scope::Chain(test(1)), start)).unwrap();
        let heard = wait(follower.next(10)).unwrap().changes;
        assert_eq!(heard.last().unwrap().head.chain_seq, 1001);
    }
    assert_has(store, test(1), through + 1, 1001);
}
