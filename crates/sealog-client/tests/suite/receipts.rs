use std::io::Write;

use sealog_client::testing::Recorder;
use sealog_client::{Event, Kind, Options, verify_events};

use crate::{PATIENCE, options};

#[tokio::test(flavor = "current_thread")]
async fn receipts_in_memory_are_the_newest_ten_thousand_and_an_audit_counts_the_others() {
    let recorder = Recorder::with(Options { queue_max_events: 20_000, ..options() });
    for _ in 0..10_003 {
        recorder.client().enqueue(Event::new("a")).await.unwrap();
    }
    assert_eq!(recorder.client().flush(PATIENCE).await, 0);
    // A recorder has no events to read, so each one is missing.
    let audit = recorder.client().audit().await.unwrap();
    assert_eq!((audit.checked, audit.missing.len(), audit.dropped), (10_000, 10_000, 3));
    assert_eq!(audit.missing[0], format!("{:026}", 4));
    assert!(!audit.all_there());
}

#[tokio::test(flavor = "current_thread")]
async fn an_interrupted_line_in_the_file_of_receipts_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipts.jsonl");
    let recorder = Recorder::with(Options { receipts: Some(path.clone()), ..options() });
    recorder.client().log(Event::new("a")).await.unwrap();
    let line = std::fs::read_to_string(&path).unwrap();
    assert!(line.starts_with(r#"{"log_id":"00000000000000000000000001","chain_seq":1,"hash":""#), "{line}");
    assert!(line.ends_with("\"request_id\":\"req_recorder\"}\n"), "{line}");
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"log_id\":\"0000\n").unwrap();
    recorder.client().log(Event::new("a")).await.unwrap();
    assert_eq!(recorder.client().audit().await.unwrap().checked, 2);
}

#[test]
fn a_text_that_is_no_json_is_an_error_and_not_a_verdict() {
    let error = verify_events(["{\"log_id\":"], &[]).unwrap_err();
    assert_eq!((error.kind, error.field.as_deref()), (Kind::Validation, Some("event")));
    let result = verify_events(["{}"], &[]).unwrap();
    assert_eq!((result.valid, result.reason), (false, Some("malformed")));
    for head in ["", "1", "0:ab", "1:AB", &format!("01:{}", "a".repeat(64))] {
        assert!(head.parse::<sealog_client::Head>().is_err(), "{head}");
    }
}
