//! What an old log has behind the end of a backup, for `sealog restore --recover-tail`.
//!
//! A log only grows. So the frames behind the end of a backup follow on from its heads, and every event in
//! them is verified against those heads. Frames are taken as they are, with the idempotency keys in them, and
//! up to the first fault: what stands behind a fault may follow on from something that cannot be read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sealog_cli::exit::Failure;
use sealog_cli::files::{create_file, make_dir};
use sealog_control::copy_of_directory;
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_store::embedded::backup::{
    Header, SegmentContents, Walk, Wanted, read_dropped, segment_file_name,
};
use sha2::{Digest, Sha256};

use super::check::Checked;
use super::head_text;
use super::manifest::{CONTROL, LogText, Manifest, SegmentText};
use super::old_data::{header, segments, without_server};
use super::place::Place;
use super::progress::Progress;
use super::restore_target::changed;

/// Where the old control data is copied to, so that nothing is written beside it.
pub(super) const OLD_CONTROL: &str = "old-control.tmp";

/// What the old logs add to a backup.
#[derive(Debug)]
pub(super) struct Tail {
    data_dir: PathBuf,
    logs: BTreeMap<Mode, LogTail>,
    /// Where every chain ends with it.
    pub heads: BTreeMap<ChainId, Head>,
    /// Of the events that were looked for.
    pub found: BTreeMap<Ulid, (ChainId, Head)>,
    pub events: u64,
    /// Why it ends before the old log does, in words for the operator.
    pub ended: Vec<String>,
    /// No server writes there meanwhile.
    _alone: File,
}

#[derive(Debug, Default)]
struct LogTail {
    /// Segments up to this one were dropped for their age since the backup was made.
    dropped_through: u64,
    /// The segment in which the backup ends, and the old log goes on.
    goes_on_in: u64,
    /// Where the backup's last segment ends, if a start has moved its last group to the next one.
    cut: Option<(u64, u64)>,
    pieces: Vec<Piece>,
    commit: u64,
}

/// Bytes of an old segment.
#[derive(Clone, Debug)]
struct Piece {
    number: u64,
    from: u64,
    to: u64,
    sha256: [u8; 32],
}

impl Piece {
    fn from(&self) -> usize {
        usize::try_from(self.from).unwrap_or(usize::MAX)
    }
}

/// Where the tail of a log begins.
struct Begin {
    number: u64,
    /// What the backup has of this segment.
    content: Vec<u8>,
    heads: BTreeMap<ChainId, Head>,
}

impl Tail {
    pub(super) fn read(
        data_dir: &Path,
        place: &Place,
        manifest: &Manifest,
        checked: &Checked,
        wanted: &Wanted,
        progress: &Progress,
    ) -> Result<Tail, Failure> {
        let mut tail = Tail {
            data_dir: data_dir.to_owned(),
            logs: BTreeMap::new(),
            heads: manifest.heads()?,
            found: checked.found.clone(),
            events: 0,
            ended: Vec::new(),
            _alone: without_server(data_dir)?,
        };
        for log in &manifest.logs {
            let mode = head_text::mode(&log.mode).ok_or_else(|| format!("a log of mode {}", log.mode))?;
            if let Some(begin) = tail.begin(place, mode, log, &checked.dropped)? {
                tail.walk(mode, begin, wanted, progress);
            }
            tail.keep_no_less(mode, &manifest.heads()?);
        }
        Ok(tail)
    }

    fn dir(&self, mode: Mode) -> PathBuf {
        self.data_dir.join(mode.as_str())
    }

    /// Nothing where the old log is not what the backup was made of, or has nothing behind it.
    fn begin(
        &mut self,
        place: &Place,
        mode: Mode,
        log: &LogText,
        dropped: &BTreeMap<ChainId, Head>,
    ) -> Result<Option<Begin>, String> {
        let dir = self.dir(mode);
        let mut heads: BTreeMap<ChainId, Head> =
            self.heads.iter().filter(|(chain, _)| chain.mode == mode).map(|(c, h)| (*c, *h)).collect();
        let (dropped_through, anchors) = match fs::read(dir.join("dropped")) {
            Ok(bytes) if mode == Mode::Test => read_dropped(&bytes).unwrap_or_default(),
            _ => Default::default(),
        };
        let of_log = self.logs.entry(mode).or_insert(LogTail { commit: log.commit, ..LogTail::default() });
        // A start takes the place of a segment that nothing was ever written to.
        let is_used = |segment: &&SegmentText| segment.bytes > Header::LEN as u64;
        let last = log.segments.iter().rfind(is_used).filter(|last| last.number > dropped_through);
        of_log.goes_on_in = last.map_or(dropped_through + 1, |last| last.number);
        if dropped_through > log.dropped_through {
            of_log.dropped_through = dropped_through;
            for (chain, anchor) in &anchors {
                let head = heads.entry(*chain).or_insert(*anchor);
                if head.chain_seq < anchor.chain_seq {
                    *head = *anchor;
                }
            }
        }
        let Some(last) = last else {
            return Ok(Some(Begin { number: dropped_through + 1, content: Vec::new(), heads }));
        };
        let salt = |header: Header| hex::encode(header.salt) == last.salt;
        if header(&dir, last.number).is_some_and(|header| !salt(header)) {
            self.ended.push(format!(
                "the log in {} is not the source of the backup: its segment {} differs",
                dir.display(),
                last.number
            ));
            return Ok(None);
        }
        let mut content = place.read_segment(&log.mode, last).map_err(|error| error.to_string())?;
        let end = header(&dir, last.number + 1).and_then(|next| next.before);
        if let Some((number, end)) = end
            && number == last.number
            && end < last.bytes
        {
            // A server that was killed writes its last group again, into the next segment.
            of_log.cut = Some((number, end));
            content.truncate(usize::try_from(end).unwrap_or(usize::MAX));
            let before = log.segments.iter().filter(|segment| segment.number < number);
            let dropped = dropped.iter().filter(|(chain, _)| chain.mode == mode).map(|(c, h)| (*c, *h));
            let mut walk = Walk::behind(dropped);
            place.walk_over(&mut walk, &log.mode, before)?;
            walk.add(SegmentContents::read(&content, false, &Wanted::default()).ok_or("no segment")?);
            heads = walk.heads();
        }
        Ok(Some(Begin { number: last.number, content, heads }))
    }

    /// Takes segment after segment, up to the end of the old log or the first fault in it.
    fn walk(&mut self, mode: Mode, begin: Begin, wanted: &Wanted, progress: &Progress) {
        let dir = self.dir(mode);
        let Begin { mut number, mut content, mut heads } = begin;
        let ahead = segments(&dir).unwrap_or_default().into_iter().filter(|of| *of >= number);
        let bytes = |of| dir.join(segment_file_name(of)).metadata().map_or(0, |file| file.len());
        progress.begin(ahead.map(bytes).sum());
        loop {
            let path = dir.join(segment_file_name(number));
            let from = content.len();
            match fs::read(&path) {
                Ok(bytes) => {
                    // What follows is verified, so that frames behind a damaged place may be taken over all
                    // the same.
                    if !bytes.starts_with(&content) {
                        let before = "the old log is damaged there, or diverges";
                        self.ended.push(format!(
                            "{}: its first {from} bytes differ from the backup; {before}",
                            path.display()
                        ));
                    }
                    content.extend_from_slice(bytes.get(from..).unwrap_or_default());
                    progress.add(bytes.len() as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => {
                    self.ended.push(format!("{}: {error}", path.display()));
                    break;
                }
            }
            let next = header(&dir, number + 1);
            if let Some((of, end)) = next.and_then(|next| next.before)
                && of == number
            {
                content.truncate(usize::try_from(end).unwrap_or(usize::MAX));
            }
            let is_last = next.is_none() && !dir.join(segment_file_name(number + 1)).exists();
            let taken = take(&mut content, from, (number, mode), is_last, &heads, wanted);
            let Taken { events, found, commit, heads: reached, fault } = match taken {
                Ok(taken) => taken,
                Err(fault) => {
                    self.ended.push(format!("{}: {fault}", path.display()));
                    break;
                }
            };
            self.events += events;
            self.found.extend(found.iter().map(|(chain, head)| (head.log_id, (*chain, *head))));
            let of_log = self.logs.entry(mode).or_default();
            of_log.commit = of_log.commit.max(commit);
            heads = reached;
            let (to, piece) = (content.len() as u64, content.get(from..).unwrap_or_default());
            let sha256 = Sha256::digest(piece).into();
            of_log.pieces.push(Piece { number, from: from as u64, to, sha256 });
            if let Some(fault) = fault {
                self.ended.push(format!("{}: {fault}", path.display()));
                break;
            }
            (number, content) = (number + 1, Vec::new());
        }
        self.heads.extend(heads);
    }

    /// What was cut off the backup for a group that the old log has again, and was not found there after all,
    /// must not be lost: then the log ends with the backup.
    fn keep_no_less(&mut self, mode: Mode, backed_up: &BTreeMap<ChainId, Head>) {
        let of_log = |(chain, _): &(&ChainId, &Head)| chain.mode == mode;
        let is_behind = |(chain, head): (&ChainId, &Head)| {
            self.heads.get(chain).is_none_or(|reached| reached.chain_seq < head.chain_seq)
        };
        let has_pieces = self.logs.get(&mode).is_some_and(|log| !log.pieces.is_empty());
        if has_pieces && !backed_up.iter().filter(of_log).any(is_behind) {
            return;
        }
        self.logs.remove(&mode);
        self.heads.retain(|chain, _| chain.mode != mode);
        self.heads.extend(backed_up.iter().filter(of_log));
    }

    /// Whether a segment of the backup is to be restored, and how much of it.
    pub(super) fn bytes_of(&self, mode: &str, number: u64, bytes: u64) -> Option<u64> {
        let Some(log) = head_text::mode(mode).and_then(|mode| self.logs.get(&mode)) else {
            return Some(bytes);
        };
        let is_replaced = log.pieces.iter().any(|piece| piece.number == number && piece.from == 0);
        let is_behind = !log.pieces.is_empty() && number > log.goes_on_in;
        if number <= log.dropped_through || is_replaced || is_behind {
            return None;
        }
        Some(log.cut.filter(|(of, _)| *of == number).map_or(bytes, |(_, end)| end))
    }

    /// What it adds to the backup.
    pub(super) fn bytes(&self) -> u64 {
        self.logs.values().flat_map(|log| &log.pieces).map(|piece| piece.to - piece.from).sum()
    }

    /// Where a log ends with it: commit, segment and offset. Nothing where it adds nothing.
    pub(super) fn end(&self, mode: Mode) -> Option<(u64, u64, u64)> {
        let log = self.logs.get(&mode)?;
        let last = log.pieces.last()?;
        Some((log.commit, last.number, last.to))
    }

    /// What was dropped for its age since the backup was made, as the file says it.
    pub(super) fn dropped(&self, mode: Mode) -> Option<Vec<u8>> {
        let log = self.logs.get(&mode).filter(|log| log.dropped_through > 0)?;
        log.pieces.first()?;
        fs::read(self.dir(mode).join("dropped")).ok()
    }

    /// Writes it behind what was restored of a log.
    pub(super) fn write(&self, mode: Mode, to: &Path) -> Result<(), Failure> {
        for piece in self.logs.get(&mode).into_iter().flat_map(|log| &log.pieces) {
            let target = to.join(segment_file_name(piece.number));
            let bytes = self.read_piece(mode, piece)?;
            let written = || {
                let mut file = match piece.from {
                    0 => create_file(&target)?,
                    _ => OpenOptions::new().append(true).open(&target)?,
                };
                file.write_all(bytes.get(piece.from()..).unwrap_or_default())?;
                file.sync_all()
            };
            written().map_err(|error: io::Error| Failure::of_path(&target, &error))?;
        }
        Ok(())
    }

    /// The first segment of a log in which one of its events can stand.
    pub(super) fn goes_on_in(&self, mode: Mode) -> u64 {
        self.logs.get(&mode).map_or(u64::MAX, |log| log.goes_on_in)
    }

    /// Hands over its events, in the order of the log: those that were verified, and no others.
    pub(super) fn for_each_event(
        &self,
        mut each: impl FnMut(ChainId, StoredEvent) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut count = 0;
        for (mode, log) in &self.logs {
            for piece in &log.pieces {
                let events = SegmentContents::events(&self.read_piece(*mode, piece)?, piece.from);
                count += events.len() as u64;
                events.into_iter().try_for_each(|(chain, event)| each(chain, event))?;
            }
        }
        match count == self.events {
            true => Ok(()),
            false => Err(changed(&self.data_dir.display())),
        }
    }

    /// A segment up to the end of a piece of it, which was verified and may have been changed since.
    fn read_piece(&self, mode: Mode, piece: &Piece) -> Result<Vec<u8>, Failure> {
        let path = self.dir(mode).join(segment_file_name(piece.number));
        let mut bytes = fs::read(&path).map_err(|error| Failure::of_path(&path, &error))?;
        bytes.truncate(usize::try_from(piece.to).unwrap_or(usize::MAX));
        match bytes.get(piece.from()..) {
            Some(found) if Sha256::digest(found)[..] == piece.sha256 => Ok(bytes),
            _ => Err(changed(&path.display())),
        }
    }

    /// Copies the old control data to a file in the target: what was committed, its journal included. Nothing
    /// in the old directory changes, which may be read-only.
    pub(super) fn copy_control(&self, target: &Path, to: &Path) -> Result<(), String> {
        let spool = target.join(OLD_CONTROL);
        let copied = || {
            make_dir(&spool)?;
            for name in [CONTROL.to_owned(), format!("{CONTROL}-wal")] {
                match fs::read(self.data_dir.join(&name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && name != CONTROL => {}
                    read => create_file(&spool.join(&name))?.write_all(&read?)?,
                }
            }
            Ok(())
        };
        copied().map_err(|error: io::Error| error.to_string())?;
        copy_of_directory(&spool, to).map(drop).map_err(|error| error.to_string())
    }
}

/// What a segment adds, and the fault that ends it.
struct Taken {
    events: u64,
    found: Vec<(ChainId, Head)>,
    commit: u64,
    /// Where every chain ends with it.
    heads: BTreeMap<ChainId, Head>,
    fault: Option<String>,
}

/// Verifies the frames of a segment behind `from`, and cuts its content where they end.
fn take(
    content: &mut Vec<u8>,
    from: usize,
    of: (u64, Mode),
    is_last: bool,
    heads: &BTreeMap<ChainId, Head>,
    wanted: &Wanted,
) -> Result<Taken, String> {
    let read = |content: &[u8]| {
        let from = from.max(Header::LEN) as u64;
        SegmentContents::read_from(content, from, true, wanted)
            .filter(|contents| (contents.header.number, contents.header.mode) == of)
            .ok_or("its header is damaged")
    };
    let (mut contents, mut fault) = (read(content)?, None);
    if let Some((begin, _)) = contents.damage.first().copied() {
        // A write that was torn at the end of the log was never acknowledged.
        let runs = contents.damage.windows(2).all(|pair| pair[0].1 == pair[1].0);
        let is_torn = is_last && runs && contents.damage.last().is_some_and(|(_, to)| *to == contents.end);
        if !is_torn {
            fault = Some(format!("it is damaged from byte {begin}"));
        }
        content.truncate(usize::try_from(begin).unwrap_or(usize::MAX));
        contents = read(content)?;
    }
    content.truncate(usize::try_from(contents.end).unwrap_or(usize::MAX));
    let (events, found, commit) = (contents.events, std::mem::take(&mut contents.found), contents.commit);
    let mut walk = Walk::behind(heads.iter().map(|(chain, head)| (*chain, *head)));
    walk.add(contents);
    let heads = walk.heads();
    for (chain, ended) in walk.finish() {
        if let Some(broken) = ended.broken {
            return Err(format!("chain {chain} at event {}: {}", broken.at, broken.reason.explain()));
        }
    }
    Ok(Taken { events, found, commit, heads, fault })
}
