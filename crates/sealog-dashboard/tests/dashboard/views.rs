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
    let views = stage.wait(stage.control.saved_views(tenant_id(1), person_id(n), project_id(1))).unwrap();
    views.into_iter().map(|view| (view.name, view.query)).collect()
}

#[test]
fn a_view_is_saved_with_filters_and_columns_and_opens_in_any_project() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let query = "q=action:user.login&columns=action&columns=hash&cursor=x&trail=0&actor_id=";
    let page = stage.signed_in(1).get(&format!("{}?query={}", views(), encoded(query)));
    page.shows("value=\"q=action:user.login&#38;columns=action&#38;columns=hash\"");
    let answer = save(&stage, 1, " Sign-ins <b> ", query);
    let kept = "q=action:user.login&columns=action&columns=hash";
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
        ("one more", "actor_id=a", "You have 30 views, the maximum."),
        ("", "actor_id=a", "Enter a name."),
        (long_name.as_str(), "actor_id=a", "Use at most 100 characters."),
        ("long", long_query.as_str(), "These filters are too long to save."),
        ("a\0b", "", "Remove the NUL character."),
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
    let view =
        stage.wait(stage.control.saved_views(tenant_id(1), person_id(1), project_id(1))).unwrap().remove(0);
    let remove = |n, id: &str| stage.signed_in(n).post(&format!("{}/remove", views()), &[("view", id)]);
    remove(2, &view.id.to_string()).is_problem(404, "request/not_found");
    remove(1, "x").is_problem(404, "request/not_found");
    assert_eq!(remove(1, &view.id.to_string()).status, 303);
    assert_eq!(saved(&stage, 1), []);
}

/// The id of somebody's view.
fn id_of(stage: &Stage, n: u8, name: &str) -> String {
    let views = stage.wait(stage.control.saved_views(tenant_id(1), person_id(n), project_id(1))).unwrap();
    views.iter().find(|view| view.name == name).unwrap().id.to_string()
}

fn post(stage: &Stage, n: u8, what: &str, fields: &[(&str, &str)]) -> Response {
    stage.signed_in(n).post(&format!("{}/{what}", views()), fields)
}

fn overview() -> String {
    events_path(1).replace("/events", "")
}

fn shared_records(stage: &Stage) -> Vec<String> {
    let records = stage.records(1).into_iter();
    let name = |record: String| Some(record.split("sealog.view_").nth(1)?.split('"').next()?.to_owned());
    records.filter_map(name).collect()
}

#[test]
fn a_shared_view_is_there_for_all_who_see_its_project_and_a_pinned_one_on_overview() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    save(&stage, 1, "Sign-ins <b>", "action=user.login");
    let id = id_of(&stage, 1, "Sign-ins <b>");
    let sees = |n, path: &str| stage.signed_in(n).get(path).has("Sign-ins &#60;b&#62;");
    assert!(!sees(2, &events_path(1)) && !sees(1, &overview()));
    let answer = post(&stage, 1, "share", &[("view", &id), ("to", "project")]);
    assert_eq!(answer.location(), Some(format!("{}?done=shared", views())));
    stage.signed_in(1).get(&answer.location().unwrap()).shows("View shared.").shows("Shared here");
    assert!(sees(2, &events_path(1)) && sees(2, &views()));
    let elsewhere = events_path(1).replace(&project_id(1).to_string(), &project_id(101).to_string());
    stage.append(ChainId { project_id: project_id(101), ..live(1) }, r#"{"action":"user.login"}"#);
    assert!(!sees(2, &elsewhere) && sees(1, &elsewhere), "in another project it is its owner's alone");
    assert!(!sees(2, &overview()), "it is not pinned");
    assert_eq!(post(&stage, 1, "pin", &[("view", &id), ("to", "overview")]).status, 303);
    assert!(sees(1, &overview()) && sees(2, &overview()));
    let href = format!("{}?action=user.login\"", events_path(1));
    stage.signed_in(2).get(&overview()).shows(&href).shows("Pinned views");
    // Others neither change nor pin it.
    for (what, to) in [("share", "me"), ("pin", "nowhere")] {
        post(&stage, 2, what, &[("view", &id), ("to", to)]).is_problem(404, "request/not_found");
    }
    // Nor is it replaced by one of the same name, unawares.
    let again = save(&stage, 1, "Sign-ins <b>", "");
    assert_eq!(again.status, 422);
    again.shows("You already share a view with this name.");
    assert_eq!(post(&stage, 1, "share", &[("view", &id), ("to", "me")]).status, 303);
    assert!(!sees(2, &events_path(1)) && sees(1, &overview()));
    assert_eq!(shared_records(&stage), ["shared", "shared", "unshared"]);
    assert!(
        !stage.records(1).iter().any(|record| record.contains("Sign-ins")),
        "what it is called may tell of people"
    );
}

#[test]
fn an_auditor_may_not_share_and_sees_what_is_shared_in_granted_projects() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let grants =
        |project| Grants { projects: Some(vec![project_id(project)]), from_ms: None, until_ms: None };
    for (n, project) in [(3, 1), (4, 101)] {
        stage.member_with(n, 1, Role::Auditor, grants(project), None);
        stage.with_authenticator(n);
    }
    let shared = [("name", "of all"), ("query", ""), ("for", "project"), ("pinned", "yes")];
    assert_eq!(post(&stage, 1, "save", &shared).status, 303);
    let page = stage.signed_in(3).get(&views());
    page.shows("of all");
    assert!(!page.has("value=\"project\"") && !page.has("/share\""), "no control that a role may not use");
    stage.signed_in(3).get(&overview()).shows("of all");
    let other = views().replace(&project_id(1).to_string(), &project_id(101).to_string());
    assert!(!stage.signed_in(4).get(&other).has("of all"));
    // Their own is theirs alone.
    assert_eq!(save(&stage, 3, "mine", "").status, 303);
    let id = id_of(&stage, 3, "mine");
    post(&stage, 3, "share", &[("view", &id), ("to", "project")]).is_problem(403, "auth/not_allowed");
    post(&stage, 3, "save", &[("name", "x"), ("for", "project")]).is_problem(403, "auth/not_allowed");
    assert!(!stage.signed_in(1).get(&views()).has(">mine<"));
    assert_eq!(post(&stage, 3, "pin", &[("view", &id), ("to", "overview")]).status, 303);
    stage.signed_in(3).get(&overview()).shows(">mine<");
}

#[test]
fn a_shared_view_is_removed_by_its_owner_or_an_admin_and_by_nobody_else() {
    let stage = stage();
    stage.member(3, 1, Role::Admin);
    stage.member(9, 2, Role::Owner);
    for name in ["a", "b"] {
        post(&stage, 1, "save", &[("name", name), ("query", ""), ("for", "project")]);
    }
    save(&stage, 1, "private", "");
    let (a, b, private) = (id_of(&stage, 1, "a"), id_of(&stage, 1, "b"), id_of(&stage, 1, "private"));
    assert!(!stage.signed_in(2).get(&views()).has(&a), "no button for those who may not");
    post(&stage, 2, "remove", &[("view", &a)]).is_problem(404, "request/not_found");
    post(&stage, 3, "remove", &[("view", &private)]).is_problem(404, "request/not_found");
    let foreign = views().replace(&project_id(1).to_string(), &project_id(2).to_string());
    let answer = stage.signed_in(9).post(&format!("{foreign}/remove"), &[("view", &a)]);
    answer.is_problem(404, "request/not_found");
    stage.signed_in(3).get(&views()).shows(&a);
    assert_eq!(post(&stage, 3, "remove", &[("view", &a)]).status, 303);
    assert_eq!(post(&stage, 1, "remove", &[("view", &b)]).status, 303);
    assert_eq!(saved(&stage, 1), [("private".to_owned(), String::new())]);
    assert_eq!(shared_records(&stage), ["shared", "shared", "unshared", "unshared"]);
    let removed = stage.records(1).into_iter().find(|record| record.contains("view_unshared")).unwrap();
    assert!(removed.contains(&person_id(3).0.to_string()) && removed.contains(&person_id(1).0.to_string()));
}

#[test]
fn thirty_views_are_shared_in_a_project() {
    let stage = stage();
    for n in 0..30 {
        let name = format!("view {n}");
        assert_eq!(post(&stage, 1, "save", &[("name", &name), ("for", "project")]).status, 303);
    }
    let full = post(&stage, 2, "save", &[("name", "one more"), ("for", "project")]);
    assert_eq!(full.status, 422);
    full.shows("This project has 30 shared views")
        .shows("value=\"one more\"")
        .shows("value=\"project\" checked");
    assert_eq!(save(&stage, 2, "one more", "").status, 303);
    let id = id_of(&stage, 2, "one more");
    let full = post(&stage, 2, "share", &[("view", &id), ("to", "project")]);
    assert_eq!(full.status, 422);
    full.shows("This project has 30 shared views");
}

#[test]
fn columns_are_chosen_in_the_address_and_stay_with_links() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login","actor_id":"somebody"}"#);
    let mut browser = stage.signed_in(1);
    let all = browser.get(&events_path(1));
    assert_eq!(all.text().matches("<th scope=\"col\"").count(), 8);
    assert!(!all.has(" hidden</span>"));
    let some =
        browser.get(&format!("{}?q=action:user.login&columns=action&columns=severity", events_path(1)));
    assert_eq!(some.text().matches("<th scope=\"col\"").count(), 3);
    some.shows("5 hidden</span>");
    assert!(!some.has("c-actor") && some.has("c-sev"));
    some.shows("?columns=action&#38;columns=severity&#38;q=action:user.login\">user.login</a>");
    // The form of columns keeps the filter, and the command for the API has no columns.
    some.shows("<input type=\"hidden\" name=\"q\" value=\"action:user.login\">");
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
    for query in ["", "?q=actor:a1"] {
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

#[test]
fn a_permalink_tells_an_auditor_without_an_authenticator_nothing() {
    let stage = stage();
    let log_id = stage.append(live(1), r#"{"action":"user.login"}"#);
    stage.member(3, 1, Role::Auditor);
    let ask = |id: &str| stage.signed_in(3).get(&format!("/app/e/{id}?p={}", project_id(1)));
    for id in [log_id.to_string(), "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned()] {
        ask(&id).is_problem(404, "read/not_found");
    }
    stage.with_authenticator(3);
    assert_eq!(ask(&log_id.to_string()).status, 303);
}
