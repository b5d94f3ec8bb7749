//! The rules of accepting a loss. Each is given an empty store that can be made to lose events and be started
//! again.

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_core::verify::Reason;
use sealog_store::lacking::lacks;
use sealog_store::loss::REASON_SCALARS_MAX;
use sealog_store::{Receipt, Store, StoreError};

use sealog_testing::*;

/// A store whose last events can be lost, without the store forgetting that it had them.
pub trait Lossy {
    fn store(&self) -> &dyn Store;
    /// The chain's events from this one on are gone. What the store has recorded of them is not.
    fn lose_from(&mut self, chain: ChainId, chain_seq: u64);
    fn restart(&mut self);
}

const REASON: &str = "disk replaced, \"backup\" restored";

fn accept(lossy: &dyn Lossy, chain: ChainId) -> Result<Receipt, StoreError> {
    wait(lossy.store().accept_loss(chain, REASON.into()))
}

fn fill(lossy: &dyn Lossy, chain: ChainId, events: u64) -> Vec<Receipt> {
    (0..events).map(|n| append(lossy.store(), chain, vec![login(&format!("u{n}"))])).collect()
}

/// The chains that wait for an acceptance, with the first and the last event that each has lost.
fn losses(lossy: &dyn Lossy) -> Vec<(ChainId, u64, Option<u64>)> {
    let losses = wait(lossy.store().losses()).unwrap();
    losses.iter().map(|(chain, loss)| (*chain, loss.lost_from, loss.lost_to)).collect()
}

/// Everything that depends on the chain's end is as if the lost events had never been, but for the
/// acceptance.
#[track_caller]
fn assert_goes_on(lossy: &dyn Lossy, chain: ChainId, events: u64) {
    let store = lossy.store();
    assert_valid(store, chain, events);
    let head = wait(store.head(chain)).unwrap();
    assert_eq!((head.durable, head.durable.chain_seq), (head.recorded, events));
    let listed = list(store, chain, &Filter::default(), None, 1000);
    let seqs: Vec<u64> = listed.iter().map(|event| event.sealed.chain_seq).collect();
    assert_eq!(seqs, (1..=events).rev().collect::<Vec<_>>());
}

pub fn an_accepted_loss_is_the_next_event_of_a_chain_that_goes_on_shorter(
    lossy: &mut dyn Lossy,
    world: &StillWorld,
) {
    let other = chain(2, 1, Mode::Live);
    let receipts = fill(lossy, live(), 10);
    fill(lossy, other, 3);
    lossy.lose_from(live(), 8);
    let store = lossy.store();
    assert_eq!(try_append(store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
    let broken = verify(store, live()).broken.unwrap();
    assert_eq!((broken.at, broken.hash, broken.reason), (8, receipts[9].hash, Reason::Tail));

    // A clock that has gone back since must not give the acceptance an id below one that was given out.
    world.set(MORNING_MS - 1_000_000);
    let receipt = accept(lossy, live()).unwrap();
    let event = get(lossy.store(), live(), receipt.log_ids[0]).unwrap();
    assert_eq!((receipt.request_id, receipt.first_seq, receipt.hash), (None, 8, event.sealed.hash));
    assert_eq!((event.sealed.chain_seq, event.sealed.prev_hash), (8, receipts[6].hash));
    assert!(event.sealed.log_id > receipts[9].log_ids[0]);
    let metadata = format!(
        r#"{{"lost_from":8,"lost_to":10,"recorded_hash":"{}","reason":"disk replaced, \"backup\" restored"}}"#,
        receipts[9].hash
    );
    let expected =
        format!(r#""action":"sealog.loss_accepted","actor_id":null,"resource":null,"metadata":{metadata}}}"#);
    assert_eq!(event.text.as_str(), expected);

    for _ in 0..2 {
        assert_goes_on(lossy, live(), 8);
        assert_valid(lossy.store(), other, 3);
        for lost in &receipts[7..] {
            assert_eq!(get(lossy.store(), live(), lost.log_ids[0]), None);
        }
        lossy.restart();
    }
    assert_eq!(append(lossy.store(), live(), vec![login("goes on")]).first_seq, 9);
    append(lossy.store(), other, vec![login("goes on")]);
    lossy.restart();
    assert_goes_on(lossy, live(), 9);
    assert_goes_on(lossy, other, 4);
}

pub fn a_loss_is_accepted_once(lossy: &mut dyn Lossy, _: &StillWorld) {
    fill(lossy, live(), 4);
    lossy.lose_from(live(), 4);
    accept(lossy, live()).unwrap();
    for _ in 0..2 {
        assert!(matches!(accept(lossy, live()), Err(StoreError::Refused(_))));
        assert_goes_on(lossy, live(), 4);
        lossy.restart();
    }
}

pub fn a_chain_that_has_lost_nothing_has_nothing_to_accept(lossy: &mut dyn Lossy, _: &StillWorld) {
    let (other, empty) = (chain(2, 1, Mode::Live), chain(3, 1, Mode::Live));
    fill(lossy, live(), 3);
    fill(lossy, other, 3);
    lossy.lose_from(live(), 3);
    for chain in [other, empty] {
        assert!(matches!(accept(lossy, chain), Err(StoreError::Refused(_))), "{chain}");
    }
    assert_goes_on(lossy, other, 3);
    assert_eq!(verify(lossy.store(), empty).checked, 0);
    assert_eq!(append(lossy.store(), empty, vec![login("a")]).first_seq, 1);
}

pub fn a_loss_is_accepted_with_a_reason_or_not_at_all(lossy: &mut dyn Lossy, _: &StillWorld) {
    fill(lossy, live(), 3);
    lossy.lose_from(live(), 2);
    let too_long = "é".repeat(REASON_SCALARS_MAX + 1);
    for reason in ["", " \t\n", &too_long] {
        let refused = wait(lossy.store().accept_loss(live(), reason.into()));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert_eq!(
            try_append(lossy.store(), live(), vec![login("x")]),
            Err(StoreError::HeadUnproven { chain: live() })
        );
        lossy.restart();
    }
    wait(lossy.store().accept_loss(live(), "é".repeat(REASON_SCALARS_MAX))).unwrap();
    assert_goes_on(lossy, live(), 2);
}

pub fn a_chain_can_lose_again_and_so_can_its_acceptance(lossy: &mut dyn Lossy, _: &StillWorld) {
    fill(lossy, live(), 5);
    let mut highest = None;
    // Behind an acceptance, at an acceptance, before one.
    for (lost, added) in [(5, 3), (7, 0), (7, 4), (3, 2)] {
        let recorded = wait(lossy.store().head(live())).unwrap().recorded;
        lossy.lose_from(live(), lost);
        let receipt = accept(lossy, live()).unwrap();
        assert_eq!(receipt.first_seq, lost);
        let event = get(lossy.store(), live(), receipt.log_ids[0]).unwrap();
        let says = format!(
            r#""lost_from":{lost},"lost_to":{},"recorded_hash":"{}""#,
            recorded.chain_seq, recorded.hash
        );
        assert!(event.text.as_str().contains(&says), "{} {says}", event.text.as_str());
        assert!(Some(event.sealed.log_id) > highest, "ids never go back");
        assert_goes_on(lossy, live(), lost);
        for _ in 0..added {
            highest = append(lossy.store(), live(), vec![login("a")]).log_ids.last().copied();
        }
        highest = highest.max(Some(event.sealed.log_id));
        lossy.restart();
        assert_goes_on(lossy, live(), lost + added);
    }
}

pub fn a_chain_that_is_lost_as_a_whole_begins_with_its_acceptance(lossy: &mut dyn Lossy, _: &StillWorld) {
    fill(lossy, live(), 3);
    lossy.lose_from(live(), 1);
    let receipt = accept(lossy, live()).unwrap();
    let event = get(lossy.store(), live(), receipt.log_ids[0]).unwrap();
    assert_eq!((event.sealed.chain_seq, event.sealed.prev_hash), (1, Hash::ZERO));
    lossy.restart();
    assert_goes_on(lossy, live(), 1);
    append(lossy.store(), live(), vec![login("a")]);
    assert_goes_on(lossy, live(), 2);
}

pub fn the_key_of_a_lost_request_is_free_once_the_loss_is_accepted(lossy: &mut dyn Lossy, _: &StillWorld) {
    fill(lossy, live(), 3);
    let send = |lossy: &dyn Lossy, name: &str, request_id| {
        append_once(lossy.store(), live(), vec![login(name)], key(name, "body"), Ulid(request_id))
    };
    let Outcome::Sealed(kept) = send(lossy, "kept", 1) else { panic!("the key is free") };
    assert!(matches!(send(lossy, "lost", 2), Outcome::Sealed(_)));
    lossy.lose_from(live(), 5);
    accept(lossy, live()).unwrap();
    lossy.restart();
    assert_eq!(send(lossy, "kept", 3), Outcome::Replayed(kept));
    let Outcome::Sealed(again) = send(lossy, "lost", 4) else { panic!("the client is told of a lost event") };
    assert_eq!((again.first_seq, again.request_id), (6, Some(Ulid(4))));
    assert_goes_on(lossy, live(), 6);
}

pub fn losses_of_several_chains_are_accepted_one_by_one(lossy: &mut dyn Lossy, _: &StillWorld) {
    let chains = [live(), chain(1, 2, Mode::Live), chain(1, 1, Mode::Test)];
    for chain in chains {
        fill(lossy, chain, 4);
    }
    for chain in chains {
        lossy.lose_from(chain, 3);
    }
    for (number, chain) in chains.into_iter().enumerate() {
        for waiting in &chains[number..] {
            let refused = try_append(lossy.store(), *waiting, vec![login("x")]);
            assert_eq!(refused, Err(StoreError::HeadUnproven { chain: *waiting }));
        }
        let mut known = chains[number..].to_vec();
        known.sort();
        assert_eq!(losses(lossy), known.iter().map(|chain| (*chain, 3, Some(4))).collect::<Vec<_>>());
        accept(lossy, chain).unwrap();
        known.retain(|other| *other != chain);
        assert_eq!(losses(lossy), known.iter().map(|chain| (*chain, 3, Some(4))).collect::<Vec<_>>());
        append(lossy.store(), chain, vec![login("a")]);
        lossy.restart();
        assert_goes_on(lossy, chain, 4);
    }
}

pub fn a_chain_that_lacks_an_event_it_is_known_to_have_had_takes_none_until_that_is_accepted(
    lossy: &mut dyn Lossy,
    _: &StillWorld,
) {
    let other = chain(2, 1, Mode::Live);
    let receipts = fill(lossy, live(), 10);
    fill(lossy, other, 3);
    // Whoever knows of an event may know its seq and hash alone.
    let known = |chain_seq, hash| Head { chain_seq, log_id: Ulid(0), hash };
    let is_lacking = |lossy: &dyn Lossy, known: &Head| wait(lacks(lossy.store(), live(), known)).unwrap();
    for at in [1, 4, 9] {
        assert!(!is_lacking(lossy, &known(at + 1, receipts[usize::try_from(at).unwrap()].hash)), "{at}");
    }
    let mut events = 10;
    // Behind the end; in the middle, where the chain has another event.
    for (lost, lost_from) in [(known(12, Hash([7; 32])), 11), (known(5, Hash([8; 32])), 5)] {
        assert!(is_lacking(lossy, &lost));
        wait(lossy.store().record_loss(live(), lost)).unwrap();
        let refused = try_append(lossy.store(), live(), vec![login("x")]);
        assert_eq!(refused, Err(StoreError::HeadUnproven { chain: live() }));
        assert!(verify(lossy.store(), live()).broken.is_some(), "verification misses it");
        append(lossy.store(), other, vec![login("a")]);
        assert_eq!(losses(lossy), [(live(), lost_from, Some(lost.chain_seq))]);
        let accepted = accept(lossy, live()).unwrap();
        assert_eq!(accepted.first_seq, events + 1);
        assert!(!is_lacking(lossy, &lost), "it is accepted");
        assert_eq!(append(lossy.store(), live(), vec![login("goes on")]).first_seq, events + 2);
        events += 2;
        assert_goes_on(lossy, live(), events);
        lossy.restart();
        assert_goes_on(lossy, live(), events);
        assert_eq!(append(lossy.store(), live(), vec![login("goes on")]).first_seq, events + 1);
        events += 1;
    }
    assert_goes_on(lossy, live(), events);
    assert_goes_on(lossy, other, 5);
}

pub fn a_store_that_was_rolled_back_takes_no_events_until_that_is_taken_back(
    lossy: &mut dyn Lossy,
    _: &StillWorld,
) {
    let receipts = fill(lossy, live(), 3);
    let test = chain(1, 1, Mode::Test);
    for why in ["5 entries were signed", "the state copy has another tree"] {
        let refused = || Err(StoreError::RolledBack(why.into()));
        lossy.store().set_rolled_back(Some(why.into()));
        for chain in [live(), test] {
            assert_eq!(try_append(lossy.store(), chain, vec![login("x")]), refused());
        }
        assert_eq!(lossy.store().ready(), refused().map(|_: Receipt| ()));
        assert!(get(lossy.store(), live(), receipts[1].log_ids[0]).is_some(), "reads go on");
    }
    lossy.store().set_rolled_back(None);
    assert_eq!(lossy.store().ready(), Ok(()));
    assert_eq!(append(lossy.store(), live(), vec![login("a")]).first_seq, 4);
    assert_eq!(append(lossy.store(), test, vec![login("a")]).first_seq, 1);
}
