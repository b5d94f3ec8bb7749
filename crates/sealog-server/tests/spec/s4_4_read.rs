//! 4.4 `GET /v1/events/{log_id}`.

use crate::harness::*;

#[test]
fn an_event_is_found_by_its_log_id_and_the_body_is_the_event_alone() {
    let service = Service::start();
    let log_id = service.log(&service.live, r#"{"action":"user.login","actor_id":"a"}"#);
    let event = service.read(&service.live, &log_id);
    assert_eq!((&event["log_id"], &event["actor_id"]), (&log_id.as_str().into(), &"a".into()));
    assert_eq!(event.get("request_id"), None);
    assert_eq!(event.get("actor_type"), None);
}

#[test]
fn a_log_id_may_be_in_lower_case() {
    let service = Service::start();
    let event = service.stored(&service.live, LOGIN);
    let log_id = text(&event["log_id"]);
    assert_eq!(service.read(&service.live, &log_id.to_lowercase()), event);
}

#[test]
fn the_query_string_is_ignored() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    service.get(&format!("/v1/events/{log_id}?x=1&x=%zz"), &service.live).ok();
}

#[test]
fn an_unknown_log_id_is_not_found() {
    let service = Service::start();
    service.log(&service.live, LOGIN);
    for log_id in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"] {
        service.get(&format!("/v1/events/{log_id}"), &service.live).rejected(404, "read/not_found");
    }
}

#[test]
fn a_malformed_log_id_is_not_found() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    for malformed in [
        "x",
        &log_id[1..],
        &format!("{log_id}0"),
        &format!("{}U", &log_id[..25]),
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "%30",
        "batches",
        "..",
    ] {
        service.get(&format!("/v1/events/{malformed}"), &service.live).rejected(404, "read/not_found");
    }
}

#[test]
fn an_event_of_another_project_is_not_found_and_the_answer_is_that_of_an_unknown_one() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    let other = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    let foreign = service.get(&format!("/v1/events/{log_id}"), &other).rejected(404, "read/not_found");
    let unknown =
        service.get("/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", &other).rejected(404, "read/not_found");
    assert_eq!(foreign, unknown);
}

#[test]
fn an_event_of_the_other_mode_is_not_found() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    service.get(&format!("/v1/events/{log_id}"), &service.test).rejected(404, "read/not_found");
}

#[test]
fn a_damaged_record_is_query_failed() {
    let mut service = Service::with(|setup| setup.segment_bytes = 64 << 10);
    let log_ids = service.fill(&service.live, 1000);
    service.stop();
    service.home().damage("u7");
    service.resume();
    service.get(&format!("/v1/events/{}", log_ids[6]), &service.live).rejected(500, "read/query_failed");
    service.read(&service.live, &log_ids[5]);
    service.read(&service.live, &log_ids[7]);
}

#[test]
fn a_store_that_cannot_answer_is_query_failed() {
    let service = Service::start();
    let log_id = service.log(&service.live, LOGIN);
    service.hinge().set(Mood::ReadsFail);
    service.get(&format!("/v1/events/{log_id}"), &service.live).rejected(500, "read/query_failed");
}

#[test]
fn a_key_is_needed() {
    let service = Service::start();
    let path = format!("/v1/events/{}", service.log(&service.live, LOGIN));
    service.request("GET", &path, &[], b"").rejected(401, "auth/missing_header");
    service.request("GET", "/v1/events/malformed", &[], b"").rejected(401, "auth/missing_header");
}
