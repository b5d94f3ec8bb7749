//! 4.3 `GET /v1/events`.

use serde_json::json;

use crate::harness::*;

const DAY_MS: u64 = 24 * HOUR_MS;
/// 2026-11-15T00:00:00.000Z.
const MIDNIGHT_MS: u64 = NOON_MS - 12 * HOUR_MS;

#[track_caller]
fn refused(service: &Service, query: &str, parameter: &str) {
    let message =
        service.get(&format!("/v1/events?{query}"), &service.live).rejected(400, "read/invalid_params");
    assert!(message.contains(&format!("{parameter:?}")), "{message}");
}

#[test]
fn a_page_has_events_and_has_more_and_nothing_else() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    let page = service.get("/v1/events", &service.live).ok();
    assert_eq!(page, json!({"events": [event], "has_more": false}));
}

#[test]
fn an_event_on_a_page_is_byte_for_byte_the_one_of_a_single_read() {
    let service = Service::start();
    let log_id =
        service.log(&service.live, r#"{"action":"user.login","metadata":{"b":1.0,"a":[ "\u00e9" ]}}"#);
    let single = service.get(&format!("/v1/events/{log_id}"), &service.live).body;
    let page = service.get("/v1/events", &service.live).body;
    assert_eq!(page, format!(r#"{{"events":[{single}],"has_more":false}}"#));
}

#[test]
fn an_empty_chain_is_an_empty_page() {
    let service = Service::start();
    assert_eq!(service.get("/v1/events", &service.live).body, r#"{"events":[],"has_more":false}"#);
}

#[test]
fn events_are_listed_newest_first_by_log_id() {
    let service = Service::start();
    let mut log_ids = service.fill(&service.live, 5);
    service.clock.advance(1);
    log_ids.push(service.log(&service.live, LOGIN));
    log_ids.reverse();
    assert_eq!(service.listed(&service.live, "", "log_id"), log_ids);
}

#[test]
fn the_default_limit_is_50() {
    let service = Service::start();
    service.fill(&service.live, 51);
    let page = service.get("/v1/events", &service.live).ok();
    assert_eq!((page["events"].as_array().unwrap().len(), &page["has_more"]), (50, &json!(true)));
}

#[test]
fn a_limit_is_1_to_100_and_any_other_integer_becomes_50() {
    let service = Service::start();
    service.fill(&service.live, 101);
    for (limit, events) in [
        ("1", 1),
        ("2", 2),
        ("99", 99),
        ("100", 100),
        ("101", 50),
        ("0", 50),
        ("-1", 50),
        ("9223372036854775808", 50),
        ("99999999999999999999999999999999999999999999", 50),
        ("-99999999999999999999999999999999999999999999", 50),
        ("007", 7),
    ] {
        let listed = service.listed(&service.live, &format!("?limit={limit}"), "log_id");
        assert_eq!(listed.len(), events, "limit {limit}");
    }
}

#[test]
fn a_limit_that_is_no_integer_is_invalid() {
    let service = Service::start();
    for limit in ["x", "1.0", "1e2", "", "0x10", "%20"] {
        refused(&service, &format!("limit={limit}"), "limit");
    }
}

#[test]
fn next_cursor_is_there_exactly_when_has_more_is_true() {
    let service = Service::start();
    service.fill(&service.live, 3);
    for (limit, more) in [(2, true), (3, false), (4, false)] {
        let page = service.get(&format!("/v1/events?limit={limit}"), &service.live).ok();
        assert_eq!((&page["has_more"], page.get("next_cursor").is_some()), (&json!(more), more));
    }
}

#[test]
fn following_the_cursor_shows_every_event_once() {
    let service = Service::start();
    let mut log_ids = service.fill(&service.live, 25);
    log_ids.reverse();
    let (mut seen, mut query) = (Vec::new(), "?limit=10".to_owned());
    loop {
        let page = service.get(&format!("/v1/events{query}"), &service.live).ok();
        seen.extend(page["events"].as_array().unwrap().iter().map(|event| text(&event["log_id"])));
        let Some(cursor) = page.get("next_cursor") else { break };
        query = format!("?limit=10&cursor={}", text(cursor));
    }
    assert_eq!(seen, log_ids);
}

#[test]
fn a_page_behind_a_cursor_does_not_change_when_events_arrive() {
    let service = Service::start();
    service.fill(&service.live, 10);
    let first = service.get("/v1/events?limit=5", &service.live).ok();
    let second = format!("/v1/events?limit=5&cursor={}", text(&first["next_cursor"]));
    let before = service.get(&second, &service.live).body;
    service.fill(&service.live, 10);
    assert_eq!(service.get(&second, &service.live).body, before);
}

#[test]
fn a_cursor_goes_on_with_the_filter_in_place() {
    let service = Service::start();
    for n in 0..6 {
        service.log(
            &service.live,
            &json!({"action": "user.login", "actor_id": format!("u{}", n % 2)}).to_string(),
        );
    }
    let first = service.get("/v1/events?actor_id=u1&limit=2", &service.live).ok();
    let next = format!("?actor_id=u1&limit=2&cursor={}", text(&first["next_cursor"]));
    assert_eq!(service.listed(&service.live, &next, "chain_seq"), [2]);
}

#[test]
fn a_cursor_that_is_not_one_of_this_list_is_invalid() {
    let service = Service::start();
    service.fill(&service.live, 3);
    let cursor = text(&service.get("/v1/events?limit=1", &service.live).ok()["next_cursor"]);
    let other = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    for key in [&service.test, &other] {
        service.get(&format!("/v1/events?cursor={cursor}"), key).rejected(400, "read/invalid_params");
    }
    let last = if cursor.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &cursor[..cursor.len() - 1]);
    for cursor in [mistyped.as_str(), "", "x", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "%00"] {
        refused(&service, &format!("cursor={cursor}"), "cursor");
    }
}

#[test]
fn action_actor_id_and_resource_match_exactly() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","actor_id":"ann","resource":"doc/1"}"#);
    service.log(&service.live, r#"{"action":"user.logout","actor_id":"anna","resource":"doc/12"}"#);
    for (query, seqs) in [
        ("action=user.login", vec![1]),
        ("action=user.log", vec![]),
        ("action=USER.LOGIN", vec![]),
        ("actor_id=ann", vec![1]),
        ("actor_id=anna", vec![2]),
        ("resource=doc/1", vec![1]),
        ("resource=doc%2F12", vec![2]),
        ("resource=doc", vec![]),
    ] {
        assert_eq!(service.listed(&service.live, &format!("?{query}"), "chain_seq"), seqs, "{query}");
    }
}

#[test]
fn all_filters_must_match() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","actor_id":"a","resource":"r"}"#);
    service.log(&service.live, r#"{"action":"user.login","actor_id":"b","resource":"r"}"#);
    assert_eq!(service.listed(&service.live, "?action=user.login&actor_id=b&resource=r", "chain_seq"), [2]);
    assert_eq!(
        service.listed(&service.live, "?action=user.logout&actor_id=b", "chain_seq"),
        json!([]).as_array().unwrap()[..]
    );
}

#[test]
fn an_absent_field_matches_no_filter() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    assert!(service.listed(&service.live, "?actor_id=null", "chain_seq").is_empty());
}

#[test]
fn values_are_compared_by_meaning_not_by_spelling() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","actor_id":"\u00e9\"\\\n\ud83d\udd12"}"#);
    let query = "?actor_id=%C3%A9%22%5C%0A%F0%9F%94%92";
    assert_eq!(service.listed(&service.live, query, "chain_seq"), [1]);
}

#[test]
fn queries_are_form_encoded() {
    let service = Service::start();
    service.log(&service.live, r#"{"action":"user.login","actor_id":"a b+c"}"#);
    assert_eq!(service.listed(&service.live, "?actor_id=a+b%2Bc", "chain_seq"), [1]);
    assert_eq!(service.listed(&service.live, "?actor%5Fid=a%20b%2bc", "chain_seq"), [1]);
}

#[test]
fn bad_percent_encoding_is_invalid() {
    let service = Service::start();
    for value in ["%", "%4", "%zz", "%ff", "%C3"] {
        refused(&service, &format!("actor_id={value}"), "actor_id");
    }
}

#[test]
fn date_from_is_the_beginning_of_its_day_and_included() {
    let service = Service::start();
    service.clock.set(MIDNIGHT_MS - 1);
    service.log(&service.live, LOGIN);
    service.clock.set(MIDNIGHT_MS);
    service.log(&service.live, LOGIN);
    assert_eq!(service.listed(&service.live, "?date_from=2026-11-15", "chain_seq"), [2]);
    assert_eq!(service.listed(&service.live, "?date_from=2026-11-14", "chain_seq"), [2, 1]);
    assert!(service.listed(&service.live, "?date_from=2026-11-16", "chain_seq").is_empty());
}

#[test]
fn date_to_is_the_end_of_its_day_and_included() {
    let service = Service::start();
    service.clock.set(MIDNIGHT_MS + DAY_MS - 1);
    service.log(&service.live, LOGIN);
    service.clock.set(MIDNIGHT_MS + DAY_MS);
    service.log(&service.live, LOGIN);
    assert_eq!(service.listed(&service.live, "?date_to=2026-11-15", "chain_seq"), [1]);
    assert_eq!(service.listed(&service.live, "?date_to=2026-11-16", "chain_seq"), [2, 1]);
    assert_eq!(service.listed(&service.live, "?date_from=2026-11-15&date_to=2026-11-15", "chain_seq"), [1]);
}

#[test]
fn date_from_after_date_to_is_an_empty_page() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    let page = service.get("/v1/events?date_from=2026-11-16&date_to=2026-11-14", &service.live).ok();
    assert_eq!(page, json!({"events": [], "has_more": false}));
}

#[test]
fn a_bad_date_is_invalid() {
    let service = Service::start();
    for parameter in ["date_from", "date_to"] {
        for date in [
            "",
            "2026-11-1",
            "2026-13-01",
            "2026-02-29",
            "20261115",
            "2026-11-15T00:00:00Z",
            "today",
            "2026-11-31",
        ] {
            refused(&service, &format!("{parameter}={date}"), parameter);
        }
        service.get(&format!("/v1/events?{parameter}=2028-02-29"), &service.live).ok();
    }
}

#[test]
fn an_unknown_parameter_is_invalid() {
    let service = Service::start();
    for parameter in ["x", "Action", "actor", "offset", "from_seq", "severity"] {
        refused(&service, &format!("{parameter}=1"), parameter);
    }
}

#[test]
fn a_repeated_parameter_is_invalid() {
    let service = Service::start();
    refused(&service, "limit=1&limit=1", "limit");
    refused(&service, "actor_id=a&action=user.login&actor_id=b", "actor_id");
}

#[test]
fn an_empty_value_is_invalid() {
    let service = Service::start();
    for parameter in ["action", "actor_id", "resource", "date_from", "date_to", "cursor", "limit"] {
        refused(&service, &format!("{parameter}="), parameter);
        refused(&service, parameter, parameter);
    }
}

#[test]
fn a_page_whose_work_is_spent_ends_early_and_its_cursor_goes_on() {
    let service = Service::start();
    for n in 0..100 {
        let actor_id = if [5, 6, 40, 99].contains(&n) { "wanted" } else { "other" };
        service.log(&service.live, &json!({"action": "user.login", "actor_id": actor_id}).to_string());
    }
    for looked_at in [1, 3, 7, 100] {
        service.hinge().set(Mood::ListsLookAt(looked_at));
        let (mut seqs, mut pages, mut next) = (Vec::new(), Vec::new(), String::new());
        loop {
            let before = service.hinge().lists();
            let page = service.get(&format!("/v1/events?actor_id=wanted{next}"), &service.live).ok();
            assert!(service.hinge().lists() - before <= 4, "one page of work");
            let events = page["events"].as_array().unwrap();
            seqs.extend(events.iter().map(|event| event["chain_seq"].as_u64().unwrap()));
            pages.push(events.len());
            let Some(cursor) = page.get("next_cursor") else { break };
            assert_eq!(page["has_more"], true);
            next = format!("&cursor={}", text(cursor));
        }
        assert_eq!(seqs, [100, 41, 7, 6], "{looked_at} at a time: pages of {pages:?}");
        assert_eq!(pages.contains(&0), looked_at < 10, "{pages:?}");
    }
}

#[test]
fn an_empty_query_string_is_none() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    assert_eq!(service.listed(&service.live, "?", "chain_seq"), [1]);
}

#[test]
fn a_page_of_large_events_comes_whole() {
    let service = Service::with(|setup| setup.segment_bytes = 4 << 20);
    for _ in 0..12 {
        service.event(&service.live, single_of(250_000)).accepted();
    }
    let page = service.get("/v1/events?limit=11", &service.live).ok();
    let seqs: Vec<u64> =
        page["events"].as_array().unwrap().iter().map(|event| event["chain_seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (2..=12).rev().collect::<Vec<_>>());
    let next = format!("?cursor={}", text(&page["next_cursor"]));
    assert_eq!(service.listed(&service.live, &next, "chain_seq"), [1]);
}

#[test]
fn a_damaged_record_is_left_out() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    service.fill(&service.live, 1000);
    service.stop();
    service.home().damage("u7");
    service.resume();
    let query = "?date_to=2026-11-15&limit=100";
    let mut seqs = Vec::new();
    let mut next = query.to_owned();
    loop {
        let page = service.get(&format!("/v1/events{next}"), &service.live).ok();
        seqs.extend(
            page["events"].as_array().unwrap().iter().map(|event| event["chain_seq"].as_u64().unwrap()),
        );
        let Some(cursor) = page.get("next_cursor") else { break };
        next = format!("{query}&cursor={}", text(cursor));
    }
    assert_eq!(seqs, (1..=1000).rev().filter(|seq| *seq != 7).collect::<Vec<_>>());
}

#[test]
fn a_store_that_cannot_answer_is_query_failed() {
    let service = Service::start();
    service.hinge().set(Mood::ReadsFail);
    service.get("/v1/events", &service.live).rejected(500, "read/query_failed");
}

#[test]
fn a_key_is_needed() {
    let service = Service::start();
    service.request("GET", "/v1/events", &[], b"").rejected(401, "auth/missing_header");
    service.get("/v1/events", "at_live_unknown").rejected(401, "auth/key_not_found");
}

#[test]
fn authentication_comes_before_the_parameters() {
    let service = Service::start();
    service.request("GET", "/v1/events?x=1", &[], b"").rejected(401, "auth/missing_header");
}
