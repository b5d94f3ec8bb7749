//! Batches on their way to the service.

use bytes::Bytes;
use sealog_client::{Client, ClientError};
use serde::Deserialize;

use super::exit::{self, Exit};
use super::spool::Batch;

/// The API's largest batch.
pub(super) const EVENTS_MAX: usize = 100;
/// Less than the API's 2 MB, for what stands around the events.
pub(super) const BYTES_MAX: usize = 1_900_000;

/// What became of a batch, by the places of its events in it.
#[derive(Default)]
pub(super) struct Delivered {
    pub sealed: Vec<(usize, String)>,
    pub refused: Vec<(usize, ClientError)>,
    /// Why not everything was heard. What was sealed is known by its keys, and the whole batch may be sent again.
    pub unheard: Option<ClientError>,
    /// Of those that are sealed, how many were before this.
    pub replayed: usize,
}

#[derive(Deserialize)]
struct Accepted {
    log_ids: Vec<String>,
}

/// One event can spoil a batch: then the others are sent without it, with keys that come from the batch's, so that this, too, may be repeated.
pub(super) async fn deliver(client: &Client, batch: &Batch) -> Delivered {
    let mut delivered = Delivered::default();
    match post(client, batch).await {
        Ok((log_ids, is_replayed)) => {
            delivered.sealed = log_ids.into_iter().enumerate().collect();
            delivered.replayed = if is_replayed { delivered.sealed.len() } else { 0 };
        }
        Err(error) if exit::of(&error) != Exit::Invalid => delivered.unheard = Some(error),
        Err(error) if batch.events.len() == 1 => delivered.refused.push((0, error)),
        Err(_) => {
            for (at, event) in batch.events.iter().enumerate() {
                let idempotency_key = format!("{}-{at}", batch.idempotency_key);
                let single = Batch { idempotency_key, events: vec![event.clone()] };
                match post(client, &single).await {
                    Ok((log_ids, is_replayed)) => {
                        delivered.sealed.extend(log_ids.into_iter().map(|log_id| (at, log_id)));
                        delivered.replayed += usize::from(is_replayed);
                    }
                    Err(error) if exit::of(&error) == Exit::Invalid => delivered.refused.push((at, error)),
                    Err(error) => {
                        delivered.unheard = Some(error);
                        break;
                    }
                }
            }
        }
    }
    delivered
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
