//! Search, review, package and letters of a case, as people meet them.

use sealog_control::*;
use sealog_core::time::DAY_MS;

use crate::harness::*;

const OWN: &str = r#"{"action":"user.login","actor_id":"p-20931"}"#;
const ON: &str = r#"{"action":"data.viewed","actor_id":"usr_4821","actor_type":"nurse","metadata":{"user_id":"p-20931","note":"by usr_4821 <script>"}}"#;
const OTHER: &str = r#"{"action":"data.viewed","actor_id":"usr_9000"}"#;

/// An organisation with an owner (1), an admin (2) and a privacy officer (3).
fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    for (n, role) in [(1, Role::Owner), (2, Role::Admin), (3, Role::PrivacyOfficer)] {
        stage.member(n, 1, role);
    }
    for event in [OWN, ON, OTHER] {
        stage.append(live(1), event);
    }
    stage
}

/// Sends a form about events with the search that the page shows now.
fn decide(browser: &mut Browser<'_>, here: &str, form: &[(&str, &str)]) -> Response {
    let search = search_of(&browser.get(here));
    let mut named = vec![("search", search.as_str())];
    named.extend(form);
    browser.post(&format!("{here}/decide"), &named)
}

#[test]
fn a_search_is_shown_while_it_runs_stopped_and_gone_on_with() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    let here = format!("{path}/search");
    assert!(officer.get(&here).has("Start search"));
    assert_eq!(officer.post(&format!("{here}/start"), &[]).status, 303);
    let page = officer.get(&here);
    assert!(page.has("Searching: 0 %") && page.has("hx-trigger=\"every 1s\"") && !page.has("Start search"));
    assert_eq!(officer.post(&format!("{here}/start"), &[]).status, 422, "one is under way");
    assert_eq!(officer.post(&format!("{here}/stop"), &[]).status, 303);
    assert!(officer.get(&here).has("Search stopped"));
    assert_eq!(officer.post(&format!("{here}/resume"), &[]).status, 303);
    stage.work();
    let page = officer.get(&here);
    assert!(page.has("Done") && page.has("#1 to #3") && page.has("Start search"), "{}", page.text());
    // An admin looks, and starts nothing.
    let page = stage.signed_in(2).get(&here);
    assert!(page.has("Done") && !page.has("Start search"));
}

/// Whether the rows have the whole width.
fn is_wide(page: &Response) -> bool {
    page.text().contains(r#"<div class="case wide">"#)
}

#[test]
fn without_identifiers_or_in_another_state_no_search_starts_and_the_page_says_why() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    let path = open_case(&mut owner);
    let here = format!("{path}/search");
    assert!(owner.get(&here).has("You can search while the case is in progress"));
    assert_eq!(owner.post(&format!("{here}/start"), &[]).status, 422);
    let package = owner.get(&format!("{path}/package"));
    assert!(package.has("Disclosure is locked until the identity"));
    let built = owner.post(&format!("{path}/package/build"), &[]);
    assert!(built.status == 422 && built.has("Disclosure is locked"));
    let review = owner.get(&format!("{path}/review"));
    assert!(review.has("Nothing to review yet"));
    assert!(!is_wide(&review), "an empty page pushes what the case says below it");
    assert_eq!(owner.post(&format!("{path}/review/decide"), &[("do", "include_all")]).status, 422);
}

#[test]
fn events_are_decided_about_singly_and_in_bulk_and_an_exclusion_needs_a_reason() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    let here = format!("{path}/review");
    let page = officer.get(&here);
    let found = events_of(&page);
    assert_eq!(found.len(), 2, "{}", page.text());
    assert!(is_wide(&page));
    let without =
        decide(&mut officer, &here, &[("e", found[0].as_str()), ("do", "exclude"), ("reason", " ")]);
    assert!(without.status == 422 && without.has("Enter why"), "{}", without.text());
    let none = decide(&mut officer, &here, &[("do", "include")]);
    assert!(none.status == 422 && none.has("Select events first"));
    let reason = [("e", found[0].as_str()), ("do", "exclude"), ("reason", "of <b>somebody</b> else")];
    let decided = decide(&mut officer, &here, &reason);
    officer.follow(decided).shows("1 event excluded.");
    let page = officer.get(&format!("{here}?show=exclude"));
    assert!(
        events_of(&page).len() == 1 && page.has("of &#60;b&#62;somebody&#60;/b&#62; else"),
        "{}",
        page.text()
    );
    assert_eq!(decide(&mut officer, &here, &[("do", "include_all")]).status, 303);
    assert!(officer.get(&here).has("1 included, 1 excluded, 0 to decide"));
    // In the chain is how many, and neither the reason nor who.
    let told = stage.records(1).join("\n");
    assert!(told.contains("sealog.case_reviewed") && !told.contains("somebody") && !told.contains("20931"));
}

#[test]
fn two_people_on_one_case_see_each_others_decisions_and_overwrite_none() {
    let stage = stage();
    let (mut owner, mut officer) = (stage.signed_in(1), stage.signed_in(3));
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    let here = format!("{path}/review");
    let (seen_by_owner, seen_by_officer) = (events_of(&owner.get(&here)), events_of(&officer.get(&here)));
    let include = [("e", seen_by_owner[1].as_str()), ("do", "include")];
    assert_eq!(decide(&mut owner, &here, &include).status, 303);
    let both = [
        ("e", seen_by_officer[0].as_str()),
        ("e", seen_by_officer[1].as_str()),
        ("do", "exclude"),
        ("reason", "x"),
    ];
    let late = decide(&mut officer, &here, &both);
    assert!(late.status == 409 && late.has("Someone else decided 1"), "{}", late.text());
    assert!(officer.get(&here).has("1 included, 1 excluded, 0 to decide"));
}

#[test]
fn an_event_of_another_organisation_is_refused_like_one_that_does_not_exist() {
    let stage = stage();
    stage.tenant(2);
    stage.append(live(2), r#"{"action":"theirs.alone","actor_id":"p-20931"}"#);
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    let here = format!("{path}/review");
    let foreign = format!("{}:1", project_id(2));
    let nowhere = format!("{}:1", project_id(9));
    let unfound = format!("{}:3", project_id(1));
    let told = stage.records(2);
    let untouched = |officer: &mut Browser<'_>| {
        officer.get(&here).shows("0 included, 0 excluded, 2 to decide");
        assert_eq!(stage.records(2), told, "the other organisation hears of nothing");
    };
    for what in ["include", "exclude", "undecide"] {
        let mut decide_about = |event: &str| {
            let one = format!("{event}:1");
            let form = [("e", one.as_str()), ("do", what), ("reason", "Of someone else.")];
            let refused = decide(&mut officer, &here, &form);
            assert_eq!(refused.status, 409, "{what} {event}: {}", refused.text());
            refused.shows("role=\"alert\"").shows("0 decided. 1 is not an event that this search found");
            assert!(!refused.has("theirs.alone") && !refused.has("id=\"compare\""), "{}", refused.text());
            assert!(!refused.has("Someone else"), "nobody has decided about it: {}", refused.text());
            refused.text().replace(event, "EVENT")
        };
        let answer = decide_about(&foreign);
        assert_eq!(answer, decide_about(&nowhere), "it does not tell which events there are");
        assert_eq!(answer, decide_about(&unfound));
        untouched(&mut officer);
    }
    // Neither by its masks, nor beside one that was found.
    let search = search_of(&officer.get(&here));
    let mask = [
        ("search", search.as_str()),
        ("event", &foreign),
        ("revision", "1"),
        ("do", "save"),
        ("m", "action"),
    ];
    officer.post(&format!("{here}/mask"), &mask).is_problem(404, "request/not_found");
    untouched(&mut officer);
    let (found, foreign_one) = (events_of(&officer.get(&here)).remove(0), format!("{foreign}:1"));
    let both =
        [("e", found.as_str()), ("e", &foreign_one), ("event", &foreign), ("do", "exclude"), ("reason", "x")];
    let partly = decide(&mut officer, &here, &both);
    assert_eq!(partly.status, 409);
    partly.shows("1 decided. 1 is not an event that this search found");
    assert!(!partly.has("theirs.alone"), "{}", partly.text());
    officer.get(&here).shows("0 included, 1 excluded, 1 to decide");
    assert_eq!(stage.records(2), told);
}

#[test]
fn an_event_is_shown_as_stored_beside_as_disclosed_and_its_masks_are_changed() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    let here = format!("{path}/review");
    let event = format!("{}:2", project_id(1));
    let page = officer.get(&format!("{here}?event={event}"));
    assert!(page.has("<mark>A staff member (nurse)</mark>"), "{}", page.text());
    assert!(page.has("by [staff member] &#60;script&#62;") && !page.has("<script>x"), "{}", page.text());
    let mut form = form_in(&page, "review/mask");
    form.retain(|(name, _)| name != "m");
    let masks = sent(&form, &[("m", "metadata.note"), ("do", "save")]);
    assert_eq!(officer.post(&format!("{here}/mask"), &masks).status, 303);
    let page = officer.get(&format!("{here}?event={event}"));
    assert!(page.has("Included, 1 masked") && page.has("<mark>Not disclosed</mark>"), "{}", page.text());
    assert!(!page.has("A staff member (nurse)"), "a reviewer decided to show it");
    let stale = officer.post(&format!("{here}/mask"), &masks);
    assert_eq!(stale.status, 409, "somebody has changed it since");
    let foreign = officer.get(&format!("{here}?event={}:3", project_id(1)));
    assert!(foreign.status == 200 && !foreign.has("id=\"compare\""), "it was not found for this person");
}

#[test]
fn a_package_is_made_after_approval_downloaded_sealed_and_gone_after_30_days() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    let here = format!("{path}/package");
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    move_case(&mut officer, &path, "review");
    let page = officer.get(&path);
    let (revision, search) = (revision_of(&page), search_of(&page));
    let approve = [("revision", revision.as_str()), ("search", &search), ("to", "approved"), ("note", "On.")];
    let undecided = officer.post(&format!("{path}/move"), &approve);
    assert!(
        undecided.status == 422 && undecided.has("2 events still need a decision"),
        "{}",
        undecided.text()
    );
    include_all(&mut officer, &path);
    let early = officer.post(&format!("{here}/build"), &[]);
    assert!(early.status == 422 && early.has("Approve the case to build a package."));
    move_case(&mut officer, &path, "approved");
    assert_eq!(officer.post(&format!("{here}/build"), &[]).status, 303);
    assert!(officer.get(&here).has("Waiting to start"));
    stage.work();
    let page = officer.get(&here);
    assert!(page.has("Ready") && page.has("Password (optional)"), "{}", page.text());
    let package = package_of(&page);
    let download = format!("{here}/{package}/download");
    let short = officer.post(&download, &[("password", "short")]);
    assert!(short.status == 422 && short.has("at least 12 characters") && !short.has("value=\"short\""));
    let before = stage.sealed(1).len();
    let file = officer.post(&download, &[]);
    assert_eq!((file.status, &file.body[..4]), (200, b"PK\x03\x04".as_slice()));
    let sealed = stage.sealed(1);
    assert!(sealed.len() > before && sealed.last().unwrap().contains("sealog.case_package_downloaded"));
    assert!(!file.body.windows(8).any(|part| part == b"usr_4821"));
    let locked = officer.post(&download, &[("password", "correct horse")]);
    assert!(locked.status == 200 && locked.body != file.body);
    // An admin sees that there is one, and does not get it.
    let mut admin = stage.signed_in(2);
    assert!(!admin.get(&here).has("Password (optional)"));
    admin.post(&download, &[]).is_problem(403, "auth/not_allowed");
    // What cannot be sealed is not handed out.
    stage.doubtful.fail_system_writes(true);
    officer.post(&download, &[]).is_problem(500, "event/write_failed");
    stage.doubtful.fail_system_writes(false);
    stage.clock.advance(30 * DAY_MS);
    let mut officer = stage.signed_in(3);
    assert_eq!(stage.sweep(), 1);
    let page = officer.get(&here);
    assert!(page.has("Expired and deleted") && !page.has("Password (optional)"));
    assert_eq!(officer.post(&download, &[]).status, 422);
    let manifest = officer.get(&format!("{here}/{package}/manifest.json"));
    assert!(manifest.status == 200 && manifest.has("sealog.disclosure.v1"));
}

#[test]
fn a_package_of_another_case_is_like_none() {
    let stage = stage();
    let mut owner = stage.signed_in(1);
    let (_, package) = packaged_case(&stage, &mut owner);
    let other = open_case(&mut owner);
    owner.get(&format!("{other}/package/{package}/manifest.json")).is_problem(404, "request/not_found");
    owner.post(&format!("{other}/package/{package}/download"), &[]).is_problem(404, "request/not_found");
}

#[test]
fn letters_come_from_templates_are_edited_over_what_was_seen_and_printed() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = open_case(&mut officer);
    let here = format!("{path}/response");
    let page = officer.get(&here);
    assert!(
        page.has("Dear Ada Subject,\n\nWe received your request")
            && page.has("unable to comply because [the ground]")
            && page.has("/response/refusal/save"),
        "{}",
        page.text()
    );
    let save = |browser: &mut Browser<'_>, kind: &str, body: &str, revision: &str| {
        browser.post(&format!("{here}/{kind}/save"), &[("body", body), ("revision", revision)])
    };
    assert_eq!(save(&mut officer, "refusal", "No. <script>x</script>", "0").status, 303);
    let mut owner = stage.signed_in(1);
    let late = save(&mut owner, "refusal", "Mine", "0");
    assert!(late.status == 409 && late.has("Someone else edited") && late.has("Mine"), "{}", late.text());
    assert_eq!(save(&mut owner, "refusal", " ", "1").status, 422);
    assert_eq!(save(&mut owner, "refusal", &"x".repeat(6001), "1").status, 422);
    save(&mut owner, "nonsense", "x", "0").is_problem(404, "request/not_found");
    let printed = officer.get(&format!("{here}/refusal"));
    assert!(printed.has("No. &#60;script&#62;x") && !printed.has("<script>x"), "{}", printed.text());
    assert_eq!(officer.get(&format!("{here}/refusal/text")).text(), "No. <script>x</script>");
    officer.get(&format!("{here}/nonsense")).is_problem(404, "request/not_found");
    let told = stage.records(1).join("\n");
    assert!(told.contains("sealog.case_letter_changed") && !told.contains("script"));
}

/// What a browser sends of the form that leads there: hidden fields, and the boxes that are checked.
fn form_in(page: &Response, form: &str) -> Vec<(String, String)> {
    let Some(inside) = page.text().split(&format!("{form}\"")).nth(1) else { return Vec::new() };
    let inside = inside.split("</form>").next().unwrap();
    let value = |input: &str, name: &str| {
        let behind = input.split(&format!("{name}=\"")).nth(1)?;
        Some(behind.split('"').next().unwrap().to_owned())
    };
    let inputs = inside.split("<input ").skip(1).map(|input| input.split('>').next().unwrap());
    let inputs = inputs.filter(|input| !input.contains("type=\"checkbox\"") || input.ends_with(" checked"));
    inputs.filter_map(|input| Some((value(input, "name")?, value(input, "value")?))).collect()
}

fn sent<'f>(form: &'f [(String, String)], more: &[(&'f str, &'f str)]) -> Vec<(&'f str, &'f str)> {
    let own = form.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    own.chain(more.iter().copied()).collect()
}

#[test]
fn what_is_not_on_the_form_of_masks_is_not_changed_by_it() {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(3, 1, Role::PrivacyOfficer);
    let crowd: Vec<String> = (1000..1260).map(|n| format!("\"usr_{n}\"")).collect();
    let fields: Vec<String> = (0..260).map(|n| format!("\"f{n}\":\"v\"")).collect();
    for event in [
        format!(r#"{{"action":"a.b","actor_id":"p-20931","metadata":{{"user_id":[{}]}}}}"#, crowd.join(",")),
        r#"{"action":"a.b","actor_id":"p-20931","metadata":{"text":"asked usr_1005 and usr_1259"}}"#
            .to_owned(),
        format!(
            r#"{{"action":"a.b","actor_id":"p-20931","metadata":{{{},"z_approved_by":"usr_77001"}}}}"#,
            fields.join(",")
        ),
        r#"{"action":"a.b","actor_id":"p-20931","metadata":{"text":"by usr_77001"}}"#.to_owned(),
    ] {
        stage.append(live(1), &event);
    }
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    let here = format!("{path}/review");
    let at = |seq: u64, more: &str| format!("{here}?event={}:{seq}{more}", project_id(1));
    let mut save = |seq: u64, more: &str, without: &[&str]| {
        let page = officer.get(&at(seq, more));
        let mut form = form_in(&page, "review/mask");
        form.retain(|(name, value)| name != "m" || !without.contains(&value.as_str()));
        let saved = officer.post(&format!("{here}/mask"), &sent(&form, &[("do", "save")]));
        assert_eq!(saved.status, 303, "{}", saved.text());
    };
    // Sent as they were shown.
    save(1, "", &[]);
    save(3, "", &[]);
    let mut reader = stage.signed_in(3);
    let mut shows = |seq: u64, text: &str| {
        let page = reader.get(&at(seq, ""));
        assert!(page.has(&format!("<mark>{text}</mark>")), "{seq}: {}", page.text());
    };
    shows(2, "asked [another person] and [another person]");
    shows(4, "by [another person]");
    // A value that was on the form is shown, and no other.
    save(1, "", &["metadata", "metadata.user_id[5]"]);
    shows(2, "asked usr_1005 and [another person]");
    // The rest is on forms of their own.
    save(1, "&values=200", &["metadata.user_id[259]"]);
    save(3, "&values=200", &["metadata.z_approved_by"]);
    let page = stage.signed_in(3).get(&at(2, ""));
    assert!(page.has("<td class=\"wrap\">asked usr_1005 and usr_1259</td></tr>"), "{}", page.text());
    let page = stage.signed_in(3).get(&at(4, ""));
    assert!(page.has("<td class=\"wrap\">by usr_77001</td></tr>"), "{}", page.text());
    let page = stage.signed_in(3).get(&at(1, "&values=200"));
    assert!(page.has("<td class=\"wrap\">usr_1259</td><td class=\"wrap\">usr_1259</td>"));
    assert!(!page.has("<td class=\"wrap\">usr_1258</td><td class=\"wrap\">usr_1258</td>"));
}

#[test]
fn a_decision_names_the_search_that_was_seen_and_is_refused_after_a_newer_one() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    let here = format!("{path}/review");
    let search = |officer: &mut Browser<'_>| {
        assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
        stage.work();
    };
    search(&mut officer);
    let list = form_in(&officer.get(&here), "review/decide");
    let masks = form_in(&officer.get(&format!("{here}?event={}:2", project_id(1))), "review/mask");
    for _ in 0..40 {
        stage.append(live(1), OWN);
    }
    search(&mut officer);
    let bulk = officer.post(&format!("{here}/decide"), &sent(&list, &[("do", "include_all")]));
    assert_eq!(bulk.status, 409, "{}", bulk.text());
    bulk.shows("A newer search has finished");
    let masked = officer.post(&format!("{here}/mask"), &sent(&masks, &[("do", "save")]));
    assert_eq!(masked.status, 409);
    assert_eq!(officer.post(&format!("{here}/decide"), &[("do", "include_all")]).status, 409);
    officer.get(&here).shows("0 included, 0 excluded, 42 to decide");
    // Approval is a decision about all of it.
    let seen = form_in(&officer.get(&here), "review/decide");
    include_all(&mut officer, &path);
    move_case(&mut officer, &path, "review");
    let approve = |officer: &mut Browser<'_>, search: &str| {
        let revision = revision_of(&officer.get(&path));
        let form = [("revision", revision.as_str()), ("search", search), ("to", "approved"), ("note", "On.")];
        officer.post(&format!("{path}/move"), &form)
    };
    let before = seen.iter().find(|(name, _)| name == "search").unwrap().1.clone();
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    let early = approve(&mut officer, &before);
    assert!(early.status == 422 && early.has("A search is running"), "{}", early.text());
    stage.work();
    let late = approve(&mut officer, &before);
    assert!(late.status == 422 && late.has("A newer search has finished"), "{}", late.text());
    move_case(&mut officer, &path, "approved");
}

#[test]
fn an_extension_letter_names_the_longer_date_and_does_not_say_that_the_request_is_dealt_with() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = open_case(&mut officer);
    let letter = |officer: &mut Browser<'_>, kind: &str| {
        officer.get(&format!("{path}/response/{kind}/text")).text().to_owned()
    };
    // It is sent before the step is taken.
    let before = letter(&mut officer, "extension");
    assert!(before.contains("by 2 February 2027 at the latest"), "{before}");
    assert!(!before.contains("dealt with"), "{before}");
    let revision = revision_of(&officer.get(&path));
    let extend = [
        ("revision", revision.as_str()),
        ("to", "extended"),
        ("extension_reason", "complexity"),
        ("note", "Much."),
    ];
    assert_eq!(officer.post(&format!("{path}/move"), &extend).status, 303);
    // The same date, and now the reason that is recorded.
    let after = letter(&mut officer, "extension");
    let reasons = ("because of the complexity or the number of requests", "because your request is complex");
    assert_eq!(after, before.replace(reasons.0, reasons.1));
    assert_ne!(after, before);
    for kind in ["cover", "response", "refusal"] {
        assert!(letter(&mut officer, kind).contains("have dealt with it"), "{kind}");
    }
}

/// A case with this many events, of three actions; every tenth has a text to read.
fn large_case(events: usize) -> (Stage, String) {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Owner);
    stage.member(3, 1, Role::PrivacyOfficer);
    for n in 0..events {
        let action = ["user.login", "data.viewed", "<b>own</b>\u{202e}"][n % 3];
        let name = if n % 10 == 0 { "note" } else { "place" };
        let event = format!(r#"{{"action":"{action}","actor_id":"p-20931","metadata":{{"{name}":"{n}"}}}}"#);
        stage.append(live(1), &event);
    }
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    drop(officer);
    (stage, path)
}

#[test]
fn a_case_of_1500_events_is_worked_in_groups_in_bulk_and_one_after_the_other() {
    let (stage, path) = large_case(1500);
    let mut officer = stage.signed_in(3);
    let here = format!("{path}/review");
    let page = officer.get(&here);
    assert_eq!(events_of(&page).len(), 100);
    assert!(page.text().len() < 120_000, "{} bytes", page.text().len());
    page.shows("0 included, 0 excluded, 1500 to decide").shows("Include 1350 with nothing to read");
    page.shows("150 to read one by one").shows("500, 500 to decide").shows("50 to read");
    assert!(page.has("&#60;b&#62;own&#60;/b&#62;\\u{202e}") && !page.has("<b>own") && !page.has("\u{202e}<"));
    // One action at a time.
    let group = page.text().split("href=\"").find(|part| part.contains("action=data.viewed")).unwrap();
    let group = group.split('"').next().unwrap().replace("&#38;", "&");
    let list = officer.get(&group);
    list.shows("Include 450 with nothing to read").shows("All actions");
    let form = form_in(&list, "review/decide");
    let decided = officer.post(&format!("{here}/decide"), &sent(&form, &[("do", "include_all")]));
    officer.follow(decided).shows("450 events included. 50 events have text to read");
    // All of it but what has to be read, and nothing of that by a box.
    assert_eq!(decide(&mut officer, &here, &[("do", "include_all")]).status, 303);
    officer.get(&here).shows("1350 included, 0 excluded, 150 to decide");
    let to_read = events_of(&officer.get(&format!("{here}?show=flagged")));
    let chosen = [("e", to_read[0].as_str()), ("do", "include")];
    let left = decide(&mut officer, &here, &chosen);
    officer.follow(left).shows("0 events included. 1 event has text to read: open it to include it.");
    // The next one is opened, read and included, and then the one behind it.
    let next = |page: &Response| {
        let href = page.text().split("\">Next undecided").next().unwrap().rsplit("href=\"").next().unwrap();
        href.replace("&#38;", "&").split('#').next().unwrap().to_owned()
    };
    let mut page = officer.get(&here);
    let mut seen = std::collections::HashSet::new();
    for left in (145..150).rev() {
        let at = next(&page);
        page = officer.get(&at);
        assert!(seen.insert(at.split("event=").nth(1).unwrap().to_owned()), "{at}");
        page.shows("id=\"compare\"").shows("to read</span>").shows("Include and next");
        assert!(page.text().len() < 130_000, "{} bytes", page.text().len());
        let form = form_in(&page, "review/mask");
        let read = officer.post(&format!("{here}/mask"), &sent(&form, &[("do", "save")]));
        page = officer.follow(read);
        page.shows(&format!("{} included, 0 excluded, {left} to decide", 1500 - left))
            .shows("id=\"compare\"");
    }
}

#[test]
fn an_event_is_excluded_from_where_it_is_read_and_the_next_one_is_shown() {
    let (stage, path) = large_case(21);
    let mut officer = stage.signed_in(3);
    let here = format!("{path}/review");
    let event = format!("{}:21", project_id(1));
    let page = officer.get(&format!("{here}?show=flagged&event={event}"));
    let behind = page.text().rsplit("review/decide\"").next().unwrap().to_owned();
    assert!(behind.contains("Exclude and next") && behind.contains(&format!("value=\"{event}:1\"")));
    let search = search_of(&page);
    let one = format!("{event}:1");
    let form = [
        ("search", search.as_str()),
        ("show", "flagged"),
        ("event", event.as_str()),
        ("e", one.as_str()),
        ("then", "next"),
        ("reason", "Of someone else."),
        ("do", "exclude"),
    ];
    let excluded = officer.post(&format!("{here}/decide"), &form);
    let page = officer.follow(excluded);
    page.shows("1 event excluded.").shows("0 included, 1 excluded, 20 to decide");
    assert!(page.has("<h2 id=\"cm\">#11</h2>"), "{}", page.text());
}

#[test]
fn a_case_opens_on_what_to_do_next_with_one_primary_step() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = open_case(&mut officer);
    let on = |browser: &mut Browser<'_>, text: &str, button: &str| {
        let page = browser.get(&path);
        let next = page.text().split("What to do next").nth(1).unwrap_or_else(|| panic!("{}", page.text()));
        let next = next.split("</section>").next().unwrap();
        assert!(next.contains(text) && next.contains(button), "{text}, {button}: {next}");
        let primary = page.text().matches("btn primary").count();
        assert_eq!(primary, 1, "{text}");
    };
    on(&mut officer, "Check that the requester is the person", "/identity\">Check identity");
    // The page where it is done has its own button.
    let identity = officer.get(&format!("{path}/identity"));
    assert!(identity.has("What to do next") && !identity.has("\">Check identity</a>"));
    let path_of_work = case_in_progress(&mut officer);
    let next = |browser: &mut Browser<'_>, text: &str| {
        let page = browser.get(&path_of_work);
        page.shows(text);
        assert_eq!(page.text().matches("btn primary").count(), 1, "{text}");
    };
    next(&mut officer, "Search for the events of this person.");
    assert_eq!(officer.post(&format!("{path_of_work}/search/start"), &[]).status, 303);
    next(&mut officer, "A search is running.");
    stage.work();
    next(&mut officer, "2 events still need a decision.");
    include_all(&mut officer, &path_of_work);
    next(&mut officer, "Send the case to review.");
    move_case(&mut officer, &path_of_work, "review");
    next(&mut officer, "Approve what will be disclosed.");
    move_case(&mut officer, &path_of_work, "approved");
    next(&mut officer, "Build the package for the requester.");
    assert_eq!(officer.post(&format!("{path_of_work}/package/build"), &[]).status, 303);
    stage.work();
    next(&mut officer, "Send the package to the requester, then record how you sent it.");
    move_case(&mut officer, &path_of_work, "delivered");
    next(&mut officer, "Close the case.");
    // Those who only read are not asked to do anything.
    assert!(!stage.signed_in(2).get(&path_of_work).has("What to do next"));
    move_case(&mut officer, &path_of_work, "closed");
    assert!(!officer.get(&path_of_work).has("What to do next"));
}

#[test]
fn where_two_people_are_needed_who_reviewed_does_not_approve() {
    let stage = stage();
    let (mut owner, mut officer) = (stage.signed_in(1), stage.signed_in(3));
    let settings = format!("/app/o/{}/settings", tenant_id(1));
    owner.get(&settings).shows("A person who decided about events of a case cannot approve it.");
    officer.post(&format!("{settings}/cases"), &[("two_people", "yes")]).is_problem(403, "auth/not_allowed");
    assert_eq!(owner.post(&format!("{settings}/cases"), &[("two_people", "yes")]).status, 303);
    assert!(stage.records(1).iter().any(|record| record.contains("cases_two_people")));
    let path = case_in_progress(&mut officer);
    review_all(&stage, &mut officer, &path);
    move_case(&mut officer, &path, "review");
    let approve = |browser: &mut Browser<'_>| {
        let page = browser.get(&path);
        let (revision, search) = (revision_of(&page), search_of(&page));
        let form =
            [("revision", revision.as_str()), ("search", &search), ("to", "approved"), ("note", "On.")];
        browser.post(&format!("{path}/move"), &form)
    };
    officer.get(&path).shows("so another person must approve it");
    let refused = approve(&mut officer);
    assert_eq!(refused.status, 422);
    refused.shows("you decided about 2 of the events, so another person must approve the case");
    owner.get(&path).shows("Approve what will be disclosed.");
    assert_eq!(approve(&mut owner).status, 303);
    // One decision of the second person, and that is a reviewer too.
    move_case(&mut owner, &path, "review");
    let event = events_of(&owner.get(&format!("{path}/review"))).remove(1);
    let again = [("e", event.as_str()), ("do", "include")];
    assert_eq!(decide(&mut owner, &format!("{path}/review"), &again).status, 303);
    approve(&mut owner).shows("you decided about 1 of the events");
    // Without the rule one person is enough.
    assert_eq!(owner.post(&format!("{settings}/cases"), &[]).status, 303);
    assert_eq!(approve(&mut officer).status, 303);
}

#[test]
fn a_letter_fits_the_ground_and_the_reason_before_its_step_is_recorded() {
    let stage = stage();
    let mut officer = stage.signed_in(3);
    let path = open_case(&mut officer);
    let here = format!("{path}/response");
    officer.get(&here).shows("unable to comply because [the ground]");
    let page = officer.get(&format!("{here}?letter=refusal&ground=legal_claims"));
    page.shows("because we need the data for legal claims.").shows("/refusal/text?ground=legal_claims");
    officer
        .get(&format!("{here}/refusal/text?ground=identity_not_confirmed"))
        .shows("If you show us who you are");
    officer
        .get(&format!("{here}/extension/text?reason=complexity"))
        .shows("because your request is complex.");
    let hostile = officer.get(&format!("{here}?letter=refusal&ground=%3Cscript%3E"));
    assert!(hostile.has("[the ground]") && !hostile.has("<script>"));
    // What is recorded counts, and nothing is left to choose.
    let revision = revision_of(&officer.get(&path));
    let refuse = [
        ("revision", revision.as_str()),
        ("to", "refused"),
        ("ground", "excessive"),
        ("how", "email"),
        ("note", "Again."),
    ];
    assert_eq!(officer.post(&format!("{path}/move"), &refuse).status, 303);
    let page = officer.get(&format!("{here}?letter=refusal&ground=legal_claims"));
    page.shows("because we consider the request excessive");
    assert!(!page.has("pick-refusal"));
}

#[test]
fn selected_events_are_added_to_a_case_of_the_organisation_that_covers_their_project() {
    let stage = stage();
    stage.tenant(2);
    stage.member(4, 2, Role::Owner);
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    let add = format!("/app/o/{}/cases/add", tenant_id(1));
    let events = officer.get(&format!("/app/p/{}/live/events", project_id(1)));
    events.shows(&format!("data-case=\"{add}?project={}\"", project_id(1)));
    assert!(!officer.get(&format!("/app/p/{}/test/events", project_id(1))).has("data-case"));
    assert!(!stage.signed_in(2).get(&format!("/app/p/{}/live/events", project_id(1))).has("data-case"));
    let page = officer.get(&format!("{add}?project={}&seq=2..3&seq=1", project_id(1)));
    page.shows("3 events").shows("DSAR-2026-001");
    for strange in [
        format!("project={}&seq=1", project_id(2)),
        format!("project={}", project_id(1)),
        format!("project={}&seq=1..18446744073709551615", project_id(1)),
        format!("project={}&seq=9..2", project_id(1)),
        format!("project={}&seq=%3Cscript%3E", project_id(1)),
        format!("project={}&seq=1..200&seq=201", project_id(1)),
    ] {
        officer.get(&format!("{add}?{strange}")).is_problem(404, "request/not_found");
    }
    let (project, case) = (project_id(1).to_string(), path.rsplit('/').next().unwrap().to_owned());
    let form =
        |seq: &'static str| [("project", project.clone()), ("seq", seq.to_owned()), ("case", case.clone())];
    let send = |browser: &mut Browser<'_>, form: &[(&str, String)]| {
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post(&add, &form)
    };
    // Of another organisation: neither its case, nor from there into this one.
    let mut other = stage.signed_in(4);
    let foreign = open_case_of(&mut other, 2);
    let foreign = foreign.rsplit('/').next().unwrap().to_owned();
    let mixed = [("project", project.clone()), ("seq", "1".to_owned()), ("case", foreign)];
    send(&mut officer, &mixed).is_problem(404, "request/not_found");
    assert_eq!(send(&mut other, &form("1")).status, 404);
    let missing = send(&mut officer, &form("4"));
    assert!(missing.status == 422 && missing.has("does not cover these events"), "{}", missing.text());
    let added = send(&mut officer, &form("3"));
    officer.follow(added).shows("Events added.").shows("Searching");
    stage.work();
    let review = officer.get(&format!("{path}/review"));
    review.shows("0 included, 0 excluded, 3 to decide").shows("Added by hand");
}

/// The path of the review of a case that has found these events, in this order.
fn review_of(stage: &Stage, events: &[String]) -> String {
    stage.tenant(1);
    stage.member(3, 1, Role::PrivacyOfficer);
    for event in events {
        stage.append(live(1), event);
    }
    let mut officer = stage.signed_in(3);
    let path = case_in_progress(&mut officer);
    assert_eq!(officer.post(&format!("{path}/search/start"), &[]).status, 303);
    stage.work();
    format!("{path}/review")
}

/// What is bad about the worst events, and their bodies.
fn worst_events() -> (Vec<&'static str>, Vec<String>) {
    sealog_testing::worst::worst_events("p-20931").into_iter().unzip()
}

/// Issue 23.9. A page has at most 200 values of some bytes each, and no event keeps an event loop.
#[test]
fn the_worst_events_are_reviewed_and_masked_within_the_bound_of_a_page() {
    let stage = Stage::new();
    let (names, events) = worst_events();
    let here = review_of(&stage, &events);
    let mut officer = stage.signed_in(3);
    for (seq, name) in (1..).zip(names) {
        let page = officer.get(&format!("{here}?event={}:{seq}", project_id(1)));
        assert!(page.status == 200 && page.has("id=\"compare\""), "{name}: {}", page.status);
        assert!(page.body.len() < 700_000, "{name}: {} bytes", page.body.len());
        let form = form_in(&page, "review/mask");
        let asked = sent(&form, &[("do", "save")]);
        let bytes: usize = asked.iter().map(|(name, value)| name.len() + encoded(value).len() + 2).sum();
        let saved = officer.post(&format!("{here}/mask"), &asked);
        // Here each byte is sent as three; what browsers send is within the bound of a form.
        let expected = if bytes <= 256 << 10 { 303 } else { 413 };
        assert_eq!(saved.status, expected, "{name}, a form of {bytes} bytes: {}", saved.text());
    }
}

/// Issue 23.9.
#[test]
fn a_review_and_its_form_of_masks_leave_the_event_loop_to_others() {
    let stage = Stage::new();
    let (names, events) = worst_events();
    let at = names.iter().position(|name| *name == "many other people").unwrap();
    let here = review_of(&stage, &events[at..=at]);
    let mut officer = stage.signed_in(3);
    let page = format!("{here}?event={}:1", project_id(1));
    assert_eq!(officer.ask_while_computing("GET", &page, &[]), 200);
    let form = form_in(&officer.get(&page), "review/mask");
    let masks = sent(&form, &[("do", "save")]);
    assert_eq!(officer.ask_while_computing("POST", &format!("{here}/mask"), &masks), 303);
}

/// The paths of the single values that a page offers to mask.
fn offered(page: &Response) -> Vec<String> {
    let boxes = page.text().split("name=\"m\" value=\"").skip(1);
    let paths = boxes.map(|text| text.split('"').next().unwrap().to_owned());
    paths.filter(|path| path.starts_with("metadata.")).collect()
}

/// Issue 23.9.
#[test]
fn an_event_has_at_most_500_single_masks() {
    let stage = Stage::new();
    let values = vec!["\"v\""; 700].join(",");
    let event = format!(r#"{{"action":"a.b","actor_id":"p-20931","metadata":{{"in":[{values}]}}}}"#);
    let here = review_of(&stage, &[event]);
    let mut officer = stage.signed_in(3);
    // Of the page that begins with this value; so many more of those that it offers.
    let mut mask = |first: usize, count: usize| {
        let page = officer.get(&format!("{here}?event={}:1&values={first}", project_id(1)));
        let mut form = form_in(&page, "review/mask");
        form.retain(|(name, _)| name != "m");
        let paths = offered(&page);
        let masks: Vec<(&str, &str)> = paths[..count].iter().map(|path| ("m", path.as_str())).collect();
        officer.post(&format!("{here}/mask"), &sent(&form, &[&masks[..], &[("do", "save")]].concat()))
    };
    for (first, count) in [(0, 180), (200, 180), (400, 140)] {
        let saved = mask(first, count);
        assert_eq!(saved.status, 303, "{first}: {}", saved.text());
    }
    let refused = mask(400, 141);
    assert_eq!(refused.status, 422);
    refused.shows("needs more than 500 single masks");
    assert_eq!(mask(600, 1).status, 422);
    assert_eq!(mask(400, 139).status, 303);
    assert_eq!(mask(600, 1).status, 303, "there are five hundred again");
}
