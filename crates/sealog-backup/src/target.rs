//! Where a backup goes: a directory, or a stream.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sealog_cli::files::write_new_by;
use sealog_store::cpu::thread_waited;
use sha2::{Digest, Sha256};

use super::manifest::{FORMAT, FileText, Manifest, SegmentText};
use super::moment::SegmentMoment;
use super::pieces::keep_file;
use super::place::{Place, segment_name};
use super::source::{Source, Unread};
use super::stream::TarWriter;

/// Read at once, and written at once.
const PIECE: u64 = 1 << 20;
/// Written before the disk is waited for: all of a segment at once would hold up the server's own writes.
const FLUSHED: usize = 4 << 20;
/// Longest pause after a piece.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After a piece that waited for a core, so many times as long a pause as it took.
const CROWDED_PAUSES: u32 = 9;

/// A segment in its place.
pub(super) struct Kept {
    pub sha256: String,
    /// What was read from the store.
    pub copied_bytes: u64,
    /// All of it; nothing where it was there already and nobody asked.
    pub content: Option<Vec<u8>>,
}

pub(super) trait Target {
    /// Puts a segment in its place. With `look` its content is returned in any case.
    fn segment(
        &mut self,
        source: &dyn Source,
        mode: &str,
        segment: &SegmentMoment,
        look: bool,
    ) -> Result<Kept, Unread>;

    /// Keeps a piece of a file under its digest.
    fn piece(&mut self, content: &[u8], sha256: &str) -> Result<(), String>;

    /// Keeps a file, a large one in pieces.
    fn file(&mut self, name: String, content: &[u8]) -> Result<FileText, String> {
        keep_file(name, content, |piece, sha256| self.piece(piece, sha256))
    }

    fn finish(&mut self, manifest: &Manifest) -> Result<(), String>;
}

/// How fast to go. A store that accepts events comes first: after each piece as long a pause as it took, so
/// that at most half of the disk's time goes into this, and a longer one where the server leaves no core
/// idle, which shows in how long the piece has waited for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub gentle: bool,
}

impl Pace {
    /// How long to rest behind a piece that took so long, waiting for a core included.
    fn pause(self, took: Duration, waited: Duration) -> Duration {
        // Alone on a machine it waits for next to nothing.
        let is_crowded = waited > took / 10;
        match (self.gentle, is_crowded) {
            (false, _) => Duration::ZERO,
            (true, false) => took.min(PAUSE_MAX),
            (true, true) => (took * CROWDED_PAUSES).min(PAUSE_MAX),
        }
    }

    /// Does a piece of work and rests.
    fn piece<T>(self, work: impl FnOnce() -> T) -> T {
        let (begun, waited) = (Instant::now(), thread_waited());
        let done = work();
        std::thread::sleep(self.pause(begun.elapsed(), thread_waited().saturating_sub(waited)));
        done
    }

    /// A new file, piece by piece.
    fn write(self, path: &Path, content: &[u8]) -> io::Result<()> {
        write_new_by(path, content, FLUSHED, |file, piece| {
            self.piece(|| {
                file.write_all(piece)?;
                // So that a piece takes as long as the disk needs for it, and the pause is in proportion.
                if self.gentle { file.sync_data() } else { Ok(()) }
            })
        })
    }

    fn sha256(self, content: &[u8]) -> String {
        let mut digest = Sha256::new();
        for piece in content.chunks(FLUSHED) {
            self.piece(|| digest.update(piece));
        }
        hex::encode(digest.finalize())
    }

    /// Reads a stretch of a segment piece by piece.
    fn read(
        self,
        source: &dyn Source,
        mode: &str,
        number: u64,
        (from, to): (u64, u64),
        mut take: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Unread> {
        let mut at = from;
        while at < to {
            let end = to.min(at + PIECE);
            self.piece(|| {
                let bytes = source.read(mode, number, at, end)?;
                take(at, &bytes).map_err(|error| Unread::Failed(format!("cannot write the backup: {error}")))
            })?;
            at = end;
        }
        Ok(())
    }
}

/// Into a directory, where most of it may be already.
#[derive(Debug)]
pub(super) struct IntoPlace<'a> {
    pub place: &'a Place,
    /// What the manifests there say of segments: mode and what it was.
    pub known: &'a [Manifest],
    pub pace: Pace,
}

impl IntoPlace<'_> {
    fn known(&self, mode: &str, segment: &SegmentMoment) -> impl Iterator<Item = &SegmentText> {
        let logs = self.known.iter().flat_map(|manifest| &manifest.logs);
        let of_mode = logs.filter(move |log| log.mode == mode).flat_map(|log| &log.segments);
        let (number, salt) = (segment.number, segment.salt.clone());
        of_mode.filter(move |known| known.number == number && known.salt == salt)
    }

    /// What the file has of the segment, if that is what a manifest says.
    fn there(&self, mode: &str, longest: Option<&SegmentText>) -> Option<Vec<u8>> {
        let longest = longest?;
        let content = self.place.read_segment(mode, longest).ok()?;
        (hex::encode(Sha256::digest(&content)) == longest.sha256).then_some(content)
    }
}

impl Target for IntoPlace<'_> {
    fn segment(
        &mut self,
        source: &dyn Source,
        mode: &str,
        segment: &SegmentMoment,
        look: bool,
    ) -> Result<Kept, Unread> {
        let path = self.place.segment_path(mode, segment.number, &segment.salt);
        let same = self.known(mode, segment).find(|known| known.bytes == segment.bytes);
        let has_length = || path.metadata().is_ok_and(|file| file.len() >= segment.bytes);
        if let Some(same) = same
            && !look
            && has_length()
        {
            return Ok(Kept { sha256: same.sha256.clone(), copied_bytes: 0, content: None });
        }
        let longest = self.known(mode, segment).max_by_key(|known| known.bytes);
        let failed = |error: io::Error| Unread::Failed(format!("{}: {error}", path.display()));
        let Some(mut content) = self.there(mode, longest) else {
            if let Some(longest) = longest.filter(|longest| longest.bytes > segment.bytes) {
                return Err(Unread::Failed(format!(
                    "{}: the file is damaged: an earlier backup has {} bytes of it, the store has {}; run `sealog backup verify`, and use a new directory",
                    path.display(),
                    longest.bytes,
                    segment.bytes
                )));
            }
            if longest.is_some() {
                eprintln!("sealog: {} was damaged or missing; copying it again", path.display());
            }
            let mut content = Vec::with_capacity(usize::try_from(segment.bytes).unwrap_or(0));
            self.pace.read(source, mode, segment.number, (0, segment.bytes), |_, bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
            self.pace.write(&path, &content).map_err(failed)?;
            let sha256 = self.pace.sha256(&content);
            return Ok(Kept { sha256, copied_bytes: segment.bytes, content: Some(content) });
        };
        let there = content.len() as u64;
        if there < segment.bytes {
            let tail = self.place.extend_segment(mode, segment.number, &segment.salt).map_err(failed)?;
            self.pace.read(source, mode, segment.number, (there, segment.bytes), |at, bytes| {
                content.extend_from_slice(bytes);
                tail.write(at, bytes)
            })?;
            tail.finish(segment.bytes).map_err(failed)?;
        }
        let copied_bytes = segment.bytes.saturating_sub(there);
        content.truncate(usize::try_from(segment.bytes).unwrap_or(usize::MAX));
        Ok(Kept { sha256: self.pace.sha256(&content), copied_bytes, content: Some(content) })
    }

    fn piece(&mut self, content: &[u8], sha256: &str) -> Result<(), String> {
        self.place.put_piece(content, sha256)
    }

    fn finish(&mut self, manifest: &Manifest) -> Result<(), String> {
        self.place.put_manifest(manifest)
    }
}

/// As one stream of tar. Unpacked it is a directory of backups with one backup.
pub(super) struct IntoStream<W: Write> {
    tar: TarWriter<W>,
    pace: Pace,
}

impl<W: Write> IntoStream<W> {
    pub(super) fn begin(out: W, pace: Pace) -> Result<IntoStream<W>, String> {
        let mut tar = TarWriter::new(out);
        tar.file("FORMAT", format!("{FORMAT}\n").as_bytes()).map_err(|error| unwritten(&error))?;
        Ok(IntoStream { tar, pace })
    }
}

fn unwritten(error: &io::Error) -> String {
    format!("cannot write the stream: {error}")
}

impl<W: Write> Target for IntoStream<W> {
    fn segment(
        &mut self,
        source: &dyn Source,
        mode: &str,
        segment: &SegmentMoment,
        _look: bool,
    ) -> Result<Kept, Unread> {
        let mut content = Vec::with_capacity(usize::try_from(segment.bytes).unwrap_or(0));
        self.pace.read(source, mode, segment.number, (0, segment.bytes), |_, bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        let name = segment_name(mode, segment.number, &segment.salt);
        self.tar.file(&name, &content).map_err(|error| Unread::Failed(unwritten(&error)))?;
        let sha256 = self.pace.sha256(&content);
        Ok(Kept { sha256, copied_bytes: segment.bytes, content: Some(content) })
    }

    fn piece(&mut self, content: &[u8], sha256: &str) -> Result<(), String> {
        self.tar.file(&format!("files/{sha256}"), content).map_err(|error| unwritten(&error))
    }

    fn finish(&mut self, manifest: &Manifest) -> Result<(), String> {
        let name = format!("backups/{}.json", manifest.id);
        self.tar.file(&name, &manifest.encode()).map_err(|error| unwritten(&error))?;
        self.tar.finish().map_err(|error| unwritten(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_waited_for_a_core_is_followed_by_a_longer_pause() {
        let (gentle, ms) = (Pace { gentle: true }, Duration::from_millis);
        assert_eq!(gentle.pause(ms(10), ms(0)), ms(10));
        assert_eq!(gentle.pause(ms(10), ms(2)), ms(90));
        assert_eq!(gentle.pause(ms(400), ms(390)), ms(1000));
        assert_eq!(gentle.pause(ms(3000), ms(0)), ms(1000));
        assert_eq!(Pace { gentle: false }.pause(ms(10), ms(8)), ms(0));
    }
}
