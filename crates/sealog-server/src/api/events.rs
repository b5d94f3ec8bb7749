//! `POST /v1/events` and `POST /v1/events/batch`. Spec 4.1, 4.2.

use std::net::IpAddr;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, Response, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::reject::{FieldProblem, Reject};

use crate::App;
use crate::auth;
use crate::ingest::{self, Endpoint, Ingested};
use crate::respond::{Body, Failure, json};

pub(crate) async fn post(
    app: &App,
    request: Request<Incoming>,
    endpoint: Endpoint,
    client: IpAddr,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = auth::authenticate(app, request.headers(), request_id).await.map_err(Failure::closing)?;
    caller.may_ingest(app.world.now_ms()).map_err(|reject| Failure::from(reject).closing())?;
    let key_hash = idempotency_key(request.headers()).map_err(|reject| Failure::from(reject).closing())?;
    let whose = Some(caller.chain.tenant_id);
    let (body, _share) =
        crate::body::read(app, request, endpoint.body_bytes_max(), whose, request_id).await?;
    let ingested = ingest::ingest(app, &caller, endpoint, key_hash, &body, client, request_id).await?;
    if ingested.replayed {
        app.metrics.replayed();
    }
    Ok(accepted(endpoint, &ingested))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<sealog_core::id::Hash>, Reject> {
    let mut values = headers.get_all("idempotency-key").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => ingest::parse_key(value.as_bytes()).map(Some),
        (Some(_), Some(_)) => {
            Err(Reject::InvalidField { field: "Idempotency-Key", problem: FieldProblem::NotAKey })
        }
    }
}

fn accepted(endpoint: Endpoint, ingested: &Ingested) -> Response<Body> {
    let receipt = &ingested.receipt;
    let (ids, seqs) = match endpoint {
        Endpoint::Single => (format!("\"log_id\":\"{}\"", receipt.log_ids[0]), receipt.first_seq.to_string()),
        Endpoint::Batch => {
            let ids: Vec<String> = receipt.log_ids.iter().map(|id| format!("\"{id}\"")).collect();
            (
                format!("\"log_ids\":[{}]", ids.join(",")),
                format!("{}-{}", receipt.first_seq, receipt.last_seq()),
            )
        }
    };
    let mut response =
        json(StatusCode::ACCEPTED, format!("{{{ids},\"request_id\":\"{}\"}}", ingested.request_id));
    let headers = response.headers_mut();
    let text = |text: String| HeaderValue::try_from(text).expect("digits, hex digits and a hyphen");
    headers.insert("sealog-chain-seq", text(seqs));
    headers.insert("sealog-hash", text(receipt.hash.to_string()));
    if ingested.replayed {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}
