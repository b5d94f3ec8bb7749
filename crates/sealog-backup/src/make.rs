//! How a backup is made: every segment of a moment goes to its place, then control data and keys, and last
//! the manifest.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_store::embedded::backup::{Header, SegmentContents, Walk, Wanted};

use super::head_text;
use super::manifest::{LogText, Manifest, SegmentText, dropped_name};
use super::moment::{LogMoment, Moment};
use super::progress::Progress;
use super::source::{Source, Unread};
use super::target::{Kept, Target};

/// What a backup came to.
#[derive(Debug)]
pub(super) struct Made {
    pub manifest: Manifest,
    pub copied_segments: u64,
    pub copied_bytes: u64,
    pub shared_segments: u64,
}

/// `known` are the backups that are there already, oldest first: what is known of them is not read again.
pub(super) fn make(
    source: &dyn Source,
    moment: &Moment,
    target: &mut dyn Target,
    known: &[Manifest],
    now_ms: u64,
    progress: &Progress,
) -> Result<Made, Unread> {
    let base = known.iter().rev().find(|manifest| goes_on(manifest, moment));
    let mut made = Made {
        manifest: Manifest::of_moment(known, moment, now_ms).map_err(Unread::Failed)?,
        copied_segments: 0,
        copied_bytes: 0,
        shared_segments: 0,
    };
    progress.begin(moment.logs.iter().flat_map(|log| &log.segments).map(|segment| segment.bytes).sum());
    let mut heads = BTreeMap::new();
    for log in &moment.logs {
        heads.extend(copy_log(source, log, target, base, &mut made, progress)?);
    }
    made.manifest.heads = head_text::texts(&heads);
    let mut files = source.files().map_err(Unread::Failed)?;
    for log in &moment.logs {
        if let Some(dropped) = log.dropped_file().map_err(Unread::Failed)? {
            files.push((dropped_name(&log.mode), dropped));
        }
    }
    for (name, content) in files {
        made.manifest.files.push(target.file(name, &content).map_err(Unread::Failed)?);
    }
    target.finish(&made.manifest).map_err(Unread::Failed)?;
    Ok(made)
}

fn copy_log(
    source: &dyn Source,
    log: &LogMoment,
    target: &mut dyn Target,
    base: Option<&Manifest>,
    made: &mut Made,
    progress: &Progress,
) -> Result<BTreeMap<ChainId, Head>, Unread> {
    let mode = head_text::mode(&log.mode)
        .ok_or_else(|| Unread::Failed(format!("the server has a log of mode {}", log.mode)))?;
    // What an earlier backup has walked over is not walked again. Its last segment may have grown.
    let walked_through = base.and_then(|base| Some(base.log(mode)?.segments.last()?.number)).unwrap_or(0);
    let before = base.map_or_else(|| log.anchors(), Manifest::heads).map_err(Unread::Failed)?;
    let mut walk = Walk::behind(before.into_iter().filter(|(chain, _)| chain.mode == mode));
    let mut text = LogText { missing: missing(log), ..LogText::begin(log) };
    for number in &text.missing {
        made.manifest.faults.push(format!(
            "{} log: segment {number} is missing or has no header; it is not in the backup",
            log.mode
        ));
    }
    for segment in &log.segments {
        let look = segment.number >= walked_through;
        let Kept { sha256, copied_bytes, content } = target.segment(source, &log.mode, segment, look)?;
        if copied_bytes > 0 {
            made.copied_segments += 1;
            made.copied_bytes += copied_bytes;
        } else {
            made.shared_segments += 1;
        }
        if let Some(content) = content.filter(|_| look) {
            match SegmentContents::read(&content, false, &Wanted::default()) {
                Some(contents) => {
                    note_damage(&mut made.manifest, mode, &contents);
                    walk.add(contents);
                }
                None => {
                    let fault =
                        format!("{} log: the header of segment {} is damaged", log.mode, segment.number);
                    made.manifest.faults.push(fault);
                }
            }
        }
        let (number, salt, bytes) = (segment.number, segment.salt.clone(), segment.bytes);
        text.segments.push(SegmentText { number, salt, bytes, sha256 });
        progress.add(segment.bytes);
    }
    // Damage in segments that are shared with the backup before is known from it.
    if let Some(base) = base {
        let faults = base.faults.iter().filter(|fault| fault.starts_with(&format!("{} segment ", log.mode)));
        let new: Vec<String> =
            faults.filter(|fault| !made.manifest.faults.contains(fault)).cloned().collect();
        made.manifest.faults.extend(new);
    }
    made.manifest.logs.push(text);
    Ok(walk.heads())
}

fn note_damage(manifest: &mut Manifest, mode: Mode, contents: &SegmentContents) {
    for (from, to) in &contents.damage {
        let (mode, number) = (mode.as_str(), contents.header.number);
        manifest.faults.push(format!("{mode} segment {number}: bytes {from} to {to} are damaged"));
    }
}

/// Numbers between those that were dropped and the last one that have no segment.
fn missing(log: &LogMoment) -> Vec<u64> {
    let mut expected = log.dropped_through + 1;
    let mut missing = Vec::new();
    for segment in &log.segments {
        missing.extend(expected..segment.number);
        expected = segment.number + 1;
    }
    missing
}

/// Whether a store is what a backup was made of, and events behind that: then its heads are known, but for
/// the events behind.
fn goes_on(manifest: &Manifest, moment: &Moment) -> bool {
    moment.logs.iter().all(|log| {
        let Some(before) = manifest.logs.iter().find(|before| before.mode == log.mode) else { return false };
        let Some((last, full)) = before.segments.split_last() else {
            return before.dropped_through == 0 && log.dropped_through == 0;
        };
        let there = |known: &SegmentText| {
            log.segments.iter().find(|segment| segment.number == known.number && segment.salt == known.salt)
        };
        let is_same = |known: &SegmentText| {
            known.number <= log.dropped_through
                || there(known).is_some_and(|segment| segment.bytes == known.bytes)
        };
        // A start takes the place of a segment that nothing was ever written to.
        let was_empty = last.bytes <= Header::LEN as u64;
        let has_grown = was_empty
            || last.number <= log.dropped_through
            || there(last).is_some_and(|segment| segment.bytes >= last.bytes);
        full.iter().all(is_same)
            && has_grown
            && before.missing
                == missing(log).into_iter().filter(|number| *number <= last.number).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::SegmentMoment;

    fn moment(segments: &[(u64, &str, u64)], dropped_through: u64) -> Moment {
        let segments = segments.iter().map(|(number, salt, bytes)| SegmentMoment {
            number: *number,
            salt: (*salt).to_owned(),
            bytes: *bytes,
        });
        let log = LogMoment {
            mode: "test".into(),
            commit: 1,
            segments: segments.collect(),
            dropped_through,
            dropped: None,
            lost: Vec::new(),
            unproven_to: None,
        };
        Moment { store_id: "s".into(), logs: vec![log] }
    }

    fn manifest(segments: &[(u64, &str, u64)]) -> Manifest {
        let text = |(number, salt, bytes): &(u64, &str, u64)| SegmentText {
            number: *number,
            salt: (*salt).to_owned(),
            bytes: *bytes,
            sha256: String::new(),
        };
        let moment = moment(&[], 0);
        let segments = segments.iter().map(text).collect();
        let mut manifest = Manifest::of_moment(&[], &moment, 0).unwrap();
        manifest.logs.push(LogText { segments, ..LogText::begin(&moment.logs[0]) });
        manifest
    }

    #[test]
    fn heads_are_taken_over_only_from_a_backup_that_the_store_has_grown_from() {
        let before = manifest(&[(1, "a", 500), (2, "b", 300)]);
        for (segments, dropped, is_its_future) in [
            (&[(1, "a", 500), (2, "b", 300)][..], 0, true),
            (&[(1, "a", 500), (2, "b", 400), (3, "c", 128)], 0, true),
            (&[(2, "b", 400), (3, "c", 128)], 1, true),
            (&[(3, "c", 128)], 2, true),
            (&[(1, "a", 500), (2, "b", 300), (3, "c", 128), (4, "d", 900)], 0, true),
            // A start has moved its last group, or it was restored from an earlier backup.
            (&[(1, "a", 500), (2, "b", 200), (3, "c", 128)], 0, false),
            (&[(1, "a", 500), (2, "x", 400)], 0, false),
            (&[(1, "a", 500)], 0, false),
            (&[(2, "b", 400)], 0, false),
        ] {
            assert_eq!(goes_on(&before, &moment(segments, dropped)), is_its_future, "{segments:?}");
        }
    }

    #[test]
    fn segments_that_are_not_there_are_named() {
        assert_eq!(missing(&moment(&[(2, "b", 1), (5, "e", 1)], 0).logs[0]), [1, 3, 4]);
    }
}
