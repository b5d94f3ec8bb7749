//! The copy that `sealog replicate` keeps: a directory of backups with one backup, which grows.
//!
//! ```text
//! t0  the server tells a moment
//! t1  new bytes of segments are read, and every event in them is verified against the head that the copy has
//!     of its chain
//! t2  they are written behind what the manifest names, and synced
//! t3  the next manifest is there; the one before is removed
//! ```
//! A kill before t3 leaves the copy as it was at t0, with bytes behind its end that are written over.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use indicatif::ProgressBar;
use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_store::embedded::backup::{Header, SegmentContents, Walk, Wanted};
use sealog_store::world::{SystemWorld, World};
use sha2::{Digest, Sha256};

use super::head_text;
use super::manifest::{
    CONTROL, FileText, INDEX_SALT, LogText, Manifest, STORE_LOG, SegmentText, dropped_name,
};
use super::moment::{LogMoment, SegmentMoment};
use super::pieces::keep_file;
use super::place::{Place, segment_name};
use super::remote::{CopyText, Remote, RemoteMoment};
use super::signed_log::{self, Compared};
use super::stopped::Stopped;

/// What a look has brought.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub copied_bytes: u64,
    pub events: u64,
}

#[derive(Debug)]
pub(super) struct Replica {
    place: Place,
    manifest: Option<Manifest>,
    /// The last segment of each log, as far as it is there.
    open: BTreeMap<String, Open>,
}

/// A segment that may grow.
#[derive(Debug, Default)]
struct Open {
    content: Vec<u8>,
    hasher: Sha256,
    /// Where every chain of the log stood when it began, if that is known.
    before: Option<BTreeMap<ChainId, Head>>,
}

/// A log as it will be in the next manifest.
struct Grown {
    text: LogText,
    heads: BTreeMap<ChainId, Head>,
    open: Open,
}

impl Replica {
    /// Goes on from what the newest manifest says.
    pub(super) fn open(place: Place) -> Result<Replica, Stopped> {
        let manifest = place.list().map_err(Stopped::Refused)?.into_iter().next_back();
        let manifest = match manifest {
            None => None,
            Some(found) => Some(found.manifest.map_err(|problem| {
                Stopped::Refused(format!("{}: {problem}. Use a new directory", found.id))
            })?),
        };
        let open = Replica::load(&place, manifest.as_ref())?;
        Ok(Replica { place, manifest, open })
    }

    /// The last segment of each log, as the manifest says.
    fn load(place: &Place, manifest: Option<&Manifest>) -> Result<BTreeMap<String, Open>, Stopped> {
        let mut open = BTreeMap::new();
        for log in manifest.iter().flat_map(|manifest| &manifest.logs) {
            let Some(last) = log.segments.last() else { continue };
            let name = segment_name(&log.mode, last.number, &last.salt);
            let damaged = |why: String| {
                Stopped::Refused(format!(
                    "{name}: {why}. The copy is damaged: `sealog backup verify` shows where; use a new directory"
                ))
            };
            let content = place.read_segment(&log.mode, last).map_err(|error| damaged(error.to_string()))?;
            let hasher = Sha256::new_with_prefix(&content);
            if hex::encode(hasher.clone().finalize()) != last.sha256 {
                return Err(damaged("checksum mismatch".into()));
            }
            open.insert(log.mode.clone(), Open { content, hasher, before: None });
        }
        Ok(open)
    }

    pub(super) fn id(&self) -> &str {
        self.manifest.as_ref().map_or("-", |manifest| &manifest.id)
    }

    pub(super) fn events(&self) -> u64 {
        self.manifest.as_ref().map_or(0, Manifest::events)
    }

    pub(super) fn chains(&self) -> usize {
        self.manifest.as_ref().map_or(0, |manifest| manifest.heads.len())
    }

    /// Up to which commit it has each log.
    pub(super) fn commits(&self) -> BTreeMap<&str, u64> {
        let logs = self.manifest.iter().flat_map(|manifest| &manifest.logs);
        logs.map(|log| (log.mode.as_str(), log.commit)).collect()
    }

    /// Brings the copy up to what is durable now. After a failure it is what it was.
    pub(super) fn follow(&mut self, remote: &Remote, bar: &ProgressBar) -> Result<Round, Stopped> {
        let open = std::mem::take(&mut self.open);
        let followed = self.try_follow(remote, open, bar);
        if followed.is_err() {
            self.open = Replica::load(&self.place, self.manifest.as_ref())?;
        }
        followed
    }

    fn try_follow(
        &mut self,
        remote: &Remote,
        mut before: BTreeMap<String, Open>,
        bar: &ProgressBar,
    ) -> Result<Round, Stopped> {
        let RemoteMoment { moment, control, log } = remote.moment()?;
        // Before anything is read and written.
        let mut manifest = Manifest::of_moment(self.manifest.as_slice(), &moment, SystemWorld.now_ms())
            .map_err(Stopped::Refused)?;
        let there = moment.logs.iter().flat_map(|log| &log.segments).map(|segment| segment.bytes);
        bar.set_length(there.sum());
        let (mut round, mut heads) = (Round::default(), BTreeMap::new());
        let mut open = BTreeMap::new();
        for log in &moment.logs {
            // Asked before anything goes by it.
            log.dropped_file().map_err(Stopped::Refused)?;
            let grown = self.follow_log(remote, log, before.remove(&log.mode), &mut round, bar)?;
            heads.extend(grown.heads);
            open.insert(log.mode.clone(), grown.open);
            manifest.logs.push(grown.text);
        }
        let known = self.manifest.as_ref().and_then(|manifest| manifest.file(CONTROL));
        let is_same = known.is_some_and(|file| file.sha256 == control.sha256);
        if is_same && let Some(known) = &self.manifest {
            let dropped = moment.logs.iter().map(|log| dropped_name(&log.mode)).collect::<Vec<_>>();
            let kept =
                known.files.iter().filter(|file| file.name != STORE_LOG && !dropped.contains(&file.name));
            manifest.files.extend(kept.cloned());
        } else {
            manifest.files.push(self.put(CONTROL, &remote.control(&control)?)?);
            manifest.files.push(self.put(INDEX_SALT, &remote.salt()?)?);
        }
        manifest.files.extend(self.follow_store_log(remote, log.as_ref())?);
        for log in &moment.logs {
            if let Some(dropped) = log.dropped_file().map_err(Stopped::Refused)? {
                manifest.files.push(self.put(&dropped_name(&log.mode), &dropped)?);
            }
        }
        manifest.heads = head_text::texts(&heads);
        self.open = open;
        self.publish(manifest)?;
        Ok(round)
    }

    /// The store log as the server has copied it, if that goes on from the one that this copy has.
    fn follow_store_log(&self, remote: &Remote, log: Option<&CopyText>) -> Result<Option<FileText>, Stopped> {
        let known = self.manifest.as_ref().and_then(|manifest| manifest.file(STORE_LOG));
        let is_new = |log: &&CopyText| known.is_none_or(|known| known.sha256 != log.sha256);
        let Some(log) = log.filter(is_new) else { return Ok(known.cloned()) };
        let content = remote.log(log)?;
        if let Some(known) = known {
            let before = self.place.read_file(known).map_err(Stopped::Refused)?;
            match signed_log::compare(self.place.path(), &before, &content).map_err(Stopped::Refused)? {
                Compared::Continues => {}
                // It is what the server will need.
                Compared::Lost => return Ok(Some(known.clone())),
                Compared::Other => {
                    return Err(Stopped::Refused(
                        "the signed log of the server is not a continuation of the one in this copy: it was restored, or has lost entries. The copy is unchanged and may have these entries: keep it, and use a new directory".into(),
                    ));
                }
            }
        }
        self.put(STORE_LOG, &content).map(Some)
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<FileText, Stopped> {
        keep_file(name.to_owned(), content, |piece, sha256| self.place.put_piece(piece, sha256))
            .map_err(Stopped::Refused)
    }

    /// What the copy has of a log.
    fn known(&self, mode: &str) -> Option<&LogText> {
        self.manifest.as_ref()?.logs.iter().find(|log| log.mode == mode)
    }

    fn follow_log(
        &self,
        remote: &Remote,
        log: &LogMoment,
        open: Option<Open>,
        round: &mut Round,
        bar: &ProgressBar,
    ) -> Result<Grown, Stopped> {
        let mode = head_text::mode(&log.mode)
            .ok_or_else(|| Stopped::Refused(format!("the server has a log of mode {}", log.mode)))?;
        let of_log = |heads: BTreeMap<ChainId, Head>| {
            heads.into_iter().filter(|(chain, _)| chain.mode == mode).collect()
        };
        let had: BTreeMap<ChainId, Head> = match &self.manifest {
            Some(manifest) => of_log(manifest.heads().map_err(Stopped::Refused)?),
            None => BTreeMap::new(),
        };
        let mut text = LogText::begin(log);
        let full = self.keep_full(log, &mut text)?;
        bar.inc(text.segments.iter().map(|segment| segment.bytes).sum());
        let (mut walk_heads, mut open) = self.begin(log, open, &had)?;
        for segment in log.segments.iter().filter(|segment| full.is_none_or(|number| segment.number > number))
        {
            let name = segment_name(&log.mode, segment.number, &segment.salt);
            let is_last = log.segments.last().is_some_and(|last| last.number == segment.number);
            let from = open.content.len() as u64;
            bar.inc(from);
            if from < segment.bytes {
                let bytes = remote.segment(&log.mode, segment.number, from, segment.bytes, bar)?;
                round.copied_bytes += bytes.len() as u64;
                open.content.extend_from_slice(&bytes);
                open.before.get_or_insert_with(|| walk_heads.clone());
                let mut walk = Walk::behind(walk_heads);
                let contents = SegmentContents::read_from(&open.content, from, true, &Wanted::default());
                let contents = contents.filter(|contents| {
                    contents.header.number == segment.number
                        && hex::encode(contents.header.salt) == segment.salt
                });
                let contents = contents.ok_or_else(|| {
                    Stopped::Broken(format!("{name}: the server's segment has no valid header"))
                })?;
                if let Some((from, to)) = contents.damage.first() {
                    return Err(Stopped::Broken(format!(
                        "{name}: bytes {from} to {to} are damaged on the server; check its log. The copy is unchanged"
                    )));
                }
                walk.add(contents);
                round.events += walk.events;
                walk_heads = sound(walk)?;
                self.write(&log.mode, segment, from, &bytes)?;
                open.hasher.update(&bytes);
            }
            let sha256 = hex::encode(open.hasher.clone().finalize());
            text.segments.push(SegmentText {
                number: segment.number,
                salt: segment.salt.clone(),
                bytes: segment.bytes,
                sha256,
            });
            if !is_last {
                open = Open { before: Some(walk_heads.clone()), ..Open::default() };
            }
        }
        not_behind(&had, &walk_heads, log)?;
        Ok(Grown { text, heads: walk_heads, open })
    }

    /// Takes over the segments that the copy has whole, and that the server has as well. The number of the
    /// last one.
    fn keep_full(&self, log: &LogMoment, text: &mut LogText) -> Result<Option<u64>, Stopped> {
        let Some(known) = self.known(&log.mode) else { return Ok(None) };
        let Some((_, full)) = known.segments.split_last() else { return Ok(None) };
        let there: BTreeMap<u64, _> = log.segments.iter().map(|segment| (segment.number, segment)).collect();
        let mut last = None;
        for segment in full.iter().filter(|segment| segment.number > log.dropped_through) {
            let is_same = there
                .get(&segment.number)
                .is_some_and(|found| found.salt == segment.salt && found.bytes == segment.bytes);
            if !is_same {
                return Err(other_store(log, segment.number));
            }
            text.segments.push(segment.clone());
            last = Some(segment.number);
        }
        Ok(last)
    }

    /// Where the walk goes on: the heads, and what is there of the segment that grows.
    fn begin(
        &self,
        log: &LogMoment,
        open: Option<Open>,
        had: &BTreeMap<ChainId, Head>,
    ) -> Result<(BTreeMap<ChainId, Head>, Open), Stopped> {
        let known = self.known(&log.mode).and_then(|known| known.segments.last());
        let known = known.filter(|known| known.number > log.dropped_through);
        let (Some(known), Some(mut open)) = (known, open) else {
            // A new copy, or everything that it had was dropped.
            let mut heads = had.clone();
            let anchors = log.anchors().map_err(Stopped::Refused)?;
            heads.extend(anchors.into_iter().filter(|(chain, anchor)| {
                had.get(chain).is_none_or(|head| head.chain_seq < anchor.chain_seq)
            }));
            return Ok((heads, Open::default()));
        };
        let now =
            log.segments.iter().find(|segment| segment.number == known.number && segment.salt == known.salt);
        let Some(now) = now else {
            // A start takes the place of a segment that nothing was ever written to.
            let is_empty = known.bytes <= Header::LEN as u64;
            return if is_empty {
                Ok((had.clone(), Open::default()))
            } else {
                Err(other_store(log, known.number))
            };
        };
        if now.bytes >= known.bytes {
            return Ok((had.clone(), open));
        }
        // A server that was killed writes its last group again, into the next segment: back to where this one
        // ends now.
        let before = match open.before.take() {
            Some(before) => before,
            None => self.heads_before(log, known.number)?,
        };
        open.content.truncate(usize::try_from(now.bytes).unwrap_or(0));
        let mut walk = Walk::behind(before.clone());
        let contents = SegmentContents::read(&open.content, true, &Wanted::default());
        walk.add(contents.ok_or_else(|| other_store(log, known.number))?);
        let hasher = Sha256::new_with_prefix(&open.content);
        Ok((sound(walk)?, Open { content: open.content, hasher, before: Some(before) }))
    }

    /// Where every chain stood before a segment, by the segments that the copy has.
    fn heads_before(&self, log: &LogMoment, number: u64) -> Result<BTreeMap<ChainId, Head>, Stopped> {
        let mut walk = Walk::behind(log.anchors().map_err(Stopped::Refused)?);
        let segments = self.known(&log.mode).into_iter().flat_map(|known| &known.segments);
        let segments =
            segments.filter(|segment| segment.number > log.dropped_through && segment.number < number);
        self.place.walk_over(&mut walk, &log.mode, segments).map_err(Stopped::Refused)?;
        Ok(walk.heads())
    }

    /// Behind what the manifest names.
    fn write(&self, mode: &str, segment: &SegmentMoment, from: u64, bytes: &[u8]) -> Result<(), Stopped> {
        let SegmentMoment { number, salt, .. } = segment;
        let written = || {
            let tail = self.place.extend_segment(mode, *number, salt)?;
            tail.write(from, bytes)?;
            tail.finish(from + bytes.len() as u64)
        };
        let name = segment_name(mode, *number, salt);
        written().map_err(|error: io::Error| Stopped::Refused(format!("{name}: {error}")))
    }

    fn publish(&mut self, manifest: Manifest) -> Result<(), Stopped> {
        let is_same = |known: &Manifest| {
            (&known.logs, &known.files, &known.lost) == (&manifest.logs, &manifest.files, &manifest.lost)
        };
        if self.manifest.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.place.put_manifest(&manifest).map_err(Stopped::Refused)?;
        self.manifest = Some(manifest);
        self.sweep();
        Ok(())
    }

    /// Removes what only earlier manifests had, unless somebody reads it: a restore of this copy, or its
    /// verification. What cannot be removed is removed the next time.
    fn sweep(&self) {
        let (Some(manifest), Some(_lock)) = (&self.manifest, self.place.without_readers()) else { return };
        for found in self.place.list().into_iter().flatten().filter(|found| found.id != manifest.id) {
            let _ = fs::remove_file(self.place.manifest_path(&found.id));
        }
        for path in self.place.unnamed([manifest]).into_iter().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

/// The heads of a walk in which nothing is broken.
fn sound(walk: Walk) -> Result<BTreeMap<ChainId, Head>, Stopped> {
    let ended = walk.finish();
    if let Some((chain, broken)) = ended.iter().find_map(|(chain, ended)| Some((chain, ended.broken?))) {
        return Err(Stopped::Broken(format!(
            "chain {chain} is broken at {} on the server: {}. The copy is unchanged and may have the events that the server lost: keep it",
            broken.at,
            broken.reason.explain()
        )));
    }
    Ok(ended.into_iter().map(|(chain, ended)| (chain, ended.head)).collect())
}

fn other_store(log: &LogMoment, number: u64) -> Stopped {
    Stopped::Refused(format!(
        "{} log: segment {number} of the server differs from this copy: its store was restored, or has lost events. The copy is unchanged and may have these events: keep it, and use a new directory",
        log.mode
    ))
}

/// A copy is never made shorter.
fn not_behind(
    had: &BTreeMap<ChainId, Head>,
    now: &BTreeMap<ChainId, Head>,
    log: &LogMoment,
) -> Result<(), Stopped> {
    for (chain, head) in had {
        let found = now.get(chain).copied().unwrap_or(Head::EMPTY);
        let is_other = found.chain_seq == head.chain_seq && found != *head;
        if found.chain_seq < head.chain_seq || is_other {
            return Err(Stopped::Refused(format!(
                "{} log: chain {chain} ends at {} on the server, but at {} in this copy. The copy is unchanged and may have the events that the server lost: keep it, and use a new directory",
                log.mode, found.chain_seq, head.chain_seq
            )));
        }
    }
    Ok(())
}
