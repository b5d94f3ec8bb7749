//! 4.5 `GET /v1/events/verify`, 2.6.

use sealog_core::canonical::{EventText, Fields};
use sealog_core::event::StoredEvent;
use sealog_core::id::{Hash, TenantId, Ulid, Uuid};
use serde_json::{Value, json};

use crate::harness::*;

#[track_caller]
fn verify(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/events/verify{query}"), &service.live).ok()
}

#[track_caller]
fn refused(service: &Service, query: &str, parameter: &str) {
    let path = format!("/v1/events/verify?{query}");
    let message = service.get(&path, &service.live).rejected(400, "read/invalid_params");
    assert!(message.contains(&format!("{parameter:?}")), "{message}");
}

fn valid(checked: u64, first_seq: u64, last_seq: u64) -> Value {
    json!({"valid": true, "checked": checked, "first_seq": first_seq, "last_seq": last_seq})
}

fn broken(checked: u64, first_seq: u64, broken_at: u64, broken_hash: &Value) -> Value {
    json!({
        "valid": false, "checked": checked, "first_seq": first_seq, "last_seq": broken_at,
        "broken_at": broken_at, "broken_hash": broken_hash,
    })
}

#[test]
fn a_sound_chain_is_valid_from_its_first_event_to_its_last() {
    let service = Service::start();
    service.fill(&service.live, 5);
    let answer = service.get("/v1/events/verify", &service.live);
    assert_eq!(answer.body, r#"{"valid":true,"checked":5,"first_seq":1,"last_seq":5}"#);
}

#[test]
fn a_window_has_both_of_its_ends() {
    let service = Service::start();
    service.fill(&service.live, 5);
    assert_eq!(verify(&service, "?from_seq=2&to_seq=4"), valid(3, 2, 4));
    assert_eq!(verify(&service, "?from_seq=4"), valid(2, 4, 5));
    assert_eq!(verify(&service, "?to_seq=2"), valid(2, 1, 2));
    assert_eq!(verify(&service, "?from_seq=5&to_seq=5"), valid(1, 5, 5));
}

#[test]
fn to_seq_defaults_to_1000_events_and_a_longer_range_is_cut_to_that() {
    let service = Service::start();
    service.fill(&service.live, 1100);
    assert_eq!(verify(&service, ""), valid(1000, 1, 1000));
    assert_eq!(verify(&service, "?from_seq=2"), valid(1000, 2, 1001));
    assert_eq!(verify(&service, "?from_seq=1&to_seq=1000"), valid(1000, 1, 1000));
    assert_eq!(verify(&service, "?from_seq=1&to_seq=1001"), valid(1000, 1, 1000));
    assert_eq!(verify(&service, "?from_seq=1001"), valid(100, 1001, 1100));
}

#[test]
fn a_range_past_the_head_is_cut_to_the_head() {
    let service = Service::start();
    service.fill(&service.live, 3);
    assert_eq!(verify(&service, "?to_seq=4"), valid(3, 1, 3));
    for to_seq in ["9223372036854775808", "99999999999999999999999999999999999999999999"] {
        assert_eq!(verify(&service, &format!("?to_seq={to_seq}")), valid(3, 1, 3));
    }
}

#[test]
fn nothing_in_the_range_is_valid_with_nothing_checked() {
    let service = Service::start();
    assert_eq!(verify(&service, ""), valid(0, 1, 0));
    service.fill(&service.live, 3);
    assert_eq!(verify(&service, "?from_seq=4"), valid(0, 4, 3));
    assert_eq!(
        verify(&service, "?from_seq=9223372036854775807"),
        valid(0, 9_223_372_036_854_775_807, 9_223_372_036_854_775_806)
    );
}

#[test]
fn from_seq_below_1_or_past_2_to_the_63_is_invalid() {
    let service = Service::start();
    for from_seq in ["0", "-1", "9223372036854775808", "99999999999999999999999999999999999999999999"] {
        refused(&service, &format!("from_seq={from_seq}"), "from_seq");
    }
}

#[test]
fn to_seq_below_from_seq_is_invalid() {
    let service = Service::start();
    service.fill(&service.live, 3);
    refused(&service, "from_seq=3&to_seq=2", "to_seq");
    refused(&service, "to_seq=0", "to_seq");
    refused(&service, "to_seq=-5", "to_seq");
    assert_eq!(verify(&service, "?from_seq=3&to_seq=3"), valid(1, 3, 3));
}

#[test]
fn a_parameter_that_is_no_integer_unknown_repeated_or_badly_encoded_is_invalid() {
    let service = Service::start();
    for value in ["x", "", "1.0", "1e3", "%31%", "+1"] {
        refused(&service, &format!("from_seq={value}"), "from_seq");
        refused(&service, &format!("to_seq={value}"), "to_seq");
    }
    refused(&service, "from_seq=1&from_seq=1", "from_seq");
    refused(&service, "limit=1", "limit");
    refused(&service, "x=abc", "x");
}

#[test]
fn there_is_no_request_id_in_the_body() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    assert_eq!(verify(&service, "").get("request_id"), None);
}

type Change = fn(&mut StoredEvent);

/// What the live chain of a fresh service says when what a verification reads of event 3 of 5 was changed.
fn tampered(change: Change) -> (Value, Vec<Value>) {
    let service = Service::start();
    let log_ids = service.fill(&service.live, 5);
    let events = log_ids.iter().map(|log_id| service.read(&service.live, log_id)).collect();
    service.hinge().set(Mood::Tampered(3, change));
    (verify(&service, ""), events)
}

fn with_fields(event: &mut StoredEvent, change: fn(Fields<'_>) -> Fields<'_>) {
    let text = event.text.clone();
    event.text = EventText::new(change(text.fields()));
}

#[test]
fn an_event_whose_hashed_content_was_changed_is_broken_at_its_chain_seq() {
    let changes: [(&str, Change); 6] = [
        ("action", |event| with_fields(event, |fields| Fields { action: "\"user.logout\"", ..fields })),
        ("actor_id", |event| with_fields(event, |fields| Fields { actor_id: Some("\"eve\""), ..fields })),
        ("resource", |event| with_fields(event, |fields| Fields { resource: Some("\"r\""), ..fields })),
        ("metadata", |event| with_fields(event, |fields| Fields { metadata: Some("{}"), ..fields })),
        ("timestamp", |event| event.timestamp_ms += 1),
        ("tenant_id", |event| event.tenant_id = TenantId(Uuid([9; 16]))),
    ];
    for (field, change) in changes {
        let (verdict, events) = tampered(change);
        assert_eq!(verdict, broken(3, 1, 3, &events[2]["hash"]), "{field}");
    }
}

#[test]
fn a_changed_log_id_hash_or_prev_hash_is_broken_at_its_chain_seq() {
    let changes: [(&str, Change); 3] = [
        ("log_id", |event| event.sealed.log_id = Ulid(event.sealed.log_id.0 + 1)),
        ("prev_hash", |event| event.sealed.prev_hash = Hash::ZERO),
        ("hash", |event| event.sealed.hash = Hash::ZERO),
    ];
    for (field, change) in changes {
        let (verdict, events) = tampered(change);
        let hash = if field == "hash" { &json!(ZEROS) } else { &events[2]["hash"] };
        assert_eq!(verdict, broken(3, 1, 3, hash), "{field}");
    }
}

#[test]
fn fields_outside_the_hash_may_change() {
    let (verdict, _) = tampered(|event| {
        event.annotations.country = Some("CH".into());
        event.annotations.city = Some("Bern".into());
        event.annotations.ip_address = None;
        event.annotations.category = Some("other".into());
        event.annotations.severity = None;
        event.annotations.session_id = Some("s".into());
        event.annotations.actor_type = Some("t".into());
        event.annotations.resource_type = Some("t".into());
        event.annotations.ts_client = Some("2026-01-01T00:00:00Z".into());
    });
    assert_eq!(verdict, valid(5, 1, 5));
}

#[test]
fn the_first_event_of_a_window_is_checked_against_the_one_before_it() {
    let service = Service::start();
    let log_ids = service.fill(&service.live, 5);
    let fourth = service.read(&service.live, &log_ids[3]);
    service.hinge().set(Mood::Tampered(3, |event| event.sealed.hash = Hash::ZERO));
    assert_eq!(verify(&service, "?from_seq=4"), broken(1, 4, 4, &fourth["hash"]));
    assert_eq!(verify(&service, "?from_seq=5"), valid(1, 5, 5));
}

#[test]
fn the_first_event_of_a_chain_must_link_to_64_zeros() {
    let service = Service::start();
    let first = service.stored(&service.live, LOGIN);
    assert_eq!(first["prev_hash"], ZEROS);
    service.hinge().set(Mood::Tampered(1, |event| event.sealed.prev_hash = Hash([1; 32])));
    assert_eq!(verify(&service, ""), broken(1, 1, 1, &first["hash"]));
}

#[test]
fn a_last_event_that_was_rewritten_with_its_hash_differs_from_the_recorded_head() {
    let service = Service::start();
    service.fill(&service.live, 3);
    service.hinge().set(Mood::Tampered(3, |event| {
        with_fields(event, |fields| Fields { actor_id: Some("\"eve\""), ..fields });
        let sealed = &mut event.sealed;
        sealed.hash =
            sealed_again(sealed.prev_hash, sealed.log_id, event.tenant_id, &event.text, event.timestamp_ms);
    }));
    let verdict = verify(&service, "");
    assert_eq!((&verdict["valid"], &verdict["broken_at"]), (&json!(false), &json!(3)));
}

fn sealed_again(
    prev_hash: Hash,
    log_id: Ulid,
    tenant_id: TenantId,
    text: &EventText,
    timestamp_ms: u64,
) -> Hash {
    sealog_core::canonical::hash(prev_hash, log_id, tenant_id, text.as_str(), timestamp_ms)
}

#[test]
fn verification_stops_at_the_first_broken_event() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let log_ids = service.fill(&service.live, 1000);
    let next = service.read(&service.live, &log_ids[7]);
    service.stop();
    service.home().damage("u7");
    service.home().damage("u50");
    service.resume();
    assert_eq!(verify(&service, ""), broken(7, 1, 7, &next["prev_hash"]));
}

#[test]
fn a_damaged_record_is_broken_at_its_chain_seq_with_the_hash_that_the_next_event_names() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let log_ids = service.fill(&service.live, 1000);
    let damaged = service.read(&service.live, &log_ids[6]);
    service.stop();
    service.home().damage("u7");
    service.resume();
    assert_eq!(verify(&service, ""), broken(7, 1, 7, &damaged["hash"]));
    assert_eq!(verify(&service, "?from_seq=3&to_seq=7"), broken(5, 3, 7, &damaged["hash"]));
    assert_eq!(verify(&service, "?to_seq=6"), valid(6, 1, 6));
    assert_eq!(verify(&service, "?from_seq=8&to_seq=20"), valid(13, 8, 20));
}

#[test]
fn a_damaged_last_record_is_broken_at_its_chain_seq_with_the_recorded_heads_hash() {
    let mut service = Service::start();
    service.fill(&service.live, 39);
    let log_id = service.log(&service.live, r#"{"action":"user.login","actor_id":"the-last-one"}"#);
    let head = service.read(&service.live, &log_id);
    service.stop();
    service.home().damage("the-last-one");
    service.resume();
    assert_eq!(verify(&service, ""), broken(40, 1, 40, &head["hash"]));
    assert_eq!(verify(&service, "?to_seq=39"), valid(39, 1, 39));
}

#[test]
fn missing_events_are_broken_at_the_next_one_that_exists_even_past_the_window() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let log_ids = service.fill(&service.live, 1000);
    service.stop();
    let (first_lost, next) = service.home().lose_middle();
    service.resume();
    let hash = service.read(&service.live, &log_ids[usize::try_from(next).unwrap() - 1])["hash"].clone();
    assert_eq!(verify(&service, ""), broken(first_lost, 1, next, &hash));
    let inside = format!("?from_seq={}&to_seq={first_lost}", first_lost - 1);
    assert_eq!(verify(&service, &inside), broken(2, first_lost - 1, next, &hash));
    assert_eq!(
        verify(&service, &format!("?to_seq={}", first_lost - 1)),
        valid(first_lost - 1, 1, first_lost - 1)
    );
}

#[test]
fn a_missing_tail_is_broken_at_the_first_missing_chain_seq_with_the_recorded_heads_hash() {
    let mut service = Service::start();
    service.log(&service.live, LOGIN);
    service.restart();
    let log_ids = service.fill(&service.live, 40);
    let head = service.read(&service.live, &log_ids[39]);
    service.stop();
    service.home().lose_tail();
    service.resume();
    assert_eq!(verify(&service, ""), broken(1, 1, 2, &head["hash"]));
    // Inside the missing tail, where the window begins is itself the break.
    assert_eq!(verify(&service, "?from_seq=17&to_seq=30"), broken(0, 17, 17, &head["hash"]));
}

#[test]
fn nothing_is_sealed_on_top_of_a_missing_tail() {
    let mut service = Service::start();
    service.log(&service.live, LOGIN);
    service.restart();
    service.fill(&service.live, 40);
    service.stop();
    service.home().lose_tail();
    service.resume();
    service.event(&service.live, LOGIN).rejected(500, "event/write_failed");
}

#[test]
fn a_store_that_cannot_answer_is_query_failed() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    service.hinge().set(Mood::ReadsFail);
    service.get("/v1/events/verify", &service.live).rejected(500, "read/query_failed");
}

#[test]
fn a_key_is_needed() {
    let service = Service::start();
    service.request("GET", "/v1/events/verify?x=1", &[], b"").rejected(401, "auth/missing_header");
    service.get("/v1/events/verify", "at_live_unknown").rejected(401, "auth/key_not_found");
}

#[test]
fn a_test_chain_whose_oldest_events_were_dropped_is_verified_from_its_first_kept_one() {
    let service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let log_ids = service.fill(&service.test, 1500);
    service.fill(&service.live, 300);
    let verify = |query: &str| service.get(&format!("/v1/events/verify{query}"), &service.test).ok();
    // A segment goes once its index and the mark are on disk.
    sealog_testing::eventually("something is dropped", || {
        while wait(sealog_store::Store::drop_test_events(service.hinge(), u64::MAX >> 8)).unwrap().more {}
        verify("")["first_seq"] != 1
    });
    let first = verify("")["first_seq"].as_u64().unwrap();
    assert!((2..=1500).contains(&first), "{first}");
    let last = 1500.min(first + 999);
    assert_eq!(verify(""), valid(last + 1 - first, first, last));
    assert_eq!(verify("?from_seq=1&to_seq=1500")["first_seq"], first);
    assert_eq!(verify("?from_seq=1&to_seq=1"), valid(1, first, first));
    let dropped = format!("/v1/events/{}", log_ids[0]);
    service.get(&dropped, &service.test).rejected(404, "read/not_found");
    // A list ends with the first kept event.
    let (mut cursor, mut seqs) = (String::new(), Vec::new());
    loop {
        let page = service.get(&format!("/v1/events?limit=100{cursor}"), &service.test).ok();
        let events = page["events"].as_array().unwrap();
        seqs.extend(events.iter().map(|event| event["chain_seq"].as_u64().unwrap()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seqs, (first..=1500).rev().collect::<Vec<_>>());
    assert_eq!(
        service.get("/v1/events/verify", &service.live).ok(),
        valid(300, 1, 300),
        "live chains are left alone"
    );
}
