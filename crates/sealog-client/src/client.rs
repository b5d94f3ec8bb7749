//! The client: every call of an application.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::catalog::Catalog;
use crate::context::{Fields, trace};
use crate::endpoint::{Endpoint, Request, Transport, new_key};
use crate::error::Error;
use crate::event::Event;
use crate::hooks::Hooks;
use crate::options::{BeforeSend, Options};
use crate::proofs::Proofs;
use crate::queue::Queue;
use crate::read::{self, Action, Events, Filter, StoredEvent, Verification};
use crate::receipt::Receipt;
use crate::receipts::{Audit, Receipts};
use crate::spool::Spool;
use crate::store::{Choice, Held, Limits, Memory, Store};

/// Logs, reads and verifies events. One client, and its clones, serve all tasks of a process; close it at the
/// end. It is made inside of a Tokio runtime and lives as long as that one.
///
/// ```no_run
/// # async fn run() -> Result<(), sealog_client::Error> {
/// use sealog_client::{Client, Event, Options};
/// let client = Client::new(Options::default())?;
/// let receipt = client.log(Event::new("user.login").actor_id("u-17")).await?;
/// println!("{} {:?} {:?}", receipt.log_id, receipt.chain_seq, receipt.hash);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    endpoint: Arc<Endpoint>,
    hooks: Arc<Hooks>,
    queue: Queue,
    receipts: Arc<Receipts>,
    catalog: Option<Catalog>,
    before_send: Option<BeforeSend>,
    has_test_key: bool,
    vkey: Option<String>,
    trace_metadata: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Checks the options. With a `spool_dir` it also begins to send what earlier processes left.
    pub fn new(options: Options) -> Result<Client, Error> {
        options.check()?;
        let transport = Transport::connect(&options.url, options.ca_file.as_deref())?;
        Client::over(options, transport)
    }

    pub(crate) fn over(mut options: Options, transport: Transport) -> Result<Client, Error> {
        options.check()?;
        let hooks = Arc::new(Hooks {
            on_receipt: options.on_receipt.take(),
            on_error: options.on_error.take(),
            on_warning: options.on_warning.take(),
        });
        let endpoint = Arc::new(Endpoint::new(&options, transport, Arc::clone(&hooks))?);
        let receipts = Arc::new(Receipts::open(options.receipts.as_deref())?);
        let limits = Limits::from(&options);
        let store: Box<dyn Store> = match &options.spool_dir {
            None => Box::new(Memory::new(limits)),
            Some(folder) => Box::new(Spool::open(folder, limits, options.spool_sync)?),
        };
        let queue =
            Queue::open(&options, store, Arc::clone(&endpoint), Arc::clone(&hooks), Arc::clone(&receipts))?;
        Ok(Client(Arc::new(Inner {
            endpoint,
            hooks,
            queue,
            receipts,
            catalog: options.check_actions.then(Catalog::default),
            before_send: options.before_send,
            has_test_key: options.api_key.starts_with("at_test_"),
            vkey: options.vkey,
            trace_metadata: options.trace_metadata,
        })))
    }

    /// Logs one event. Returns when the event is on stable storage, or with an error. If the call is dropped
    /// before, the event may still be stored.
    pub async fn log(&self, event: impl Borrow<Event>) -> Result<Receipt, Error> {
        self.log_as(new_key(), event).await
    }

    /// The same under an idempotency key of the application's own: the same key and event store it once,
    /// within 24 hours.
    pub async fn log_as(&self, key: impl Into<String>, event: impl Borrow<Event>) -> Result<Receipt, Error> {
        let key = key.into();
        if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::option("key", "must have 1 to 255 characters from ! to ~"));
        }
        let (text, traceparent) = self.prepare(event.borrow()).await?;
        let mut request = Request::one(text.into(), key);
        request.traceparent = traceparent;
        let endpoint = &self.0.endpoint;
        let mut receipts = endpoint.send(&request, |answer| endpoint.receipts(answer, 1)).await?;
        let receipt = receipts.pop().expect("one was asked for");
        self.0.receipts.add(&receipt);
        Ok(receipt)
    }

    /// Queues one event and returns at once; with a spool, when the event is in a file. It ends once, in
    /// `on_receipt` or in `on_error`. If there is no room it waits, or fails, as `on_full` says. If the call
    /// is dropped, the event may be queued.
    pub async fn enqueue(&self, event: impl Borrow<Event>) -> Result<(), Error> {
        let (text, _) = self.prepare(event.borrow()).await?;
        self.0.queue.enqueue(text).await
    }

    /// Waits until the events that are queued now have ended, at most so long. Returns how many have not.
    pub async fn flush(&self, within: Duration) -> u64 {
        self.0.queue.flush(within).await
    }

    /// Sends what is queued, for at most so long, and ends the client. Returns how many events were not sent:
    /// they are in the spool, or were reported to `on_error`.
    pub async fn close(&self, within: Duration) -> u64 {
        let pending = self.0.queue.close(within).await;
        self.0.receipts.close();
        pending
    }

    /// Closes the client at SIGTERM or SIGINT, for at most so long, and then ends the process with the exit
    /// code that a shell gives to this signal: 143 or 130. Of several clients, the last one ends it. For
    /// programs that do not handle signals themselves; others call [`Client::close`]. It is called inside of
    /// a Tokio runtime; after this runtime has ended, the process ignores the signals.
    #[cfg(unix)]
    pub fn close_on_signal(&self, within: Duration) -> Result<(), Error> {
        let client = self.clone();
        crate::signals::at_signal(async move {
            let pending = client.close(within).await;
            if pending > 0 {
                let message = format!("a signal ended the process before {pending} events were sent");
                client.0.hooks.warn("client/closed", &message);
            }
        })
    }

    /// The held batches.
    pub fn held(&self) -> Vec<Held> {
        self.0.queue.held()
    }

    /// Sends or drops a held batch.
    pub fn release(&self, id: &str, choice: Choice) -> Result<(), Error> {
        self.0.queue.release(id, choice)
    }

    /// Reads back every event for which there is a receipt, recomputes its hash and compares. Where the
    /// server publishes proofs, asks for that of each event and checks it.
    pub async fn audit(&self) -> Result<Audit, Error> {
        let inner = &self.0;
        let proofs = Proofs::new(inner.vkey.as_deref())?;
        // Test chains have no trees.
        let proofs = (!inner.has_test_key).then_some(proofs);
        inner.receipts.audit(&inner.endpoint, proofs, &inner.hooks).await
    }

    /// All events that match, newest first.
    pub fn events(&self, filter: Filter) -> Events {
        Events::new(Arc::clone(&self.0.endpoint), filter)
    }

    /// One event. A missing one is `NotFound`.
    pub async fn get(&self, log_id: &str) -> Result<StoredEvent, Error> {
        read::get(&self.0.endpoint, log_id).await
    }

    /// The catalog.
    pub async fn actions(&self) -> Result<Vec<Action>, Error> {
        read::actions(&self.0.endpoint).await
    }

    /// Lets the service verify its chain, window by window, up to the first break. `None` is the begin or the
    /// end.
    pub async fn verify(&self, from_seq: Option<u64>, to_seq: Option<u64>) -> Result<Verification, Error> {
        read::verify(&self.0.endpoint, from_seq, to_seq).await
    }

    /// The text to send and the traceparent to send with it.
    async fn prepare(&self, given: &Event) -> Result<(Vec<u8>, Option<String>), Error> {
        let inner = &self.0;
        if inner.queue.is_closing() {
            return Err(Error::closed());
        }
        let mut event = Cow::Borrowed(given);
        let mut traceparent = None;
        if let Some(fields) = Fields::current() {
            event.to_mut().fill(&fields.event);
            traceparent = fields.traceparent.filter(|traceparent| trace(traceparent).is_some());
            if let Some((trace_id, span_id)) = traceparent.as_deref().and_then(trace)
                && inner.trace_metadata
            {
                let known = Event::default().with("trace_id", trace_id).with("span_id", span_id);
                event.to_mut().fill(&known);
            }
        }
        if let Some(before_send) = &inner.before_send {
            event = Cow::Owned(call(before_send, event.into_owned())?);
        }
        if inner.has_test_key && event.actor_id.as_deref().is_some_and(is_address) {
            let message = "actor_id looks like an e-mail address; send an internal id, or pseudonymize it";
            inner.hooks.warn("client/personal_data", message);
        }
        let text = event.encode()?;
        if let Some(catalog) = &inner.catalog {
            catalog.check(&inner.endpoint, &event).await?;
        }
        Ok((text, traceparent))
    }
}

fn call(before_send: &BeforeSend, event: Event) -> Result<Event, Error> {
    let problem = |what: &str| Error::event("before_send", &format!("{what}; the event was not logged"));
    match catch_unwind(AssertUnwindSafe(|| before_send(event))) {
        Ok(Ok(event)) => Ok(event),
        Ok(Err(error)) => Err(problem(&format!("failed with {:?}", error.to_string()))),
        Err(_) => Err(problem("panicked")),
    }
}

/// `[^@\s]+@[^@\s]+\.[^@\s]+`, all of it.
fn is_address(text: &str) -> bool {
    let Some((name, host)) = text.split_once('@') else { return false };
    let has_dot = host.char_indices().any(|(at, c)| c == '.' && at > 0 && at + 1 < host.len());
    !name.is_empty() && has_dot && !host.contains('@') && !text.contains(char::is_whitespace)
}

/// A stable pseudonym of a value, the same in every client library. Without the key it cannot be guessed.
///
/// # Panics
///
/// If the key is empty: the pseudonym would protect nothing.
pub fn pseudonymize(key: &str, value: &str) -> String {
    assert!(!key.is_empty(), "the key of a pseudonym must not be empty");
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("a key of any length");
    mac.update(value.as_bytes());
    let code = mac.finalize().into_bytes();
    let digits: String = code.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("ps_{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_name_a_host_and_a_dot_in_it() {
        for address in ["ann@example.org", "a@b.c", "a@.b.c", "é@x.y"] {
            assert!(is_address(address), "{address}");
        }
        for other in ["u-17", "@example.org", "ann@", "ann@org", "ann@.org", "ann@org.", "a@b@c.d", "a b@c.d"]
        {
            assert!(!is_address(other), "{other}");
        }
    }

    #[test]
    #[should_panic(expected = "must not be empty")]
    fn a_pseudonym_without_a_key_is_none() {
        pseudonymize("", "ann@example.org");
    }
}
