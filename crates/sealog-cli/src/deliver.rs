//! Batches on their way to the service.

use bytes::Bytes;
use sealog_client::http::{Client, ClientError};
use sealog_client::outbox::{Outbox, Post, batch_body};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::exit::{self, Exit};

/// The API's largest batch.
pub(super) const EVENTS_MAX: usize = Outbox::BATCH_EVENTS_MAX;
/// Less than the API's 2 MB, for what stands around the events.
pub(super) const BYTES_MAX: usize = 1_900_000;

/// The key belongs to another event of the batch.
const CONFLICT: &str = "event/idempotency_key_conflict";

/// Events of a file that are sent under one key.
pub(super) struct Batch {
    pub idempotency_key: String,
    pub events: Vec<Box<RawValue>>,
}

/// What became of a batch, by the places of its events in it.
#[derive(Default)]
pub(super) struct Delivered {
    pub sealed: Vec<(usize, String)>,
    pub refused: Vec<(usize, ClientError)>,
    /// Why not everything was heard. What was sealed is known by its keys, and the whole batch may be sent
    /// again.
    pub unheard: Option<ClientError>,
    /// Of those that are sealed, how many were before this.
    pub replayed: usize,
}

#[derive(Deserialize)]
struct Accepted {
    #[serde(default)]
    log_ids: Vec<String>,
    /// Of one event.
    log_id: Option<String>,
}

/// For whoever makes the same batch with the same key again, perhaps when the service takes what it has
/// refused before, such as an action that was registered meanwhile.
///
/// One event can spoil a batch, and the others are sent one by one then. The first that is taken gets the key
/// of the batch: it can never be taken whole afterwards, and the events that were are found again by their
/// keys.
pub(super) async fn deliver_again(client: &Client, batch: &Batch) -> Delivered {
    let mut delivered = Delivered::default();
    match post(client, batch).await {
        Ok((log_ids, is_replayed)) => {
            delivered.sealed = log_ids.into_iter().enumerate().collect();
            delivered.replayed = if is_replayed { delivered.sealed.len() } else { 0 };
        }
        Err(error) if exit::of(&error) != Exit::Invalid => delivered.unheard = Some(error),
        Err(mut error) if batch.events.len() == 1 => {
            take_place(&mut error);
            delivered.refused.push((0, error));
        }
        Err(_) => each(client, batch, &mut delivered).await,
    }
    delivered
}

async fn each(client: &Client, batch: &Batch, delivered: &mut Delivered) {
    let key = &batch.idempotency_key;
    let mut is_key_found = false;
    for (at, event) in batch.events.iter().enumerate() {
        let single = |idempotency_key| Batch { idempotency_key, events: vec![event.clone()] };
        let with_key = if is_key_found { None } else { Some(post(client, &single(key.clone())).await) };
        let posted = match with_key {
            Some(Err(ClientError::Refused(problem))) if problem.code == CONFLICT => None,
            posted => posted,
        };
        is_key_found |= matches!(posted, Some(Ok(_)));
        let posted = match posted {
            Some(posted) => posted,
            None => post(client, &single(format!("{key}-{at}"))).await,
        };
        match posted {
            Ok((log_ids, is_replayed)) => {
                delivered.sealed.extend(log_ids.into_iter().map(|log_id| (at, log_id)));
                delivered.replayed += usize::from(is_replayed);
            }
            Err(mut error) if exit::of(&error) == Exit::Invalid => {
                take_place(&mut error);
                delivered.refused.push((at, error));
            }
            Err(error) => {
                delivered.unheard = Some(error);
                return;
            }
        }
    }
}

/// Takes `event[N]: ` off the message, and gives that place in the request: people are told the line.
pub(super) fn take_place(error: &mut ClientError) -> Option<usize> {
    let ClientError::Refused(problem) = error else { return None };
    let (place, message) = problem.message.strip_prefix("event[")?.split_once("]: ")?;
    let (place, message) = (place.parse().ok()?, message.to_owned());
    problem.message = message;
    Some(place)
}

/// None if it was over before there was an answer.
pub(super) async fn post_until(
    client: &Client,
    post: Post,
    over: impl Future<Output = ()>,
) -> Option<Result<(Vec<String>, bool), ClientError>> {
    tokio::select! {
        biased;
        posted = send(client, &post.path, post.body, &post.key, post.indexes.len()) => Some(posted),
        () = over => None,
    }
}

async fn post(client: &Client, batch: &Batch) -> Result<(Vec<String>, bool), ClientError> {
    let body = batch_body(batch.events.iter().map(|event| event.get().as_bytes()));
    send(client, "/v1/events/batch", body, &batch.idempotency_key, batch.events.len()).await
}

/// The ids, and whether the service had the events already.
async fn send(
    client: &Client,
    path: &str,
    body: Bytes,
    key: &str,
    count: usize,
) -> Result<(Vec<String>, bool), ClientError> {
    let answer = client.post(path, body, key).await?;
    let Accepted { mut log_ids, log_id } = answer.json()?;
    log_ids.extend(log_id);
    if log_ids.len() != count {
        let why = format!("{} log_ids for {count} events", log_ids.len());
        return Err(ClientError::Foreign { status: answer.status, why });
    }
    Ok((log_ids, answer.headers.contains_key("idempotency-replayed")))
}
