//! 8 Limits: rates, the client's address, the quota. Limits of size are with the endpoint that they belong
//! to.

use serde_json::json;

use crate::harness::*;

/// A service with a rate by address, small enough for a test, or the one that is asked for.
fn limited(per_ip_rps: u32) -> Service {
    let service = Service::with(|setup| {
        setup.config.limits.per_ip_rps = per_ip_rps;
        setup.config.trusted_proxies = vec!["127.0.9.0/24".parse().unwrap()];
    });
    // What the harness has asked for is in the past.
    service.clock.advance(1000);
    service
}

fn from(service: &Service, source: &str, path: &str, forwarded_for: &[&str]) -> u16 {
    let authorization = bearer(&service.live);
    let mut headers = vec![("Authorization", authorization.as_str())];
    headers.extend(forwarded_for.iter().map(|value| ("X-Forwarded-For", *value)));
    let mut connection = service.connect_from(source);
    connection.send(&request("GET", path, &headers, b""));
    connection.receive().status
}

#[test]
fn an_address_has_100_requests_in_a_second() {
    let service = limited(100);
    for _ in 0..100 {
        service.get("/v1/events", &service.live).ok();
    }
    service.get("/v1/events", &service.live).rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn windows_are_aligned_to_the_second_of_the_clock() {
    let service = limited(5);
    service.clock.set(NOON_MS + 5999);
    for _ in 0..5 {
        service.get("/v1/events", &service.live).ok();
    }
    service.get("/v1/events", &service.live).rejected(429, "rate/ip_limit_exceeded");
    service.clock.set(NOON_MS + 6000);
    for _ in 0..5 {
        service.get("/v1/events", &service.live).ok();
    }
    service.clock.set(NOON_MS + 6999);
    service.get("/v1/events", &service.live).rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn the_rate_by_address_comes_before_authentication() {
    let service = limited(5);
    for _ in 0..5 {
        service.request("GET", "/v1/events", &[], b"").rejected(401, "auth/missing_header");
    }
    service.request("GET", "/v1/events", &[], b"").rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn each_address_is_counted_apart() {
    let service = limited(5);
    for _ in 0..5 {
        assert_eq!(from(&service, "127.0.7.1", "/v1/events", &[]), 200);
    }
    assert_eq!(from(&service, "127.0.7.1", "/v1/events", &[]), 429);
    assert_eq!(from(&service, "127.0.7.2", "/v1/events", &[]), 200);
}

#[test]
fn every_route_is_counted_except_healthz_and_readyz() {
    let service = limited(5);
    for _ in 0..20 {
        assert_eq!(from(&service, "127.0.7.1", "/healthz", &[]), 200);
        assert_eq!(from(&service, "127.0.7.1", "/readyz", &[]), 200);
    }
    for (path, status) in [
        ("/v1/events", 200),
        ("/v1/actions", 200),
        ("/nowhere", 404),
        ("/operator/v1/tenants", 401),
        ("/v1/events/x", 404),
    ] {
        assert_eq!(from(&service, "127.0.7.1", path, &[]), status);
    }
    assert_eq!(from(&service, "127.0.7.1", "/v1/actions", &[]), 429);
    assert_eq!(from(&service, "127.0.7.1", "/healthz", &[]), 200);
}

#[test]
fn no_project_or_tenant_rate_raises_the_rate_by_address() {
    let service = limited(5);
    service.change_tenant(&json!({"rate_limit_rps": 1000}));
    service.change_project(&json!({"rate_limit_rps": 1000}));
    service.clock.advance(1000);
    for _ in 0..5 {
        service.get("/v1/events", &service.live).ok();
    }
    service.get("/v1/events", &service.live).rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn x_forwarded_for_of_a_peer_that_is_no_trusted_proxy_is_not_read() {
    let service = limited(5);
    for n in 0..5 {
        assert_eq!(from(&service, "127.0.7.1", "/v1/events", &[&format!("203.0.113.{n}")]), 200);
    }
    assert_eq!(from(&service, "127.0.7.1", "/v1/events", &["203.0.113.99"]), 429);
}

#[test]
fn behind_trusted_proxies_the_right_most_address_that_is_no_proxy_is_the_clients() {
    let service = limited(5);
    for n in 0..5 {
        // What stands to the left is what the client claims.
        let claimed = format!("198.51.100.{n}, 203.0.113.1, 127.0.9.2");
        assert_eq!(from(&service, "127.0.9.1", "/v1/events", &[&claimed]), 200);
    }
    assert_eq!(from(&service, "127.0.9.1", "/v1/events", &["203.0.113.1"]), 429);
    assert_eq!(from(&service, "127.0.9.1", "/v1/events", &["198.51.100.9", "203.0.113.1, 127.0.9.3"]), 429);
    assert_eq!(from(&service, "127.0.9.1", "/v1/events", &["203.0.113.2"]), 200);
}

#[test]
fn behind_trusted_proxies_an_entry_may_have_a_port_and_what_a_client_puts_before_it_does_not_matter() {
    let service = limited(0);
    let send = |lines: &[&[u8]]| {
        let mut head =
            format!("POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n", service.live)
                .into_bytes();
        for line in lines {
            head.extend_from_slice(&[b"X-Forwarded-For: ".as_slice(), line, b"\r\n"].concat());
        }
        head.extend_from_slice(format!("Content-Length: {}\r\n\r\n{LOGIN}", LOGIN.len()).as_bytes());
        let mut connection = service.connect_from("127.0.9.1");
        connection.send(&head);
        let log_id = connection.receive().accepted();
        text(&service.read(&service.live, &log_id)["ip_address"])
    };
    assert_eq!(send(&[b"203.0.113.1:4711"]), "203.0.113.1");
    assert_eq!(send(&[b"[2001:db8::1]:4711"]), "2001:db8::1");
    assert_eq!(send(&[b"[2001:db8::1]"]), "2001:db8::1");
    assert_eq!(send(&[b"\xff, 203.0.113.1"]), "203.0.113.1");
    assert_eq!(send(&["caf\u{e9}".as_bytes(), b"203.0.113.1, 127.0.9.2:80"]), "203.0.113.1");
    // What is left of an entry that is no address is not believed.
    assert_eq!(send(&[b"203.0.113.1, \xff"]), "127.0.9.1");
    assert_eq!(send(&[b"203.0.113.1, unknown, 127.0.9.2"]), "127.0.9.2");
}

#[test]
fn ipv6_addresses_are_counted_by_64() {
    let service = limited(5);
    for n in 0..5 {
        assert_eq!(from(&service, "127.0.9.1", "/v1/events", &[&format!("2001:db8:1:2::{n}")]), 200);
    }
    assert_eq!(from(&service, "127.0.9.1", "/v1/events", &["2001:db8:1:2:ffff::1"]), 429);
    assert_eq!(from(&service, "127.0.9.1", "/v1/events", &["2001:db8:1:3::1"]), 200);
}

#[test]
fn the_clients_address_is_the_events_ip_address() {
    let service = limited(0);
    let authorization = bearer(&service.live);
    let send = |source: &str, forwarded_for: &str| {
        let headers = [("Authorization", authorization.as_str()), ("X-Forwarded-For", forwarded_for)];
        let mut connection = service.connect_from(source);
        connection.send(&request("POST", "/v1/events", &headers, LOGIN.as_bytes()));
        let log_id = connection.receive().accepted();
        text(&service.read(&service.live, &log_id)["ip_address"])
    };
    assert_eq!(send("127.0.7.1", "203.0.113.1"), "127.0.7.1");
    assert_eq!(send("127.0.9.1", "203.0.113.1"), "203.0.113.1");
    assert_eq!(send("127.0.9.1", "2001:DB8::1"), "2001:db8::1");
    assert_eq!(send("127.0.9.1", "::ffff:203.0.113.7"), "203.0.113.7");
}

#[test]
fn a_rate_of_0_is_no_limit() {
    let service = Service::with(|setup| {
        setup.config.limits.live_rps = Some(0);
        setup.config.limits.test_rps = 0;
    });
    for key in [&service.live, &service.test] {
        let mut connection = service.connect();
        for _ in 0..1100 {
            assert_eq!(connection.get("/v1/events", key).status, 200);
        }
    }
}

#[test]
fn a_tenant_has_1000_requests_in_a_second_with_its_live_keys_together() {
    let service = Service::start();
    let second = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    service.clock.set(NOON_MS + 999);
    let mut connection = service.connect();
    for n in 0..1000 {
        let key = if n % 2 == 0 { &service.live } else { &second };
        assert_eq!(connection.get("/v1/events", key).status, 200);
    }
    connection.get("/v1/events", &service.live).rejected(429, "rate/limit_exceeded");
    connection.get("/v1/events", &second).rejected(429, "rate/limit_exceeded");
    service.clock.set(NOON_MS + 1000);
    connection.get("/v1/events", &service.live).ok();
}

#[test]
fn a_project_with_a_rate_of_its_own_is_counted_apart() {
    let service = Service::start();
    let other = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    service.change_tenant(&json!({"rate_limit_rps": 3}));
    service.change_project(&json!({"rate_limit_rps": 5}));
    for _ in 0..5 {
        service.get("/v1/events", &service.live).ok();
    }
    service.get("/v1/events", &service.live).rejected(429, "rate/limit_exceeded");
    for _ in 0..3 {
        service.get("/v1/events", &other).ok();
    }
    service.get("/v1/events", &other).rejected(429, "rate/limit_exceeded");
}

#[test]
fn a_test_key_has_60_requests_in_a_second_and_each_its_own() {
    let service = Service::start();
    let second = service.new_key(&service.project_id, "test");
    for _ in 0..60 {
        service.get("/v1/events", &service.test).ok();
    }
    service.get("/v1/events", &service.test).rejected(429, "rate/test_limit_exceeded");
    service.get("/v1/events", &second).ok();
    service.get("/v1/events", &service.live).ok();
    service.clock.advance(1000);
    service.get("/v1/events", &service.test).ok();
}

#[test]
fn a_projects_own_rate_is_not_for_test_keys() {
    let service = Service::start();
    service.change_project(&json!({"rate_limit_rps": 1}));
    for _ in 0..5 {
        service.get("/v1/events", &service.test).ok();
    }
}

#[test]
fn a_batch_is_one_request() {
    let service = Service::start();
    service.change_tenant(&json!({"rate_limit_rps": 2}));
    assert_eq!(service.batch(&service.live, logins(100)).status, 202);
    assert_eq!(service.batch(&service.live, logins(100)).status, 202);
    service.batch(&service.live, logins(1)).rejected(429, "rate/limit_exceeded");
}

#[test]
fn nodes_share_every_rate() {
    let service = Service::with(|setup| setup.config.limits.nodes = 20);
    for _ in 0..3 {
        service.get("/v1/events", &service.test).ok();
    }
    service.get("/v1/events", &service.test).rejected(429, "rate/test_limit_exceeded");
}

#[test]
fn there_are_no_x_ratelimit_headers() {
    let service = limited(5);
    for n in 0..6 {
        let answer = service.get("/v1/events", &service.live);
        assert_eq!(answer.status, if n < 5 { 200 } else { 429 });
        assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("x-ratelimit")), "{answer:?}");
    }
}

#[test]
fn the_quota_counts_live_events_and_each_of_a_batch() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    service.fill(&service.live, 150);
    service.fill(&service.test, 7);
    service.event(&service.live, "{}").rejected(422, "validation/missing_action");
    assert_eq!(service.usage(), 151);
}

#[test]
fn a_replay_does_not_count_towards_the_quota() {
    let service = Service::start();
    service.once(&service.live, "k", LOGIN).accepted();
    service.once(&service.live, "k", LOGIN).accepted();
    assert_eq!(service.usage(), 1);
}

#[test]
fn the_quota_counts_by_utc_calendar_month() {
    let service = Service::start();
    // 2026-12-01T00:00:00.000Z.
    let december_ms = NOON_MS + (15 * 24 + 12) * HOUR_MS;
    service.clock.set(december_ms - 1);
    service.fill(&service.live, 2);
    assert_eq!(service.usage(), 2);
    service.clock.set(december_ms);
    assert_eq!(service.usage(), 0);
    service.fill(&service.live, 3);
    assert_eq!(service.usage(), 3);
}

#[test]
fn the_quota_never_rejects() {
    let service = Service::with(|setup| {
        for plan in &mut setup.service.plans {
            plan.events_per_month = Some(1);
        }
    });
    service.fill(&service.live, 5);
    assert_eq!(service.usage(), 5);
}
