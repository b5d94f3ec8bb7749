//! `POST /v1/events` and `POST /v1/events/batch`. Spec 4.1, 4.2.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::key::parse_idempotency_key;
use sealog_core::reject::{FieldProblem, Reject};
use sealog_service::ingest::{Client, Endpoint, Ingested};

use crate::app::App;
use crate::body::{self, RequestBody};
use crate::respond::{Body, Failure, json};

pub(crate) async fn post(
    app: &App,
    headers: &HeaderMap,
    body: &mut RequestBody,
    endpoint: Endpoint,
    client: Client,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    caller.may_ingest(request_id.received_ms())?;
    let key_hash = idempotency_key(headers)?;
    let whose = Some(caller.chain().tenant_id);
    let (body, _share) = body::read(app, headers, body, endpoint.body_bytes_max(), whose, request_id).await?;
    let ingested =
        app.service.ingest.ingest(&caller.producer, endpoint, key_hash, body, client, request_id).await;
    let ingested = ingested.map_err(|error| Failure::ingest(error, request_id))?;
    if ingested.replayed {
        app.metrics.replayed();
    } else {
        app.metrics.sealed(caller.chain().mode, ingested.receipt.log_ids.len());
    }
    Ok(accepted(endpoint, &ingested))
}

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<sealog_core::id::Hash>, Reject> {
    let mut values = headers.get_all("idempotency-key").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => parse_idempotency_key(value.as_bytes()).map(Some),
        (Some(_), Some(_)) => {
            Err(Reject::InvalidField { field: "Idempotency-Key", problem: FieldProblem::NotAKey })
        }
    }
}

const CHAIN_SEQ: HeaderName = HeaderName::from_static("sealog-chain-seq");
const HASH: HeaderName = HeaderName::from_static("sealog-hash");
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

fn accepted(endpoint: Endpoint, ingested: &Ingested) -> Response<Body> {
    let receipt = &ingested.receipt;
    let mut body = Vec::with_capacity(80 + 29 * receipt.log_ids.len());
    body.extend_from_slice(match endpoint {
        Endpoint::Single => b"{\"log_id\":\"",
        Endpoint::Batch => b"{\"log_ids\":[\"",
    });
    for (number, log_id) in receipt.log_ids.iter().enumerate() {
        if number > 0 {
            body.extend_from_slice(b"\",\"");
        }
        body.extend_from_slice(&log_id.to_text());
    }
    body.extend_from_slice(match endpoint {
        Endpoint::Single => b"\",\"request_id\":\"",
        Endpoint::Batch => b"\"],\"request_id\":\"",
    });
    body.extend_from_slice(&ingested.request_id.to_text());
    body.extend_from_slice(b"\"}");
    let seqs = match endpoint {
        Endpoint::Single => HeaderValue::from(receipt.first_seq),
        Endpoint::Batch => HeaderValue::try_from(format!("{}-{}", receipt.first_seq, receipt.last_seq()))
            .expect("digits and a hyphen"),
    };
    let mut response = json(StatusCode::ACCEPTED, body);
    let headers = response.headers_mut();
    headers.insert(CHAIN_SEQ, seqs);
    headers.insert(HASH, HeaderValue::from_bytes(&receipt.hash.to_text()).expect("hex digits"));
    if ingested.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
