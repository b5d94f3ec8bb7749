//! Events as people see them.

use sealog_control::Role;
use sealog_core::id::{ChainId, Mode};
use sealog_store::world::World;
use sealog_testing::doubtful::Doubt;
use sha2::{Digest, Sha256};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Developer);
    stage
}

fn rows(page: &Response) -> Vec<u64> {
    let rows = page.text().split("<a class=\"num\" href=\"").skip(1);
    let seqs =
        rows.filter_map(|row| row.split_once(">#")?.1.split('<').next()?.replace(',', "").parse().ok());
    seqs.collect()
}

/// As the page would write it.
fn term(field: &str, value: &str) -> String {
    format!("{field}:\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn link(page: &Response, rel: &str) -> Option<String> {
    let tag = page.text().split("<a ").find(|tag| tag.contains(rel))?;
    Some(tag.split("href=\"").nth(1)?.split('"').next()?.replace("&#38;", "&").replace("&amp;", "&"))
}

#[test]
fn an_empty_chain_shows_the_command_that_sends_the_first_event() {
    let stage = stage();
    let page = stage.signed_in(1).get(&events_path(1));
    page.shows("No events yet").shows("curl -sS -i http://127.0.0.1:8080/v1/events").shows("at_live_");
    let test = stage.signed_in(1).get(&events_path(1).replace("/live/", "/test/"));
    test.shows("at_test_").shows("Test data: separate chain, not in compliance exports");
    assert!(!page.has("Test data:"));
}

#[test]
fn pages_of_fifty_follow_each_other_to_the_first_event() {
    let stage = stage();
    for n in 0..120 {
        stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"a{}\"}}", n % 3));
    }
    let mut browser = stage.signed_in(1);
    let mut page = browser.get(&events_path(1));
    let mut seen = rows(&page);
    assert_eq!(seen.len(), 50);
    while let Some(older) = link(&page, "rel=\"next\"") {
        page = browser.get(&older);
        seen.extend(rows(&page));
    }
    assert_eq!(seen, (1..=120).rev().collect::<Vec<_>>());
    assert!(!page.has("missing or damaged"));
    // What a form sends becomes one query, and its empty fields leave the address.
    let form = "?q=&action=user.login&actor_id=a1&resource=&date_from=&date_to=";
    let led = browser.get(&format!("{}{form}", events_path(1)));
    let filtered = format!("{}?q=action:user.login+actor:a1", events_path(1));
    assert_eq!((led.status, led.location()), (303, Some(filtered.clone())));
    let page = browser.get(&filtered);
    assert_eq!(rows(&page), (1..=120).rev().filter(|seq| (seq - 1) % 3 == 1).collect::<Vec<_>>());
    page.shows("/v1/events?action=user.login&#38;actor_id=a1").shows("aria-label=\"Remove actor:a1\"");
    assert!(!page.has("missing or damaged"), "a filter leaves gaps");
    assert_eq!(rows(&browser.get(&format!("{}?q=action:user.logi", events_path(1)))), Vec::<u64>::new());
}

#[test]
fn what_is_no_filter_is_said_and_a_filter_that_is_wrong_stays_to_be_corrected() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let mut browser = stage.signed_in(1);
    let led = browser.get(&format!("{}?q=&action=user.login&date_from=yesterday", events_path(1)));
    let page = browser.get(&led.location().unwrap());
    assert_eq!((page.status, rows(&page)), (400, vec![1]));
    page.shows("value=\"from:yesterday\"").shows("write a day like").shows("Remove action:user.login");
    let page = browser.get(&format!("{}?foo=1", events_path(1)));
    assert_eq!(page.status, 400);
    page.shows("role=\"alert\"").shows("foo");
}

#[test]
fn a_row_opens_beside_the_list_as_the_part_of_its_page_that_caches_are_told_of() {
    let stage = stage();
    let evil = "<b>\u{202e}".to_owned() + &"x".repeat(200);
    let log_id = stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"{evil}"}}"#));
    let mut browser = stage.signed_in(1);
    let path = format!("{}/{log_id}", events_path(1));
    let part = browser.send("GET", &path, &[("hx-request", "true")], "");
    assert_eq!((part.status, part.header("vary")), (200, Some("HX-Request")));
    assert!(!part.has("<html") && !part.has("<h1") && !part.has("<b>") && !part.text().contains('\u{202e}'));
    part.shows("<h2 class=\"wrap\">user.login by &#60;b&#62;\\u{202e}xx").shows("Hash recomputed");
    let page = browser.get(&path);
    assert_eq!(page.header("vary"), Some("HX-Request"));
    page.shows("<h1 class=\"wrap\">");
    // As a page, so beside the list: what is not there, and what is somebody else's, is refused.
    stage.tenant(2);
    stage.sealing.advance(1000);
    let foreign = stage.append(live(2), r#"{"action":"user.login"}"#);
    for path in [format!("{}/{foreign}", events_path(1)), format!("{}/{foreign}", events_path(2))] {
        assert_eq!(browser.send("GET", &path, &[("hx-request", "true")], "").status, 404);
    }
}

#[test]
fn severities_have_their_signs_and_what_nobody_knows_has_none() {
    let stage = stage();
    for severity in ["info", "warn", "critical", "\\\"><i>"] {
        stage.append(live(1), &format!(r#"{{"action":"user.login","severity":"{severity}"}}"#));
    }
    let page = stage.signed_in(1).get(&events_path(1));
    for class in ["f sev info\"", "f sev warning\"", "f sev critical\"", "f sev\""] {
        page.shows(&format!("class=\"{class}"));
    }
    assert!(!page.has("<i>"));
}

#[test]
fn a_chain_that_is_known_to_be_broken_is_counted_in_the_rail_and_not_for_those_who_see_a_part() {
    let stage = stage();
    for _ in 0..3 {
        stage.append(live(1), r#"{"action":"user.login"}"#);
    }
    let mut browser = stage.signed_in(1);
    assert!(!browser.get(&events_path(1)).has("class=\"count\""));
    stage.doubtful.doubt(2, Doubt::Missing);
    browser.post(&format!("{}/start", verify_path(1)), &[]);
    stage.work();
    let count = "Verification<span class=\"count\">1<span class=\"vh\"> broken</span></span>";
    browser.get(&events_path(1)).shows(count);
    browser.get(&format!("/app/o/{}/keys", tenant_id(1))).shows(count);
    assert!(!browser.get(&events_path(1).replace("/live/", "/test/")).has("class=\"count\""));
    let grants = sealog_control::Grants { projects: None, from_ms: Some(1), until_ms: None };
    stage.member_with(5, 1, Role::Auditor, grants, None);
    stage.with_authenticator(5);
    assert!(!stage.signed_in(5).get(&events_path(1)).has("class=\"count\""));
    stage.doubtful.trust();
    browser.post(&format!("{}/start", verify_path(1)), &[]);
    stage.work();
    assert!(!browser.get(&events_path(1)).has("class=\"count\""), "a newer verification found it sound");
}

#[test]
fn switching_mode_or_project_keeps_the_page() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let (live, test) = (format!("/app/p/{}/live", project_id(1)), format!("/app/p/{}/test", project_id(1)));
    for page in ["", "/events", "/verify", "/frameworks"] {
        let shown = browser.get(&format!("{live}{page}"));
        shown.shows(&format!("<a href=\"{test}{page}\">Test</a>"));
        shown.shows(&format!("<a href=\"{live}{page}\" aria-current=\"true\">"));
        // The other project of the organisation, in the mode that is shown.
        let other = format!("/app/p/{}", project_id(101));
        shown.shows(&format!("<a href=\"{other}/live{page}\">"));
        // Frameworks are of live events: in the other mode their page leads to these.
        if page != "/frameworks" {
            browser.get(&format!("{test}{page}")).shows(&format!("<a href=\"{other}/test{page}\">"));
        }
    }
}

#[test]
fn an_event_shows_what_is_sealed_apart_from_what_is_not_and_the_text_that_was_hashed() {
    let stage = stage();
    let ids: Vec<_> = (0..3)
        .map(|n| {
            stage.append(
                live(1),
                &format!("{{\"action\":\"user.login\",\"actor_id\":\"it's {n}\",\"resource\":\"session/{n}\",\"severity\":\"warning\",\"metadata\":{{\"n\":1.0,\"a\":[]}}}}"),
            )
        })
        .collect();
    let mut browser = stage.signed_in(1);
    let path = format!("{}/{}", events_path(1), ids[1]);
    let page = browser.get(&path);
    let event = stage.wait(stage.store.get(live(1), ids[1])).unwrap().unwrap();
    let (sealed, enriched) = page.text().split_once("id=\"pb\"").unwrap();
    assert!(sealed.contains("session/1") && sealed.contains("&#34;n&#34;: 1.0"), "{sealed}");
    assert!(!sealed.contains("warning") && enriched.contains("warning"));
    page.shows("Linked to its neighbours").shows("Hash recomputed by the server");
    for neighbour in [ids[0], ids[2]] {
        page.shows(&format!("{}/{neighbour}\"", events_path(1)));
    }
    let file = browser.get(&format!("{path}/hashed.txt"));
    assert_eq!(file.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(file.header("cache-control"), Some("no-store"));
    let digest = hex::encode(Sha256::digest(&file.body));
    assert_eq!(digest, event.sealed.hash.to_string());
    page.shows(&format!("data-recompute=\"{digest}\""));
    // The command on the page, as a shell runs it.
    let line = page.text().split("id=\"l-line\"").nth(1).unwrap();
    let line = line.split("data-copy>").nth(1).unwrap().split("</pre>").next().unwrap();
    let line = line.replace("&#34;", "\"").replace("&#39;", "'").replace("&#38;", "&");
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(&digest), "{line}");
}

/// What events may hold: script, marks that turn text around, formulas, lone surrogates, deep and large
/// metadata.
#[test]
fn hostile_contents_are_text_on_every_page() {
    let stage = stage();
    let evil = "<script>alert(1)</script>\\\"'><img src=x onerror=alert(1)>{{7*7}}=cmd|' /C calc'!A0";
    let deep = format!("{}{}", "[".repeat(60_000), "]".repeat(60_000));
    let bodies = [
        format!(r#"{{"action":"user.login","actor_id":"{evil}","resource":"{evil}","severity":"{evil}","session_id":"{evil}","metadata":{{"{evil}":"{evil}"}}}}"#),
        "{\"action\":\"user.login\",\"actor_id\":\"a\\u202eb\",\"metadata\":{\"x\":\"\\ud800\",\"y\":\"\\u0000\\u2028\"}}".to_owned(),
        format!(r#"{{"action":"user.login","metadata":{{"deep":{deep}}}}}"#),
        format!(r#"{{"action":"user.login","metadata":{{"large":"{}"}}}}"#, "<é".repeat(60_000)),
    ];
    let mut browser = stage.signed_in(1);
    for body in &bodies {
        let log_id = stage.append(live(1), body);
        let path = format!("{}/{log_id}", events_path(1));
        let list = browser.get(&events_path(1));
        let page = browser.get(&path);
        for answer in [&list, &page] {
            assert_eq!(answer.status, 200);
            let text = answer.text();
            assert!(!text.contains("<script>") && !text.contains("<img"), "{text}");
            assert!(!text.contains('\u{202e}'), "{text}");
            assert!(answer.body.len() < 200_000, "{}", answer.body.len());
        }
        let file = browser.get(&format!("{path}/hashed.txt"));
        let event = stage.wait(stage.store.get(live(1), log_id)).unwrap().unwrap();
        let digest = hex::encode(Sha256::digest(&file.body));
        assert_eq!(digest, event.sealed.hash.to_string());
        // No browser takes it for a page.
        assert!(file.header("content-disposition").unwrap().starts_with("attachment"));
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    }
    let page = browser.get(&events_path(1));
    page.shows("a\\u{202e}b").shows("&#60;script&#62;");
    // As it was sent, a mark and not its escape: what it turns around is the text that was hashed.
    let marked = stage.append(live(1), "{\"action\":\"user.login\",\"metadata\":{\"x\":\"a\u{202e}b\"}}");
    let page = browser.get(&format!("{}/{marked}", events_path(1)));
    assert!(!page.text().contains('\u{202e}'));
    page.shows("{&#34;x&#34;:&#34;a\\u{202e}b&#34;}").shows("Invisible characters appear as escapes");
    // A filter by a hostile value leads back to the event.
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}=cmd|' /C calc'!A0";
    let filtered = browser.get(&format!("{}?q={}", events_path(1), encoded(&term("actor", evil))));
    assert_eq!(rows(&filtered), [1]);
    assert!(!filtered.has("<script>"));
}

#[test]
fn an_event_of_another_project_or_mode_is_not_found() {
    let stage = stage();
    stage.tenant(2);
    let foreign = stage.append(live(2), r#"{"action":"user.login"}"#);
    let test = stage.append(ChainId { mode: Mode::Test, ..live(1) }, r#"{"action":"user.login"}"#);
    let mut browser = stage.signed_in(1);
    for log_id in [foreign, test] {
        browser.get(&format!("{}/{log_id}", events_path(1))).is_problem(404, "read/not_found");
    }
    browser.get(&format!("{}/{foreign}", events_path(2))).is_problem(404, "request/not_found");
    let path = events_path(1).replace("/live/", "/test/");
    assert_eq!(browser.get(&format!("{path}/{}", test.to_string().to_lowercase())).status, 200);
}

#[test]
fn each_value_of_a_row_leads_to_the_list_with_it_and_the_event_to_the_list_without_it() {
    let stage = stage();
    stage.append(
        live(1),
        r#"{"action":"user.login","actor_id":"a b","resource":"doc/\"1\"","severity":"warning"}"#,
    );
    stage.append(
        live(1),
        r#"{"action":"user.login","actor_id":"c","resource":"doc/2","severity":"critical"}"#,
    );
    let other = stage.append(live(1), r#"{"action":"data.exported","actor_id":"c","severity":"info"}"#);
    let mut browser = stage.signed_in(1);
    let list = format!("{}?q=-actor%3Anobody", events_path(1));
    let page = browser.get(&list);
    assert_eq!(rows(&page), [3, 2, 1]);
    // Where a browser goes from this page.
    let follow = |browser: &mut Browser<'_>, mark: &str| {
        let tag = page.text().split("<a ").find(|tag| tag.contains(mark)).unwrap();
        let href = tag.split("href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
        assert!(href.starts_with('?'), "{href}");
        rows(&browser.get(&format!("{}{href}", events_path(1))))
    };
    for (mark, expected) in [
        (">critical</a>", vec![2]),
        (">a b</a>", vec![1]),
        (">doc/&#34;1&#34;</a>", vec![1]),
        (">data.exported</a>", vec![3]),
    ] {
        assert_eq!(follow(&mut browser, mark), expected, "{mark}");
    }
    // Without a script or a mouse, the page of the event has the same.
    let event = browser.get(&format!("{}/{other}", events_path(1)));
    let values: Vec<String> = event
        .text()
        .split("href=\"")
        .filter(|rest| rest.split("</a>").next().is_some_and(|link| link.contains("Exclude<")))
        .map(|rest| rest.split('"').next().unwrap().replace("&#38;", "&"))
        .collect();
    assert_eq!(values.len(), 2, "it has no resource");
    assert_eq!(rows(&browser.get(&values[0])), [2, 1]);
    assert_eq!(rows(&browser.get(&values[1])), [1]);
}

#[test]
fn a_list_and_an_event_are_copied_as_commands_that_leave_out_what_the_api_does_not_have() {
    let stage = stage();
    let log_id = stage.append(live(1), r#"{"action":"user.login","actor_id":"it's","metadata":{"a":1.0}}"#);
    let mut browser = stage.signed_in(1);
    let page =
        browser.get(&format!("{}?q={}&columns=time", events_path(1), encoded("actor:it's severity:info")));
    page.shows(
        "SEALOG_URL=http://127.0.0.1:8080 sealog events list --actor-id &#39;it&#39;\\&#39;&#39;s&#39;</pre>",
    );
    page.shows("/v1/events?actor_id=it%27s&#39; -H").shows("exact filters that API v1 supports");
    let hidden = browser.get(&format!("{}?q=actor:%E2%80%AE", events_path(1)));
    hidden.shows("characters that a terminal cannot show").shows("/v1/events?actor_id=%E2%80%AE&#39;");
    assert!(!hidden.has("sealog events list"));
    let event = browser.get(&format!("{}/{log_id}", events_path(1)));
    event.shows(&format!("sealog events get {log_id}</pre>"));
    event.shows(&format!("curl -sS http://127.0.0.1:8080/v1/events/{log_id} -H"));
    event.shows(&format!("](http://127.0.0.1:8080/app/e/{log_id}?p={})", project_id(1)));
    event.shows("&#34;a&#34;: 1.0\n").shows("Verify this part of the chain").shows("/verify?around=1#new\"");
}

#[test]
fn recent_values_are_offered_and_to_an_auditor_those_of_the_page_alone() {
    let stage = stage();
    let long = "x".repeat(81);
    for body in [
        r#"{"action":"custom.thing","actor_id":"usr_1","resource":"doc/a b"}"#.to_owned(),
        format!(r#"{{"action":"user.login","actor_id":"{long}","resource":"a\u202eb"}}"#),
    ] {
        stage.append(live(1), &body);
    }
    stage.sealing.advance(1000);
    let until_ms = stage.sealing.now_ms();
    for n in 0..60 {
        stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"late_{n}"}}"#));
    }
    let hints = |page: &Response| -> Vec<String> {
        let options = page.text().split("<option>").skip(1);
        options.map(|rest| rest.split('<').next().unwrap().replace("&#34;", "\"")).collect()
    };
    let mut browser = stage.signed_in(1);
    let first = hints(&browser.get(&events_path(1)));
    let actors: Vec<&String> = first.iter().filter(|hint| hint.starts_with("actor:late_")).collect();
    assert_eq!((actors.len(), actors[0].as_str()), (12, "actor:late_59"), "the newest, and not all of them");
    assert!(!first.contains(&"actor:usr_1".to_owned()), "it is not among the last fifty");
    // On a list of other events they are the newest all the same.
    let typed = hints(&browser.get(&format!("{}?q=actor:usr_1", events_path(1))));
    assert!(typed.contains(&"actor:late_59".to_owned()), "{typed:?}");
    // To an auditor, what is on the page: that is recorded as seen.
    let grants = sealog_control::Grants { projects: None, from_ms: None, until_ms: Some(until_ms) };
    stage.member_with(5, 1, Role::Auditor, grants, None);
    stage.with_authenticator(5);
    let seen = hints(&stage.signed_in(5).get(&format!("{}?q=action:custom.thing", events_path(1))));
    for expected in ["actor:usr_1", "resource:\"doc/a b\"", "action:custom.thing"] {
        assert!(seen.contains(&expected.to_owned()), "{expected}: {seen:?}");
    }
    assert!(!seen.iter().any(|hint| hint.contains("late_")), "outside of the granted time");
    let all = hints(&stage.signed_in(5).get(&events_path(1)));
    assert!(!all.iter().any(|hint| hint.contains("xxxx") || hint.contains("202e") || hint.contains("late_")));
}

#[test]
fn numbers_that_are_missing_are_rows_of_their_own_where_nothing_is_left_out() {
    let stage = stage();
    for n in 0..8 {
        stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"a{}"}}"#, n % 2));
    }
    stage.doubtful.doubt(1, Doubt::Missing);
    stage.doubtful.doubt(4, Doubt::Damaged);
    stage.doubtful.doubt(5, Doubt::Missing);
    stage.doubtful.doubt(8, Doubt::Missing);
    let mut browser = stage.signed_in(1);
    let gaps = |page: &Response| -> Vec<String> {
        let gaps = page.text().split("<tr class=\"gap\"").skip(1);
        gaps.map(|gap| gap.split("<b>").nth(1).unwrap().split("</b>").next().unwrap().to_owned()).collect()
    };
    let page = browser.get(&events_path(1));
    assert_eq!(rows(&page), [7, 6, 3, 2]);
    assert_eq!(
        gaps(&page),
        ["#8 missing or damaged.", "#4 to #5 missing or damaged.", "#1 missing or damaged."]
    );
    for filtered in ["?q=actor:a1", "?q=from:2026-01-01"] {
        let page = browser.get(&format!("{}{filtered}", events_path(1)));
        assert_eq!(gaps(&page), Vec::<String>::new(), "a filter leaves gaps: {filtered}");
    }
}

/// Each page has its bound, whatever the events are that it shows.
#[test]
fn the_worst_events_are_shown_on_every_page_within_its_bound() {
    let stage = stage();
    let worst = sealog_testing::worst::worst_events("usr_1");
    let log_ids: Vec<_> = worst.iter().map(|(_, body)| stage.append(live(1), body)).collect();
    let mut browser = stage.signed_in(1);
    for ((name, _), log_id) in worst.iter().zip(log_ids) {
        let page = browser.get(&format!("{}/{log_id}", events_path(1)));
        assert_eq!(page.status, 200, "{name}");
        assert!(page.body.len() < 250_000, "{name}: {} bytes", page.body.len());
    }
    let overview = events_path(1).trim_end_matches("/events").to_owned();
    for path in ["", "?q=actor:usr_1", "?q=%22usr_1%22"] {
        let page = browser.get(&format!("{}{path}", events_path(1)));
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.len() < 250_000, "{path}: {} bytes", page.body.len());
    }
    for path in ["", "/frameworks", "/verify"] {
        assert_eq!(browser.get(&format!("{overview}{path}")).status, 200, "{path}");
    }
}
