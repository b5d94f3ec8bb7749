//! The driver of the behaviour suite: `sdk/suite/README.md`, section 2.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use sealog_client::{
    Choice, Client, Error, Event, Filter, Head, Kind, OnFull, Options, Receipt, TrustedProxies, pseudonymize,
    verify_events, verify_proof, with, with_traceparent,
};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, watch};

/// What a step gives.
#[derive(Clone, Debug)]
enum Failed {
    Error(Error),
    /// The types of this library cannot express the value.
    Unsupported,
    Wrong(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

type Outcome = Result<Value, Failed>;

#[derive(Default)]
struct Driver {
    client: Mutex<Option<Client>>,
    /// The old ones go on, as they do in an application that has not closed them.
    earlier: Mutex<Vec<Client>>,
    seen: Mutex<HashMap<&'static str, Vec<Value>>>,
    changed: Notify,
    background: Mutex<HashMap<String, watch::Receiver<Option<Outcome>>>>,
}

impl Driver {
    fn note(&self, kind: &'static str, value: Value) {
        self.seen.lock().unwrap().entry(kind).or_default().push(value);
        self.changed.notify_waiters();
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap().clone().expect("the first step is `new`")
    }

    async fn run(self: Arc<Driver>, step: Value) -> Outcome {
        let text = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
        let within = Duration::from_millis(step["timeout_ms"].as_u64().unwrap_or(0));
        match step["do"].as_str().unwrap_or_default() {
            "new" => {
                let client = Client::new(self.options(&step["options"])?)?;
                let before = self.client.lock().unwrap().replace(client);
                self.earlier.lock().unwrap().extend(before);
                Ok(Value::Null)
            }
            "log" => {
                let (client, event) = (self.client(), event_of(&step["event"])?);
                let receipt = in_context(&step, async {
                    match step["key"].as_str() {
                        None => client.log(&event).await,
                        Some(key) => client.log_as(key, &event).await,
                    }
                })
                .await?;
                Ok(receipt_object(&receipt?))
            }
            "enqueue" => {
                let mut events = step["events"].as_array().cloned().unwrap_or_default();
                events.extend(step.get("event").cloned());
                let client = self.client();
                for event in &events {
                    let event = event_of(event)?;
                    in_context(&step, client.enqueue(event)).await??;
                }
                Ok(Value::Null)
            }
            "flush" => Ok(json!({"pending": self.client().flush(within).await})),
            "close" => Ok(json!({"pending": self.client().close(within).await})),
            "collect" => Ok(self.collect(&step["until"]).await),
            "is_pending" => {
                let mut outcome = self.background.lock().unwrap()[&text("name")].clone();
                let for_ms = Duration::from_millis(step["for_ms"].as_u64().unwrap_or(0));
                let ended = tokio::time::timeout(for_ms, outcome.wait_for(Option::is_some)).await;
                Ok(json!({"pending": ended.is_err()}))
            }
            "join" => {
                let mut outcome = self.background.lock().unwrap()[&text("name")].clone();
                let ended = outcome.wait_for(Option::is_some).await;
                ended.map_err(|error| Failed::Wrong(error.to_string()))?.clone().expect("it was waited for")
            }
            "held" => {
                let resources =
                    |events: &[Event]| events.iter().map(|event| json!(event.resource)).collect::<Vec<_>>();
                let held = self.client().held();
                Ok(held
                    .iter()
                    .map(|held| json!({"id": held.id, "reason": held.reason, "resources": resources(&held.events)}))
                    .collect())
            }
            "release" => {
                let choice = if step["choice"] == "send" { Choice::Send } else { Choice::Drop };
                self.client().release(&text("held"), choice)?;
                Ok(Value::Null)
            }
            "audit" => {
                let audit = self.client().audit().await?;
                Ok(json!({
                    "checked": audit.checked, "missing": audit.missing, "changed": audit.changed, "moved": audit.moved,
                    "all_there": audit.all_there(), "dropped": audit.dropped, "disproved": audit.disproved,
                    "proven": audit.proven, "unsigned": audit.unsigned, "not_yet": audit.not_yet, "no_proof": audit.no_proof,
                }))
            }
            "list" => self.list(&step).await,
            "get" => {
                let event = self.client().get(&text("log_id")).await?;
                serde_json::from_str(&event.text).map_err(|error| Failed::Wrong(error.to_string()))
            }
            "actions" => Ok(json!({"total": self.client().actions().await?.len()})),
            "verify" => {
                let (from, to) = (step["from_seq"].as_u64(), step["to_seq"].as_u64());
                let result = self.client().verify(from, to).await?;
                Ok(json!({
                    "valid": result.valid, "checked": result.checked, "first_seq": result.first_seq,
                    "last_seq": result.last_seq, "broken_at": result.broken_at, "broken_hash": result.broken_hash,
                }))
            }
            "verify_events" => {
                let texts = |name: &str| {
                    let list = step[name].as_array().cloned().unwrap_or_default();
                    list.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
                };
                let heads =
                    texts("heads").iter().map(|text| text.parse::<Head>()).collect::<Result<Vec<_>, _>>()?;
                let result = verify_events(texts("texts"), &heads)?;
                let mut found = json!({
                    "valid": result.valid, "checked": result.checked, "first_seq": result.first_seq,
                    "last_seq": result.last_seq, "broken_at": result.broken_at, "broken_hash": result.broken_hash,
                    "reason": result.reason,
                });
                found.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                Ok(found)
            }
            "verify_proof" => {
                let result = verify_proof(&text("text"), text("proof").as_bytes(), step["vkey"].as_str())?;
                Ok(json!({"holds": result.holds, "reason": result.reason}))
            }
            "pseudonymize" => Ok(json!(pseudonymize(&text("key"), &text("value")))),
            "client_address" => {
                let list = |name: &str| step[name].as_array().cloned().unwrap_or_default();
                let (trusted, forwarded) = (list("trusted"), list("forwarded"));
                let proxies = TrustedProxies::parse(trusted.iter().filter_map(Value::as_str))?;
                let peer: IpAddr = text("peer").parse().map_err(|_| Failed::Unsupported)?;
                Ok(json!(
                    proxies.client_address(peer, forwarded.iter().filter_map(Value::as_str)).to_string()
                ))
            }
            other => Err(Failed::Wrong(format!("unknown step {other:?}"))),
        }
    }

    fn options(self: &Arc<Driver>, given: &Value) -> Result<Options, Failed> {
        let mut options = Options::default();
        for (name, value) in given.as_object().into_iter().flatten() {
            let text = || value.as_str().unwrap_or_default().to_owned();
            let number = || value.as_u64().unwrap_or(0);
            let count = || usize::try_from(number()).unwrap_or(usize::MAX);
            let span = || Duration::from_millis(number());
            match name.as_str() {
                "url" => options.url = text(),
                "api_key" => options.api_key = text(),
                "on_full" => {
                    options.on_full = match value.as_str() {
                        Some("block") => OnFull::Block,
                        Some("error") => OnFull::Error,
                        _ => return Err(Failed::Unsupported),
                    }
                }
                "vkey" => options.vkey = Some(text()),
                "receipts" => options.receipts = Some(text().into()),
                "spool_dir" => options.spool_dir = Some(text().into()),
                "spool_sync" => options.spool_sync = value == true,
                "spool_max_bytes" => options.spool_max_bytes = number(),
                "queue_max_events" => options.queue_max_events = count(),
                "queue_max_bytes" => options.queue_max_bytes = number(),
                "batch_max_events" => options.batch_max_events = count(),
                "batch_max_bytes" => options.batch_max_bytes = number(),
                "max_attempts" => options.max_attempts = u32::try_from(number()).unwrap_or(u32::MAX),
                "check_actions" => options.check_actions = value == true,
                "trace_metadata" => options.trace_metadata = value == true,
                "retry_base_ms" => options.retry_base = span(),
                "retry_budget_ms" => options.retry_budget = span(),
                "timeout_ms" => options.timeout = span(),
                "flush_interval_ms" => options.flush_interval = span(),
                "adopt_interval_ms" => options.adopt_interval = span(),
                "hold_after_ms" => options.hold_after = span(),
                "clock_offset_ms" => {
                    let (offset, is_back) =
                        (value.as_i64().unwrap_or(0).unsigned_abs(), value.as_i64() < Some(0));
                    let offset = Duration::from_millis(offset);
                    let moved = move || SystemTime::now() + offset;
                    options.now =
                        if is_back { Arc::new(move || SystemTime::now() - offset) } else { Arc::new(moved) };
                }
                "before_send" => {
                    let kind = text();
                    options.before_send = Some(Box::new(move |mut event| match kind.as_str() {
                        "remove_secret" => {
                            event.metadata.remove("secret");
                            Ok(event)
                        }
                        // Without an event there is only an error to return.
                        _ => Err("broken".into()),
                    }));
                }
                other => return Err(Failed::Wrong(format!("unknown option {other:?}"))),
            }
        }
        let driver = Arc::clone(self);
        options.on_receipt = Some(Box::new(move |receipt, event| {
            let mut object = receipt_object(receipt);
            object["resource"] = json!(event.resource);
            driver.note("receipts", object);
        }));
        let driver = Arc::clone(self);
        options.on_error = Some(Box::new(move |error, event| {
            driver.note("errors", json!({"resource": event.resource, "error": error_object(error)}));
        }));
        let driver = Arc::clone(self);
        options.on_warning = Some(Box::new(move |code, _| driver.note("warnings", json!(code))));
        Ok(options)
    }

    async fn collect(&self, until: &Value) -> Value {
        let wanted = |kind: &str| usize::try_from(until[kind].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let is_enough = {
                let seen = self.seen.lock().unwrap();
                ["receipts", "errors", "warnings"]
                    .iter()
                    .all(|kind| seen.get(kind).map_or(0, Vec::len) >= wanted(kind))
            };
            if is_enough || tokio::time::timeout_at(end, changed).await.is_err() {
                break;
            }
        }
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut part = |kind: &str| Value::Array(seen.remove(kind).unwrap_or_default());
        json!({"receipts": part("receipts"), "errors": part("errors"), "warnings": part("warnings")})
    }

    async fn list(&self, step: &Value) -> Outcome {
        let mut filter =
            Filter { page_size: step["limit"].as_u64().and_then(|n| n.try_into().ok()), ..Filter::default() };
        for (name, value) in step["filters"].as_object().into_iter().flatten() {
            let member = match name.as_str() {
                "action" => &mut filter.action,
                "actor_id" => &mut filter.actor_id,
                "resource" => &mut filter.resource,
                "date_from" => &mut filter.date_from,
                "date_to" => &mut filter.date_to,
                _ => return Err(Failed::Unsupported),
            };
            *member = value.as_str().map(str::to_owned);
        }
        let mut events = self.client().events(filter);
        let mut resources = Vec::new();
        while let Some(event) = events.next().await {
            resources.push(json!(event?.event.resource));
        }
        Ok(json!({"resources": resources}))
    }
}

/// Runs a call with the context of its step.
async fn in_context<T>(step: &Value, call: impl Future<Output = T>) -> Result<T, Failed> {
    let known = match step.get("context") {
        Some(context) => event_of(context)?,
        None => Event::default(),
    };
    Ok(match step["traceparent"].as_str() {
        Some(traceparent) => with(known, with_traceparent(traceparent, call)).await,
        None => with(known, call).await,
    })
}

fn event_of(object: &Value) -> Result<Event, Failed> {
    let mut event = Event::default();
    for (name, value) in object.as_object().into_iter().flatten() {
        if value.is_null() {
            continue;
        }
        if name == "metadata" {
            let members = value.as_object().ok_or(Failed::Unsupported)?;
            for (name, value) in members {
                event = event.with(name, special(value)?);
            }
            continue;
        }
        let text = value.as_str().ok_or(Failed::Unsupported)?.to_owned();
        match name.as_str() {
            "action" => event.action = text,
            "actor_id" => event.actor_id = Some(text),
            "actor_type" => event.actor_type = Some(text),
            "resource" => event.resource = Some(text),
            "resource_type" => event.resource_type = Some(text),
            "severity" => event.severity = Some(text),
            "session_id" => event.session_id = Some(text),
            "ts_client" => event.ts_client = Some(text),
            _ => return Err(Failed::Unsupported),
        }
    }
    Ok(event)
}

/// A value, with those that JSON lacks.
enum Thing {
    Json(Value),
    Number(f64),
    Date,
    Bytes,
    List(Vec<Thing>),
    Object(Vec<(String, Thing)>),
}

fn special(value: &Value) -> Result<Thing, Failed> {
    Ok(match value {
        Value::Array(list) => Thing::List(list.iter().map(special).collect::<Result<_, _>>()?),
        Value::Object(members) => match members.get("$special").and_then(Value::as_str) {
            Some("nan") => Thing::Number(f64::NAN),
            Some("infinity") => Thing::Number(f64::INFINITY),
            Some("date") => Thing::Date,
            Some("bytes") => Thing::Bytes,
            Some(_) => return Err(Failed::Unsupported),
            None => {
                let member = |(name, value): (&String, &Value)| Ok((name.clone(), special(value)?));
                Thing::Object(members.iter().map(member).collect::<Result<_, Failed>>()?)
            }
        },
        other => Thing::Json(other.clone()),
    })
}

impl Serialize for Thing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Thing::Json(value) => value.serialize(serializer),
            Thing::Number(number) => number.serialize(serializer),
            Thing::Date => SystemTime::now().serialize(serializer),
            Thing::Bytes => serializer.serialize_bytes(&[0, 1]),
            Thing::List(list) => {
                let mut parts = serializer.serialize_seq(Some(list.len()))?;
                for part in list {
                    parts.serialize_element(part)?;
                }
                parts.end()
            }
            Thing::Object(members) => {
                let mut parts = serializer.serialize_map(Some(members.len()))?;
                for (name, part) in members {
                    parts.serialize_entry(name, part)?;
                }
                parts.end()
            }
        }
    }
}

fn receipt_object(receipt: &Receipt) -> Value {
    let mut object =
        json!({"log_id": receipt.log_id, "request_id": receipt.request_id, "replayed": receipt.replayed});
    let members = object.as_object_mut().unwrap();
    members.extend(receipt.chain_seq.map(|seq| ("chain_seq".to_owned(), json!(seq))));
    members.extend(receipt.hash.as_ref().map(|hash| ("hash".to_owned(), json!(hash))));
    object
}

fn error_object(error: &Error) -> Value {
    let kind = match error.kind {
        Kind::Auth => "AuthError",
        Kind::Subscription => "SubscriptionError",
        Kind::Action => "ActionError",
        Kind::IdempotencyConflict => "IdempotencyConflict",
        Kind::RateLimited => "RateLimited",
        Kind::NotFound => "NotFound",
        Kind::Validation => "ValidationError",
        Kind::Server => "ServerError",
        Kind::Transport => "TransportError",
        Kind::QueueFull => "QueueFull",
        Kind::Closed => "Closed",
        Kind::Spool => "SpoolError",
        _ => "?",
    };
    let mut object = Map::new();
    let mut put =
        |name: &str, value: Option<Value>| object.extend(value.map(|value| (name.to_owned(), value)));
    put("type", Some(json!(kind)));
    put("code", Some(json!(error.code)));
    put("message", Some(json!(error.message)));
    put("status", error.status.map(|status| json!(status)));
    put("request_id", error.request_id.as_ref().map(|text| json!(text)));
    put("doc_url", error.doc_url.as_ref().map(|text| json!(text)));
    put("suggestion", error.suggestion.as_ref().map(|text| json!(text)));
    put("field", error.field.as_ref().map(|text| json!(text)));
    put("retry_after_s", error.retry_after.map(|wait| json!(wait.as_secs())));
    Value::Object(object)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let driver = Arc::new(Driver::default());
    let (lines, mut steps) = mpsc::unbounded_channel::<String>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let _ = lines.send(line.expect("the runner writes UTF-8"));
        }
    });
    while let Some(line) = steps.recv().await {
        let step: Value = serde_json::from_str(&line).expect("the runner writes JSON");
        let id = step["id"].clone();
        let outcome = match step["background"].as_str() {
            None => Arc::clone(&driver).run(step).await,
            Some(name) => {
                let (ended, outcome) = watch::channel(None);
                driver.background.lock().unwrap().insert(name.to_owned(), outcome);
                let running = Arc::clone(&driver).run(step);
                tokio::spawn(async move { ended.send(Some(running.await)) });
                Ok(Value::Null)
            }
        };
        let answer = match outcome {
            Ok(ok) => json!({"id": id, "ok": ok}),
            Err(Failed::Error(error)) => json!({"id": id, "error": error_object(&error)}),
            Err(Failed::Unsupported) => json!({"id": id, "unsupported": true}),
            Err(Failed::Wrong(why)) => json!({"id": id, "error": {"type": "driver", "message": why}}),
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}").and_then(|()| output.flush()).expect("the runner reads");
    }
    // Without closing the client: what is queued ends as it does in a process that ends.
    std::process::exit(0);
}
