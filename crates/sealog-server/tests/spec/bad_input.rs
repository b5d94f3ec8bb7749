//! What no client should send. The server answers or ends the connection, and goes on.

use std::time::Duration;

use crate::harness::*;

#[track_caller]
fn goes_on(service: &Service) {
    service.log(&service.live, LOGIN);
}

#[test]
fn metadata_nested_as_deep_as_the_body_allows_is_accepted_and_returned() {
    let service = Service::start();
    let depth = 131_000;
    let metadata = format!(r#"{{"d":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let log_id = service.log(&service.live, &format!(r#"{{"action":"user.login","metadata":{metadata}}}"#));
    let body = service.get(&format!("/v1/events/{log_id}"), &service.live).body;
    assert!(body.contains(&format!(r#""metadata":{metadata},"#)));
    assert_eq!(service.count(&service.live), 1);
}

#[test]
fn nesting_in_an_ignored_field_or_without_an_end_is_no_danger() {
    let service = Service::start();
    let deep = "[".repeat(131_000);
    service.event(&service.live, format!(r#"{{"x":{deep}"#)).rejected(400, "validation/invalid_json");
    service.event(&service.live, deep).rejected(400, "validation/invalid_json");
    service.event(&service.live, r#"{"x":"#.repeat(50_000)).rejected(400, "validation/invalid_json");
    goes_on(&service);
}

#[test]
fn many_keys_in_metadata_are_accepted() {
    let service = Service::start();
    let keys: Vec<String> = (0..20_000).map(|n| format!(r#""{n}":{n}"#)).collect();
    let metadata = format!("{{{}}}", keys.join(","));
    let log_id = service.log(&service.live, &format!(r#"{{"action":"user.login","metadata":{metadata}}}"#));
    assert!(service.get(&format!("/v1/events/{log_id}"), &service.live).body.contains(&metadata));
}

#[test]
fn a_batch_of_600001_tiny_items_is_too_large_and_no_danger() {
    let service = Service::start();
    let body = format!(r#"{{"events":[{}{{}}]}}"#, "{},".repeat(600_000));
    service.batch(&service.live, body).rejected(400, "validation/batch_too_large");
    goes_on(&service);
}

#[test]
fn what_is_not_http_is_refused() {
    let service = Service::start();
    for bytes in [
        b"nonsense\r\n\r\n".as_slice(),
        b"GET\r\n\r\n",
        b"GET /v1/actions HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /v1/actions HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /v1/ac tions HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        service.raw(bytes).rejected(400, "request/malformed");
    }
    goes_on(&service);
}

#[test]
fn two_lengths_that_differ_are_refused() {
    let service = Service::start();
    let request = format!(
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 23\r\nContent-Length: 5\r\n\r\n{LOGIN}",
        service.live
    );
    service.raw(request.as_bytes()).rejected(400, "request/malformed");
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn a_length_that_is_no_number_is_refused() {
    let service = Service::start();
    for length in ["-1", "x", "1 2", "99999999999999999999999"] {
        let request = format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n{LOGIN}",
            service.live
        );
        service.raw(request.as_bytes()).rejected(400, "request/malformed");
    }
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn a_length_together_with_chunks_cannot_smuggle_a_second_request() {
    let service = Service::start();
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    for framing in [[length, chunked], [chunked, length]] {
        let mut connection = service.connect();
        connection.send(
            format!(
                "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                service.live,
                framing.concat()
            )
            .as_bytes(),
        );
        let answer = connection.receive();
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{}", answer.body);
        assert!(connection.ended(), "what follows is no request");
    }
    assert_eq!(service.count(&service.live), 0);
}

/// Sends the head of a `POST` with these lines and an event behind it, and a second request behind that.
fn framed(service: &Service, version: &str, lines: &str, body: &str) -> (Response, bool) {
    let mut connection = service.connect();
    let head = format!("POST /v1/events {version}\r\nAuthorization: Bearer {}\r\n{lines}\r\n", service.live);
    let second = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    connection.send([head.as_str(), body, second].concat().as_bytes());
    (connection.receive(), connection.ended())
}

#[test]
fn http_1_1_without_exactly_one_host_is_refused() {
    let service = Service::start();
    let length = format!("Content-Length: {}\r\n", LOGIN.len());
    for hosts in ["", "Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n"] {
        let (answer, ended) = framed(&service, "HTTP/1.1", &format!("{hosts}{length}"), LOGIN);
        let message = answer.rejected(400, "request/malformed");
        assert!(message.contains("exactly one Host"), "{message}");
        assert!(ended, "what follows is no request");
    }
    assert_eq!(service.count(&service.live), 0);
    let (answer, _) = framed(&service, "HTTP/1.0", &length, LOGIN);
    answer.accepted();
    assert_eq!(service.raw(b"GET /healthz HTTP/1.0\r\n\r\n").status, 200);
}

#[test]
fn a_transfer_coding_other_than_chunked_is_refused() {
    let service = Service::start();
    let body = format!("{:x}\r\n{LOGIN}\r\n0\r\n\r\n", LOGIN.len());
    for codings in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\n",
    ] {
        let (answer, ended) = framed(&service, "HTTP/1.1", &format!("Host: x\r\n{codings}"), &body);
        answer.rejected(400, "request/malformed");
        assert!(ended, "what follows {codings:?} is no request");
    }
    assert_eq!(service.count(&service.live), 0);
    framed(&service, "HTTP/1.1", "Host: x\r\nTransfer-Encoding: Chunked\r\n", &body).0.accepted();
}

#[test]
fn http_2_with_prior_knowledge_is_told_that_http_1_1_is_spoken_here() {
    let service = Service::start();
    // The preface, and the empty SETTINGS frame that follows it.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut connection = service.connect();
    connection.send(preface);
    let message = connection.receive().rejected(400, "request/malformed");
    assert!(message.contains("HTTP/1.1"), "{message}");
    assert!(connection.ended());
    // Cut, and behind a request that is one.
    service.raw(&preface[..16]).rejected(400, "request/malformed");
    let mut connection = service.connect();
    connection.send(&[b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), preface].concat());
    assert_eq!(connection.receive().status, 200);
    connection.receive().rejected(400, "request/malformed");
    assert!(connection.ended());
}

#[test]
fn a_client_that_has_finished_sending_still_gets_its_answer() {
    let service = Service::start();
    for _ in 0..20 {
        let mut connection = service.connect();
        connection.send(&request(
            "POST",
            "/v1/events",
            &[("Authorization", &bearer(&service.live))],
            LOGIN.as_bytes(),
        ));
        connection.finish_sending();
        connection.receive().accepted();
        assert!(connection.ended());
    }
}

#[test]
fn a_body_that_ends_early_stores_nothing() {
    let service = Service::start();
    let mut connection = service.connect();
    connection.send(
        format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 500\r\n\r\n{LOGIN}",
            service.live
        )
        .as_bytes(),
    );
    connection.finish_sending();
    assert!(connection.ended() || connection.receive().status == 400);
    assert_eq!(service.count(&service.live), 0);
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_invalid_json_and_ends_the_connection() {
    let service = Service::with(|setup| setup.config.deadlines.body = Duration::from_millis(50));
    let mut connection = service.connect();
    connection.send(
        format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 500\r\n\r\n{{",
            service.live
        )
        .as_bytes(),
    );
    connection.receive().rejected(400, "validation/invalid_json");
    assert!(connection.ended());
}

#[test]
fn headers_that_do_not_arrive_in_time_end_the_connection() {
    let service = Service::with(|setup| setup.config.deadlines.headers = Duration::from_millis(50));
    let mut connection = service.connect();
    connection.send(b"GET /v1/events HTTP/1.1\r\nHost: ");
    assert!(connection.ended());
    goes_on(&service);
}

#[test]
fn a_connection_that_says_nothing_is_ended() {
    let service = Service::with(|setup| {
        setup.config.deadlines.first_byte = Duration::from_millis(50);
        setup.config.deadlines.headers = Duration::from_secs(3600);
    });
    assert!(service.connect().ended());
}

#[test]
fn headers_without_measure_are_refused() {
    let service = Service::start();
    let large = format!("GET /v1/actions HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    service.raw(large.as_bytes()).rejected(431, "request/headers_too_large");
    let many = format!("GET /v1/actions HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: x\r\n".repeat(1000));
    service.raw(many.as_bytes()).rejected(431, "request/headers_too_large");
    let address = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(70_000));
    service.raw(address.as_bytes()).rejected(431, "request/headers_too_large");
    goes_on(&service);
}

#[test]
fn a_length_that_nobody_can_count_to_is_a_body_that_is_too_large() {
    let service = Service::start();
    let key = bearer(&service.live);
    for length in [u64::MAX - 2, u64::MAX - 1, u64::MAX] {
        for body in ["", LOGIN] {
            let head = format!("POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n");
            let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
            service.raw(request.as_bytes()).rejected(413, "validation/body_too_large");
        }
    }
    let beyond = "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n";
    service.raw(beyond.as_bytes()).rejected(400, "request/malformed");
    goes_on(&service);
}

#[test]
fn headers_of_8_kilobytes_are_accepted() {
    let service = Service::start();
    let padding = "x".repeat(8 << 10);
    let headers = [("Authorization", bearer(&service.live)), ("X-Trace", padding)];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    service.request("POST", "/v1/events", &headers, LOGIN.as_bytes()).accepted();
}

#[test]
fn a_request_before_one_that_cannot_be_parsed_has_its_own_answer() {
    let service = Service::start();
    let mut connection = service.connect();
    let good = request("GET", "/v1/events", &[("Authorization", &bearer(&service.live))], b"");
    connection.send(&[good.as_slice(), b"nonsense\r\n\r\n"].concat());
    connection.receive().ok();
    connection.receive().rejected(400, "request/malformed");
    assert!(connection.ended());
}

#[test]
fn a_client_that_is_still_sending_learns_why_it_was_refused() {
    let service = Service::start();
    // Larger than what the sockets hold, so that the client is in the middle of its body when the answer
    // comes.
    let body = vec![b'x'; 3 << 20];
    for _ in 0..20 {
        let length = body.len().to_string();
        let head = ["POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: ", &length, "\r\n\r\n"].concat();
        let mut connection = service.connect();
        connection.send(&[head.as_bytes(), &body].concat());
        connection.receive().rejected(401, "auth/missing_header");
    }
}

#[test]
fn clients_that_do_not_read_their_pages_are_cut_off_and_cannot_exhaust_memory() {
    let service = Service::with(|setup| {
        setup.segment_bytes = 8 << 20;
        setup.config.memory.answers_bytes = 8 << 20;
        setup.config.deadlines.write = Duration::from_millis(500);
    });
    for _ in 0..40 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    let newcomer = service.newcomer("top", &[]);
    let list = request("GET", "/v1/events?limit=100", &[("Authorization", &bearer(&service.live))], b"");
    // Two pages are half of the memory, which is all that a tenant gets.
    let mut lazy: Vec<_> = (0..6).map(|_| service.connect()).collect();
    for connection in &mut lazy {
        connection.send(&list);
    }
    // Another tenant is served at once, and the same one when its own clients have been cut off.
    service.get("/v1/events", &newcomer).ok();
    assert_eq!(
        service.get("/v1/events?limit=100", &service.live).ok()["events"].as_array().unwrap().len(),
        40
    );
}

#[test]
fn large_bodies_beyond_the_memory_for_them_wait_their_turn() {
    let service = Service::with(|setup| {
        setup.segment_bytes = 8 << 20;
        setup.config.memory.bodies_bytes = 4 << 20;
    });
    let body = batch_of(2 << 20);
    let head = format!(
        "POST /v1/events/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        service.live,
        body.len()
    );
    let mut slow = service.connect();
    slow.send(&[head.as_bytes(), &body.as_bytes()[..1 << 20]].concat());
    let newcomer = service.newcomer("top", &[]);
    assert_eq!(service.batch(&newcomer, &body).status, 202);
    // Small ones do not wait for anyone.
    service.event(&service.live, LOGIN).accepted();
    let mut second = service.connect();
    second.send(&[head.as_bytes(), body.as_bytes()].concat());
    slow.send(&body.as_bytes()[1 << 20..]);
    assert_eq!(slow.receive().status, 202);
    assert_eq!(second.receive().status, 202);
}

#[test]
fn bytes_beyond_ascii_in_headers_are_refused_by_the_rule_of_the_header() {
    let service = Service::start();
    let mut request =
        b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer at_live_\xff\xfe\r\n\r\n".to_vec();
    service.raw(&request).rejected(401, "auth/invalid_format");
    request = format!("POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n", service.live)
        .into_bytes();
    request.extend_from_slice(b"Idempotency-Key: \xff\r\nContent-Length: 23\r\n\r\n");
    request.extend_from_slice(LOGIN.as_bytes());
    service.raw(&request).rejected(422, "validation/invalid_field");
}

#[test]
fn a_rejected_request_leaves_the_connection_in_step() {
    let service = Service::start();
    let mut connection = service.connect();
    let authorization = bearer(&service.live);
    let headers = [("Authorization", authorization.as_str())];
    for _ in 0..3 {
        connection.send(&request("POST", "/v1/events", &headers, b"nonsense"));
        connection.receive().rejected(400, "validation/invalid_json");
        connection.send(&request("POST", "/v1/events", &headers, LOGIN.as_bytes()));
        connection.receive().accepted();
        connection.get("/nowhere", &service.live).rejected(404, "request/not_found");
    }
}

#[test]
fn requests_sent_without_waiting_are_answered_in_order() {
    let service = Service::start();
    let mut connection = service.connect();
    let authorization = bearer(&service.live);
    let headers = [("Authorization", authorization.as_str())];
    let one = request("POST", "/v1/events", &headers, LOGIN.as_bytes());
    connection.send(&one.repeat(5));
    let seqs: Vec<String> =
        (0..5).map(|_| connection.receive().header("sealog-chain-seq").unwrap().to_owned()).collect();
    assert_eq!(seqs, ["1", "2", "3", "4", "5"]);
}

#[test]
fn a_body_that_is_refused_by_its_length_ends_the_connection() {
    let service = Service::start();
    let mut connection = service.connect();
    connection.send(
        format!(
            "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 4000000000\r\n\r\n",
            service.live
        )
        .as_bytes(),
    );
    connection.receive().rejected(413, "validation/body_too_large");
    assert!(connection.ended());
}

#[test]
fn a_head_request_has_no_body() {
    let service = Service::start();
    for (path, status) in [("/v1/actions", 200), ("/v1/events/batch", 405), ("/nowhere", 404)] {
        let mut connection = service.connect();
        connection.send(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
        let answer = connection.receive_head();
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.header("content-length").unwrap().parse::<usize>().unwrap() > 0);
        assert!(connection.ended());
    }
}

#[test]
fn hostile_paths_find_nothing() {
    let service = Service::start();
    for path in [
        "/v1/events/../../etc/passwd",
        "/v1/events/%2e%2e",
        "/v1/events/%00",
        "/v1/events/'%20OR%201=1--",
        "/operator/v1/../v1/events",
        "/%76%31/events",
    ] {
        assert_eq!(service.get(path, &service.live).status / 100, 4, "{path}");
    }
    goes_on(&service);
}

#[test]
fn values_that_look_like_code_are_stored_as_they_are() {
    let service = Service::start();
    for value in [
        "'; DROP TABLE events; --",
        "<script>alert(1)</script>",
        "${jndi:ldap://x}",
        "../../x",
        "%s%n",
        "\u{202e}",
    ] {
        let body = serde_json::json!({"action": "user.login", "actor_id": value}).to_string();
        assert_eq!(service.stored(&service.live, &body)["actor_id"], value);
    }
}
