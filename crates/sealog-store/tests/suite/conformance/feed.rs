//! The rules of following a store. Each is given an empty store, or one that can lose events and be started
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::verify::Item;
use sealog_store::feed::{Batch, Follower, Position, Scope, Start};
use sealog_store::reference::ReferenceStore;
use sealog_store::{Store, StoreError};

use super::loss::Lossy;
use sealog_testing::feed::{Heads, assert_hears, assert_quiet, catch_up, heads};
use sealog_testing::*;

pub fn follow(store: &dyn Store, scope: Scope, start: Start) -> Follower {
    wait(store.follow(scope, start)).unwrap()
}

fn everything(store: &dyn Store, start: Start) -> Follower {
    follow(store, Scope::Everything, start)
}

/// The next batch.
#[track_caller]
pub fn next(follower: &mut Follower, limit: usize) -> Batch {
    let batch = soon(follower.next(limit)).unwrap();
    assert!((1..=limit).contains(&batch.changes.len()), "{batch:?}");
    let chains: BTreeSet<ChainId> = batch.changes.iter().map(|change| change.chain).collect();
    assert_eq!(chains.len(), batch.changes.len(), "each chain is announced once");
    assert_eq!(batch.position, follower.position());
    batch
}

/// The chain's event at the head is there, and so is everything below it.
#[track_caller]
pub fn assert_readable(store: &dyn Store, chain: ChainId, head: Head) {
    let items = range(store, chain, 1, head.chain_seq, 1 << 20);
    assert_eq!(items.len() as u64, head.chain_seq, "announced and not there");
    let Some(Item::Event(last)) = items.last() else { panic!("{items:?}") };
    assert_eq!(last.head(), head);
    assert_eq!(get(store, chain, head.log_id).map(|event| event.head()), Some(head));
}

fn many(count: u8) -> Vec<ChainId> {
    (1..=count).map(|n| chain(n % 3 + 1, n, if n % 4 == 0 { Mode::Test } else { Mode::Live })).collect()
}

pub fn from_the_beginning_every_chain_that_has_events_is_announced(store: &dyn Store, _: &StillWorld) {
    let chains = many(12);
    for (n, chain) in chains.iter().enumerate() {
        for _ in 0..=n {
            append(store, *chain, vec![login("a")]);
        }
    }
    let mut follower = everything(store, Start::Beginning);
    assert_eq!(heads(store).len(), 12);
    assert_hears(&mut follower, 100, &heads(store));
}

pub fn from_now_only_what_comes_later_is_announced(store: &dyn Store, _: &StillWorld) {
    let chains = many(3);
    append(store, chains[0], vec![login("a")]);
    append(store, chains[1], vec![login("a")]);
    let mut follower = everything(store, Start::Now);
    assert_quiet(&mut follower);
    append(store, chains[1], vec![login("b")]);
    append(store, chains[2], vec![login("b")]);
    let mut all = heads(store);
    all.remove(&chains[0]);
    assert_hears(&mut follower, 100, &all);
    // Nothing at all, as long as there is nothing.
    let mut empty = follow(store, Scope::Chain(chain(9, 9, Mode::Live)), Start::Now);
    assert_quiet(&mut empty);
}

pub fn whoever_waits_is_woken_by_an_append(store: &dyn Store, _: &StillWorld) {
    for scope in [Scope::Everything, Scope::Tenant(live().tenant_id), Scope::Chain(live())] {
        let mut follower = follow(store, scope, Start::Now);
        for _ in 0..3 {
            let receipt = std::thread::scope(|threads| {
                let waiting = threads.spawn(|| next(&mut follower, 10));
                let receipt = append(store, live(), vec![login("a")]);
                let batch = waiting.join().unwrap();
                assert_eq!(batch.changes.len(), 1);
                assert_eq!(batch.changes[0].chain, live());
                assert_eq!(batch.changes[0].head.chain_seq, receipt.first_seq);
                receipt
            });
            assert_readable(store, live(), wait(store.head(live())).unwrap().durable);
            assert_eq!(receipt.hash, wait(store.head(live())).unwrap().durable.hash);
        }
    }
}

pub fn many_changes_of_a_chain_are_one(store: &dyn Store, _: &StillWorld) {
    let mut follower = everything(store, Start::Beginning);
    for n in 0..50 {
        append(store, live(), vec![login(&format!("u{n}"))]);
    }
    let batch = next(&mut follower, 10);
    assert_eq!(batch.changes.len(), 1);
    assert_eq!(batch.changes[0].head.chain_seq, 50);
    assert_quiet(&mut follower);
}

pub fn a_batch_is_bounded_and_the_rest_comes_with_the_next_ones(store: &dyn Store, _: &StillWorld) {
    let chains = many(25);
    for chain in &chains {
        append(store, *chain, vec![login("a")]);
    }
    let mut follower = everything(store, Start::Beginning);
    let mut announced = BTreeMap::new();
    let mut batches = 0;
    while announced.len() < 25 {
        // More than one at a time, so that it ends in the middle of what is known.
        let batch = next(&mut follower, 4);
        announced.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
        batches += 1;
    }
    assert!(batches >= 7, "{batches}");
    assert_eq!(announced, heads(store));
    assert_quiet(&mut follower);
}

pub fn a_scope_is_everything_or_a_tenant_or_a_chain(store: &dyn Store, _: &StillWorld) {
    let chains = many(12);
    let of =
        |scope: Scope| chains.iter().copied().filter(|chain| scope.contains(*chain)).collect::<BTreeSet<_>>();
    let tenant = Scope::Tenant(chains[0].tenant_id);
    let scopes = [Scope::Everything, tenant, Scope::Chain(chains[5])];
    assert_eq!(scopes.map(|scope| of(scope).len()), [12, 4, 1]);
    let mut followers = scopes.map(|scope| (scope, follow(store, scope, Start::Now)));
    for round in 1..=2 {
        for chain in &chains {
            append(store, *chain, vec![login("a")]);
        }
        for (scope, follower) in &mut followers {
            let mut expected = heads(store);
            expected.retain(|chain, _| of(*scope).contains(chain));
            assert!(expected.values().all(|head| head.chain_seq == round));
            assert_hears(follower, 3, &expected);
            assert_hears(&mut follow(store, *scope, Start::Beginning), 5, &expected);
        }
    }
}

pub fn from_any_position_what_was_not_announced_before_it_is_announced(store: &dyn Store, _: &StillWorld) {
    let chains = many(20);
    for chain in &chains {
        append(store, *chain, vec![login("a")]);
    }
    let mut follower = everything(store, Start::Beginning);
    let mut known: Heads = BTreeMap::new();
    let mut positions = vec![(follower.position(), known.clone())];
    for n in 0..40 {
        let batch = next(&mut follower, 3);
        known.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
        positions.push((batch.position, known.clone()));
        for at in [n, n * 7 + 3] {
            append(store, chains[at % 20], vec![login("b")]);
        }
    }
    let there = heads(store);
    let known = catch_up(&mut follower, 100, known, |known| *known == there);
    positions.push((follower.position(), known));
    // At the same time, since each of them waits then to see that nothing else comes.
    std::thread::scope(|threads| {
        for (position, known) in positions {
            let there = &there;
            threads.spawn(move || {
                let text = position.to_string();
                let mut follower = everything(store, Start::After(Position::parse(&text).unwrap()));
                assert_eq!(catch_up(&mut follower, 7, known, |known| known == there), *there, "{text}");
            });
        }
    });
    // Behind everything there is nothing.
    let position = follower.position();
    assert_quiet(&mut everything(store, Start::After(position)));
}

pub fn a_position_is_for_its_store_and_its_scope_and_nothing_else_is_one(
    store: &dyn Store,
    world: &StillWorld,
) {
    append(store, live(), vec![login("a")]);
    let refused = |scope: Scope, position: &Position| {
        let outcome = wait(store.follow(scope, Start::After(position.clone())));
        let Err(StoreError::Refused(why)) = outcome else { panic!("{outcome:?}") };
        why
    };
    let mut follower = everything(store, Start::Beginning);
    let position = next(&mut follower, 1).position;
    for scope in [Scope::Tenant(live().tenant_id), Scope::Chain(live())] {
        assert!(refused(scope, &position).contains("another scope"));
        let of_scope = follow(store, scope, Start::Now).position();
        assert!(refused(Scope::Everything, &of_scope).contains("another scope"));
    }
    let world = StillWorld::new_at(world);
    let other = ReferenceStore::new(world);
    append(&other, live(), vec![login("a")]);
    for start in [Start::Beginning, Start::Now] {
        let foreign = everything(&other, start).position();
        assert!(refused(Scope::Everything, &foreign).contains("another store"));
    }
    for garbage in ["", "x", "0", "00000000000000000000", &position.to_string()[2..]] {
        assert!(matches!(Position::parse(garbage), Err(StoreError::Refused(_))), "{garbage}");
    }
    assert_eq!(Position::parse(&position.to_string()), Ok(position));
}

pub fn whoever_stops_waiting_and_asks_again_has_missed_nothing(store: &dyn Store, _: &StillWorld) {
    let mut follower = everything(store, Start::Now);
    for n in 1..=5 {
        let before = follower.position();
        assert!(wait_until(follower.next(1), Some(Instant::now() + Duration::from_millis(20))).is_none());
        assert_quiet(&mut everything(store, Start::After(before)));
        append(store, live(), vec![login("a")]);
        // Given up at once, whether it had begun to read or not.
        let given_up = wait_until(follower.next(1), Some(Instant::now()));
        let batch = given_up.map_or_else(|| next(&mut follower, 1), Result::unwrap);
        assert_eq!(batch.changes[0].head.chain_seq, n);
    }
}

pub fn imported_events_are_announced(store: &dyn Store, world: &StillWorld) {
    let elsewhere = ReferenceStore::new(StillWorld::new_at(world));
    for _ in 0..5 {
        append(&elsewhere, live(), vec![login("a")]);
    }
    let events = range(&elsewhere, live(), 1, 5, 1 << 20).into_iter();
    let events = events.map(|item| if let Item::Event(event) = item { *event } else { panic!("{item:?}") });
    let mut follower = everything(store, Start::Now);
    let head = wait(store.import(live(), events.collect(), None)).unwrap();
    let batch = next(&mut follower, 10);
    assert_eq!((batch.changes[0].chain, batch.changes[0].head), (live(), head));
}

/// While events arrive from all sides: what is announced can be read at that moment, heads of a chain never
/// go back, nothing is left out, and whoever begins again from a position that it was given, with what it
/// knew then, ends with the same.
pub fn under_load_nothing_is_announced_too_early_or_left_out(store: &dyn Store, _: &StillWorld) {
    let chains = many(10);
    let done = AtomicBool::new(false);
    let begin = |seed| {
        let mut dice = Dice::new(seed);
        let (mut known, mut follower) = (Heads::new(), everything(store, Start::Beginning));
        let mut kept = (follower.position(), known.clone());
        let begun = Instant::now();
        loop {
            let finished = done.load(Ordering::SeqCst);
            // Not for long: when there is nothing more to come, this has to see that it is finished.
            let until = Instant::now() + Duration::from_millis(20);
            let Some(batch) =
                wait_until(follower.next(1 + usize::try_from(dice.below(5)).unwrap()), Some(until))
            else {
                if finished && known == heads(store) {
                    break known;
                }
                assert!(begun.elapsed() < PATIENCE, "left out: {known:?} of {:?}", heads(store));
                continue;
            };
            let batch = batch.unwrap();
            for change in &batch.changes {
                assert_readable(store, change.chain, change.head);
                let before = known.insert(change.chain, change.head);
                assert!(before.is_none_or(|before| before.chain_seq <= change.head.chain_seq));
            }
            if dice.chance(3) {
                kept = (batch.position, known.clone());
            }
            if dice.chance(10) {
                // As after a crash: what it did since is forgotten.
                known.clone_from(&kept.1);
                follower = everything(store, Start::After(kept.0.clone()));
            }
        }
    };
    let known = std::thread::scope(|threads| {
        let followers: Vec<_> = (1..=3).map(|seed| threads.spawn(move || begin(seed))).collect();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let chains = &chains;
                threads.spawn(move || {
                    let mut dice = Dice::new(100 + writer);
                    for _ in 0..60 {
                        let count = 1 + usize::try_from(dice.below(3)).unwrap();
                        append(store, *dice.pick(chains), vec![login("a"); count]);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        followers.into_iter().map(|follower| follower.join().unwrap()).collect::<Vec<_>>()
    });
    let expected = heads(store);
    assert!(known.iter().all(|known| *known == expected), "{known:?} {expected:?}");
}

/// All batches up to the barrier, each bounded, as what their reader knows then.
fn heard_by_barrier(follower: &mut Follower, limit: usize) -> Heads {
    let mut heard = Heads::new();
    let mut catching_up = follower.catch_up();
    while let Some(batch) = soon(catching_up.next(limit)).unwrap() {
        assert!((1..=limit).contains(&batch.changes.len()), "{batch:?}");
        heard.extend(batch.changes.into_iter().map(|change| (change.chain, change.head)));
    }
    // It stays said.
    assert_eq!(soon(catching_up.next(limit)), Ok(None));
    heard
}

pub fn catching_up_announces_what_is_durable_and_then_says_that_there_is_no_more(
    store: &dyn Store,
    _: &StillWorld,
) {
    let chains = many(12);
    let mut follower = everything(store, Start::Beginning);
    assert_eq!(heard_by_barrier(&mut follower, 5), Heads::new());
    for chain in &chains {
        append(store, *chain, vec![login("a")]);
    }
    assert_eq!(heard_by_barrier(&mut follower, 5), heads(store));
    assert_eq!(heard_by_barrier(&mut follower, 5), Heads::new());
    // What comes behind the barrier comes with whatever asks next.
    append(store, chains[3], vec![login("b")]);
    let head = |chain| (chain, heads(store)[&chain]);
    assert_eq!(heard_by_barrier(&mut follower, 5), Heads::from([head(chains[3])]));
    append(store, chains[7], vec![login("b")]);
    assert_hears(&mut follower, 5, &Heads::from([head(chains[7])]));
    for scope in [Scope::Tenant(chains[0].tenant_id), Scope::Chain(chains[0])] {
        let expected: Heads = heads(store).into_iter().filter(|(chain, _)| scope.contains(*chain)).collect();
        assert_eq!(heard_by_barrier(&mut follow(store, scope, Start::Beginning), 2), expected);
        assert_eq!(heard_by_barrier(&mut follow(store, scope, Start::Now), 2), Heads::new());
    }
}

pub fn catching_up_ends_while_events_arrive_and_leaves_nothing_out(store: &dyn Store, _: &StillWorld) {
    let chains = many(20);
    let enough = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for part in chains.chunks(7) {
            let enough = &enough;
            threads.spawn(move || {
                for chain in part.iter().cycle() {
                    if enough.load(Ordering::SeqCst) {
                        return;
                    }
                    append(store, *chain, vec![login("a")]);
                }
            });
        }
        let _enough = AtTheEnd(|| enough.store(true, Ordering::SeqCst));
        let mut known = Heads::new();
        let mut follower = everything(store, Start::Beginning);
        for round in 0..20 {
            let durable = heads(store);
            // In small steps, so that chains which were looked at change again before they are announced.
            known.extend(heard_by_barrier(&mut follower, 3));
            for (chain, head) in durable {
                let heard = known.get(&chain).map(|head| head.chain_seq);
                assert!(heard >= Some(head.chain_seq), "round {round}: {chain} at {heard:?} of {head:?}");
            }
        }
    });
}

pub fn catching_up_goes_on_in_the_middle_of_what_was_announced_and_after_a_restart_of_the_reader(
    store: &dyn Store,
    _: &StillWorld,
) {
    let chains = many(12);
    for chain in &chains {
        append(store, *chain, vec![login("a")]);
    }
    let mut follower = everything(store, Start::Beginning);
    let first = next(&mut follower, 5);
    // Of what was looked for before the barrier, some has changed since.
    append(store, first.changes[0].chain, vec![login("b")]);
    append(store, chains[11], vec![login("b")]);
    let mut known: Heads = first.changes.iter().map(|change| (change.chain, change.head)).collect();
    known.extend(heard_by_barrier(&mut follower, 4));
    assert_eq!(known, heads(store));
    let mut again = everything(store, Start::After(first.position));
    let mut known: Heads = first.changes.iter().map(|change| (change.chain, change.head)).collect();
    known.extend(heard_by_barrier(&mut again, 4));
    assert_eq!(known, heads(store));
    assert_eq!(heard_by_barrier(&mut everything(store, Start::After(follower.position())), 4), Heads::new());
}

pub fn a_position_outlives_a_restart(lossy: &mut dyn Lossy, _: &StillWorld) {
    let chains = many(8);
    for chain in &chains {
        for _ in 0..30 {
            append(lossy.store(), *chain, vec![login("a")]);
        }
    }
    let mut follower = everything(lossy.store(), Start::Beginning);
    let before_all = follower.position().to_string();
    let first = next(&mut follower, 3);
    let in_between = first.position.to_string();
    let of_first: BTreeMap<_, _> =
        first.changes.into_iter().map(|change| (change.chain, change.head)).collect();
    let there = heads(lossy.store());
    let known = catch_up(&mut follower, 100, of_first.clone(), |known| *known == there);
    let at_the_end = follower.position().to_string();
    drop(follower);
    append(lossy.store(), chains[2], vec![login("before the restart")]);
    for round in 0..3 {
        lossy.restart();
        append(lossy.store(), chains[5], vec![login("after the restart")]);
        for (position, known) in
            [(&before_all, &BTreeMap::new()), (&in_between, &of_first), (&at_the_end, &known)]
        {
            let start = Start::After(Position::parse(position).unwrap());
            let there = heads(lossy.store());
            let with = |announced: &Heads| {
                let mut all = known.clone();
                all.extend(announced.clone());
                all
            };
            let mut follower = everything(lossy.store(), start);
            let announced = catch_up(&mut follower, 3, Heads::new(), |announced| with(announced) == there);
            assert_eq!(with(&announced), there, "round {round}");
            if position == &at_the_end {
                assert!(announced.contains_key(&chains[2]) && announced.contains_key(&chains[5]));
            }
        }
    }
    // Restarts alone are no news.
    let mut follower = everything(lossy.store(), Start::Beginning);
    assert_hears(&mut follower, 100, &heads(lossy.store()));
    let position = follower.position();
    drop(follower);
    lossy.restart();
    append(lossy.store(), chains[0], vec![login("the one change")]);
    let changed = Heads::from([(chains[0], heads(lossy.store())[&chains[0]])]);
    assert_hears(&mut everything(lossy.store(), Start::After(position)), 100, &changed);
}

pub fn an_accepted_loss_is_announced_as_a_head_that_has_gone_back(lossy: &mut dyn Lossy, _: &StillWorld) {
    let other = chain(2, 1, Mode::Live);
    for chain in [live(), other] {
        for _ in 0..10 {
            append(lossy.store(), chain, vec![login("a")]);
        }
    }
    let mut follower = everything(lossy.store(), Start::Beginning);
    let known = heads(lossy.store());
    assert_hears(&mut follower, 10, &known);
    let position = follower.position();
    drop(follower);
    lossy.lose_from(live(), 8);
    let receipt = wait(lossy.store().accept_loss(live(), "the disk".into())).unwrap();
    let mut follower = everything(lossy.store(), Start::After(position.clone()));
    let has =
        |chain_seq| move |heard: &Heads| heard.get(&live()).is_some_and(|head| head.chain_seq == chain_seq);
    let announced = catch_up(&mut follower, 10, Heads::new(), has(8));
    let head = announced[&live()];
    assert_eq!((head.chain_seq, head.hash), (8, receipt.hash));
    assert_eq!(known[&live()].chain_seq, 10);
    assert_readable(lossy.store(), live(), head);
    assert_eq!(announced.get(&other).copied().unwrap_or(known[&other]), known[&other]);

    // Whoever comes when the chain is longer again sees that it does not continue what was read.
    for _ in 0..5 {
        append(lossy.store(), live(), vec![login("b")]);
    }
    let mut follower = everything(lossy.store(), Start::After(position));
    let head = catch_up(&mut follower, 10, Heads::new(), has(13))[&live()];
    assert_eq!(head.chain_seq, 13);
    let Item::Event(after) = &range(lossy.store(), live(), 11, 11, 1 << 20)[0] else { panic!("damaged") };
    assert_ne!(after.sealed.prev_hash, known[&live()].hash);
}
