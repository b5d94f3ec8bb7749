//! What shippers send: items of which each is taken or refused by itself, through the same validation and the
//! same writes as `POST /v1/events`.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use sealog_core::event::{self, BATCH_EVENTS_MAX, Draft};
use sealog_core::id::{Hash, RequestId, TenantId, Ulid};
use sealog_core::json;
use sealog_core::reject::{FieldProblem, Reject};
use sealog_formats::input::Adapter;
use sealog_store::IdempotencyKey;
use sealog_store::pool::Lane;
use sha2::{Digest, Sha256};

use crate::ingest::{
    Client, Endpoint, Ingest, IngestError, Origin, PARSED_AT_ONCE_BYTES_MAX, Producer, admit, with_suggestion,
};

/// Most errors that an answer describes.
pub const ERRORS_MAX: usize = 100;

/// What became of an item.
#[derive(Debug)]
pub enum Fate {
    Stored(Ulid),
    Rejected(Reject),
    /// The request was given up before it, or with it.
    NotTried,
}

/// What became of a request.
#[derive(Debug)]
pub struct Taken {
    /// In the order in which they were sent.
    pub fates: Vec<Fate>,
    /// Stored now, and not by an earlier request with the same key.
    pub sealed: usize,
    /// All that is stored was so before.
    pub replayed: bool,
    /// Why it ended before its last item.
    pub stopped: Option<Stopped>,
}

/// Where a request that has stored something came to an end. Every item before `retry_from` is stored or
/// refused.
#[derive(Debug)]
pub struct Stopped {
    pub error: IngestError,
    /// The first item whose fate is not known. Its batch may be stored nonetheless: after an error of the
    /// store only the same key can tell.
    pub retry_from: usize,
    /// The first item behind that batch. From here on nothing is stored.
    pub untried_from: usize,
}

impl Taken {
    pub fn stored(&self) -> usize {
        self.fates.iter().filter(|fate| matches!(fate, Fate::Stored(_))).count()
    }

    pub fn rejected(&self) -> impl Iterator<Item = (usize, &Reject)> {
        self.fates.iter().enumerate().filter_map(|(index, fate)| match fate {
            Fate::Rejected(reject) => Some((index, reject)),
            Fate::Stored(_) | Fate::NotTried => None,
        })
    }
}

impl Ingest {
    /// Stores the items that can be stored, as batches that are no larger than those of the API: each batch
    /// whole or not at all, in the order of the items.
    ///
    /// With a key, each batch has one that is derived from it, and an item is stored once, however often the
    /// request is sent. Which of its items were accepted is part of what makes a batch the same: where that
    /// has changed in between (an action was registered, say), the key stands for something else, and the
    /// answer is a conflict instead of a guess.
    ///
    /// `charge` gets the number of batches before anything is stored, and may refuse them.
    #[expect(clippy::too_many_arguments, reason = "each is another party's word about the request")]
    pub async fn take(
        &self,
        producer: &Arc<Producer>,
        adapter: Adapter,
        key_hash: Option<Hash>,
        body: Bytes,
        client: Client,
        request_id: RequestId,
        charge: impl FnOnce(usize) -> Result<(), Reject> + Send,
    ) -> Result<Taken, IngestError> {
        let origin = self.origin(client);
        let keyed = key_hash.map(|key_hash| (key_hash, fingerprint(adapter, &body)));
        let read = if body.len() <= PARSED_AT_ONCE_BYTES_MAX {
            read(adapter, &body, producer, &origin)
        } else {
            let producer = Arc::clone(producer);
            let (whose, bytes) = (producer.chain.tenant_id, body.len());
            let act = move || read(adapter, &body, &producer, &origin);
            let panicked =
                |_| IngestError::Internal("panic while parsing a body, or the store is shutting down");
            self.pool().run(Lane::Compute, whose, bytes, act).await.map_err(panicked)?
        };
        let read = read?;
        let fates = Vec::with_capacity(read.len());
        let (mut taken, mut replays) = (Taken { fates, sealed: 0, replayed: false, stopped: None }, 0);
        let batches: Vec<_> = batches(read).collect();
        charge(batches.len())?;
        for (number, batch) in (0..).zip(batches) {
            let key = keyed.map(|(key_hash, body)| key_of(key_hash, body, number, &batch));
            let (drafts, mut fates) = divide(batch);
            if !drafts.is_empty() && taken.stopped.is_none() {
                match self.append(producer, drafts, key, request_id).await {
                    Ok(ingested) => {
                        replays += usize::from(ingested.replayed);
                        taken.sealed += if ingested.replayed { 0 } else { ingested.receipt.log_ids.len() };
                        let mut log_ids = ingested.receipt.log_ids.iter();
                        for fate in fates.iter_mut().filter(|fate| matches!(fate, Fate::NotTried)) {
                            if let Some(log_id) = log_ids.next() {
                                *fate = Fate::Stored(*log_id);
                            }
                        }
                    }
                    // Nothing is stored yet, so nothing has to be told apart.
                    Err(error) if taken.stored() == 0 => return Err(error),
                    Err(error) => {
                        let begun = taken.fates.len();
                        let open = fates.iter().position(|fate| matches!(fate, Fate::NotTried)).unwrap_or(0);
                        taken.stopped = Some(Stopped {
                            error,
                            retry_from: begun + open,
                            untried_from: begun + fates.len(),
                        });
                    }
                }
            }
            taken.fates.extend(fates);
        }
        taken.replayed = replays > 0 && taken.sealed == 0;
        Ok(taken)
    }
}

impl Ingest {
    /// The content of a gzip, if it has at most this many bytes. The caller holds memory for all of them.
    pub async fn inflate(
        &self,
        whose: TenantId,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Bytes, IngestError> {
        let act = move || inflated(&body, bytes_max);
        let panicked =
            |_| IngestError::Internal("panic while decompressing a body, or the store is shutting down");
        let inflated = self.pool().run(Lane::Compute, whose, bytes_max, act).await.map_err(panicked)?;
        Ok(inflated?.into())
    }
}

/// One layer and one member: thousands of empty members would be work without an end in sight.
fn inflated(body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Reject> {
    let invalid = |error: &io::Error| Reject::InvalidJson {
        detail: format!("cannot decompress the gzip body: {error}"),
    };
    let mut content = Vec::with_capacity(bytes_max);
    let mut decoder = GzDecoder::new(body);
    // One byte more than is allowed tells that there is more.
    let limit = bytes_max as u64 + 1;
    decoder.by_ref().take(limit).read_to_end(&mut content).map_err(|error| invalid(&error))?;
    if content.len() > bytes_max {
        return Err(Reject::BodyTooLarge { bytes_max });
    }
    if !decoder.get_ref().is_empty() {
        return Err(invalid(&io::Error::other("it has trailing data")));
    }
    Ok(content)
}

/// All that can be said of a body without asking the store.
fn read(
    adapter: Adapter,
    body: &[u8],
    producer: &Producer,
    origin: &Origin,
) -> Result<Vec<Result<Draft, Reject>>, Reject> {
    let items = adapter.items(body)?;
    let mut has_suggestion = false;
    let draft = |item: &str| {
        if !item.trim_start().starts_with('{') && json::canonical(item).is_ok() {
            return Err(Reject::InvalidField { field: "event", problem: FieldProblem::NotAnObject });
        }
        let mut draft = event::parse_single(item.as_bytes())??;
        admit(producer, &mut draft, origin)?;
        Ok(draft)
    };
    let read = items.into_iter().map(|item| match item.and_then(|item| draft(&item)) {
        // To find the closest name takes a while: the first one gets it.
        Err(reject @ Reject::ActionInvalid { .. }) if !has_suggestion => {
            has_suggestion = true;
            Err(with_suggestion(reject, producer))
        }
        other => other,
    });
    Ok(read.collect())
}

/// At most as many items, and as many bytes, as a batch of the API may have; one item at least.
fn batches(items: Vec<Result<Draft, Reject>>) -> impl Iterator<Item = Vec<Result<Draft, Reject>>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(item) = items.peek() {
            bytes += item.as_ref().map_or(0, |draft| draft.text.as_str().len());
            let is_full = batch.len() == BATCH_EVENTS_MAX || bytes > Endpoint::Batch.body_bytes_max();
            if is_full && !batch.is_empty() {
                break;
            }
            batch.extend(items.next());
        }
        (!batch.is_empty()).then_some(batch)
    })
}

/// The drafts of a batch, and a place for the fate of each item.
fn divide(batch: Vec<Result<Draft, Reject>>) -> (Vec<Draft>, Vec<Fate>) {
    let (mut drafts, mut fates) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for item in batch {
        match item {
            Ok(draft) => {
                drafts.push(draft);
                fates.push(Fate::NotTried);
            }
            Err(reject) => fates.push(Fate::Rejected(reject)),
        }
    }
    (drafts, fates)
}

fn fingerprint(adapter: Adapter, body: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(adapter.path());
    hasher.update(b"\0");
    hasher.update(body);
    Hash(hasher.finalize().into())
}

/// The key of a batch: the first one's is the request's own, so that its use for another endpoint is noticed.
fn key_of(key_hash: Hash, body: Hash, number: u64, batch: &[Result<Draft, Reject>]) -> IdempotencyKey {
    let key_hash = if number == 0 {
        key_hash
    } else {
        let mut hasher = Sha256::new();
        hasher.update(key_hash.0);
        hasher.update(number.to_le_bytes());
        Hash(hasher.finalize().into())
    };
    let mut hasher = Sha256::new();
    hasher.update(body.0);
    hasher.update(number.to_le_bytes());
    hasher.update(batch.iter().map(|item| u8::from(item.is_ok())).collect::<Vec<_>>());
    IdempotencyKey { key_hash, fingerprint: Hash(hasher.finalize().into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(bytes: usize) -> Result<Draft, Reject> {
        let body = format!(r#"{{"action":"user.login","metadata":{{"x":"{}"}}}}"#, "x".repeat(bytes));
        Ok(event::parse_single(body.as_bytes()).unwrap().unwrap())
    }

    fn sizes(items: Vec<Result<Draft, Reject>>) -> Vec<usize> {
        batches(items).map(|batch| batch.len()).collect()
    }

    #[test]
    fn a_batch_has_at_most_100_items_and_the_bytes_of_a_batch_of_the_api() {
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes((0..250).map(|_| draft(10)).collect()), [100, 100, 50]);
        assert_eq!(sizes((0..100).map(|_| draft(10)).collect()), [100]);
        // Six and a bit of these are two megabytes.
        assert_eq!(sizes((0..14).map(|_| draft(300 << 10)).collect()), [6, 6, 2]);
        let refused = (0..120).map(|_| Err(Reject::MissingAction));
        assert_eq!(sizes(refused.chain([draft(3 << 20), draft(3 << 20)]).collect()), [100, 20, 1, 1]);
    }
}
