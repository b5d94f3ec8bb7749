//! What is handed to a store to be sealed, what it answers, and the idempotency keys of both.

use std::fmt;

use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Hash, Ulid};

use crate::error::StoreError;

/// Lifetime of an idempotency key after the receipt of its request. Spec 4.1.
pub const IDEMPOTENCY_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// A client's `Idempotency-Key` and what it stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// SHA-256 of the key.
    pub key_hash: Hash,
    /// SHA-256 over endpoint and body: what makes two requests the same.
    pub fingerprint: Hash,
}

/// A key that was used, as it is kept: with the answer that a retry gets, and what that answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptKey {
    pub key: IdempotencyKey,
    /// The id of the response.
    pub request_id: Ulid,
    /// Its 24 hours begin here.
    pub received_ms: u64,
    /// The `chain_seq` of the request's first event.
    pub first_seq: u64,
    /// Number of events in the request.
    pub events: usize,
}

impl KeptKey {
    /// A key with a part of its request would replay an answer that was never given.
    pub(crate) fn check(&self, events: &[StoredEvent]) -> Result<(), StoreError> {
        let first_seq = events.first().map(|event| event.sealed.chain_seq);
        if first_seq == Some(self.first_seq) && events.len() == self.events {
            return Ok(());
        }
        Err(StoreError::Refused("the idempotency key belongs to other events".into()))
    }
}

/// Which keys to read: of requests whose events begin at `from` or later and that were received after a time,
/// at most so many.
#[derive(Clone, Copy, Debug)]
pub struct WantedKeys {
    pub from: u64,
    pub received_after_ms: u64,
    pub limit: usize,
}

#[derive(Debug)]
pub enum Reserved {
    /// The key is free and now the caller's.
    Fresh(Reservation),
    /// The same request was acknowledged within the last 24 hours.
    Replay(Receipt),
    /// The key was used for another request within the last 24 hours.
    Conflict,
    /// A request with this key is being processed.
    InFlight,
}

/// Holds an idempotency key while its request is processed; frees it when dropped.
pub struct Reservation {
    pub(crate) chain: ChainId,
    pub(crate) key: IdempotencyKey,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Reservation {
    pub(crate) fn new(
        chain: ChainId,
        key: IdempotencyKey,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Reservation {
        Reservation { chain, key, release: Some(Box::new(release)) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// A request to append.
#[derive(Debug)]
pub struct Append {
    pub chain: ChainId,
    pub drafts: Vec<Draft>,
    /// The key under which the answer is kept, and the `request_id` that the answer carries.
    pub idempotency: Option<(Reservation, Ulid)>,
}

impl Append {
    /// A key belongs to one chain: what is held in one must not be used up in another. Every store asks this
    /// before it queues a request.
    pub(crate) fn check_key(&self) -> Result<(), StoreError> {
        match &self.idempotency {
            Some((reservation, _)) if reservation.chain != self.chain => {
                Err(StoreError::Refused("the idempotency key was reserved for another chain".into()))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    Sealed(Receipt),
    /// Between the reservation and here the same request was acknowledged.
    Replayed(Receipt),
    /// Between the reservation and here another request was acknowledged under the key.
    Conflict,
}

/// An acknowledgement of durable events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The id of the original response; None for a request without an idempotency key.
    pub request_id: Option<Ulid>,
    pub log_ids: Vec<Ulid>,
    pub first_seq: u64,
    /// The hash of the last event.
    pub hash: Hash,
}

impl Receipt {
    pub fn last_seq(&self) -> u64 {
        self.first_seq + self.log_ids.len() as u64 - 1
    }
}

/// An event of a later schema cannot be kept as it is by a program that does not know it, and must not be
/// kept as something else.
pub(crate) fn check_schema(events: &[StoredEvent]) -> Result<(), StoreError> {
    match events.iter().find(|event| !event.has_known_schema()) {
        None => Ok(()),
        Some(event) => Err(StoreError::Refused(format!(
            "event {} has the unknown schema_version {}; use a newer version",
            event.sealed.chain_seq, event.schema_version
        ))),
    }
}
