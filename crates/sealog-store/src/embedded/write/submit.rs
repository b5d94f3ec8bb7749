//! How a request comes to the writer: checked, measured, and enqueued with the others of its event-loop tick.

use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::event::{Annotations, BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::{ChainId, Hash};
use tokio::sync::oneshot;

use super::batching;
use super::request::{Request, Work};
use super::threads::Writer;
use crate::append::{Append, Appended, KeptKey, Receipt, check_schema};
use crate::embedded::log::format::{self, SEGMENT_HEADER_LEN};
use crate::error::StoreError;
use crate::loss::Loss;

type Answered<T> = oneshot::Receiver<Result<T, StoreError>>;

impl Writer {
    pub(crate) fn append(self: &Arc<Writer>, append: Append) -> Result<Answered<Appended>, StoreError> {
        append.check_key()?;
        let Append { chain, drafts, idempotency } = append;
        let events = drafts.iter().map(|draft| (draft.text.as_str(), &draft.annotations));
        let bytes = request_bytes(events)?;
        let (answer, receiver) = oneshot::channel();
        let idempotency = idempotency.map(Box::new);
        self.submit(chain, Work::Append { drafts, idempotency, answer }, bytes)?;
        Ok(receiver)
    }

    pub(crate) fn import(
        self: &Arc<Writer>,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> Result<Answered<Head>, StoreError> {
        let bytes = request_bytes(events.iter().map(|event| (event.text.as_str(), &event.annotations)))?;
        if let Some(event) = events.iter().find(|event| event.chain(chain.mode) != chain) {
            let at = event.sealed.chain_seq;
            return Err(StoreError::Refused(format!("event {at} belongs to another tenant or project")));
        }
        check_schema(&events)?;
        if let Some(key) = &key {
            key.check(&events)?;
        }
        let (answer, receiver) = oneshot::channel();
        self.submit(chain, Work::Import { events, key, answer }, bytes)?;
        Ok(receiver)
    }

    /// Queues the acceptance of a loss. When it is answered the event is durable and the chain still refuses
    /// others: the high-water mark comes first.
    pub(crate) fn seal_acceptance(
        self: &Arc<Writer>,
        chain: ChainId,
        reason: String,
    ) -> Result<Answered<Receipt>, StoreError> {
        // What is lost is decided with the seal; its numbers have at most so many digits.
        let longest = Loss { lost_from: u64::MAX, lost_to: Some(u64::MAX), recorded_hash: Hash::ZERO };
        let draft = longest.draft(&reason);
        let bytes = request_bytes(std::iter::once((draft.text.as_str(), &draft.annotations)))?;
        let (answer, receiver) = oneshot::channel();
        self.submit(chain, Work::AcceptLoss { reason, answer }, bytes)?;
        Ok(receiver)
    }

    fn submit(self: &Arc<Writer>, chain: ChainId, work: Work, bytes: usize) -> Result<(), StoreError> {
        let too_large = bytes > format::FRAME_LEN_MAX
            || bytes as u64 + SEGMENT_HEADER_LEN as u64 > self.contents.options.segment_bytes_first;
        if too_large {
            return Err(StoreError::Refused("the request is larger than a segment".into()));
        }
        if let Some(request) = batching::buffer(self, Request::new(chain, work, bytes)) {
            self.enqueue(std::iter::once(request));
        }
        Ok(())
    }
}

/// What a request takes in the log at most, or why it cannot be held.
fn request_bytes<'a>(events: impl Iterator<Item = (&'a str, &'a Annotations)>) -> Result<usize, StoreError> {
    let (mut count, mut bytes) = (0, format::FRAME_OVERHEAD);
    for (text, annotations) in events {
        count += 1;
        bytes += format::record_len_of(text, annotations);
        if !format::annotations_fit(annotations) {
            return Err(StoreError::Refused("an annotation is too long".into()));
        }
    }
    if !(1..=BATCH_EVENTS_MAX).contains(&count) {
        return Err(StoreError::Refused(format!(
            "a request must have 1 to {BATCH_EVENTS_MAX} events, not {count}"
        )));
    }
    Ok(bytes)
}
