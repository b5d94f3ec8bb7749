//! The high-water mark: what the log is known to have held, so that a log that ends earlier is noticed.
//! `docs/format.md`, section 6.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};

use crate::bytes::Take;
use crate::embedded::log::disk::{self, Disk, DiskFile};
use crate::embedded::log::format::{COMMIT_MAX, SEGMENT_MAX, put_chain, u32_len};

const MAGIC: &[u8; 8] = b"SEALOGMK";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 16;
const RECORD_LEN: usize = 64;
const HEAD_LEN: usize = 88;
/// Below this size the file is never rewritten.
const REWRITE_BYTES_MIN: usize = 1 << 20;
/// Nor before it is this many times as long as its content.
const REWRITE_FACTOR: usize = 8;

/// How far the log is known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    pub commit: u64,
    pub segment: u64,
    /// Where the commit ends in that segment.
    pub offset: u64,
}

/// A place in the log: segment and offset.
pub(crate) type Place = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    pub extent: Extent,
    pub clean: bool,
    /// When the last record was written.
    pub written_at_ms: u64,
    /// Up to here events are damaged or lost that no high-water mark spoke for: a chain whose last event
    /// stands before it cannot be proven to end there. Kept until someone has looked into it.
    pub unproven_to: Option<Place>,
    /// Whether a record in the middle of the file was damaged.
    pub damaged: bool,
    pub heads: BTreeMap<ChainId, Head>,
}

#[derive(Debug)]
pub(crate) struct MarkFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    mode: Mode,
    file: Option<Box<dyn DiskFile>>,
    length: usize,
    marked: Marked,
}

impl MarkFile {
    /// Reads the high-water mark of a log; `None` when there is none that can be read. Every record that is
    /// intact counts, since each only adds to those before.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        mode: Mode,
    ) -> io::Result<(MarkFile, Option<Marked>)> {
        let path = dir.join("mark");
        let bytes = match disk.open(&path) {
            Ok(file) => Some(disk::read_all(&*file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let marked = bytes.as_deref().and_then(|bytes| decode(bytes, mode));
        let file =
            MarkFile { disk, path, mode, file: None, length: 0, marked: marked.clone().unwrap_or_default() };
        Ok((file, marked))
    }

    pub(crate) fn marked(&self) -> &Marked {
        &self.marked
    }

    pub(crate) fn set_unproven(&mut self, place: Option<Place>) {
        self.marked.unproven_to = place;
    }

    /// Records that the log is durable up to `extent`, with the heads that changed. Durable when it returns.
    pub(crate) fn write(
        &mut self,
        extent: Extent,
        clean: bool,
        heads: &BTreeMap<ChainId, Head>,
        now_ms: u64,
    ) -> io::Result<()> {
        self.marked.heads.extend(heads);
        self.marked.extent = extent;
        self.marked.clean = clean;
        let full = HEADER_LEN + RECORD_LEN + self.marked.heads.len() * HEAD_LEN;
        let outgrown = self.length > REWRITE_BYTES_MIN.max(full * REWRITE_FACTOR);
        match &self.file {
            Some(file) if !outgrown => {
                let record = encode_record(extent, clean, self.marked.unproven_to, heads, now_ms);
                let written = file.write_all_at(&record, self.length as u64).and_then(|()| file.sync());
                if let Err(error) = written {
                    // What is on disk now is unknown; the next mark starts from a new file.
                    self.file = None;
                    return Err(error);
                }
                self.length += record.len();
                Ok(())
            }
            _ => self.rewrite(now_ms),
        }
    }

    fn rewrite(&mut self, now_ms: u64) -> io::Result<()> {
        self.file = None;
        let mut content = Vec::new();
        content.extend_from_slice(MAGIC);
        content.extend_from_slice(&VERSION.to_le_bytes());
        content.extend_from_slice(&u32::from(self.mode == Mode::Test).to_le_bytes());
        let Marked { extent, clean, unproven_to, heads, .. } = &self.marked;
        content.extend(encode_record(*extent, *clean, *unproven_to, heads, now_ms));
        disk::replace(&*self.disk, &self.path, &content)?;
        self.length = content.len();
        self.file = Some(self.disk.open(&self.path)?);
        Ok(())
    }
}

fn encode_record(
    extent: Extent,
    clean: bool,
    unproven_to: Option<Place>,
    heads: &BTreeMap<ChainId, Head>,
    now_ms: u64,
) -> Vec<u8> {
    let mut out = vec![0; 8];
    out.extend_from_slice(&extent.commit.to_le_bytes());
    out.extend_from_slice(&extent.segment.to_le_bytes());
    out.extend_from_slice(&extent.offset.to_le_bytes());
    out.extend_from_slice(&now_ms.to_le_bytes());
    out.extend_from_slice(&u32::from(clean).to_le_bytes());
    out.extend_from_slice(&u32_len(heads.len()).to_le_bytes());
    let (segment, offset) = unproven_to.unwrap_or_default();
    out.extend_from_slice(&segment.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    for (chain, head) in heads {
        put_chain(*chain, &mut out);
        out.extend_from_slice(&head.chain_seq.to_le_bytes());
        out.extend_from_slice(&head.log_id.to_bytes());
        out.extend_from_slice(&head.hash.0);
    }
    let (length, checksum) = (u32_len(out.len()), crc32c::crc32c(&out[8..]));
    out[..4].copy_from_slice(&length.to_le_bytes());
    out[4..8].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn decode(bytes: &[u8], mode: Mode) -> Option<Marked> {
    let mut take = Take(bytes);
    if take.bytes(8)? != MAGIC || take.u32()? != VERSION || take.u32()? != u32::from(mode == Mode::Test) {
        return None;
    }
    let mut marked: Option<Marked> = None;
    let mut skipped = false;
    while !take.0.is_empty() {
        let mut ahead = Take(take.0);
        match next_record(&mut ahead) {
            Some(record) => {
                let marked = marked.get_or_insert_with(Marked::default);
                // A bad record at the end is one that was being written; one with a good record behind it is
                // damage. So is one that says what cannot be.
                marked.damaged |= skipped | decode_record(record, mode, marked).is_none();
                take = ahead;
            }
            None => {
                skipped = true;
                take.bytes(1)?;
            }
        }
    }
    marked
}

/// The content of the next record behind its checksum, if that is right.
fn next_record<'a>(take: &mut Take<'a>) -> Option<&'a [u8]> {
    let length = take.u32()? as usize;
    let checksum = take.u32()?;
    let content = take.bytes(length.checked_sub(8).filter(|length| *length >= RECORD_LEN - 8)?)?;
    (crc32c::crc32c(content) == checksum).then_some(content)
}

fn decode_record(content: &[u8], mode: Mode, marked: &mut Marked) -> Option<()> {
    let mut take = Take(content);
    let extent = Extent { commit: take.u64()?, segment: take.u64()?, offset: take.u64()? };
    if extent.commit > COMMIT_MAX || extent.segment > SEGMENT_MAX {
        return None;
    }
    marked.extent = extent;
    marked.written_at_ms = take.u64()?;
    marked.clean = take.u32()? == 1;
    let heads = take.u32()?;
    let unproven_to = (take.u64()?, take.u64()?);
    marked.unproven_to = (unproven_to != (0, 0)).then_some(unproven_to);
    for _ in 0..heads {
        let chain = take.chain(mode)?;
        marked.heads.insert(chain, Head { chain_seq: take.u64()?, log_id: take.ulid()?, hash: take.hash()? });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::log::disk::RealDisk;
    use sealog_core::id::{Hash, ProjectId, TenantId, Ulid, Uuid};

    fn heads(project: u8, chain_seq: u64) -> BTreeMap<ChainId, Head> {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([project; 16])),
            mode: Mode::Live,
        };
        BTreeMap::from([(chain, Head { chain_seq, log_id: Ulid(9), hash: Hash([7; 32]) })])
    }

    fn extent(commit: u64) -> Extent {
        Extent { commit, segment: 2, offset: commit * 100 }
    }

    fn open(dir: &Path) -> (MarkFile, Option<Marked>) {
        MarkFile::open(Arc::new(RealDisk), dir, Mode::Live).unwrap()
    }

    #[test]
    fn each_record_adds_to_those_before_and_a_torn_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (mut mark, none) = open(dir.path());
        assert_eq!(none, None);
        mark.write(extent(1), false, &heads(1, 5), 0).unwrap();
        mark.write(extent(2), false, &heads(2, 6), 0).unwrap();
        mark.write(extent(3), true, &heads(1, 7), 5).unwrap();
        let read = open(dir.path()).1.unwrap();
        assert_eq!((read.extent, read.clean, read.written_at_ms), (extent(3), true, 5));
        assert_eq!(read.heads.values().map(|head| head.chain_seq).collect::<Vec<_>>(), [7, 6]);

        let path = dir.path().join("mark");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let torn = open(dir.path()).1.unwrap();
        assert_eq!((torn.extent, torn.damaged), (extent(2), false));

        let mut damaged = bytes.clone();
        damaged[HEADER_LEN + RECORD_LEN + HEAD_LEN + 20] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let read = open(dir.path()).1.unwrap();
        assert_eq!((read.extent, read.damaged), (extent(3), true));
    }

    #[test]
    fn what_is_unproven_stays_on_record() {
        let dir = tempfile::tempdir().unwrap();
        let (mut mark, _) = open(dir.path());
        mark.set_unproven(Some((3, 77)));
        mark.write(extent(1), false, &heads(1, 5), 0).unwrap();
        mark.write(extent(2), true, &heads(1, 6), 0).unwrap();
        assert_eq!(open(dir.path()).1.unwrap().unproven_to, Some((3, 77)));
    }

    #[test]
    fn a_mark_that_has_outgrown_its_content_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let (mut mark, _) = open(dir.path());
        let path = dir.path().join("mark");
        let mut longest = 0;
        let many: BTreeMap<_, _> = (0..200).flat_map(|project| heads(project, 1)).collect();
        for commit in 1..=100 {
            mark.write(extent(commit), false, &many, 0).unwrap();
            longest = longest.max(mark.length);
        }
        assert!(std::fs::metadata(&path).unwrap().len() < longest as u64);
        assert_eq!(open(dir.path()).1.unwrap().extent, extent(100));
    }
}
