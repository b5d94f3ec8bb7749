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

fn events(page: &Response) -> Vec<String> {
    let parts = page.text().split("name=\"e\" value=\"").skip(1);
    parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
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
    let decide = [("which", "matching"), ("do", "include")];
    assert_eq!(owner.post(&format!("{path}/review/decide"), &decide).status, 422);
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
    let found = events(&page);
    assert_eq!(found.len(), 2, "{}", page.text());
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
        events(&page).len() == 1 && page.has("of &#60;b&#62;somebody&#60;/b&#62; else"),
        "{}",
        page.text()
    );
    let bulk = [("which", "matching"), ("do", "include"), ("show", "all")];
    assert_eq!(decide(&mut officer, &here, &bulk).status, 303);
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
    let (seen_by_owner, seen_by_officer) = (events(&owner.get(&here)), events(&officer.get(&here)));
    let include = [("e", seen_by_owner[0].as_str()), ("do", "include")];
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
    let bulk = [("which", "matching"), ("do", "include")];
    assert_eq!(decide(&mut officer, &format!("{path}/review"), &bulk).status, 303);
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
    let bulk =
        officer.post(&format!("{here}/decide"), &sent(&list, &[("which", "matching"), ("do", "include")]));
    assert_eq!(bulk.status, 409, "{}", bulk.text());
    bulk.shows("A newer search has finished");
    let masked = officer.post(&format!("{here}/mask"), &sent(&masks, &[("do", "save")]));
    assert_eq!(masked.status, 409);
    let nameless = [("which", "matching"), ("do", "include"), ("show", "all")];
    assert_eq!(officer.post(&format!("{here}/decide"), &nameless).status, 409);
    officer.get(&here).shows("0 included, 0 excluded, 42 to decide");
    // Approval is a decision about all of it.
    let seen = form_in(&officer.get(&here), "review/decide");
    let bulk = sent(&seen, &[("which", "matching"), ("do", "include")]);
    assert_eq!(officer.post(&format!("{here}/decide"), &bulk).status, 303);
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
    assert_eq!(letter(&mut officer, "extension"), before);
    for kind in ["cover", "response", "refusal"] {
        assert!(letter(&mut officer, kind).contains("have dealt with it"), "{kind}");
    }
}
