//! Verification as people see it: progress, results, and a failure explained.

use sealog_control::{Grants, Role};
use sealog_core::canonical::{EventText, Fields};
use sealog_core::id::{ChainId, Hash, Mode};
use sealog_core::time::DAY_MS;
use sealog_store::world::World;
use sealog_testing::doubtful::Doubt;
use serde_json::Value;

use crate::harness::*;

fn stage(events: usize) -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Developer);
    for n in 0..events {
        stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"usr_{n}\"}}"));
    }
    stage
}

fn start(browser: &mut Browser<'_>, fields: &[(&str, &str)]) -> Response {
    browser.post(&format!("{}/start", verify_path(1)), fields)
}

#[test]
fn a_chain_is_verified_in_the_background_and_the_page_says_how_far_it_is() {
    let stage = stage(5);
    let mut browser = stage.signed_in(1);
    browser.get(&verify_path(1)).shows("#1 to #5: not fully checked").shows("No verifications yet.");
    let run = start(&mut browser, &[("range", "all")]).location().unwrap();
    let page = browser.get(&run);
    page.shows("Waiting to start").shows(&format!("hx-get=\"{run}\"")).shows("every 1s");
    page.shows(&format!("href=\"{run}\">Refresh")).shows("/cancel\"");
    // What the page asks for every second is the same without what surrounds it.
    let part = browser.send("GET", &run, &[("hx-request", "true")], "");
    assert!(part.text().trim_start().starts_with("<div class=\"stack\" id=\"state\""), "{}", part.text());
    assert_eq!(part.header("vary"), Some("HX-Request"));
    // Nobody watches while it is done.
    stage.work();
    let page = browser.get(&run);
    page.shows("5 of 5 events are valid").shows("First hash").shows("Report (JSON)");
    assert!(!page.has("hx-get"), "it has ended");
    browser.get(&verify_path(1)).shows("#1 to #5: verified").shows("Valid</span>");
    let report = browser.get(&format!("{run}/report.json"));
    assert!(
        report
            .header("content-disposition")
            .unwrap()
            .starts_with("attachment; filename=\"sealog-verification-")
    );
    let report: Value = serde_json::from_slice(&report.body).unwrap();
    assert_eq!(
        (&report["valid"], &report["checked"], &report["to_seq"]),
        (&true.into(), &5.into(), &5.into())
    );
    let text = browser.get(&format!("{run}/report.txt"));
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    text.shows("result        valid").shows("sealog_verify.py");
}

#[test]
fn a_tampered_event_is_explained_with_its_neighbour_and_both_hashes() {
    let stage = stage(6);
    stage.doubtful.doubt(
        4,
        Doubt::Changed(|event| {
            let text = event.text.clone();
            event.text = EventText::new(Fields { actor_id: Some("\"<script>eve\""), ..text.fields() });
        }),
    );
    let mut browser = stage.signed_in(1);
    let run = start(&mut browser, &[]).location().unwrap();
    stage.work();
    let page = browser.get(&run);
    page.shows("The live chain of <bdi>Project of 1</bdi> is broken at #4")
        .shows("its content no longer matches its hash");
    page.shows("Expected hash")
        .shows("Found hash")
        .shows("previous event</span>")
        .shows("first failing event");
    page.shows("usr_2").shows("&#60;script&#62;eve").shows("Does not match its hash").shows("First response");
    let report: Value = serde_json::from_slice(&browser.get(&format!("{run}/report.json")).body).unwrap();
    let hash = |name: &str| report[name].as_str().unwrap().to_owned();
    page.shows(&hash("expected_hash")).shows(&hash("found_hash"));
    assert_eq!((&report["broken_at"], &report["reason"]), (&4.into(), &"hash".into()));
    browser.get(&verify_path(1)).shows("broken at #4").shows("Broken at #4");
    assert!(stage.records(1).iter().any(|record| record.contains("sealog.chain_broken")));
}

#[test]
fn a_missing_event_a_broken_link_and_a_damaged_record_are_explained() {
    let stage = stage(6);
    let mut browser = stage.signed_in(1);
    let doubts: [(u64, Doubt, &str, &str); 3] = [
        (3, Doubt::Missing, "broken at #4", "Expected prev_hash"),
        (
            3,
            Doubt::Changed(|event| event.sealed.prev_hash = Hash::ZERO),
            "broken at #3",
            "Does not match the hash of the previous event",
        ),
        (3, Doubt::Damaged, "broken at #3", "missing or unreadable"),
    ];
    for (seq, doubt, result, explanation) in doubts {
        stage.doubtful.trust();
        stage.doubtful.doubt(seq, doubt);
        let run = start(&mut browser, &[]).location().unwrap();
        stage.work();
        browser.get(&run).shows(result).shows(explanation);
    }
}

/// The numbers of the strip: its range, the events of a block, how many blocks are in each state, and what
/// each block says.
fn strip(page: &Response) -> (String, String, Vec<String>, Vec<String>) {
    let card = page.text().split("id=\"strip\">Chain status</h2>").nth(1).expect("a strip");
    let card = card.split("</section>").next().unwrap();
    let between = |before: &str, behind: &str| {
        card.split(before)
            .nth(1)
            .unwrap_or_else(|| panic!("{before} in {card}"))
            .split(behind)
            .next()
            .unwrap()
    };
    let (size, range) = (between("end\">", "<"), between("<p class=\"small muted num\">", "<"));
    let legend = card.split("<li class=\"row\">").skip(1).map(|entry| {
        let text = entry.split("</svg>").nth(1).unwrap().split("</li>").next().unwrap();
        text.replace("<b>", "").replace("</b>", "")
    });
    let cells = card.split("<title>").skip(1).map(|cell| cell.split('<').next().unwrap().to_owned());
    (range.to_owned(), size.to_owned(), legend.collect(), cells.collect())
}

#[test]
fn the_strip_has_the_numbers_of_its_range_its_blocks_and_their_states() {
    let stage = stage(2003);
    let shows = |verified: u64, stale: u64, unchecked: u64, broken: u64, cells: [&str; 3]| {
        let (range, size, legend, titles) = strip(&stage.signed_in(1).get(&verify_path(1)));
        assert_eq!((range.as_str(), size.as_str()), ("#1 to #2,003", "1,000 events in each block"));
        let expected = [
            format!("Verified {verified}"),
            format!("Verified more than 7 days ago {stale}"),
            format!("Not fully checked {unchecked}"),
            format!("Broken {broken}"),
        ];
        assert_eq!(legend, expected);
        for (title, cell) in titles.iter().zip(cells) {
            assert!(title.starts_with(cell), "{title} instead of {cell}");
        }
        assert_eq!(titles.len(), cells.len());
    };
    let unchecked = ["#1 to #1,000: not", "#1,001 to #2,000: not", "#2,001 to #2,003: not"];
    shows(0, 0, 3, 0, unchecked);
    start(&mut stage.signed_in(1), &[("range", "window"), ("from", "1"), ("to", "1000")]);
    stage.work();
    shows(1, 0, 2, 0, ["#1 to #1,000: verified", unchecked[1], unchecked[2]]);
    stage.doubtful.doubt(1500, Doubt::Changed(|event| event.sealed.prev_hash = Hash::ZERO));
    start(&mut stage.signed_in(1), &[("range", "window"), ("from", "1001"), ("to", "2003")]);
    stage.work();
    let broken = "#1,001 to #2,000: broken at #1,500";
    shows(1, 0, 1, 1, ["#1 to #1,000: verified", broken, unchecked[2]]);
    stage.clock.advance(8 * DAY_MS);
    shows(0, 1, 1, 1, ["#1 to #1,000: ", broken, unchecked[2]]);
}

#[test]
fn a_window_is_checked_and_a_wrong_one_is_said_beside_the_field() {
    let stage = stage(9);
    let mut browser = stage.signed_in(1);
    let window = |from, to| [("range", "window"), ("from", from), ("to", to)];
    let run = start(&mut browser, &window("#3", "5")).location().unwrap();
    stage.work();
    browser.get(&run).shows("Verification of #3 to #5").shows("3 of 3 events are valid");
    for (from, to, error) in [
        ("0", "5", "id=\"from-error\""),
        ("10", "12", "id=\"from-error\""),
        ("x\"<", "5", "id=\"from-error\""),
        ("5", "4", "id=\"to-error\""),
        ("5", "", "id=\"to-error\""),
    ] {
        let page = start(&mut browser, &window(from, to));
        assert_eq!(page.status, 422, "{from} {to}");
        page.shows(error).shows("aria-invalid");
    }
    start(&mut browser, &window("x\"<", "5")).shows("value=\"x&#34;&#60;\"");
    // A window of the strip fills the form.
    browser
        .get(&format!("{}?from=1&to=9", verify_path(1)))
        .shows("value=\"9\"")
        .shows("value=\"window\" checked");
}

#[test]
fn a_verification_is_cancelled_and_an_organisation_has_four_at_a_time() {
    let stage = stage(1);
    let mut browser = stage.signed_in(1);
    let runs: Vec<String> = (0..4).map(|_| start(&mut browser, &[]).location().unwrap()).collect();
    let refused = start(&mut browser, &[]);
    assert_eq!(refused.status, 422);
    refused.shows("Your organisation already runs 4 verifications");
    assert_eq!(browser.post(&format!("{}/cancel", runs[0]), &[]).location().as_ref(), Some(&runs[0]));
    browser.get(&runs[0]).shows("Cancelled after 0 events");
    assert_eq!(start(&mut browser, &[]).status, 303);
    assert!(stage.records(1).iter().any(|record| record.contains("sealog.verification_cancelled")));
}

#[test]
fn an_empty_chain_has_nothing_to_verify_and_a_foreign_run_does_not_exist() {
    let stage = stage(1);
    stage.member(2, 2, Role::Owner);
    let mut browser = stage.signed_in(1);
    let test = verify_path(1).replace("/live/", "/test/");
    browser.get(&test).shows("You can verify the chain once it has an event.");
    assert_eq!(browser.post(&format!("{test}/start"), &[]).status, 422);
    let run = start(&mut browser, &[]).location().unwrap();
    let id = run.rsplit('/').next().unwrap();
    for path in [format!("{test}/{id}"), format!("{}/x", verify_path(1))] {
        browser.get(&path).is_problem(404, "request/not_found");
    }
    let mut other = stage.signed_in(2);
    for path in [run.clone(), format!("{}/{id}", verify_path(2)), format!("{run}/report.json")] {
        other.get(&path).is_problem(404, "request/not_found");
    }
    other.post(&format!("{}/{id}/cancel", verify_path(2)), &[]).is_problem(404, "request/not_found");
}

#[test]
fn an_auditor_verifies_what_the_window_shows_and_sees_no_other_run() {
    let stage = stage(3);
    let at = {
        let events = stage.wait(stage.store.list(
            live(1),
            sealog_store::List { filter: Default::default(), before_seq: None, limit: 1, bytes_max: 1 },
        ));
        events.unwrap().items[0].timestamp_ms
    };
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: Some(at + 1), until_ms: None };
    stage.member_with(2, 1, Role::Auditor, grants, None);
    stage.with_authenticator(2);
    let all = start(&mut stage.signed_in(1), &[]).location().unwrap();
    let mut auditor = stage.signed_in(2);
    auditor.get(&verify_path(1)).shows("This chain has none in that time.");
    assert_eq!(start(&mut auditor, &[]).status, 422);
    auditor.get(&all).is_problem(404, "request/not_found");
}

/// Nine events, about a minute apart, of which an auditor sees #4 to #6; and what each is: its log_id, time
/// and hash.
/// A proof tells how many events the chain has.
#[test]
fn the_signed_log_is_shown_of_live_chains_to_who_sees_all_of_them() {
    let stage = Stage::with_log();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    let log_id = stage.append(live(1), r#"{"action":"user.login"}"#);
    let at = stage.wait(stage.store.get(live(1), log_id)).unwrap().unwrap().timestamp_ms;
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: Some(at), until_ms: None };
    stage.member_with(2, 1, Role::Auditor, grants, None);
    stage.with_authenticator(2);
    let event = format!("{}/{log_id}", events_path(1));
    let proof = format!("{event}/proof.txt");

    let mut owner = stage.signed_in(1);
    let page = owner.get(&event);
    page.shows("Not in the signed log yet.");
    assert!(!page.has("proof.txt"), "there is none");
    owner.get(&proof).is_problem(404, "tlog/not_yet");
    owner
        .get(&verify_path(1))
        .shows("The signed log has nothing of this chain yet.")
        .shows("log.example/")
        .shows("could still rewrite history");
    let of_test = verify_path(1).replace("/live/", "/test/");
    assert!(!owner.get(&of_test).has("Signed log"), "test chains have no trees");

    stage.publish();
    owner.get(&event).shows("In the signed log, as of the snapshot of").shows("/proof.txt\"");
    assert!(owner.get(&proof).text().starts_with("c2sp.org/tlog-proof@v1"));
    owner.get(&verify_path(1)).shows("The signed log has #1 to #1");

    let mut auditor = stage.signed_in(2);
    for path in [&event, &verify_path(1)] {
        let page = auditor.get(path);
        assert!(page.status == 200 && !page.has("igned log"), "{path}");
    }
    auditor.get(&proof).is_problem(404, "request/not_found");
}

fn windowed() -> (Stage, Vec<[String; 3]>) {
    let stage = Stage::new();
    stage.tenant(1);
    for n in 0..9 {
        stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"usr_{n}\"}}"));
        stage.sealing.advance(61_000);
    }
    stage.clock.advance(5_437_000);
    let list =
        sealog_store::List { filter: Default::default(), before_seq: None, limit: 9, bytes_max: 1 << 20 };
    let mut events = stage.wait(stage.store.list(live(1), list)).unwrap().items;
    events.reverse();
    let (from_ms, until_ms) = (Some(events[3].timestamp_ms), Some(events[6].timestamp_ms));
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    stage.member_with(2, 1, Role::Auditor, grants, None);
    stage.with_authenticator(2);
    let names = events.iter().map(|event| {
        let at = sealog_core::time::iso_ms(event.timestamp_ms);
        [event.sealed.log_id.to_string(), at[11..19].to_owned(), event.sealed.hash.to_string()]
    });
    (stage, names.collect())
}

#[test]
fn an_auditor_is_not_told_of_events_beside_a_break_that_lie_outside_of_the_window() {
    let doubts: [(u64, Doubt, &str); 4] = [
        // The first that is seen does not follow one that is not, or is missing; one is damaged, or has
        // another time than it was sealed with.
        (4, Doubt::Changed(|event| event.sealed.prev_hash = Hash::ZERO), "broken at #4"),
        (4, Doubt::Missing, "broken at #5"),
        (5, Doubt::Damaged, "broken at #5"),
        (6, Doubt::Changed(|event| event.timestamp_ms = 1), "broken at #6"),
    ];
    for (seq, doubt, result) in doubts {
        let (stage, events) = windowed();
        stage.doubtful.doubt(seq, doubt);
        let mut auditor = stage.signed_in(2);
        let run = start(&mut auditor, &[]).location().unwrap();
        stage.work();
        auditor.get(&run).shows("Verification of #4 to #6").shows(result);
        for path in [run.clone(), format!("{run}/report.json"), format!("{run}/report.txt"), verify_path(1)] {
            let answer = auditor.get(&path);
            assert_eq!(answer.status, 200);
            for (at, names) in (1..).zip(&events).filter(|(at, _)| !(4..=6).contains(at)) {
                // The first that is seen names the hash before it.
                let named = names.iter().filter(|name| at != 3 || seq == 4 || **name != names[2]);
                for name in named {
                    assert!(!answer.has(name), "{path} of {seq} has {name} of #{at}: {}", answer.text());
                }
            }
            for place in ["#8", ": 8", "1970-01-01"] {
                assert!(!answer.has(place), "{path} of {seq} has {place}: {}", answer.text());
            }
        }
    }
}

#[test]
fn damage_of_the_first_or_last_event_of_a_window_does_not_hide_it_from_an_auditor() {
    for (seq, doubt, result) in [
        (4, Doubt::Damaged, "broken at #4"),
        (6, Doubt::Damaged, "broken at #6"),
        (6, Doubt::Missing, "broken at #7"),
    ] {
        let (stage, _) = windowed();
        let mut auditor = stage.signed_in(2);
        let before = start(&mut auditor, &[]).location().unwrap();
        stage.work();
        stage.doubtful.doubt(seq, doubt);
        // The window is the same, and so is what was verified in it before.
        auditor.get(&verify_path(1)).shows("You can see #4 to #6.");
        auditor.get(&before).shows("3 of 3 events are valid");
        let run = start(&mut auditor, &[]).location().unwrap();
        stage.work();
        auditor.get(&run).shows("Verification of #4 to #6").shows(result);
    }
    // What cannot be read has no time: beside the window, its number is seen, and nothing else of it.
    for (seq, at, shown) in [(3, 2, "You can see #3 to #6."), (7, 6, "You can see #4 to #7.")] {
        let (stage, events) = windowed();
        stage.doubtful.doubt(seq, Doubt::Damaged);
        let page = stage.signed_in(2).get(&verify_path(1));
        page.shows(shown);
        assert!(events[at].iter().all(|name| !page.has(name)), "{}", page.text());
    }
}

#[test]
fn whoever_sees_the_whole_chain_is_told_of_what_stands_beside_a_break() {
    let (stage, events) = windowed();
    stage.member(1, 1, Role::Developer);
    stage.doubtful.doubt(6, Doubt::Missing);
    stage.doubtful.doubt(7, Doubt::Missing);
    let mut browser = stage.signed_in(1);
    let run = start(&mut browser, &[("range", "window"), ("from", "4"), ("to", "6")]).location().unwrap();
    stage.work();
    browser.get(&run).shows("broken at #8").shows(&events[7][2]);
    let report: Value = serde_json::from_slice(&browser.get(&format!("{run}/report.json")).body).unwrap();
    assert_eq!((&report["broken_at"], &report["withheld"]), (&8.into(), &false.into()));
    // The events of the window are not sound because the break shows behind it.
    browser.get(&verify_path(1)).shows("#1 to #9: broken at #8");
}

#[test]
fn a_verification_that_could_not_be_done_says_nothing_of_the_store_to_people() {
    let stage = stage(3);
    let mut browser = stage.signed_in(1);
    let run = start(&mut browser, &[]).location().unwrap();
    stage.doubtful.fail_reads(true);
    // It is given up when it has failed for a day.
    stage.work();
    stage.clock.advance(24 * 60 * 60 * 1000);
    stage.work();
    let page = browser.get(&run);
    page.shows("This does not mean that the chain is broken.");
    assert!(!page.has("asked for by a test"), "the reason is for the log");
    browser.get(&verify_path(1)).shows("Failed").shows("#1 to #3: not fully checked");
}

#[test]
fn a_verification_of_the_schedule_is_shown_as_one_and_the_page_says_when_they_are() {
    let stage = stage(3);
    let new = sealog_control::NewJob {
        id: sealog_control::JobId(sealog_core::id::Uuid([77; 16])),
        kind: sealog_service::evidence::verification::KIND.into(),
        tenant_id: Some(live(1).tenant_id),
        person_id: None,
        subject: Some(format!("{}/live", live(1).project_id)),
        parameters: serde_json::json!({
            "project_id": live(1).project_id.to_string(), "mode": "live", "from": 1, "to": 3,
        })
        .to_string(),
        created_at_ms: 0,
    };
    stage.wait(sealog_control::Control::create_job(&stage.control, new)).unwrap();
    stage.work();
    let mut browser = stage.signed_in(1);
    let page = browser.get(&verify_path(1));
    page.shows("The whole chain is verified every night at 02:30 UTC.").shows(">scheduled<");
    let run = format!("{}/{}", verify_path(1), sealog_core::id::Uuid([77; 16]));
    browser.get(&run).shows(", scheduled.").shows("3 of 3 events are valid");
    // Test chains are verified when somebody asks for it.
    assert!(!browser.get(&verify_path(1).replace("/live/", "/test/")).has("every night"));
}

#[test]
fn a_link_from_an_event_asks_for_those_around_it_that_may_be_seen() {
    let stage = stage(3);
    let mut browser = stage.signed_in(1);
    let form = |page: &Response| {
        let value = |id: &str| {
            let input = page.text().split(&format!("id=\"{id}\"")).nth(1).unwrap().split('>').next().unwrap();
            input.split("value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        (value("from"), value("to"), page.has("value=\"window\" checked"))
    };
    for around in ["2", "1", "18446744073709551615"] {
        let page = browser.get(&format!("{}?around={around}", verify_path(1)));
        let (from, to, is_chosen) = form(&page);
        assert!(is_chosen && matches!(from.as_str(), "1" | "3") && to == "3", "{around}: {from} {to}");
    }
    assert_eq!(
        form(&browser.get(&format!("{}?around=x", verify_path(1)))),
        (String::new(), String::new(), false)
    );
    let at = stage.sealing.now_ms();
    stage.sealing.advance(1000);
    for _ in 0..2 {
        stage.append(live(1), r#"{"action":"user.login"}"#);
    }
    let grants = Grants { projects: None, from_ms: Some(at + 1000), until_ms: None };
    stage.member_with(7, 1, Role::Auditor, grants, None);
    stage.with_authenticator(7);
    let page = stage.signed_in(7).get(&format!("{}?around=4", verify_path(1)));
    assert_eq!(form(&page), ("4".into(), "5".into(), true));
}

#[test]
fn all_chains_that_a_person_may_see_are_verified_at_once() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::Owner);
    for (project, mode) in [(1, Mode::Live), (1, Mode::Test), (101, Mode::Live)] {
        let chain = ChainId { tenant_id: tenant_id(1), project_id: project_id(project), mode };
        stage.append(chain, r#"{"action":"user.login"}"#);
    }
    let foreign = ChainId { tenant_id: tenant_id(2), project_id: project_id(2), mode: Mode::Live };
    stage.append(foreign, r#"{"action":"user.login"}"#);
    let here = format!("/app/p/{}/live/verify", project_id(1));
    let mut owner = stage.signed_in(1);
    let started = owner.post(&format!("{here}/all"), &[]);
    assert_eq!(started.location(), Some(format!("{here}/all?started=3")), "{}", started.text());
    owner.follow(started).shows("Verification of 3 chains started.");
    stage.work();
    // One table has all results: a chain that has no event has none.
    let page = owner.get(&format!("{here}/all"));
    let row = |project: u8, mode: &str| {
        let own = format!("href=\"/app/p/{}/{mode}/verify\"", project_id(project));
        let rows =
            page.text().split("<tr>").filter(|row| row.contains(&own) && row.contains("scope=\"row\""));
        rows.map(str::to_owned).collect::<Vec<_>>().concat()
    };
    for (project, mode) in [(1, "live"), (1, "test"), (101, "live")] {
        assert!(row(project, mode).contains("Valid") && row(project, mode).contains("#1 to #1"), "{mode}");
    }
    assert!(row(101, "test").contains("Not verified yet"));
    assert_eq!(row(2, "live"), "", "nothing of another organisation");
    let runs = |chain| stage.wait(stage.service.verifications.runs(chain, None, 9)).unwrap().len();
    assert_eq!(runs(foreign), 0);
    // Who is limited to a project starts none of another.
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(3, 1, Role::Developer, grants, None);
    let started = stage.signed_in(3).post(&format!("{here}/all"), &[]);
    assert_eq!(started.location(), Some(format!("{here}/all?started=2")));
    assert!(!stage.signed_in(3).get(&format!("{here}/all")).has(&project_id(101).to_string()));
    for text in ["?started=9999999", "?started=%3Cb%3E"] {
        assert!(!owner.get(&format!("{here}/all{text}")).has("started."), "{text}");
    }
}

#[test]
fn the_table_of_all_chains_names_those_that_are_broken_and_shows_no_run_beyond_a_window() {
    let stage = stage(6);
    stage.doubtful.doubt(
        4,
        Doubt::Changed(|event| {
            let text = event.text.clone();
            event.text = EventText::new(Fields { actor_id: Some("\"eve\""), ..text.fields() });
        }),
    );
    let mut owner = stage.signed_in(1);
    assert_eq!(owner.post(&format!("{}/all", verify_path(1)), &[]).status, 303);
    stage.work();
    let broken = "The live chain of <bdi>Project of 1</bdi> is broken at #4.";
    owner.get(&format!("{}/all", verify_path(1))).shows(broken).shows("Broken at #4");
    // The run reaches beyond what the auditor may see: it is like none.
    let grants = Grants { projects: None, from_ms: None, until_ms: Some(1_000_080_000_000) };
    stage.member_with(5, 1, Role::Auditor, grants, None);
    stage.with_authenticator(5);
    let page = stage.signed_in(5).get(&format!("{}/all", verify_path(1)));
    page.shows("Not verified yet");
    assert!(!page.has("roken at"));
}

#[test]
fn an_auditor_with_a_window_is_told_about_the_window_and_not_that_the_chain_is_empty() {
    let stage = Stage::new();
    stage.tenant(1);
    let chain = ChainId { tenant_id: tenant_id(1), project_id: project_id(1), mode: Mode::Live };
    stage.append(chain, r#"{"action":"user.login"}"#);
    // A day of 2001.
    let grants =
        Grants { projects: None, from_ms: Some(1_000_000_000_000), until_ms: Some(1_000_080_000_000) };
    stage.member_with(5, 1, Role::Auditor, grants, None);
    stage.with_authenticator(5);
    let page = stage.signed_in(5).get(&format!("/app/p/{}/live/verify", project_id(1)));
    page.shows("No events in your window").shows("from 9 Sep 2001 until 9 Sep 2001");
    assert!(!page.has("No events yet"));
}

/// A result shows an event and the one before it: both at their worst.
#[test]
fn the_worst_events_are_verified_and_a_break_in_one_is_explained_within_the_bound_of_a_page() {
    let stage = stage(0);
    let worst = sealog_testing::worst::worst_events("usr_1");
    for (_, body) in &worst {
        stage.append(live(1), body);
    }
    let mut browser = stage.signed_in(1);
    let mut verified = || {
        let run = start(&mut browser, &[("range", "all")]).location().unwrap();
        stage.work();
        let page = browser.get(&run);
        assert_eq!(page.status, 200);
        assert!(page.body.len() < 250_000, "{} bytes", page.body.len());
        assert!(browser.get(&format!("{run}/report.json")).body.len() < 250_000);
        page
    };
    verified().shows(&format!("{0} of {0} events are valid", worst.len()));
    for (seq, (name, _)) in (1..).zip(&worst) {
        stage.doubtful.trust();
        stage.doubtful.doubt(seq, Doubt::Changed(|event| event.sealed.prev_hash = Hash([7; 32])));
        assert!(verified().has(&format!("broken at #{seq}")), "{name}");
    }
}
