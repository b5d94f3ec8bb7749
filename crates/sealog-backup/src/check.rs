//! Whether a backup is whole: every file has its digest, and every chain is walked from its first event to
//! the head in the manifest, on all cores. Nothing is restored for it.

use std::collections::BTreeMap;

use sealog_core::audit::NotedHead;
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::verify::Broken;
use sealog_store::embedded::backup::{SegmentContents, Walk, Wanted, read_dropped};
use sha2::{Digest, Sha256};

use super::cores::on_all_cores;
use super::manifest::{LogText, Manifest, SegmentText, dropped_name};
use super::place::{Place, segment_name};
use super::progress::Progress;

/// What is in a backup, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub files: u64,
    pub bytes: u64,
    pub events: u64,
    pub chains: usize,
    /// Files that are not what the manifest says, with what is wrong.
    pub changed: Vec<String>,
    /// What the store had lost, or had damaged, when the backup was made.
    pub damaged: Vec<String>,
    pub broken: Vec<BrokenChain>,
    /// Heads that were noted elsewhere, and that no chain has.
    pub missing: Vec<NotedHead>,
    /// Of the events that were looked for, those that are there.
    pub found: BTreeMap<Ulid, (ChainId, Head)>,
    /// The last event of each chain that was dropped.
    pub dropped: BTreeMap<ChainId, Head>,
}

#[derive(Debug)]
pub(super) struct BrokenChain {
    pub chain: ChainId,
    pub chain_seq: u64,
    pub why: String,
}

impl Checked {
    pub(super) fn is_whole(&self) -> bool {
        self.changed.is_empty()
            && self.damaged.is_empty()
            && self.broken.is_empty()
            && self.missing.is_empty()
    }

    /// Compares what was found with heads that were noted elsewhere. Their hashes were looked for.
    pub(super) fn expect(&mut self, heads: &[NotedHead]) {
        let is_found = |noted: &NotedHead| {
            let mut found = self.found.values();
            found.any(|(_, head)| head.chain_seq == noted.chain_seq && head.hash == noted.hash)
        };
        self.missing = heads.iter().copied().filter(|noted| !is_found(noted)).collect();
    }
}

/// `wanted` are events to look for.
pub(super) fn check(
    place: &Place,
    manifest: &Manifest,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<Checked, String> {
    let mut checked = Checked::default();
    progress.begin(manifest.bytes());
    let mut ends = BTreeMap::new();
    for file in &manifest.files {
        checked.files += 1;
        checked.bytes += file.bytes;
        checked.changed.extend(place.read_file(file).err());
        progress.add(file.bytes);
    }
    for mode in Mode::ALL {
        let Some(log) = manifest.log(mode) else { continue };
        let dropped = match manifest.file(&dropped_name(&log.mode)) {
            None => BTreeMap::new(),
            Some(file) => {
                let read = place.read_file(file).ok();
                match read.as_deref().and_then(read_dropped) {
                    Some((_, anchors)) => anchors,
                    None => {
                        checked.changed.push(format!("cannot read {}/dropped", log.mode));
                        BTreeMap::new()
                    }
                }
            }
        };
        ends.extend(check_log(place, log, &dropped, wanted, &mut checked, progress));
        checked.dropped.extend(dropped);
    }
    compare(manifest, &ends, &mut checked)?;
    checked.chains = manifest.heads.len();
    Ok(checked)
}

/// How a chain ended in the files.
type Ends = BTreeMap<ChainId, (Head, Option<Broken>)>;

fn check_log(
    place: &Place,
    log: &LogText,
    dropped: &BTreeMap<ChainId, Head>,
    wanted: &Wanted,
    checked: &mut Checked,
    progress: &Progress,
) -> Ends {
    for number in &log.missing {
        checked
            .damaged
            .push(format!("{} log: segment {number} was missing when the backup was made", log.mode));
    }
    let mut walk = Walk::behind(dropped.iter().map(|(chain, head)| (*chain, *head)));
    let look = |segment: &SegmentText| look_at(place, &log.mode, segment, wanted);
    on_all_cores(&log.segments, look, |segment, looked| {
        checked.files += 1;
        checked.bytes += segment.bytes;
        progress.add(segment.bytes);
        checked.changed.extend(looked.changed);
        checked.damaged.extend(looked.damaged);
        if let Some(contents) = looked.contents {
            checked.found.extend(contents.found.iter().map(|(chain, head)| (head.log_id, (*chain, *head))));
            walk.add(contents);
        }
    });
    checked.events += walk.events;
    walk.finish().into_iter().map(|(chain, ended)| (chain, (ended.head, ended.broken))).collect()
}

struct Looked {
    contents: Option<SegmentContents>,
    changed: Vec<String>,
    damaged: Vec<String>,
}

fn look_at(place: &Place, mode: &str, segment: &SegmentText, wanted: &Wanted) -> Looked {
    let name = segment_name(mode, segment.number, &segment.salt);
    let content = match place.read_segment(mode, segment) {
        Ok(content) => content,
        Err(error) => {
            return Looked { contents: None, changed: vec![format!("{name}: {error}")], damaged: Vec::new() };
        }
    };
    let (mut changed, mut damaged) = (Vec::new(), Vec::new());
    if hex::encode(Sha256::digest(&content)) != segment.sha256 {
        changed.push(format!("{name}: checksum mismatch"));
    }
    let contents = SegmentContents::read(&content, true, wanted).filter(|contents| {
        contents.header.number == segment.number && hex::encode(contents.header.salt) == segment.salt
    });
    match &contents {
        None => changed.push(format!("{name}: its header is damaged")),
        Some(contents) => {
            damaged.extend(
                contents.damage.iter().map(|(from, to)| format!("{name}: bytes {from} to {to} are damaged")),
            );
        }
    }
    Looked { contents, changed, damaged }
}

/// Holds what the files have against what the manifest says.
fn compare(manifest: &Manifest, ends: &Ends, checked: &mut Checked) -> Result<(), String> {
    let (heads, lost) = (manifest.heads()?, manifest.lost()?);
    for (chain, head) in &heads {
        let (end, broken) = ends.get(chain).copied().unwrap_or((Head::EMPTY, None));
        let (chain_seq, why) = match broken {
            Some(broken) => (broken.at, broken.reason.explain().to_owned()),
            None if end == *head => continue,
            None if end.chain_seq < head.chain_seq => (
                end.chain_seq + 1,
                format!("the chain ends at {}, but the manifest has {}", end.chain_seq, head.chain_seq),
            ),
            None => (head.chain_seq, "the event differs from the one in the manifest".to_owned()),
        };
        checked.broken.push(BrokenChain { chain: *chain, chain_seq, why });
    }
    for (chain, (end, _)) in ends.iter().filter(|(chain, _)| !heads.contains_key(chain)) {
        let why = "the manifest does not list the chain".to_owned();
        checked.broken.push(BrokenChain { chain: *chain, chain_seq: end.chain_seq, why });
    }
    for (chain, recorded) in lost {
        let end = heads.get(&chain).copied().unwrap_or(Head::EMPTY);
        if !checked.broken.iter().any(|broken| broken.chain == chain) {
            let why =
                format!("the store had lost events up to {} when the backup was made", recorded.chain_seq);
            checked.broken.push(BrokenChain { chain, chain_seq: end.chain_seq + 1, why });
        }
    }
    Ok(())
}
