//! Queues an event in each of two clients, and waits for the signal that ends it: `tests/suite/signals.rs`.
//! The service of the second client fails until a line comes from standard input.
//!
//! signalled MILLISECONDS   for which a signal lets the clients send

use std::sync::Arc;
use std::time::Duration;

use sealog_client::testing::Recorder;
use sealog_client::{Event, Options};

fn recorder(name: &'static str) -> Recorder {
    Recorder::with(Options {
        api_key: format!("at_live_{}", "A".repeat(49)),
        // Only the signal sends what is queued.
        flush_interval: Duration::from_secs(3600),
        retry_base: Duration::from_millis(1),
        retry_budget: Duration::from_secs(3600),
        max_attempts: 1000,
        on_receipt: Some(Box::new(move |_, _| println!("{name} stored"))),
        on_error: Some(Box::new(move |error, _| println!("{name} {}", error.code))),
        ..Options::default()
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let within: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("MILLISECONDS");
    let (quick, slow) = (recorder("quick"), Arc::new(recorder("slow")));
    slow.fail_with(Some((503, "event/write_failed")));
    for recorder in [&quick, &*slow] {
        recorder.client().close_on_signal(Duration::from_millis(within)).expect("signals");
        recorder.client().enqueue(Event::new("user.login")).await.expect("room");
    }
    println!("ready");
    let healed = Arc::clone(&slow);
    std::thread::spawn(move || {
        std::io::stdin().read_line(&mut String::new()).expect("a line");
        healed.fail_with(None);
    });
    std::future::pending().await
}
