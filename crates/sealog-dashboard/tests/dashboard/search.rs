//! The query bar of the events page.

use sealog_control::{Grants, Role};
use sealog_testing::MORNING_MS;

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

/// Where the links with this text in their tag lead.
fn links(page: &Response, mark: &str) -> Vec<String> {
    let tags = page.text().split("<a ").skip(1).map(|tag| tag.split_once("</a>").map_or(tag, |(tag, _)| tag));
    let href =
        |tag: &str| tag.split("href=\"").nth(1)?.split('"').next().map(|href| href.replace("&#38;", "&"));
    tags.filter(|tag| tag.contains(mark)).filter_map(href).collect()
}

fn search(q: &str) -> String {
    format!("{}?q={}", events_path(1), encoded(q))
}

#[test]
fn a_search_finds_what_its_terms_say_and_each_term_can_be_taken_away() {
    let stage = stage();
    for n in 1..=12 {
        let (action, ticket) = (if n % 2 == 0 { "user.login" } else { "user.logout" }, n % 3);
        stage.append(
            live(1),
            &format!(r#"{{"action":"{action}","actor_id":"a{n}","metadata":{{"ticket_id":"OPS-{ticket}","amount":{n}}}}}"#),
        );
    }
    let mut browser = stage.signed_in(1);
    assert_eq!(rows(&browser.get(&search("meta.ticket_id:OPS-1"))), [10, 7, 4, 1]);
    assert_eq!(rows(&browser.get(&search("meta.amount:>4 meta.amount:<=6 action:user.*"))), [6, 5]);
    assert_eq!(rows(&browser.get(&search("\"ops-2\" -action:user.login"))), [11, 5]);
    let page = browser.get(&search("action:user.login meta.ticket_id:OPS-1"));
    assert_eq!(rows(&page), [10, 4]);
    page.shows("name=\"q\" value=\"action:user.login meta.ticket_id:OPS-1\"");
    assert!(!page.has("missing or damaged"), "a search leaves gaps");
    let removals = links(&page, "aria-label=\"Remove ");
    assert_eq!(removals.len(), 2);
    assert_eq!(rows(&browser.get(&removals[0])), [10, 7, 4, 1]);
    assert_eq!(rows(&browser.get(&removals[1])), [12, 10, 8, 6, 4, 2]);
    // What is typed next, and a field of the form, join the same query.
    let form = format!(
        "{}&q=-meta.amount:%3E9&actor_id=a10&resource=&date_to=",
        search("actor:a4 action:user.login")
    );
    let led = browser.get(&form).location().unwrap();
    assert!(led.ends_with("?q=action:user.login+-meta.amount:%3E9+actor:a10"), "{led}");
    assert_eq!(rows(&browser.get(&led)), Vec::<u64>::new());
    let page = browser.get(&search("action:user.login actor:a10"));
    page.shows("/v1/events?action=user.login&#38;actor_id=a10&#39;");
    assert!(!page.has("exact filters that API v1 supports"), "the API can ask for all of it");
    browser.get(&search("actor:a1 actor:a2")).shows("exact filters that API v1 supports");
    // A period takes the place of another, and the other terms stay.
    let page = browser.get(&search("action:user.login last:7d"));
    page.shows("aria-current=\"true\">7 days");
    let day = links(&page, ">24 h").remove(0);
    assert!(day.ends_with("q=action:user.login+last:24h"), "{day}");
    assert_eq!(rows(&browser.get(&day)).len(), 6);
}

#[test]
fn fields_with_examples_and_known_actions_are_offered() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    for path in [events_path(1), search("actor:a1")] {
        let page = stage.signed_in(1).get(&path);
        page.shows("<option value=\"meta.\">ticket_id:OPS-1").shows("<option value=\"missing:\">actor");
        page.shows("<option value=\"seq:\">1000..2000").shows("<option>missing:actor");
        page.shows("<option>action:user.login").shows("list=\"q-hints\"");
    }
}

#[test]
fn a_wrong_term_keeps_the_list_that_was_there_and_offers_the_nearest_meaning() {
    let stage = stage();
    for actor in ["x", "y"] {
        stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"{actor}"}}"#));
        stage.append(live(1), &format!(r#"{{"action":"user.logout","actor_id":"{actor}"}}"#));
    }
    let mut browser = stage.signed_in(1);
    for (wrong, problem, meant, expected) in [
        ("actr:x", "“actr” is not a field.", ">actor:x<", vec![1]),
        ("key:at_live_ab", "“key” is not a field.", ">&#34;key:at_live_ab&#34;<", vec![]),
        ("severity:>=critcal", "info, warning or critical", ">severity:&#62;=critical<", vec![]),
    ] {
        let page = browser.get(&search(&format!("action:user.login {wrong}")));
        assert_eq!((page.status, rows(&page)), (400, vec![3, 1]), "{wrong}");
        page.shows("Not applied: <code>").shows(problem);
        page.shows("aria-describedby=\"e-q\" aria-invalid=\"true\"");
        page.shows(&format!("type=\"search\" value=\"{}\"", wrong.replace('>', "&#62;")));
        assert!(!page.has(">24 h<"), "a link would lose what was typed");
        assert!(!page.has("data-tail"), "what arrives would be another list");
        let meaning = links(&page, meant).pop().unwrap_or_else(|| panic!("{wrong}: {}", page.text()));
        assert_eq!(rows(&browser.get(&meaning)), expected, "{meaning}");
    }
    let page = browser.get(&search("\"><script>alert(1)</script>"));
    assert_eq!(page.status, 400);
    assert!(!page.has("<script>"));
    let page = browser.get(&search("actor:<script>\u{202e} \u{202e}😀:<i>"));
    assert!(!page.has("<script>") && !page.has("<i>"));
    // In its fields it is what was typed, to be searched for again.
    let shown =
        page.text().split(" value=\"").map(|rest| rest.split_once('"').map_or(rest, |(_, rest)| rest));
    assert!(shown.skip(1).all(|text| !text.contains('\u{202e}')), "{}", page.text());
    page.shows("actor:&#60;script&#62;\\u{202e}<a ");
    let page = browser.get(&search(&format!("actor:{}", "x".repeat(2000))));
    assert_eq!(page.status, 400);
    page.shows("a search has at most 2000 bytes");
}

#[test]
fn a_bare_word_finds_text_and_what_names_an_event_leads_to_it() {
    let stage = stage();
    let ids: Vec<_> = (0..4)
        .map(|n| {
            stage
                .append(live(1), &format!(r#"{{"action":"user.login","metadata":{{"note":"Invoice {n}"}}}}"#))
        })
        .collect();
    let event = stage.wait(stage.store.get(live(1), ids[1])).unwrap().unwrap();
    let hash = event.sealed.hash.to_string();
    let mut browser = stage.signed_in(1);
    assert_eq!(rows(&browser.get(&search("invoice"))), [4, 3, 2, 1]);
    assert_eq!(rows(&browser.get(&search("invoice 2"))), [3], "both words, wherever they are");
    let page = Some(format!("{}/{}", events_path(1), ids[1]));
    let id = ids[1].to_string();
    for typed in [id.clone(), id.to_lowercase(), hash.clone(), hash.to_uppercase(), "#2".into()] {
        let answer = browser.get(&search(&typed));
        assert_eq!((answer.status, answer.location()), (303, page.clone()), "{typed}");
    }
    // With other terms it is one of them, and of a list that has it the row.
    for typed in ["seq:2".to_owned(), format!("{id} action:user.login"), format!("{hash} -actor:x")] {
        assert_eq!(rows(&browser.get(&search(&typed))), [2], "{typed}");
    }
    for nowhere in ["#99", "01ARZ3NDEKTSV4RRFFQ69G5FAV", &"ab".repeat(32)] {
        browser.get(&search(nowhere)).shows("No events match these filters.");
    }
    // Another project's event is none of this one's.
    stage.tenant(2);
    stage.sealing.advance(1000);
    let foreign = stage.append(live(2), r#"{"action":"user.login"}"#);
    browser.get(&search(&foreign.to_string())).shows("No events match these filters.");
}

/// Eight pieces of a megabyte are less than 140 events of 250 kB.
#[test]
fn a_search_that_is_cut_says_how_far_it_has_looked_and_goes_on_from_there() {
    let stage = stage();
    let large = "y".repeat(250_000);
    for n in 0..140 {
        stage.append(live(1), &format!(r#"{{"action":"user.login","metadata":{{"n":{n},"x":"{large}"}}}}"#));
    }
    let mut browser = stage.signed_in(1);
    let mut page = browser.get(&search("meta.n:<2 \"y\""));
    assert!(rows(&page).is_empty());
    page.shows("No matches so far.").shows("Searched back to #").shows(" UTC.").shows(">Continue<");
    page.shows("rel=\"next\" data-on href");
    let mut found = Vec::new();
    for _ in 0..140 {
        let Some(next) = links(&page, "rel=\"next\"").pop() else { break };
        page = browser.get(&next);
        found.extend(rows(&page));
    }
    assert_eq!(found, [2, 1]);
    assert!(!page.has("Searched back to"), "everything was looked at");
}

#[test]
fn an_auditor_finds_nothing_outside_of_what_was_granted() {
    let stage = stage();
    for n in 0..5 {
        stage.append(live(1), &format!(r#"{{"action":"user.login","actor_id":"a{n}"}}"#));
    }
    let window = |from_ms, until_ms| Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    stage.member_with(2, 1, Role::Auditor, window(Some(MORNING_MS), None), None);
    stage.member_with(3, 1, Role::Auditor, window(None, Some(MORNING_MS)), None);
    for n in [2, 3] {
        stage.with_authenticator(n);
    }
    let searches = [
        "action:user.*",
        "actor:a1 actor:a2",
        "from:2020-01-01 to:2030-01-01",
        "seq:1..",
        "last:1w",
        "\"user\"",
    ];
    for q in searches {
        let (inside, outside) = (stage.signed_in(2).get(&search(q)), stage.signed_in(3).get(&search(q)));
        assert_eq!((inside.status, outside.status), (200, 200), "{q}");
        assert_eq!(rows(&inside).len(), if q.starts_with("actor") { 2 } else { 5 }, "{q}");
        assert!(rows(&outside).is_empty(), "{q}");
    }
    // Nor by what names an event, which does not even say that there is one.
    let id = stage.append(live(1), r#"{"action":"user.login"}"#);
    let event = stage.wait(stage.store.get(live(1), id)).unwrap().unwrap();
    for q in [id.to_string(), event.sealed.hash.to_string(), "#6".into()] {
        assert_eq!(stage.signed_in(2).get(&search(&q)).status, 303, "{q}");
        let outside = stage.signed_in(3).get(&search(&q));
        assert_eq!((outside.status, rows(&outside).len()), (200, 0), "{q}");
        assert!(!outside.has("Searched back to #6"), "{q}");
    }
    // What they looked at is on record, by its fields and not by its values; also beside a wrong term.
    let wrong = stage.signed_in(2).get(&search("meta.secret:1 -actor:a1 actr:x"));
    assert_eq!(wrong.status, 400);
    let records = stage.records(1);
    for filters in ["[\"action\"]", "[\"from\",\"to\"]", "[\"actor\",\"meta\"]"] {
        let kept = format!("\"filters\":{filters}");
        assert!(records.iter().any(|record| record.contains(&kept)), "{filters}: {records:?}");
    }
    // A hash may end in a1, so the value is looked for as a search or a list has it.
    for value in ["\"a1\"", ":a1", "secret"] {
        assert!(!records.iter().any(|record| record.contains(value)), "{value}: {records:?}");
    }
    let elsewhere = search("action:user.*").replace(&project_id(1).to_string(), &project_id(101).to_string());
    stage.signed_in(2).get(&elsewhere).is_problem(404, "request/not_found");
}
