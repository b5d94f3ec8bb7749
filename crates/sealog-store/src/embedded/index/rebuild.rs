//! Index files of segments: written when a segment is full, and built again where one is damaged or missing,
//! or its salt is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use sealog_core::id::ChainId;

use super::build::{self, Indexed};
use super::chain_index::SealedRun;
use super::sidecar::{self, Opened, SegmentEnd, SegmentIndex};
use crate::embedded::contents::Contents;
use crate::embedded::log::{disk, segment};
use crate::sync::lock;

impl Contents {
    /// Moves the index of a full segment from memory to a file.
    pub(crate) fn write_index_of(&self, end: &SegmentEnd) -> io::Result<()> {
        let mut index = SegmentIndex { keys: self.keys.of_segment(end.number), ..SegmentIndex::default() };
        for chain in self.chains.all() {
            let runs = chain.with(|state| {
                state.memory.iter().filter(|run| run.segment == end.number).cloned().collect::<Vec<_>>()
            });
            index.runs.extend(runs.into_iter().map(|run| (chain.id, run)));
        }
        index.count_usage();
        self.install(self.write_index(&index, end)?);
        Ok(())
    }

    fn write_index(&self, index: &SegmentIndex, end: &SegmentEnd) -> io::Result<Opened> {
        build::write_index(&*self.disk, &self.files, &self.dir, index, end, self.mode, &self.salt)
    }

    /// From now on the runs of a segment are read through its index file.
    fn install(&self, opened: Opened) {
        let segment = opened.sidecar.segment();
        let mut by_chain: BTreeMap<ChainId, Vec<SealedRun>> = BTreeMap::new();
        for (id, run) in opened.runs {
            by_chain.entry(id).or_default().push(SealedRun::File(run));
        }
        self.replace_runs(segment, by_chain);
        self.keys.move_to_file(&opened.sidecar, opened.keys_newest_ms, self.world.now_ms());
    }

    /// Puts these runs of a segment in place of those that each chain has of it, in one step for a chain.
    fn replace_runs(&self, segment: u64, by_chain: BTreeMap<ChainId, Vec<SealedRun>>) {
        for (id, runs) in by_chain {
            self.chains.get_or_create(id).with(|state| {
                state.memory.retain(|run| run.segment != segment);
                let mut sealed: Vec<SealedRun> =
                    state.sealed.iter().filter(|old| old.run().segment() != segment).cloned().collect();
                sealed.extend(runs);
                sealed.sort_by_key(|run| run.run().first_seq());
                state.sealed = Arc::new(sealed);
            });
        }
    }

    /// Chains that have no event in a segment have no run of it either: an index file that was forged may
    /// have named them.
    fn forget_runs(&self, segment: u64, own: &BTreeSet<ChainId>) {
        for chain in self.chains.all().iter().filter(|chain| !own.contains(&chain.id)) {
            chain.with(|state| {
                if state.sealed.iter().any(|run| run.run().segment() == segment) {
                    let kept = state.sealed.iter().filter(|run| run.run().segment() != segment);
                    state.sealed = Arc::new(kept.cloned().collect());
                }
            });
        }
    }

    /// Builds the index of a sealed segment again, from the segment, in place of a damaged one with this id.
    /// The index of a damaged segment stays in memory, so that it is found damaged again at the next start;
    /// and so does one that cannot be written, since it must not be missing.
    pub(crate) fn rebuild_index(&self, number: u64, id: u64) -> io::Result<()> {
        let mut built = lock(&self.rebuilding);
        if built.get(&number).is_some_and(|newer| *newer > id) || number <= self.dropped_through() {
            // Another reader was faster, or the file was replaced while this one read it.
            return Ok(());
        }
        let (indexed, end) = self.index_sealed(number)?;
        if indexed.damage.is_empty() {
            match self.write_index(&indexed.index, &end) {
                Ok(opened) => {
                    built.insert(number, opened.sidecar.id());
                    let own: BTreeSet<ChainId> = opened.runs.iter().map(|(chain, _)| *chain).collect();
                    self.install(opened);
                    self.forget_runs(number, &own);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(%error, segment = number, "cannot write an index file; keeping it in memory");
                }
            }
        }
        if !indexed.damage.is_empty() {
            lock(&self.damaged_segments).insert(number);
        }
        for (from, to) in &indexed.damage {
            tracing::error!(log = self.mode.as_str(), segment = number, from, to, "a segment is damaged");
        }
        let mut by_chain: BTreeMap<ChainId, Vec<SealedRun>> = BTreeMap::new();
        for (id, run) in indexed.index.runs {
            by_chain.entry(id).or_default().push(SealedRun::Memory(run));
        }
        self.add_damaged_stretches(number, &by_chain);
        self.replace_runs(number, by_chain);
        self.keys.move_to_memory(number, &indexed.index.keys);
        built.insert(number, sidecar::next_id());
        Ok(())
    }

    /// Writes an index file anew whose salt is lost. Where that fails, or the segment is damaged, or it would
    /// take of the reserve, readers keep using the old one.
    pub(crate) fn renew_index(&self, number: u64, id: u64) -> io::Result<()> {
        let mut built = lock(&self.rebuilding);
        if built.get(&number).is_some_and(|newer| *newer > id) || number <= self.dropped_through() {
            return Ok(());
        }
        // Before a segment is read for nothing.
        self.check_room_for(0)?;
        let (indexed, end) = self.index_sealed(number)?;
        if let Some((from, to)) = indexed.damage.first() {
            return Err(io::Error::other(format!("the segment is damaged from byte {from} to {to}")));
        }
        let bytes = indexed.index.encode(&end, &self.salt);
        self.check_room_for(bytes.len())?;
        let opened =
            build::write_encoded(&*self.disk, &self.files, &self.dir, &bytes, &end, self.mode, &self.salt)?;
        built.insert(number, opened.sidecar.id());
        self.install(opened);
        Ok(())
    }

    /// Reads a sealed segment and makes its index, in memory. Fails if the disk does not give everything:
    /// what it does not give would be missing from the index.
    fn index_sealed(&self, number: u64) -> io::Result<(Indexed, SegmentEnd)> {
        let gone = || io::Error::other("the segment is not there");
        let end = self.end_of(number).ok_or_else(gone)?;
        let segment = self.segment(number).ok_or_else(gone)?;
        let content = disk::read_all(&*segment.file)?;
        let pieces = segment::walk(&content, end.final_len, &segment.salt, self.mode);
        Ok((build::index_pieces(number, &pieces, &self.salt), end))
    }

    /// What a chain had in a segment and is not among these runs cannot be read any more.
    fn add_damaged_stretches(&self, segment: u64, by_chain: &BTreeMap<ChainId, Vec<SealedRun>>) {
        for chain in self.chains.all() {
            let left: Vec<(u64, u64)> = by_chain
                .get(&chain.id)
                .into_iter()
                .flatten()
                .map(|run| (run.run().first_seq(), run.run().end_seq()))
                .collect();
            chain.with(|state| {
                let mut damaged = state.damaged.to_vec();
                for old in state.sealed.iter().map(SealedRun::run).filter(|run| run.segment() == segment) {
                    let mut next = old.first_seq();
                    for (first, end) in left
                        .iter()
                        .copied()
                        .filter(|(first, _)| (old.first_seq()..old.end_seq()).contains(first))
                        .chain([(old.end_seq(), old.end_seq())])
                    {
                        if first > next {
                            damaged.push((next, first - 1));
                        }
                        next = end;
                    }
                }
                damaged.sort_unstable();
                damaged.dedup();
                if left.is_empty() {
                    state.sealed = Arc::new(
                        state.sealed.iter().filter(|run| run.run().segment() != segment).cloned().collect(),
                    );
                }
                state.damaged = Arc::new(damaged);
            });
        }
    }
}
