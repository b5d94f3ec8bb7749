//! The write path for 1 to 100 events, the only caller of `Store::append`.

pub mod adapters;
pub mod geo;
pub mod quota;
pub mod stamp;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use sealog_core::catalog::{Catalog, CustomAction, FrameworkSet, Scope};
use sealog_core::event::{self, BATCH_EVENTS_MAX, Draft, FIELD_SCALARS_MAX};
use sealog_core::id::{ChainId, Hash, RequestId, Ulid};
use sealog_core::json;
use sealog_core::reject::Reject;
use sealog_store::pool::{FairPool, Lane};
use sealog_store::{Append, Appended, IdempotencyKey, Receipt, Reserved, Store, StoreError};
use sha2::{Digest, Sha256};

use crate::ingest::geo::{Geo, Place};
use crate::ingest::quota::Changed;

/// Which of the two endpoints. Part of what makes a request the same as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Single,
    Batch,
}

impl Endpoint {
    /// Spec 8.
    pub fn body_bytes_max(self) -> usize {
        match self {
            Endpoint::Single => 256 << 10,
            Endpoint::Batch => 2 << 20,
        }
    }
}

/// Who sends events: a key's chain, and what decides about its actions. Made once for each key and kept for
/// as long as nothing of the tenant changes.
#[derive(Debug)]
pub struct Producer {
    pub chain: ChainId,
    /// Enabled in the project now, and now or at any time before.
    pub enabled: FrameworkSet,
    pub ever_enabled: FrameworkSet,
    /// Included in the tenant's plan.
    pub in_plan: FrameworkSet,
    /// The tenant's own actions.
    pub custom: HashMap<String, CustomAction>,
    /// Whether events count against a quota.
    pub has_quota: bool,
}

impl Producer {
    pub fn scope(&self) -> Scope<'_> {
        Scope {
            enabled: self.enabled,
            ever_enabled: self.ever_enabled,
            in_plan: self.in_plan,
            custom: &self.custom,
        }
    }
}

/// Where events are sent from.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: IpAddr,
    /// As it stands in events. A connection has it made once.
    pub text: Arc<str>,
    /// Where that is, if the caller knows; otherwise the geo database is asked.
    pub place: Option<Place>,
}

impl Client {
    pub fn new(address: IpAddr) -> Client {
        let address = address.to_canonical();
        Client { address, text: address.to_string().into(), place: None }
    }
}

/// Why nothing of a request was stored.
#[derive(Debug)]
pub enum IngestError {
    Reject(Reject),
    /// The event at this place of a batch.
    InBatch {
        reject: Reject,
        index: usize,
    },
    Store(StoreError),
    Internal(&'static str),
}

impl From<Reject> for IngestError {
    fn from(reject: Reject) -> IngestError {
        IngestError::Reject(reject)
    }
}

impl From<StoreError> for IngestError {
    fn from(error: StoreError) -> IngestError {
        IngestError::Store(error)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Ingested {
    pub receipt: Receipt,
    /// Of the answer: the original one's for a replay.
    pub request_id: RequestId,
    pub replayed: bool,
}

/// What came of an event of Sealog's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// The chain has it, from this time or an earlier one.
    Done,
    /// Somebody in this process is about to append it.
    InFlight,
    /// The key stands for something else.
    Conflict,
}

/// The key of an event of Sealog's own. It lies where no client's key can lie, whatever a client guesses of
/// it: clients send characters from `!` to `~` (core `key.rs`), and this begins with a zero. Whatever Sealog
/// writes under a key into a chain that clients write into takes its key from here.
pub fn own_key(key: &str) -> Hash {
    Hash(Sha256::new().chain_update(b"\0sealog\0").chain_update(key).finalize().into())
}

/// A body up to this size is parsed where it was read: the way to the thread pool and back would cost more
/// than it takes.
pub(crate) const PARSED_AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// The write path of a process.
#[derive(Clone)]
pub struct Ingest {
    store: Arc<dyn Store>,
    /// Without one, events have no `country` and no `city`.
    geo: Option<Arc<Geo>>,
    changed: Arc<Changed>,
}

impl Ingest {
    /// `changed` is where tenants are noted whose usage has grown.
    pub fn new(store: Arc<dyn Store>, geo: Option<Arc<Geo>>, changed: Arc<Changed>) -> Ingest {
        Ingest { store, geo, changed }
    }

    /// Stores the events of a body, or says what is wrong with the first one that cannot be stored. All or
    /// none.
    pub async fn ingest(
        &self,
        producer: &Arc<Producer>,
        endpoint: Endpoint,
        key_hash: Option<Hash>,
        body: Bytes,
        client: Client,
        request_id: RequestId,
    ) -> Result<Ingested, IngestError> {
        let origin = self.origin(client);
        let keyed = key_hash.is_some();
        let read = if body.len() <= PARSED_AT_ONCE_BYTES_MAX {
            read(endpoint, &body, keyed, producer, &origin)
        } else {
            let producer = Arc::clone(producer);
            let (whose, bytes) = (producer.chain.tenant_id, body.len());
            let act = move || read(endpoint, &body, keyed, &producer, &origin);
            let panicked =
                |_| IngestError::Internal("panic while parsing a body, or the store is shutting down");
            self.store.pool().run(Lane::Compute, whose, bytes, act).await.map_err(panicked)?
        };
        let Read { events, count, fingerprint } = read?;
        let reservation = match key_hash.zip(fingerprint) {
            None => None,
            Some((key_hash, fingerprint)) => {
                let key = IdempotencyKey { key_hash, fingerprint };
                match self.store.reserve(producer.chain, key).await? {
                    Reserved::Fresh(reservation) => Some(reservation),
                    Reserved::Replay(receipt) => return Ok(replay(receipt, request_id)),
                    Reserved::Conflict => return Err(Reject::IdempotencyConflict.into()),
                    Reserved::InFlight => return Err(Reject::IdempotencyInFlight.into()),
                }
            }
        };
        if count == 0 {
            return Err(Reject::BatchEmpty.into());
        }
        if count > BATCH_EVENTS_MAX {
            return Err(Reject::BatchTooLarge { count }.into());
        }
        let mut drafts = Vec::with_capacity(events.len());
        for (index, event) in events.into_iter().enumerate() {
            drafts.push(event.map_err(|reject| {
                let reject = with_suggestion(reject, producer);
                match endpoint {
                    Endpoint::Single => IngestError::Reject(reject),
                    Endpoint::Batch => IngestError::InBatch { reject, index },
                }
            })?);
        }
        let _note = producer.has_quota.then(|| self.changed.after(producer.chain.tenant_id));
        let idempotency = reservation.map(|reservation| (reservation, request_id.0));
        match self.store.append(Append { chain: producer.chain, drafts, idempotency }).await? {
            Appended::Sealed(receipt) => Ok(Ingested { receipt, request_id, replayed: false }),
            Appended::Replayed(receipt) => Ok(replay(receipt, request_id)),
            Appended::Conflict => Err(Reject::IdempotencyConflict.into()),
        }
    }

    /// Stores drafts that were admitted, all or none; under a key once.
    pub async fn append(
        &self,
        producer: &Producer,
        drafts: Vec<Draft>,
        key: Option<IdempotencyKey>,
        request_id: RequestId,
    ) -> Result<Ingested, IngestError> {
        let reservation = match key {
            None => None,
            Some(key) => match self.store.reserve(producer.chain, key).await? {
                Reserved::Fresh(reservation) => Some(reservation),
                Reserved::Replay(receipt) => return Ok(replay(receipt, request_id)),
                Reserved::Conflict => return Err(Reject::IdempotencyConflict.into()),
                Reserved::InFlight => return Err(Reject::IdempotencyInFlight.into()),
            },
        };
        let _note = producer.has_quota.then(|| self.changed.after(producer.chain.tenant_id));
        let idempotency = reservation.map(|reservation| (reservation, request_id.0));
        match self.store.append(Append { chain: producer.chain, drafts, idempotency }).await? {
            Appended::Sealed(receipt) => Ok(Ingested { receipt, request_id, replayed: false }),
            Appended::Replayed(receipt) => Ok(replay(receipt, request_id)),
            Appended::Conflict => Err(Reject::IdempotencyConflict.into()),
        }
    }

    pub(crate) fn pool(&self) -> &FairPool {
        self.store.pool()
    }

    /// Appends an event of Sealog's own under a key: once, however often it is tried within the time that
    /// keys are kept. `body` is what makes two tries the same.
    pub async fn append_once(
        &self,
        chain: ChainId,
        key: &str,
        body: &[u8],
        draft: Draft,
        request_id: Ulid,
    ) -> Result<Once, StoreError> {
        let key_hash = own_key(key);
        let key = IdempotencyKey { key_hash, fingerprint: Hash(Sha256::digest(body).into()) };
        let reservation = match self.store.reserve(chain, key).await? {
            Reserved::Fresh(reservation) => reservation,
            Reserved::Replay(_) => return Ok(Once::Done),
            Reserved::Conflict => return Ok(Once::Conflict),
            Reserved::InFlight => return Ok(Once::InFlight),
        };
        let idempotency = Some((reservation, request_id));
        match self.store.append(Append { chain, drafts: vec![draft], idempotency }).await? {
            Appended::Sealed(_) | Appended::Replayed(_) => Ok(Once::Done),
            Appended::Conflict => Ok(Once::Conflict),
        }
    }

    pub(crate) fn origin(&self, client: Client) -> Origin {
        let find = || self.geo.as_ref().map_or_else(Place::default, |geo| geo.find(client.address));
        let place = client.place.unwrap_or_else(find);
        Origin { ip_address: client.text, place }
    }
}

/// All that can be said of a body without asking the store.
struct Read {
    events: Vec<Result<Draft, Reject>>,
    count: usize,
    /// Of a request with a key.
    fingerprint: Option<Hash>,
}

fn read(
    endpoint: Endpoint,
    body: &[u8],
    keyed: bool,
    producer: &Producer,
    origin: &Origin,
) -> Result<Read, Reject> {
    let (mut events, count) = match endpoint {
        Endpoint::Single => (vec![event::parse_single(body)?], 1),
        Endpoint::Batch => {
            let batch = event::parse_batch(body)?;
            (batch.events, batch.count)
        }
    };
    for event in &mut events {
        if let Ok(draft) = event
            && let Err(reject) = admit(producer, draft, origin)
        {
            *event = Err(reject);
        }
    }
    Ok(Read { events, count, fingerprint: keyed.then(|| fingerprint(endpoint, body)) })
}

/// Where a request comes from: the same for all of its events.
pub(crate) struct Origin {
    ip_address: Arc<str>,
    place: Place,
}

/// Asks the catalog, and adds what the service knows of the event.
pub(crate) fn admit(producer: &Producer, draft: &mut Draft, origin: &Origin) -> Result<(), Reject> {
    let fields = draft.text.fields();
    // Without a backslash the text between the quotes is the value.
    let inner = &fields.action[1..fields.action.len() - 1];
    let decoded;
    let action = if inner.contains('\\') {
        decoded = json::decode(fields.action).unwrap_or_default();
        &decoded
    } else {
        inner
    };
    let admitted = Catalog::builtin().admit(action, fields.metadata, producer.scope())?;
    let annotations = &mut draft.annotations;
    annotations.category = admitted.category;
    if annotations.severity.is_none() {
        annotations.severity = admitted.severity;
    }
    annotations.ip_address = Some(Arc::clone(&origin.ip_address));
    annotations.country.clone_from(&origin.place.country);
    annotations.city.clone_from(&origin.place.city);
    Ok(())
}

/// Adds the closest known name, to the one reject that is answered. An action that can be no name has none.
pub(crate) fn with_suggestion(reject: Reject, producer: &Producer) -> Reject {
    match reject {
        Reject::ActionInvalid { action, .. }
            if action.chars().count() <= FIELD_SCALARS_MAX && !action.contains('\0') =>
        {
            let suggestion = Catalog::builtin().suggest(&action, &producer.custom).map(str::to_owned);
            Reject::ActionInvalid { action, suggestion }
        }
        other => other,
    }
}

fn replay(receipt: Receipt, request_id: RequestId) -> Ingested {
    Ingested { request_id: receipt.request_id.map_or(request_id, RequestId), receipt, replayed: true }
}

fn fingerprint(endpoint: Endpoint, body: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(match endpoint {
        Endpoint::Single => b"/v1/events\0".as_slice(),
        Endpoint::Batch => b"/v1/events/batch\0".as_slice(),
    });
    hasher.update(body);
    Hash(hasher.finalize().into())
}
