//! Searches, decisions, packages and letters of cases.

use std::time::{Duration, Instant};

use sealog_control::case_found::{BY_PERSON, MENTION, ON_PERSON};
use sealog_control::*;
use sealog_core::id::Uuid;
use sealog_store::world::{SystemWorld, World};

use super::case::{furnish_case, new_case, write};
use super::common::*;
use sealog_testing::*;

pub const STATES: &[CaseState] = &[CaseState::Review];

pub fn case_in(control: &Control, n: u8, state: CaseState) -> Case {
    let case = Case { state, state_before_pause: None, ..new_case(n, 1) };
    wait(control.create_case(case, CaseWrite { records: vec![], ..write(n) })).unwrap()
}

pub fn search_job(n: u8, kind: &str) -> NewJob {
    NewJob { kind: kind.into(), person_id: Some(person_id(1)), ..new_job(n, 1) }
}

pub fn new_search(n: u8, case: &Case) -> NewCaseSearch {
    NewCaseSearch {
        id: SearchId(id(n)),
        tenant_id: case.tenant_id,
        case_id: case.id,
        person_id: person_id(1),
        parameters: "{\"a\":\"é\"}".into(),
        created_at_ms: MORNING_MS,
    }
}

pub fn found(seq: u64, kinds: u8) -> NewFound {
    NewFound {
        project_id: project_id(1),
        chain_seq: seq,
        log_id: format!("log-{seq}"),
        timestamp_ms: MORNING_MS + seq,
        action: "user.login".into(),
        category: Some("auth".into()),
        found: kinds,
        flags: seq % 2,
    }
}

fn start(control: &Control, n: u8, case: &Case) -> CaseSearch {
    let started = control.start_case_search(new_search(n, case), search_job(n, "s"), 9, vec![record(n)]);
    wait(started).unwrap().unwrap()
}

/// A search with these events that is done.
pub fn done_search(control: &Control, n: u8, case: &Case, events: Vec<NewFound>) -> CaseSearch {
    let search = start(control, n, case);
    let piece = SearchPiece { position: "p".into(), looked: 7, found: events, values: vec![] };
    wait(control.advance_case_search(search.new.id, search.job_id, piece)).unwrap().unwrap();
    assert!(wait(control.end_case_search(search.new.id, search.job_id, SearchOutcome::Done, 9)).unwrap());
    wait(control.case_search(search.new.id)).unwrap().unwrap()
}

fn reviewing(case: &Case, search: &CaseSearch) -> Reviewing {
    Reviewing {
        tenant_id: case.tenant_id,
        case_id: case.id,
        search_id: search.new.id,
        states: STATES,
        person_id: person_id(1),
        now_ms: MORNING_MS,
    }
}

fn decide(
    control: &Control,
    case: &Case,
    search: &CaseSearch,
    which: Which,
    decision: Option<Decision>,
) -> Decided {
    let reason = (decision == Some(Decision::Exclude)).then(|| "not theirs".to_owned());
    let reviewing = reviewing(case, search);
    let decide = Decide { reviewing, which, leaves_flagged: false, decision, reason };
    // Of an id that no other record has.
    let mut random = [0; 16];
    SystemWorld.fill_random(&mut random);
    let records = Records::told_by(move |_, changed: &u64| {
        vec![NewRecord { id: Uuid::from_random(random), draft: changed.to_string(), created_at_ms: 1 }]
    });
    wait(control.decide_found(decide, records)).unwrap()
}

pub fn a_search_keeps_what_it_finds_with_how_far_it_has_got_and_goes_on_in_another_job(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let search = start(control, 1, &case);
    let (search_id, job_id) = (search.new.id, search.job_id);
    let advance = |job_id, piece| wait(control.advance_case_search(search_id, job_id, piece)).unwrap();
    let values = vec![("usr_1".to_owned(), "staff".to_owned()), ("usr_1".to_owned(), "staff".to_owned())];
    let piece = |position: &str, found| SearchPiece {
        position: position.into(),
        looked: 10,
        found,
        values: values.clone(),
    };
    let now = advance(job_id, piece("one", vec![found(1, BY_PERSON), found(2, MENTION)])).unwrap();
    assert_eq!((now.position.as_deref(), now.looked), (Some("one"), 10));
    // Found again in another way, it is one event of both kinds.
    let now = advance(job_id, piece("two", vec![found(2, ON_PERSON)])).unwrap();
    assert_eq!(now.counts, FoundCounts { events: 2, by_person: 1, on_person: 1, mentions: 1 });
    assert_eq!(wait(control.case_values(search_id)).unwrap(), [("usr_1".into(), "staff".into())]);
    // Another job goes on; the first one is told.
    assert!(wait(control.resume_case_search(search_id, search_job(2, "s"), 9, vec![])).unwrap());
    assert_eq!(advance(job_id, piece("old", vec![found(9, MENTION)])), None);
    assert!(!wait(control.end_case_search(search_id, job_id, SearchOutcome::Done, 1)).unwrap());
    let job_id = JobId(id(2));
    assert_eq!(advance(job_id, piece("three", vec![])).unwrap().counts.events, 2);
    assert!(wait(control.end_case_search(search_id, job_id, SearchOutcome::Done, 5)).unwrap());
    assert!(
        !wait(control.resume_case_search(search_id, search_job(3, "s"), 9, vec![])).unwrap(),
        "it has ended"
    );
    let all = wait(control.case_searches(tenant_id(1), case.id, 9)).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].outcome, all[0].ended_at_ms, all[0].looked), (Some(SearchOutcome::Done), Some(5), 30));
    assert_eq!(wait(control.case_searches(tenant_id(2), case.id, 9)).unwrap(), [], "of another tenant");
}

pub fn a_search_starts_with_its_job_or_not_at_all(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    start(control, 1, &case);
    let before = wait(control.pending_records(tenant_id(1), 100)).unwrap().len();
    let started = control.start_case_search(new_search(2, &case), search_job(2, "s"), 1, vec![record(2)]);
    assert_eq!(wait(started).unwrap(), None, "one is under way");
    assert_eq!(wait(control.case_search(SearchId(id(2)))).unwrap(), None);
    assert_eq!(wait(control.pending_records(tenant_id(1), 100)).unwrap().len(), before);
}

pub fn what_was_decided_stays_decided_in_the_next_search_and_earlier_events_go(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let first = done_search(control, 1, &case, vec![found(1, 1), found(2, 1), found(3, 1)]);
    let these = |seqs: &[u64]| Which::These(seqs.iter().map(|seq| (project_id(1), *seq, 1)).collect());
    decide(control, &case, &first, these(&[1]), Some(Decision::Include));
    decide(control, &case, &first, these(&[2]), Some(Decision::Exclude));
    let second = done_search(control, 2, &case, vec![found(1, 1), found(2, 4), found(4, 1)]);
    let of = |search: &CaseSearch| {
        wait(control.found_events(search.new.id, FoundFilter::default(), Grants::default(), 0, 9)).unwrap()
    };
    assert_eq!(of(&first), [], "those of the earlier search");
    let decisions: Vec<_> = of(&second).iter().map(|event| (event.new.chain_seq, event.decision)).collect();
    assert_eq!(decisions, [(4, None), (2, Some(Decision::Exclude)), (1, Some(Decision::Include))]);
    assert_eq!(of(&second)[1].reason.as_deref(), Some("not theirs"));
    // One with too many keeps nothing, and leaves the earlier one as it was.
    let third = start(control, 3, &case);
    let piece = SearchPiece { position: "p".into(), looked: 1, found: vec![found(9, 1)], values: vec![] };
    wait(control.advance_case_search(third.new.id, third.job_id, piece)).unwrap();
    wait(control.end_case_search(third.new.id, third.job_id, SearchOutcome::TooMany, 1)).unwrap();
    assert_eq!((of(&third).len(), of(&second).len()), (0, 3));
}

pub fn two_who_decide_do_not_overwrite_each_other(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let search = done_search(control, 1, &case, (1..=5).map(|seq| found(seq, BY_PERSON)).collect());
    let these = |seqs: &[(u64, u64)]| {
        Which::These(seqs.iter().map(|(seq, rev)| (project_id(1), *seq, *rev)).collect())
    };
    let done = |changed, left, unknown| Decided::Done { changed, left, unknown, to_read: 0 };
    assert_eq!(
        decide(control, &case, &search, these(&[(1, 1), (2, 1)]), Some(Decision::Include)),
        done(2, 0, 0)
    );
    let told = || wait(control.pending_records(tenant_id(1), 100)).unwrap().last().unwrap().draft.clone();
    assert_eq!(told(), "2");
    let late = decide(control, &case, &search, these(&[(2, 1), (3, 1)]), Some(Decision::Exclude));
    assert_eq!(late, done(1, 1, 0), "the second one was changed meanwhile");
    let elsewhere = Which::These(vec![(project_id(1), 1, 7), (project_id(1), 9, 1), (project_id(2), 1, 1)]);
    let unknown = decide(control, &case, &search, elsewhere, Some(Decision::Exclude));
    assert_eq!(unknown, done(0, 1, 2), "what the search has not found is no event that others changed");
    // In bulk, only what nobody has decided.
    let bulk =
        Which::Open(FoundFilter { found: BY_PERSON, is_flagged: Some(true), ..FoundFilter::default() });
    assert_eq!(decide(control, &case, &search, bulk, Some(Decision::Include)), done(1, 0, 0));
    let review = wait(control.review_of(search.new.id, Grants::default())).unwrap();
    assert_eq!((review.included, review.excluded, review.open), (3, 1, 1));
    decide(control, &case, &search, these(&[(1, 1)]), Some(Decision::Exclude));
    assert_eq!(
        wait(control.review_of(search.new.id, Grants::default())).unwrap(),
        review,
        "nothing was changed, or told"
    );
    let taken_back = decide(control, &case, &search, these(&[(1, 2)]), None);
    assert_eq!(taken_back, done(1, 0, 0));
    let after = wait(control.review_of(search.new.id, Grants::default())).unwrap();
    assert_eq!((after.included, after.open, after.mark), (2, 2, review.mark + 1));
    let counted = |filter| wait(control.count_found(search.new.id, filter, Grants::default())).unwrap();
    let excluded =
        FoundFilter { decision: Some(DecisionIs::Made(Decision::Exclude)), ..FoundFilter::default() };
    assert_eq!((counted(FoundFilter::default()), counted(excluded)), (5, 1));
}

pub fn what_has_to_be_read_is_left_out_where_many_are_decided_at_once(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let new = |seq: u64, action: &str, flags: u64| NewFound {
        action: action.into(),
        flags,
        ..found(seq, BY_PERSON)
    };
    let found =
        vec![new(1, "a.b", 0), new(2, "a.b", 3), new(3, "c.d", 0), new(4, "c.d", 0), new(5, "a.b", 0)];
    let search = done_search(control, 1, &case, found);
    let include = |which: Which| {
        let reviewing = reviewing(&case, &search);
        let decision = Some(Decision::Include);
        let decide = Decide { reviewing, which, leaves_flagged: true, decision, reason: None };
        wait(control.decide_found(decide, Records::none())).unwrap()
    };
    let groups = |filter: FoundFilter| {
        let groups = wait(control.found_groups(search.new.id, filter, Grants::default(), 9)).unwrap();
        groups
            .into_iter()
            .map(|group| (group.action, group.events, group.open, group.to_read))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(FoundFilter::default()), [("a.b".into(), 3, 3, 1), ("c.d".into(), 2, 2, 0)]);
    // Selected by hand, it stays as well; one that others have changed counts apart.
    let these = Which::These(vec![(project_id(1), 1, 1), (project_id(1), 2, 1), (project_id(1), 3, 9)]);
    assert_eq!(include(these), Decided::Done { changed: 1, left: 1, unknown: 0, to_read: 1 });
    let next = |filter: FoundFilter, after: Option<u64>| {
        let after = after.map(|seq| (project_id(1), seq));
        let next = wait(control.next_open(search.new.id, filter, Grants::default(), after)).unwrap();
        next.map(|(found, before)| (found.new.chain_seq, before))
    };
    let of_action = || FoundFilter { action: Some("a.b".into()), ..FoundFilter::default() };
    assert_eq!(next(FoundFilter::default(), None), Some((5, 0)));
    assert_eq!(next(FoundFilter::default(), Some(3)), Some((2, 3)), "behind it, newest first");
    assert_eq!(next(FoundFilter::default(), Some(2)), Some((5, 0)), "behind the last one is the first one");
    assert_eq!(next(of_action(), Some(5)), Some((2, 1)), "of the list that is shown");
    assert_eq!(
        include(Which::Open(of_action())),
        Decided::Done { changed: 1, left: 0, unknown: 0, to_read: 1 }
    );
    assert_eq!(groups(FoundFilter::default()), [("c.d".into(), 2, 2, 0), ("a.b".into(), 3, 1, 1)]);
    let all = include(Which::Open(FoundFilter::default()));
    assert_eq!(all, Decided::Done { changed: 2, left: 0, unknown: 0, to_read: 1 });
    assert_eq!(next(FoundFilter::default(), Some(2)), Some((2, 3)), "the only one");
    let unseen = Grants { projects: Some(vec![project_id(2)]), ..Grants::default() };
    assert_eq!(wait(control.next_open(search.new.id, of_action(), unseen.clone(), None)).unwrap(), None);
    assert_eq!(wait(control.found_groups(search.new.id, of_action(), unseen, 9)).unwrap(), []);
    let decided_by = |n| wait(control.decisions_of(case.id, person_id(n))).unwrap();
    assert_eq!((decided_by(1), decided_by(2)), (4, 0));
    // In the transaction that saves the case.
    let save = |n| {
        let with = CaseWrite { records: vec![], not_decided_by: Some(person_id(n)), ..write(n) };
        wait(control.save_case(case.clone(), with)).unwrap()
    };
    assert_eq!(save(1), CaseSaved::Reviewed(4));
    assert!(matches!(save(2), CaseSaved::Done(_)));
}

pub fn events_outside_of_grants_are_in_no_list_and_no_number(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let search = done_search(control, 1, &case, (1..=5).map(|seq| found(seq, BY_PERSON)).collect());
    let first = Which::These(vec![(project_id(1), 1, 1), (project_id(1), 2, 1)]);
    decide(control, &case, &search, first, Some(Decision::Include));
    let (own, other) = (Some(vec![project_id(1)]), Some(vec![project_id(2)]));
    let grants = |projects, from_ms, until_ms| Grants { projects, from_ms, until_ms };
    for (grants, seqs, included) in [
        (grants(None, None, None), vec![5, 4, 3, 2, 1], 2),
        (grants(own, Some(MORNING_MS + 2), Some(MORNING_MS + 5)), vec![4, 3, 2], 1),
        (grants(None, Some(MORNING_MS + 3), None), vec![5, 4, 3], 0),
        (grants(other, None, None), vec![], 0),
        (grants(Some(vec![]), None, None), vec![], 0),
    ] {
        let events = control.found_events(search.new.id, FoundFilter::default(), grants.clone(), 0, 9);
        let found: Vec<u64> = wait(events).unwrap().iter().map(|event| event.new.chain_seq).collect();
        assert_eq!(found, seqs, "{grants:?}");
        let counted = wait(control.count_found(search.new.id, FoundFilter::default(), grants.clone()));
        assert_eq!(counted.unwrap(), seqs.len() as u64, "{grants:?}");
        let review = wait(control.review_of(search.new.id, grants.clone())).unwrap();
        assert_eq!((review.included, review.open), (included, seqs.len() as u64 - included), "{grants:?}");
    }
}

pub fn nothing_is_decided_in_another_state_or_about_an_earlier_search(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let first = done_search(control, 1, &case, vec![found(1, 1)]);
    let second = done_search(control, 2, &case, vec![found(1, 1)]);
    let all = || Which::Open(FoundFilter::default());
    assert_eq!(decide(control, &case, &first, all(), Some(Decision::Include)), Decided::Locked(None));
    let moved = Case { state: CaseState::Approved, ..case.clone() };
    wait(control.save_case(moved, CaseWrite { records: vec![], ..write(2) })).unwrap();
    let locked = decide(control, &case, &second, all(), Some(Decision::Include));
    assert_eq!(locked, Decided::Locked(Some(CaseState::Approved)));
    assert_eq!(wait(control.review_of(second.new.id, Grants::default())).unwrap().open, 1);
}

pub fn masks_are_kept_with_what_they_say_of_values_for_the_next_search_too(control: &Control) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let search = done_search(control, 1, &case, vec![found(1, 1)]);
    let pair = |value: &str, kind: &str| (value.to_owned(), kind.to_owned());
    let mask = |revision, masks: Option<&[&str]>, values, without| {
        let mask = MaskFound {
            reviewing: reviewing(&case, &search),
            project_id: project_id(1),
            chain_seq: 1,
            revision,
            masks: masks.map(|masks| masks.iter().map(|mask| (*mask).to_owned()).collect()),
            values,
            without,
        };
        wait(control.mask_found(mask, Records::none())).unwrap()
    };
    let done = Decided::Done { changed: 1, left: 0, unknown: 0, to_read: 0 };
    assert_eq!(mask(1, Some(&["a.\"b"]), vec![pair("x", "chosen"), pair("y", "shown")], vec![]), done);
    let stale = mask(1, None, vec![pair("z", "chosen")], vec![pair("x", "chosen")]);
    assert_eq!(stale, Decided::Done { changed: 0, left: 1, unknown: 0, to_read: 0 });
    assert_eq!(wait(control.case_values(search.new.id)).unwrap(), [pair("x", "chosen"), pair("y", "shown")]);
    assert_eq!(mask(2, Some(&["c"]), vec![], vec![pair("y", "shown")]), done);
    let event = wait(control.found_event(search.new.id, project_id(1), 1)).unwrap().unwrap();
    assert_eq!(
        (event.masks, event.decision, event.revision),
        (Some(vec!["c".into()]), Some(Decision::Include), 3)
    );
    let next = done_search(control, 2, &case, vec![found(1, 1)]);
    assert_eq!(wait(control.case_values(next.new.id)).unwrap(), [pair("x", "chosen")]);
    let event = wait(control.found_event(next.new.id, project_id(1), 1)).unwrap().unwrap();
    assert_eq!(event.masks, Some(vec!["c".into()]));
}

pub fn what_is_decided_while_the_next_search_runs_is_carried_over_when_that_takes_its_place(
    control: &Control,
) {
    furnish_case(control);
    let case = case_in(control, 1, CaseState::Review);
    let first = done_search(control, 1, &case, vec![found(1, 1), found(2, 1), found(3, 1)]);
    let these = |seq, revision| Which::These(vec![(project_id(1), seq, revision)]);
    let pair = |value: &str, kind: &str| (value.to_owned(), kind.to_owned());
    let mask = |revision, values, without| {
        let mask = MaskFound {
            reviewing: reviewing(&case, &first),
            project_id: project_id(1),
            chain_seq: 1,
            revision,
            masks: Some(vec!["metadata.note".into()]),
            values,
            without,
        };
        assert_eq!(
            wait(control.mask_found(mask, Records::none())).unwrap(),
            Decided::Done { changed: 1, left: 0, unknown: 0, to_read: 0 }
        );
    };
    mask(1, vec![pair("x", "chosen"), pair("y", "shown")], vec![]);
    decide(control, &case, &first, these(3, 1), Some(Decision::Include));
    // The next one has found all of them when people go on deciding.
    let second = start(control, 2, &case);
    let piece = SearchPiece {
        position: "p".into(),
        looked: 7,
        found: vec![found(1, 1), found(2, 1), found(3, 1), found(4, 1)],
        values: vec![pair("x", "staff")],
    };
    wait(control.advance_case_search(second.new.id, second.job_id, piece)).unwrap().unwrap();
    mask(2, vec![pair("z", "chosen")], vec![pair("y", "shown")]);
    decide(control, &case, &first, these(2, 1), Some(Decision::Exclude));
    decide(control, &case, &first, these(3, 2), None);
    let before =
        wait(control.found_events(first.new.id, FoundFilter::default(), Grants::default(), 0, 9)).unwrap();
    assert!(wait(control.end_case_search(second.new.id, second.job_id, SearchOutcome::Done, 9)).unwrap());
    let after =
        wait(control.found_events(second.new.id, FoundFilter::default(), Grants::default(), 0, 9)).unwrap();
    assert_eq!((after[0].new.chain_seq, after[0].decision), (4, None));
    assert_eq!(after[1..], before, "as they were at the moment of the switch");
    let values = wait(control.case_values(second.new.id)).unwrap();
    assert_eq!(values, [pair("x", "chosen"), pair("x", "staff"), pair("z", "chosen")]);
}

/// Issue 23.9. One event can have so many, and what is hidden of it is one decision: one transaction of
/// statements with a hundred values each. Changes of others wait for one such transaction at most. How long
/// it takes is printed, since no test may rest on it.
pub fn a_mask_of_thirty_thousand_values_is_one_change_that_others_wait_for_once(control: &Control) {
    furnish_case(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    let case = case_in(control, 1, CaseState::Review);
    let search = done_search(control, 1, &case, vec![found(1, BY_PERSON)]);
    let values: Vec<(String, String)> =
        (0..30_000).map(|at| (format!("usr_{at:05}"), "chosen".to_owned())).collect();
    let mask = |revision, values: &[(String, String)], without: &[(String, String)]| MaskFound {
        reviewing: reviewing(&case, &search),
        project_id: project_id(1),
        chain_seq: 1,
        revision,
        masks: Some(vec!["metadata.user_id".into()]),
        values: values.to_vec(),
        without: without.to_vec(),
    };
    for (what, mask, left) in [("in", mask(1, &values, &[]), 30_000), ("out", mask(2, &[], &values), 0)] {
        let done = std::thread::scope(|scope| {
            let masking = scope.spawn(|| {
                let begun = Instant::now();
                (wait(control.mask_found(mask, Records::none())), begun.elapsed())
            });
            let (mut changes, mut longest) = (0, Duration::ZERO);
            while changes == 0 || !masking.is_finished() {
                let begun = Instant::now();
                wait(control.update_tenant(tenant_id(2), TenantChange::default(), Records::none())).unwrap();
                (changes, longest) = (changes + 1, longest.max(begun.elapsed()));
            }
            let (decided, took) = masking.join().unwrap();
            println!("values=30000 {what} took={took:?} changes_of_another={changes} longest={longest:?}");
            decided
        });
        assert_eq!(done, Ok(Decided::Done { changed: 1, left: 0, to_read: 0, unknown: 0 }));
        assert_eq!(wait(control.case_values(search.new.id)).unwrap().len(), left);
    }
}
