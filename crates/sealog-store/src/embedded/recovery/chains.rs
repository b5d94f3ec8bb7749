//! Last step: each chain is put together from its runs and compared with its head in the high-water mark.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Ulid};
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};

use super::finding::Finding;
use super::high_water_mark::Place;
use super::state::{Recovery, RecoveryError};
use crate::embedded::index::block::BLOCK_EVENTS;
use crate::embedded::index::chain_index::SealedRun;
use crate::embedded::index::sidecar::Caches;
use crate::embedded::log::format;
use crate::embedded::log::segment::Segment;
use crate::embedded::mutants::{self, Mutant};
use crate::embedded::read::window::Window;
use crate::loss::Loss;

impl Recovery<'_> {
    /// Puts the runs of each chain together, finds holes and heads.
    pub(super) fn build_chains(
        &mut self,
        active: Option<u64>,
        segments: &BTreeMap<u64, Arc<Segment>>,
    ) -> Result<(), RecoveryError> {
        let mut runs = std::mem::take(&mut self.runs);
        match &self.marked {
            // Events are accepted only after the first high-water mark, so there must be one.
            None if !runs.is_empty() => self.findings.push(Finding::NoMark),
            Some(marked) if marked.damaged => self.findings.push(Finding::MarkDamaged),
            _ => {}
        }
        let marked = self.marked.clone().unwrap_or_default();
        for chain in marked.heads.keys().chain(self.dropped.anchors.keys()) {
            runs.entry(*chain).or_default();
        }
        let mut ids: Vec<ChainId> = runs.keys().copied().collect();
        ids.sort_unstable();
        let caches = Caches::none();
        for id in ids {
            let (mut of_chain, doubled) = in_order(runs.remove(&id).unwrap_or_default());
            for log_id in doubled.into_iter().filter(|_| !id.is_system()) {
                let usage = self.usage.get_mut(&(id.tenant_id, Month::of(log_id.timestamp_ms())));
                *usage.expect("it was counted with its run") -= 1;
            }
            let recorded = marked.heads.get(&id).copied().unwrap_or(Head::EMPTY);
            let look = Look { chain: id, runs: &of_chain, segments, caches: &caches };
            let dropped = self.believed_drop(id, &of_chain, recorded);
            let state = match ends_of(&of_chain, recorded, dropped).compare(&look, recorded) {
                Ok(state) => state,
                Err(error) => {
                    // What could not be compared is neither right nor wrong. The high-water mark stays as it
                    // is, for the next start.
                    let cause = format!("an event cannot be held against the mark: {error}");
                    self.findings.push(Finding::ReadOnly { cause });
                    ends_of(&of_chain, recorded, dropped)
                }
            };
            // Asked of the disk only where it matters: a start must not look at every chain.
            let matters = self.unproven_to.is_some() || !self.unreadable.is_empty();
            let last_run = of_chain.last().filter(|_| matters);
            let last_place = last_run.map(|run| last_place(run, &caches)).transpose()?;
            let unproven = match (self.unproven_to, last_place) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(place), Some(last)) => last < place,
            };
            let unreadable =
                self.unreadable_stretches(&of_chain, last_place, &state.durable, &recorded, &dropped);
            let end_unreadable = unreadable.last().is_some_and(|(_, last)| *last == u64::MAX);
            match state.fault {
                // The events may all be there.
                _ if end_unreadable => {}
                Some(Fault::Lost) => {
                    let (durable, recorded) = (state.durable.chain_seq, state.recorded.chain_seq);
                    self.findings.push(Finding::HeadLost { chain: id, durable, recorded });
                }
                Some(Fault::Impossible) => {
                    let chain_seq = state.durable.chain_seq;
                    self.findings.push(Finding::ImpossibleId { chain: id, chain_seq });
                }
                Some(Fault::Rewritten) => {
                    let chain_seq = state.recorded.chain_seq;
                    self.findings.push(Finding::Rewritten { chain: id, chain_seq });
                }
                None if unproven => self.findings.push(Finding::HeadUnproven { chain: id }),
                None => {}
            }
            let mut damaged = self.damaged_stretches(&of_chain, &dropped);
            damaged.retain(|stretch| !unreadable.contains(stretch));
            self.chains.get_or_create(id).with(|chain| {
                chain.dropped = dropped;
                chain.durable = state.durable;
                chain.recorded = state.recorded;
                chain.unproven = state.fault.is_some() || unproven;
                chain.damaged = Arc::new(damaged);
                chain.unreadable = Arc::new(unreadable);
                // The run of the segment that is written to next can grow. It is the last, and in memory.
                if let Some(SealedRun::Memory(run)) =
                    of_chain.pop_if(|run| Some(run.run().segment()) == active)
                {
                    chain.memory.push(run);
                }
                chain.sealed = Arc::new(of_chain);
            });
        }
        Ok(())
    }

    /// The last event of a chain that was dropped. Nothing is dropped before the high-water mark has passed
    /// it, nor from behind what is kept: an anchor that says so is no drop, and what it would hide is missed
    /// as without it.
    fn believed_drop(&mut self, chain: ChainId, runs: &[SealedRun], recorded: Head) -> Head {
        let dropped = self.dropped.anchor(chain);
        let is_marked = self.marked.as_ref().is_some_and(|marked| !marked.damaged);
        let kept = runs.last().map(|run| run.run().end_seq() - 1);
        let is_beyond = kept.is_some_and(|last| dropped.chain_seq >= last)
            || is_marked && dropped.chain_seq > recorded.chain_seq;
        if dropped == Head::EMPTY || !is_beyond {
            return dropped;
        }
        let end = kept.unwrap_or(recorded.chain_seq);
        self.findings.push(Finding::DroppedBeyond { chain, dropped: dropped.chain_seq, end });
        Head::EMPTY
    }

    /// Holes between runs that lie in segments with damage: the records are there, but are not right.
    fn damaged_stretches(&self, runs: &[SealedRun], dropped: &Head) -> Vec<(u64, u64)> {
        holes(runs, dropped, |between| self.damaged_segments.iter().any(|damaged| between.contains(damaged)))
    }

    /// Holes between runs where a place could not be read, and everything behind the last run if a later
    /// place may hold more of the chain.
    fn unreadable_stretches(
        &self,
        runs: &[SealedRun],
        last_place: Option<Place>,
        durable: &Head,
        recorded: &Head,
        dropped: &Head,
    ) -> Vec<(u64, u64)> {
        let mut stretches = holes(runs, dropped, |between| {
            self.unreadable.iter().any(|(segment, ..)| between.contains(segment))
        });
        // The high-water mark knows the head of every chain that has an event in what it covers.
        let ruled_out = |segment: u64, to: u64| {
            let whole = self.marked.as_ref().is_some_and(|marked| !marked.damaged);
            whole && self.is_marked(segment, to) && recorded.chain_seq <= durable.chain_seq
        };
        let behind = self.unreadable.iter().any(|(segment, _, to)| {
            last_place.is_none_or(|last| (*segment, *to) > last) && !ruled_out(*segment, *to)
        });
        if behind {
            let next_seq = runs.last().map_or(dropped.chain_seq + 1, |run| run.run().end_seq());
            stretches.push((next_seq, u64::MAX));
        }
        stretches
    }
}

/// First and last seq of what is missing between runs, where the segments in between are of some kind.
fn holes(
    runs: &[SealedRun],
    dropped: &Head,
    between: impl Fn(RangeInclusive<u64>) -> bool,
) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let (mut next_seq, mut segment) = (dropped.chain_seq + 1, 0);
    for run in runs.iter().map(SealedRun::run) {
        let first = run.first_seq();
        if first > next_seq && between(segment..=run.segment()) {
            holes.push((next_seq, first - 1));
        }
        next_seq = run.end_seq();
        segment = run.segment();
    }
    holes
}

/// Runs in the order of the log, each event once: where a group was moved and the segment that says so is
/// gone, the later copy counts. The ids of the earlier ones come second.
fn in_order(mut runs: Vec<SealedRun>) -> (Vec<SealedRun>, Vec<Ulid>) {
    runs.sort_by_key(|run| (run.run().segment(), run.run().first_seq()));
    let mut ordered: Vec<SealedRun> = Vec::with_capacity(runs.len());
    let mut doubled = Vec::new();
    for run in runs {
        let first_seq = run.run().first_seq();
        while let Some(earlier) = ordered.pop_if(|earlier| earlier.run().first_seq() >= first_seq) {
            if let SealedRun::Memory(earlier) = earlier {
                doubled.extend(earlier.log_ids());
            }
        }
        if let Some(SealedRun::Memory(earlier)) = ordered.last_mut() {
            let kept = usize::try_from(first_seq - earlier.first_seq).unwrap_or(usize::MAX);
            doubled.extend(earlier.log_ids().skip(kept));
            earlier.truncate(first_seq);
        }
        ordered.push(run);
    }
    (ordered, doubled)
}

/// How a chain ends.
struct Ends {
    durable: Head,
    recorded: Head,
    /// Why nothing may be sealed on it.
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It has ended later, or otherwise.
    Lost,
    /// It goes on, with another event where one is on record.
    Rewritten,
    /// Nothing can be counted on from its last id.
    Impossible,
}

/// What is needed to look at single events of a chain.
struct Look<'a> {
    chain: ChainId,
    runs: &'a [SealedRun],
    segments: &'a BTreeMap<u64, Arc<Segment>>,
    caches: &'a Caches,
}

impl Look<'_> {
    /// Nothing if there is no such event or its record is damaged.
    fn event(&self, chain_seq: u64) -> io::Result<Option<StoredEvent>> {
        let mut runs = self.runs.iter().map(SealedRun::run);
        let Some(run) = runs.find(|run| (run.first_seq()..run.end_seq()).contains(&chain_seq)) else {
            return Ok(None);
        };
        let Some(segment) = self.segments.get(&run.segment()) else { return Ok(None) };
        let at = usize::try_from(chain_seq - run.first_seq()).unwrap_or(usize::MAX);
        let position = run.blocks(self.caches)?.block(at / BLOCK_EVENTS)?.position(at % BLOCK_EVENTS);
        let mut window = Window::single();
        let record = window.record(segment, position)?;
        Ok(record.and_then(|record| format::decode_record(record, &segment.salt, self.chain, chain_seq)))
    }
}

impl Ends {
    /// Holds the chain against its recorded head: whoever rewrites a log and adds to it leaves a chain that
    /// is longer than the high-water mark says and fits together. Looks at one event of a chain that has
    /// grown since the high-water mark, and at none of the others.
    ///
    /// A loss that was accepted is none: the acceptance of exactly this head is then the last event, since
    /// nothing is sealed on it before the high-water mark knows it.
    fn compare(self, look: &Look<'_>, recorded: Head) -> io::Result<Ends> {
        if mutants::on(Mutant::MarkWithoutHash) {
            return Ok(self);
        }
        let rewritten = match self.fault {
            Some(_) => false,
            None if recorded.chain_seq == 0 || recorded.chain_seq >= self.durable.chain_seq => {
                return Ok(self);
            }
            None => {
                let stored = match look.event(recorded.chain_seq)? {
                    Some(event) => Some(event.sealed.hash),
                    // The one behind it names its hash.
                    None => look.event(recorded.chain_seq + 1)?.map(|event| event.sealed.prev_hash),
                };
                stored.is_some_and(|hash| hash != recorded.hash)
            }
        };
        if self.fault.is_none() && !rewritten {
            return Ok(self);
        }
        let last = look.event(self.durable.chain_seq)?;
        if last.and_then(|event| Loss::accepted_by(&event)).is_some_and(|loss| loss.is_of(&recorded)) {
            return Ok(Ends { recorded: self.durable, fault: None, ..self });
        }
        if rewritten {
            return Ok(Ends { recorded, fault: Some(Fault::Rewritten), ..self });
        }
        Ok(self)
    }
}

/// A chain of which everything was dropped ends with the last event that was.
fn ends_of(runs: &[SealedRun], marked: Head, dropped: Head) -> Ends {
    let (durable, last) = match runs.last() {
        None => (dropped, dropped),
        Some(SealedRun::File(run)) => {
            let head = Head { chain_seq: run.end_seq() - 1, log_id: run.last_log_id, hash: run.last_hash };
            (head, head)
        }
        Some(SealedRun::Memory(run)) => {
            (run.head, Head { chain_seq: run.end_seq() - 1, log_id: run.last_log_id(), hash: run.last_hash })
        }
    };
    if marked.chain_seq > durable.chain_seq
        || marked.chain_seq == durable.chain_seq
            && marked.hash != durable.hash
            && !mutants::on(Mutant::MarkWithoutHash)
    {
        return Ends {
            durable,
            recorded: if last.chain_seq > marked.chain_seq { last } else { marked },
            fault: Some(Fault::Lost),
        };
    }
    // Records behind the last intact one are there and damaged.
    let lost = last.chain_seq > durable.chain_seq;
    let impossible = durable.log_id.timestamp_ms() > TIMESTAMP_MS_MAX;
    let fault = impossible.then_some(Fault::Impossible).or(lost.then_some(Fault::Lost));
    Ends { durable, recorded: last, fault }
}

/// Where the last intact record of a run stands.
fn last_place(run: &SealedRun, caches: &Caches) -> io::Result<Place> {
    let position = match run {
        SealedRun::Memory(run) => run.position(run.head.chain_seq),
        SealedRun::File(run) => {
            let table = run.table(caches)?;
            let block = run.block(caches, &table, table.len() - 1)?;
            block.position(block.len() - 1)
        }
    };
    Ok((run.run().segment(), u64::from(position)))
}
