//! Appending: each node groups what waits for a chain, and writes one group at a time in one transaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use sealog_core::canonical::EventText;
use sealog_core::chain::Head;
use sealog_core::event::{BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::{ChainId, Mode};
use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::error::SqlState;

use super::error::unavailable;
use super::event_clock::EventClock;
use super::hub::Feed;
use super::loss::{self, Findings};
use super::options::Options;
use super::queue::{Outcome, Queue, Request, Work};
use super::routes::{Routes, Side};
use super::rows::{self, Id};
use super::statements::{AtOnce, CommitPhase, LockPhase};
use super::transaction::{Failed, Node, Transaction, of_mode};
use crate::append::{Append, Appended, KeptKey, Receipt, check_schema};
use crate::error::StoreError;
use crate::shares::TenantShares;
use crate::stats::{Histogram, LogStats};

#[derive(Debug)]
pub(super) struct Writer {
    node: Node,
    routes: Arc<Routes>,
    /// Chains that could not be locked lately share half of the connections, so that the others keep the
    /// rest.
    contested: Semaphore,
    /// Connections of the chains of one tenant. They are given in the order in which they were asked for: a
    /// tenant with a thousand chains would be a thousand ahead of everybody else.
    shares: TenantShares,
    /// How long appends took, live and test.
    appends: [Histogram; 2],
}

/// The SQL of appends.
pub(super) struct Statements {
    pub(super) begin: String,
    pub(super) lock_phase: LockPhase,
    pub(super) commit_phase: CommitPhase,
    pub(super) at_once: Option<AtOnce>,
}

impl Writer {
    pub(super) fn new(
        options: &Options,
        statements: Statements,
        routes: Arc<Routes>,
        acknowledged: &BTreeMap<ChainId, Head>,
        findings: Arc<Findings>,
        clock: Arc<EventClock>,
        feed: Arc<Feed>,
    ) -> Arc<Writer> {
        let acknowledged = acknowledged.iter().map(|(chain, head)| (*chain, *head)).collect();
        let Statements { begin, lock_phase, commit_phase, at_once } = statements;
        let durations = || Mode::ALL.map(|_| Histogram::durations());
        Arc::new(Writer {
            node: Node {
                options: options.clone(),
                begin,
                lock_phase,
                commit_phase,
                at_once,
                queue: Queue::new(options, acknowledged, feed),
                commits: durations(),
                findings,
                clock,
            },
            routes,
            contested: Semaphore::new((options.connections / 4).max(1)),
            // Three quarters, so that the next tenant does not wait for the first.
            shares: TenantShares::of_each((options.connections - options.connections / 4).max(1)),
            appends: durations(),
        })
    }

    pub(super) fn append(
        self: &Arc<Writer>,
        append: Append,
        runtime: &tokio::runtime::Handle,
    ) -> Result<oneshot::Receiver<Result<Appended, StoreError>>, StoreError> {
        append.check_key()?;
        let Append { chain, drafts, idempotency } = append;
        let bytes = request_bytes(drafts.iter().map(|draft| &draft.text))?;
        let (answer, receiver) = oneshot::channel();
        let events = drafts.len();
        self.enqueue(chain, Work::Append { drafts, idempotency, answer }, events, bytes, runtime)?;
        Ok(receiver)
    }

    pub(super) fn import(
        self: &Arc<Writer>,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<oneshot::Receiver<Result<Head, StoreError>>, StoreError> {
        let bytes = request_bytes(events.iter().map(|event| &event.text))?;
        if events.iter().any(|event| event.chain(chain.mode) != chain) {
            return Err(StoreError::Refused("an event belongs to another tenant or project".into()));
        }
        check_schema(&events)?;
        if let Some(key) = &key {
            key.check(&events)?;
        }
        let (answer, receiver) = oneshot::channel();
        let count = events.len();
        self.enqueue(chain, Work::Import { events, key, answer }, count, bytes, runtime)?;
        Ok(receiver)
    }

    fn enqueue(
        self: &Arc<Writer>,
        chain: ChainId,
        work: Work,
        events: usize,
        bytes: usize,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), StoreError> {
        if self.node.queue.add(chain, Request { work, events, bytes, queued: Instant::now() })? {
            let work = Driver { writer: Arc::clone(self), chain, finished: false };
            runtime.spawn(async move { work.drive().await });
        }
        Ok(())
    }

    /// Refuses what comes from now on.
    pub(super) fn close(&self) {
        self.node.queue.close();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.node.queue.is_idle()
    }

    pub(super) fn stats(&self) -> Vec<LogStats> {
        let of = |mode: Mode| {
            let (queue_requests, queue_bytes) = self.node.queue.waiting(mode);
            LogStats {
                mode,
                append: of_mode(&self.appends, mode).view(),
                sync: of_mode(&self.node.commits, mode).view(),
                queue_requests,
                queue_bytes,
            }
        };
        Mode::ALL.map(of).to_vec()
    }

    /// See [`Queue::changed_heads`].
    pub(super) fn changed_heads(&self) -> HashMap<ChainId, Head> {
        self.node.queue.changed_heads()
    }

    /// See [`crate::Store::accept_loss`].
    pub(super) async fn accept_loss(&self, chain: ChainId, reason: &str) -> Result<Receipt, StoreError> {
        crate::loss::check_reason(reason)?;
        if self.node.queue.is_closing() {
            return Err(StoreError::Closing);
        }
        let id = Id::of_chain(chain);
        let lease = self.routes.lease(Side::Appends, id, self.node.options.queue_deadline).await?;
        let transaction = Transaction { node: &self.node, session: &lease.session, chain, id };
        let done =
            tokio::time::timeout(self.node.options.transaction_timeout, transaction.accept_loss(reason));
        let receipt = match done.await {
            Err(_) => return Err(StoreError::Unavailable("the database did not respond in time".into())),
            Ok(Err(Failed::Database(error))) => return Err(unavailable(&error)),
            Ok(Err(Failed::Store(error))) => return Err(error),
            Ok(Ok(receipt)) => receipt,
        };
        lease.give_back();
        self.announce().await;
        Ok(receipt)
    }

    /// Tells the other nodes of a note that was added or removed.
    async fn announce(&self) {
        match self.routes.own(Side::Appends).lease(self.node.options.queue_deadline).await {
            Ok(lease) => {
                loss::announce(&lease.session).await;
                lease.give_back();
            }
            Err(error) => loss::not_announced(&error),
        }
    }

    async fn write(
        &self,
        chain: ChainId,
        group: &mut Vec<Request>,
        contested: bool,
    ) -> Result<Vec<Outcome>, StoreError> {
        let deadline = self.node.options.queue_deadline;
        let _contested = match contested {
            true => {
                let permit = tokio::time::timeout(deadline, self.contested.acquire()).await;
                Some(permit.map_err(|_| StoreError::Deadline)?.map_err(|_| StoreError::Closing)?)
            }
            false => None,
        };
        let share = tokio::time::timeout(deadline, self.shares.acquire(chain.tenant_id)).await;
        let _share = share.map_err(|_| StoreError::Deadline)?;
        let id = Id::of_chain(chain);
        let lease = self.routes.lease(Side::Appends, id, deadline).await?;
        let transaction = Transaction { node: &self.node, session: &lease.session, chain, id };
        let done = tokio::time::timeout(self.node.options.transaction_timeout, transaction.run(group)).await;
        if !matches!(done, Ok(Ok(_))) {
            self.node.queue.set_unsure(chain, true);
        }
        let outcomes = match done {
            Err(_) => return Err(StoreError::Unavailable("the database did not respond in time".into())),
            Ok(Err(Failed::Database(error))) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                self.node.queue.set_contested(chain, true);
                return Err(StoreError::Deadline);
            }
            Ok(Err(Failed::Database(error))) => return Err(unavailable(&error)),
            Ok(Err(Failed::Store(error))) => return Err(error),
            Ok(Ok(outcomes)) => outcomes,
        };
        if contested {
            self.node.queue.set_contested(chain, false);
        }
        lease.give_back();
        Ok(outcomes)
    }
}

/// Works on one chain until nothing waits for it.
struct Driver {
    writer: Arc<Writer>,
    chain: ChainId,
    /// The queue was removed; if there is one by now, it has another driver.
    finished: bool,
}

impl Driver {
    async fn drive(mut self) {
        loop {
            let mut group = Vec::new();
            let contested = self.writer.node.queue.take(self.chain, &mut group);
            if group.is_empty() {
                break;
            }
            match self.writer.write(self.chain, &mut group, contested).await {
                Ok(outcomes) => {
                    for (request, outcome) in group.into_iter().zip(outcomes) {
                        let times = of_mode(&self.writer.appends, self.chain.mode);
                        times.observe_duration(request.queued.elapsed());
                        request.answer(outcome);
                    }
                }
                Err(error) => {
                    if self.writer.node.findings.take_unannounced() {
                        self.writer.announce().await;
                    }
                    for request in group {
                        request.answer(Outcome::Refused(error.clone()));
                    }
                }
            }
        }
        self.finished = true;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Left behind by a panic, or at the end of the runtime; nobody would work on it again.
        self.writer.node.queue.abandon(self.chain);
    }
}

/// What a request takes in memory, or why it cannot be stored.
fn request_bytes<'a>(events: impl Iterator<Item = &'a EventText>) -> Result<usize, StoreError> {
    const OVERHEAD: usize = 500;
    let (mut count, mut bytes) = (0, 0);
    for text in events {
        count += 1;
        bytes += text.as_str().len() + OVERHEAD;
        if !rows::storable(text) {
            return Err(StoreError::Refused("an event contains text that the database cannot store".into()));
        }
    }
    if !(1..=BATCH_EVENTS_MAX).contains(&count) {
        return Err(StoreError::Refused(format!(
            "a request must have 1 to {BATCH_EVENTS_MAX} events, not {count}"
        )));
    }
    Ok(bytes)
}
