//! What retention has dropped of a test log: up to which segment, and the last event of each chain that went
//! with it. `docs/format.md`, section 7.
//!
//! The file is the decision. t0: it is written and synced, the segments still stand. t1: they are removed. A
//! crash between the two leaves segments that do not count any more, and the next start removes them. Without
//! the file a segment that is gone is a loss, as in every log; and what it does not name may not be missing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};

use crate::bytes::Take;
use crate::embedded::log::disk::{self, Disk};
use crate::embedded::log::format::{SEGMENT_MAX, put_chain, u32_len};

const MAGIC: &[u8; 8] = b"SEALOGDR";
const VERSION: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// All segments up to this one; 0 for none.
    pub through: u64,
    /// The last event of each chain that was dropped.
    pub anchors: BTreeMap<ChainId, Head>,
}

/// What was found of the file.
#[derive(Debug)]
pub(crate) struct DroppedFound {
    pub dropped: Dropped,
    /// There is one, and it contradicts its checksum.
    pub is_damaged: bool,
    /// There is one in a live log, where none is ever written.
    pub is_forged: bool,
}

impl Dropped {
    /// Of a live log nothing is ever dropped, whatever stands in its directory.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, mode: Mode) -> io::Result<DroppedFound> {
        let none = DroppedFound { dropped: Dropped::default(), is_damaged: false, is_forged: false };
        if mode != Mode::Test {
            return match disk.open_to_read(&path(dir)) {
                Ok(_) => Ok(DroppedFound { is_forged: true, ..none }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(none),
                Err(error) => Err(error),
            };
        }
        let bytes = match disk.open(&path(dir)) {
            Ok(file) => disk::read_all(&*file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(none),
            Err(error) => return Err(error),
        };
        Ok(match decode(&bytes) {
            Some(dropped) => DroppedFound { dropped, ..none },
            None => DroppedFound { is_damaged: true, ..none },
        })
    }

    /// Durable when it returns.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path, now_ms: u64) -> io::Result<()> {
        disk::replace(disk, &path(dir), &self.encode(now_ms))
    }

    pub(crate) fn anchor(&self, chain: ChainId) -> Head {
        self.anchors.get(&chain).copied().unwrap_or(Head::EMPTY)
    }

    pub(crate) fn encode(&self, now_ms: u64) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.through.to_le_bytes());
        out.extend_from_slice(&now_ms.to_le_bytes());
        out.extend_from_slice(&u32_len(self.anchors.len()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for (chain, head) in &self.anchors {
            put_chain(*chain, &mut out);
            out.extend_from_slice(&head.chain_seq.to_le_bytes());
            out.extend_from_slice(&head.log_id.to_bytes());
            out.extend_from_slice(&head.hash.0);
        }
        let checksum = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
        out
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("dropped")
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Dropped> {
    let mut take = Take(bytes);
    if take.bytes(8)? != MAGIC || take.u32()? != VERSION || take.u32()? != crc32c::crc32c(take.0) {
        return None;
    }
    let through = take.u64().filter(|through| *through <= SEGMENT_MAX)?;
    take.u64()?;
    let count = take.u32()?;
    take.u32()?;
    let mut anchors = BTreeMap::new();
    for _ in 0..count {
        let chain = take.chain(Mode::Test)?;
        anchors.insert(chain, Head { chain_seq: take.u64()?, log_id: take.ulid()?, hash: take.hash()? });
    }
    take.0.is_empty().then_some(Dropped { through, anchors })
}

/// Removes the files of segments that were dropped and that a crash has left, or that came back with a power
/// cut. What cannot be removed does not count all the same.
pub(crate) fn remove_leftovers(disk: &dyn Disk, dir: &Path, through: u64) -> io::Result<()> {
    if through == 0 {
        return Ok(());
    }
    let is_left = |name: &&String| number_of(name).is_some_and(|number| number <= through);
    let mut removed = false;
    for name in disk.list(dir)?.iter().filter(is_left) {
        match disk.remove(&dir.join(name)) {
            Ok(()) => removed = true,
            Err(error) => {
                tracing::warn!(%error, name, "cannot remove a file of a deleted segment; retrying at the next start");
            }
        }
    }
    if removed { disk.sync_dir(dir) } else { Ok(()) }
}

/// The segment that a file belongs to.
fn number_of(name: &str) -> Option<u64> {
    let (digits, rest) = name.split_once('.')?;
    let is_number = (8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let known = ["log", "idx", "cnt", "idx.tmp", "cnt.tmp"].contains(&rest);
    (is_number && known).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::log::disk::RealDisk;
    use sealog_core::id::{Hash, ProjectId, TenantId, Ulid, Uuid};

    fn some() -> Dropped {
        let chain = |n| ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([n; 16])),
            mode: Mode::Test,
        };
        let head = |chain_seq| Head { chain_seq, log_id: Ulid(7), hash: Hash([9; 32]) };
        Dropped { through: 4, anchors: BTreeMap::from([(chain(2), head(10)), (chain(3), head(1))]) }
    }

    #[test]
    fn it_reads_back_and_any_changed_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let read = || Dropped::open(&RealDisk, dir.path(), Mode::Test).unwrap();
        assert_eq!(read().dropped, Dropped::default());
        some().write(&RealDisk, dir.path(), 5).unwrap();
        assert_eq!((read().dropped, read().is_damaged), (some(), false));
        let bytes = std::fs::read(path(dir.path())).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(path(dir.path()), &changed).unwrap();
            assert_eq!((read().dropped, read().is_damaged), (Dropped::default(), true), "byte {at}");
        }
    }

    #[test]
    fn a_live_log_has_dropped_nothing_whatever_stands_there() {
        let dir = tempfile::tempdir().unwrap();
        some().write(&RealDisk, dir.path(), 5).unwrap();
        let found = Dropped::open(&RealDisk, dir.path(), Mode::Live).unwrap();
        assert_eq!((found.dropped, found.is_forged), (Dropped::default(), true));
    }

    #[test]
    fn leftovers_are_the_files_of_dropped_segments_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let left = ["00000003.log", "00000004.idx", "00000004.cnt", "00000001.idx.tmp"];
        let kept = ["00000005.log", "00000005.idx", "mark", "dropped", "next.seg", "4.log", "00000004.txt"];
        for name in left.iter().chain(&kept) {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        remove_leftovers(&RealDisk, dir.path(), 4).unwrap();
        assert!(left.iter().all(|name| !dir.path().join(name).exists()));
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
    }
}
