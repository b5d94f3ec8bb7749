//! Whether requests are admitted at all, and whether one that came now could expect to be written.

use std::time::{Duration, Instant};

use crate::error::StoreError;

#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Set by a failed write or sync, for good.
    poisoned: Option<StoreError>,
    closing: bool,
    /// The epoch of the store that has taken this one's place, for good.
    superseded: Option<u64>,
    /// Why the store was found to be rolled back, until that is dealt with.
    rolled_back: Option<StoreError>,
    no_room: bool,
    /// When the group that is being written and synced was begun.
    writing_since: Option<Instant>,
    /// At the last look, a request had waited for half of its deadline or longer.
    late: bool,
    /// A request has failed by its deadline, and none has succeeded since.
    expired: bool,
}

impl Admission {
    pub(crate) fn new(poisoned: Option<StoreError>) -> Admission {
        Admission { poisoned, ..Admission::default() }
    }

    /// Whether requests may be queued.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(error) => Err(error.clone()),
            None if self.closing => Err(StoreError::Closing),
            None => match self.superseded {
                Some(epoch) => Err(StoreError::Superseded { epoch }),
                None => match &self.rolled_back {
                    Some(error) => Err(error.clone()),
                    None if self.no_room => Err(StoreError::NoRoom),
                    None => Ok(()),
                },
            },
        }
    }

    /// Whether a request that came now could expect to be written. Not so while the disk has not finished a
    /// group for so long that what is behind it will fail by its deadline: it is queued all the same, since
    /// the disk may go on.
    pub(crate) fn is_ready(&self, deadline: Duration) -> Result<(), StoreError> {
        self.check()?;
        let stuck = self.writing_since.is_some_and(|since| since.elapsed() >= deadline / 2);
        if stuck || self.late || self.expired { Err(StoreError::Stalled) } else { Ok(()) }
    }

    /// No more events are accepted, for this reason or an earlier one.
    pub(crate) fn poison(&mut self, error: StoreError) {
        self.poisoned.get_or_insert(error);
    }

    pub(crate) fn poisoned(&self) -> Option<&StoreError> {
        self.poisoned.as_ref()
    }

    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// Another store has the chains now. Whether that is news.
    pub(crate) fn supersede(&mut self, epoch: u64) -> bool {
        let known = self.superseded.replace(self.superseded.map_or(epoch, |known| known.max(epoch)));
        known.is_none()
    }

    pub(crate) fn set_rolled_back(&mut self, why: Option<String>) {
        self.rolled_back = why.map(StoreError::RolledBack);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether it was closed, and nothing else is wrong.
    pub(crate) fn is_closed_cleanly(&self) -> bool {
        matches!(self.check(), Err(StoreError::Closing))
    }

    pub(crate) fn refuse_for_want_of_room(&mut self) {
        self.no_room = true;
    }

    /// Whether there was none before.
    pub(crate) fn note_room(&mut self) -> bool {
        std::mem::replace(&mut self.no_room, false)
    }

    pub(crate) fn begin_write(&mut self) {
        self.writing_since = Some(Instant::now());
    }

    pub(crate) fn end_write(&mut self) {
        self.writing_since = None;
    }

    /// A group has become durable: the disk does its work.
    pub(crate) fn note_success(&mut self) {
        self.expired = false;
    }

    /// What a look at the deadlines has found, and whether nothing waits.
    pub(crate) fn note_deadlines(&mut self, expired: bool, late: bool, idle: bool) {
        self.late = late;
        // With nothing under way there is nothing that could show that the disk is well again, and nothing
        // that it keeps waiting.
        self.expired = (self.expired || expired) && (self.writing_since.is_some() || !idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(3600);

    #[test]
    fn the_first_failure_is_the_one_that_is_named_and_it_stays() {
        let mut admission = Admission::default();
        admission.close();
        admission.refuse_for_want_of_room();
        assert_eq!(admission.check(), Err(StoreError::Closing));
        assert!(admission.is_closed_cleanly());
        admission.poison(StoreError::Poisoned("first".into()));
        admission.poison(StoreError::Poisoned("second".into()));
        assert_eq!(admission.check(), Err(StoreError::Poisoned("first".into())));
        assert!(!admission.is_closed_cleanly());
    }

    #[test]
    fn events_are_accepted_again_when_there_is_room() {
        let mut admission = Admission::default();
        admission.refuse_for_want_of_room();
        assert_eq!(admission.check(), Err(StoreError::NoRoom));
        assert!(admission.note_room() && !admission.note_room());
        assert_eq!(admission.check(), Ok(()));
    }

    #[test]
    fn a_store_that_was_superseded_refuses_events_for_good_and_still_closes_cleanly() {
        let mut admission = Admission::default();
        assert!(admission.supersede(3) && !admission.supersede(2) && !admission.supersede(4));
        admission.refuse_for_want_of_room();
        assert!(admission.note_room());
        assert_eq!(admission.check(), Err(StoreError::Superseded { epoch: 4 }));
        assert_eq!(admission.is_ready(DEADLINE), admission.check());
        admission.close();
        assert!(admission.is_closed_cleanly());
    }

    #[test]
    fn a_request_that_failed_by_its_deadline_shows_until_a_group_is_durable_or_nothing_waits() {
        let mut admission = Admission::default();
        admission.begin_write();
        admission.note_deadlines(true, false, false);
        assert_eq!((admission.check(), admission.is_ready(DEADLINE)), (Ok(()), Err(StoreError::Stalled)));
        // The disk is still at it, so that nothing waits says nothing.
        admission.note_deadlines(false, false, true);
        assert_eq!(admission.is_ready(DEADLINE), Err(StoreError::Stalled));
        admission.note_success();
        assert_eq!(admission.is_ready(DEADLINE), Ok(()));
        admission.note_deadlines(true, false, false);
        admission.end_write();
        admission.note_deadlines(false, false, true);
        assert_eq!(admission.is_ready(DEADLINE), Ok(()));
    }

    #[test]
    fn a_disk_that_has_been_at_a_group_for_half_of_the_deadline_is_stuck() {
        let mut admission = Admission::default();
        admission.begin_write();
        assert_eq!(admission.is_ready(Duration::ZERO), Err(StoreError::Stalled));
        assert_eq!(admission.is_ready(DEADLINE), Ok(()));
        admission.end_write();
        assert_eq!(admission.is_ready(Duration::ZERO), Ok(()));
        admission.note_deadlines(false, true, false);
        assert_eq!(admission.is_ready(DEADLINE), Err(StoreError::Stalled));
    }
}
