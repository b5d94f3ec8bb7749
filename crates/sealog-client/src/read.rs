//! Reading back: pages of events, one event, the catalog, and the service's own verification.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sealog_core::audit::parse_entry;
use sealog_core::canonical::Preimage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::endpoint::{Endpoint, Request, object};
use crate::error::Error;
use crate::event::Event;

/// Selects events. `None` selects all. Dates are YYYY-MM-DD, in UTC.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub action: Option<String>,
    pub actor_id: Option<String>,
    pub resource: Option<String>,
    pub date_from: Option<String>,
    pub date_to: Option<String>,
    /// [100, the most]
    pub page_size: Option<u32>,
}

/// An event as the service returns it, with its exact text, which is what its hash covers.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct StoredEvent {
    pub log_id: String,
    #[serde(default)]
    pub tenant_id: String,
    #[serde(default)]
    pub project_id: String,
    pub category: Option<String>,
    pub ip_address: Option<String>,
    pub country: Option<String>,
    pub city: Option<String>,
    #[serde(default)]
    pub timestamp: String,
    #[serde(default)]
    pub chain_seq: u64,
    #[serde(default)]
    pub prev_hash: String,
    #[serde(default)]
    pub hash: String,
    /// What was logged.
    #[serde(skip)]
    pub event: Event,
    #[serde(skip)]
    pub text: String,
}

impl StoredEvent {
    fn parse(text: &str) -> Result<StoredEvent, serde_json::Error> {
        let stored: StoredEvent = serde_json::from_str(text)?;
        Ok(StoredEvent { event: Event::decode(text.as_bytes()), text: text.to_owned(), ..stored })
    }

    /// Whether the text gives the hash. It does not cover the events before and behind it.
    pub fn is_sound(&self) -> bool {
        let Ok(Ok(event)) = parse_entry(&self.text) else { return false };
        let (sealed, text) = (&event.sealed, event.text.as_str().as_bytes());
        let computed = Preimage::default().hash(
            sealed.prev_hash,
            sealed.log_id,
            event.tenant_id,
            text,
            event.timestamp_ms,
        );
        computed == sealed.hash
    }
}

/// All events that match, newest first, page by page. After an error there are no more.
pub struct Events {
    endpoint: Arc<Endpoint>,
    query: Vec<(&'static str, String)>,
    page: VecDeque<StoredEvent>,
    cursor: Option<String>,
    is_over: bool,
}

impl Events {
    pub(crate) fn new(endpoint: Arc<Endpoint>, filter: Filter) -> Events {
        let Filter { action, actor_id, resource, date_from, date_to, page_size } = filter;
        let mut query = vec![("limit", page_size.unwrap_or(100).to_string())];
        let filters = [
            ("action", action),
            ("actor_id", actor_id),
            ("resource", resource),
            ("date_from", date_from),
            ("date_to", date_to),
        ];
        query.extend(filters.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Events { endpoint, query, page: VecDeque::new(), cursor: None, is_over: false }
    }

    pub async fn next(&mut self) -> Option<Result<StoredEvent, Error>> {
        while self.page.is_empty() && !self.is_over {
            let mut query = self.query.clone();
            query.extend(self.cursor.clone().map(|cursor| ("cursor", cursor)));
            match self.endpoint.send(&Request::get("/v1/events", &query), page_of).await {
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
                Ok((events, cursor)) => {
                    self.page = events;
                    self.is_over = cursor.is_none();
                    self.cursor = cursor;
                }
            }
        }
        self.page.pop_front().map(Ok)
    }

    /// The same as a stream, for `StreamExt` and its like.
    pub fn stream(self) -> impl Stream<Item = Result<StoredEvent, Error>> + Send {
        unfold(self, |mut events| async move { events.next().await.map(|event| (event, events)) })
    }
}

/// A page, and the cursor of the next one; none at the end.
fn page_of(answer: &crate::http::wire::Answer) -> Result<(VecDeque<StoredEvent>, Option<String>), Error> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
        #[serde(default)]
        has_more: bool,
        next_cursor: Option<String>,
    }
    let page: Page<'_> = object(answer)?;
    let cursor = page.next_cursor.filter(|cursor| page.has_more && !cursor.is_empty());
    if page.has_more && cursor.is_none() {
        return Err(Error::bad_answer(answer.status, "the answer is not a page of events"));
    }
    let mut events = VecDeque::with_capacity(page.events.len());
    for (index, text) in page.events.iter().enumerate() {
        let event = StoredEvent::parse(text.get()).map_err(|error| {
            let what = format!("event {index} of the page cannot be read ({error})");
            Error::bad_answer(answer.status, &what)
        })?;
        events.push_back(event);
    }
    Ok((events, cursor))
}

pub(crate) async fn get(endpoint: &Endpoint, log_id: &str) -> Result<StoredEvent, Error> {
    if log_id.is_empty() {
        return Err(Error::option("log_id", "is empty"));
    }
    let path = format!("/v1/events/{}", utf8_percent_encode(log_id, NON_ALPHANUMERIC));
    let read = |answer: &crate::http::wire::Answer| {
        let text = std::str::from_utf8(&answer.body).map_err(|error| error.to_string());
        let event = text.and_then(|text| StoredEvent::parse(text).map_err(|error| error.to_string()));
        event.map_err(|why| Error::bad_answer(answer.status, &format!("the answer is not an event ({why})")))
    };
    endpoint.send(&Request::get(&path, &[]), read).await
}

/// An entry of the catalog.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Action {
    pub action: String,
    #[serde(default)]
    pub category: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub required_fields: Vec<String>,
    #[serde(default)]
    pub optional_fields: Vec<String>,
    #[serde(default)]
    pub subscribed: bool,
}

pub(crate) async fn actions(endpoint: &Endpoint) -> Result<Vec<Action>, Error> {
    #[derive(Deserialize)]
    struct Catalog {
        actions: Vec<Action>,
    }
    let read = |answer: &_| object::<Catalog>(answer);
    Ok(endpoint.send(&Request::get("/v1/actions", &[]), read).await?.actions)
}

/// The service's own verdict on its chain. [`crate::verify_events`] does not rely on it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    pub valid: bool,
    pub checked: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    pub broken_at: Option<u64>,
    pub broken_hash: Option<String>,
}

/// The service cuts a window to so many events; a shorter one has reached the end.
const WINDOW: u64 = 1000;

pub(crate) async fn verify(
    endpoint: &Endpoint,
    from_seq: Option<u64>,
    to_seq: Option<u64>,
) -> Result<Verification, Error> {
    let mut start = from_seq.unwrap_or(1).max(1);
    let (mut checked, mut first_seq) = (0, None);
    loop {
        let mut query = vec![("from_seq", start.to_string())];
        query.extend(to_seq.map(|to_seq| ("to_seq", to_seq.to_string())));
        let read = |answer: &_| {
            let window: Verification = object(answer)?;
            if window.first_seq < start || window.last_seq + 1 < window.first_seq {
                return Err(Error::bad_answer(answer.status, "the answer is not a verification"));
            }
            Ok(window)
        };
        let window = endpoint.send(&Request::get("/v1/events/verify", &query), read).await?;
        checked += window.checked;
        let first = *first_seq.get_or_insert(window.first_seq);
        let is_short = window.last_seq + 1 - window.first_seq < WINDOW;
        if !window.valid || is_short || Some(window.last_seq) == to_seq {
            return Ok(Verification { checked, first_seq: first, ..window });
        }
        start = window.last_seq + 1;
    }
}
