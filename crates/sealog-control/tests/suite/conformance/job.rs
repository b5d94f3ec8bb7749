//! Jobs: one node at a time, resumed after a crash.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn a_job_is_claimed_by_one_and_due_again_when_its_lease_is_over(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.create_job(new_job(n, 1))).unwrap();
    }
    wait(control.create_job(NewJob { kind: "export".into(), ..new_job(3, 1) })).unwrap();
    let due = |now_ms| {
        let due = wait(control.due_jobs("verify".into(), now_ms, 10)).unwrap();
        due.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let claim = |n: u8, now_ms| wait(control.claim_job(JobId(id(n)), now_ms, now_ms + 1000)).unwrap();
    assert_eq!(due(MORNING_MS - 1), []);
    assert_eq!(due(MORNING_MS), [JobId(id(1)), JobId(id(2))]);
    assert_eq!(claim(1, MORNING_MS - 1), None);
    let claimed = claim(1, MORNING_MS).unwrap();
    assert_eq!((claimed.state, claimed.claim, claimed.due_at_ms), (JobState::Running, 1, MORNING_MS + 1000));
    assert_eq!((claim(1, MORNING_MS), claim(1, MORNING_MS + 999)), (None, None));
    assert_eq!(due(MORNING_MS + 999), [JobId(id(2))]);
    // Its node has died. Another one goes on, and the first one, should it come back, is told that the job is
    // not its own any more.
    assert_eq!(due(MORNING_MS + 1000), [JobId(id(1)), JobId(id(2))]);
    let resumed = claim(1, MORNING_MS + 1000).unwrap();
    assert_eq!(resumed.claim, 2);
    let advance = |claim, position: &[u8], until_ms| {
        wait(control.advance_job(JobId(id(1)), claim, position.to_vec(), until_ms)).unwrap()
    };
    assert!(!advance(1, b"late", u64::MAX));
    assert!(
        !wait(control.end_job(JobId(id(1)), 1, JobEnd::new(JobOutcome::Done, MORNING_MS + 1001))).unwrap()
    );
    assert!(advance(2, b"\0\xFFhalf", MORNING_MS + 5000));
    assert_eq!(claim(1, MORNING_MS + 4999), None, "the lease was extended");
    let resumed = claim(1, MORNING_MS + 5000).unwrap();
    assert_eq!((resumed.claim, resumed.position.as_deref()), (3, Some(&b"\0\xFFhalf"[..])));
    assert_eq!(claim(9, MORNING_MS), None, "there is none");
}

pub fn a_job_ends_once_and_says_why_it_failed(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let new = NewJob { person_id: Some(person_id(1)), parameters: "{\"from\":1}".into(), ..new_job(1, 1) };
    let created = wait(control.create_job(new)).unwrap();
    assert_eq!((created.state, created.claim, &created.position), (JobState::Waiting, 0, &None));
    assert_eq!(wait(control.job(created.id)), Ok(Some(created.clone())));
    let claimed = wait(control.claim_job(created.id, MORNING_MS, MORNING_MS + 10)).unwrap().unwrap();
    let failed = JobOutcome::Failed { cause: "the disk is full".into() };
    assert_eq!(wait(control.end_job(created.id, 1, JobEnd::new(failed, MORNING_MS + 5))), Ok(true));
    let ended = Job {
        state: JobState::Failed,
        cause: Some("the disk is full".into()),
        ended_at_ms: Some(MORNING_MS + 5),
        ..claimed
    };
    assert_eq!(wait(control.job(created.id)), Ok(Some(ended.clone())));
    assert_eq!(
        wait(control.end_job(created.id, 1, JobEnd::new(JobOutcome::Done, MORNING_MS + 6))),
        Ok(false)
    );
    assert_eq!(wait(control.advance_job(created.id, 1, vec![1], u64::MAX)), Ok(false));
    assert_eq!(wait(control.claim_job(created.id, u64::MAX, u64::MAX)), Ok(None));
    assert_eq!(wait(control.due_jobs("verify".into(), u64::MAX, 10)), Ok(vec![]));
    // Of the tenant, the ended one too; those of others are not.
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.create_job(new_job(2, 2))).unwrap();
    wait(control.create_job(NewJob { tenant_id: None, ..new_job(3, 1) })).unwrap();
    assert_eq!(wait(control.jobs(tenant_id(1), first(10))), Ok(vec![ended]));
    assert_eq!(wait(control.job(JobId(id(9)))), Ok(None));
}

pub fn of_many_that_claim_a_job_at_once_one_has_it(control: &Control) {
    furnish(control);
    for n in 0..10 {
        wait(control.create_job(new_job(n, 1))).unwrap();
        let claims = std::thread::scope(|scope| {
            let claim =
                || wait(control.claim_job(JobId(id(n)), MORNING_MS, MORNING_MS + 1000)).unwrap().is_some();
            let threads = [(); 4].map(|()| scope.spawn(claim));
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(claims, 1);
    }
}

pub fn a_tenant_has_so_many_jobs_of_a_kind_that_have_not_ended(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    // Those that nobody asked for keep no place from people.
    for n in [20, 21] {
        assert_eq!(wait(control.create_job_once(new_job(n, 1))), Ok(true));
    }
    let before = wait(control.pending_records(tenant_id(1), 10)).unwrap().len();
    let queue = |n: u8, tenant, kind: &str| {
        let new = NewJob { kind: kind.into(), person_id: Some(person_id(1)), ..new_job(n, tenant) };
        wait(control.queue_job(new, 2, vec![record(n + 100)])).unwrap().is_some()
    };
    assert_eq!([1, 2, 3].map(|n| queue(n, 1, "verify")), [true, true, false]);
    assert!(queue(4, 2, "verify") && queue(5, 1, "other"), "each tenant and kind by itself");
    assert_eq!(wait(control.job(JobId(id(3)))), Ok(None));
    let records = wait(control.pending_records(tenant_id(1), 10)).unwrap();
    let ids: Vec<_> = records[before..].iter().map(|record| record.id).collect();
    assert_eq!(ids, [101, 102, 105].map(id), "the one that was refused left none");
    // One that has ended makes room.
    assert_eq!(wait(control.cancel_job(JobId(id(1)), MORNING_MS, vec![])), Ok(true));
    assert!(queue(6, 1, "verify") && !queue(7, 1, "verify"));
}

pub fn a_job_with_an_id_of_its_own_is_made_once(control: &Control) {
    furnish(control);
    let made = std::thread::scope(|scope| {
        let make = || wait(control.create_job_once(new_job(1, 1))).unwrap();
        let threads = [(); 4].map(|()| scope.spawn(make));
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|made| *made).count()
    });
    assert_eq!(made, 1);
    let claimed = wait(control.claim_job(JobId(id(1)), MORNING_MS, MORNING_MS + 10)).unwrap().unwrap();
    wait(control.end_job(claimed.id, claimed.claim, JobEnd::new(JobOutcome::Done, MORNING_MS))).unwrap();
    assert_eq!(wait(control.create_job_once(new_job(1, 1))), Ok(false), "also when it has ended");
}

pub fn old_jobs_that_nobody_asked_for_are_forgotten_in_steps(control: &Control) {
    furnish(control);
    wait(control.add_member(new_member(1, 1, "a@example.com"), Records::none())).unwrap();
    let asked = NewJob { person_id: Some(person_id(1)), ..new_job(1, 1) };
    let other = NewJob { kind: "other".into(), ..new_job(2, 1) };
    for new in [asked, other, new_job(3, 1), new_job(4, 1), new_job(5, 1), new_job(6, 1)] {
        let job = wait(control.create_job(new)).unwrap().id;
        if job != JobId(id(6)) {
            wait(control.claim_job(job, MORNING_MS, MORNING_MS + 10)).unwrap().unwrap();
            let at_ms = if job == JobId(id(5)) { MORNING_MS + 5 } else { MORNING_MS };
            wait(control.end_job(job, 1, JobEnd::new(JobOutcome::Done, at_ms))).unwrap();
        }
    }
    let forget = |limit| wait(control.forget_jobs("verify".into(), MORNING_MS + 5, limit)).unwrap();
    assert_eq!([forget(1), forget(10), forget(10)], [1, 1, 0]);
    let left = wait(control.jobs(tenant_id(1), first(10))).unwrap();
    let left: Vec<_> = left.iter().map(|job| job.id).collect();
    assert_eq!(left, [1, 2, 5, 6].map(|n| JobId(id(n))), "asked for, of another kind, too young, not ended");
}

pub fn a_cancelled_job_is_nobodys_and_keeps_its_position(control: &Control) {
    furnish(control);
    wait(control.create_job(new_job(1, 1))).unwrap();
    let job = JobId(id(1));
    wait(control.claim_job(job, MORNING_MS, MORNING_MS + 1000)).unwrap().unwrap();
    assert_eq!(wait(control.advance_job(job, 1, b"half".to_vec(), MORNING_MS + 1000)), Ok(true));
    assert_eq!(wait(control.cancel_job(job, MORNING_MS + 5, vec![record(9)])), Ok(true));
    let cancelled = wait(control.job(job)).unwrap().unwrap();
    assert_eq!((cancelled.state, cancelled.ended_at_ms), (JobState::Cancelled, Some(MORNING_MS + 5)));
    assert_eq!(cancelled.position.as_deref(), Some(&b"half"[..]));
    assert_eq!(wait(control.advance_job(job, 1, b"more".to_vec(), u64::MAX)), Ok(false));
    let end = JobEnd { records: vec![record(8)], ..JobEnd::new(JobOutcome::Done, MORNING_MS + 6) };
    assert_eq!(wait(control.end_job(job, 1, end)), Ok(false));
    assert_eq!(wait(control.cancel_job(job, MORNING_MS + 7, vec![record(7)])), Ok(false));
    assert_eq!(wait(control.cancel_job(JobId(id(9)), MORNING_MS, vec![record(6)])), Ok(false));
    assert_eq!(wait(control.claim_job(job, u64::MAX, u64::MAX)), Ok(None));
    let records = wait(control.pending_records(tenant_id(1), 10)).unwrap();
    assert_eq!(records.last().unwrap().id, id(9), "only what happened is recorded");
}

pub fn a_job_ends_with_its_result_and_its_record(control: &Control) {
    furnish(control);
    wait(control.create_job(new_job(1, 1))).unwrap();
    let job = JobId(id(1));
    wait(control.claim_job(job, MORNING_MS, MORNING_MS + 1000)).unwrap().unwrap();
    let end = JobEnd {
        outcome: JobOutcome::Done,
        position: Some(b"result".to_vec()),
        at_ms: MORNING_MS + 1,
        records: vec![record(9)],
    };
    assert_eq!(wait(control.end_job(job, 7, end.clone())), Ok(false), "of another claim");
    assert_eq!(wait(control.end_job(job, 1, end)), Ok(true));
    let ended = wait(control.job(job)).unwrap().unwrap();
    assert_eq!((ended.state, ended.position.as_deref()), (JobState::Done, Some(&b"result"[..])));
    let records = wait(control.pending_records(tenant_id(1), 10)).unwrap();
    assert_eq!(records.iter().filter(|pending| pending.id == id(9)).count(), 1);
}

pub fn jobs_about_one_thing_are_listed_newest_first(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant, subject) in [(1, 1, "a"), (2, 1, "b"), (3, 1, "a"), (4, 2, "a"), (5, 1, "a")] {
        let new = NewJob { subject: Some(subject.into()), ..new_job(n, tenant) };
        wait(control.create_job(new)).unwrap();
    }
    wait(control.create_job(NewJob { kind: "other".into(), subject: Some("a".into()), ..new_job(6, 1) }))
        .unwrap();
    let list = |after, limit| {
        let page = ListPage { after, limit };
        let jobs = wait(control.jobs_about(tenant_id(1), "verify".into(), "a".into(), page)).unwrap();
        jobs.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 10), [5, 3, 1].map(|n| JobId(id(n))));
    assert_eq!(list(None, 2), [5, 3].map(|n| JobId(id(n))));
    assert_eq!(list(Some(id(3)), 10), [JobId(id(1))]);
    assert_eq!(list(Some(id(4)), 10), [], "behind one of another tenant there is nothing");
}

pub fn jobs_of_all_tenants_are_listed_newest_first_and_pages_join(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    for (n, tenant) in [(1, 1), (2, 2), (3, 1)] {
        wait(control.create_job(new_job(n, tenant))).unwrap();
    }
    wait(control.create_job(NewJob { tenant_id: None, ..new_job(4, 1) })).unwrap();
    assert_eq!(wait(control.cancel_job(JobId(id(3)), MORNING_MS, vec![])), Ok(true));
    let list = |unended, after: Option<u8>, limit| {
        let page = ListPage { after: after.map(id), limit };
        let jobs = wait(control.all_jobs(unended, page)).unwrap();
        jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let ids = |numbers: &[u8]| numbers.iter().map(|n| JobId(id(*n))).collect::<Vec<_>>();
    assert_eq!(list(false, None, 9), ids(&[4, 3, 2, 1]));
    assert_eq!(list(true, None, 2), ids(&[4, 2]));
    assert_eq!(list(true, Some(2), 2), ids(&[1]));
    assert_eq!(list(false, Some(4), 2), ids(&[3, 2]));
    assert_eq!(list(false, Some(9), 2), ids(&[]));
}
