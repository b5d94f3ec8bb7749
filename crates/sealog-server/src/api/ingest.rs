//! `POST /ingest/json`, `/ingest/cloudevents` and `/ingest/otlp/v1/logs`: adapters for shippers. Each item is
//! taken or refused by itself, and the answer says which.

use axum::body::Body as Lent;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::reject::{Code, Reject};
use sealog_formats::input::{Adapter, cloudevent_attributes};
use sealog_service::ingest::adapters::{ERRORS_MAX, Fate, Stopped, Taken};
use sealog_service::ingest::{Client, Endpoint};
use serde_json::{Map, Value, json};

use super::events::{REPLAYED, idempotency_key};
use crate::app::App;
use crate::body;
use crate::config::Config;
use crate::respond::{Answer, Failure, json, with_type};

const PROTOBUF: &str = "application/x-protobuf";

/// The adapter for log records, by the encoding that their sender names.
pub(crate) fn of_logs(headers: &HeaderMap) -> Adapter {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if content_type.starts_with(PROTOBUF.as_bytes()) { Adapter::OtlpProtobuf } else { Adapter::OtlpJson }
}

/// The adapter for CloudEvents: in binary mode the attributes are headers, and the body is the data.
fn of_cloudevents(headers: &HeaderMap) -> Result<Adapter, Reject> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.starts_with("application/cloudevents") || !headers.contains_key("ce-specversion") {
        return Ok(Adapter::CloudEvents);
    }
    let is_json = media.is_empty() || media.ends_with("/json") || media.ends_with("+json");
    if is_json { Ok(Adapter::CloudEventBinary) } else { Err(Reject::UnsupportedMediaType) }
}

pub(crate) async fn post(
    app: &App,
    headers: &HeaderMap,
    lent: &mut Lent,
    adapter: Adapter,
    from: Client,
    request_id: RequestId,
) -> Answer {
    let answer = take(app, headers, lent, adapter, from, request_id).await;
    answer.map_err(|failure| {
        app.metrics.adapter_rejected(adapter, failure.code(), 1);
        match failure.code() {
            // Exporters of OpenTelemetry give up at a 500 and try again at a 503.
            Code::EventWriteFailed if adapter.is_otlp() => failure.unavailable(),
            _ => failure,
        }
    })
}

async fn take(
    app: &App,
    headers: &HeaderMap,
    lent: &mut Lent,
    adapter: Adapter,
    from: Client,
    request_id: RequestId,
) -> Answer {
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    caller.may_ingest(request_id.received_ms())?;
    let key_hash = idempotency_key(headers)?;
    let whose = Some(caller.chain().tenant_id);
    let bytes_max = Endpoint::Batch.body_bytes_max();
    let adapter = if adapter == Adapter::CloudEvents { of_cloudevents(headers)? } else { adapter };
    let is_gzip = body::is_gzip(headers)?;
    let (mut body, mut share) = body::read_as_sent(app, lent, bytes_max, whose, request_id).await?;
    let failed = |error| Failure::ingest(error, request_id);
    if is_gzip {
        // Memory for what it may become; what came is held until then.
        let inflated = body::large(app, whose, bytes_max, request_id).await?;
        body = app.service.ingest.inflate(caller.chain().tenant_id, body, bytes_max).await.map_err(failed)?;
        share = inflated;
    }
    if adapter == Adapter::CloudEventBinary {
        let named = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().strip_prefix("ce-")?, value.as_bytes())));
        body = [cloudevent_attributes(named)?.as_bytes(), &body].concat().into();
    }
    // The first batch was counted when the request came.
    let charge =
        |batches: usize| caller.charge(&app.limits, batches.saturating_sub(1), app.service.world.now_ms());
    let taken =
        app.service.ingest.take(&caller.producer, adapter, key_hash, body, from, request_id, charge).await;
    let taken = taken.map_err(failed)?;
    drop(share);
    if taken.sealed > 0 {
        app.metrics.sealed(caller.chain().mode, taken.sealed);
    }
    if taken.replayed {
        app.metrics.replayed();
    }
    for (_, reject) in taken.rejected() {
        app.metrics.rejected(reject.code());
        app.metrics.adapter_rejected(adapter, reject.code(), 1);
    }
    answer(&app.config, adapter, key_hash.is_some(), taken, request_id)
}

fn answer(
    config: &Config,
    adapter: Adapter,
    is_keyed: bool,
    mut taken: Taken,
    request_id: RequestId,
) -> Answer {
    let errors: Vec<Value> =
        taken.rejected().take(ERRORS_MAX).map(|(index, reject)| item_error(config, index, reject)).collect();
    let stored = taken.stored();
    if let Some(stopped) = taken.stopped.take() {
        let failure = cut_short(stopped, is_keyed, stored, &taken.fates, request_id);
        return Err(failure.with("items", errors));
    }
    let first = taken.rejected().next();
    if let Some((index, reject)) = first
        && stored == 0
        && !adapter.is_otlp()
    {
        let message = format!("item[{index}]: {reject}");
        return Err(Failure::from(reject.clone()).saying(message).with("items", errors));
    }
    let rejected = taken.rejected().count();
    let summary = first.map(|(index, reject)| {
        format!(
            "{rejected} of {} log records were rejected; the first is number {index}: {}: {reject}",
            taken.fates.len(),
            reject.code().as_str()
        )
    });
    if adapter == Adapter::OtlpProtobuf {
        return Ok(with_type(StatusCode::OK, PROTOBUF, partial_success(rejected, summary.as_deref())));
    }
    let mut body = Map::new();
    if let (Adapter::OtlpJson, Some(summary)) = (adapter, summary) {
        // As OTLP has it: what was refused is a partial success. A 64-bit number is a string in the JSON of
        // Protocol Buffers.
        body.insert(
            "partialSuccess".into(),
            json!({ "rejectedLogRecords": rejected.to_string(), "errorMessage": summary }),
        );
    }
    body.insert("accepted".into(), stored.into());
    body.insert("rejected".into(), rejected.into());
    body.insert("log_ids".into(), log_ids(&taken.fates));
    body.insert("errors".into(), errors.into());
    body.insert("request_id".into(), request_id.to_string().into());
    let status = if adapter.is_otlp() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = json(status, Value::from(body).to_string());
    if taken.replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Some batches are stored and the rest is not: which is which, and what can be sent again.
fn cut_short(
    Stopped { error, retry_from, untried_from }: Stopped,
    is_keyed: bool,
    stored: usize,
    fates: &[Fate],
    request_id: RequestId,
) -> Failure {
    let failure = Failure::ingest(error, request_id);
    let next = if failure.code() == Code::EventIdempotencyKeyConflict {
        format!(
            "Items from {retry_from} on were sent before with this Idempotency-Key, and the server then accepted other items: compare yours with the stored events."
        )
    } else if is_keyed {
        "Repeat the same request with the same Idempotency-Key to store the others; no item is stored twice."
            .to_owned()
    } else {
        format!(
            "Send the items from {retry_from} on again. Without an Idempotency-Key, those before {untried_from} may already be stored."
        )
    };
    let message =
        format!("{} Stored {stored} of {} items: see log_ids. {next}", failure.message(), fates.len());
    let failure = failure.saying(message).with("log_ids", log_ids(fates));
    failure.with("retry_from", retry_from).with("untried_from", untried_from)
}

/// An id for each item that is stored, in the place of the item.
fn log_ids(fates: &[Fate]) -> Value {
    let log_id = |fate: &Fate| match fate {
        Fate::Stored(log_id) => log_id.to_string().into(),
        Fate::Rejected(_) | Fate::NotTried => Value::Null,
    };
    fates.iter().map(log_id).collect()
}

fn item_error(config: &Config, index: usize, reject: &Reject) -> Value {
    let code = reject.code().as_str();
    let mut error = json!({ "index": index, "code": code, "message": reject.to_string(), "doc_url": config.doc_url(code) });
    if let Reject::ActionInvalid { suggestion: Some(suggestion), .. } = reject {
        error["suggestion"] = suggestion.as_str().into();
    }
    error
}

/// An `ExportLogsServiceResponse` of Protocol Buffers; without anything to say it has no bytes.
fn partial_success(rejected: usize, message: Option<&str>) -> Vec<u8> {
    let Some(message) = message else { return Vec::new() };
    let mut partial = vec![0x08];
    put_varint(rejected, &mut partial);
    partial.push(0x12);
    put_varint(message.len(), &mut partial);
    partial.extend_from_slice(message.as_bytes());
    let mut response = vec![0x0a];
    put_varint(partial.len(), &mut response);
    response.extend(partial);
    response
}

fn put_varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or(0));
}
