//! Traces by OTLP, with the variables that OpenTelemetry defines: one span for each request, in the caller's
//! trace where it names one.
//!
//! By hand and not by OpenTelemetry's crates: what is exported is one kind of span, OTLP has a JSON form that
//! every receiver takes, and the crates take longer to compile than the server. Nothing here ever waits for
//! the receiver but the task that sends: what does not fit in the queue is counted and dropped.

mod settings;
mod span;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sealog_client::http::Once;
use sealog_server::traces::{Answered, Traces};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(crate) use settings::Settings;
use span::Span;

/// Spans that wait, and spans of one request to the receiver.
const QUEUE_MAX: usize = 4096;
const BATCH_MAX: usize = 512;
/// After a failure the receiver is left alone for this long.
const PAUSE: Duration = Duration::from_secs(5);

/// Takes spans from the event loops.
struct Collector {
    settings: Settings,
    queue: Sender<Span>,
    dropped: Arc<AtomicU64>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Traces for Collector {
    fn answered(&self, answered: &Answered<'_>) {
        let Some(span) = Span::of(answered, SystemTime::now(), |parent| self.settings.is_sampled(parent))
        else {
            return;
        };
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends what was collected.
pub(crate) struct Exporter {
    settings: Settings,
    receiver: Once,
    /// Locked by the one run that sends; the next one takes over what waits.
    queue: Mutex<Receiver<Span>>,
    dropped: Arc<AtomicU64>,
}

/// The two ends of the queue, or why the variables cannot be followed.
pub(crate) fn open(settings: Settings) -> Result<(Arc<dyn Traces>, Exporter), String> {
    let receiver = Once::new(&settings.endpoint)
        .map_err(|why| format!("OTEL_EXPORTER_OTLP_ENDPOINT {why}, not {:?}", settings.endpoint))?;
    let (sender, queue) = channel(QUEUE_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let collector = Collector { settings: settings.clone(), queue: sender, dropped: Arc::clone(&dropped) };
    Ok((Arc::new(collector), Exporter { settings, receiver, queue: Mutex::new(queue), dropped }))
}

impl Exporter {
    /// Sends until the collector is dropped. A receiver that fails costs its spans and nothing else.
    pub(crate) async fn run(&self) {
        let mut queue = self.queue.lock().await;
        let mut fails = false;
        loop {
            let batch = self.collect(&mut queue).await;
            if batch.is_empty() {
                return;
            }
            let lost = self.dropped.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tracing::warn!(lost, "trace receiver is too slow; dropped spans");
            }
            let body = span::to_json(&batch, &self.settings.resource);
            let sent = self.receiver.post_json(&self.settings.headers, body, self.settings.timeout).await;
            let failure = match sent {
                Ok(200..=299) => None,
                Ok(status) => Some(format!("status {status}")),
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(error, spans = batch.len(), "trace receiver rejects spans; they are lost");
                }
                tokio::time::sleep(PAUSE).await;
            } else if std::mem::take(&mut fails) {
                tracing::info!("trace receiver accepts spans again");
            }
        }
    }

    /// What comes within the delay, or as much as one request may have; nothing at the end.
    async fn collect(&self, queue: &mut Receiver<Span>) -> Vec<Span> {
        let mut batch = Vec::new();
        let Some(first) = queue.recv().await else { return batch };
        batch.push(first);
        let more = async {
            while batch.len() < BATCH_MAX {
                match queue.recv().await {
                    Some(span) => batch.push(span),
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(self.settings.delay, more).await;
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use sealog_core::id::{RequestId, Ulid};
    use sealog_service::Stop;
    use sealog_service::jobs::supervise::{Loop, Supervision};
    use serde_json::Value;

    use super::*;

    /// One request that a receiver gets, and how it answers.
    fn heard(listener: &TcpListener, status: &str) -> (String, Value) {
        let (head, body) = sealog_testing::http::receive(listener, status);
        (head, serde_json::from_str(&body).unwrap())
    }

    fn answered(traceparent: Option<&[u8]>) -> Answered<'_> {
        Answered {
            route: Some("/v1/events"),
            method: "POST",
            status: 202,
            request_id: RequestId(Ulid(1)),
            took: Duration::from_millis(2),
            traceparent,
        }
    }

    fn settings(endpoint: &str) -> Settings {
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=s%3Decret, x-other=1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=trial"),
        ];
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        Settings::from_variables(variable).unwrap().unwrap()
    }

    #[test]
    fn a_receiver_gets_a_span_for_a_request_in_the_trace_of_its_caller_also_after_a_panic() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (traces, exporter) =
            open(settings(&format!("http://{}", listener.local_addr().unwrap()))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The first run panics before it has sent anything, and the second one sends what waited.
        let supervision = Supervision::new(|_| {
            static BEGUN: AtomicU64 = AtomicU64::new(0);
            assert!(BEGUN.fetch_add(1, Ordering::Relaxed) > 0, "asked for by a test");
        });
        let sending = std::thread::spawn(move || {
            let traces = Loop::new("traces", || exporter.run());
            runtime.block_on(supervision.supervise(traces, &Stop::new()));
            assert_eq!(supervision.restarts()["traces"], 1);
        });
        traces.answered(&answered(Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
        // A receiver that fails costs its spans; the next ones are sent.
        heard(&listener, "503 Service Unavailable");
        traces.answered(&answered(Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
        let (head, body) = heard(&listener, "200 OK");
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("x-api-key: s=ecret\r\n") && head.contains("x-other: 1"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let resource = body["resourceSpans"][0]["resource"].to_string();
        assert!(
            resource.contains("{\"key\":\"service.name\",\"value\":{\"stringValue\":\"sealog\"}}"),
            "{resource}"
        );
        assert!(resource.contains("trial"), "{resource}");
        let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
        assert_eq!((&span["name"], &span["kind"]), (&Value::from("POST /v1/events"), &Value::from(2)));
        let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        assert_eq!(nanos("endTimeUnixNano") - nanos("startTimeUnixNano"), 2_000_000);
        drop(traces);
        sending.join().unwrap();
    }

    #[test]
    fn a_queue_that_is_full_drops_spans_and_never_waits() {
        let (traces, exporter) = open(settings("http://127.0.0.1:1")).unwrap();
        for _ in 0..QUEUE_MAX + 7 {
            traces.answered(&answered(None));
        }
        assert_eq!(exporter.dropped.load(Ordering::Relaxed), 7);
    }
}
