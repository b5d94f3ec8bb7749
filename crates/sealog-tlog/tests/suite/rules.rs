//! What trees promise, rule by rule. Each is given a store without events and databases without trees.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use sealog_control::db::{DbError, Lock, params};
use sealog_core::event::{Annotations, EVENT_BYTES_MAX, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode};
use sealog_core::verify::Item;
use sealog_store::reference::ReferenceStore;
use sealog_store::{Range, Store, StoreError};
use sealog_testing::doubtful::{Doubt, DoubtfulStore};
use sealog_testing::worst::worst_events;
use sealog_testing::*;
use sealog_tlog::trees::{Pass, TreeError, TreeHead, Trees};
use sealog_trust::leaf::{leaf_hash, private_commitment};
use sealog_trust::merkle::{self, ProofError, root_of};
use sealog_trust::tile::{Content, Tile};

use crate::home::Home;

// ---- What a tree should be ------------------------------------------------------------------------------

fn events(store: &dyn Store, chain: ChainId) -> Vec<StoredEvent> {
    let (mut events, mut from) = (Vec::new(), 1);
    loop {
        let chunk = wait(store.range(chain, Range { from, to: u64::MAX, bytes_max: 1 << 20 })).unwrap();
        for item in chunk.items {
            let Item::Event(event) = item else { panic!("{item:?}") };
            events.push(*event);
        }
        let Some(resume) = chunk.resume else { return events };
        from = resume;
    }
}

/// The leaves of a chain, from its events and the salts that it has.
fn leaves(trees: &Trees, store: &dyn Store, chain: ChainId) -> Vec<Hash> {
    let keys = trees.salts().find(&[chain]).unwrap().remove(&chain).unwrap();
    let leaf = |event: &StoredEvent| {
        let (keys, _) = keys.at(event.sealed.chain_seq).unwrap();
        let salt = keys.salt(event.sealed.chain_seq).unwrap();
        leaf_hash(event, &private_commitment(&salt, &event.annotations).unwrap()).unwrap()
    };
    events(store, chain).iter().map(leaf).collect()
}

fn pass(trees: &Trees) -> u64 {
    match soon(trees.pass()).unwrap() {
        Pass::Done { leaves, .. } => leaves,
        Pass::Elsewhere => panic!("no other node builds"),
    }
}

fn head(trees: &Trees, chain: ChainId) -> TreeHead {
    soon(trees.head(chain)).unwrap().expect("the chain has a tree")
}

fn heads(trees: &Trees) -> BTreeMap<ChainId, (u64, Hash, Hash)> {
    let (mut all, mut behind) = (BTreeMap::new(), None);
    loop {
        let page = soon(trees.changed_heads(behind, 700)).unwrap();
        all.extend(page.heads.iter().map(|head| (head.chain, (head.size, head.root, head.hash))));
        behind = Some(page.next);
        if !page.more {
            return all;
        }
    }
}

/// Every live chain has the tree of its events, and no other chain has one.
#[track_caller]
fn assert_complete(trees: &Trees, store: &dyn Store) {
    let mut expected = BTreeMap::new();
    for (chain, head) in wait(store.heads()).unwrap() {
        if chain.mode == Mode::Live {
            let leaves = leaves(trees, store, chain);
            expected.insert(chain, (head.chain_seq, root_of(&leaves), head.hash));
        }
    }
    assert_eq!(heads(trees), expected);
}

fn fill(store: &dyn Store, chain: ChainId, events: u64) {
    for first in (0..events).step_by(100) {
        let drafts = (first..events.min(first + 100)).map(|n| login(&format!("u{n}")));
        append(store, chain, drafts.collect());
    }
}

/// Copies a chain, but for its first events, which the other store has.
fn copy(from: &dyn Store, to: &dyn Store, chain: ChainId, behind: u64, upto: u64) {
    let copied = events(from, chain);
    let copied = copied.into_iter().filter(|event| (behind + 1..=upto).contains(&event.sealed.chain_seq));
    for piece in copied.collect::<Vec<_>>().chunks(100) {
        wait(to.import(chain, piece.to_vec(), None)).unwrap();
    }
}

/// Asks a future so often, and drops it then: what a process leaves that is killed at that moment.
fn interrupted<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut future = pin!(future);
    let left = Cell::new(polls);
    soon(poll_fn(move |context| {
        if left.get() == 0 {
            return Poll::Ready(None);
        }
        left.set(left.get() - 1);
        future.as_mut().poll(context).map(Some)
    }))
}

// ---- Rules ----------------------------------------------------------------------------------------------

pub fn every_live_event_is_a_leaf_and_no_test_event_is(home: &mut dyn Home) {
    let (store, trees) = (home.store(), home.trees());
    let (other, test, system) = (chain(2, 1, Mode::Live), chain(1, 1, Mode::Test), system_chain(1));
    for (chain, count) in [(live(), 300), (other, 1), (test, 5), (system, 3)] {
        fill(&*store, chain, count);
    }
    assert_eq!(soon(trees.head(live())).unwrap(), None, "before the first pass");
    assert_eq!(pass(&trees), 304);
    assert_complete(&trees, &*store);
    assert!(heads(&trees).contains_key(&system) && !heads(&trees).contains_key(&test));
    let of_live = head(&trees, live());
    let last = wait(store.head(live())).unwrap().durable;
    assert_eq!((of_live.size, of_live.hash, of_live.stopped), (300, last.hash, None));
    assert_eq!(of_live.tag, sealog_trust::leaf::Tag::of(live()));
    assert_eq!((trees.lag().events, trees.lag().ms, trees.lag().leaves), (0, Some(0), 304));

    // What comes later is of the next pass.
    fill(&*store, live(), 7);
    home.world().advance(2_000);
    assert_eq!((head(&trees, live()).size, trees.lag().ms), (300, Some(2_000)));
    assert_eq!(pass(&trees), 7);
    assert_complete(&trees, &*store);
    assert_eq!(pass(&trees), 0, "there is nothing more to do");
}

pub fn proofs_and_tiles_are_those_of_the_tree_at_every_size(home: &mut dyn Home) {
    let (store, trees) = (home.store(), home.trees());
    for _ in 0..3 {
        fill(&*store, live(), 227);
        pass(&trees);
    }
    let all = leaves(&trees, &*store, live());
    assert_eq!(all.len(), 681);
    let seed = seed("proofs");
    let mut dice = Dice::new(seed);
    let root = |size: u64| root_of(&all[..usize::try_from(size).unwrap()]);
    for size in [1, 2, 227, 255, 256, 257, 454, 512, 513, 681] {
        assert_eq!(soon(trees.root_at(live(), size)).unwrap(), root(size), "{size}");
        for _ in 0..3 {
            let seq = dice.below(size) + 1;
            let leaf = all[usize::try_from(seq - 1).unwrap()];
            let path = soon(trees.inclusion(live(), seq, size)).unwrap();
            assert_eq!(merkle::verify_inclusion(leaf, seq - 1, size, &root(size), &path), Ok(()));
            assert_eq!(soon(trees.leaves(live(), seq, seq)).unwrap(), [leaf]);
            let old = dice.below(size + 1);
            let path = soon(trees.consistency(live(), old, size)).unwrap();
            assert_eq!(merkle::verify_consistency(old, &root(old), size, &root(size), &path), Ok(()));
            let to = seq + dice.below(size - seq + 1);
            let path = soon(trees.range_proof(live(), seq, to, size)).unwrap();
            let within = &all[usize::try_from(seq - 1).unwrap()..usize::try_from(to).unwrap()];
            assert_eq!(merkle::verify_range(seq - 1, within, size, &root(size), &path), Ok(()));
        }
    }
    assert_eq!(soon(trees.leaves(live(), 200, 455)).unwrap(), all[199..455]);
    // Every tile, also in the widths of older sizes.
    for size in [256, 600, 681] {
        for tile in Tile::of_tree(size) {
            let Content::Hashes(level) = tile.content else { continue };
            let each = 256usize.pow(level.into());
            let first = usize::try_from(tile.index).unwrap() * 256 * each;
            let expected: Vec<u8> = (0..usize::from(tile.width))
                .flat_map(|at| root_of(&all[first + at * each..first + (at + 1) * each]).0)
                .collect();
            assert_eq!(soon(trees.tile(live(), tile)).unwrap(), Some(expected), "{tile}");
        }
    }
}

pub fn the_worked_example_has_the_root_that_was_computed_elsewhere(home: &mut dyn Home) {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../../vectors/chains.json")).unwrap();
    let case =
        vectors["cases"].as_array().unwrap().iter().find(|case| case["name"] == "five events").unwrap();
    let mut events: Vec<StoredEvent> = case["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| StoredEvent::parse_json(text.as_str().unwrap()).unwrap())
        .collect();
    events[1].annotations = Annotations {
        category: Some("data_access".into()),
        severity: Some("info".into()),
        ip_address: Some("203.0.113.9".into()),
        country: Some("FR".into()),
        city: Some("Paris".into()),
        ..events[1].annotations.clone()
    };
    let chain = events[0].chain(Mode::Live);
    wait(home.store().import(chain, events, None)).unwrap();
    let key: Vec<u8> = (0..16).collect();
    let kept = home.databases().1.change::<_, StoreError>(Lock::None, |db, _| {
        let sql = "INSERT INTO {salt_keys} (tenant_id, project_id, number, from_seq, event_hash, key) VALUES (?1, ?2, 1, 1, ?3, ?4)";
        db.execute(sql, params![chain.tenant_id, chain.project_id, Hash::ZERO, key])
    });
    assert_eq!(kept, Ok(1));
    let trees = home.trees();
    pass(&trees);
    let head = head(&trees, chain);
    assert_eq!(head.size, 5);
    let text = sealog_trust::entry::heads_text(0, &head.root);
    assert_eq!(text, "sealog/heads/v1\n0\nZiORWd6OxckhHGanVJrNnR2CvjjWeuhH7Gt23232iBQ=\n");
    assert_eq!(head.tag.to_string(), "888c4e4515ef525decbdb607ff9110bcfb39d0802c72556fc1a48eefaa7cbba8");
    let leaf = soon(trees.leaves(chain, 2, 2)).unwrap();
    assert_eq!(leaf[0].to_string(), "ec99fa15764e58c89417b2bd7e30f83a557f7fd7b6f781356ef86d1a14e92554");
}

pub fn changed_heads_come_once_in_pages_and_again_after_a_rebuild(home: &mut dyn Home) {
    let trees = home.trees();
    assert!(soon(trees.changed_heads(None, 10)).is_err(), "there is nothing to say before the first pass");
    let chains: Vec<ChainId> = (1..=7).map(|project| chain(1, project, Mode::Live)).collect();
    chains.iter().for_each(|chain| fill(&*home.store(), *chain, 2));
    pass(&trees);
    let (mut seen, mut behind) = (Vec::new(), None);
    for _ in 0..3 {
        let page = soon(trees.changed_heads(behind, 3)).unwrap();
        assert!(page.heads.len() <= 3);
        seen.extend(page.heads.iter().map(|head| head.chain));
        behind = Some(page.next);
    }
    seen.sort();
    assert_eq!(seen, chains);
    let none = soon(trees.changed_heads(behind, 3)).unwrap();
    assert_eq!((none.heads.len(), none.more, Some(none.next)), (0, false, behind));

    fill(&*home.store(), chains[4], 1);
    pass(&trees);
    let page = soon(trees.changed_heads(behind, 3)).unwrap();
    assert_eq!(page.heads.iter().map(|head| (head.chain, head.size)).collect::<Vec<_>>(), [(chains[4], 3)]);

    // A cursor of trees that are gone says nothing about those that were built since.
    let before = heads(&trees);
    drop(trees);
    home.forget_trees();
    let trees = home.trees();
    pass(&trees);
    let page = soon(trees.changed_heads(Some(page.next), 100)).unwrap();
    assert_eq!(page.heads.len(), 7);
    assert_eq!(heads(&trees), before);
}

/// Random chains, appends, damage, passes, restarts and moments at which a pass is cut off. Whatever
/// happened, the next whole pass over what was repaired gives the trees of the events, and so does a rebuild.
pub fn trees_from_the_feed_equal_trees_from_a_rebuild(home: &mut dyn Home) {
    let mut dice = Dice::new(seed("trees from the feed"));
    let chains: Vec<ChainId> = (1..=5).map(|project| chain(1, project, Mode::Live)).collect();
    // A restart repairs: nothing may hold the store meanwhile.
    let open = |home: &dyn Home| {
        let doubtful = DoubtfulStore::new(home.store());
        (home.trees_over(Arc::clone(&doubtful) as _), doubtful)
    };
    for _ in 0..rounds(3) {
        let mut opened = Some(open(home));
        for _ in 0..14 {
            let (trees, doubtful) = opened.as_ref().unwrap();
            match dice.below(6) {
                0 | 1 => fill(&*home.store(), *dice.pick(&chains), dice.below(300) + 1),
                2 => drop(interrupted(trees.pass(), dice.below(20))),
                3 => damage(home, trees, doubtful, *dice.pick(&chains), &mut dice),
                4 => doubtful.trust(),
                _ => {
                    drop(opened.take());
                    home.restart();
                    opened = Some(open(home));
                }
            }
        }
        drop(opened.take());
        home.restart();
        let trees = home.trees();
        pass(&trees);
        assert_complete(&trees, &*home.store());
        let built = heads(&trees);
        drop(trees);
        home.forget_trees();
        let trees = home.trees();
        pass(&trees);
        assert_eq!(heads(&trees), built);
    }
}

/// Damages an event that the tree of a chain does not have yet. The tree stops there at the latest, and no
/// tree has a leaf that is not its event's.
fn damage(home: &dyn Home, trees: &Trees, doubtful: &DoubtfulStore, chain: ChainId, dice: &mut Dice) {
    // What a pass that was cut off has left to the thread of the trees comes before the next one.
    pass(trees);
    let size = soon(trees.head(chain)).unwrap().map_or(0, |head| head.size);
    let at = size + 1 + dice.below(50);
    fill(&*home.store(), chain, 60);
    doubtful.doubt(at, *dice.pick(&[Doubt::Damaged, Doubt::Missing]));
    pass(trees);
    let stopped = head(trees, chain);
    assert!(stopped.size >= size && stopped.size < at, "{stopped:?} before {at}");
    assert_eq!(stopped.stopped.map(|stopped| stopped.at), Some(stopped.size + 1));
    for (chain, (size, root, _)) in heads(trees) {
        let all = leaves(trees, &*home.store(), chain);
        assert_eq!(root_of(&all[..usize::try_from(size).unwrap()]), root, "{chain} at {size}");
    }
}

pub fn a_chain_keeps_its_root_key_and_gets_it_before_its_first_leaf(home: &mut dyn Home) {
    fill(&*home.store(), live(), 3);
    let mut polls = 0;
    let first = loop {
        // Cut off a step later each time.
        polls += 1;
        let trees = home.trees();
        let done = interrupted(trees.pass(), polls);
        let keys = trees.salts().find(&[live()]).unwrap().remove(&live());
        if let Ok(Some(head)) = soon(trees.head(live())) {
            assert!(head.size == 0 || keys.is_some(), "a leaf without a durable key");
        }
        drop(trees);
        home.restart();
        match done {
            Some(done) => {
                assert!(matches!(done, Ok(Pass::Done { .. })), "{done:?}");
                break keys.unwrap();
            }
            None => assert!(polls < 1000, "it never ends"),
        }
    };
    assert!(polls > 3, "it was cut off in the middle");
    home.forget_trees();
    let trees = home.trees();
    pass(&trees);
    let now = trees.salts().find(&[live()]).unwrap().remove(&live()).unwrap();
    assert_eq!(now.at(2).unwrap().0, first.at(2).unwrap().0);
    fill(&*home.store(), chain(2, 2, Mode::Live), 1);
    pass(&trees);
    let other =
        trees.salts().of(&[chain(2, 2, Mode::Live)]).unwrap().remove(&chain(2, 2, Mode::Live)).unwrap();
    assert_ne!(other.at(1).unwrap().0, first.at(1).unwrap().0);
}

pub fn a_damaged_record_stops_its_tree_alone_until_it_is_repaired(home: &mut dyn Home) {
    let other = chain(2, 1, Mode::Live);
    fill(&*home.store(), live(), 10);
    fill(&*home.store(), other, 4);
    for (doubt, problem) in [(Doubt::Damaged, "its record is damaged"), (Doubt::Missing, "it is missing")] {
        let doubtful = DoubtfulStore::new(home.store());
        doubtful.doubt(6, doubt);
        let trees = home.trees_over(Arc::clone(&doubtful) as _);
        pass(&trees);
        for _ in 0..2 {
            let stopped = head(&trees, live());
            assert_eq!((stopped.size, soon(trees.root_at(live(), 5)).unwrap()), (5, stopped.root));
            let why = stopped.stopped.clone().unwrap();
            assert_eq!((why.at, why.problem.as_str()), (6, problem));
            assert_eq!(soon(trees.stopped(10)).unwrap(), [stopped]);
            assert_eq!((head(&trees, other).size, trees.lag().stopped), (4, 1));
            pass(&trees);
        }
        doubtful.trust();
        // No event comes: the chain is not announced again.
        pass(&trees);
        assert_eq!((head(&trees, live()).stopped, trees.lag().stopped), (None, 0));
        assert_complete(&trees, &*home.store());
        drop((trees, doubtful));
        home.forget_trees();
    }
}

pub fn an_event_that_cannot_be_read_stops_its_tree_alone(home: &mut dyn Home) {
    fill(&*home.store(), live(), 3);
    fill(&*home.store(), system_chain(1), 2);
    let doubtful = DoubtfulStore::new(home.store());
    doubtful.fail_reads(true);
    let trees = home.trees_over(Arc::clone(&doubtful) as _);
    pass(&trees);
    assert_eq!(head(&trees, system_chain(1)).size, 2);
    let stopped = head(&trees, live());
    assert_eq!((stopped.size, stopped.root), (0, merkle::EMPTY_ROOT));
    assert!(stopped.stopped.unwrap().problem.contains("asked for by a test"));
    doubtful.fail_reads(false);
    pass(&trees);
    assert_complete(&trees, &*home.store());
}

pub fn an_accepted_loss_cuts_the_tree_and_later_events_get_fresh_salts(home: &mut dyn Home) {
    // Events are sealed elsewhere, so that every store can have either history.
    let source = ReferenceStore::new(home.world() as _);
    fill(&source, live(), 600);
    let before = events(&source, live());
    copy(&source, &*home.store(), live(), 0, 600);
    let trees = home.trees();
    pass(&trees);
    let (old_root, old_key) = (soon(trees.root_at(live(), 500)).unwrap(), key_of(&trees, 501));
    let seen = soon(trees.changed_heads(None, 10)).unwrap().next;
    drop(trees);

    // 501 to 600 are lost and that is accepted; the chain goes on beyond where it was.
    source.lose_from(live(), 501);
    wait(source.accept_loss(live(), "the disk is gone".into())).unwrap();
    fill(&source, live(), 150);
    home.forget_events();
    copy(&source, &*home.store(), live(), 0, 651);
    let trees = home.trees();
    pass(&trees);
    let cut = head(&trees, live());
    assert_eq!((cut.size, cut.stopped.clone()), (651, None));
    let at = cut.cut.unwrap();
    assert!(at.to == 500 && at.revision > seen.revision, "{at:?}");
    assert_eq!(soon(trees.root_at(live(), 500)).unwrap(), old_root);
    assert_complete(&trees, &*home.store());
    assert_ne!(key_of(&trees, 501), old_key, "the salts of what is lost serve nothing else");
    assert_eq!(key_of(&trees, 500), old_key);
    assert_eq!(before[499], events(&*home.store(), live())[499]);
    assert_eq!(soon(trees.changed_heads(Some(seen), 10)).unwrap().heads, std::slice::from_ref(&cut));

    // A second loss, of the acceptance, too; this time the chain stays shorter than the tree.
    drop(trees);
    source.lose_from(live(), 300);
    wait(source.accept_loss(live(), "the other disk as well".into())).unwrap();
    home.forget_events();
    copy(&source, &*home.store(), live(), 0, 300);
    let trees = home.trees();
    pass(&trees);
    assert_eq!((head(&trees, live()).size, head(&trees, live()).cut.unwrap().to), (300, 299));
    fill(&*home.store(), live(), 400);
    pass(&trees);
    assert_complete(&trees, &*home.store());
    let keys = trees.salts().find(&[live()]).unwrap().remove(&live()).unwrap();
    assert_ne!(keys.at(550).unwrap().0, keys.at(299).unwrap().0);
    assert_eq!(keys.at(550).unwrap().0, keys.at(300).unwrap().0, "a key of lost events serves no others");
    let built = heads(&trees);
    drop(trees);
    home.forget_trees();
    let trees = home.trees();
    pass(&trees);
    assert_eq!(heads(&trees), built, "a rebuild uses the same keys");
}

fn key_of(trees: &Trees, chain_seq: u64) -> sealog_trust::salt::SaltKeys {
    let keys = trees.salts().find(&[live()]).unwrap().remove(&live()).unwrap();
    keys.at(chain_seq).unwrap().0.clone()
}

pub fn other_events_without_an_accepted_loss_stop_the_tree_and_cut_nothing(home: &mut dyn Home) {
    fill(&*home.store(), live(), 40);
    let trees = home.trees();
    pass(&trees);
    let before = head(&trees, live());
    drop(trees);
    let had = events(&*home.store(), live());
    home.forget_events();
    wait(home.store().import(live(), had[..25].to_vec(), None)).unwrap();
    // Another history from 26 on, longer and shorter than the one that the tree has.
    for more in [5, 30] {
        fill(&*home.store(), live(), more);
        let trees = home.trees();
        pass(&trees);
        let after = head(&trees, live());
        assert_eq!((after.size, after.root, after.hash, after.cut), (40, before.root, before.hash, None));
        let stopped = after.stopped.unwrap();
        assert_eq!(stopped.at, 26, "{stopped:?}");
        assert!(stopped.problem.contains("without an accepted loss"), "{stopped:?}");
    }
}

pub fn a_chain_that_is_shorter_than_its_tree_stops_it_and_cuts_nothing(home: &mut dyn Home) {
    fill(&*home.store(), live(), 40);
    let trees = home.trees();
    pass(&trees);
    let before = head(&trees, live());
    drop(trees);
    let had = events(&*home.store(), live());
    home.forget_events();
    wait(home.store().import(live(), had[..25].to_vec(), None)).unwrap();
    let trees = home.trees();
    pass(&trees);
    let after = head(&trees, live());
    assert_eq!((after.size, after.root, after.cut), (40, before.root, None));
    let stopped = after.stopped.unwrap();
    assert!(stopped.at == 26 && stopped.problem.contains("up to 40"), "{stopped:?}");
    // The backup that had all of it comes after all.
    wait(home.store().import(live(), had[25..].to_vec(), None)).unwrap();
    pass(&trees);
    assert_eq!((head(&trees, live()).stopped, head(&trees, live()).root), (None, before.root));
}

pub fn ten_thousand_chains_with_an_event_each_are_one_pass(home: &mut dyn Home) {
    // Sealed in memory: what is looked at is the trees.
    let store: Arc<dyn Store> = Arc::new(ReferenceStore::new(home.world() as _));
    for number in 0..10_000u16 {
        let [high, low] = number.to_be_bytes();
        let mut id = chain(1, 1, Mode::Live);
        (id.project_id.0.0[0], id.project_id.0.0[1]) = (high, low);
        append(&*store, id, vec![login("u")]);
    }
    let trees = home.trees_over(Arc::clone(&store));
    assert_eq!(pass(&trees), 10_000);
    assert_complete(&trees, &*store);
    assert_eq!(pass(&trees), 0);
}

pub fn the_worst_events_have_leaves(home: &mut dyn Home) {
    home.make_room();
    let (store, trees) = (home.store(), home.trees());
    for (_, body) in worst_events("usr_1") {
        // What the parser refuses is no event.
        if let Ok(Ok(draft)) = sealog_core::event::parse_single(body.as_bytes()) {
            append(&*store, live(), vec![draft]);
        }
    }
    let longest =
        format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "z".repeat(EVENT_BYTES_MAX - 2_000));
    let size = wait(store.head(live())).unwrap().durable.chain_seq;
    assert!(size > 5, "only {size} of the worst events were accepted");
    append(&*store, live(), vec![draft(&longest), draft(&longest)]);
    assert_eq!(pass(&trees), size + 2);
    assert_complete(&trees, &*store);
}

pub fn a_node_that_lost_its_turn_changes_nothing(home: &mut dyn Home) {
    fill(&*home.store(), live(), 5);
    let (one, two) = (home.trees(), home.trees());
    // One begins, and is not heard of any more.
    let mut polls = 0;
    while !matches!(soon(two.pass()), Ok(Pass::Elsewhere)) {
        // Where no other node may build, there is no waiting.
        if !home.is_shared() || polls > 50 {
            break;
        }
        polls += 1;
        fill(&*home.store(), live(), 1);
        drop(interrupted(one.pass(), polls));
    }
    assert!(!home.is_shared() || polls <= 50, "the other node never waited");
    home.world().advance(15_001);
    pass(&two);
    assert_complete(&two, &*home.store());
    // The first one goes on from what is there now.
    fill(&*home.store(), live(), 3);
    pass(&one);
    assert_complete(&one, &*home.store());

    // A write on top of another state than the one that was read is refused, also of the lease's holder.
    let moved = home.databases().0.change::<_, StoreError>(Lock::None, |db, _| {
        db.execute("UPDATE {builder} SET revision = revision + 7 WHERE id = 1", &[])
    });
    assert_eq!(moved, Ok(1));
    pass(&one);
    assert_complete(&one, &*home.store());
    let raced = home.databases().0;
    let racing = DoubtfulStore::new(home.store());
    let node = home.trees_over(Arc::clone(&racing) as _);
    fill(&*home.store(), live(), 2);
    let before = heads(&one);
    let mut passing = pin!(node.pass());
    let mut outcome = None;
    for _ in 0..10_000 {
        outcome = interrupted(poll_fn(|context| passing.as_mut().poll(context)), 1);
        if outcome.is_some() {
            break;
        }
        // At every step of the pass, another node changes the trees.
        let changed = raced.change::<_, DbError>(Lock::None, |db, _| {
            db.execute("UPDATE {builder} SET revision = revision + 1 WHERE id = 1", &[])
        });
        assert_eq!(changed, Ok(1));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let error = outcome.expect("the pass ends").unwrap_err();
    assert!(error.to_string().contains("another node"), "{error}");
    assert_eq!(heads(&one), before, "nothing of it was kept");
}

pub fn what_a_tree_does_not_have_is_refused(home: &mut dyn Home) {
    let trees = home.trees();
    fill(&*home.store(), live(), 5);
    pass(&trees);
    let not_yet = |size| Err(TreeError::NotYet { size });
    assert_eq!(soon(trees.inclusion(live(), 3, 6)), not_yet(5));
    assert_eq!(soon(trees.consistency(live(), 3, 6)), not_yet(5));
    assert_eq!(soon(trees.root_at(live(), 6)), Err(TreeError::NotYet { size: 5 }));
    assert_eq!(soon(trees.root_at(chain(9, 9, Mode::Live), 1)), Err(TreeError::NotYet { size: 0 }));
    assert_eq!(soon(trees.root_at(live(), 0)), Ok(merkle::EMPTY_ROOT));
    assert_eq!(soon(trees.consistency(live(), 0, 5)), Ok(Vec::new()));
    for (seq, size) in [(0, 5), (6, 5), (1, 0), (u64::MAX, 5), (1, u64::MAX)] {
        let refused = soon(trees.inclusion(live(), seq, size));
        assert!(matches!(refused, Err(TreeError::Invalid(_))), "{seq} of {size}: {refused:?}");
    }
    let empty = Err(TreeError::Invalid(ProofError::EmptyRange));
    assert_eq!(soon(trees.range_proof(live(), 4, 3, 5)), empty);
    for (from, to) in [(0, 1), (3, 2), (1, 257), (1, u64::MAX)] {
        assert_eq!(soon(trees.leaves(live(), from, to)), empty, "{from} to {to}");
    }
    let tile = |index, width| Tile { content: Content::Hashes(0), index, width };
    assert!(soon(trees.tile(live(), tile(0, 5))).unwrap().is_some());
    for refused in [tile(0, 6), tile(0, 256), tile(1, 1), tile(u64::MAX, 1)] {
        assert_eq!(soon(trees.tile(live(), refused)), Ok(None), "{refused}");
    }
    let entries = Tile { content: Content::Entries, index: 0, width: 5 };
    assert_eq!(soon(trees.tile(live(), entries)), Ok(None));
    // A tile that is damaged is no proof.
    let shortened = home.databases().0.change::<_, StoreError>(Lock::None, |db, _| {
        db.execute("UPDATE {tiles} SET hashes = substr(hashes, 1, 96)", &[])
    });
    assert_eq!(shortened, Ok(1));
    assert_eq!(soon(trees.inclusion(live(), 1, 5)).unwrap_err(), TreeError::Damaged { level: 0, index: 0 });
    assert_eq!(soon(trees.tile(live(), tile(0, 5))), Err(TreeError::Damaged { level: 0, index: 0 }));
}
