//! `GET /v1/events/{log_id}`. Spec 4.4.

use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::event::{EVENT_BYTES_MAX, StoredEvent};
use sealog_core::id::{RequestId, Ulid};
use sealog_core::reject::Reject;
use sealog_store::StoreError;

use crate::api::list::{RENDERED_BYTES, render};
use crate::app::App;
use crate::respond::{Body, Failure, large_json};

/// Most that a read holds at a time: the event and its record, or the event and its JSON.
const HELD_BYTES_MAX: usize = 2 * (EVENT_BYTES_MAX + RENDERED_BYTES);

fn render_one(events: &[StoredEvent], out: &mut Vec<u8>) {
    events.iter().for_each(|event| event.put_json(out));
}

pub(crate) async fn get(
    app: &App,
    log_id: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    // Malformed, missing and another project's: one answer, by one path. An id that cannot exist is looked up
    // all the same, so that time tells nothing either.
    let log_id = Ulid::parse(log_id).unwrap_or(Ulid(0));
    let share = app.reads.take(caller.chain().tenant_id, HELD_BYTES_MAX).await;
    let share = share.map_err(|exhausted| Failure::read(&exhausted, request_id))?;
    let event = app
        .service
        .store
        .get(caller.chain(), log_id)
        .await
        .map_err(|error| Failure::read(&error, request_id))?;
    let event = event.ok_or(Reject::EventNotFound)?;
    let body = render(app, caller.chain(), vec![event], render_one).await.ok_or(StoreError::Closing);
    let body = body.map_err(|error| Failure::read(&error, request_id))?;
    Ok(large_json(StatusCode::OK, body, share))
}
