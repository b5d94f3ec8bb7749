//! `GET /v1/events/verify`. Spec 4.5.

use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::query::SeqRange;
use sealog_core::verify::Verdict;

use crate::app::App;
use crate::respond::{Body, Failure, json};

pub(crate) async fn get(
    app: &App,
    query: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    let range = SeqRange::parse(query)?;
    let share = app.reads.take(caller.chain().tenant_id, sealog_store::verify::HELD_BYTES_MAX).await;
    let _share = share.map_err(|exhausted| Failure::read(&exhausted, request_id))?;
    let verdict = sealog_store::verify::window(&*app.service.store, caller.chain(), range).await;
    let verdict = verdict.map_err(|error| Failure::read(&error, request_id))?;
    app.metrics.verified(&verdict);
    if let Some(broken) = verdict.broken {
        tracing::error!(%request_id, chain = %caller.chain(), at = broken.at, reason = broken.reason.as_str(), "a chain is broken");
    }
    Ok(json(StatusCode::OK, body(&verdict)))
}

/// Spec 2.6.
fn body(verdict: &Verdict) -> String {
    let Verdict { checked, first_seq, last_seq, broken } = verdict;
    let broken = broken.map_or(String::new(), |broken| {
        format!(",\"broken_at\":{},\"broken_hash\":\"{}\"", broken.at, broken.hash)
    });
    let valid = verdict.valid();
    format!(
        "{{\"valid\":{valid},\"checked\":{checked},\"first_seq\":{first_seq},\"last_seq\":{last_seq}{broken}}}"
    )
}
