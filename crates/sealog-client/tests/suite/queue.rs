use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use sealog_client::testing::Recorder;
use sealog_client::{Client, Event, Kind, OnFull, Options};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span;

use crate::{PATIENCE, options};

fn numbered(number: usize) -> Event {
    Event::new("document.updated").resource(number.to_string())
}

/// A service that takes connections and says nothing.
async fn silent() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (format!("http://{}", listener.local_addr().unwrap()), listener)
}

#[tokio::test(flavor = "current_thread")]
async fn order_is_kept_for_each_task() {
    let recorder = Recorder::with(Options { queue_max_events: 7, batch_max_events: 3, ..options() });
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let client = recorder.client().clone();
            tokio::spawn(async move {
                for number in 0..50 {
                    client.enqueue(numbered(number).actor_id(task.to_string())).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    for event in recorder.events().await {
        seen.entry(event.actor_id.unwrap()).or_default().push(event.resource.unwrap());
    }
    let expected: Vec<String> = (0..50).map(|number: u32| number.to_string()).collect();
    assert_eq!(seen.len(), 4);
    assert!(seen.values().all(|numbers| *numbers == expected));
}

#[tokio::test(flavor = "current_thread")]
async fn every_accepted_event_ends_once_while_tasks_enqueue_and_the_client_closes() {
    for _ in 0..20 {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let (stored, failed) = (Arc::clone(&ends), Arc::clone(&ends));
        let recorder = Recorder::with(Options {
            on_receipt: Some(Box::new(move |_, event| stored.lock().unwrap().push(event.resource.clone()))),
            on_error: Some(Box::new(move |_, event| failed.lock().unwrap().push(event.resource.clone()))),
            batch_max_events: 5,
            ..options()
        });
        let client = recorder.client().clone();
        let enqueuing = tokio::spawn(async move {
            let mut accepted = Vec::new();
            for number in 0.. {
                match client.enqueue(numbered(number)).await {
                    Ok(()) => accepted.push(Some(number.to_string())),
                    Err(error) => {
                        assert_eq!(error.kind, Kind::Closed);
                        break;
                    }
                }
                tokio::task::yield_now().await;
            }
            accepted
        });
        for _ in 0..37 {
            tokio::task::yield_now().await;
        }
        recorder.client().close(Duration::ZERO).await;
        let accepted = enqueuing.await.unwrap();
        assert!(!accepted.is_empty());
        assert_eq!(*ends.lock().unwrap(), accepted);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_callback_that_panics_ends_nothing_else() {
    let recorder =
        Recorder::with(Options { on_receipt: Some(Box::new(|_, _| panic!("broken"))), ..options() });
    for number in 0..3 {
        recorder.client().enqueue(numbered(number)).await.unwrap();
    }
    assert_eq!(recorder.client().flush(PATIENCE).await, 0);
    assert_eq!(recorder.events().await.len(), 3);
}

#[tokio::test(flavor = "current_thread")]
async fn a_callback_may_use_the_client() {
    let client: Arc<Mutex<Option<Client>>> = Arc::default();
    let used = Arc::clone(&client);
    let on_receipt = move |_: &_, event: &Event| {
        let client = used.lock().unwrap().clone().unwrap();
        assert!(client.held().is_empty());
        if event.resource.as_deref() == Some("0") {
            tokio::spawn(async move { client.enqueue(numbered(1)).await });
        }
    };
    let recorder = Recorder::with(Options { on_receipt: Some(Box::new(on_receipt)), ..options() });
    *client.lock().unwrap() = Some(recorder.client().clone());
    recorder.client().enqueue(numbered(0)).await.unwrap();
    while recorder.events().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    *client.lock().unwrap() = None;
}

#[tokio::test(flavor = "current_thread")]
async fn a_call_that_is_dropped_while_it_waits_for_room_leaves_no_event_and_no_hurry() {
    let (url, _listener) = silent().await;
    let client = Client::new(Options { url, queue_max_events: 1, ..options() }).unwrap();
    client.enqueue(numbered(0)).await.unwrap();
    let waiting = client.enqueue(numbered(1));
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert_eq!(client.flush(Duration::from_millis(1)).await, 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_is_dropped_still_sends_what_is_queued() {
    let recorder = Recorder::with(options());
    let events = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&events);
    let on_receipt = move |_: &_, _: &_| *seen.lock().unwrap() += 1;
    let other = Recorder::with(Options {
        on_receipt: Some(Box::new(on_receipt)),
        flush_interval: Duration::from_secs(3600),
        ..options()
    });
    other.client().enqueue(numbered(0)).await.unwrap();
    drop(other);
    while *events.lock().unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    drop(recorder);
}

#[test]
fn a_runtime_that_ends_before_the_client_is_closed_reports_what_was_not_sent() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let failed = Arc::clone(&ends);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let (url, _listener) = silent().await;
        let on_error = move |error: &sealog_client::Error, event: &Event| {
            failed.lock().unwrap().push((error.kind, event.resource.clone().unwrap()));
        };
        let client = Client::new(Options {
            url,
            batch_max_events: 2,
            on_error: Some(Box::new(on_error)),
            ..options()
        })
        .unwrap();
        for number in 0..3 {
            client.enqueue(numbered(number)).await.unwrap();
        }
        client.flush(Duration::from_millis(50)).await;
        client
    });
    drop(runtime);
    let closed = |number: &str| (Kind::Closed, number.to_owned());
    assert_eq!(*ends.lock().unwrap(), [closed("0"), closed("1"), closed("2")]);
    drop(client);
}

#[test]
fn a_client_is_made_inside_of_a_runtime() {
    assert_eq!(Client::new(options()).unwrap_err().code, "client/invalid_option");
}

/// Keeps the lines of a thread at level error.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
                write!(self.0, "{value:?}").unwrap();
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn without_on_error_a_lost_event_is_logged_at_level_error() {
    let lines = Arc::new(Lines::default());
    let _guard = tracing::subscriber::set_default(Arc::clone(&lines));
    let recorder = Recorder::with(Options { max_attempts: 1, ..options() });
    recorder.fail_with(Some((401, "auth/key_revoked")));
    recorder.client().enqueue(numbered(17)).await.unwrap();
    assert_eq!(recorder.client().flush(PATIENCE).await, 0);
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("auth/key_revoked") && lines[0].contains(r#""resource":"17""#), "{lines:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_spooled_batch_that_grows_too_old_while_it_is_retried_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let offset = Arc::new(Mutex::new(Duration::ZERO));
    let clock = Arc::clone(&offset);
    let recorder = Recorder::with(Options {
        spool_dir: Some(folder.path().to_owned()),
        now: Arc::new(move || {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + *clock.lock().unwrap()
        }),
        ..options()
    });
    recorder.fail_with(Some((503, "event/write_failed")));
    recorder.client().enqueue(numbered(0)).await.unwrap();
    assert_eq!(recorder.client().flush(Duration::from_millis(30)).await, 1);
    assert!(recorder.client().held().is_empty());
    *offset.lock().unwrap() = Duration::from_secs(86_100);
    assert_eq!(recorder.client().flush(PATIENCE).await, 0);
    let held = recorder.client().held();
    assert_eq!((held.len(), held[0].reason, held[0].events[0].resource.as_deref()), (1, "age", Some("0")));
    assert_eq!(recorder.client().close(PATIENCE).await, 0);
    assert!(recorder.client().held().is_empty());
}

#[tokio::test(flavor = "current_thread")]
async fn an_event_that_ended_before_a_restart_does_not_end_again() {
    let folder = tempfile::tempdir().unwrap();
    let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let event = |number| format!(r#"E {number} {now_ms} {{"action":"a","resource":"{number}"}}"#);
    // As a library leaves it that settles events one by one.
    let records =
        ["H sealog-spool 1".into(), event(1), event(2), format!("B 1 2 {now_ms} key"), "D 1 1".into()];
    let line = |content: &String| format!("{:08x} {content}\n", crc32fast::hash(content.as_bytes()));
    let file = folder.path().join("1790000000000-0123456789abcdef.spool");
    std::fs::write(file, records.iter().map(line).collect::<String>()).unwrap();
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let recorder = Recorder::with(Options {
        spool_dir: Some(folder.path().to_owned()),
        on_receipt: Some(Box::new(move |_, event| seen.lock().unwrap().push(event.resource.clone()))),
        ..options()
    });
    // The service gets the batch whole, under its key.
    assert_eq!(recorder.events().await.len(), 2);
    assert_eq!(*ends.lock().unwrap(), [Some("2".to_owned())]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_synced_spool_takes_and_sends_events_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::with(Options {
        spool_dir: Some(folder.path().to_owned()),
        spool_sync: true,
        spool_max_bytes: 4096,
        on_full: OnFull::Block,
        ..options()
    });
    for number in 0..100 {
        recorder.client().enqueue(numbered(number)).await.unwrap();
    }
    let numbers: Vec<_> = recorder.events().await.into_iter().map(|event| event.resource.unwrap()).collect();
    assert_eq!(numbers, (0..100).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    assert_eq!(recorder.client().close(PATIENCE).await, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_that_closes_as_its_last_receipt_comes_leaves_nothing_to_send_again() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..100 {
        let recorder = Recorder::with(Options {
            spool_dir: Some(folder.path().to_owned()),
            spool_sync: true,
            ..options()
        });
        recorder.client().enqueue(numbered(number)).await.unwrap();
        assert_eq!(recorder.client().close(PATIENCE).await, 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "round {number}");
    }
}
