//! Notices that wait to be mailed.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

pub fn a_notice_with_the_same_key_is_queued_once(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    assert_eq!(wait(control.enqueue_notice(new_notice(1, 24_322, 80))), Ok(true));
    let other_text = NewNotice { to: "x@example.com".into(), ..new_notice(1, 24_322, 80) };
    assert_eq!(wait(control.enqueue_notice(other_text)), Ok(false));
    for other in [new_notice(1, 24_322, 100), new_notice(1, 24_323, 80), new_notice(2, 24_322, 80)] {
        assert_eq!(wait(control.enqueue_notice(other)), Ok(true));
    }
    assert_eq!(wait(control.pending_notices()), Ok(4));
    let notices = due(control, MORNING_MS);
    assert_eq!(notices.len(), 4);
    let NewNotice { key, tenant_id, person_id, to, template, parameters, created_at_ms } =
        new_notice(1, 24_322, 80);
    let id = notices[0].id;
    let expected =
        Notice { id, key, tenant_id, person_id, to, template, parameters, created_at_ms, attempts: 0 };
    assert_eq!(notices[0], expected);
    assert_eq!(wait(control.due_notices(MORNING_MS, 3)).unwrap(), notices[..3]);
    assert_eq!(due(control, MORNING_MS - 1), []);
}

pub fn a_failed_notice_is_due_again_at_its_time(control: &Control) {
    furnish(control);
    for percent in [80, 100] {
        wait(control.enqueue_notice(new_notice(1, 1, percent))).unwrap();
    }
    let notices = due(control, MORNING_MS);
    let fail = |retry_at_ms| {
        let outcome = NoticeOutcome::Failed { retry_at_ms, cause: "refused".into() };
        wait(control.notice_attempted(notices[0].id, outcome)).unwrap();
    };
    fail(MORNING_MS + 60_000);
    assert_eq!(due(control, MORNING_MS + 59_999), notices[1..]);
    // Oldest first, also when it was put off.
    let again = Notice { attempts: 1, ..notices[0].clone() };
    assert_eq!(due(control, MORNING_MS + 60_000), [again, notices[1].clone()]);
    fail(MORNING_MS + 120_000);
    assert_eq!(due(control, MORNING_MS + 120_000)[0].attempts, 2);
    assert_eq!(wait(control.pending_notices()), Ok(2));
}

pub fn a_notice_is_claimed_by_one_and_due_again_when_the_claim_is_over(control: &Control) {
    furnish(control);
    for percent in [80, 100] {
        wait(control.enqueue_notice(new_notice(1, 1, percent))).unwrap();
    }
    let notices = due(control, MORNING_MS);
    let claim = |id, now_ms| wait(control.claim_notice(id, now_ms, now_ms + 1000, None)).unwrap();
    assert!(!claim(notices[0].id, MORNING_MS - 1), "before it is due");
    assert!(claim(notices[0].id, MORNING_MS));
    assert!(!claim(notices[0].id, MORNING_MS));
    assert!(!claim(notices[0].id, MORNING_MS + 999));
    assert_eq!(due(control, MORNING_MS + 999), notices[1..]);
    // A claim is not an attempt.
    assert_eq!(due(control, MORNING_MS + 1000), notices);
    assert!(claim(notices[0].id, MORNING_MS + 1000));
    assert!(claim(notices[1].id, MORNING_MS + 1000));
    let failed = NoticeOutcome::Failed { retry_at_ms: MORNING_MS + 1500, cause: "refused".into() };
    wait(control.notice_attempted(notices[0].id, failed)).unwrap();
    assert!(claim(notices[0].id, MORNING_MS + 1500), "the outcome ends the claim");
    wait(control.notice_attempted(notices[1].id, NoticeOutcome::Sent { now_ms: MORNING_MS + 1500 })).unwrap();
    assert!(!claim(notices[1].id, MORNING_MS + 9000), "it was sent");
    assert!(!claim(notices[1].id + 1, MORNING_MS + 9000), "there is none");
}

pub fn a_sent_notice_is_not_due_and_its_key_stays_taken(control: &Control) {
    furnish(control);
    wait(control.enqueue_notice(new_notice(1, 1, 80))).unwrap();
    wait(control.enqueue_notice(new_notice(1, 1, 100))).unwrap();
    let notices = due(control, MORNING_MS);
    let sent = NoticeOutcome::Sent { now_ms: MORNING_MS + 1 };
    wait(control.notice_attempted(notices[0].id, sent.clone())).unwrap();
    assert_eq!(due(control, u64::MAX), notices[1..]);
    assert_eq!(wait(control.pending_notices()), Ok(1));
    assert_eq!(wait(control.enqueue_notice(new_notice(1, 1, 80))), Ok(false));
    // What was sent was sent, whatever a second attempt says.
    let failed = NoticeOutcome::Failed { retry_at_ms: MORNING_MS, cause: "late".into() };
    wait(control.notice_attempted(notices[0].id, failed)).unwrap();
    wait(control.notice_attempted(notices[1].id, sent)).unwrap();
    assert_eq!((due(control, u64::MAX), wait(control.pending_notices())), (vec![], Ok(0)));
}

pub fn a_notice_needs_no_tenant_and_its_key_is_any_text(control: &Control) {
    let reset = NewNotice { key: "reset/ é \"1\"".into(), tenant_id: None, ..new_notice(1, 1, 80) };
    assert_eq!(wait(control.enqueue_notice(reset.clone())), Ok(true));
    assert_eq!(wait(control.enqueue_notice(reset.clone())), Ok(false));
    let found = due(control, MORNING_MS).remove(0);
    assert_eq!((found.key, found.tenant_id), (reset.key, None));
}

pub fn a_secret_is_known_by_its_digest_from_the_attempt_that_sends_it_on_and_is_spent_once(
    control: &Control,
) {
    furnish(control);
    wait(control.enqueue_notice(new_notice(1, 1, 80))).unwrap();
    wait(control.enqueue_notice(new_notice(1, 1, 100))).unwrap();
    let notices = due(control, MORNING_MS);
    let found = |n| wait(control.notice_by_secret(digest(n))).unwrap().map(|notice| notice.key);
    let claim =
        |now_ms, secret| wait(control.claim_notice(notices[0].id, now_ms, now_ms + 1000, secret)).unwrap();
    assert_eq!(found(1), None);
    assert!(claim(MORNING_MS, Some(digest(1))));
    assert_eq!(found(1), Some(notices[0].key.clone()));
    // An attempt that is not the caller's changes nothing; the next one has another secret, and the one
    // before it opens nothing any more.
    assert!(!claim(MORNING_MS, Some(digest(2))));
    assert_eq!((found(1), found(2)), (Some(notices[0].key.clone()), None));
    assert!(claim(MORNING_MS + 1000, Some(digest(2))));
    assert_eq!((found(1), found(2)), (None, Some(notices[0].key.clone())));
    wait(control.notice_attempted(notices[0].id, NoticeOutcome::Sent { now_ms: MORNING_MS + 1001 })).unwrap();
    assert_eq!(found(2), Some(notices[0].key.clone()));
    assert_eq!(wait(control.spend_secret(digest(2))), Ok(true));
    assert_eq!(wait(control.spend_secret(digest(2))), Ok(false));
    assert_eq!(found(2), None);
}

pub fn address_and_parameters_of_a_notice_are_gone_90_days_after_it_was_sent(control: &Control) {
    const DAYS_90_MS: u64 = 90 * 24 * 60 * 60 * 1000;
    furnish(control);
    wait(control.enqueue_notice(new_notice(1, 1, 80))).unwrap();
    wait(control.enqueue_notice(new_notice(1, 1, 100))).unwrap();
    let notices = due(control, MORNING_MS);
    wait(control.claim_notice(notices[0].id, MORNING_MS, MORNING_MS + 1, Some(digest(1)))).unwrap();
    let send = |id, now_ms| {
        wait(control.notice_attempted(id, NoticeOutcome::Sent { now_ms })).unwrap();
        let notices = wait(control.export()).unwrap().notices;
        notices.iter().filter(|notice| notice.to.is_some() && notice.parameters.is_some()).count()
    };
    assert_eq!(send(notices[0].id, MORNING_MS), 2);
    assert_eq!(send(-1, MORNING_MS + DAYS_90_MS - 1), 2);
    assert!(wait(control.notice_by_secret(digest(1))).unwrap().is_some());
    assert_eq!(send(-1, MORNING_MS + DAYS_90_MS), 1, "one that waits keeps its text");
    assert_eq!(wait(control.notice_by_secret(digest(1))), Ok(None));
    assert_eq!(wait(control.enqueue_notice(new_notice(1, 1, 80))), Ok(false));
    assert_eq!(due(control, u64::MAX).len(), 1);
}

pub fn a_notice_that_was_given_up_is_not_due_keeps_its_cause_and_its_key_stays_taken(control: &Control) {
    furnish(control);
    wait(control.create_tenant(new_tenant(2), vec![])).unwrap();
    assert_eq!(wait(control.enqueue_notices(vec![new_notice(1, 1, 80), new_notice(1, 1, 100)])), Ok(2));
    assert_eq!(wait(control.enqueue_notices(vec![new_notice(1, 1, 80), new_notice(2, 1, 80)])), Ok(1));
    let notices = due(control, MORNING_MS);
    let give_up = |id, now_ms, cause: &str| {
        wait(control.notice_attempted(id, NoticeOutcome::GivenUp { now_ms, cause: cause.into() })).unwrap();
    };
    give_up(notices[0].id, MORNING_MS + 5, "550 no such box");
    assert_eq!((due(control, u64::MAX), wait(control.pending_notices())), (notices[1..].to_vec(), Ok(2)));
    assert_eq!(wait(control.claim_notice(notices[0].id, u64::MAX, u64::MAX, None)), Ok(false));
    assert_eq!(wait(control.enqueue_notice(new_notice(1, 1, 80))), Ok(false));
    // One that was sent was not given up, and one that was given up was not sent.
    wait(control.notice_attempted(notices[0].id, NoticeOutcome::Sent { now_ms: MORNING_MS + 6 })).unwrap();
    wait(control.notice_attempted(notices[1].id, NoticeOutcome::Sent { now_ms: MORNING_MS + 6 })).unwrap();
    give_up(notices[1].id, MORNING_MS + 7, "late");
    let kept = |tenant| wait(control.given_up_notices(tenant_id(tenant), 9)).unwrap();
    let [given_up] = &kept(1)[..] else { panic!("{:?}", kept(1)) };
    assert_eq!((given_up.given_up_at_ms, given_up.sent_at_ms), (Some(MORNING_MS + 5), None));
    assert_eq!((given_up.last_failure.as_deref(), given_up.attempts), (Some("550 no such box"), 1));
    give_up(notices[2].id, MORNING_MS + 8, "x");
    assert_eq!((kept(1).len(), kept(2).len()), (1, 1));
    assert_eq!(wait(control.count_given_up()), Ok(2));
}

pub fn a_notice_that_was_given_up_loses_its_text_after_90_days(control: &Control) {
    const DAYS_90_MS: u64 = 90 * 24 * 60 * 60 * 1000;
    furnish(control);
    wait(control.enqueue_notice(new_notice(1, 1, 80))).unwrap();
    let id = due(control, MORNING_MS)[0].id;
    let given_up = NoticeOutcome::GivenUp { now_ms: MORNING_MS, cause: "no".into() };
    wait(control.notice_attempted(id, given_up)).unwrap();
    let kept = |now_ms| {
        wait(control.notice_attempted(-1, NoticeOutcome::Sent { now_ms })).unwrap();
        wait(control.given_up_notices(tenant_id(1), 9)).unwrap().len()
    };
    assert_eq!((kept(MORNING_MS + DAYS_90_MS - 1), wait(control.count_given_up())), (1, Ok(1)));
    assert_eq!((kept(MORNING_MS + DAYS_90_MS), wait(control.count_given_up())), (0, Ok(0)));
    let all = wait(control.export()).unwrap().notices;
    assert_eq!((all.len(), &all[0].to, &all[0].last_failure), (1, &None, &None));
    assert_eq!(wait(control.enqueue_notice(new_notice(1, 1, 80))), Ok(false));
}

pub fn the_notices_for_a_person_are_listed_newest_first_and_nobody_elses(control: &Control) {
    furnish(control);
    for n in [1, 2] {
        wait(control.add_member(new_member(n, 1, &format!("{n}@example.com")), Records::none())).unwrap();
    }
    for (n, person, at_ms) in
        [(1, Some(1), 10), (2, Some(2), 20), (3, None, 30), (4, Some(1), 40), (5, Some(1), 40)]
    {
        let key = n.to_string();
        let notice =
            NewNotice { key, person_id: person.map(person_id), created_at_ms: at_ms, ..new_notice(1, 1, n) };
        wait(control.enqueue_notice(notice)).unwrap();
    }
    let keys = |person, since_ms, limit| -> Vec<String> {
        let found = wait(control.notices_for(person_id(person), since_ms, limit)).unwrap();
        found.into_iter().map(|notice| notice.key).collect()
    };
    assert_eq!(
        (keys(1, 0, 9), keys(1, 11, 9), keys(1, 0, 1)),
        (
            vec!["5".to_owned(), "4".to_owned(), "1".to_owned()],
            vec!["5".to_owned(), "4".to_owned()],
            vec!["5".to_owned()],
        )
    );
    assert_eq!((keys(2, 20, 9), keys(2, 21, 9)), (vec!["2".to_owned()], vec![]));
}

fn due(control: &Control, now_ms: u64) -> Vec<Notice> {
    wait(control.due_notices(now_ms, 100)).unwrap()
}
