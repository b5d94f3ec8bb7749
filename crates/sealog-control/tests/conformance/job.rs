//! Jobs: one node at a time, resumed after a crash.

use sealog_control::*;

use crate::common::*;
use crate::support::*;

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
    assert!(!wait(control.end_job(JobId(id(1)), 1, JobOutcome::Done, MORNING_MS + 1001)).unwrap());
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
    assert_eq!(wait(control.end_job(created.id, 1, failed, MORNING_MS + 5)), Ok(true));
    let ended = Job {
        state: JobState::Failed,
        cause: Some("the disk is full".into()),
        ended_at_ms: Some(MORNING_MS + 5),
        ..claimed
    };
    assert_eq!(wait(control.job(created.id)), Ok(Some(ended.clone())));
    assert_eq!(wait(control.end_job(created.id, 1, JobOutcome::Done, MORNING_MS + 6)), Ok(false));
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
