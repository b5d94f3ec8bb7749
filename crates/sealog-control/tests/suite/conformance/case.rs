//! Cases: revisions, numbers, history, and what is kept with each write.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

/// A tenant, a project, and the person 1, who may open cases.
pub fn furnish_case(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "officer@example.com"), Records::none())).unwrap();
}

pub fn new_case(n: u8, tenant: u8) -> Case {
    Case {
        id: CaseId(id(n)),
        tenant_id: tenant_id(tenant),
        number: 0,
        revision: 0,
        state: CaseState::Paused,
        state_before_pause: Some(CaseState::IdentityCheck),
        intake: Intake {
            regime: CaseRegime::Custom,
            custom_days: Some((10, 5)),
            request_type: CaseType::Portability,
            requester: "Ada <b>".into(),
            contact: "ada@example.com".into(),
            wrote: "Line one\nline \"two\"".into(),
            channel: CaseChannel::Letter,
            received_at_ms: MORNING_MS + u64::from(n),
        },
        assignee: Some(person_id(1)),
        scope: CaseScope { projects: vec![project_id(1)], from_ms: Some(1), until_ms: Some(2) },
        identifiers: vec![
            Identifier {
                kind: IdentifierKind::Metadata,
                path: Some("a.b".into()),
                value: "é\"".into(),
                source: "CRM".into(),
            },
            Identifier {
                kind: IdentifierKind::ActorId,
                path: None,
                value: "usr_1".into(),
                source: String::new(),
            },
        ],
        identity: Some(IdentityCheck {
            method: IdentityMethod::DocumentSeen,
            outcome: IdentityOutcome::Confirmed,
            person_id: person_id(1),
            at_ms: 3,
        }),
        pauses: vec![CasePause { from_ms: 4, until_ms: None, reason: "who is it?".into() }],
        extension: Some(CaseExtension { reason: ExtensionReason::Complexity, announced_at_ms: 5 }),
        confirmed_at_ms: Some(6),
        answer: None,
        due_day: 20_000 - i64::from(n),
        created_by: person_id(1),
        created_at_ms: MORNING_MS,
        changed_at_ms: MORNING_MS,
        closed_at_ms: None,
    }
}

pub fn entry(n: u8) -> NewCaseEntry {
    NewCaseEntry {
        person_id: Some(person_id(1)),
        at_ms: MORNING_MS,
        what: "moved".into(),
        from: Some(CaseState::Received),
        to: Some(CaseState::IdentityCheck),
        note: format!("note {n}"),
        salt: digest(n),
        digest: digest(n + 1),
        differences: vec![CaseDifference { field: "state".into(), from: "a".into(), to: "b\"".into() }],
    }
}

pub fn write(n: u8) -> CaseWrite {
    CaseWrite {
        entry: entry(n),
        records: vec![record(n)],
        events: vec![],
        notices: vec![],
        not_decided_by: None,
    }
}

pub fn case_event(n: u8, key: &str) -> NewCaseEvent {
    NewCaseEvent {
        id: id(n),
        project_id: project_id(1),
        key: key.into(),
        action: "gdpr.request_received".into(),
        body: "{}".into(),
    }
}

pub fn a_case_reads_back_and_is_numbered_in_its_tenant(control: &Control) {
    furnish_case(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let before = wait(control.pending_records(tenant_id(1), 100)).unwrap().len();
    let made = [(1, 1), (2, 1), (3, 2)].map(|(n, tenant)| {
        let case = wait(control.create_case(new_case(n, tenant), write(n))).unwrap();
        assert_eq!(case, Case { number: case.number, revision: 1, ..new_case(n, tenant) });
        case
    });
    assert_eq!(made.each_ref().map(|case| case.number), [1, 2, 1]);
    let read = |tenant, n| wait(control.case(tenant_id(tenant), CaseId(id(n)))).unwrap();
    assert_eq!(read(1, 2).as_ref(), Some(&made[1]));
    assert_eq!(read(2, 2), None, "of another tenant");
    assert_eq!(wait(control.case_by_number(tenant_id(2), 1)).unwrap().as_ref(), Some(&made[2]));
    let entries = wait(control.case_entries(tenant_id(1), made[0].id, 0, 10)).unwrap();
    assert_eq!(entries, [CaseEntry { case_id: made[0].id, revision: 1, entry: entry(1) }]);
    assert_eq!(wait(control.case_entries(tenant_id(2), made[0].id, 0, 10)), Ok(vec![]));
    assert_eq!(wait(control.pending_records(tenant_id(1), 100)).unwrap().len(), before + 2);
    let answered = Case {
        answer: Some(CaseAnswer {
            outcome: CaseOutcome::Refused,
            at_ms: 7,
            how: Some(CaseChannel::Email),
            ground: Some(RefusalGround::Excessive),
        }),
        identity: None,
        pauses: vec![],
        extension: None,
        assignee: None,
        closed_at_ms: Some(8),
        ..made[0].clone()
    };
    let saved = wait(control.save_case(answered.clone(), write(4))).unwrap();
    let expected = Case { revision: 2, ..answered };
    assert_eq!(saved, CaseSaved::Done(Box::new(expected.clone())));
    assert_eq!(read(1, 1), Some(expected));
}

pub fn a_write_over_a_revision_that_is_not_the_last_changes_nothing(control: &Control) {
    furnish_case(control);
    let case = wait(control.create_case(new_case(1, 1), write(1))).unwrap();
    let first = Case { state: CaseState::Review, ..case.clone() };
    assert!(matches!(wait(control.save_case(first.clone(), write(2))), Ok(CaseSaved::Done(_))));
    let records = wait(control.pending_records(tenant_id(1), 100)).unwrap();
    let second =
        CaseWrite { events: vec![case_event(7, "k")], notices: vec![new_notice(1, 1, 80)], ..write(3) };
    let stale = wait(control.save_case(Case { assignee: None, ..case.clone() }, second.clone())).unwrap();
    let now = Case { revision: 2, ..first };
    assert_eq!(stale, CaseSaved::Stale(Box::new(now.clone())));
    assert_eq!(wait(control.case(tenant_id(1), case.id)), Ok(Some(now)));
    assert_eq!(wait(control.pending_records(tenant_id(1), 100)).unwrap(), records);
    assert_eq!(wait(control.case_entries(tenant_id(1), case.id, 0, 10)).unwrap().len(), 2);
    assert_eq!(wait(control.events_of_case(tenant_id(1), case.id, 10)), Ok(vec![]));
    assert_eq!(wait(control.pending_notices()), Ok(0));
    // What the other did is what came after the revision that was seen.
    let others = wait(control.case_entries(tenant_id(1), case.id, case.revision, 10)).unwrap();
    assert_eq!(others.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [2]);
    let elsewhere = Case { tenant_id: tenant_id(2), ..case };
    assert_eq!(wait(control.save_case(elsewhere, second)), Ok(CaseSaved::Missing));
}

pub fn of_many_writes_over_one_revision_one_is_kept(control: &Control) {
    furnish_case(control);
    let case = wait(control.create_case(new_case(1, 1), write(1))).unwrap();
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6)
            .map(|n| {
                let case = Case { due_day: n, ..case.clone() };
                scope.spawn(move || {
                    let saved = wait(control.save_case(case, write(10 + u8::try_from(n).unwrap()))).unwrap();
                    matches!(saved, CaseSaved::Done(_))
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).filter(|done| *done).count()
    });
    assert_eq!(done, 1);
    assert_eq!(wait(control.case_entries(tenant_id(1), case.id, 0, 10)).unwrap().len(), 2);
}

pub fn cases_are_listed_by_what_they_are_asked_for(control: &Control) {
    furnish_case(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 1), (6, 1)] {
        wait(control.create_case(new_case(n, tenant), write(n))).unwrap();
    }
    for n in [5, 6] {
        let case = wait(control.case(tenant_id(1), CaseId(id(n)))).unwrap().unwrap();
        let answer = CaseAnswer { outcome: CaseOutcome::Withdrawn, at_ms: 1, how: None, ground: None };
        let case = Case { closed_at_ms: Some(9), answer: Some(answer), ..case };
        wait(control.save_case(case, write(n + 20))).unwrap();
    }
    let ids = |cases: Vec<Case>| cases.iter().map(|case| case.id).collect::<Vec<_>>();
    let of = |numbers: &[u8]| numbers.iter().map(|n| CaseId(id(*n))).collect::<Vec<_>>();
    let open = |after: Option<u8>, limit| {
        ids(wait(control.open_cases(tenant_id(1), page(after.map(id), limit))).unwrap())
    };
    assert_eq!(open(None, 10), of(&[3, 2, 1]), "by the day on which they are due");
    assert_eq!((open(None, 2), open(Some(2), 2)), (of(&[3, 2]), of(&[1])));
    let closed = |after: Option<u8>, limit| {
        ids(wait(control.closed_cases(tenant_id(1), page(after.map(id), limit))).unwrap())
    };
    assert_eq!((closed(None, 10), closed(Some(6), 10)), (of(&[6, 5]), of(&[5])));
    let received = |from: u64, until: u64, page| {
        ids(wait(control.cases_received(tenant_id(1), MORNING_MS + from, MORNING_MS + until, page)).unwrap())
    };
    assert_eq!(received(2, 6, first(10)), of(&[2, 3, 5]));
    assert_eq!(received(2, 6, page(Some(id(2)), 1)), of(&[3]));
    let unanswered =
        |after: Option<u8>, limit| ids(wait(control.unanswered_cases(page(after.map(id), limit))).unwrap());
    assert_eq!(unanswered(None, 10), of(&[1, 2, 3, 4]), "of all tenants");
    assert_eq!(unanswered(Some(2), 1), of(&[3]));
    // The day on which one is due follows from other things, and is no write.
    wait(control.note_case_due(CaseId(id(1)), 1, 1)).unwrap();
    wait(control.note_case_due(CaseId(id(2)), 7, 0)).unwrap();
    assert_eq!(open(None, 10), of(&[1, 3, 2]));
}

pub fn events_of_a_case_wait_in_their_order_and_end_once(control: &Control) {
    furnish_case(control);
    wait(control.create_project(new_project(2, 1, &[]), vec![])).unwrap();
    let other = NewCaseEvent { project_id: project_id(2), ..case_event(3, "a") };
    let events = vec![case_event(1, "a"), case_event(2, "b"), other, case_event(4, "a")];
    let case = wait(control.create_case(new_case(1, 1), CaseWrite { events, ..write(1) })).unwrap();
    let due = |now_ms| {
        let due = wait(control.due_case_events(now_ms, 10)).unwrap();
        due.iter().map(|event| event.new.id).collect::<Vec<_>>()
    };
    assert_eq!(due(MORNING_MS - 1), []);
    assert_eq!(due(MORNING_MS), [id(1), id(3)], "the first of each chain; a key once");
    let failed = CaseEventOutcome::Failed { cause: "later".into(), retry_at_ms: MORNING_MS + 5 };
    assert_eq!(wait(control.case_event_attempted(id(1), failed)), Ok(true));
    assert_eq!(due(MORNING_MS), [id(3)], "none overtakes the one before it");
    assert_eq!(due(MORNING_MS + 5), [id(1), id(3)]);
    let sealed = CaseEventOutcome::Sealed { chain_seq: 7, now_ms: MORNING_MS + 6 };
    assert_eq!(wait(control.case_event_attempted(id(1), sealed.clone())), Ok(true));
    assert_eq!(wait(control.case_event_attempted(id(1), sealed)), Ok(false), "it has ended");
    let refused = CaseEventOutcome::Refused { cause: "disabled".into(), now_ms: MORNING_MS + 7 };
    assert_eq!(wait(control.case_event_attempted(id(3), refused)), Ok(true));
    assert_eq!(due(u64::MAX), [id(2)]);
    let events = wait(control.events_of_case(tenant_id(1), case.id, 10)).unwrap();
    let shown = events.iter().map(|event| (event.chain_seq, event.cause.as_deref(), event.attempts));
    assert_eq!(shown.collect::<Vec<_>>(), [(Some(7), None, 2), (None, None, 0), (None, Some("disabled"), 1)]);
    assert_eq!(wait(control.events_of_case(tenant_id(2), case.id, 10)), Ok(vec![]));
}
