//! Counts of a full segment in a file: `docs/format.md`, section 6.

use std::collections::BTreeMap;
use std::io;

use sealog_core::id::ChainId;

use super::state::{ChainCounts, SegmentCounts};
use crate::bytes::Take;
use crate::counts::DayCounts;
use crate::embedded::index::sidecar::SegmentEnd;
use crate::embedded::log::disk::{DiskFile, read_exact};
use crate::embedded::log::format::{put_chain, u32_len};

const MAGIC: &[u8; 8] = b"SEALOGCT";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 64;
const ENTRY_LEN: usize = 48;
/// Entries that are read at once.
const PAGE_ENTRIES: u64 = 64;
/// More than any chain has in a segment.
const CONTENT_LEN_MAX: usize = 64 << 20;

pub(crate) fn encode(end: &SegmentEnd, counts: &SegmentCounts) -> Vec<u8> {
    let mut order: Vec<_> = counts.iter().filter(|(_, counts)| counts.events > 0).collect();
    order.sort_by_key(|(chain, _)| **chain);
    let mut out = header(end, order.len());
    let mut content = Vec::new();
    let content_at = HEADER_LEN + order.len() * ENTRY_LEN;
    for (chain, counts) in order {
        let start = content.len();
        content.extend_from_slice(&counts.events.to_le_bytes());
        content.extend_from_slice(&u32_len(counts.days.len()).to_le_bytes());
        for (day, counts) in &counts.days {
            content.extend_from_slice(&day.to_le_bytes());
            counts.encode(&mut content);
        }
        put_chain(*chain, &mut out);
        out.extend_from_slice(&((content_at + start) as u64).to_le_bytes());
        out.extend_from_slice(&u32_len(content.len() - start).to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&content[start..]).to_le_bytes());
    }
    out.extend_from_slice(&content);
    out
}

fn header(end: &SegmentEnd, chains: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&end.checksum.to_le_bytes());
    out.extend_from_slice(&end.number.to_le_bytes());
    out.extend_from_slice(&end.final_len.to_le_bytes());
    out.extend_from_slice(&u32_len(chains).to_le_bytes());
    out.resize(HEADER_LEN - 4, 0);
    let checksum = crc32c::crc32c(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// How many chains a file has counts of, if it is this segment's.
pub(crate) fn check(file: &dyn DiskFile, end: &SegmentEnd) -> io::Result<u64> {
    let found = read_exact(file, 0, HEADER_LEN)?;
    let chains = Take(&found[32..]).u32().unwrap_or(0);
    if found != header(end, chains as usize) {
        return Err(malformed());
    }
    Ok(u64::from(chains))
}

/// The counts of a chain; nothing where the file has none of it. Reads a few pieces of the file, however many
/// chains it is about.
pub(crate) fn read(file: &dyn DiskFile, end: &SegmentEnd, chain: ChainId) -> io::Result<Option<ChainCounts>> {
    let mut name = Vec::with_capacity(32);
    put_chain(chain, &mut name);
    let (mut low, mut high) = (0, check(file, end)?);
    let entry_at = |number: u64| HEADER_LEN as u64 + number * ENTRY_LEN as u64;
    while high - low > PAGE_ENTRIES {
        let middle = low + (high - low) / 2;
        if read_exact(file, entry_at(middle), name.len())? <= name {
            low = middle;
        } else {
            high = middle;
        }
    }
    let page_len = usize::try_from(high - low).unwrap_or(usize::MAX) * ENTRY_LEN;
    let page = read_exact(file, entry_at(low), page_len)?;
    let Some(entry) = page.chunks_exact(ENTRY_LEN).find(|entry| entry.starts_with(&name)) else {
        return Ok(None);
    };
    let mut take = Take(&entry[name.len()..]);
    let mut place = || Some((take.u64()?, take.u32()? as usize, take.u32()?));
    let (offset, length, checksum) = place().ok_or_else(malformed)?;
    if length > CONTENT_LEN_MAX {
        return Err(malformed());
    }
    let content = read_exact(file, offset, length)?;
    if crc32c::crc32c(&content) != checksum {
        return Err(malformed());
    }
    decode(&content).map(Some).ok_or_else(malformed)
}

/// Whether a file has these counts, which were made from the segment again.
pub(crate) fn agrees(file: &dyn DiskFile, end: &SegmentEnd, counts: &SegmentCounts) -> io::Result<bool> {
    let expected = encode(end, counts);
    if file.length()? == expected.len() as u64 && read_exact(file, 0, expected.len())? == expected {
        return Ok(true);
    }
    // Which values are counted apart, where a day has too many, depends on how they came.
    let of_chains = || -> io::Result<bool> {
        let counted = counts.iter().filter(|(_, counts)| counts.events > 0);
        if check(file, end)? != counted.clone().count() as u64 {
            return Ok(false);
        }
        for (chain, counts) in counted {
            if !read(file, end, *chain)?.is_some_and(|found| found.agrees(counts)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match of_chains() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            Ok(false)
        }
        compared => compared,
    }
}

fn decode(content: &[u8]) -> Option<ChainCounts> {
    let mut take = Take(content);
    let events = take.u64()?;
    let mut days = BTreeMap::new();
    for _ in 0..take.u32()? {
        days.insert(take.u32()?, DayCounts::decode(&mut take)?);
    }
    take.0.is_empty().then_some(ChainCounts { events, days })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the counts are damaged or of another segment")
}

#[cfg(test)]
mod tests {
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};

    use super::*;
    use crate::counts::Counted;
    use crate::embedded::log::disk::{Disk, RealDisk, replace};

    const END: SegmentEnd = SegmentEnd { number: 7, final_len: 1000, checksum: 5 };

    fn chain(n: u16) -> ChainId {
        let [a, b] = n.to_be_bytes();
        let mut project = [0; 16];
        project[..2].copy_from_slice(&[a, b]);
        ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid(project)), mode: Mode::Live }
    }

    fn of(n: u16) -> ChainCounts {
        let mut counts = ChainCounts { events: u64::from(n) + 1, ..ChainCounts::default() };
        for day in 0..3 {
            let action = format!("a{n}.{day}");
            let event = Counted { action: &action, actor_id: Some("x"), severity: None, country: Some("DE") };
            counts.days.entry(day).or_default().add(&event);
        }
        counts
    }

    #[test]
    fn each_chain_is_found_among_many_and_no_other_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000007.cnt");
        for chains in [0, 1, 64, 65, 1000] {
            let counts: SegmentCounts = (0..chains).map(|n| (chain(n), of(n))).collect();
            replace(&RealDisk, &path, &encode(&END, &counts)).unwrap();
            let file = RealDisk.open(&path).unwrap();
            for n in 0..chains {
                assert_eq!(read(&*file, &END, chain(n)).unwrap(), Some(of(n)), "{n} of {chains}");
            }
            assert_eq!(read(&*file, &END, chain(chains)).unwrap(), None);
        }
    }

    #[test]
    fn a_file_of_another_segment_or_a_damaged_one_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000007.cnt");
        let bytes = encode(&END, &[(chain(1), of(1))].into_iter().collect());
        let reads = |bytes: &[u8], end: &SegmentEnd| {
            replace(&RealDisk, &path, bytes).unwrap();
            read(&*RealDisk.open(&path).unwrap(), end, chain(1))
        };
        assert_eq!(reads(&bytes, &END).unwrap(), Some(of(1)));
        for end in [
            SegmentEnd { number: 8, ..END },
            SegmentEnd { final_len: 1001, ..END },
            SegmentEnd { checksum: 6, ..END },
        ] {
            assert!(reads(&bytes, &end).is_err());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_ne!(reads(&damaged, &END).ok().flatten(), Some(of(1)), "{at}");
        }
        assert!(reads(&bytes[..bytes.len() - 1], &END).is_err());
    }
}
