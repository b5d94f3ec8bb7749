//! Counts of a chain, put together from the segments that have its events.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sealog_core::id::ChainId;

use super::file;
use super::state::{ChainCounts, Place, Stretches};
use crate::counts::{Counts, Days};
use crate::embedded::contents::Contents;
use crate::embedded::log::segment::counts_path;
use crate::error::StoreError;
use crate::sync::lock;

/// Segments whose files one question reads, the newest; the events of others are not counted for it.
const SEGMENTS_MAX: usize = 4096;
/// Chains in damaged segments whose counts are remembered: all that a question about one chain can need, or
/// it would never be answered whole.
const SPECIAL_MAX: usize = SEGMENTS_MAX;
/// Damaged segments that one question reads to count what is left of them, each as large as a segment is; the
/// events of others are not counted for it. What was counted is remembered, so the next question goes on.
const DAMAGED_MAX: usize = 4;

impl Contents {
    pub(crate) fn counts(&self, id: ChainId, days: Days) -> Result<Counts, StoreError> {
        self.check_all_readable()?;
        let mut counts = Counts::default();
        let Some(chain) = self.chains.get(id) else { return Ok(counts) };
        self.catch_up();
        let mut of_segments: BTreeMap<u64, Stretches> = BTreeMap::new();
        {
            let progress = lock(&self.counting.progress);
            let snapshot = chain.snapshot();
            for run in snapshot.runs().filter(|run| run.end_seq() > run.first_seq()) {
                let (first, last) = run.log_ids();
                if first.timestamp_ms() < days.end_ms() && last.timestamp_ms() >= days.start_ms() {
                    of_segments.entry(run.segment()).or_default().push((run.first_seq(), run.end_seq()));
                }
            }
            // The segment that is followed has no counts anywhere else, and while the lock is held nothing is
            // added to them.
            let is_open = self.end_of(progress.segment).is_none();
            let followed = of_segments.split_off(&progress.segment);
            for (segment, stretches) in followed {
                if segment != progress.segment || is_open {
                    let counted = progress.counts.get(&id).filter(|_| segment == progress.segment);
                    counts.uncounted +=
                        length(&stretches).saturating_sub(counted.map_or(0, |counted| counted.events));
                    counted.into_iter().for_each(|counted| add(&mut counts, counted, days));
                } else {
                    of_segments.insert(segment, stretches);
                }
            }
        }
        counts.uncounted += leave_newest(&mut of_segments, SEGMENTS_MAX);
        let mut damaged_left = DAMAGED_MAX;
        for (segment, stretches) in of_segments {
            let counted = self.counts_in(segment, id, &stretches, &mut damaged_left);
            // Where records are damaged fewer are counted than there are.
            counts.uncounted +=
                length(&stretches).saturating_sub(counted.as_ref().map_or(0, |counted| counted.events));
            counted.into_iter().for_each(|counted| add(&mut counts, &counted, days));
        }
        Ok(counts)
    }

    /// The counts of a chain in a full segment; nothing where there are none yet, or no more damaged ones may
    /// be read.
    fn counts_in(
        &self,
        segment: u64,
        chain: ChainId,
        stretches: &Stretches,
        damaged_left: &mut usize,
    ) -> Option<Arc<ChainCounts>> {
        let (place, special) = {
            let progress = lock(&self.counting.progress);
            let followed = (segment == progress.segment).then(|| progress.counts.get(&chain).cloned());
            if let Some(counted) = followed.flatten().filter(|counted| counted.events == length(stretches)) {
                return Some(Arc::new(counted));
            }
            (progress.places.get(&segment).cloned(), progress.special.get(&(segment, chain)).cloned())
        };
        if let Some((of, counted)) = special.filter(|(of, _)| of == stretches) {
            drop(of);
            return Some(counted);
        }
        let counted = match place {
            Some(Place::Unreadable | Place::Damaged) => return None,
            Some(Place::Unwritten(counts) | Place::Kept(counts)) => counts.get(&chain).cloned(),
            Some(Place::File) | None => {
                let end = self.end_of(segment)?;
                match file::read(&*self.files.file(counts_path(&self.dir, segment)), &end, chain) {
                    Ok(counted) => counted,
                    Err(error) => {
                        if place.is_some() {
                            tracing::warn!(%error, segment, "cannot read counts; counting again");
                            lock(&self.counting.progress).damaged(segment);
                        }
                        return None;
                    }
                }
            }
        };
        if let Some(counted) = counted.filter(|counted| counted.events == length(stretches)) {
            return Some(Arc::new(counted));
        }
        // The segment is damaged, or has events twice that are the chain's only once.
        *damaged_left = damaged_left.checked_sub(1)?;
        let counted = Arc::new(self.count_stretches(segment, chain, stretches).ok()?);
        let mut progress = lock(&self.counting.progress);
        make_room(&mut progress.special, chain, SPECIAL_MAX);
        progress.special.insert((segment, chain), (stretches.clone(), Arc::clone(&counted)));
        Some(counted)
    }
}

/// For one more. What is known of other chains gives way first, and then the oldest segment.
fn make_room<T>(special: &mut HashMap<(u64, ChainId), T>, asked: ChainId, max: usize) {
    while special.len() >= max {
        let of_others = special.keys().filter(|(_, chain)| *chain != asked).min();
        let Some(victim) = of_others.or_else(|| special.keys().min()).copied() else { return };
        special.remove(&victim);
    }
}

/// Leaves so many of the segments; how many events the others have.
fn leave_newest(of_segments: &mut BTreeMap<u64, Stretches>, segments_max: usize) -> u64 {
    let mut left_out = 0;
    while of_segments.len() > segments_max {
        left_out += of_segments.pop_first().map_or(0, |(_, stretches)| length(&stretches));
    }
    left_out
}

fn length(stretches: &Stretches) -> u64 {
    stretches.iter().map(|(first, end)| end - first).sum()
}

fn add(counts: &mut Counts, counted: &ChainCounts, days: Days) {
    for (day, of_day) in counted.days.range(days.range()) {
        counts.days.entry(*day).or_default().merge(of_day);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};

    #[test]
    fn what_is_remembered_of_the_chain_that_is_asked_about_gives_way_last_and_oldest_first() {
        let chain = |n: u8| {
            let id = Uuid::from_random([n; 16]);
            ChainId { tenant_id: TenantId(id), project_id: ProjectId(id), mode: Mode::Live }
        };
        let mut special: HashMap<(u64, ChainId), ()> = HashMap::new();
        // As many damaged segments as a question reads: each is counted once, and none is forgotten for the
        // next.
        for segment in 1..=SEGMENTS_MAX as u64 {
            make_room(&mut special, chain(1), SPECIAL_MAX);
            special.insert((segment, chain(1)), ());
        }
        assert_eq!(special.len(), SEGMENTS_MAX);
        make_room(&mut special, chain(1), SPECIAL_MAX);
        assert!(special.len() == SPECIAL_MAX - 1 && !special.contains_key(&(1, chain(1))));
        special.insert((9, chain(2)), ());
        make_room(&mut special, chain(1), SPECIAL_MAX);
        assert!(!special.contains_key(&(9, chain(2))) && special.contains_key(&(2, chain(1))));
    }

    #[test]
    fn a_question_reads_of_so_many_segments_and_says_what_the_older_ones_have() {
        let segments =
            |count: usize| (0..count as u64).map(|n| (n, vec![(n * 10 + 1, n * 10 + 11)])).collect();
        let mut all: BTreeMap<u64, Stretches> = segments(SEGMENTS_MAX);
        assert_eq!((leave_newest(&mut all, SEGMENTS_MAX), all.len()), (0, SEGMENTS_MAX));
        let mut all: BTreeMap<u64, Stretches> = segments(SEGMENTS_MAX + 3);
        assert_eq!((leave_newest(&mut all, SEGMENTS_MAX), all.len()), (30, SEGMENTS_MAX));
        assert_eq!(all.first_key_value().map(|(segment, _)| *segment), Some(3));
    }
}
