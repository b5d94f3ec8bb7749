//! A tenant's system chain, which every store tells from its id alone: a chain like any other that counts
//! toward no usage.

use sealog_core::id::{ChainId, Mode};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_store::feed::{Scope, Start};
use sealog_store::reference::ReferenceStore;

use super::feed;
use super::loss::Lossy;
use sealog_testing::*;

pub fn a_system_chain_is_sealed_read_verified_and_followed_like_any_other(
    lossy: &mut dyn Lossy,
    _: &StillWorld,
) {
    let system = system_chain(1);
    let mut follower = feed::follow(lossy.store(), Scope::Tenant(system.tenant_id), Start::Now);
    let receipt = append(lossy.store(), system, vec![login("a"), login("b")]);
    let head = get(lossy.store(), system, receipt.log_ids[1]).unwrap().head();
    let batch = feed::next(&mut follower, 10);
    let announced: Vec<_> = batch.changes.iter().map(|change| (change.chain, change.head)).collect();
    assert_eq!(announced, [(system, head)]);
    drop(follower);
    for _ in 0..2 {
        let store = lossy.store();
        assert_valid(store, system, 2);
        let listed = list(store, system, &Filter::default(), None, 10);
        let seqs: Vec<u64> = listed.iter().map(|event| event.sealed.chain_seq).collect();
        assert_eq!(seqs, [2, 1]);
        assert!(listed.iter().all(|event| event.chain(Mode::Live) == system));
        // A copy finds it here.
        assert_eq!(wait(store.heads()).unwrap(), [(system, head)]);
        lossy.restart();
    }
    assert_eq!(append(lossy.store(), system, vec![login("c")]).first_seq, 3);
}

/// Whoever brings events in (requests, imports, the acceptance of a loss), and whether the store counts while
/// it writes, reads its own indexes or makes them again.
pub fn a_system_chain_counts_toward_no_usage(lossy: &mut dyn Lossy, world: &StillWorld) {
    let (system, project) = (system_chain(1), chain(1, 2, Mode::Live));
    let in_test_mode = ChainId { mode: Mode::Test, ..system };
    let usage =
        |lossy: &dyn Lossy| wait(lossy.store().usage(system.tenant_id, Month::of(MORNING_MS))).unwrap();
    // Enough for the embedded store to fill some segments.
    for n in 0..300 {
        append(lossy.store(), system, vec![login(&format!("u{n}"))]);
        world.advance(1);
    }
    append(lossy.store(), system, vec![login("a"); 100]);
    append(lossy.store(), in_test_mode, vec![login("a"); 3]);
    assert_eq!(usage(lossy), 0);
    append(lossy.store(), project, vec![login("a"); 10]);
    append(lossy.store(), live(), vec![login("a")]);
    assert_eq!(usage(lossy), 11);

    let elsewhere = ReferenceStore::new(StillWorld::new());
    let imported = system_chain(2);
    append(&elsewhere, imported, vec![login("a"); 50]);
    let mut events = list(&elsewhere, imported, &Filter::default(), None, 50);
    events.reverse();
    wait(lossy.store().import(imported, events, None)).unwrap();
    let usage_of_imported =
        |lossy: &dyn Lossy| wait(lossy.store().usage(imported.tenant_id, Month::of(MORNING_MS))).unwrap();
    for _ in 0..2 {
        assert_eq!((usage(lossy), usage_of_imported(lossy)), (11, 0));
        lossy.restart();
    }
    lossy.lose_from(system, 250);
    assert_eq!((usage(lossy), usage_of_imported(lossy)), (11, 0));
    wait(lossy.store().accept_loss(system, "disk replaced".into())).unwrap();
    append(lossy.store(), system, vec![login("goes on")]);
    for _ in 0..2 {
        assert_eq!((usage(lossy), usage_of_imported(lossy)), (11, 0));
        assert_valid(lossy.store(), system, 251);
        lossy.restart();
    }
}
