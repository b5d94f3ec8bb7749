//! The one path by which a log is opened, after a clean stop as after a crash.
//!
//! t0: a group was written. t1: its sync failed, or the power went. t2: the process starts again and reads
//! the group: the bytes may be in the page cache only, or half there. So at every start the last segment is
//! read whole, what was never acknowledged is cut, and a last group that the high-water mark does not speak
//! for is written again into a new segment that is synced before anything is read or appended. Of old files
//! only zeros are ever cut, at their end.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::id::Mode;

use super::dropped::{self, Dropped};
use super::finding::Finding;
use super::high_water_mark::MarkFile;
use super::segments::find_segments;
use super::state::{Recovery, RecoveryError};
use crate::embedded::contents::{Contents, Parts};
use crate::embedded::index::chain_index::Chains;
use crate::embedded::index::keys::Keys;
use crate::embedded::index::salt::IndexSalt;
use crate::embedded::log::disk::OpenFiles;
use crate::embedded::log::segment::Segment;
use crate::embedded::options::Options;

/// An opened log, ready for its writer.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub contents: Contents,
    /// The segment that will be written to.
    pub active: Arc<Segment>,
    pub mark: MarkFile,
    pub findings: Vec<Finding>,
    /// Segments whose index files can be read but should be made anew, and the ids of those.
    pub stale: Vec<(u64, u64)>,
}

pub(crate) fn recover(
    dir: &Path,
    mode: Mode,
    options: &Options,
    salt: IndexSalt,
) -> Result<Recovered, RecoveryError> {
    let disk = &options.disk;
    if !options.read_only {
        disk.create_dir(dir)?;
        disk.sync_dir(dir.parent().unwrap_or(dir))?;
    }
    let files = OpenFiles::new(Arc::clone(disk), options.open_files_max);
    let (mut mark, marked) = MarkFile::open(Arc::clone(disk), dir, mode)?;
    let marked_segment = marked.as_ref().map_or(0, |marked| marked.extent.segment);
    let known = Dropped::open(&**disk, dir, mode)?;
    let through = known.dropped.through;
    // What was dropped does not count, whether its files are there or not.
    if !options.read_only
        && let Err(error) = dropped::remove_leftovers(&**disk, dir, through)
    {
        tracing::warn!(%error, log = mode.as_str(), "cannot remove files of deleted segments; retrying at the next start");
    }
    let mut found = find_segments(dir, mode, &**disk, &files, marked_segment, through)?;
    if known.is_damaged {
        found.findings.push(Finding::DroppedDamaged);
    }
    if known.is_forged {
        found.findings.push(Finding::DroppedOfLive);
    }
    let mut recovery = Recovery {
        dir,
        mode,
        options,
        salt,
        files,
        unproven_to: marked.as_ref().and_then(|marked| marked.unproven_to),
        marked,
        dropped: known.dropped,
        findings: found.findings,
        chains: Chains::default(),
        keys: Keys::default(),
        usage: HashMap::new(),
        ends: BTreeMap::new(),
        runs: HashMap::new(),
        damaged_segments: Vec::new(),
        stale: Vec::new(),
        unreadable: found.unreadable.iter().map(|number| (*number, 0, u64::MAX)).collect(),
        trimmable: Vec::new(),
        read_error: found.read_error,
    };
    recovery.missing_segments(&found.numbers);
    let mut segments = BTreeMap::new();
    let last_number = found.segments.keys().next_back().copied();
    for (number, this) in &found.segments {
        segments.insert(*number, Arc::clone(&this.segment));
        if Some(*number) != last_number {
            let successor =
                found.segments.range(number + 1..).next().and_then(|(_, next)| next.header.before);
            let end = successor.filter(|before| before.number == *number);
            recovery.sealed_segment(*number, this, end)?;
        }
    }
    let last = last_number.map(|number| (number, &found.segments[&number]));
    let active = recovery.last_segment(last, found.numbers.last().copied().unwrap_or(through))?;
    segments.insert(active.plan.segment, Arc::clone(&active.segment));
    let unreadable_chains =
        recovery.unreadable.iter().any(|(segment, _, to)| !recovery.is_marked(*segment, *to))
            || recovery.marked.as_ref().is_some_and(|marked| marked.damaged);
    recovery.build_chains(active.grows.then_some(active.plan.segment), &segments)?;
    mark.set_unproven(recovery.unproven_to);
    for finding in &recovery.findings {
        match finding {
            Finding::TornTail { .. } => tracing::warn!(log = mode.as_str(), "{finding}"),
            _ => tracing::error!(log = mode.as_str(), "{finding}"),
        }
    }
    let contents = Contents::new(Parts {
        mode,
        dir: dir.to_owned(),
        options: options.clone(),
        salt,
        chains: recovery.chains,
        segments,
        ends: recovery.ends,
        files: recovery.files,
        keys: recovery.keys,
        usage: recovery.usage,
        end: (active.plan, active.commit),
        unknown_unproven: recovery.unproven_to.is_some(),
        unreadable_chains: unreadable_chains && !recovery.unreadable.is_empty(),
        dropped: recovery.dropped,
        damaged_segments: recovery.damaged_segments.iter().copied().collect(),
        unreadable: (!recovery.unreadable.is_empty())
            .then(|| format!("could not read the whole log at start: {}", cause(recovery.read_error))),
    });
    Ok(Recovered {
        contents,
        active: active.segment,
        mark,
        findings: recovery.findings,
        stale: recovery.stale,
    })
}

fn cause(error: Option<io::Error>) -> String {
    error.map_or_else(String::new, |error| error.to_string())
}
