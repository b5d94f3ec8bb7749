//! Exports as people make and download them.

use futures_util::StreamExt;
use sealog_control::{Grants, MemberChange, Records, Role};
use sealog_core::id::{ChainId, Hash, Mode};
use sealog_testing::doubtful::Doubt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::harness::*;

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.tenant(2);
    stage.member(1, 1, Role::PrivacyOfficer);
    stage
}

fn fill(stage: &Stage, chain: ChainId, events: usize) {
    for n in 0..events {
        stage.append(chain, &format!("{{\"action\":\"user.login\",\"actor_id\":\"a{}\"}}", n % 2));
    }
}

/// Creates an export, and returns the path of its files.
fn create(browser: &mut Browser<'_>, path: &str, fields: &[(&str, &str)]) -> String {
    let answer = browser.post(&format!("{path}/create"), fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let page = browser.get(path);
    let link = page.text().split("/download\"").next().unwrap().rsplit('"').next().unwrap().to_owned();
    assert!(link.starts_with(path), "{link}");
    link
}

fn manifest(browser: &mut Browser<'_>, export: &str) -> Value {
    let answer = browser.get(&format!("{export}/manifest.json"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Hash(Sha256::digest(bytes).into()).to_string()
}

#[test]
fn an_export_has_the_same_bytes_each_time_and_its_first_download_counts_them() {
    let stage = stage();
    fill(&stage, live(1), 10);
    let mut browser = stage.signed_in(1);
    for format in ["csv", "csv-spreadsheet", "ndjson"] {
        let export = create(&mut browser, &exports_path(1), &[("format", format)]);
        let before = manifest(&mut browser, &export);
        assert_eq!((&before["rows"], &before["sha256"]), (&Value::Null, &Value::Null));
        let first = browser.get(&format!("{export}/download"));
        assert_eq!(first.status, 200);
        // What comes later is not part of it.
        fill(&stage, live(1), 3);
        let second = browser.get(&format!("{export}/download"));
        assert!(first.body == second.body, "{format}");
        let after = manifest(&mut browser, &export);
        assert_eq!(after["rows"], after["last_seq"], "{format}");
        assert_eq!(after["bytes"], first.body.len());
        assert_eq!(after["sha256"], sha256(&first.body));
        assert_eq!(after["links_and_gaps_can_be_checked"], format != "csv-spreadsheet");
        browser.get(&exports_path(1)).shows(&sha256(&first.body));
        let name = first.header("content-disposition").unwrap();
        assert!(name.contains(after["file"].as_str().unwrap()), "{name}");
        assert_eq!(name.contains("not-for-verification"), format == "csv-spreadsheet");
    }
    let records = stage.records(1);
    let count = |action: &str| records.iter().filter(|record| record.contains(action)).count();
    assert_eq!((count("sealog.export_created"), count("sealog.export_downloaded")), (3, 6));
}

/// What a browser sends of the list of formats before a person has touched it, and what each choice is
/// called.
fn formats(page: &Response) -> (String, Vec<(String, String)>) {
    let list = page.text().split("name=\"format\"").nth(1).unwrap().split("</select>").next().unwrap();
    let options: Vec<&str> = list.split("<option ").skip(1).collect();
    let value = |option: &str| option.split("value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let label = |option: &str| option.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned();
    let chosen = options.iter().find(|option| option.split('>').next().unwrap().contains(" selected"));
    let chosen = value(chosen.unwrap_or(&options[0]));
    (chosen, options.iter().map(|option| (value(option), label(option))).collect())
}

#[test]
fn ndjson_is_chosen_before_anything_is_touched_and_csv_is_called_for_reading() {
    let stage = stage();
    fill(&stage, live(1), 2);
    let mut browser = stage.signed_in(1);
    let page = browser.get(&exports_path(1));
    let (chosen, labels) = formats(&page);
    let named = |value: &str, label: &str| (value.to_owned(), label.to_owned());
    assert_eq!(
        labels,
        [
            named("ndjson", "NDJSON: the form that verifiers check"),
            named("csv", "CSV: for reading"),
            named("csv-spreadsheet", "CSV for spreadsheets: for reading, values escaped"),
        ]
    );
    assert_eq!(chosen, "ndjson");
    let export = create(&mut browser, &exports_path(1), &[("format", &chosen)]);
    let manifest = manifest(&mut browser, &export);
    assert!(manifest["file"].as_str().unwrap().ends_with(".ndjson"), "{manifest}");
    assert_eq!(manifest["links_and_gaps_can_be_checked"], true);
    for (format, listed) in
        [("csv", "<td>CSV, for reading<"), ("csv-spreadsheet", "<td>CSV for spreadsheets, for reading<br>")]
    {
        create(&mut browser, &exports_path(1), &[("format", format)]);
        browser.get(&exports_path(1)).shows(listed);
    }
    // What was chosen stays under a mistake in another field.
    let wrong = [("format", "csv"), ("date_from", "soon")];
    assert_eq!(formats(&browser.post(&format!("{}/create", exports_path(1)), &wrong)).0, "csv");
}

#[test]
fn ndjson_is_what_the_api_returns_and_a_filter_leaves_out_the_rest() {
    let stage = stage();
    fill(&stage, live(1), 5);
    let mut browser = stage.signed_in(1);
    let fields =
        [("format", "ndjson"), ("actor_id", "a1"), ("date_from", "2026-01-01"), ("date_to", "2030-01-01")];
    let export = create(&mut browser, &exports_path(1), &fields);
    let file = browser.get(&format!("{export}/download"));
    let events: Vec<Value> = file.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().map(|event| event["chain_seq"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4]);
    let manifest = manifest(&mut browser, &export);
    assert_eq!(manifest["query"]["actor_id"], "a1");
    assert_eq!((&manifest["rows"], &manifest["links_and_gaps_can_be_checked"]), (&2.into(), &false.into()));
    // Days narrow the range, and leave it whole.
    let none = create(&mut browser, &exports_path(1), &[("format", "csv"), ("date_to", "2020-01-01")]);
    let file = browser.get(&format!("{none}/download"));
    assert_eq!(file.text().lines().count(), 1, "the header alone");
    assert!(file.text().starts_with("chain_seq,log_id,timestamp,action,actor_id,"));
}

#[test]
fn hostile_contents_leave_as_they_are_and_as_no_formula() {
    let stage = stage();
    let hostile = r#"{"action":"=cmd|' /C calc'!A0","actor_id":"@SUM(A1)\r\n\"x\",y","resource":"\u202egnp.exe","metadata":{"k":"\ud800","f":"=1+1","n":1.0}}"#;
    stage.append(live(1), hostile);
    let large = format!(r#"{{"action":"a.b","metadata":{{"k":"{}"}}}}"#, "=x,\\\"\\n".repeat(180_000));
    stage.append(live(1), &large);
    stage.append(live(1), r#"{"action":"user.login"}"#);
    let mut browser = stage.signed_in(1);
    let get = |browser: &mut Browser<'_>, format| {
        let export = create(browser, &exports_path(1), &[("format", format)]);
        let file = browser.get(&format!("{export}/download"));
        assert_eq!(manifest(browser, &export)["rows"], 3);
        file.text().to_owned()
    };
    let faithful = get(&mut browser, "csv");
    assert!(faithful.contains("\"@SUM(A1)\r\n\"\"x\"\",y\""));
    assert!(
        faithful.contains("\u{202e}gnp.exe")
            && faithful.contains(r#""{""k"":""\ud800"",""f"":""=1+1"",""n"":1.0}""#)
    );
    assert!(faithful.len() > 1_000_000);
    let safe = get(&mut browser, "csv-spreadsheet");
    assert_eq!(safe.lines().count(), 4, "one line an event");
    assert!(
        safe.contains("\"'=cmd|' /C calc'!A0\"") && safe.contains("\"'@SUM(A1)\\u{d}\\u{a}\"\"x\"\",y\"")
    );
    assert!(safe.contains("\\u{202e}gnp.exe") && safe.contains("… [cut]") && !safe.contains('\u{202e}'));
    let ndjson = get(&mut browser, "ndjson");
    assert_eq!(ndjson.lines().count(), 3);
    assert!(ndjson.contains(r#""metadata":{"k":"\ud800","f":"=1+1","n":1.0}"#));
    // Filters are shown, not run.
    create(&mut browser, &exports_path(1), &[("format", "csv"), ("action", "<script>\u{202e}")]);
    let page = browser.get(&exports_path(1));
    page.shows("&#60;script&#62;\\u{202e}");
    assert!(!page.has("<script>\u{202e}"));
}

#[test]
fn what_is_wrong_is_said_beside_the_field_and_what_was_typed_stays() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let create = |browser: &mut Browser<'_>, fields: &[(&str, &str)]| {
        browser.post(&format!("{}/create", exports_path(1)), fields)
    };
    let page = create(&mut browser, &[("format", "csv"), ("date_from", "soon"), ("action", "a.b")]);
    assert_eq!(page.status, 422);
    page.shows("id=\"e-date_from\"").shows("value=\"soon\"").shows("value=\"a.b\"");
    let page = create(&mut browser, &[("format", "pdf"), ("action", "a.b")]);
    assert_eq!(page.status, 422);
    page.shows("Choose a format.").shows("value=\"a.b\"");
    let long = "x".repeat(256);
    assert_eq!(create(&mut browser, &[("format", "csv"), ("action", &long)]).status, 422);
    assert_eq!(create(&mut browser, &[("format", "csv"), ("action", &long[1..])]).status, 303);
    browser.get(&format!("{}?action=user.login", exports_path(1))).shows("value=\"user.login\"");
}

#[test]
fn an_export_of_a_search_has_what_it_asked_for_when_it_was_made_and_its_manifest_says_so() {
    let stage = stage();
    fill(&stage, live(1), 6);
    let mut browser = stage.signed_in(1);
    let fields = [("format", "ndjson"), ("q", " last:24h actor:a1 "), ("action", "user.login")];
    let export = create(&mut browser, &exports_path(1), &fields);
    let file = browser.get(&format!("{export}/download"));
    assert_eq!(file.text().lines().count(), 3);
    let stated = manifest(&mut browser, &export);
    let query = stated["query"]["q"].as_str().unwrap();
    assert!(query.starts_with("from:20") && query.ends_with("Z actor:a1"), "{query}");
    assert_eq!((&stated["query"]["action"], &stated["rows"]), (&"user.login".into(), &3.into()));
    browser.get(&exports_path(1)).shows(query);
    // Two days later it is the same file, and the same words mean another one.
    stage.clock.advance(48 * 3_600_000);
    let mut browser = stage.signed_in(1);
    assert!(browser.get(&format!("{export}/download")).body == file.body);
    let later = create(&mut browser, &exports_path(1), &fields);
    assert_eq!(browser.get(&format!("{later}/download")).text(), "");
}

#[test]
fn a_search_that_cannot_be_understood_is_said_beside_its_field_and_stays() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let create = format!("{}/create", exports_path(1));
    for q in ["lost:24h", "action:", "last:24h last:7d"] {
        let page = browser.post(&create, &[("format", "csv"), ("q", q), ("action", "a.b")]);
        assert_eq!(page.status, 422, "{q}");
        page.shows("id=\"e-q\"").shows("At character").shows("value=\"a.b\"");
        page.shows(&format!("value=\"{q}\""));
    }
    let long = format!("\"{}\"", "x".repeat(1998));
    assert_eq!(browser.post(&create, &[("format", "csv"), ("q", &long)]).status, 303, "2,000 bytes");
    let long = format!("\"{}\"", "x".repeat(1999));
    browser.post(&create, &[("format", "csv"), ("q", &long)]).shows("at most 2000 bytes");
    assert_eq!(browser.post(&create, &[("format", "csv"), ("q", "  ")]).status, 303);
}

#[test]
fn the_list_of_events_leads_to_an_export_of_the_same_for_those_who_may() {
    let stage = stage();
    fill(&stage, live(1), 2);
    stage.member(2, 1, Role::Developer);
    let list = format!("{}?q=action:user.login+actor:a1+last:24h&columns=time", events_path(1));
    let page = stage.signed_in(1).get(&list);
    let link = page.text().split("/exports?").nth(1).unwrap().split('"').next().unwrap();
    let link = link.replace("&#38;", "&");
    assert!(!link.contains("columns"), "{link}");
    let form = stage.signed_in(1).get(&format!("{}?{link}", exports_path(1)));
    form.shows("value=\"action:user.login actor:a1 last:24h\"");
    assert!(!stage.signed_in(2).get(&list).has("/exports"), "a developer exports nothing");
}

#[test]
fn an_export_of_test_data_is_named_so() {
    let stage = stage();
    fill(&stage, ChainId { mode: Mode::Test, ..live(1) }, 2);
    let mut browser = stage.signed_in(1);
    let path = exports_path(1).replace("/live/", "/test/");
    let export = create(&mut browser, &path, &[("format", "csv")]);
    let file = browser.get(&format!("{export}/download"));
    assert!(file.header("content-disposition").unwrap().contains("filename=\"TEST-sealog-"));
    assert_eq!(manifest(&mut browser, &export)["is_test_data"], true);
    browser.get(&path).shows("TEST").shows("do not use them as evidence");
    // It is none of the live chain's.
    let live = export.replace("/test/", "/live/");
    browser.get(&format!("{live}/download")).is_problem(404, "request/not_found");
}

#[test]
fn a_file_that_would_differ_from_the_first_is_not_completed() {
    let stage = stage();
    fill(&stage, live(1), 3);
    let mut browser = stage.signed_in(1);
    let export = create(&mut browser, &exports_path(1), &[("format", "csv")]);
    let path = format!("{export}/download");
    assert_eq!(browser.get(&path).status, 200);
    assert_eq!(manifest(&mut browser, &export)["rows_missing"], 0);
    stage.doubtful.doubt(2, Doubt::Missing);
    assert!(browser.is_cut_off(&path), "the connection ends in the middle");
    stage.doubtful.trust();
    assert!(!browser.is_cut_off(&path));
    stage.doubtful.fail_reads(true);
    assert!(browser.is_cut_off(&path), "a disk that cannot be read");
}

#[test]
fn an_auditor_downloads_what_lies_within_the_grant_and_nothing_else() {
    let stage = stage();
    fill(&stage, live(1), 4);
    let list = sealog_store::List { filter: Default::default(), before_seq: None, limit: 1, bytes_max: 1 };
    let at = stage.wait(stage.store.list(live(1), list)).unwrap().items[0].timestamp_ms;
    let grants = |from_ms, until_ms| Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    stage.member_with(2, 1, Role::Auditor, grants(Some(at), Some(at + 1)), None);
    stage.member_with(3, 1, Role::Auditor, grants(Some(at + 1), None), None);
    for n in [2, 3] {
        stage.with_authenticator(n);
    }
    let whole = create(&mut stage.signed_in(1), &exports_path(1), &[("format", "csv")]);
    // An export of everything is none of an auditor's, whose own is cut to the grant.
    let mut inside = stage.signed_in(2);
    for file in ["download", "manifest.json"] {
        inside.get(&format!("{whole}/{file}")).is_problem(404, "request/not_found");
    }
    assert!(!inside.get(&exports_path(1)).has("/download\""));
    let own = create(&mut inside, &exports_path(1), &[("format", "csv")]);
    assert_eq!(inside.get(&format!("{own}/download")).text().lines().count(), 5);
    let mut outside = stage.signed_in(3);
    outside.get(&format!("{own}/download")).is_problem(404, "request/not_found");
    let own = create(&mut outside, &exports_path(1), &[("format", "csv"), ("date_from", "2020-01-01")]);
    assert_eq!(outside.get(&format!("{own}/download")).text().lines().count(), 1, "the header alone");
}

#[test]
fn a_foreign_export_is_like_one_that_does_not_exist() {
    let stage = stage();
    stage.member(2, 2, Role::Owner);
    let export = create(&mut stage.signed_in(1), &exports_path(1), &[("format", "csv")]);
    let id = export.rsplit('/').next().unwrap();
    let mut other = stage.signed_in(2);
    for path in [export.clone(), format!("{}/{id}", exports_path(2))] {
        other.get(&format!("{path}/download")).is_problem(404, "request/not_found");
        other.get(&format!("{path}/manifest.json")).is_problem(404, "request/not_found");
    }
    stage.signed_in(1).get(&format!("{}/x/download", exports_path(1))).is_problem(404, "request/not_found");
}

#[test]
fn a_download_ends_within_a_second_of_the_session_the_membership_or_the_grant() {
    let stage = stage();
    let large = format!(r#"{{"action":"a.b","metadata":{{"k":"{}"}}}}"#, "x".repeat(200_000));
    for _ in 0..5 {
        stage.append(live(1), &large);
    }
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(2, 1, Role::Auditor, grants, None);
    stage.with_authenticator(2);
    let export = create(&mut stage.signed_in(1), &exports_path(1), &[("format", "ndjson")]);
    let path = format!("{export}/download");
    let is_whole = |mut browser: Browser<'_>, act: &dyn Fn(&mut Browser<'_>)| {
        let mut body = browser.begin(&path).into_body().into_data_stream();
        stage.wait(async { body.next().await.unwrap().unwrap() });
        act(&mut browser);
        stage.clock.advance(1000);
        stage.wait(async {
            while let Some(piece) = body.next().await {
                if piece.is_err() {
                    return false;
                }
            }
            true
        })
    };
    assert!(is_whole(stage.signed_in(2), &|_| {}));
    assert!(!is_whole(stage.signed_in(2), &|browser| {
        browser.post("/app/sign-out", &[]);
    }));
    let change = |change| {
        let changed = stage.control.update_member(tenant_id(1), person_id(2), change, Records::none());
        stage.wait(changed).unwrap();
    };
    assert!(!is_whole(stage.signed_in(2), &|_| {
        let grants = Grants { projects: Some(vec![project_id(101)]), from_ms: None, until_ms: None };
        change(MemberChange { grants: Some(grants), ..MemberChange::default() });
    }));
}

#[test]
fn two_downloads_of_a_person_are_under_way_at_a_time() {
    let stage = stage();
    fill(&stage, live(1), 1);
    let mut browser = stage.signed_in(1);
    let export = create(&mut browser, &exports_path(1), &[("format", "csv")]);
    let path = format!("{export}/download");
    let held: Vec<_> = (0..2).map(|_| browser.begin(&path)).collect();
    assert!(held.iter().all(|answer| answer.status() == 200));
    browser.get(&path).is_problem(429, "rate/limit_exceeded");
    assert_eq!(stage.signed_in(1).begin(&path).status(), 429, "also in another session");
    drop(held);
    assert_eq!(browser.get(&path).status, 200);
}
