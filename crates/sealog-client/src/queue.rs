//! Sends events in the background, one batch at a time. Every event ends once, as a receipt or as an error.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::endpoint::{Endpoint, Request};
use crate::error::{Error, Kind};
use crate::hooks::Hooks;
use crate::options::{Now, OnFull, Options};
use crate::receipt::Receipt;
use crate::receipts::Receipts;
use crate::store::{Batch, Choice, Full, Held, News, Place, Store};

/// Ends with its last client: what is queued is still sent.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    sender: AbortHandle,
}

struct Shared {
    endpoint: Arc<Endpoint>,
    hooks: Arc<Hooks>,
    receipts: Arc<Receipts>,
    now: Now,
    flush_interval: Duration,
    adopt_interval: Duration,
    hold_after_ms: u64,
    on_full: OnFull,
    is_spooled: bool,
    /// The store waits for the disk.
    is_synced: bool,
    state: Mutex<State>,
    /// Wakes the sender.
    work: Notify,
    /// Wakes calls that wait for the sender.
    changed: Notify,
}

struct State {
    store: Box<dyn Store>,
    news: News,
    /// When the oldest event came that no batch has.
    since: Option<Instant>,
    /// Calls that wait for events to be sent.
    urgent: usize,
    put: u64,
    ended: u64,
    /// Takes no more events.
    is_closing: bool,
    /// Sends and reports no more.
    is_closed: bool,
    in_flight: Vec<Option<Bytes>>,
    /// How many of them have a callback that has begun; they end in order.
    reported: usize,
    adopt_at: Instant,
}

impl State {
    fn pending(&self) -> u64 {
        self.put.saturating_sub(self.ended)
    }
}

/// What the sender does next.
enum Next {
    Send(Batch),
    Pause(Option<Duration>),
    Again,
    End,
}

enum Sent {
    Stored(Vec<Receipt>),
    Failed(Error),
    /// The state says why.
    Stopped,
}

impl Queue {
    pub fn open(
        options: &Options,
        store: Box<dyn Store>,
        endpoint: Arc<Endpoint>,
        hooks: Arc<Hooks>,
        receipts: Arc<Receipts>,
    ) -> Result<Queue, Error> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::option("options", "a client is made inside of a Tokio runtime"))?;
        let is_spooled = options.spool_dir.is_some();
        let state = State {
            store,
            news: News::default(),
            since: None,
            urgent: 0,
            put: 0,
            ended: 0,
            is_closing: false,
            is_closed: false,
            in_flight: Vec::new(),
            reported: 0,
            adopt_at: Instant::now() + options.adopt_interval,
        };
        let shared = Arc::new(Shared {
            endpoint,
            hooks,
            receipts,
            now: Arc::clone(&options.now),
            flush_interval: options.flush_interval,
            adopt_interval: options.adopt_interval,
            hold_after_ms: u64::try_from(options.hold_after.as_millis()).unwrap_or(u64::MAX),
            on_full: options.on_full,
            is_spooled,
            is_synced: is_spooled && options.spool_sync,
            state: Mutex::new(state),
            work: Notify::new(),
            changed: Notify::new(),
        });
        shared.locked(|state| state.store.adopt(&mut state.news));
        let sender = runtime.spawn(Arc::clone(&shared).run()).abort_handle();
        Ok(Queue { shared, sender })
    }

    pub fn is_closing(&self) -> bool {
        self.shared.locked(|state| state.is_closing)
    }

    pub async fn enqueue(&self, mut event: Vec<u8>) -> Result<(), Error> {
        let shared = &self.shared;
        loop {
            let size = event.len();
            let offered = if shared.is_synced {
                let shared = Arc::clone(shared);
                let put = move || shared.offer(event);
                tokio::task::spawn_blocking(put).await.expect("a store does not panic")?
            } else {
                shared.offer(event)?
            };
            let Some((full, back)) = offered else { return Ok(()) };
            if shared.on_full == OnFull::Error {
                return Err(full);
            }
            event = back;
            shared.wait(None, |state| state.is_closing || state.store.room(size).is_ok()).await;
        }
    }

    /// Waits until the events that are queued now have ended. Returns how many have not.
    pub async fn flush(&self, within: Duration) -> u64 {
        let target = self.shared.locked(|state| state.put);
        let is_over = |state: &mut State| state.ended >= target || state.is_closed;
        self.shared.wait(Instant::now().checked_add(within), is_over).await;
        self.shared.locked(|state| target.saturating_sub(state.ended))
    }

    /// Returns how many events were not sent.
    pub async fn close(&self, within: Duration) -> u64 {
        let shared = &self.shared;
        if shared.locked(|state| std::mem::replace(&mut state.is_closing, true) && state.is_closed) {
            return 0;
        }
        // A batch whose events have all ended is in the spool until it is settled there.
        let is_over =
            |state: &mut State| state.is_closed || (state.pending() == 0 && state.in_flight.is_empty());
        shared.wait(Instant::now().checked_add(within), is_over).await;
        let pending = shared.end("the client was closed before the event was sent");
        self.sender.abort();
        pending
    }

    pub fn held(&self) -> Vec<Held> {
        self.shared.locked(|state| if state.is_closed { Vec::new() } else { state.store.held() })
    }

    pub fn release(&self, id: &str, choice: Choice) -> Result<(), Error> {
        let now_ms = self.shared.now_ms();
        let dropped = self.shared.locked(|state| {
            if state.is_closing {
                return Err(Error::closed());
            }
            state.store.release(id, choice, now_ms, &mut state.news)
        })?;
        self.shared.work.notify_one();
        let error = Error::new(Kind::Closed, "client/dropped", "the application dropped the event");
        for event in dropped {
            self.shared.hooks.failed(&error, &event);
            self.shared.count_end();
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.locked(|state| state.is_closing = true);
        self.shared.work.notify_one();
    }
}

impl Shared {
    /// Works on the state. Warnings are reported when it is free again, because callbacks may use the client.
    fn locked<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().expect("no holder panics");
        let done = work(&mut state);
        let News { warnings, added, held } = std::mem::take(&mut state.news);
        state.put += added;
        state.ended += held;
        drop(state);
        if held > 0 {
            self.changed.notify_waiters();
        }
        for (code, message) in warnings {
            self.hooks.warn(&code, &message);
        }
        done
    }

    fn now_ms(&self) -> u64 {
        let since = (self.now)().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives the event back if there is no room now.
    fn offer(&self, event: Vec<u8>) -> Result<Option<(Error, Vec<u8>)>, Error> {
        let now_ms = if self.is_spooled { self.now_ms() } else { 0 };
        self.locked(|state| {
            if state.is_closing {
                return Err(Error::closed());
            }
            match state.store.room(event.len()) {
                Err(Full::Forever(error)) => return Err(error),
                Err(Full::Now(error)) => return Ok(Some((error, event))),
                Ok(()) => state.store.put(event, now_ms).map(drop)?,
            }
            state.put += 1;
            if state.since.is_none() {
                state.since = Some(Instant::now());
                self.work.notify_one();
            } else if state.store.is_batch_full() {
                self.work.notify_one();
            }
            Ok(None)
        })
    }

    /// Waits until the condition is true, at most until then. What is queued is sent meanwhile.
    async fn wait(&self, until: Option<Instant>, condition: impl Fn(&mut State) -> bool) {
        struct Urgent<'s>(&'s Shared);
        impl Drop for Urgent<'_> {
            fn drop(&mut self) {
                self.0.locked(|state| state.urgent -= 1);
            }
        }
        self.locked(|state| state.urgent += 1);
        let _urgent = Urgent(self);
        self.work.notify_one();
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on, so that no change between the look and the wait is missed.
            changed.as_mut().enable();
            if self.locked(&condition) {
                return;
            }
            match until {
                None => changed.await,
                Some(until) => match timeout_at(until, changed).await {
                    Ok(()) => (),
                    Err(_) => return,
                },
            }
        }
    }

    // --- The sender ---

    async fn run(self: Arc<Shared>) {
        /// A sender that does not come to its end (the runtime ends first) reports what it had.
        struct Cut<'s>(&'s Shared);
        impl Drop for Cut<'_> {
            fn drop(&mut self) {
                self.0.end("the runtime ended before the event was sent; close the client first");
            }
        }
        let cut = Cut(&self);
        loop {
            match self.on_disk(Shared::next).await {
                Next::Send(batch) => self.deliver(batch).await,
                Next::Pause(None) => self.work.notified().await,
                Next::Pause(Some(pause)) => {
                    let _ = timeout(pause, self.work.notified()).await;
                }
                Next::Again => (),
                Next::End => break,
            }
        }
        drop(cut);
    }

    /// Runs what may wait for a disk where it holds up no other task.
    async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> T {
        if !self.is_synced {
            return work(self);
        }
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&shared)).await.expect("a store does not panic")
    }

    fn next(&self) -> Next {
        let (now, now_ms) = (Instant::now(), self.now_ms());
        let next = self.locked(|state| {
            if state.is_closed {
                return Next::End;
            }
            if self.is_spooled && !state.is_closing && now >= state.adopt_at {
                state.adopt_at = now + self.adopt_interval;
                state.store.adopt(&mut state.news);
            }
            let store = &mut state.store;
            let is_urgent =
                state.urgent > 0 || state.is_closing || store.is_batch_full() || store.has_leftovers();
            let due = state.since.map(|since| since + self.flush_interval);
            let mut pause = due.map(|due| due.saturating_duration_since(now));
            if store.has_queued() && (is_urgent || pause.is_some_and(|pause| pause.is_zero())) {
                match store.take(now_ms, &mut state.news) {
                    Ok(taken) => {
                        // What is left has waited behind the batch: it is sent next.
                        let rest =
                            store.has_queued().then(|| now.checked_sub(self.flush_interval).unwrap_or(now));
                        state.since = rest;
                        let Some(batch) = taken else { return Next::Again };
                        state.in_flight.clone_from(&batch.events);
                        state.reported = 0;
                        return Next::Send(batch);
                    }
                    Err(error) => {
                        state.news.warn(&error.code, error.message.clone());
                        pause = Some(self.endpoint.policy.base);
                    }
                }
            } else if state.is_closing {
                return Next::End;
            }
            if self.is_spooled {
                pause = Some(pause.map_or(self.adopt_interval, |pause| pause.min(self.adopt_interval)));
            }
            Next::Pause(pause)
        });
        self.changed.notify_waiters();
        next
    }

    /// Sends a batch and ends each of its events, unless the queue was closed or the batch is held.
    async fn deliver(self: &Arc<Self>, mut batch: Batch) {
        let error = self.try_to_deliver(&mut batch).await;
        if error.is_some() {
            sleep(self.endpoint.policy.base).await;
        }
        let finish = move |shared: &Shared| {
            shared.locked(|state| {
                if let Some(error) = error {
                    state.news.warn(&error.code, error.message.clone());
                }
                state.in_flight.clear();
                if !state.is_closed {
                    state.store.finish(batch, &mut state.news);
                }
            });
        };
        self.on_disk(finish).await;
        self.changed.notify_waiters();
    }

    /// Returns an error of the store, after which the batch is tried again.
    async fn try_to_deliver(self: &Arc<Self>, batch: &mut Batch) -> Option<Error> {
        if !batch.is_split {
            let count = batch.events.len();
            let request = Request::batch(batch.events.iter().flatten(), batch.key.clone());
            let error = match self.send(&request, count, &mut batch.place).await {
                Sent::Stopped => return None,
                Sent::Stored(receipts) => {
                    for (index, receipt) in receipts.iter().enumerate() {
                        self.finish(batch, index, Ok(receipt));
                    }
                    return None;
                }
                Sent::Failed(error) => error,
            };
            if error.kind == Kind::IdempotencyConflict || !error.is_about_the_event() {
                for index in 0..count {
                    self.finish(batch, index, Err(&error));
                }
                return None;
            }
            // Durable before the first event is sent alone: a batch that the service accepts later would be
            // stored twice.
            let mut splitting = std::mem::take(batch);
            let split = move |shared: &Shared| {
                let done = shared.locked(|state| match state.is_closed {
                    true => Err(Error::closed()),
                    false => state.store.split(&mut splitting),
                });
                (splitting, done)
            };
            let (split, done) = self.on_disk(split).await;
            *batch = split;
            if let Err(error) = done {
                return Some(error);
            }
        }
        for index in 0..batch.events.len() {
            // None: ended before a restart.
            let Some(event) = batch.events[index].clone() else { continue };
            let request = Request::one(event, format!("{}-{index}", batch.key));
            match self.send(&request, 1, &mut batch.place).await {
                Sent::Stopped => return None,
                Sent::Stored(receipts) => self.finish(batch, index, Ok(&receipts[0])),
                Sent::Failed(error) => self.finish(batch, index, Err(&error)),
            }
        }
        None
    }

    /// With a spool there is no last attempt: only errors about the event end it.
    async fn send(&self, request: &Request, count: usize, place: &mut Place) -> Sent {
        let read = |answer: &_| self.endpoint.receipts(answer, count);
        if !self.is_spooled {
            return match self.endpoint.send(request, read).await {
                Ok(receipts) => Sent::Stored(receipts),
                Err(error) => Sent::Failed(error),
            };
        }
        let mut warned = HashSet::new();
        for attempt in 1.. {
            let error = match self.endpoint.attempt(request, read).await {
                Ok(receipts) => return Sent::Stored(receipts),
                Err(error) if error.is_about_the_event() => return Sent::Failed(error),
                Err(error) => error,
            };
            let now_ms = self.now_ms();
            let may_go_on = self.locked(|state| {
                let is_serious = !error.is_temporary() || attempt == self.endpoint.policy.max_attempts;
                if is_serious && warned.insert(error.code.clone()) {
                    let (message, pending) = (&error.message, state.pending());
                    let text =
                        format!("cannot send: {message}; {pending} events stay in the spool, trying again");
                    state.news.warn(&error.code, text);
                }
                if now_ms.abs_diff(place.ms) >= self.hold_after_ms {
                    place.held_for = Some("age");
                }
                !state.is_closed && place.held_for.is_none()
            });
            if !may_go_on {
                return Sent::Stopped;
            }
            sleep(self.endpoint.policy.delay(attempt, error.retry_after)).await;
        }
        Sent::Stopped
    }

    /// Ends one event of the batch in flight.
    fn finish(&self, batch: &mut Batch, index: usize, outcome: Result<&Receipt, &Error>) {
        let has_ended = batch.place.ended.get(index) == Some(&true);
        let may_report = self.locked(|state| {
            state.reported = index + 1;
            !state.is_closed && !has_ended
        });
        let Some(event) = batch.events[index].clone().filter(|_| may_report) else { return };
        match outcome {
            Ok(receipt) => {
                self.receipts.add(receipt);
                self.hooks.stored(receipt, &event);
            }
            Err(error) => self.hooks.failed(error, &event),
        }
        self.locked(|state| {
            if !state.is_closed {
                state.store.end(batch, index, &mut state.news);
            }
        });
        self.count_end();
    }

    fn count_end(&self) {
        self.locked(|state| state.ended += 1);
        self.changed.notify_waiters();
    }

    /// Closes, and returns how many events were not sent. Those that no spool keeps end as errors.
    fn end(&self, why: &str) -> u64 {
        let (pending, left) = self.locked(|state| {
            if std::mem::replace(&mut state.is_closed, true) {
                return (0, Vec::new());
            }
            state.is_closing = true;
            let mut left = Vec::new();
            if !self.is_spooled {
                left.extend(state.in_flight.drain(..).skip(state.reported).flatten());
            }
            left.extend(state.store.close());
            (state.pending(), left)
        });
        self.changed.notify_waiters();
        let error = Error::new(Kind::Closed, "client/closed", why);
        for event in left {
            self.hooks.failed(&error, &event);
        }
        pending
    }
}
