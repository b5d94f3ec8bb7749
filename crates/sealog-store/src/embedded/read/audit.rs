//! Verification of whole chains on all cores: segment by segment, each read once from front to back, whatever
//! the number of chains in it.
//!
//! The records of a segment are checked where they lie in the buffer, none is copied. What comes out is one
//! [`Stretch`] for each chain and segment if all is well; where they meet is looked at afterwards, in the
//! order of the chain, by the one verifier. Whatever is not sound is read again on the ordinary path, which
//! knows what to say of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sealog_core::canonical::Preimage;
use sealog_core::id::ChainId;
use sealog_core::verify::{Before, Check, Item, Stretch, Verdict};

use super::window::{RECORD_GUESS, Window};
use crate::embedded::contents::Contents;
use crate::embedded::index::block::BLOCK_EVENTS;
use crate::embedded::index::chain_index::{Run, Snapshot};
use crate::embedded::log::format::{self, RecordSeed};
use crate::error::StoreError;

/// Read at once: as much as stays in the cache of a core until it is checked.
const WINDOW_BYTES_MAX: u64 = 128 << 10;
/// Records further apart than this are not worth reading what lies between them.
const GAP_BYTES_MAX: u32 = 64 << 10;

/// Events between two reports: cores that count together slow each other down.
const PROGRESS_EVENTS: usize = 1024;

/// What was found of a run, in ascending order.
enum Piece {
    Sound(Stretch),
    /// An event that cannot be read or does not fit to the one before it.
    Look(u64),
}

/// Where the records of a segment are, in the order of the log.
struct Place {
    position: u32,
    /// Which of the runs it belongs to.
    run: u32,
    chain_seq: u64,
}

/// A run of one of the chains, by the number of the chain.
type RunOf<'a> = (usize, Run<'a>);

impl Contents {
    /// Verifies chains from their first event to their recorded head; adds to `progress` as events are
    /// checked.
    pub(crate) fn audit(&self, chains: &[ChainId], progress: &AtomicU64) -> Result<Vec<Verdict>, StoreError> {
        for chain in chains {
            // Where the disk did not give the whole log, a chain of which nothing is known may exist.
            self.head(*chain)?;
        }
        self.with_rebuild(|| self.audit_once(chains, progress))
    }

    fn audit_once(&self, chains: &[ChainId], progress: &AtomicU64) -> io::Result<Vec<Verdict>> {
        let snapshots: Vec<_> =
            chains.iter().map(|chain| self.chains.get(*chain).map(|chain| chain.snapshot())).collect();
        for snapshot in snapshots.iter().flatten() {
            snapshot.check_readable(1, u64::MAX)?;
        }
        let mut by_segment: BTreeMap<u64, Vec<RunOf<'_>>> = BTreeMap::new();
        for (number, snapshot) in snapshots.iter().enumerate() {
            for run in snapshot.iter().flat_map(Snapshot::runs) {
                by_segment.entry(run.segment()).or_default().push((number, run));
            }
        }
        let work: Vec<_> = by_segment.into_iter().collect();
        let recorded = |snapshot: &Option<Snapshot>| {
            snapshot.as_ref().map_or(0, |snapshot| snapshot.head.recorded.chain_seq)
        };
        let known: Vec<u64> = snapshots.iter().map(recorded).collect();
        let found: Vec<OnceLock<io::Result<Vec<Vec<Piece>>>>> =
            work.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let worker = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((segment, runs)) = work.get(at) else { return };
                let pieces = self.sweep(*segment, runs, chains, &known, progress);
                let failed = pieces.is_err();
                let _ = found[at].set(pieces);
                if failed {
                    // The others need not go on for nothing.
                    next.store(work.len(), Ordering::Relaxed);
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(worker);
            }
            worker();
        });
        let mut pieces: Vec<Vec<(u64, Vec<Piece>)>> = chains.iter().map(|_| Vec::new()).collect();
        for ((_, runs), found) in work.iter().zip(found) {
            // Where a sweep failed, those that were not begun have nothing; the failure is what counts.
            let Some(found) = found.into_inner() else { continue };
            for ((number, run), of_run) in runs.iter().zip(found?) {
                pieces[*number].push((run.first_seq(), of_run));
            }
        }
        let verdicts = chains.iter().zip(&snapshots).zip(pieces);
        verdicts.map(|((chain, snapshot), pieces)| self.join(*chain, snapshot.as_ref(), pieces)).collect()
    }

    /// Checks the records of some runs of a segment. A stretch ends where an event of its chain is known,
    /// which is then held against it.
    fn sweep(
        &self,
        segment: u64,
        runs: &[RunOf<'_>],
        chains: &[ChainId],
        known: &[u64],
        progress: &AtomicU64,
    ) -> io::Result<Vec<Vec<Piece>>> {
        let places = self.places(runs)?;
        let mut pieces: Vec<Vec<Piece>> = runs.iter().map(|_| Vec::new()).collect();
        let mut open: Vec<Option<Stretch>> = vec![None; runs.len()];
        let segment = self.segment(segment);
        let salt = segment.as_ref().map_or([0; 16], |segment| segment.salt);
        let seeds: Vec<RecordSeed> =
            runs.iter().map(|(chain, _)| RecordSeed::new(&salt, chains[*chain])).collect();
        let (mut window, mut preimage) = (Window::single(), Preimage::default());
        for (at, place) in places.iter().enumerate() {
            let run = place.run as usize;
            let chain = chains[runs[run].0];
            let record = match &segment {
                Some(segment) => {
                    if !window.holds(segment.number, place.position) {
                        window.size = extent(&places[at..]);
                    }
                    let bytes = window.record(segment, place.position)?;
                    bytes.and_then(|bytes| format::borrow_record(bytes, seeds[run], chain, place.chain_seq))
                }
                None => None,
            };
            if (at + 1) % PROGRESS_EVENTS == 0 {
                progress.fetch_add(PROGRESS_EVENTS as u64, Ordering::Relaxed);
            }
            if let (Some(stretch), Some(record)) = (&mut open[run], &record)
                && stretch.last_seq() != known[runs[run].0]
                && stretch.extend(record, &mut preimage)
            {
                continue;
            }
            pieces[run].extend(open[run].take().map(Piece::Sound));
            open[run] = record.as_ref().and_then(|record| Stretch::begin(record, &mut preimage));
            if open[run].is_none() {
                pieces[run].push(Piece::Look(place.chain_seq));
            }
        }
        progress.fetch_add((places.len() % PROGRESS_EVENTS) as u64, Ordering::Relaxed);
        for (pieces, open) in pieces.iter_mut().zip(open) {
            pieces.extend(open.map(Piece::Sound));
        }
        Ok(pieces)
    }

    fn places(&self, runs: &[RunOf<'_>]) -> io::Result<Vec<Place>> {
        let mut places = Vec::new();
        for (number, (_, run)) in (0u32..).zip(runs) {
            let blocks = run.blocks(&self.caches)?;
            for block_number in 0..blocks.count() {
                let block = blocks.block(block_number)?;
                let first_seq = run.first_seq() + (block_number * BLOCK_EVENTS) as u64;
                places.extend((0..block.len()).zip(first_seq..).map(|(place, chain_seq)| Place {
                    position: block.position(place),
                    run: number,
                    chain_seq,
                }));
            }
        }
        if runs.len() > 1 {
            places.sort_unstable_by_key(|place| place.position);
        }
        Ok(places)
    }

    /// Looks at where the pieces of a chain meet, and at what is not sound.
    fn join(
        &self,
        chain: ChainId,
        snapshot: Option<&Snapshot>,
        mut pieces: Vec<(u64, Vec<Piece>)>,
    ) -> io::Result<Verdict> {
        let first_seq = snapshot.map_or(1, |snapshot| snapshot.head.first_seq());
        let Some(snapshot) = snapshot.filter(|snapshot| snapshot.head.end().chain_seq >= first_seq) else {
            return Ok(Verdict { checked: 0, first_seq, last_seq: first_seq - 1, broken: None });
        };
        let (end, dropped) = (snapshot.head.end(), snapshot.head.dropped);
        let before = Before::Event { hash: dropped.hash, log_id: dropped.log_id };
        let mut check = Check::new(first_seq, end.chain_seq, before).knowing(snapshot.head.recorded);
        pieces.sort_by_key(|(first_seq, _)| *first_seq);
        let mut damaged = snapshot.damaged.iter().copied().peekable();
        for (first_seq, of_run) in pieces {
            // As in a range: stretches that are damaged as a whole stand before the run that follows them.
            while let Some((first, last)) = damaged.next_if(|(first, _)| *first < first_seq) {
                for chain_seq in first..=last.min(end.chain_seq) {
                    if !check.wants_more() {
                        break;
                    }
                    check.item(&Item::Damaged { chain_seq });
                }
            }
            for piece in of_run {
                match piece {
                    _ if !check.wants_more() => break,
                    Piece::Sound(stretch) => check.stretch(&stretch),
                    Piece::Look(chain_seq) => check.item(&self.item(chain, snapshot, chain_seq)?),
                }
            }
        }
        Ok(check.finish(&end))
    }

    /// One event by the ordinary path.
    fn item(&self, chain: ChainId, snapshot: &Snapshot, chain_seq: u64) -> io::Result<Item> {
        let mut runs = snapshot.runs();
        let Some(run) = runs.find(|run| (run.first_seq()..run.end_seq()).contains(&chain_seq)) else {
            return Ok(Item::Damaged { chain_seq });
        };
        let at = usize::try_from(chain_seq - run.first_seq()).unwrap_or(usize::MAX);
        let position = run.blocks(&self.caches)?.block(at / BLOCK_EVENTS)?.position(at % BLOCK_EVENTS);
        let event = self.read_record(chain, chain_seq, run.segment(), position, &mut Window::single())?;
        Ok(event.map_or(Item::Damaged { chain_seq }, |event| Item::Event(Box::new(event))))
    }
}

/// How much to read so that it holds as many of these records as lie close together.
fn extent(places: &[Place]) -> usize {
    let first = places[0].position;
    let close = places.windows(2).take_while(|pair| {
        pair[1].position - pair[0].position <= GAP_BYTES_MAX
            && u64::from(pair[1].position - first) < WINDOW_BYTES_MAX
    });
    let last = places[close.count()].position;
    (last - first) as usize + RECORD_GUESS
}
