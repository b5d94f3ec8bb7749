//! A refused request leaves its connection as an accepted one does: a body up to 64 KiB is read and dropped,
//! and what follows is answered. Spec 8.4.

use std::time::Duration;

use serde_json::json;

use crate::harness::*;

const DROPPED_BYTES_MAX: usize = 64 << 10;

/// A service where every address has five requests in a second, and all of them left.
fn limited() -> Service {
    let service = Service::with(|setup| setup.config.limits.per_ip_rps = 5);
    // What the harness has asked for is in the past.
    service.clock.advance(1000);
    service
}

/// A `POST` of an event without a key, with these headers.
fn keyless(headers: &str) -> Vec<u8> {
    format!("POST /v1/events HTTP/1.1\r\nHost: x\r\n{headers}\r\n").into_bytes()
}

/// A body in chunks of this size.
fn chunks(bytes: usize, size: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for at in (0..bytes).step_by(size) {
        let size = size.min(bytes - at);
        body.extend_from_slice(format!("{size:x}\r\n{}\r\n", "x".repeat(size)).as_bytes());
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

/// The connection is open and in step: another request is answered.
#[track_caller]
fn goes_on(connection: &mut Connection) {
    connection.send(&request("GET", "/healthz", &[], b""));
    assert_eq!(connection.receive().body, "ok\n");
}

#[track_caller]
fn ends(connection: &mut Connection, answer: &Response) {
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(connection.ended());
}

#[test]
fn requests_sent_without_waiting_are_answered_in_order_past_the_rate_by_address() {
    let service = limited();
    let headers = [("Authorization", bearer(&service.live))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let post = request("POST", "/v1/events", &headers, LOGIN.as_bytes());
    let get = request("GET", "/v1/actions", &[], b"");
    let mut connection = service.connect();
    connection.send(&[post.repeat(10), get, post.clone()].concat());
    for seq in ["1", "2", "3", "4", "5"] {
        let answer = connection.receive();
        assert_eq!((answer.status, answer.header("sealog-chain-seq")), (202, Some(seq)));
    }
    for _ in 0..7 {
        let answer = connection.receive();
        answer.rejected(429, "rate/ip_limit_exceeded");
        assert_eq!(answer.header("connection"), None);
    }
    service.clock.advance(1000);
    connection.send(&post);
    assert_eq!(connection.receive().header("sealog-chain-seq"), Some("6"));
}

#[test]
fn a_thousand_refusals_use_one_connection() {
    let service = limited();
    let mut connection = service.connect();
    let port = connection.local_port();
    for _ in 0..5 {
        connection.get("/v1/events", &service.live).ok();
    }
    for n in 0..1000 {
        let method = if n % 2 == 0 { "GET" } else { "POST" };
        connection.send(&request(method, "/v1/events", &[], b""));
        connection.receive().rejected(429, "rate/ip_limit_exceeded");
        assert_eq!(connection.local_port(), port);
    }
    goes_on(&mut connection);
}

#[test]
fn every_kind_of_refusal_keeps_the_connection() {
    let service = Service::start();
    let revoked = service.operator(
        "POST",
        &format!("/projects/{}/keys", service.project_id),
        &json!({"name": "k", "mode": "live"}),
    );
    service.operator(
        "POST",
        &format!("/keys/{}/revoke", revoked.created("key_id")),
        &serde_json::Value::Null,
    );
    let revoked = revoked.created("key");
    let unpaid = service.new_tenant(
        &json!({"name": "late", "trial_ends_at": "2026-11-15T00:00:00Z", "billing_active": false}),
    );
    let unpaid = service.new_key(&service.new_project(&unpaid, &[]), "live");
    let limited = service.newcomer("top", &[]);
    let slow = service.new_tenant(&json!({"name": "slow"}));
    service.operator("PATCH", &format!("/tenants/{slow}"), &json!({"rate_limit_rps": 1})).ok();
    let slow = service.new_key(&service.new_project(&slow, &[]), "live");
    service.event(&slow, LOGIN).accepted();
    service.once(&service.live, "taken", LOGIN).accepted();
    let mut connection = service.connect();
    let port = connection.local_port();
    let phi = r#"{"action":"hipaa.phi_accessed"}"#;
    for (path, key, idempotency_key, body, status, code) in [
        ("/v1/events", "", "k", LOGIN, 401, "auth/invalid_format"),
        ("/v1/events", "at_live_00000000000000000000000000000000", "k", LOGIN, 401, "auth/key_not_found"),
        ("/v1/events/batch", &revoked, "k", LOGIN, 401, "auth/key_revoked"),
        ("/v1/events", &unpaid, "k", LOGIN, 402, "subscription/trial_expired"),
        ("/v1/events", &limited, "k", phi, 403, "action/requires_framework"),
        ("/v1/events", &service.live, "k", "{", 400, "validation/invalid_json"),
        ("/v1/events", &service.live, "k", "{}", 422, "validation/missing_action"),
        ("/v1/events", &service.live, "taken", "{}", 409, "event/idempotency_key_conflict"),
        ("/v1/events", &service.live, "no key", LOGIN, 422, "validation/invalid_field"),
        ("/v1/events", &slow, "k", LOGIN, 429, "rate/limit_exceeded"),
        ("/v1/events/verify", &service.live, "k", LOGIN, 405, "request/method_not_allowed"),
        ("/nowhere", &service.live, "k", LOGIN, 404, "request/not_found"),
        ("/operator/v1/tenants", &service.live, "k", LOGIN, 401, "auth/key_not_found"),
        ("/operator/v1/nowhere", TOKEN, "k", LOGIN, 404, "request/not_found"),
        ("/operator/v1/tenants", TOKEN, "k", "{}", 422, "validation/invalid_field"),
    ] {
        let authorization = bearer(key);
        let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", idempotency_key)];
        let whole = request("POST", path, &headers, body.as_bytes());
        // The body comes later than its head, so that it cannot have been there by chance.
        let (head, rest) = whole.split_at(whole.len() - body.len());
        connection.send(head);
        connection.send(rest);
        let answer = connection.receive();
        answer.rejected(status, code);
        assert_eq!(answer.header("connection"), None, "{path} {code}");
        goes_on(&mut connection);
    }
    assert_eq!(connection.local_port(), port);
}

#[test]
fn a_refused_body_of_64_kib_is_dropped_and_a_larger_one_ends_the_connection_before_it_is_sent() {
    let service = Service::start();
    let mut connection = service.connect();
    for _ in 0..3 {
        connection.send(&keyless(&format!("Content-Length: {DROPPED_BYTES_MAX}\r\n")));
        connection.send(&vec![b'x'; DROPPED_BYTES_MAX]);
        connection.receive().rejected(401, "auth/missing_header");
        goes_on(&mut connection);
    }
    connection.send(&keyless(&format!("Content-Length: {}\r\n", DROPPED_BYTES_MAX + 1)));
    let answer = connection.receive();
    answer.rejected(401, "auth/missing_header");
    ends(&mut connection, &answer);
}

#[test]
fn a_refused_body_in_chunks_is_dropped_up_to_64_kib() {
    let service = Service::start();
    for size in [1, 1000, DROPPED_BYTES_MAX] {
        let mut connection = service.connect();
        for _ in 0..2 {
            connection.send(&keyless("Transfer-Encoding: chunked\r\n"));
            connection.send(&chunks(DROPPED_BYTES_MAX, size));
            connection.receive().rejected(401, "auth/missing_header");
            goes_on(&mut connection);
        }
        // The last chunk is missing: the answer does not wait for it.
        let mut larger = chunks(DROPPED_BYTES_MAX + 1, size);
        larger.truncate(larger.len() - 5);
        connection.send(&keyless("Transfer-Encoding: chunked\r\n"));
        connection.send(&larger);
        let answer = connection.receive();
        answer.rejected(401, "auth/missing_header");
        ends(&mut connection, &answer);
    }
}

#[test]
fn a_refused_body_whose_chunks_are_broken_ends_the_connection() {
    let service = Service::start();
    let mut connection = service.connect();
    connection.send(&keyless("Transfer-Encoding: chunked\r\n"));
    connection.send(b"3\r\nabc\r\nzz\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let answer = connection.receive();
    answer.rejected(401, "auth/missing_header");
    ends(&mut connection, &answer);
}

#[test]
fn a_refused_body_that_does_not_arrive_in_time_ends_the_connection() {
    let service = Service::with(|setup| setup.config.deadlines.body = Duration::from_millis(50));
    let mut connection = service.connect();
    connection.send(&keyless("Content-Length: 500\r\n"));
    connection.send(b"{");
    let answer = connection.receive();
    answer.rejected(401, "auth/missing_header");
    ends(&mut connection, &answer);
}

#[test]
fn a_body_that_was_announced_and_is_refused_need_not_be_sent() {
    let service = Service::start();
    let mut connection = service.connect();
    connection.send(&keyless("Expect: 100-continue\r\nContent-Length: 23\r\n"));
    let answer = connection.receive();
    answer.rejected(401, "auth/missing_header");
    ends(&mut connection, &answer);
}

#[test]
fn a_body_that_was_announced_and_is_wanted_is_asked_for() {
    let service = Service::start();
    let mut connection = service.connect();
    let headers = format!(
        "Authorization: Bearer {}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n",
        service.live,
        LOGIN.len()
    );
    for body in [LOGIN.to_owned(), "x".repeat(LOGIN.len())] {
        connection.send(&keyless(&headers));
        assert_eq!(connection.receive().status, 100);
        connection.send(body.as_bytes());
        let answer = connection.receive();
        assert_eq!(answer.status, if body == LOGIN { 202 } else { 400 });
        goes_on(&mut connection);
    }
}

#[test]
fn a_body_that_a_get_does_not_need_is_dropped_too() {
    let service = Service::start();
    let mut connection = service.connect();
    connection.send(b"GET /v1/actions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n");
    connection.send(b"hello");
    connection.receive().ok();
    goes_on(&mut connection);
}

#[test]
fn a_page_takes_no_memory_before_its_request_is_whole() {
    let service = Service::with(|setup| {
        // Half of it is all that a tenant gets, and as much as one page takes.
        setup.config.memory.answers_bytes = 4 << 20;
        setup.config.deadlines.body = Duration::from_secs(3600);
    });
    let list = |length: usize| {
        let authorization = format!("Authorization: Bearer {}", service.live);
        format!("GET /v1/events HTTP/1.1\r\nHost: x\r\n{authorization}\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut slow = service.connect();
    slow.send(list(5).as_bytes());
    let mut quick = service.connect();
    for _ in 0..3 {
        quick.send(list(0).as_bytes());
        quick.receive().ok();
    }
    slow.send(b"hello");
    slow.receive().ok();
    goes_on(&mut slow);
}

#[test]
fn a_refused_body_that_is_late_makes_room_for_others() {
    let service = Service::with(|setup| {
        setup.config.connections_max = 2;
        setup.config.limits.connections_per_ip = 0;
        setup.config.deadlines.body = Duration::from_secs(3600);
    });
    // The only connection at first, and one that is used all the time: those that have set the service up are
    // gone.
    let mut busy = service.connect();
    let mut metrics_have = |series: &str| {
        busy.send(&request("GET", "/metrics", &[], b""));
        busy.receive().body.contains(series)
    };
    eventually(|| metrics_have("sealog_connections 1\n"));
    let mut slow = service.connect();
    slow.send(&keyless("Content-Length: 500\r\n"));
    slow.send(b"{");
    eventually(|| metrics_have("sealog_rejections_total{code=\"auth/missing_header\"} 1\n"));
    service.hinge().set(Mood::Holding);
    let authorization = bearer(&service.live);
    let headers = [("Authorization", authorization.as_str())];
    busy.send(&request("POST", "/v1/events", &headers, LOGIN.as_bytes()));
    service.hinge().wait_until_held();
    // There are as many connections as there may be, and only one of them is in use.
    goes_on(&mut service.connect());
    let answer = slow.receive();
    answer.rejected(401, "auth/missing_header");
    ends(&mut slow, &answer);
    service.hinge().release();
    busy.receive().accepted();
}
