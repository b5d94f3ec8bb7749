//! Saved views, columns, the way back through a list, and links to an event.

use sealog_control::*;
use sealog_core::id::ChainId;

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Developer);
    stage.member(2, 1, Role::Developer);
    stage
}

fn views() -> String {
    events_path(1).replace("/events", "/views")
}

fn save(stage: &Stage, n: u8, name: &str, query: &str) -> Response {
    stage.signed_in(n).post(&format!("{}/save", views()), &[("name", name), ("query", query)])
}

fn saved(stage: &Stage, n: u8) -> Vec<(String, String)> {
    let views = stage.wait(stage.control.saved_views(tenant_id(1), person_id(n))).unwrap();
    views.into_iter().map(|view| (view.name, view.query)).collect()
}

#[test]
fn a_view_is_saved_with_filters_and_columns_and_opens_in_any_project() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let query = "action=user.login&columns=action&columns=hash&cursor=x&trail=0&actor_id=";
    let page = stage.signed_in(1).get(&format!("{}?query={}", views(), encoded(query)));
    page.shows("value=\"action=user.login&#38;columns=action&#38;columns=hash\"");
    let answer = save(&stage, 1, " Sign-ins <b> ", query);
    let kept = "action=user.login&columns=action&columns=hash";
    assert_eq!(answer.location(), Some(format!("{}?{kept}", events_path(1))));
    assert_eq!(saved(&stage, 1), [("Sign-ins <b>".to_owned(), kept.to_owned())]);
    let href = format!("{}?{}", events_path(1), kept.replace('&', "&#38;"));
    stage.signed_in(1).get(&events_path(1)).shows(&href).shows("Sign-ins &#60;b&#62;");
    let other = format!("/app/p/{}/test/events", project_id(101));
    stage.append(
        ChainId { project_id: project_id(101), mode: sealog_core::id::Mode::Test, ..live(1) },
        r#"{"action":"user.login"}"#,
    );
    stage.signed_in(1).get(&other).shows(&href.replace(&events_path(1), &other));
    // Others have their own.
    assert!(!stage.signed_in(2).get(&events_path(1)).has("Sign-ins"));
    // The same name again is the same view.
    save(&stage, 1, "Sign-ins <b>", "");
    assert_eq!(saved(&stage, 1), [("Sign-ins <b>".to_owned(), String::new())]);
}

#[test]
fn a_person_has_thirty_views_and_what_is_wrong_stands_beside_the_name() {
    let stage = stage();
    for n in 0..30 {
        assert_eq!(save(&stage, 1, &format!("view {n}"), "").status, 303);
    }
    let long_name = "x".repeat(101);
    let long_query = format!("action={}", "x".repeat(2000));
    for (name, query, problem) in [
        ("one more", "actor_id=a", "You have 30 views here."),
        ("", "actor_id=a", "Give it a name."),
        (long_name.as_str(), "actor_id=a", "Use at most 100 characters."),
        ("long", long_query.as_str(), "The query is too long to be saved."),
        ("a\0b", "", "Leave out the NUL character."),
    ] {
        let answer = save(&stage, 1, name, query);
        assert_eq!(answer.status, 422, "{problem}");
        answer.shows(problem);
        if query == "actor_id=a" {
            answer.shows("value=\"actor_id=a\"").shows(&format!("value=\"{name}\""));
        }
    }
    assert_eq!(saved(&stage, 1).len(), 30);
    assert_eq!(save(&stage, 1, "view 7", "actor_id=a").status, 303, "in place of another there is room");
}

#[test]
fn a_view_is_removed_by_its_owner_alone() {
    let stage = stage();
    save(&stage, 1, "mine", "");
    let view = stage.wait(stage.control.saved_views(tenant_id(1), person_id(1))).unwrap().remove(0);
    let remove = |n, id: &str| stage.signed_in(n).post(&format!("{}/remove", views()), &[("view", id)]);
    remove(2, &view.id.to_string()).is_problem(404, "request/not_found");
    remove(1, "x").is_problem(404, "request/not_found");
    assert_eq!(remove(1, &view.id.to_string()).status, 303);
    assert_eq!(saved(&stage, 1), []);
}

#[test]
fn columns_are_chosen_in_the_address_and_stay_with_links() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login","actor_id":"somebody"}"#);
    let mut browser = stage.signed_in(1);
    let all = browser.get(&events_path(1));
    assert_eq!(all.text().matches("role=\"columnheader\"").count(), 8);
    let some = browser.get(&format!("{}?action=user.login&columns=action&columns=severity", events_path(1)));
    assert_eq!(some.text().matches("role=\"columnheader\"").count(), 3);
    assert!(!some.has("somebody") && some.has("c-sev"));
    some.shows("?columns=action&#38;columns=severity&#38;action=user.login\" title=\"Only this action\"");
    // The form of columns keeps the filter, and the command for the API has no columns.
    some.shows("<input type=\"hidden\" name=\"action\" value=\"user.login\">");
    some.shows("/v1/events?action=user.login&#39; -H");
}

#[test]
fn a_list_is_walked_to_older_pages_and_back_to_newer_ones_with_its_filter() {
    let stage = stage();
    for n in 0..160 {
        stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"a{}\"}}", n % 2));
    }
    let first = |page: &Response| {
        let row = page.text().split("<a class=\"num\" href=\"").nth(1).unwrap().split(">#").nth(1).unwrap();
        row.split('<').next().unwrap().to_owned()
    };
    let link = |page: &Response, rel: &str| {
        let tag = page.text().split("<a ").find(|tag| tag.contains(&format!("rel=\"{rel}\"")))?.to_owned();
        Some(tag.split("href=\"").nth(1)?.split('"').next()?.replace("&#38;", "&"))
    };
    for query in ["", "?actor_id=a1"] {
        let mut browser = stage.signed_in(1);
        let mut page = browser.get(&format!("{}{query}", events_path(1)));
        assert_eq!(link(&page, "prev"), None, "there is nothing newer");
        let mut firsts = vec![first(&page)];
        while let Some(older) = link(&page, "next") {
            page = browser.get(&older);
            firsts.push(first(&page));
        }
        assert!(firsts.len() >= 2);
        for expected in firsts.iter().rev().skip(1) {
            page = browser.get(&link(&page, "prev").expect("a way back"));
            assert_eq!(first(&page), *expected);
        }
        assert_eq!(link(&page, "prev"), None);
    }
    // A trail that somebody made up leads nowhere, and breaks nothing.
    let page = stage.signed_in(1).get(&format!("{}?trail=nonsense", events_path(1)));
    assert_eq!((page.status, link(&page, "prev")), (200, None));
}

#[test]
fn an_event_is_found_by_its_id_alone_and_one_that_is_not_yours_is_not_there() {
    let stage = stage();
    let log_id = stage.append(live(1), r#"{"action":"user.login"}"#);
    let test_chain = ChainId { project_id: project_id(101), mode: sealog_core::id::Mode::Test, ..live(1) };
    // The clock of the store stands still, so the first events of all chains have one id.
    let last_of =
        |chain, count| (0..count).map(|_| stage.append(chain, r#"{"action":"user.login"}"#)).last().unwrap();
    let of_test = last_of(test_chain, 2);
    let foreign = last_of(live(2), 3);
    let path = |id: &str| format!("/app/e/{id}");
    let mut browser = stage.signed_in(1);
    let event = format!("{}/{log_id}", events_path(1));
    for id in [log_id.to_string(), log_id.to_string().to_lowercase()] {
        assert_eq!(browser.get(&path(&id)).location(), Some(event.clone()));
    }
    let expected = format!("/app/p/{}/test/events/{of_test}", project_id(101));
    assert_eq!(browser.get(&path(&of_test.to_string())).location(), Some(expected));
    for id in [foreign.to_string(), "x".into(), "01ARZ3NDEKTSV4RRFFQ69G5FAV".into()] {
        browser.get(&path(&id)).is_problem(404, "read/not_found");
        // A project that is named wrongly changes nothing.
        browser.get(&format!("{}?p={}", path(&id), project_id(2))).is_problem(404, "read/not_found");
    }
    // The page of an event has the link, which names its project.
    let page = browser.get(&event);
    let link = format!("/app/e/{log_id}?p={}", project_id(1));
    page.shows(&link);
    assert_eq!(browser.get(&link).location(), Some(event));
    // Outside of the granted time, and in a project that is not granted, it is not there either.
    let log_id = last_of(live(1), 2);
    let at = stage.wait(stage.store.get(live(1), log_id)).unwrap().unwrap().timestamp_ms;
    let grants =
        |project, until_ms| Grants { projects: Some(vec![project_id(project)]), from_ms: None, until_ms };
    for (n, grants, is_there) in
        [(3, grants(1, Some(at)), false), (4, grants(101, None), false), (5, grants(1, None), true)]
    {
        stage.member_with(n, 1, Role::Auditor, grants, None);
        stage.with_authenticator(n);
        let answer = stage.signed_in(n).get(&format!("/app/e/{log_id}?p={}", project_id(1)));
        assert_eq!(answer.status, if is_there { 303 } else { 404 }, "{n}");
    }
}
