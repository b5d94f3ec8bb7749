//! `GET /v1/events/{log_id}`. Spec 4.4.

use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::{RequestId, Ulid};
use sealog_core::reject::Reject;

use crate::App;
use crate::auth;
use crate::respond::{Body, Failure, json};

pub(crate) async fn get(
    app: &App,
    log_id: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = auth::authenticate(app, headers, request_id).await?;
    // Malformed, missing and another project's: one answer, by one path. An id that cannot exist is looked up all the same, so that time tells nothing either.
    let log_id = Ulid::parse(log_id).unwrap_or(Ulid(0));
    let event =
        app.store.get(caller.chain, log_id).await.map_err(|error| Failure::read(&error, request_id))?;
    let event = event.ok_or(Reject::EventNotFound)?;
    let mut body = Vec::with_capacity(512 + event.text.as_str().len());
    event.put_json(&mut body);
    Ok(json(StatusCode::OK, body))
}
