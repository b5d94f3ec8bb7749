//! For tests of applications: a client that checks events as the real one does and keeps them in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use sealog_client::{Event, testing::Recorder};
//! let recorder = Recorder::new();
//! // The code under test:
//! recorder.client().enqueue(Event::new("user.login").actor_id("u-17")).await.unwrap();
//! recorder.assert_logged(1, &Event::new("user.login")).await;
//! # }
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::endpoint::Transport;
use crate::event::Event;
use crate::http::wire::{Answer, Outgoing};
use crate::options::Options;

/// How long queued events are waited for; it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has a [`Client`] whose events end here.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    service: Arc<Mutex<Service>>,
}

#[derive(Debug, Default)]
struct Service {
    events: Vec<Event>,
    stored: u64,
    /// By idempotency key: status, headers and body.
    answers: HashMap<Vec<u8>, (u16, HeaderMap, Vec<u8>)>,
    failure: Option<(u16, Vec<u8>)>,
}

impl Recorder {
    /// With a test key and short waits.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[expect(clippy::new_without_default, reason = "it starts a task")]
    pub fn new() -> Recorder {
        Recorder::with(Options {
            api_key: format!("at_test_{}", "0".repeat(49)),
            flush_interval: Duration::from_millis(1),
            retry_base: Duration::from_millis(1),
            ..Options::default()
        })
    }

    /// With options of the application. `url` is not used.
    ///
    /// # Panics
    ///
    /// If an option is wrong, or outside of a Tokio runtime.
    pub fn with(options: Options) -> Recorder {
        let service = Arc::new(Mutex::new(Service::default()));
        let answering = Arc::clone(&service);
        let stage = move |request: &Outgoing| answering.lock().expect("no holder panics").answer(request);
        let client = Client::over(options, Transport::Stage(Arc::new(stage)));
        Recorder { client: client.unwrap_or_else(|error| panic!("{error}")), service }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The events in the order in which they were stored. Queued ones are sent first.
    pub async fn events(&self) -> Vec<Event> {
        self.client.flush(PATIENCE).await;
        self.service.lock().expect("no holder panics").events.clone()
    }

    /// Forgets all events.
    pub async fn clear(&self) {
        self.client.flush(PATIENCE).await;
        self.service.lock().expect("no holder panics").events.clear();
    }

    /// Answers every request with this error, to test an outage. `None` answers normally again.
    pub fn fail_with(&self, error: Option<(u16, &str)>) {
        let failure = error.map(|(status, code)| (status, error_body(code, "the recorder was told to fail")));
        self.service.lock().expect("no holder panics").failure = failure;
    }

    /// The events that have the fields of `wanted`. Of the metadata, the given members are compared.
    pub async fn logged(&self, wanted: &Event) -> Vec<Event> {
        let members = |event: &Event| {
            let mut value = serde_json::to_value(event).unwrap_or_default();
            if let Some(object) = value.as_object_mut().filter(|_| event.action.is_empty()) {
                object.remove("action");
            }
            value
        };
        let wanted = members(wanted);
        self.events().await.into_iter().filter(|event| fits(&members(event), &wanted)).collect()
    }

    /// # Panics
    ///
    /// If another number of events has the fields of `wanted`. An empty event matches all.
    pub async fn assert_logged(&self, count: usize, wanted: &Event) {
        let found = self.logged(wanted).await.len();
        if found != count {
            let text = |event: &Event| serde_json::to_string(event).unwrap_or_default();
            let recorded: String =
                self.events().await.iter().map(|event| format!("\n  {}", text(event))).collect();
            panic!("expected {count} events like {}, found {found}. Recorded:{recorded}", text(wanted));
        }
    }
}

fn fits(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, part)| found.get(name).is_some_and(|value| fits(value, part)))
        }
        (found, wanted) => found == wanted,
    }
}

fn error_body(code: &str, message: &str) -> Vec<u8> {
    json!({"error": {"code": code, "message": message}}).to_string().into_bytes()
}

impl Service {
    fn answer(&mut self, request: &Outgoing) -> Answer {
        let key = request.headers.iter().find(|(name, _)| name == "idempotency-key");
        let (status, headers, body) = match (&self.failure, key) {
            (Some((status, body)), _) => (*status, HeaderMap::new(), body.clone()),
            (None, Some((_, key))) if request.method == Method::POST => {
                let key = key.as_bytes().to_vec();
                match self.answers.get(&key) {
                    Some(answer) => answer.clone(),
                    None => {
                        let answer = self.accept(request);
                        self.answers.insert(key, answer.clone());
                        answer
                    }
                }
            }
            _ => (404, HeaderMap::new(), error_body("read/not_found", "a recorder only records")),
        };
        Answer { status, headers, body: body.into() }
    }

    fn accept(&mut self, request: &Outgoing) -> (u16, HeaderMap, Vec<u8>) {
        #[derive(Deserialize)]
        struct Batch {
            events: Vec<Event>,
        }
        let is_single = request.path == "/v1/events";
        let read = match is_single {
            true => serde_json::from_slice(&request.body).map(|event| vec![event]),
            false => serde_json::from_slice(&request.body).map(|batch: Batch| batch.events),
        };
        let events = match read {
            Ok(events) => events,
            Err(error) => {
                let body = error_body("validation/invalid_json", &error.to_string());
                return (400, HeaderMap::new(), body);
            }
        };
        let first = self.stored + 1;
        self.stored += events.len() as u64;
        self.events.extend(events);
        let ids: Vec<String> = (first..=self.stored).map(|number| format!("{number:026}")).collect();
        let body = match is_single {
            true => json!({"request_id": "req_recorder", "log_id": ids[0]}),
            false => json!({"request_id": "req_recorder", "log_ids": ids}),
        };
        let hash: String = Sha256::digest(&request.body).iter().map(|byte| format!("{byte:02x}")).collect();
        let text = |value: String| HeaderValue::try_from(value).expect("digits");
        let mut headers = HeaderMap::new();
        headers.insert("sealog-chain-seq", text(format!("{first}-{}", self.stored)));
        headers.insert("sealog-hash", text(hash));
        (202, headers, body.to_string().into_bytes())
    }
}
