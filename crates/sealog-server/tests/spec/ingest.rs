//! Adapters for shippers, `/ingest/…`: each item by itself, through the same validation, keys and limits as
//! `/v1`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Value, json};

use crate::harness::*;

const JSON: &str = "/ingest/json";
const CLOUD: &str = "/ingest/cloudevents";
const LOGS: &str = "/ingest/otlp/v1/logs";

/// Accepted, rejected, and for each item whether it is stored.
fn fates(answer: &Response) -> (u64, u64, Vec<bool>) {
    let ids = answer.json["log_ids"].as_array().unwrap_or_else(|| panic!("{}", answer.body));
    let count = |name: &str| answer.json[name].as_u64().unwrap();
    (count("accepted"), count("rejected"), ids.iter().map(Value::is_string).collect())
}

fn actions(service: &Service) -> Vec<String> {
    service.listed(&service.live, "?limit=100", "action").iter().rev().map(text).collect()
}

fn keyed(service: &Service, path: &str, key: &str, body: &str) -> Response {
    keyed_by(service, &service.live, path, key, body)
}

fn keyed_by(service: &Service, api_key: &str, path: &str, key: &str, body: &str) -> Response {
    let headers = [("Authorization", bearer(api_key)), ("Idempotency-Key", key.to_owned())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    service.request("POST", path, &headers, body.as_bytes())
}

/// The code of a refusal that describes its items.
#[track_caller]
fn refused(answer: &Response, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.json["error"]["code"]), (status, &json!(code)), "{}", answer.body);
    assert_eq!(answer.json["error"]["items"][0]["code"], code);
}

fn record(action: &str) -> Value {
    let attributes = json!([{ "key": "audit.action", "value": { "stringValue": action } }, { "key": "audit.actor", "value": { "stringValue": "u-17" } }]);
    json!({ "timeUnixNano": "1794657601250000000", "attributes": attributes })
}

fn logs(actions: &[&str]) -> String {
    let records: Vec<Value> = actions.iter().map(|action| record(action)).collect();
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": records }] }] }).to_string()
}

#[test]
fn an_array_and_lines_are_stored_in_their_order() {
    let service = Service::start();
    let answer = service.post(JSON, &service.live, r#"[{"action":"user.login"},{"action":"user.logout"}]"#);
    assert_eq!((answer.status, fates(&answer)), (202, (2, 0, vec![true, true])));
    let answer =
        service.post(JSON, &service.live, "{\"action\":\"user.created\"}\n\n{\"action\":\"user.deleted\"}\n");
    assert_eq!((answer.status, fates(&answer)), (202, (2, 0, vec![true, true])));
    assert_eq!(actions(&service), ["user.login", "user.logout", "user.created", "user.deleted"]);
    let log_id = text(&answer.json["log_ids"][1]);
    assert_eq!(service.read(&service.live, &log_id)["action"], "user.deleted");
}

#[test]
fn a_bad_item_is_named_and_the_others_are_stored() {
    let service = Service::start();
    let body = r#"[{"action":"user.login"},{"action":"user.logn"},{"actor_id":"x"},7,{"action":"user.login","actor_id":1},{"action":"hipaa.phi_accessed"},{"action":"user.logout"}]"#;
    let answer = service.post(JSON, &service.live, body);
    assert_eq!(
        (answer.status, fates(&answer)),
        (202, (2, 5, vec![true, false, false, false, false, false, true]))
    );
    let errors = answer.json["errors"].as_array().unwrap();
    let told: Vec<(u64, String)> =
        errors.iter().map(|error| (error["index"].as_u64().unwrap(), text(&error["code"]))).collect();
    let expected = [
        (1, "action/invalid"),
        (2, "validation/missing_action"),
        (3, "validation/invalid_field"),
        (4, "validation/invalid_field"),
        (5, "action/requires_framework"),
    ];
    assert_eq!(told, expected.map(|(index, code)| (index, code.to_owned())));
    assert_eq!(errors[0]["suggestion"], "user.login");
    assert_eq!(errors[0]["doc_url"], format!("{BASE_URL}/docs/errors/action/invalid"));
    assert_eq!(actions(&service), ["user.login", "user.logout"]);
    assert_eq!(service.get("/v1/events/verify", &service.live).ok()["valid"], true);
}

#[test]
fn where_no_item_can_be_stored_the_first_ones_code_answers_with_all_of_them() {
    let service = Service::start();
    let answer = service.post(JSON, &service.live, r#"[{"actor_id":"x"},{"action":"nonsense"}]"#);
    assert_eq!((answer.status, &answer.json["error"]["code"]), (422, &json!("validation/missing_action")));
    assert_eq!(answer.json["error"]["message"], "item[0]: action field required");
    let items = answer.json["error"]["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[1]["index"], &items[1]["code"]),
        (2, &json!(1), &json!("action/invalid"))
    );
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn more_than_100_items_are_split_and_101_batches_are_too_many() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let body = |count: usize| vec![LOGIN; count].join("\n");
    let answer = service.post(JSON, &service.live, body(250));
    let (accepted, rejected, stored) = fates(&answer);
    assert_eq!((answer.status, accepted, rejected, stored.len()), (202, 250, 0, 250));
    assert_eq!(service.count(&service.live), 250);
    let message = service.post(JSON, &service.live, body(10_001)).rejected(400, "validation/batch_too_large");
    assert!(message.contains("10000"), "{message}");
    service.post(JSON, &service.live, "[]").rejected(400, "validation/batch_empty");
    assert_eq!(service.count(&service.live), 250);
}

#[test]
fn an_answer_describes_at_most_100_errors_and_says_of_every_item_whether_it_is_stored() {
    let service = Service::start();
    let body = format!("{}\n{LOGIN}", vec![r#"{"action":"nonsense"}"#; 300].join("\n"));
    let answer = service.post(JSON, &service.live, body);
    let (accepted, rejected, stored) = fates(&answer);
    assert_eq!((accepted, rejected, stored.len(), stored[300]), (1, 300, 301, true));
    assert_eq!(answer.json["errors"].as_array().unwrap().len(), 100);
}

#[test]
fn a_request_with_a_key_is_stored_once_also_beyond_one_batch() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let body = format!("{}\n{{\"action\":\"nonsense\"}}", vec![LOGIN; 150].join("\n"));
    let first = keyed(&service, JSON, "k", &body);
    assert_eq!((first.status, first.header("idempotency-replayed")), (202, None));
    let again = keyed(&service, JSON, "k", &body);
    assert_eq!((again.status, again.header("idempotency-replayed")), (202, Some("true")));
    assert_eq!(again.json["log_ids"], first.json["log_ids"]);
    assert_eq!(service.count(&service.live), 150);
    keyed(&service, JSON, "k", LOGIN).rejected(409, "event/idempotency_key_conflict");
    refused(&keyed(&service, CLOUD, "k", &body), 422, "validation/invalid_field");
    let event = [("Authorization", bearer(&service.live)), ("Idempotency-Key", "k".to_owned())];
    let event: Vec<(&str, &str)> = event.iter().map(|(name, value)| (*name, value.as_str())).collect();
    service
        .request("POST", "/v1/events", &event, LOGIN.as_bytes())
        .rejected(409, "event/idempotency_key_conflict");
    keyed(&service, JSON, "a b", LOGIN).rejected(422, "validation/invalid_field");
    assert_eq!(service.count(&service.live), 150);
}

/// An item that was refused can be accepted the second time: which log_id is whose would be a guess.
#[test]
fn a_key_whose_items_are_accepted_differently_now_is_a_conflict() {
    let service = Service::start();
    let body = format!("{LOGIN}\n{{\"action\":\"invoice.sent\"}}");
    assert_eq!(fates(&keyed(&service, JSON, "k", &body)), (1, 1, vec![true, false]));
    service.new_action(&json!({ "action": "invoice.sent" }));
    keyed(&service, JSON, "k", &body).rejected(409, "event/idempotency_key_conflict");
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn a_store_that_fails_stores_nothing_and_says_so() {
    let service = Service::start();
    service.hinge().set(Mood::WritesFail);
    service.post(JSON, &service.live, LOGIN).rejected(500, "event/write_failed");
    // Exporters of OpenTelemetry try again at a 503 alone.
    let answer = service.post(LOGS, &service.live, logs(&["user.login"]));
    assert_eq!((answer.status, &answer.json["error"]["code"]), (503, &json!("event/write_failed")));
    service.hinge().set(Mood::Willing);
    assert_eq!(service.count(&service.live), 0);
}

/// Actors of what the chain has, by `log_id`; each event stands once in it.
fn actors(service: &Service) -> BTreeMap<String, String> {
    let (mut actors, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = service.get(&format!("/v1/events?limit=100{cursor}"), &service.live).ok();
        for event in page["events"].as_array().unwrap() {
            let before = actors.insert(text(&event["log_id"]), text(&event["actor_id"]));
            assert_eq!(before, None, "{event}");
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(service.count(&service.live), actors.len() as u64, "every event is in the chain");
    actors
}

/// Items of which each has its place as the actor, and those that are named an action that nobody knows.
fn numbered(path: &str, items: Range<usize>, bad: &[usize]) -> String {
    let action = |n: usize| if bad.contains(&n) { "nonsense" } else { "user.login" };
    let of = |n: usize| match path {
        JSON => json!({ "action": action(n), "actor_id": format!("u{n}") }),
        CLOUD => {
            json!({ "specversion": "1.0", "id": format!("{n}"), "source": "/shop", "type": action(n), "authid": format!("u{n}") })
        }
        _ => {
            let mut record = record(action(n));
            record["attributes"][1]["value"]["stringValue"] = format!("u{n}").into();
            record
        }
    };
    let items: Vec<Value> = items.map(of).collect();
    match path {
        LOGS => json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": items }] }] }).to_string(),
        _ => json!(items).to_string(),
    }
}

/// What an answer says is stored, by the place of the item.
fn stored(log_ids: &Value) -> BTreeMap<String, String> {
    let log_ids = log_ids.as_array().unwrap().iter().enumerate();
    log_ids.filter(|(_, id)| id.is_string()).map(|(n, id)| (text(id), format!("u{n}"))).collect()
}

/// Items that are refused, wherever the request ends: in the first batch, in the one that fails, and behind
/// it.
const BAD: [usize; 3] = [3, 100, 230];

/// An error in the middle of a request: which items are stored, which are refused, and where to go on.
#[track_caller]
fn cut_short(path: &str, answer: &Response) -> Value {
    let error = answer.json["error"].clone();
    let status = if path == LOGS { 503 } else { 500 };
    assert_eq!(
        (answer.status, &error["code"]),
        (status, &json!("event/write_failed")),
        "{path}: {}",
        answer.body
    );
    let refused: Vec<u64> =
        error["items"].as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect();
    assert_eq!(refused, BAD.map(|index| index as u64), "{path}");
    assert_eq!((&error["retry_from"], &error["untried_from"]), (&json!(101), &json!(200)), "{path}");
    assert!(text(&error["message"]).contains("Stored 99 of 250 items"), "{error}");
    let expected: Vec<bool> = (0..250).map(|n| n < 100 && n != 3).collect();
    let told: Vec<bool> = error["log_ids"].as_array().unwrap().iter().map(Value::is_string).collect();
    assert_eq!(told, expected, "{path}");
    error
}

#[test]
fn a_disk_that_is_full_in_the_middle_is_told_item_by_item_and_the_same_key_stores_the_rest_once() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let mut before = BTreeMap::new();
    for path in [JSON, CLOUD, LOGS] {
        let body = numbered(path, 0..250, &BAD);
        service.hinge().set(Mood::NoRoomAfter(1));
        let answer = keyed(&service, path, path, &body);
        let error = cut_short(path, &answer);
        assert!(text(&error["message"]).contains("same Idempotency-Key"), "{error}");
        let first = stored(&error["log_ids"]);
        let now = |mut more: BTreeMap<String, String>| {
            more.extend(before.clone());
            more
        };
        assert_eq!(actors(&service), now(first.clone()), "{path}: what is acknowledged, and nothing else");
        // As long as it lasts, nothing changes.
        service.hinge().set(Mood::NoRoomAfter(0));
        assert_eq!(cut_short(path, &keyed(&service, path, path, &body))["log_ids"], error["log_ids"]);
        service.hinge().set(Mood::Willing);
        let again = keyed(&service, path, path, &body);
        let expected: Vec<bool> = (0..250).map(|n| !BAD.contains(&n)).collect();
        assert_eq!(fates(&again), (247, 3, expected), "{path}");
        assert_eq!(again.header("idempotency-replayed"), None, "{path}: a part of it is new");
        let all = stored(&again.json["log_ids"]);
        assert!(first.iter().all(|(log_id, actor)| all.get(log_id) == Some(actor)), "{path}");
        assert_eq!(actors(&service), now(all.clone()), "{path}");
        let replayed = keyed(&service, path, path, &body);
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"), "{path}");
        assert_eq!(replayed.json["log_ids"], again.json["log_ids"], "{path}");
        before = now(all);
        assert_eq!(actors(&service), before, "{path}");
    }
}

/// A database that is gone after its commit has stored the batch, and nobody knows.
#[test]
fn a_batch_whose_outcome_is_unknown_is_named_and_the_same_key_finds_it() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let mut before = BTreeMap::new();
    for path in [JSON, CLOUD, LOGS] {
        let body = numbered(path, 0..250, &BAD);
        service.hinge().set(Mood::AnswersLostAfter(1));
        let error = cut_short(path, &keyed(&service, path, path, &body));
        service.hinge().set(Mood::Willing);
        let mut there = actors(&service);
        there.retain(|log_id, _| !before.contains_key(log_id));
        let expected: BTreeSet<String> =
            (0..200).filter(|n| !BAD.contains(n)).map(|n| format!("u{n}")).collect();
        assert_eq!(there.values().cloned().collect::<BTreeSet<_>>(), expected, "{path}");
        let told = stored(&error["log_ids"]);
        assert!(told.iter().all(|(log_id, actor)| there.get(log_id) == Some(actor)), "{path}");
        let again = keyed(&service, path, path, &body);
        let all = stored(&again.json["log_ids"]);
        assert_eq!(all.len(), 247, "{path}");
        assert!(there.iter().all(|(log_id, actor)| all.get(log_id) == Some(actor)), "{path}");
        before.extend(all);
        assert_eq!(actors(&service), before, "{path}");
    }
}

#[test]
fn without_a_key_the_items_from_the_first_undecided_one_on_can_be_sent_again() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    for (path, at) in [(JSON, 0), (CLOUD, 1), (LOGS, 2)] {
        service.hinge().set(Mood::NoRoomAfter(1));
        let error = cut_short(path, &service.post(path, &service.live, numbered(path, 0..250, &BAD)));
        let message = text(&error["message"]);
        assert!(message.contains("from 101 on") && message.contains("before 200"), "{message}");
        service.hinge().set(Mood::Willing);
        let rest = service.post(path, &service.live, numbered(path, 101..250, &BAD));
        assert_eq!((&rest.json["accepted"], &rest.json["rejected"]), (&json!(148), &json!(1)), "{path}");
        let mut actors: Vec<String> = actors(&service).into_values().skip(at * 247).collect();
        actors.sort();
        let mut expected: Vec<String> =
            (0..250).filter(|n| !BAD.contains(n)).map(|n| format!("u{n}")).collect();
        expected.sort();
        assert_eq!(actors, expected, "{path}: each once");
    }
}

#[test]
fn a_store_that_fails_at_the_first_batch_has_stored_nothing_and_has_nothing_to_tell_apart() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    service.hinge().set(Mood::NoRoomAfter(0));
    // All of the first batch is refused, so the store is asked for the second one first.
    let bad: Vec<usize> = (0..100).collect();
    for body in [numbered(JSON, 0..250, &[]), numbered(JSON, 0..250, &bad)] {
        keyed(&service, JSON, "k", &body).rejected(500, "event/write_failed");
    }
    service.hinge().set(Mood::Willing);
    assert_eq!(service.count(&service.live), 0);
}

/// What is stored under the key of a later batch can differ although the first one's is the same: to send it
/// again would not help.
#[test]
fn a_conflict_in_the_middle_names_what_is_stored_and_promises_nothing() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let mut items: Vec<Value> =
        (0..150).map(|n| json!({ "action": "user.login", "actor_id": format!("u{n}") })).collect();
    items[120]["action"] = "invoice.sent".into();
    let body = json!(items).to_string();
    let first = keyed(&service, JSON, "k", &body);
    assert_eq!((&first.json["accepted"], &first.json["rejected"]), (&json!(149), &json!(1)));
    service.new_action(&json!({ "action": "invoice.sent" }));
    let answer = keyed(&service, JSON, "k", &body);
    let error = &answer.json["error"];
    assert_eq!((answer.status, &error["code"]), (409, &json!("event/idempotency_key_conflict")));
    assert_eq!((&error["retry_from"], &error["untried_from"]), (&json!(100), &json!(150)));
    let first = first.json["log_ids"].as_array().unwrap();
    assert_eq!(error["log_ids"].as_array().unwrap()[..100], first[..100]);
    assert!(!text(&error["message"]).contains("to store the others"), "{error}");
    assert_eq!(service.count(&service.live), 149);
}

#[test]
fn a_request_is_charged_for_all_of_its_batches_before_the_first_is_stored() {
    let service = Service::with(|setup| {
        setup.config.limits.test_rps = 4;
        setup.segment_bytes = 8 << 20;
    });
    let post = || keyed_by(&service, &service.test, JSON, "k", &numbered(JSON, 0..500, &[]));
    service.hinge().set(Mood::NoRoomAfter(1));
    assert_eq!(post().status, 500);
    service.hinge().set(Mood::Willing);
    post().rejected(429, "rate/test_limit_exceeded");
    // The fifth batch is counted in the next second, which has room for one more request, however large.
    service.clock.advance(1000);
    let again = post();
    assert_eq!((again.status, &again.json["accepted"]), (202, &json!(500)));
    post().rejected(429, "rate/test_limit_exceeded");
    service.clock.advance(1000);
    assert_eq!(post().json["log_ids"], again.json["log_ids"]);
    service.clock.advance(5000);
    assert_eq!(service.count(&service.test), 500);
}

/// 250,000 events were stored where 21,000 were allowed.
#[test]
fn requests_that_come_together_store_no_more_than_one_of_them_beyond_the_rate() {
    const CLIENTS: usize = 8;
    let service = Service::with(|setup| {
        setup.config.limits.test_rps = 10;
        setup.segment_bytes = 8 << 20;
    });
    let body = vec![LOGIN; 1000].join("\n");
    let post = || service.post(JSON, &service.test, body.clone()).status;
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(post)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 202).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), CLIENTS - 1);
    service.clock.advance(10_000);
    assert_eq!(service.count(&service.test), 1000);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn encoded(service: &Service, path: &str, encoding: &str, body: &[u8]) -> Response {
    let authorization = bearer(&service.live);
    service.request("POST", path, &[("Authorization", &authorization), ("Content-Encoding", encoding)], body)
}

#[test]
fn a_gzip_is_taken_and_any_other_encoding_is_not() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let event = json!({"specversion": "1.0", "id": "1", "source": "/x", "type": "user.login"}).to_string();
    for (path, body, status) in
        [(JSON, LOGIN.to_owned(), 202), (CLOUD, event, 202), (LOGS, logs(&["user.login"]), 200)]
    {
        for encoding in ["gzip", "GZIP", "identity, gzip"] {
            let answer = encoded(&service, path, encoding, &gzip(body.as_bytes()));
            assert_eq!((answer.status, fates(&answer)), (status, (1, 0, vec![true])), "{}", answer.body);
        }
        for encoding in ["br", "deflate", "gzip, gzip", "gzip, br", "zstd"] {
            encoded(&service, path, encoding, &gzip(body.as_bytes()))
                .rejected(415, "request/unsupported_encoding");
        }
        let whole = gzip(body.as_bytes());
        let followed = [&whole[..], &gzip(b"")].concat();
        for broken in [&whole[..whole.len() - 1], &followed, b"x", b""] {
            encoded(&service, path, "gzip", broken).rejected(400, "validation/invalid_json");
        }
    }
    assert_eq!(service.count(&service.live), 9);
}

#[test]
fn a_gzip_is_cut_at_the_limit_of_what_it_becomes() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let at_limit = format!("{LOGIN}{}", " ".repeat((2 << 20) - LOGIN.len()));
    assert_eq!(encoded(&service, JSON, "gzip", &gzip(at_limit.as_bytes())).status, 202);
    let beyond = gzip(format!("{at_limit} ").as_bytes());
    encoded(&service, JSON, "gzip", &beyond).rejected(413, "validation/body_too_large");
    let bomb = gzip(&vec![b' '; 100 << 20]);
    assert!(bomb.len() < 2 << 20);
    encoded(&service, JSON, "gzip", &bomb).rejected(413, "validation/body_too_large");
    // What comes behind the limit is not looked at, so that it may be as broken as it likes.
    encoded(&service, JSON, "gzip", &bomb[..bomb.len() / 2]).rejected(413, "validation/body_too_large");
}

fn binary(service: &Service, headers: &[(&str, &str)], body: &[u8]) -> Response {
    let authorization = bearer(&service.live);
    let headers = [&[("Authorization", &*authorization), ("ce-specversion", "1.0")], headers].concat();
    service.request("POST", CLOUD, &headers, body)
}

#[test]
fn a_cloudevent_in_binary_mode_is_one_event() {
    let service = Service::start();
    let required = [("ce-id", "7"), ("ce-source", "/app"), ("ce-type", "dev.sealog.user.login")];
    let with = |more: &[(&'static str, &'static str)]| [&required[..], more].concat();
    let answer = binary(
        &service,
        &with(&[
            ("ce-auditactor", "\"J%C3%BCrgen \\\"J\\\" 100%25\""),
            ("Content-Type", "application/json; charset=utf-8"),
        ]),
        br#"{"a": [1.0, {"b": null}]}"#,
    );
    assert_eq!((answer.status, fates(&answer)), (202, (1, 0, vec![true])), "{}", answer.body);
    let stored = service.read(&service.live, &text(&answer.json["log_ids"][0]));
    assert_eq!(
        (&stored["action"], &stored["actor_id"]),
        (&json!("user.login"), &json!("J\u{fc}rgen \"J\" 100%"))
    );
    let about = json!({"id": "7", "source": "/app", "type": "dev.sealog.user.login"});
    assert_eq!(stored["metadata"], json!({"a": [1.0, {"b": null}], "cloudevent": about}));
    for content_type in ["application/x+json", "text/json"] {
        assert_eq!(binary(&service, &with(&[("Content-Type", content_type)]), b"7").status, 202);
    }
    assert_eq!(binary(&service, &required, b"").status, 202, "an event needs no data");

    for content_type in ["text/plain", "application/xml", "application/octet-stream"] {
        let answer = binary(&service, &with(&[("Content-Type", content_type)]), b"7");
        answer.rejected(415, "request/unsupported_media_type");
    }
    for body in [&br#"1,"id":"other""#[..], b"{", b"1 2", b"\xff"] {
        let answer = binary(&service, &required, body);
        assert_eq!((answer.status, &answer.json["error"]["code"]), (400, &json!("validation/invalid_json")));
    }
    for wrong in [("ce-auditactor", "%ff"), ("ce-id", "8"), ("ce-data", "7")] {
        let answer = binary(&service, &with(&[wrong]), b"7");
        assert_eq!(
            (answer.status, &answer.json["error"]["code"]),
            (422, &json!("validation/invalid_field")),
            "{wrong:?}"
        );
    }
    assert_eq!(service.count(&service.live), 4);
}

#[test]
fn what_adapters_refuse_is_counted_by_adapter_and_code() {
    let service = Service::start();
    service.post(
        JSON,
        &service.live,
        r#"[{"action":"user.login"},{"action":"no.such"},{"action":"no.such"}]"#,
    );
    encoded(&service, LOGS, "br", b"x").rejected(415, "request/unsupported_encoding");
    let metrics = service.get("/metrics", "").body;
    for line in [
        "sealog_adapter_rejections_total{adapter=\"json\",code=\"action/invalid\"} 2",
        "sealog_adapter_rejections_total{adapter=\"otlp\",code=\"request/unsupported_encoding\"} 1",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }
}

#[test]
fn keys_modes_sizes_and_trials_are_those_of_the_api() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    for path in [JSON, CLOUD, LOGS] {
        service.request("POST", path, &[], LOGIN.as_bytes()).rejected(401, "auth/missing_header");
        service
            .post(path, "at_live_00000000000000000000000000000000", LOGIN)
            .rejected(401, "auth/key_not_found");
        let cut_off = service.post(path, &service.live, "{");
        assert_eq!(
            (cut_off.status, &cut_off.json["error"]["code"]),
            (400, &json!("validation/invalid_json"))
        );
        service.post(path, &service.live, batch_of((2 << 20) + 1)).rejected(413, "validation/body_too_large");
    }
    assert_eq!(fates(&service.post(JSON, &service.test, LOGIN)), (1, 0, vec![true]));
    assert_eq!((service.count(&service.live), service.count(&service.test)), (0, 1));
    service.change_tenant(&json!({ "billing_active": false, "trial_ends_at": "2026-01-01T00:00:00Z" }));
    service.post(JSON, &service.live, LOGIN).rejected(402, "subscription/trial_expired");
}

#[test]
fn every_batch_of_a_request_counts_against_the_rate() {
    let service = Service::with(|setup| setup.config.limits.test_rps = 4);
    let body = vec![LOGIN; 250].join("\n");
    assert_eq!(service.post(JSON, &service.test, body).status, 202);
    assert_eq!(service.post(JSON, &service.test, LOGIN).status, 202);
    service.post(JSON, &service.test, LOGIN).rejected(429, "rate/test_limit_exceeded");
}

#[test]
fn cloudevents_are_stored_one_or_many() {
    let service = Service::start();
    let event = json!({ "specversion": "1.0", "id": "a-1", "source": "/shop", "type": "dev.sealog.user.login", "subject": "session/1", "authid": "u-17", "data": { "n": 1 } });
    let answer = service.post(CLOUD, &service.live, event.to_string());
    assert_eq!((answer.status, fates(&answer)), (202, (1, 0, vec![true])));
    let stored = service.read(&service.live, &text(&answer.json["log_ids"][0]));
    assert_eq!(
        (&stored["action"], &stored["actor_id"], &stored["resource"]),
        (&json!("user.login"), &json!("u-17"), &json!("session/1"))
    );
    assert_eq!(
        stored["metadata"],
        json!({ "n": 1, "cloudevent": { "id": "a-1", "source": "/shop", "type": "dev.sealog.user.login" } })
    );
    let mut old = event.clone();
    old["specversion"] = "0.3".into();
    let answer = service.post(CLOUD, &service.live, json!([event, old]).to_string());
    assert_eq!(fates(&answer), (1, 1, vec![true, false]));
    assert_eq!(answer.json["errors"][0]["message"], "specversion must be 1.0");
}

#[test]
fn log_records_are_stored_and_a_bad_one_is_a_partial_success() {
    let service = Service::start();
    let answer = service.post(LOGS, &service.live, logs(&["user.login"]));
    assert_eq!(
        (answer.status, fates(&answer), answer.json.get("partialSuccess")),
        (200, (1, 0, vec![true]), None)
    );
    let stored = service.read(&service.live, &text(&answer.json["log_ids"][0]));
    assert_eq!(
        (&stored["actor_id"], &stored["ts_client"]),
        (&json!("u-17"), &json!("2026-11-14T12:00:01.250Z"))
    );
    let answer = service.post(LOGS, &service.live, logs(&["nonsense", "user.logout"]));
    assert_eq!((answer.status, fates(&answer)), (200, (1, 1, vec![false, true])));
    assert_eq!(answer.json["partialSuccess"]["rejectedLogRecords"], "1");
    assert!(text(&answer.json["partialSuccess"]["errorMessage"]).contains("action/invalid"));
    let answer = service.post(LOGS, &service.live, logs(&["nonsense"]));
    assert_eq!((answer.status, fates(&answer)), (200, (0, 1, vec![false])));
}

#[test]
fn protobuf_is_answered_in_protobuf() {
    let service = Service::start();
    let send = |body: &[u8]| {
        let headers =
            [("Authorization", bearer(&service.live)), ("Content-Type", "application/x-protobuf".to_owned())];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        service.request("POST", LOGS, &headers, body)
    };
    // resource_logs { scope_logs { log_records { attributes { key: "audit.action" value { string_value: … } }
    // } } }
    let piece = |number: u8, content: &[u8]| {
        [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
    };
    let body = |action: &str| {
        let attribute = [piece(1, b"audit.action"), piece(2, &piece(1, action.as_bytes()))].concat();
        piece(1, &piece(2, &piece(2, &piece(6, &attribute))))
    };
    let answer = send(&body("user.login"));
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(actions(&service), ["user.login"]);
    let answer = send(&body("nonsense"));
    assert!(answer.status == 200 && answer.body.contains("action/invalid"), "{}", answer.body);
    send(b"\x0a\xff").rejected(400, "validation/invalid_json");
}

/// An attribute of a log record for each member, as OTLP writes values.
fn attribute(value: &Value, levels: usize) -> Value {
    match value {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Array(items) if levels > 0 => {
            let values: Vec<Value> = items.iter().map(|item| attribute(item, levels - 1)).collect();
            json!({ "arrayValue": { "values": values } })
        }
        Value::Object(members) if levels > 0 => {
            json!({ "kvlistValue": { "values": attributes(members, levels - 1) } })
        }
        other => json!({ "stringValue": other.to_string() }),
    }
}

fn attributes(members: &serde_json::Map<String, Value>, levels: usize) -> Vec<Value> {
    members.iter().map(|(key, value)| json!({ "key": key, "value": attribute(value, levels) })).collect()
}

/// Whatever an event holds within the limits: every way in takes it or says why not, and it comes back whole.
#[test]
fn the_worst_events_go_through_the_interface_and_every_adapter() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let mut stored = 0;
    for (name, body) in sealog_testing::worst::worst_events("u-17") {
        let answer = service.post("/v1/events", &service.live, body.clone());
        assert_eq!(answer.status / 100, 2, "{name}: {}", answer.body);
        let log_id = text(&answer.json["log_id"]);
        let back = service.request(
            "GET",
            &format!("/v1/events/{log_id}"),
            &[("Authorization", &bearer(&service.live))],
            b"",
        );
        let metadata = body.split_once("\"metadata\":").unwrap().1.strip_suffix('}').unwrap();
        assert!(back.body.contains(metadata), "{name}: it is stored as it was sent");
        let cloud = format!(
            r#"{{"specversion":"1.0","id":"{name}","source":"/worst","type":"user.login","data":{metadata}}}"#
        );
        for (path, body) in [(JSON, format!("[{body}]")), (CLOUD, cloud)] {
            let answer = service.post(path, &service.live, body);
            assert_eq!((answer.status, fates(&answer).0), (202, 1), "{path} {name}: {}", answer.body);
        }
        stored += 3;
        // What is nested too deeply to be parsed here is not for this adapter.
        let Ok(Value::Object(members)) = serde_json::from_str(metadata) else { continue };
        let mut of_record = attributes(&members, 20);
        of_record.push(json!({ "key": "audit.action", "value": { "stringValue": "user.login" } }));
        let record = json!({ "timeUnixNano": "1794657601250000000", "attributes": of_record });
        let logs = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] });
        let answer = service.post(LOGS, &service.live, logs.to_string());
        match answer.status {
            200 if answer.json["partialSuccess"].is_null() => stored += 1,
            200 | 400..=499 => {}
            status => panic!("{name}: {status} {}", answer.body),
        }
    }
    assert_eq!(service.count(&service.live), stored);
    assert_eq!(service.get("/v1/events/verify", &service.live).ok()["valid"], true);
}

/// A field of Protocol Buffers that has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 128 {
        bytes.push(u8::try_from(length % 128).unwrap() | 128);
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap());
    [&bytes[..], content].concat()
}

/// As [`attribute`], in Protocol Buffers.
fn any_value(value: &Value, levels: usize) -> Vec<u8> {
    match value {
        Value::String(text) => field(1, text.as_bytes()),
        Value::Array(items) if levels > 0 => field(
            5,
            &items.iter().flat_map(|item| field(1, &any_value(item, levels - 1))).collect::<Vec<_>>(),
        ),
        Value::Object(members) if levels > 0 => field(6, &key_values(1, members, levels - 1)),
        other => field(1, other.to_string().as_bytes()),
    }
}

fn key_values(number: u8, members: &serde_json::Map<String, Value>, levels: usize) -> Vec<u8> {
    let of_member = |(key, value): (&String, &Value)| {
        field(number, &[field(1, key.as_bytes()), field(2, &any_value(value, levels))].concat())
    };
    members.iter().flat_map(of_member).collect()
}

/// The other ways in: each takes an event or says why not, and the chain is valid then.
#[test]
fn the_worst_events_go_through_batches_gzip_binary_mode_and_protobuf() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    let worst = sealog_testing::worst::worst_events("u-17");
    let mut stored = 0;
    for events in worst.chunks(7) {
        let bodies: Vec<&str> = events.iter().map(|(_, body)| body.as_str()).collect();
        let batch = format!("{{\"events\":[{}]}}", bodies.join(","));
        let answer = service.post("/v1/events/batch", &service.live, batch);
        assert_eq!(answer.status / 100, 2, "{}", answer.body);
        stored += events.len() as u64;
    }
    for (name, body) in &worst {
        let metadata = body.split_once("\"metadata\":").unwrap().1.strip_suffix('}').unwrap();
        let cloud = format!(
            r#"{{"specversion":"1.0","id":"{name}","source":"/worst","type":"user.login","data":{metadata}}}"#
        );
        for (path, body) in [(JSON, body), (CLOUD, &cloud)] {
            let answer = encoded(&service, path, "gzip", &gzip(body.as_bytes()));
            assert_eq!((answer.status, fates(&answer).0), (202, 1), "{path} {name}: {}", answer.body);
        }
        let authorization = bearer(&service.live);
        let headers =
            [("Authorization", &*authorization), ("Content-Type", "application/cloudevents-batch+json")];
        let answer = service.request("POST", CLOUD, &headers, format!("[{cloud}]").as_bytes());
        assert_eq!((answer.status, fates(&answer).0), (202, 1), "{name}: {}", answer.body);
        let about = [
            ("ce-id", "1"),
            ("ce-source", "/worst"),
            ("ce-type", "user.login"),
            ("Content-Type", "application/json"),
        ];
        let answer = binary(&service, &about, metadata.as_bytes());
        assert_eq!((answer.status, fates(&answer).0), (202, 1), "{name}: {}", answer.body);
        stored += 4;
        // What is nested too deeply to be parsed here is not for this adapter.
        let Ok(Value::Object(members)) = serde_json::from_str(metadata) else { continue };
        let mut attributes = key_values(6, &members, 20);
        let action = [field(1, b"audit.action"), field(2, &field(1, b"user.login"))].concat();
        attributes.extend(field(6, &action));
        let logs = field(1, &field(2, &field(2, &attributes)));
        let headers = [("Authorization", &*authorization), ("Content-Type", "application/x-protobuf")];
        let answer = service.request("POST", LOGS, &headers, &logs);
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        // An answer without a word has refused nothing.
        if answer.body.is_empty() {
            stored += 1;
        } else {
            assert!(answer.body.contains('/'), "{name} is refused with a code: {}", answer.body);
        }
    }
    assert_eq!(service.count(&service.live), stored);
    assert_eq!(service.get("/v1/events/verify", &service.live).ok()["valid"], true);
}
