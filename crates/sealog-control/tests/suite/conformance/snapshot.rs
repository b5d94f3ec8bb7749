//! All control data at once, out and in.

use sealog_control::*;
use sealog_core::id::ProjectId;

use super::case::{self, case_event};
use super::common::*;
use super::{case_package, case_search};
use sealog_testing::*;

pub fn a_snapshot_that_was_put_in_comes_out_as_it_was(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![record(1)])).unwrap();
    let change = ProjectChange { frameworks: Some(set(&[5])), now_ms: 7, ..ProjectChange::default() };
    wait(control.update_project(project_id(1), change, Records::of(vec![record(2)]))).unwrap();
    wait(control.create_action(tenant_id(1), custom("a.b"), vec![])).unwrap();
    wait(control.set_setting(tenant_id(1), "a".into(), Some("[1]".into()), vec![])).unwrap();
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: Some(1), until_ms: Some(2) };
    let new = NewMember { grants, ends_at_ms: Some(3), ..new_member(1, 1, "Zoë@Example.com") };
    wait(control.add_member(new, Records::none())).unwrap();
    wait(control.add_member(new_member(1, 2, "Zoë@Example.com"), Records::none())).unwrap();
    wait(control.create_session(new_session(1, 1, u64::MAX), None)).unwrap();
    wait(control.offer_authenticator(new_authenticator(1))).unwrap();
    wait(control.confirm_authenticator(
        person_id(1),
        vec![1; 20],
        7,
        vec![digest(8), digest(9)],
        Some(digest(1)),
        PersonRecords::none(),
    ))
    .unwrap();
    wait(control.create_link(new_link(3, reset(1)), None, vec![])).unwrap();
    let Purpose::Invitation(sent) = invitation(1, "New@Example.com") else { unreachable!() };
    let sent = Invitation { invited_by: Some(person_id(1)), ..sent };
    let mailed = Link { digest: None, ..new_link(4, Purpose::Invitation(sent)) };
    wait(control.create_link(mailed, None, vec![])).unwrap();
    for percent in [80, 100] {
        wait(control.enqueue_notice(new_notice(1, 1, percent))).unwrap();
    }
    let notice = wait(control.due_notices(MORNING_MS, 1)).unwrap()[0].id;
    wait(control.claim_notice(notice, MORNING_MS, MORNING_MS + 1, Some(digest(1)))).unwrap();
    let other = wait(control.due_notices(MORNING_MS, 9)).unwrap().remove(0).id;
    let given_up = NoticeOutcome::GivenUp { now_ms: MORNING_MS, cause: "no such box".into() };
    wait(control.notice_attempted(other, given_up)).unwrap();
    wait(control.signed_in_with(new_device(1, 1, MORNING_MS), 9, Some(new_notice(1, 1, 1)))).unwrap();
    wait(control.set_muted_notices(tenant_id(1), person_id(1), vec!["a".into(), "b".into()], vec![]))
        .unwrap();
    wait(control.create_job(new_job(1, 1))).unwrap();
    wait(control.claim_job(JobId(id(1)), MORNING_MS, MORNING_MS + 9)).unwrap();
    wait(control.advance_job(JobId(id(1)), 1, vec![0, 255], MORNING_MS + 9)).unwrap();
    for n in [1, 2] {
        wait(control.create_export(new_export(n, 1), 9, Records::none())).unwrap().unwrap();
    }
    let totals = ExportTotals { rows: 1, bytes: 2, sha256: digest(3), at_ms: 4 };
    wait(control.complete_export(ExportId(id(1)), totals)).unwrap();

    let with = CaseWrite { records: vec![], events: vec![case_event(1, "k")], ..case::write(1) };
    let case = wait(control.create_case(case::new_case(1, 1), with)).unwrap();
    wait(control.save_case(case.clone(), CaseWrite { records: vec![], ..case::write(2) })).unwrap();
    let search = case_search::done_search(control, 3, &case, vec![case_search::found(1, 7)]);
    let approved = case_search::case_in(control, 4, CaseState::Approved);
    case_search::done_search(control, 5, &approved, vec![]);
    let package = control.create_package(
        case_package::new_package(6, &approved),
        &[CaseState::Approved],
        case_search::search_job(6, "p"),
        9,
        vec![],
    );
    assert!(matches!(wait(package).unwrap(), PackageCreated::Done(_)));
    wait(control.finish_package(PackageId(id(6)), 1, case_package::built(7))).unwrap();
    let letter = CaseLetter {
        case_id: case.id,
        kind: LetterKind::Cover,
        body: "b".into(),
        revision: 0,
        person_id: person_id(1),
        changed_at_ms: 1,
    };
    wait(control.save_letter(tenant_id(1), letter, vec![])).unwrap();

    let view = SavedView {
        id: id(1),
        tenant_id: tenant_id(1),
        person_id: person_id(1),
        name: "n".into(),
        query: "q".into(),
        shared_in: Some(project_id(1)),
        is_pinned: true,
        created_at_ms: MORNING_MS,
    };
    let most = ViewsMax { own: 1, shared: 1 };
    assert_eq!(wait(control.save_view(view, most, Records::none())), Ok(ViewKept::Kept));
    wait(control.create_action(tenant_id(1), custom("c.d"), vec![])).unwrap();
    wait(control.retire_action(tenant_id(1), "c.d".into(), MORNING_MS, vec![])).unwrap();
    wait(control.count_failure(person_id(1), Wrong::Code, MORNING_MS)).unwrap();

    let operator = wait(control.add_ops_user(new_operator(1))).unwrap();
    wait(control.enrol_ops_user(digest(101), MORNING_MS, "$argon2id$7".into(), vec![9; 20]))
        .unwrap()
        .unwrap();
    assert_eq!(wait(control.offer_ops_authenticator(operator.id, vec![7; 20])), Ok(true));
    let shown = Shown::Password { hash: "$argon2id$7".into(), replaces: None };
    assert_eq!(wait(control.begin_session(new_ops_session(9, 1, true), shown, Room::Ordinary)), Ok(true));
    let device = Device::<OpsUser> {
        account_id: operator.id,
        digest: digest(9),
        created_at_ms: 1,
        last_seen_at_ms: 2,
    };
    assert_eq!(wait(control.signed_in_with(device, 9, None)), Ok(DeviceSeen::First));

    let system = ProjectId::system_from_random([7; 16]);
    assert_eq!(wait(control.system_project(tenant_id(1), system)), Ok(Some(system)));

    let token = NewMonitorToken { project_id: system, ..super::monitor_token::new_monitor_token(1, 1) };
    wait(control.create_monitor_token(token, vec![])).unwrap();

    wait(control.see_epoch(3)).unwrap();
    wait(control.raise_epoch()).unwrap();
    let log = KnownLog { origin: "log".into(), vkey: "log+00000000+AQ==".into(), size: 7 };
    wait(control.know_log(log.clone())).unwrap();

    let all = wait(control.export()).unwrap();
    assert_eq!(all.epochs, Epochs { own: 4, seen: 3 });
    assert_eq!(all.known_log, Some(log));
    assert_eq!(all.system_projects, [(tenant_id(1), system)]);
    assert_eq!(all.monitor_tokens.iter().map(|(_, kept)| *kept).collect::<Vec<_>>(), [digest(1)]);
    let ControlSnapshot { ref tenants, ref projects, ref keys, ref actions, ref settings, .. } = all;
    assert_eq!((tenants.len(), projects.len(), keys.len(), actions.len(), settings.len()), (2, 1, 1, 2, 1));
    let ControlSnapshot {
        ref persons,
        ref memberships,
        ref sessions,
        ref authenticators,
        ref links,
        ref saved_views,
        ref devices,
        ref muted_notices,
        ref notices,
        ref jobs,
        ref exports,
        ref cases,
        ref case_entries,
        ref case_events,
        ref case_searches,
        ref case_packages,
        ref case_letters,
        ref records,
        ref ops_users,
        ref ops_sessions,
        ref ops_devices,
        ..
    } = all;
    assert_eq!((persons.len(), memberships.len(), sessions.len()), (1, 2, 1));
    assert_eq!((authenticators.len(), links.len(), saved_views.len()), (1, 2, 1));
    assert_eq!((notices.len(), jobs.len(), exports.len(), records.len()), (2, 4, 2, 4));
    assert_eq!((cases.len(), case_entries.len(), case_events.len()), (2, 3, 1));
    assert_eq!((case_searches.len(), case_packages.len(), case_letters.len()), (2, 1, 1));
    assert_eq!((&case_searches[0].search, case_searches[0].found.len()), (&search, 1));
    assert_eq!((devices.len(), muted_notices.len()), (1, 2));
    assert_eq!((ops_users.len(), ops_sessions.len(), ops_devices.len()), (1, 1, 1));
    assert_eq!(projects[0].1.len(), 3, "two that were disabled, and one that is enabled");

    wait(control.replace(ControlSnapshot::default())).unwrap();
    assert_eq!(wait(control.export()), Ok(ControlSnapshot::default()));
    wait(control.replace(all.clone())).unwrap();
    assert_eq!(wait(control.export()), Ok(all.clone()));
    // One that cannot be put in leaves everything as it was.
    let mut twice = all.clone();
    twice.tenants.push(twice.tenants[0].clone());
    wait(control.replace(twice)).unwrap_err();
    assert_eq!(wait(control.export()), Ok(all));
    assert!(wait(control.access(digest(1))).unwrap().is_some());
}
