//! What is asked of a store, and the pieces that it answers in.

use sealog_core::chain::Head;
use sealog_core::query::Filter;

/// What to list.
#[derive(Clone, Debug)]
pub struct List {
    pub filter: Filter,
    pub before_seq: Option<u64>,
    pub limit: usize,
    pub bytes_max: usize,
}

/// What to read for a verification.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub from: u64,
    pub to: u64,
    pub bytes_max: usize,
}

/// What a look-up of one record counts in the thread pool, in bytes.
pub(crate) const LOOKUP_COST: usize = 4 << 10;
/// What a record among others counts, before its size is known.
const RECORD_COST: usize = 1 << 10;

impl List {
    /// In the thread pool: what an everyday page takes.
    pub(crate) fn cost(&self) -> usize {
        LOOKUP_COST + self.bytes_max.min(self.limit.saturating_mul(RECORD_COST))
    }
}

impl Range {
    pub(crate) fn cost(&self) -> usize {
        let events = usize::try_from(self.to.saturating_sub(self.from)).unwrap_or(usize::MAX);
        LOOKUP_COST + self.bytes_max.min(events.saturating_mul(RECORD_COST))
    }
}

/// A piece of an answer. An event can have two megabytes, so a page of a hundred must not stand in memory
/// whole: a read stops when it has `bytes_max` bytes, and says where to go on. Events never change and are
/// only added above, so the pieces fit together.
///
/// Only `resume: None` says that there is no more. A range returns at least one item if there is any. A list
/// may return fewer items than asked for, even none, with `resume` set: it has looked at as many events as
/// one call may. Each piece goes on strictly below (of a list) or above (of a range) where it began, so
/// following `resume` always ends.
#[derive(Debug)]
pub struct Chunk<T> {
    pub items: Vec<T>,
    /// Where the next piece begins (`before_seq` of a list, `from` of a range), or nothing when there is no
    /// more.
    pub resume: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The last event that is there; [`Head::EMPTY`] for none.
    pub durable: Head,
    /// The last event that is known to have been there. Before `durable` when the chain has another event in
    /// its place by now.
    pub recorded: Head,
    /// The last event that was dropped for its age ([`Head::EMPTY`] for none): the chain begins behind it. Of
    /// test chains alone.
    pub dropped: Head,
}

impl ChainHead {
    /// The last event that is there or is known to have been.
    pub fn end(&self) -> Head {
        if self.recorded.chain_seq < self.durable.chain_seq { self.durable } else { self.recorded }
    }

    /// The `chain_seq` of the first event that is kept, or that will be the first.
    pub fn first_seq(&self) -> u64 {
        self.dropped.chain_seq.saturating_add(1)
    }
}
