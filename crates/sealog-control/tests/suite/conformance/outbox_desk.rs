//! The outbox as operators see it.

use sealog_control::*;

use super::common::*;
use sealog_testing::*;

fn ids(control: &Control, state: Option<NoticeState>) -> Vec<i64> {
    let rows = wait(control.outbox_rows(state, None, 99)).unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

/// Three notices: one that waits, one that was sent, one that was given up. Their ids.
fn furnished(control: &Control) -> [i64; 3] {
    furnish(control);
    for percent in [70, 80, 90] {
        wait(control.enqueue_notice(new_notice(1, 1, percent))).unwrap();
    }
    let mut all = ids(control, None);
    all.reverse();
    let [waiting, sent, given_up] = all.try_into().unwrap();
    wait(control.notice_attempted(sent, NoticeOutcome::Sent { now_ms: MORNING_MS })).unwrap();
    assert_eq!(wait(control.give_up_notice(given_up, MORNING_MS, vec![record(1)])), Ok(true));
    [waiting, sent, given_up]
}

pub fn notices_are_listed_by_their_state_newest_first_and_pages_join(control: &Control) {
    let [waiting, sent, given_up] = furnished(control);
    assert_eq!(ids(control, None), [given_up, sent, waiting]);
    assert_eq!(ids(control, Some(NoticeState::Waiting)), [waiting]);
    assert_eq!(ids(control, Some(NoticeState::Sent)), [sent]);
    assert_eq!(ids(control, Some(NoticeState::GivenUp)), [given_up]);
    let page = |before| {
        let rows = wait(control.outbox_rows(None, before, 2)).unwrap();
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((page(None), page(Some(sent))), (vec![given_up, sent], vec![waiting]));
    let row = wait(control.outbox_row(sent)).unwrap().unwrap();
    assert_eq!((row.state(), row.tenant_id, row.attempts), (NoticeState::Sent, Some(tenant_id(1)), 1));
    assert!(row.to.is_some());
    assert_eq!(wait(control.outbox_row(given_up + 99)), Ok(None));
}

pub fn a_notice_is_given_up_and_tried_again_by_hand_and_the_tenants_records_wait(control: &Control) {
    let [waiting, sent, given_up] = furnished(control);
    let due = || {
        let due = wait(control.due_notices(MORNING_MS, 99)).unwrap();
        due.into_iter().map(|notice| notice.id).collect::<Vec<_>>()
    };
    let records = || wait(control.pending_records(tenant_id(1), 99)).unwrap().len();
    let before = records();
    assert_eq!(due(), [waiting]);
    assert_eq!(wait(control.give_up_notice(given_up, MORNING_MS, vec![record(2)])), Ok(false), "it was");
    assert_eq!(wait(control.give_up_notice(sent, MORNING_MS, vec![record(2)])), Ok(false), "it was sent");
    assert_eq!(wait(control.retry_notice(sent, MORNING_MS, vec![record(2)])), Ok(false), "it was sent");
    assert_eq!(wait(control.retry_notice(given_up + 99, MORNING_MS, vec![record(2)])), Ok(false));
    assert_eq!(records(), before, "what changed nothing leaves no record");
    assert_eq!(wait(control.retry_notice(given_up, MORNING_MS, vec![record(2)])), Ok(true));
    assert_eq!((due(), records()), (vec![waiting, given_up], before + 1));
    // One that waits for its next attempt does not wait any longer.
    let failed = NoticeOutcome::Failed { retry_at_ms: MORNING_MS + 1000, cause: "421".into() };
    wait(control.notice_attempted(waiting, failed)).unwrap();
    assert_eq!(due(), [given_up]);
    assert_eq!(wait(control.retry_notice(waiting, MORNING_MS, vec![record(3)])), Ok(true));
    assert_eq!((due(), records()), (vec![waiting, given_up], before + 2));
}
