//! Where the events of a query stand, asked of indexes, so that a few events of a long range are found
//! without reading all of it. What is found is only where to look: the query is held against each event that
//! is read there. So a download has the same bytes whether it sought or not, unless events were changed
//! behind the store's back.

use std::collections::VecDeque;

use sealog_core::id::ChainId;
use sealog_core::query::Filter;
use sealog_store::{List, Store, StoreError};

/// Ranges of `chain_seq`, both ends included, from the oldest.
pub(super) type Ranges = VecDeque<(u64, u64)>;

/// Events that are sought. Of more the whole range is read: that is not much more by then.
const SEQS_MAX: usize = 10_000;
/// Calls of the store. Where an index has to look long, reading is as good.
const STEPS_MAX: usize = 256;
/// Events of a call, and their bytes; the last may be as large as a body.
const EVENTS_OF_STEP: usize = 1000;
const BYTES_OF_STEP: usize = 256 << 10;
/// Events between two that are read along with them, for one call of the store instead of two.
const BETWEEN_MAX: u64 = 32;

pub(super) struct Seek {
    /// Filters that have every event of the query between them, each with what it has left to look at: below
    /// this.
    branches: Vec<(Filter, u64)>,
    whole: (u64, u64),
    seqs: Vec<u64>,
    steps: usize,
}

impl Seek {
    pub(super) fn new(filters: Vec<Filter>, first_seq: u64, last_seq: u64) -> Seek {
        let branches = filters.into_iter().map(|filter| (filter, last_seq.saturating_add(1))).collect();
        Seek { branches, whole: (first_seq, last_seq), seqs: Vec::new(), steps: 0 }
    }

    /// One call of the store. What is to be read, once that is known.
    pub(super) async fn step(
        &mut self,
        store: &dyn Store,
        chain: ChainId,
    ) -> Result<Option<Ranges>, StoreError> {
        let Some((filter, before_seq)) = self.branches.pop() else { return Ok(Some(self.ranges())) };
        let list = List {
            filter: filter.clone(),
            before_seq: Some(before_seq),
            limit: EVENTS_OF_STEP,
            bytes_max: BYTES_OF_STEP,
        };
        let chunk = store.list(chain, list).await?;
        let first_seq = self.whole.0;
        let found = chunk.items.iter().map(|event| event.sealed.chain_seq);
        self.seqs.extend(found.filter(|seq| *seq >= first_seq));
        if let Some(resume) = chunk.resume.filter(|resume| *resume > first_seq) {
            self.branches.push((filter, resume));
        }
        self.steps += 1;
        let is_done = self.branches.is_empty();
        if self.seqs.len() > SEQS_MAX || self.steps >= STEPS_MAX && !is_done {
            return Ok(Some(Ranges::from([self.whole])));
        }
        Ok(is_done.then(|| self.ranges()))
    }

    /// Alternatives may have led to the same event.
    fn ranges(&mut self) -> Ranges {
        self.seqs.sort_unstable();
        let mut ranges = Ranges::new();
        for seq in self.seqs.drain(..) {
            match ranges.back_mut() {
                Some((_, to)) if seq <= to.saturating_add(BETWEEN_MAX) => *to = seq,
                _ => ranges.push_back((seq, seq)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_stand_near_each_other_are_read_together_and_each_is_in_one_range() {
        let mut seek = Seek::new(Vec::new(), 1, 1000);
        seek.seqs = vec![500, 1, 33, 500, 66, 501, 1000];
        assert_eq!(seek.ranges(), [(1, 33), (66, 66), (500, 501), (1000, 1000)]);
    }
}
