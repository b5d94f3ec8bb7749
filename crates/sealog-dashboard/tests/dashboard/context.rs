//! What the page of an event shows of other events.

use sealog_control::{Grants, Role};
use sealog_core::id::Ulid;
use sealog_testing::MORNING_MS;

use crate::harness::*;

const MINUTE_MS: u64 = 60_000;

fn prepared(stage: Stage) -> Stage {
    stage.tenant(1);
    stage.member(1, 1, Role::Developer);
    stage
}

fn event(stage: &Stage, actor: &str, resource: &str, session: &str) -> Ulid {
    let body = format!(
        r#"{{"action":"document.viewed","actor_id":"{actor}","resource":"{resource}","session_id":"{session}"}}"#
    );
    stage.append(live(1), &body)
}

/// The numbers of a list of the panel, as they stand there, and where it leads.
fn list(page: &Response, id: &str) -> Option<(Vec<u64>, String)> {
    let behind = page.text().split(&format!("id=\"c-{id}\"")).nth(1)?;
    let part = behind.split("<h3").next()?;
    let seqs = part.split("class=\"num\"").skip(1).filter_map(|row| {
        let seq = row.split_once(">#")?.1.split('<').next()?;
        seq.replace(',', "").parse().ok()
    });
    let all = part.split("href=\"").nth(1)?.split('"').next()?;
    Some((seqs.collect(), all.replace("&#38;", "&")))
}

/// As [`list`] has them, on the list of events.
fn rows(page: &Response) -> Vec<u64> {
    let rows = page.text().split("<a class=\"num\" href=\"").skip(1);
    rows.filter_map(|row| row.split_once(">#")?.1.split('<').next()?.replace(',', "").parse().ok()).collect()
}

#[test]
fn an_event_shows_what_its_actor_did_around_it_and_what_was_done_to_its_resource_and_in_its_session() {
    for stage in [Stage::new(), Stage::on_postgres()] {
        let stage = prepared(stage);
        // At minutes 0, 6, 12, 18, 24: the third one is looked at.
        let ids: Vec<Ulid> = (0..5)
            .flat_map(|n| {
                let ids = [
                    event(&stage, "u 1", &format!("document/{}", n % 2), "s\\\"*1"),
                    event(&stage, "u2", "document/0", "other"),
                ];
                stage.sealing.advance(6 * MINUTE_MS);
                ids
            })
            .collect();
        let mut browser = stage.signed_in(1);
        let page = browser.get(&format!("{}/{}", events_path(1), ids[4]));
        let (seqs, all) = list(&page, "actor").unwrap();
        assert_eq!(seqs, [7, 5, 3], "ten minutes before and after");
        assert_eq!(rows(&browser.get(&all)), seqs, "{all}");
        let (seqs, all) = list(&page, "resource").unwrap();
        assert_eq!(seqs, [10, 9, 8, 6, 5, 4, 2, 1]);
        assert_eq!(rows(&browser.get(&all)), seqs, "{all}");
        let (seqs, all) = list(&page, "session").unwrap();
        assert_eq!(seqs, [9, 7, 5, 3, 1]);
        assert_eq!(rows(&browser.get(&all)), seqs, "{all}");
        page.shows("This event").shows(&format!("{}/{}\"", events_path(1), ids[6]));
        assert!(!page.has("There may be more"));
    }
}

#[test]
fn an_event_that_names_nobody_and_nothing_has_no_context() {
    let stage = prepared(Stage::new());
    let id = stage.append(live(1), r#"{"action":"a.b"}"#);
    assert!(!stage.signed_in(1).get(&format!("{}/{id}", events_path(1))).has("Context"));
    let alone = stage.append(live(1), r#"{"action":"a.b","actor_id":"u"}"#);
    stage.signed_in(1).get(&format!("{}/{alone}", events_path(1))).shows("Context").shows("No other events.");
}

#[test]
fn the_context_of_an_event_has_ten_of_a_kind_and_reads_at_most_six_hundred_events() {
    let stage = prepared(Stage::new());
    let ids: Vec<Ulid> =
        (0..700).map(|n| event(&stage, "u", "document/1", &format!("s{}", n % 50))).collect();
    let mut browser = stage.signed_in(1);
    let read = stage.doubtful.events_read();
    let page = browser.get(&format!("{}/{}", events_path(1), ids[299]));
    let read = stage.doubtful.events_read() - read;
    assert!(read <= 600, "{read}");
    let (seqs, _) = list(&page, "actor").unwrap();
    assert_eq!(seqs.len(), 21);
    assert_eq!(seqs[10..], (290..=300).rev().collect::<Vec<u64>>());
    assert_eq!(list(&page, "resource").unwrap().0, (691..=700).rev().collect::<Vec<u64>>());
    let sessions = list(&page, "session").unwrap().0;
    assert!(sessions.starts_with(&[550, 500, 450]), "{sessions:?}");
    page.shows("There may be more");
    // Of few that come after it the nearest are shown.
    let page = browser.get(&format!("{}/{}", events_path(1), ids[679]));
    assert_eq!(list(&page, "actor").unwrap().0, (670..=690).rev().collect::<Vec<u64>>());
}

#[test]
fn the_context_has_what_an_auditor_may_see_alone_and_all_of_it_is_sealed() {
    let stage = prepared(Stage::new());
    for _ in 0..5 {
        event(&stage, "u", "document/1", "s");
        stage.sealing.advance(MINUTE_MS);
    }
    let (from, until) = (MORNING_MS + MINUTE_MS, MORNING_MS + 4 * MINUTE_MS);
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: Some(from), until_ms: Some(until) };
    stage.member_with(2, 1, Role::Auditor, grants, None);
    stage.with_authenticator(2);
    let mut auditor = stage.signed_in(2);
    let list_page = auditor.get(&events_path(1));
    assert_eq!(rows(&list_page), [4, 3, 2]);
    let href = list_page.text().split("<a class=\"num\" href=\"").nth(2).unwrap().split('"').next().unwrap();
    let page = auditor.get(&events_path(1).replace("/events", &format!("/{href}")));
    for id in ["actor", "resource", "session"] {
        assert_eq!(list(&page, id).unwrap().0, [4, 3, 2], "{id}");
    }
    let sealed = stage.sealed(1);
    let last = sealed.last().unwrap();
    assert!(last.contains("sealog.event_viewed") && last.contains("\"seqs_beside\":[2,4]"), "{last}");
}
