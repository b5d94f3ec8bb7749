//! What was wrong with the files when a log was opened.

use std::fmt;

use sealog_core::id::ChainId;

/// Something that was wrong with the files. Named in the log and kept for whoever asks; never repaired in
/// silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The end of the last group was not written completely. It was never acknowledged, and does not count.
    TornTail { segment: u64, offset: u64 },
    /// The files of these segments are gone.
    MissingSegments { first: u64, last: u64 },
    /// A segment's header is damaged, so that nothing in it can be read.
    DamagedHeader { segment: u64 },
    /// Bytes of acknowledged events are damaged.
    Damaged { segment: u64, from: u64, to: u64 },
    /// A segment does not end as its successor says that it did.
    WrongEnd { segment: u64 },
    /// The log ends before a commit that it is known to have had.
    ShorterThanMark { commit: u64, marked: u64 },
    /// A chain ends before an event that it is known to have had, or has another event there. Nothing is
    /// sealed on top of it.
    HeadLost { chain: ChainId, durable: u64, recorded: u64 },
    /// A chain goes on, but has another event where one was acknowledged: it was rewritten. Nothing is sealed
    /// on top of it.
    Rewritten { chain: ChainId, chain_seq: u64 },
    /// The last event of a chain has an id that no event can have. Nothing is sealed on top of it.
    ImpossibleId { chain: ChainId, chain_seq: u64 },
    /// A chain may have ended in a damaged place. Nothing is sealed on top of it.
    HeadUnproven { chain: ChainId },
    /// What retention has dropped of a test log cannot be read, so that a rightful drop cannot be told from a
    /// loss.
    DroppedDamaged,
    /// A live log has a file that says that events were dropped. Events of live chains never are; it is not
    /// believed.
    DroppedOfLive,
    /// The events of a test chain are said to be dropped up to one that it never had, or that is there. It is
    /// not believed.
    DroppedBeyond { chain: ChainId, dropped: u64, end: u64 },
    /// There are events but no readable high-water mark, so a cut tail could not be noticed.
    NoMark,
    /// A record in the middle of the high-water mark is damaged.
    MarkDamaged,
    /// The clock is behind the last events of some chains. They accept events, but their time stands still
    /// until the clock has caught up.
    ClockBehind { chains: usize, furthest: ChainId, by_ms: u64 },
    /// There was no room for a new segment at start. The store can only be read until there is.
    NoRoom { cause: String },
    /// Something could not be read or written at start; the store can only be read until it is started again.
    ReadOnly { cause: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::TornTail { segment, offset } => {
                write!(
                    f,
                    "segment {segment} ends in a torn write at byte {offset}: an unfinished write, never acknowledged; it is ignored"
                )
            }
            Finding::MissingSegments { first, last } => {
                write!(f, "segments {first} to {last} are missing: their files were deleted or moved")
            }
            Finding::DamagedHeader { segment } => {
                write!(f, "the header of segment {segment} is damaged; its events cannot be read")
            }
            Finding::Damaged { segment, from, to } => {
                write!(f, "segment {segment} is damaged from byte {from} to {to}")
            }
            Finding::WrongEnd { segment } => {
                write!(f, "the end of segment {segment} does not match the next segment")
            }
            Finding::ShorterThanMark { commit, marked } => {
                write!(
                    f,
                    "the log ends at commit {commit}, but it had reached {marked}: acknowledged events are lost"
                )
            }
            Finding::HeadLost { chain, durable, recorded } => {
                write!(
                    f,
                    "chain {chain} ends at event {durable}, but it had reached {recorded} with another content; it rejects new events"
                )
            }
            Finding::Rewritten { chain, chain_seq } => {
                write!(
                    f,
                    "event {chain_seq} of chain {chain} is not the acknowledged one: the log was rewritten; the chain rejects new events"
                )
            }
            Finding::ImpossibleId { chain, chain_seq } => {
                write!(
                    f,
                    "event {chain_seq} of chain {chain} has an impossible id: the log was tampered with; the chain rejects new events"
                )
            }
            Finding::HeadUnproven { chain } => {
                write!(f, "the last events of chain {chain} may be damaged; it rejects new events")
            }
            Finding::DroppedDamaged => f.write_str(
                "the record of deleted test events is damaged; missing events count as lost",
            ),
            Finding::DroppedOfLive => f.write_str(
                "live/dropped claims that live events were deleted, which never happens: the file is forged and ignored; move it away",
            ),
            Finding::DroppedBeyond { chain, dropped, end } => {
                write!(
                    f,
                    "test/dropped claims that the events of chain {chain} were deleted up to {dropped}, but the chain ends at {end}: the file was changed and is ignored for this chain"
                )
            }
            Finding::NoMark => f.write_str(
                "there is no readable high-water mark; a truncated end of the log would go undetected",
            ),
            Finding::MarkDamaged => f.write_str("the high-water mark is damaged; its entries for some chains are lost"),
            Finding::ClockBehind { chains, furthest, by_ms } => {
                write!(
                    f,
                    "the clock is behind the last event of {chains} chains, by {} s for chain {furthest}: their time does not advance until the clock catches up; check the clock of this machine",
                    by_ms / 1000
                )
            }
            Finding::NoRoom { cause } => {
                write!(
                    f,
                    "the disk had no space for a new segment when the store was opened ({cause}); events are accepted as soon as there is space"
                )
            }
            Finding::ReadOnly { cause } => {
                write!(f, "the store is read-only until it restarts: {cause}")
            }
        }
    }
}
