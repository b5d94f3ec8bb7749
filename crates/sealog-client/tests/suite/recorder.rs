use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sealog_client::testing::Recorder;
use sealog_client::{Event, Filter, Kind, Options};

use crate::options;

#[tokio::test(flavor = "current_thread")]
async fn a_recorder_keeps_what_was_logged_and_queued_and_an_assertion_shows_it() {
    let recorder = Arc::new(Recorder::new());
    recorder.client().log(Event::new("user.login").actor_id("u-1").with("method", "password")).await.unwrap();
    recorder.client().enqueue(Event::new("user.logout").actor_id("u-1")).await.unwrap();
    recorder.assert_logged(2, &Event::default().actor_id("u-1")).await;
    recorder.assert_logged(1, &Event::new("user.login").with("method", "password")).await;
    recorder.assert_logged(0, &Event::new("user.login").with("method", "token")).await;
    let wrong = Event::new("user.login").actor_id("u-2");
    let asserting = Arc::clone(&recorder);
    let failed = tokio::spawn(async move { asserting.assert_logged(1, &wrong).await }).await.unwrap_err();
    let failed = failed.into_panic();
    let message = failed.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("u-2") && message.contains("found 0") && message.contains("user.logout"),
        "{message}"
    );
    recorder.clear().await;
    recorder.assert_logged(0, &Event::default()).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_recorder_refuses_what_the_client_refuses_and_plays_an_outage() {
    let recorder = Recorder::with(Options { max_attempts: 2, ..options() });
    let error = recorder.client().log(Event::new("a").with("price", f64::NAN)).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("metadata.price"));
    for key in ["", "a b", "é", &"k".repeat(256)] {
        let error = recorder.client().log_as(key, Event::new("a")).await.unwrap_err();
        assert_eq!(error.field.as_deref(), Some("key"));
    }
    recorder.fail_with(Some((503, "event/write_failed")));
    assert_eq!(recorder.client().log(Event::new("a")).await.unwrap_err().kind, Kind::Server);
    recorder.fail_with(None);
    assert_eq!(recorder.client().log(Event::new("a")).await.unwrap().chain_seq, Some(1));
    let events: Vec<_> = recorder.client().events(Filter::default()).stream().collect().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].as_ref().unwrap_err().kind, Kind::NotFound);
}

#[tokio::test(flavor = "current_thread")]
async fn a_wrong_option_is_named() {
    let wrong = [
        ("batch_max_bytes", Options { batch_max_bytes: 2_097_153, ..options() }),
        ("queue_max_events", Options { queue_max_events: 0, ..options() }),
        ("timeout", Options { timeout: Duration::ZERO, ..options() }),
        ("hold_after", Options { hold_after: Duration::from_secs(86_401), ..options() }),
        ("receipts", Options { receipts: Some("/dev/null/x".into()), ..options() }),
        ("ca_file", Options { ca_file: Some("/dev/null".into()), ..options() }),
        ("url", Options { url: "http://127.0.0.1/#a".into(), ..options() }),
    ];
    for (name, options) in wrong {
        let error = sealog_client::Client::new(options).unwrap_err();
        assert_eq!((error.code.as_str(), error.field.as_deref()), ("client/invalid_option", Some(name)));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn before_send_that_panics_is_an_error_and_leaves_the_applications_event_alone() {
    let recorder = Recorder::with(Options { before_send: Some(Box::new(|_| panic!("broken"))), ..options() });
    let error = recorder.client().log(Event::new("a")).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("before_send"));
    let recorder = Recorder::with(Options {
        before_send: Some(Box::new(|mut event| {
            event.metadata.remove("secret");
            Ok(event)
        })),
        ..options()
    });
    let event = Event::new("a").with("secret", 1).with("open", 2);
    recorder.client().log(&event).await.unwrap();
    recorder.client().enqueue(&event).await.unwrap();
    assert_eq!(event, Event::new("a").with("secret", 1).with("open", 2));
    assert_eq!(recorder.events().await, [Event::new("a").with("open", 2), Event::new("a").with("open", 2)]);
}
