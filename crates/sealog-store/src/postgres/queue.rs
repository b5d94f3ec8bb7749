//! What waits to be appended on this node, by chain, and the last heads that it has acknowledged.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Mode, Ulid};
use tokio::sync::oneshot;

use super::hub::Feed;
use super::options::Options;
use crate::append::{Appended, IdempotencyKey, KeptKey, Reservation};
use crate::error::StoreError;

/// Events of one group. More would hold the chain's row for longer than it saves.
const GROUP_EVENTS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Queue {
    group_bytes_max: usize,
    queue_bytes_max: usize,
    queue_deadline: Duration,
    state: Mutex<State>,
    feed: Arc<Feed>,
}

#[derive(Debug, Default)]
struct State {
    /// Of a chain for as long as a driver works on it.
    waiting: HashMap<ChainId, VecDeque<Request>>,
    bytes: usize,
    /// Chains that could not be locked the last time.
    contested: HashSet<ChainId>,
    /// Chains whose next group looks before it seals: the last one has found that another node had moved the
    /// head, or its outcome is unknown.
    unsure: HashSet<ChainId>,
    closing: bool,
    /// The last heads that this node has acknowledged.
    acknowledged: HashMap<ChainId, Head>,
    /// Those of them that have changed since they were asked for.
    changed: HashMap<ChainId, Head>,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) events: usize,
    pub(super) bytes: usize,
    pub(super) queued: Instant,
}

#[derive(Debug)]
pub(super) enum Work {
    Append {
        drafts: Vec<Draft>,
        idempotency: Option<(Reservation, Ulid)>,
        answer: oneshot::Sender<Result<Appended, StoreError>>,
    },
    Import {
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
        answer: oneshot::Sender<Result<Head, StoreError>>,
    },
}

/// What became of one request of a group.
pub(super) enum Outcome {
    Appended(Appended),
    Imported(Head),
    Refused(StoreError),
}

impl Request {
    pub(super) fn answer(self, outcome: Outcome) {
        match (self.work, outcome) {
            (Work::Append { idempotency, answer, .. }, outcome) => {
                // The key is free before its owner hears of it.
                drop(idempotency);
                let _ = answer.send(match outcome {
                    Outcome::Appended(appended) => Ok(appended),
                    Outcome::Refused(error) => Err(error),
                    Outcome::Imported(_) => unreachable!("an append is not answered with an import"),
                });
            }
            (Work::Import { answer, .. }, outcome) => {
                let _ = answer.send(match outcome {
                    Outcome::Imported(head) => Ok(head),
                    Outcome::Refused(error) => Err(error),
                    Outcome::Appended(_) => unreachable!("an import is not answered with an append"),
                });
            }
        }
    }

    pub(super) fn key(&self) -> Option<&IdempotencyKey> {
        match &self.work {
            Work::Append { idempotency: Some((reservation, _)), .. } => Some(&reservation.key),
            _ => None,
        }
    }
}

impl Queue {
    pub(super) fn new(options: &Options, acknowledged: HashMap<ChainId, Head>, feed: Arc<Feed>) -> Queue {
        Queue {
            group_bytes_max: options.group_bytes_max,
            queue_bytes_max: options.queue_bytes_max,
            queue_deadline: options.queue_deadline,
            state: Mutex::new(State { acknowledged, ..State::default() }),
            feed,
        }
    }

    /// Adds a request. Whether the chain needs a driver: it had none.
    pub(super) fn add(&self, chain: ChainId, request: Request) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if state.closing {
            return Err(StoreError::Closing);
        }
        if state.bytes + request.bytes > self.queue_bytes_max {
            return Err(StoreError::QueueFull);
        }
        state.bytes += request.bytes;
        let idle = !state.waiting.contains_key(&chain);
        state.waiting.entry(chain).or_default().push_back(request);
        Ok(idle)
    }

    /// Forgets what waits for a chain that has lost its driver: whoever waits hears that no answer will come.
    pub(super) fn abandon(&self, chain: ChainId) {
        let mut state = self.lock();
        let left = state.waiting.remove(&chain).unwrap_or_default();
        state.bytes -= left.iter().map(|request| request.bytes).sum::<usize>();
        drop(state);
        drop(left);
    }

    /// Refuses what comes from now on.
    pub(super) fn close(&self) {
        self.lock().closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Requests that wait, and their bytes.
    pub(super) fn waiting(&self, mode: Mode) -> (u64, u64) {
        let state = self.lock();
        let of_mode = state.waiting.iter().filter(|(chain, _)| chain.mode == mode);
        let requests = of_mode.flat_map(|(_, requests)| requests);
        requests.fold((0, 0), |(count, bytes), request| (count + 1, bytes + request.bytes as u64))
    }

    /// The last heads that this node has acknowledged in chains that it has written to since the last time.
    pub(super) fn changed_heads(&self) -> HashMap<ChainId, Head> {
        std::mem::take(&mut self.lock().changed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what waits for a chain to a group, as far as it fits. If the group stays empty, the queue is
    /// removed. Whether the chain is contested.
    pub(super) fn take(&self, chain: ChainId, group: &mut Vec<Request>) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let of_group = |of: fn(&Request) -> usize| group.iter().map(of).sum::<usize>();
        let (mut events, mut bytes) = (of_group(|request| request.events), of_group(|request| request.bytes));
        let (bytes_before, mut late) = (bytes, Vec::new());
        let queue = state.waiting.get_mut(&chain).expect("a queue is removed by its driver only");
        while let Some(next) = queue.front() {
            let full = events + next.events > GROUP_EVENTS_MAX || bytes + next.bytes > self.group_bytes_max;
            if full && !group.is_empty() {
                break;
            }
            let request = queue.pop_front().expect("it was looked at");
            if now.duration_since(request.queued) >= self.queue_deadline {
                late.push(request);
                continue;
            }
            events += request.events;
            bytes += request.bytes;
            group.push(request);
        }
        if group.is_empty() {
            state.waiting.remove(&chain);
        }
        state.bytes -= bytes - bytes_before + late.iter().map(|request| request.bytes).sum::<usize>();
        let contested = state.contested.contains(&chain);
        drop(state);
        for request in late {
            request.answer(Outcome::Refused(StoreError::Deadline));
        }
        contested
    }

    pub(super) fn set_contested(&self, chain: ChainId, contested: bool) {
        put(&mut self.lock().contested, chain, contested);
    }

    pub(super) fn set_unsure(&self, chain: ChainId, unsure: bool) {
        put(&mut self.lock().unsure, chain, unsure);
    }

    pub(super) fn acknowledged(&self, chain: ChainId) -> Option<Head> {
        self.lock().acknowledged.get(&chain).copied()
    }

    /// The last head of a chain that this node has to itself, as far as it can tell.
    pub(super) fn own_head(&self, chain: ChainId) -> Option<Head> {
        let state = self.lock();
        state.acknowledged.get(&chain).copied().filter(|_| !state.unsure.contains(&chain))
    }

    pub(super) fn acknowledge(&self, chain: ChainId, head: Head) {
        let mut state = self.lock();
        // Ids rise in a chain whatever happens to it: an acceptance and an append that follows it may come
        // here in any order.
        if state.acknowledged.get(&chain).is_none_or(|known| known.log_id < head.log_id) {
            state.acknowledged.insert(chain, head);
            state.changed.insert(chain, head);
        }
        drop(state);
        // What other nodes append is found by asking; of its own a node knows at once.
        if self.feed.is_followed() {
            self.feed.registry().wake(std::iter::once(chain));
        }
    }
}

fn put(chains: &mut HashSet<ChainId>, chain: ChainId, is_one: bool) {
    if is_one {
        chains.insert(chain);
    } else {
        chains.remove(&chain);
    }
}
