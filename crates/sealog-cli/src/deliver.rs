//! Batches on their way to the service.

use std::borrow::Cow;
use std::pin::{Pin, pin};

use bytes::Bytes;
use sealog_client::http::{Client, ClientError};
use serde::Deserialize;

use super::exit::{self, Exit};
use super::spool::Batch;

/// The API's largest batch.
pub(super) const EVENTS_MAX: usize = 100;
/// Less than the API's 2 MB, for what stands around the events.
pub(super) const BYTES_MAX: usize = 1_900_000;

/// The key belongs to another event of the batch.
const CONFLICT: &str = "event/idempotency_key_conflict";

/// What became of a batch, by the places of its events in it.
#[derive(Default)]
pub(super) struct Delivered {
    pub sealed: Vec<(usize, String)>,
    pub refused: Vec<(usize, ClientError)>,
    /// Why not everything was heard. What was sealed is known by its keys, and the whole batch may be sent
    /// again.
    pub unheard: Option<ClientError>,
    /// Events of which it is not known whether the service has them, in order: where they were, and with the
    /// keys that they were sent with. Whoever sends these again, and not the whole batch, gets no event
    /// twice, even if the service takes by then what it has refused now.
    pub left: Vec<(Vec<usize>, Batch)>,
    /// Of those that are sealed, how many were before this.
    pub replayed: usize,
}

#[derive(Deserialize)]
struct Accepted {
    log_ids: Vec<String>,
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

/// One event can spoil a batch. The service says which: the others are sent again without it, with a key that
/// is made of the batch's and of the places that are missing, so that this, too, may be repeated. Ends when
/// `over` does, whatever is still left then.
pub(super) async fn deliver_until(
    client: &Client,
    batch: &Batch,
    over: impl Future<Output = ()>,
) -> Delivered {
    let mut over = pin!(over);
    let mut delivered = Delivered::default();
    let mut places: Vec<usize> = (0..batch.events.len()).collect();
    let (mut rest, mut missing) = (Cow::Borrowed(batch), 0_u128);
    loop {
        let mut error = match post_until(client, &rest, over.as_mut()).await {
            None => {
                delivered.left.push((places, rest.into_owned()));
                return delivered;
            }
            Some(Ok((log_ids, is_replayed))) => {
                delivered.replayed += if is_replayed { places.len() } else { 0 };
                delivered.sealed.extend(places.into_iter().zip(log_ids));
                return delivered;
            }
            Some(Err(error)) if exit::of(&error) != Exit::Invalid => {
                delivered.unheard = Some(error);
                delivered.left.push((places, rest.into_owned()));
                return delivered;
            }
            Some(Err(error)) => error,
        };
        let spoiling = take_place(&mut error).filter(|at| *at < places.len());
        let at = match spoiling {
            Some(at) => at,
            None if places.len() == 1 => 0,
            // Nobody says which it is, such as of a body that is too large.
            None => {
                one_by_one(client, &rest, &places, over.as_mut(), &mut delivered).await;
                return delivered;
            }
        };
        let place = places.remove(at);
        delivered.refused.push((place, error));
        if places.is_empty() {
            return delivered;
        }
        missing |= u32::try_from(place).ok().and_then(|place| 1_u128.checked_shl(place)).unwrap_or(0);
        let rest = rest.to_mut();
        rest.events.remove(at);
        rest.idempotency_key = format!("{}-x{missing:x}", batch.idempotency_key);
    }
}

async fn one_by_one(
    client: &Client,
    rest: &Batch,
    places: &[usize],
    mut over: Pin<&mut impl Future<Output = ()>>,
    delivered: &mut Delivered,
) {
    let single = |at: usize| Batch {
        idempotency_key: format!("{}-{at}", rest.idempotency_key),
        events: vec![rest.events[at].clone()],
    };
    for (at, place) in places.iter().enumerate() {
        match post_until(client, &single(at), over.as_mut()).await {
            Some(Ok((log_ids, is_replayed))) => {
                delivered.sealed.extend(log_ids.into_iter().map(|log_id| (*place, log_id)));
                delivered.replayed += usize::from(is_replayed);
            }
            Some(Err(mut error)) if exit::of(&error) == Exit::Invalid => {
                take_place(&mut error);
                delivered.refused.push((*place, error));
            }
            unheard => {
                delivered.unheard = unheard.and_then(Result::err);
                delivered.left.extend((at..places.len()).map(|at| (vec![places[at]], single(at))));
                return;
            }
        }
    }
}

/// Takes `event[N]: ` off the message, and gives that place in the request: people are told the line.
fn take_place(error: &mut ClientError) -> Option<usize> {
    let ClientError::Refused(problem) = error else { return None };
    let (place, message) = problem.message.strip_prefix("event[")?.split_once("]: ")?;
    let (place, message) = (place.parse().ok()?, message.to_owned());
    problem.message = message;
    Some(place)
}

/// Nothing if it was over before there was an answer.
async fn post_until(
    client: &Client,
    batch: &Batch,
    over: Pin<&mut impl Future<Output = ()>>,
) -> Option<Result<(Vec<String>, bool), ClientError>> {
    tokio::select! {
        biased;
        posted = post(client, batch) => Some(posted),
        () = over => None,
    }
}

/// The ids, and whether the service had the batch already.
async fn post(client: &Client, batch: &Batch) -> Result<(Vec<String>, bool), ClientError> {
    let length: usize = batch.events.iter().map(|event| event.get().len() + 1).sum();
    let mut body = Vec::with_capacity(length + 16);
    body.extend_from_slice(b"{\"events\":[");
    for (at, event) in batch.events.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event.get().as_bytes());
    }
    body.extend_from_slice(b"]}");
    let answer = client.post("/v1/events/batch", Bytes::from(body), &batch.idempotency_key).await?;
    let Accepted { log_ids } = answer.json()?;
    if log_ids.len() != batch.events.len() {
        let why = format!("{} log_ids for {} events", log_ids.len(), batch.events.len());
        return Err(ClientError::Foreign { status: answer.status, why });
    }
    Ok((log_ids, answer.headers.contains_key("idempotency-replayed")))
}
