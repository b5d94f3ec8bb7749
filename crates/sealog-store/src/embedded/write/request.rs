//! What waits to be written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Ulid};

use super::completions::Completions;
use super::outcome::Answer;
use crate::append::{Appended, KeptKey, Receipt, Reservation};
use crate::error::StoreError;

/// It is moved many times on its way, so what is rare in it is boxed.
#[derive(Debug)]
pub(crate) struct Request {
    pub chain: ChainId,
    pub work: Work,
    /// What it takes in the log at most.
    pub bytes: usize,
    pub queued: Instant,
    /// Where to push the completion if an event loop waits for it.
    pub completions: Option<Arc<Completions>>,
    pub ahead: Option<Box<SealedAhead>>,
}

/// Events that were sealed before they had a place in the log.
#[derive(Debug)]
pub(crate) struct SealedAhead {
    /// On this head. If the chain has another one by then, they are sealed again.
    pub on: Head,
    pub now_ms: u64,
    pub sealed: Vec<Sealed>,
}

#[derive(Debug)]
pub(crate) enum Work {
    Append { drafts: Vec<Draft>, idempotency: Option<Box<(Reservation, Ulid)>>, answer: Answer<Appended> },
    Import { events: Vec<StoredEvent>, key: Option<KeptKey>, answer: Answer<Head> },
    AcceptLoss { reason: String, answer: Answer<Receipt> },
}

impl Request {
    pub(crate) fn new(chain: ChainId, work: Work, bytes: usize) -> Request {
        Request { chain, work, bytes, queued: Instant::now(), completions: None, ahead: None }
    }

    /// Whether sealing it would hold up the events of all other chains for too long.
    pub(crate) fn needs_sealing_ahead(&self, large_bytes: usize) -> bool {
        self.bytes >= large_bytes && self.ahead.is_none() && matches!(self.work, Work::Append { .. })
    }

    pub(crate) fn has_waited(&self, time: Duration) -> bool {
        self.queued.elapsed() >= time
    }

    pub(crate) fn fail(self, error: StoreError) {
        // Nobody may be waiting any more.
        match self.work {
            Work::Append { answer, idempotency, .. } => {
                drop(idempotency);
                drop(answer.send(Err(error)));
            }
            Work::Import { answer, .. } => drop(answer.send(Err(error))),
            Work::AcceptLoss { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

/// Requests for the tests of the parts that handle them.
#[cfg(test)]
pub(crate) mod testing {
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};
    use tokio::sync::oneshot;

    use super::*;

    pub(crate) type Answered = oneshot::Receiver<Result<Appended, StoreError>>;

    pub(crate) fn chain(tenant: u8) -> ChainId {
        ChainId {
            tenant_id: TenantId(Uuid([tenant; 16])),
            project_id: ProjectId(Uuid([1; 16])),
            mode: Mode::Live,
        }
    }

    /// An append of nothing that counts as so many bytes and has waited for so long.
    pub(crate) fn request(tenant: u8, bytes: usize, age: Duration) -> (Request, Answered) {
        let (answer, answered) = oneshot::channel();
        let work = Work::Append { drafts: Vec::new(), idempotency: None, answer };
        let queued = Instant::now().checked_sub(age).expect("the machine has run for longer");
        (Request { queued, ..Request::new(chain(tenant), work, bytes) }, answered)
    }
}
