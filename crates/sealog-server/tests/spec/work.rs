//! What one request can cause, counted in jobs of the thread pool, calls of the store and connections. The
//! table is in `docs/architecture.md`; steps of parsing are counted in the core's own tests.

use std::time::{Duration, Instant};

use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_store::pool::{FairPool, Lane};
use sealog_store::{Append, Store};
use sealog_testing::busy::Blocked;
use sealog_testing::login;
use serde_json::json;

use crate::harness::{LOGIN, Mood, Service, batch_of, bearer, eventually, request, single_of, wait};

/// Waits until this many jobs wait for a thread that computes.
fn wait_for_jobs(pool: &FairPool, jobs: u64) {
    let begun = Instant::now();
    while pool.waiting(Lane::Compute) < jobs {
        assert!(begun.elapsed() < Duration::from_secs(60), "no job comes");
        std::thread::yield_now();
    }
}

#[test]
fn what_hashes_parses_or_renders_much_waits_for_the_thread_pool_and_the_event_loop_goes_on() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    service.event(&service.live, single_of(200_000)).accepted();
    let large = service.event(&service.live, single_of(250_000)).accepted();
    let key = bearer(&service.live);
    let headers = [("Authorization", key.as_str())];
    for (method, path, body) in [
        ("GET", "/v1/events/verify".to_owned(), String::new()),
        ("GET", "/v1/events".to_owned(), String::new()),
        ("GET", format!("/v1/events/{large}"), String::new()),
        ("GET", "/v1/actions".to_owned(), String::new()),
        ("POST", "/v1/events".to_owned(), single_of(20_000)),
        ("POST", "/v1/events/batch".to_owned(), batch_of(1 << 20)),
    ] {
        let pool = service.hinge().pool();
        let mut connection = service.connect();
        let blocked = Blocked::compute(pool);
        connection.send(&request(method, &path, &headers, body.as_bytes()));
        wait_for_jobs(pool, 1);
        // There is one event loop here: it answers, so it does not do the work that waits.
        assert_eq!(service.get("/healthz", "").status, 200);
        service.event(&service.live, LOGIN).accepted();
        assert_eq!(pool.waiting(Lane::Compute), 1, "{method} {path}");
        drop(blocked);
        let answer = connection.receive();
        assert!(answer.status == 200 || answer.status == 202, "{method} {path}: {}", answer.body);
    }
}

#[test]
fn a_verification_is_done_in_pieces_of_about_a_megabyte() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    for _ in 0..20 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    service.fill(&service.live, 900);
    let pool = service.hinge().pool();
    let (jobs, calls) = (pool.done(Lane::Compute), service.hinge().reads());
    let verdict = service.get("/v1/events/verify", &service.live).ok();
    assert_eq!((&verdict["valid"], &verdict["checked"]), (&json!(true), &json!(920)));
    // 5 MB and 900 small events: a piece ends with the event that reaches a megabyte.
    assert!((4..=8).contains(&(service.hinge().reads() - calls)));
    // A job is counted when it is done, which its answer does not wait for.
    let begun = Instant::now();
    while pool.done(Lane::Compute) - jobs < 4 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the pieces were not hashed in the pool");
        std::thread::yield_now();
    }
}

#[test]
fn a_page_asks_the_store_once_for_each_piece() {
    let service = Service::with(|setup| setup.segment_bytes = 8 << 20);
    service.fill(&service.live, 300);
    let calls = |path: &str| {
        let before = service.hinge().reads();
        service.get(path, &service.live).ok();
        service.hinge().reads() - before
    };
    assert_eq!(calls("/v1/events?limit=100"), 1);
    assert_eq!(calls("/v1/events?limit=100&actor_id=nobody"), 1);
    for _ in 0..20 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    // Two of these are a piece.
    assert!((10..=12).contains(&calls("/v1/events?limit=100")));
}

#[test]
fn metrics_ask_the_store_twice_however_many_chains_there_are_and_probes_never() {
    let service = Service::start();
    let calls = |path: &str| {
        let before = (service.hinge().overviews(), service.hinge().reads());
        assert_eq!(service.get(path, "").status, 200);
        (service.hinge().overviews() - before.0, service.hinge().reads() - before.1)
    };
    // Heads are compared with the clock at start, and then once a minute.
    eventually(|| service.hinge().overviews() == 1);
    service.event(&service.live, LOGIN).accepted();
    assert_eq!(calls("/metrics"), (2, 0));
    for _ in 0..5 {
        let key = service.newcomer("top", &[]);
        service.event(&key, LOGIN).accepted();
    }
    assert_eq!(calls("/metrics"), (2, 0));
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs/"] {
        assert_eq!(calls(path), (0, 0), "{path}");
    }
}

/// Both where all heads are known and where a part of the log cannot be read.
#[test]
fn a_start_compares_the_heads_of_chains_with_what_was_published_and_reads_no_event() {
    const CHAINS: u16 = 300;
    let service = Service::publishing();
    let (hinge, tenant_id) = (service.hinge(), TenantId(Uuid::parse(&service.tenant_id).unwrap()));
    let chain = |n: u16| {
        let project_id = ProjectId(Uuid::from_random([n.to_be_bytes(); 8].concat().try_into().unwrap()));
        ChainId { tenant_id, project_id, mode: Mode::Live }
    };
    let append = |n: u16| {
        let append = Append { chain: chain(n), drafts: vec![login("a"); 3], idempotency: None };
        wait(hinge.append(append)).unwrap();
    };
    (1..=CHAINS).for_each(append);
    service.publish();
    // Some have grown since.
    (1..=9).for_each(append);
    for (mood, of_one) in [(Mood::Willing, 0), (Mood::HeadsUnknown, usize::from(CHAINS))] {
        hinge.set(mood);
        let before = (hinge.overviews(), hinge.heads_of_one(), hinge.reads());
        wait(service.trust().guard()).unwrap();
        let asked = (hinge.overviews() - before.0, hinge.heads_of_one() - before.1, hinge.reads() - before.2);
        // One look at each, and the system chain's.
        let most = if of_one == 0 { 0 } else { of_one + 1 };
        assert!(asked.0 == 1 && (of_one..=most).contains(&asked.1) && asked.2 == 0, "{asked:?}");
    }
}

#[test]
fn a_query_of_60_kilobytes_is_refused_at_its_first_name() {
    let service = Service::start();
    let names: Vec<String> = (0..8_500).map(|n| format!("n{n}=")).collect();
    for path in ["/v1/events", "/v1/events/verify"] {
        let answer = service.get(&format!("{path}?{}", names.join("&")), &service.live);
        let message = answer.rejected(400, "read/invalid_params");
        assert!(message.contains("\"n0\""), "{message}");
    }
    let answer = service.operator("GET", &format!("/tenants?{}", names.join("&")), &json!(null));
    assert!(answer.rejected(400, "read/invalid_params").contains("\"n0\""));
}

#[test]
fn of_a_batch_of_unknown_actions_the_first_is_reported_with_its_suggestion() {
    let service = Service::start();
    let events: Vec<_> = (0..100).map(|n| json!({"action": format!("user.logi{n}")})).collect();
    let answer = service.batch(&service.live, json!({ "events": events }).to_string());
    assert!(answer.rejected(422, "action/invalid").contains("user.logi0"));
    assert_eq!(answer.json["error"]["suggestion"], "user.login");
    // One that can be no name has none.
    let answer = service.event(&service.live, json!({"action": "x".repeat(256)}).to_string());
    answer.rejected(422, "action/invalid");
    assert_eq!(answer.json["error"].get("suggestion"), None);
}

#[test]
fn an_action_has_at_most_100_required_fields_and_a_tenant_at_most_1000_actions() {
    let service = Service::start();
    let path = format!("/tenants/{}/actions", service.tenant_id);
    let fields = |count: usize| (0..count).map(|n| format!("f{n}")).collect::<Vec<_>>();
    for field in ["required_fields", "optional_fields"] {
        let body = json!({"action": format!("wide.{field}"), field: fields(101)});
        service.operator("POST", &path, &body).rejected(422, "validation/invalid_field");
        let body = json!({"action": format!("wide.{field}"), field: fields(100)});
        service.operator("POST", &path, &body).created("action");
    }
    let tenant_id = TenantId(Uuid::parse(&service.tenant_id).unwrap());
    for n in 2..1000 {
        let action = sealog_core::catalog::CustomAction {
            action: format!("custom.{n}"),
            description: None,
            category: None,
            severity: None,
            required_fields: Vec::new(),
            optional_fields: Vec::new(),
        };
        wait(service.control().create_action(tenant_id, action, vec![])).unwrap();
    }
    let message = service.operator("POST", &path, &json!({"action": "one.more"}));
    assert!(message.rejected(422, "validation/invalid_field").contains("the limit of 1000"));
    assert_eq!(service.get("/v1/actions", &service.live).ok()["total"], 58 + 1000);
}

#[test]
fn sockets_that_say_nothing_do_not_keep_another_address_out() {
    let service = Service::with(|setup| {
        setup.config.connections_max = 64;
        setup.config.limits.connections_per_ip = 0;
        // Whoever waited for one of these would wait until the test is given up.
        setup.config.deadlines.first_byte = Duration::from_secs(3600);
        setup.config.deadlines.headers = Duration::from_secs(3600);
    });
    let silent: Vec<_> = (0..100).map(|_| service.connect()).collect();
    let mut half: Vec<_> = (0..50).map(|_| service.connect()).collect();
    for connection in &mut half {
        connection.send(b"GET /v1/events HTTP/1.1\r\nHost: ");
    }
    let mut good = service.connect_from("127.0.0.2");
    for _ in 0..3 {
        good.get("/v1/events", &service.live).ok();
    }
    drop((silent, half));
}

#[test]
fn idle_connections_of_an_address_make_room_for_its_new_ones() {
    let service = Service::with(|setup| {
        setup.config.connections_max = 1000;
        setup.config.limits.connections_per_ip = 20;
    });
    // Fewer than the limit: connections by which the service was set up may still be closing.
    let mut idle: Vec<_> = (0..12).map(|_| service.connect()).collect();
    for connection in &mut idle {
        connection.get("/v1/events", &service.live).ok();
    }
    // Others are not concerned, and the address itself goes on with its latest connections.
    let mut other = service.connect_from("127.0.0.2");
    other.get("/v1/events", &service.live).ok();
    let mut latest = Vec::new();
    for _ in 0..20 {
        let mut connection = service.connect();
        connection.get("/v1/events", &service.live).ok();
        latest.push(connection);
    }
    other.get("/v1/events", &service.live).ok();
    assert_eq!(idle.iter_mut().filter_map(|connection| connection.ended().then_some(())).count(), 12);
}

#[test]
fn an_address_whose_connections_are_all_in_use_gets_no_more_and_others_do() {
    let service = Service::with(|setup| {
        setup.config.connections_max = 1000;
        setup.config.limits.connections_per_ip = 3;
    });
    service.hinge().set(Mood::Holding);
    let key = bearer(&service.live);
    let append = request("POST", "/v1/events", &[("Authorization", &key)], LOGIN.as_bytes());
    // One after the other: a connection that has not sent anything yet makes room for the next.
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut connection = service.connect();
        connection.send(&append);
        service.hinge().wait_until_held();
        busy.push(connection);
    }
    assert!(service.connect().ended());
    service.hinge().set(Mood::Willing);
    let mut other = service.connect_from("127.0.0.2");
    other.get("/v1/events", &service.live).ok();
    for _ in 0..3 {
        service.hinge().release();
    }
    for connection in &mut busy {
        connection.receive().accepted();
    }
    let metrics = other.get("/metrics", "").body;
    assert!(metrics.contains("sealog_connections_refused_total 1\n"), "{metrics}");
}

#[test]
fn a_trusted_proxy_may_have_more_connections_than_an_address() {
    let service = Service::with(|setup| {
        setup.config.limits.connections_per_ip = 2;
        setup.config.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    });
    service.hinge().set(Mood::Holding);
    let key = bearer(&service.live);
    let append = request("POST", "/v1/events", &[("Authorization", &key)], LOGIN.as_bytes());
    let mut busy: Vec<_> = (0..5).map(|_| service.connect()).collect();
    for connection in &mut busy {
        connection.send(&append);
        service.hinge().wait_until_held();
    }
    for _ in 0..5 {
        service.hinge().release();
    }
    for connection in &mut busy {
        connection.receive().accepted();
    }
}

#[test]
fn leaves_are_made_in_pieces_of_about_a_megabyte() {
    let service = Service::with(|setup| {
        setup.trust = true;
        setup.segment_bytes = 8 << 20;
    });
    for _ in 0..20 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    service.fill(&service.live, 236);
    service.publish();
    let calls = |path: &str| {
        let before = service.hinge().reads();
        assert_eq!(service.get(path, &service.live).status, 200);
        service.hinge().reads() - before
    };
    // 5 MB: a piece ends with the event that reaches a megabyte.
    let calls_of_leaves = calls("/tlog/v1/chain/tile/entries/000");
    assert!((4..=8).contains(&calls_of_leaves), "{calls_of_leaves}");
    let calls_of_both = calls("/tlog/v1/chain/verify");
    assert!((8..=16).contains(&calls_of_both), "{calls_of_both}");
}

#[test]
fn a_range_of_any_length_costs_two_paths_and_no_event() {
    let service = Service::publishing();
    service.fill(&service.live, 300);
    service.publish();
    let before = service.hinge().reads();
    let proof = service.get("/tlog/v1/chain/range?from_seq=2&to_seq=299", &service.live).ok();
    assert_eq!(service.hinge().reads(), before);
    let length = |list: &serde_json::Value| list.as_array().unwrap().len();
    // At most two subtrees, and two keys, of each of nine levels.
    assert!((1..=18).contains(&length(&proof["chain"]["path"])), "{proof}");
    assert!((1..=18).contains(&length(&proof["salts"])), "{proof}");
}
