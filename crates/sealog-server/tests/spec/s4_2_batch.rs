//! 4.2 `POST /v1/events/batch`.

use serde_json::json;

use crate::harness::*;

#[test]
fn an_accepted_batch_answers_202_with_log_ids_in_the_order_of_its_events() {
    let service = Service::start();
    let body = r#"{"events":[{"action":"user.login","actor_id":"a"},{"action":"user.logout","actor_id":"b"},{"action":"user.login","actor_id":"c"}]}"#;
    let answer = service.batch(&service.live, body);
    assert_eq!(answer.status, 202);
    let log_ids: Vec<String> = answer.json["log_ids"].as_array().unwrap().iter().map(text).collect();
    assert_eq!(
        answer.body,
        format!(r#"{{"log_ids":["{}"],"request_id":"{}"}}"#, log_ids.join("\",\""), answer.request_id())
    );
    let actors = log_ids.iter().map(|log_id| text(&service.read(&service.live, log_id)["actor_id"]));
    assert_eq!(actors.collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn the_events_of_a_batch_are_contiguous_and_linked_in_the_order_sent() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    let log_ids = service.fill(&service.live, 3);
    let events: Vec<_> = log_ids.iter().map(|log_id| service.read(&service.live, log_id)).collect();
    assert_eq!(
        events.iter().map(|event| event["chain_seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        [2, 3, 4]
    );
    assert_eq!(events[1]["prev_hash"], events[0]["hash"]);
    assert_eq!(events[2]["prev_hash"], events[1]["hash"]);
    assert!(log_ids.is_sorted());
}

#[test]
fn the_receipt_has_the_first_and_last_chain_seq_and_the_last_hash() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    let answer = service.batch(&service.live, logins(3));
    assert_eq!(answer.header("sealog-chain-seq"), Some("2-4"));
    let last = service.read(&service.live, answer.json["log_ids"][2].as_str().unwrap());
    assert_eq!(answer.header("sealog-hash"), last["hash"].as_str());
}

#[test]
fn the_receipt_of_a_batch_of_one_names_its_chain_seq_twice() {
    let service = Service::start();
    assert_eq!(service.batch(&service.live, logins(1)).header("sealog-chain-seq"), Some("1-1"));
}

#[test]
fn a_batch_without_events_is_empty() {
    let service = Service::start();
    service.batch(&service.live, r#"{"events":[]}"#).rejected(400, "validation/batch_empty");
}

#[test]
fn a_batch_may_have_100_events_and_not_one_more() {
    let service = Service::start();
    service.batch(&service.live, logins(101)).rejected(400, "validation/batch_too_large");
    assert_eq!(service.count(&service.live), 0);
    let answer = service.batch(&service.live, logins(100));
    assert_eq!((answer.status, answer.header("sealog-chain-seq")), (202, Some("1-100")));
    assert_eq!(answer.json["log_ids"].as_array().unwrap().len(), 100);
}

#[test]
fn a_batch_body_may_have_2097152_bytes_and_not_one_more() {
    let service = Service::with(|setup| setup.segment_bytes = 4 << 20);
    assert_eq!(service.batch(&service.live, batch_of(2_097_152)).status, 202);
    service.batch(&service.live, batch_of(2_097_153)).rejected(413, "validation/body_too_large");
}

#[test]
fn a_body_without_an_events_array_is_invalid_json() {
    let service = Service::start();
    for body in [
        "{}",
        "[]",
        "null",
        r#"{"events":{}}"#,
        r#"{"events":null}"#,
        r#"{"events":"x"}"#,
        LOGIN,
        "{\"events\":[",
    ] {
        service.batch(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn events_that_stand_twice_are_invalid_json() {
    let service = Service::start();
    for body in [
        r#"{"events":[{"action":"user.login"}],"events":[{"action":"user.login"}]}"#,
        r#"{"events":null,"events":[{"action":"user.login"}]}"#,
    ] {
        service.batch(&service.live, body).rejected(400, "validation/invalid_json");
    }
}

#[test]
fn other_fields_beside_events_are_ignored_and_may_stand_twice() {
    let service = Service::start();
    let body = r#"{"x":1,"events":[{"action":"user.login"}],"x":2,"action":3}"#;
    assert_eq!(service.batch(&service.live, body).status, 202);
}

#[test]
fn an_input_field_twice_in_one_event_makes_the_batch_invalid_json() {
    let service = Service::start();
    let body = r#"{"events":[{"action":"nonsense"},{"action":"user.login","action":"user.login"}]}"#;
    service.batch(&service.live, body).rejected(400, "validation/invalid_json");
}

#[test]
fn a_missing_action_is_reported_with_the_index_of_the_first_offender() {
    let service = Service::start();
    for missing in ["{}", r#"{"action":null}"#, r#"{"action":""}"#] {
        let body = format!(r#"{{"events":[{LOGIN},{LOGIN},{missing},{missing}]}}"#);
        let message = service.batch(&service.live, body).rejected(422, "validation/missing_action");
        assert_eq!(message, "event[2]: action field required");
    }
}

#[test]
fn an_item_that_is_not_an_object_is_an_invalid_field() {
    let service = Service::start();
    for item in ["null", "1", r#""user.login""#, "[]"] {
        let body = format!(r#"{{"events":[{LOGIN},{item}]}}"#);
        let message = service.batch(&service.live, body).rejected(422, "validation/invalid_field");
        assert!(message.starts_with("event[1]: "), "{message}");
    }
}

#[test]
fn messages_about_fields_and_actions_begin_with_the_events_index() {
    let service = Service::start();
    for (event, status, code) in [
        (r#"{"action":"user.login","actor_id":1}"#, 422, "validation/invalid_field"),
        (r#"{"action":"nonsense"}"#, 422, "action/invalid"),
        (r#"{"action":"soc2.control_tested"}"#, 403, "action/requires_framework"),
    ] {
        let answer = service.batch(&service.live, format!(r#"{{"events":[{LOGIN},{event}]}}"#));
        let message = answer.rejected(status, code);
        assert!(message.starts_with("event[1]: "), "{message}");
    }
}

#[test]
fn if_one_event_is_wrong_nothing_is_written() {
    let service = Service::start();
    let body = format!(r#"{{"events":[{LOGIN},{LOGIN},{{"action":"nonsense"}}]}}"#);
    service.batch(&service.live, body).rejected(422, "action/invalid");
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn if_the_write_fails_nothing_of_the_batch_appears() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    service.batch(&service.live, logins(3)).rejected(500, "event/write_failed");
    service.hinge().set(Mood::Willing);
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn the_first_wrong_event_answers_whatever_is_wrong_with_it() {
    let service = Service::start();
    let body = r#"{"events":[{"action":"nonsense"},{"action":1},{}]}"#;
    let message = service.batch(&service.live, body).rejected(422, "action/invalid");
    assert!(message.starts_with("event[0]: "), "{message}");
}

#[test]
fn the_number_of_events_is_checked_before_the_events() {
    let service = Service::start();
    let events = vec!["{}"; 101].join(",");
    service
        .batch(&service.live, format!(r#"{{"events":[{events}]}}"#))
        .rejected(400, "validation/batch_too_large");
}

#[test]
fn idempotency_is_checked_before_the_number_of_events() {
    let service = Service::start();
    let send = |body: &str| {
        let headers = [("Authorization", bearer(&service.live)), ("Idempotency-Key", "k".into())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        service.request("POST", "/v1/events/batch", &headers, body.as_bytes())
    };
    assert_eq!(send(&logins(2)).status, 202);
    send(r#"{"events":[]}"#).rejected(409, "event/idempotency_key_conflict");
}

#[test]
fn an_event_of_a_batch_may_be_larger_than_a_single_one() {
    let service = Service::start();
    assert_eq!(service.batch(&service.live, batch_of(300_000)).status, 202);
}

#[test]
fn a_batch_of_custom_and_catalog_actions_is_stored_with_their_categories() {
    let service = Service::start();
    service.new_action(&json!({"action": "invoice.approved", "category": "billing"}));
    let body = format!(r#"{{"events":[{{"action":"invoice.approved"}},{LOGIN}]}}"#);
    assert_eq!(service.batch(&service.live, body).status, 202);
    assert_eq!(service.listed(&service.live, "", "category"), ["auth", "billing"]);
}
