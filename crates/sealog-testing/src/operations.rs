//! Short names for what tests ask of a store, on this thread and with the answer that they mostly expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Ulid};
use sealog_core::query::{Filter, SeqRange};
use sealog_core::verify::{Item, Verdict};
use sealog_store::{Append, Appended, IdempotencyKey, List, Range, Receipt, Reserved, Store, StoreError};

use crate::drafts::{key, login};
use crate::waiting::wait;

pub fn append(store: &dyn Store, chain: ChainId, drafts: Vec<Draft>) -> Receipt {
    try_append(store, chain, drafts).unwrap()
}

pub fn try_append(store: &dyn Store, chain: ChainId, drafts: Vec<Draft>) -> Result<Receipt, StoreError> {
    match wait(store.append(Append { chain, drafts, idempotency: None }))? {
        Appended::Sealed(receipt) => Ok(receipt),
        other => panic!("{other:?}"),
    }
}

/// Reserves the key and, if it is free, appends one event under it.
pub fn append_once(
    store: &dyn Store,
    chain: ChainId,
    drafts: Vec<Draft>,
    key: IdempotencyKey,
    request_id: Ulid,
) -> Outcome {
    match wait(store.reserve(chain, key)).unwrap() {
        Reserved::Fresh(reservation) => {
            match wait(store.append(Append { chain, drafts, idempotency: Some((reservation, request_id)) }))
                .unwrap()
            {
                Appended::Sealed(receipt) => Outcome::Sealed(receipt),
                Appended::Replayed(receipt) => Outcome::Replayed(receipt),
                Appended::Conflict => Outcome::Conflict,
            }
        }
        Reserved::Replay(receipt) => Outcome::Replayed(receipt),
        Reserved::Conflict => Outcome::Conflict,
        Reserved::InFlight => Outcome::InFlight,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sealed(Receipt),
    Replayed(Receipt),
    Conflict,
    InFlight,
}

/// Appends an event whose actor is the nonce, again and again under the same key, until it is acknowledged or
/// enough is enough.
pub fn until_acknowledged(
    store: &dyn Store,
    chain: ChainId,
    nonce: &str,
    enough: &AtomicBool,
) -> Option<Receipt> {
    let key = key(&format!("key of {nonce}"), nonce);
    loop {
        let reserved = wait(store.reserve(chain, key));
        let done = match reserved {
            Ok(Reserved::Fresh(reservation)) => {
                let idempotency = Some((reservation, Ulid(1)));
                wait(store.append(Append { chain, drafts: vec![login(nonce)], idempotency }))
            }
            Ok(Reserved::Replay(receipt)) => Ok(Appended::Replayed(receipt)),
            Ok(other) => panic!("{nonce}: {other:?}"),
            Err(error) => Err(error),
        };
        match done {
            Ok(Appended::Sealed(receipt) | Appended::Replayed(receipt)) => return Some(receipt),
            Ok(Appended::Conflict) => panic!("{nonce} is in conflict with itself"),
            Err(_) if enough.load(Ordering::SeqCst) => return None,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

pub fn get(store: &dyn Store, chain: ChainId, log_id: Ulid) -> Option<StoredEvent> {
    wait(store.get(chain, log_id)).unwrap()
}

/// A whole page, however many pieces it comes in.
pub fn list(
    store: &dyn Store,
    chain: ChainId,
    filter: &Filter,
    before_seq: Option<u64>,
    limit: usize,
) -> Vec<StoredEvent> {
    list_in_pieces(store, chain, filter, before_seq, limit, 1 << 20)
}

pub fn list_in_pieces(
    store: &dyn Store,
    chain: ChainId,
    filter: &Filter,
    before_seq: Option<u64>,
    limit: usize,
    bytes_max: usize,
) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    let mut before_seq = before_seq;
    loop {
        let list = List { filter: filter.clone(), before_seq, limit: limit - events.len(), bytes_max };
        let chunk = wait(store.list(chain, list)).unwrap();
        let goes_down = chunk.resume.is_none_or(|resume| before_seq.is_none_or(|before| resume < before));
        assert!(goes_down, "a piece that begins at {before_seq:?} goes on at {:?}", chunk.resume);
        events.extend(chunk.items);
        match chunk.resume {
            Some(resume) if events.len() < limit => before_seq = Some(resume),
            _ => return events,
        }
    }
}

pub fn range(store: &dyn Store, chain: ChainId, from: u64, to: u64, bytes_max: usize) -> Vec<Item> {
    let mut items = Vec::new();
    let mut from = from;
    loop {
        let chunk = wait(store.range(chain, Range { from, to, bytes_max })).unwrap();
        items.extend(chunk.items);
        match chunk.resume {
            Some(resume) if resume <= to => from = resume,
            _ => return items,
        }
    }
}

pub fn verify(store: &dyn Store, chain: ChainId) -> Verdict {
    let verdict = wait(sealog_store::verify::whole(store, chain)).unwrap();
    // The fast way must say the same of every chain that any test looks at.
    let audited = wait(store.audit(vec![chain], Arc::default())).unwrap();
    assert_eq!(audited, [verdict]);
    verdict
}

pub fn verify_window(store: &dyn Store, chain: ChainId, from: u64, to: u64) -> Verdict {
    wait(sealog_store::verify::window(store, chain, SeqRange { from, to })).unwrap()
}

#[track_caller]
pub fn assert_valid(store: &dyn Store, chain: ChainId, events: u64) {
    let verdict = verify(store, chain);
    assert_eq!(verdict, Verdict { checked: events, first_seq: 1, last_seq: events, broken: None });
}
