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
    page.shows("value=\"action:user.login meta.ticket_id:OPS-1\"");
    assert!(!page.has("missing or damaged"), "a search leaves gaps");
    let removals = links(&page, "aria-label=\"Remove ");
    assert_eq!(removals.len(), 2);
    assert_eq!(rows(&browser.get(&removals[0])), [10, 7, 4, 1]);
    assert_eq!(rows(&browser.get(&removals[1])), [12, 10, 8, 6, 4, 2]);
    // With the exact filters of the form, which stay when a term is taken away.
    let both = format!(
        "{}&actor_id=a10&resource=&date_from=&date_to=",
        search("action:user.login actor:a10 actor:a4")
    );
    let page = browser.get(&both);
    assert_eq!(rows(&page), [10]);
    page.shows("exact filters that API v1 supports").shows("/v1/events?actor_id=a10&#39;");
    assert_eq!(rows(&browser.get(&links(&page, "aria-label=\"Remove ")[0])), [10]);
    assert_eq!(rows(&browser.get(&links(&page, "aria-label=\"Remove the filter actor_id\"")[0])), [10, 4]);
    // A period takes the place of another, and the other terms stay.
    let page = browser.get(&search("action:user.login last:7d"));
    page.shows("aria-current=\"true\">7 days");
    let day = links(&page, ">24 hours").remove(0);
    assert!(day.ends_with("q=action%3Auser.login+last%3A24h"), "{day}");
    assert_eq!(rows(&browser.get(&day)).len(), 6);
}

#[test]
fn fields_and_known_actions_are_offered_behind_what_was_typed() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    browser
        .get(&events_path(1))
        .shows("<option value=\"meta.\">")
        .shows("<option value=\"action:user.login\">");
    let page = browser.get(&search("actor:a1"));
    page.shows("<option value=\"actor:a1 severity:\">")
        .shows("<option value=\"actor:a1 action:user.login\">");
    page.shows("list=\"q-hints\"");
}

#[test]
fn what_is_wrong_with_a_search_stands_under_it_and_what_was_typed_stays() {
    let stage = stage();
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let mut browser = stage.signed_in(1);
    for (q, problem) in [
        ("actor:x key:at_live_ab", "At character 9: “key” is not a field"),
        ("-", "At character 1: add what to leave out after the minus."),
        ("severity:>=high", "info, warning or critical"),
    ] {
        let page = browser.get(&format!("{}&action=a.b", search(q)));
        assert_eq!(page.status, 400);
        page.shows(problem).shows("aria-describedby=\"e-q h-q\" aria-invalid=\"true\"");
        page.shows("value=\"a.b\"").shows("Fix the search above to see results.");
        assert!(!page.has("No events match") && !page.has(">24 hours"), "a link would lose what was typed");
    }
    let page = browser.get(&search("\"><script>alert(1)</script>"));
    assert_eq!(page.status, 400);
    assert!(!page.has("<script>"));
    let page = browser.get(&search("actor:<script>\u{202e}"));
    assert_eq!(page.status, 200);
    assert!(!page.has("<script>"));
    page.shows("actor:&#60;script&#62;\\u{202e}<a ");
    let page = browser.get(&search(&format!("actor:{}", "x".repeat(2000))));
    assert_eq!(page.status, 400);
    page.shows("a search has at most 2000 bytes");
}

/// 140 events of 250 kB are more than a page looks through.
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
    // What they looked at is on record, and not what they typed.
    let records = stage.records(1);
    assert!(records.iter().any(|record| record.contains("\"filters\":[\"q\"]")), "{records:?}");
    assert!(!records.iter().any(|record| record.contains("actor:a1")), "{records:?}");
    let elsewhere = search("action:user.*").replace(&project_id(1).to_string(), &project_id(101).to_string());
    stage.signed_in(2).get(&elsewhere).is_problem(404, "request/not_found");
}
