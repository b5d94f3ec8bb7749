//! 4.1 and 4.2, `Idempotency-Key`.

use serde_json::json;

use crate::harness::*;

fn batch_once(service: &Service, key: &str, idempotency_key: &str, body: &str) -> Response {
    let authorization = bearer(key);
    let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", idempotency_key)];
    service.request("POST", "/v1/events/batch", &headers, body.as_bytes())
}

#[test]
fn the_same_key_and_body_replays_the_first_answer_and_writes_nothing() {
    let service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    first.accepted();
    service.clock.advance(5000);
    let again = service.once(&service.live, "k", LOGIN);
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn a_replay_repeats_the_receipt() {
    let service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    service.log(&service.live, LOGIN);
    let again = service.once(&service.live, "k", LOGIN);
    for name in ["sealog-chain-seq", "sealog-hash"] {
        assert!(first.header(name).is_some());
        assert_eq!(again.header(name), first.header(name));
    }
}

#[test]
fn a_replay_has_a_fresh_x_request_id() {
    let service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    let again = service.once(&service.live, "k", LOGIN);
    assert_eq!(again.json["request_id"], first.request_id());
    assert_ne!(again.request_id(), first.request_id());
}

#[test]
fn a_first_answer_is_not_marked_as_replayed() {
    let service = Service::start();
    assert_eq!(service.once(&service.live, "k", LOGIN).header("idempotency-replayed"), None);
}

#[test]
fn the_same_key_with_another_body_is_a_conflict() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service
        .once(&service.live, "k", r#"{"action":"user.logout"}"#)
        .rejected(409, "event/idempotency_key_conflict");
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn bodies_are_compared_byte_for_byte() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service
        .once(&service.live, "k", r#"{"action": "user.login"}"#)
        .rejected(409, "event/idempotency_key_conflict");
}

#[test]
fn the_endpoint_is_part_of_the_request() {
    let service = Service::start();
    // A body that both endpoints accept.
    let body = r#"{"action":"user.login","events":[{"action":"user.login"}]}"#;
    service.once(&service.live, "k", body).accepted();
    batch_once(&service, &service.live, "k", body).rejected(409, "event/idempotency_key_conflict");
}

#[test]
fn the_same_key_while_the_first_request_is_processed_is_in_flight() {
    let service = Service::start();
    service.hinge().set(Mood::Holding);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| service.once(&service.live, "k", LOGIN));
        service.hinge().wait_until_held();
        service.once(&service.live, "k", LOGIN).rejected(409, "event/idempotency_key_in_flight");
        service.hinge().release();
        let first = first.join().unwrap();
        first.accepted();
        service.hinge().set(Mood::Willing);
        assert_eq!(service.once(&service.live, "k", LOGIN).body, first.body);
    });
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn many_requests_with_one_key_at_once_store_one_event() {
    let service = Service::start();
    std::thread::scope(|scope| {
        let requests: Vec<_> =
            (0..8).map(|_| scope.spawn(|| service.once(&service.live, "k", LOGIN).status)).collect();
        for status in requests.into_iter().map(|request| request.join().unwrap()) {
            assert!(status == 202 || status == 409, "{status}");
        }
    });
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn a_key_counts_for_24_hours_and_then_is_free() {
    let service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    service.clock.set(NOON_MS + 24 * HOUR_MS - 1);
    assert_eq!(service.once(&service.live, "k", LOGIN).body, first.body);
    service.clock.set(NOON_MS + 24 * HOUR_MS);
    let fresh = service.once(&service.live, "k", r#"{"action":"user.logout"}"#);
    assert_ne!(fresh.accepted(), text(&first.json["log_id"]));
    assert_eq!(fresh.header("idempotency-replayed"), None);
    assert_eq!(service.count(&service.live), 2);
}

#[test]
fn a_replay_does_not_prolong_the_key() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service.clock.set(NOON_MS + 20 * HOUR_MS);
    assert_eq!(service.once(&service.live, "k", LOGIN).header("idempotency-replayed"), Some("true"));
    service.clock.set(NOON_MS + 24 * HOUR_MS);
    assert_eq!(service.once(&service.live, "k", LOGIN).header("idempotency-replayed"), None);
}

#[test]
fn keys_survive_a_restart() {
    let mut service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    service.restart();
    let again = service.once(&service.live, "k", LOGIN);
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
}

#[test]
fn a_rejected_request_leaves_the_key_free() {
    let service = Service::start();
    service.once(&service.live, "k", r#"{"action":"nonsense"}"#).rejected(422, "action/invalid");
    service.once(&service.live, "k", LOGIN).accepted();
}

#[test]
fn a_failed_write_leaves_the_key_free() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    service.once(&service.live, "k", LOGIN).rejected(500, "event/write_failed");
    service.hinge().set(Mood::Willing);
    assert_eq!(service.once(&service.live, "k", LOGIN).header("idempotency-replayed"), None);
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn a_key_covers_a_whole_batch() {
    let service = Service::start();
    let first = batch_once(&service, &service.live, "k", &logins(3));
    assert_eq!((first.status, first.header("sealog-chain-seq")), (202, Some("1-3")));
    let again = batch_once(&service, &service.live, "k", &logins(3));
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("sealog-chain-seq"), Some("1-3"));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(service.count(&service.live), 3);
    batch_once(&service, &service.live, "k", &logins(2)).rejected(409, "event/idempotency_key_conflict");
}

#[test]
fn keys_belong_to_a_project_and_mode_not_to_an_api_key() {
    let service = Service::start();
    let first = service.once(&service.live, "k", LOGIN);
    let second_key = service.new_key(&service.project_id, "live");
    assert_eq!(service.once(&second_key, "k", LOGIN).body, first.body);
    assert_eq!(service.once(&service.test, "k", LOGIN).header("idempotency-replayed"), None);
    let other_project = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    assert_eq!(service.once(&other_project, "k", LOGIN).header("idempotency-replayed"), None);
}

#[test]
fn a_key_has_1_to_255_characters_from_exclamation_mark_to_tilde() {
    let service = Service::start();
    for key in ["!", "~", "6f1e-\"\\,;", &"k".repeat(255)] {
        service.once(&service.live, key, LOGIN).accepted();
    }
    for key in ["", "a b", "a\tb", "é", &"k".repeat(256)] {
        let message = service.once(&service.live, key, LOGIN).rejected(422, "validation/invalid_field");
        assert!(message.starts_with("Idempotency-Key "), "{message}");
    }
}

#[test]
fn two_keys_in_one_request_are_an_invalid_field() {
    let service = Service::start();
    let authorization = bearer(&service.live);
    let headers =
        [("Authorization", authorization.as_str()), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    service
        .request("POST", "/v1/events", &headers, LOGIN.as_bytes())
        .rejected(422, "validation/invalid_field");
}

#[test]
fn keys_differ_by_case() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    assert_eq!(service.once(&service.live, "K", LOGIN).header("idempotency-replayed"), None);
}

#[test]
fn a_replay_is_answered_even_if_the_event_would_be_refused_by_now() {
    let service = Service::start();
    service.change_project(&json!({"frameworks": ["soc2"]}));
    let body = r#"{"action":"soc2.control_tested","metadata":{"control_id":"c","result":"ok"}}"#;
    let first = service.once(&service.live, "k", body);
    first.accepted();
    service.change_project(&json!({"frameworks": []}));
    assert_eq!(service.once(&service.live, "k", body).body, first.body);
}

#[test]
fn without_a_key_the_same_body_twice_is_two_events() {
    let service = Service::start();
    assert_ne!(service.log(&service.live, LOGIN), service.log(&service.live, LOGIN));
    assert_eq!(service.count(&service.live), 2);
}
