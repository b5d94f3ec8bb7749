//! `GET /v1/events/{log_id}`. Spec 4.4.

use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::{RequestId, Ulid};
use sealog_core::reject::Reject;

use crate::App;
use crate::auth;
use crate::respond::{Body, Failure, large_json};

/// An event is smaller than the largest body.
const EVENT_BYTES_MAX: usize = 2 << 20;

pub(crate) async fn get(
    app: &App,
    log_id: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = auth::authenticate(app, headers, request_id).await?;
    // Malformed, missing and another project's: one answer, by one path. An id that cannot exist is looked up all the same, so that time tells nothing either.
    let log_id = Ulid::parse(log_id).unwrap_or(Ulid(0));
    let share = app.reads.take(caller.chain.tenant_id, EVENT_BYTES_MAX).await;
    let share = share.map_err(|exhausted| Failure::read(&exhausted, request_id))?;
    let event =
        app.store.get(caller.chain, log_id).await.map_err(|error| Failure::read(&error, request_id))?;
    let event = event.ok_or(Reject::EventNotFound)?;
    let mut body = Vec::with_capacity(512 + event.text.as_str().len());
    event.put_json(&mut body);
    Ok(large_json(StatusCode::OK, body, share))
}
