//! Index files of sealed segments: `docs/format.md`, section 5.
//!
//! A file is read in pieces, on demand: at start only its runs, its usage and the keys' filter and times, so that start-up does not read what is stored.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::id::{ChainId, Hash, Mode, TenantId, Ulid, Uuid};
use sealog_core::time::Month;

use super::cache::Cache;
use super::disk::{DiskFile, read_exact};
use super::filter::{self, Key, Shape};
use super::format::{Take, put_chain, u32_len};
use super::index::{BLOCK_EVENTS, Block, Bloom, MemoryRun, Summary};

const MAGIC: &[u8; 8] = b"SEALOGIX";
const VERSION: u32 = 2;
const HEADER_LEN: usize = 160;
const RUN_LEN: usize = 144;
const KEY_LEN: usize = 28;
const USAGE_LEN: usize = 28;

/// An idempotency key's place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyEntry {
    pub slot: Slot,
    pub received_ms: u64,
    /// Of the frame.
    pub position: u32,
}

/// Chain and key in 16 bytes.
pub(super) type Slot = [u8; 16];

pub(super) fn slot(chain: ChainId, key_hash: Hash) -> Slot {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    hasher.update(chain.tenant_id.0.0);
    hasher.update(chain.project_id.0.0);
    hasher.update(key_hash.0);
    let digest = hasher.finalize();
    std::array::from_fn(|at| digest[at])
}

pub(super) fn slot_hash(slot: &Slot) -> u32 {
    u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]])
}

/// What an index file says of its segment, to tell whether it is that segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentEnd {
    pub number: u64,
    pub final_len: u64,
    pub checksum: u32,
}

/// Everything that is derived from one segment, in memory.
#[derive(Debug, Default)]
pub(super) struct SegmentIndex {
    pub runs: Vec<(ChainId, MemoryRun)>,
    pub keys: Vec<KeyEntry>,
    pub usage: BTreeMap<(TenantId, Month), u64>,
}

#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    length: usize,
    checksum: u32,
    entries: u32,
}

impl SegmentIndex {
    /// Counts the events of each tenant by month.
    pub(super) fn count_usage(&mut self) {
        for (chain, run) in &self.runs {
            for log_id in run.log_ids() {
                *self.usage.entry((chain.tenant_id, Month::of(log_id.timestamp_ms()))).or_default() += 1;
            }
        }
    }

    pub(super) fn encode(&self, end: &SegmentEnd) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        let mut order: Vec<_> = self.runs.iter().collect();
        order.sort_by_key(|(chain, run)| (*chain, run.first_seq));
        let mut runs = Vec::with_capacity(order.len() * RUN_LEN);
        for (chain, run) in order {
            let blocks = run.blocks();
            let table = encode_blocks(&blocks, &mut out);
            let table_at = out.len() as u64;
            out.extend_from_slice(&table);
            let (shape, filter) = filter::build(blocks.iter().map(|block| &block.1));
            let filter_at = out.len() as u64;
            out.extend_from_slice(&filter);
            put_chain(*chain, &mut runs);
            runs.extend_from_slice(&run.first_seq.to_le_bytes());
            runs.extend_from_slice(&u32_len(run.count()).to_le_bytes());
            runs.extend_from_slice(&u32_len(blocks.len()).to_le_bytes());
            runs.extend_from_slice(&run.first_log_id().to_bytes());
            runs.extend_from_slice(&run.last_log_id().to_bytes());
            runs.extend_from_slice(&run.last_hash.0);
            runs.extend_from_slice(&table_at.to_le_bytes());
            runs.extend_from_slice(&u32_len(table.len()).to_le_bytes());
            runs.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
            runs.extend_from_slice(&filter_at.to_le_bytes());
            runs.extend_from_slice(&shape.pages.to_le_bytes());
            runs.extend_from_slice(&shape.page_rows.to_le_bytes());
        }
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        let key_bytes = keys.iter().fold(Vec::new(), |mut bytes, key| {
            bytes.extend_from_slice(&key.slot);
            bytes.extend_from_slice(&key.received_ms.to_le_bytes());
            bytes.extend_from_slice(&key.position.to_le_bytes());
            bytes
        });
        let filter = Bloom::of(keys.iter().map(|key| slot_hash(&key.slot)));
        let usage = self.usage.iter().fold(Vec::new(), |mut bytes, ((tenant_id, month), count)| {
            bytes.extend_from_slice(&tenant_id.0.0);
            bytes.extend_from_slice(&month.0.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes
        });
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&end.checksum.to_le_bytes());
        header.extend_from_slice(&end.number.to_le_bytes());
        header.extend_from_slice(&end.final_len.to_le_bytes());
        let sections = [
            (&runs[..], runs.len() / RUN_LEN),
            (&key_bytes, keys.len()),
            (filter.bytes(), 1),
            (&usage, self.usage.len()),
        ];
        for (section, entries) in sections {
            header.extend_from_slice(&(out.len() as u64).to_le_bytes());
            header.extend_from_slice(&(section.len() as u64).to_le_bytes());
            header.extend_from_slice(&crc32c::crc32c(section).to_le_bytes());
            header.extend_from_slice(&u32_len(entries).to_le_bytes());
            out.extend_from_slice(section);
        }
        header.resize(HEADER_LEN - 4, 0);
        let checksum = crc32c::crc32c(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        out[..HEADER_LEN].copy_from_slice(&header);
        out
    }
}

/// Writes the columns of each block and returns the table that finds them.
fn encode_blocks(blocks: &[Arc<(Summary, Block)>], out: &mut Vec<u8>) -> Vec<u8> {
    let mut table = Vec::new();
    for block in blocks {
        let (summary, columns) = &**block;
        let start = out.len();
        columns.encode(out);
        table.extend_from_slice(&summary.first_log_id.to_bytes());
        table.extend_from_slice(&(start as u64).to_le_bytes());
        table.extend_from_slice(&crc32c::crc32c(&out[start..]).to_le_bytes());
        table.extend_from_slice(&summary.actions);
    }
    table
}

/// An index file that has been opened and belongs to its segment.
#[derive(Debug)]
pub(super) struct Sidecar {
    /// Tells index files apart in caches: a segment's index may be built again with another layout.
    id: u64,
    file: Box<dyn DiskFile>,
    segment: u64,
    keys: (u64, u32),
    key_filter: Bloom,
}

/// A run whose index is in a file.
#[derive(Clone, Debug)]
pub(super) struct FileRun {
    pub sidecar: Arc<Sidecar>,
    pub first_seq: u64,
    pub count: u32,
    pub first_log_id: Ulid,
    pub last_log_id: Ulid,
    pub last_hash: Hash,
    table: (u64, u32, u32),
    blocks: u32,
    filter_at: u64,
    filter: Shape,
}

/// What start-up takes from an index file.
#[derive(Debug)]
pub(super) struct Opened {
    pub sidecar: Arc<Sidecar>,
    pub runs: Vec<(ChainId, FileRun)>,
    pub usage: Vec<(TenantId, Month, u64)>,
    /// Receipt time of the newest key, to know when all have expired.
    pub keys_newest_ms: Option<u64>,
}

/// A block as its table describes it.
#[derive(Debug)]
pub(super) struct BlockRef {
    pub summary: Summary,
    offset: u64,
    checksum: u32,
}

/// An index file that contradicts its checksums. Its segment has everything that is needed to make it again.
#[derive(Debug)]
pub(super) struct IndexDamaged {
    pub segment: u64,
    what: &'static str,
}

impl std::fmt::Display for IndexDamaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the index of segment {}: {}", self.segment, self.what)
    }
}

impl std::error::Error for IndexDamaged {}

fn damaged(segment: u64, what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, IndexDamaged { segment, what })
}

/// The segment whose index is to blame for an error.
pub(super) fn damaged_segment(error: &io::Error) -> Option<u64> {
    error.get_ref()?.downcast_ref::<IndexDamaged>().map(|damaged| damaged.segment)
}

impl Sidecar {
    /// Opens the index of a segment that ends as given; an error means that it must be built again.
    pub(super) fn open(file: Box<dyn DiskFile>, end: &SegmentEnd, mode: Mode) -> io::Result<Opened> {
        let header = read_exact(&*file, 0, HEADER_LEN)?;
        let sections = decode_header(&header, end)
            .ok_or_else(|| damaged(end.number, "it is damaged or of another segment"))?;
        let section = |section: Section| {
            let bytes = read_exact(&*file, section.offset, section.length)?;
            if crc32c::crc32c(&bytes) != section.checksum {
                return Err(damaged(end.number, "a section is damaged"));
            }
            Ok(bytes)
        };
        let [runs, keys, filter, usage] = sections;
        let (runs_bytes, usage_bytes, filter_bytes) = (section(runs)?, section(usage)?, section(filter)?);
        // The keys themselves stay on disk; each lookup is confirmed by its frame.
        let keys_newest_ms = newest_key(&*file, keys, end.number)?;
        let key_filter =
            Bloom::from_bytes(&filter_bytes).ok_or_else(|| damaged(end.number, "the filter is empty"))?;
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let sidecar = Arc::new(Sidecar {
            id,
            file,
            segment: end.number,
            keys: (keys.offset, keys.entries),
            key_filter,
        });
        let runs = runs_bytes
            .chunks_exact(RUN_LEN)
            .map(|bytes| {
                decode_run(bytes, &sidecar, mode).ok_or_else(|| damaged(end.number, "a run is malformed"))
            })
            .collect::<io::Result<_>>()?;
        let usage = usage_bytes.chunks_exact(USAGE_LEN).filter_map(decode_usage).collect();
        Ok(Opened { sidecar, runs, usage, keys_newest_ms })
    }

    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// A file that cannot be read is as good as a damaged one: its segment has everything that is in it.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        read_exact(&*self.file, offset, length).map_err(|error| {
            tracing::warn!(%error, segment = self.segment, "an index file cannot be read");
            damaged(self.segment, "it cannot be read")
        })
    }

    /// Whether a lookup would have to read.
    pub(super) fn may_have_key(&self, slot: &Slot) -> bool {
        self.key_filter.may_contain(slot_hash(slot))
    }

    /// Keys with this slot, newest first.
    pub(super) fn find_key(&self, slot: &Slot) -> io::Result<Vec<KeyEntry>> {
        if !self.key_filter.may_contain(slot_hash(slot)) {
            return Ok(Vec::new());
        }
        let read = |at: u32| {
            let bytes = self.read(self.keys.0 + u64::from(at) * KEY_LEN as u64, KEY_LEN)?;
            decode_key(&bytes).ok_or_else(|| damaged(self.segment, "a key is malformed"))
        };
        let (mut low, mut high) = (0, self.keys.1);
        while low < high {
            let middle = low + (high - low) / 2;
            if read(middle)?.slot < *slot { low = middle + 1 } else { high = middle }
        }
        let mut found = Vec::new();
        while low < self.keys.1 {
            let entry = read(low)?;
            if entry.slot != *slot {
                break;
            }
            found.push(entry);
            low += 1;
        }
        found.reverse();
        Ok(found)
    }
}

/// Keys are sorted by slot, so the newest one is found by looking at all; in pieces, to keep the memory small.
fn newest_key(file: &dyn DiskFile, keys: Section, segment: u64) -> io::Result<Option<u64>> {
    const PIECE: usize = KEY_LEN * 4096;
    let mut newest = None;
    let mut checksum = 0;
    let mut at = 0;
    while at < keys.length {
        let bytes = read_exact(file, keys.offset + at as u64, PIECE.min(keys.length - at))?;
        checksum = crc32c::crc32c_append(checksum, &bytes);
        newest =
            newest.max(bytes.chunks_exact(KEY_LEN).filter_map(decode_key).map(|key| key.received_ms).max());
        at += bytes.len();
    }
    if checksum == keys.checksum { Ok(newest) } else { Err(damaged(segment, "the keys are damaged")) }
}

fn decode_header(bytes: &[u8], end: &SegmentEnd) -> Option<[Section; 4]> {
    let (content, checksum) = bytes.split_at(HEADER_LEN - 4);
    let mut take = Take(content);
    let right = take.bytes(8)? == MAGIC
        && checksum == crc32c::crc32c(content).to_le_bytes()
        && take.u32()? == VERSION
        && take.u32()? == end.checksum
        && take.u64()? == end.number
        && take.u64()? == end.final_len;
    if !right {
        return None;
    }
    let mut section = || {
        let (offset, length, checksum, entries) = (take.u64()?, take.u64()?, take.u32()?, take.u32()?);
        Some(Section { offset, length: usize::try_from(length).ok()?, checksum, entries })
    };
    Some([section()?, section()?, section()?, section()?])
}

fn decode_run(bytes: &[u8], sidecar: &Arc<Sidecar>, mode: Mode) -> Option<(ChainId, FileRun)> {
    let mut take = Take(bytes);
    let chain = take.chain(mode)?;
    let (first_seq, count, blocks) = (take.u64()?, take.u32()?, take.u32()?);
    let (first_log_id, last_log_id, last_hash) = (take.ulid()?, take.ulid()?, take.hash()?);
    let table = (take.u64()?, take.u32()?, take.u32()?);
    let (filter_at, pages, page_rows) = (take.u64()?, take.u32()?, take.u32()?);
    let run = FileRun {
        sidecar: Arc::clone(sidecar),
        first_seq,
        count,
        first_log_id,
        last_log_id,
        last_hash,
        table,
        blocks,
        filter_at,
        filter: Shape { blocks, pages, page_rows },
    };
    (count > 0 && (count as usize).div_ceil(BLOCK_EVENTS) == blocks as usize).then_some((chain, run))
}

fn decode_key(bytes: &[u8]) -> Option<KeyEntry> {
    let mut take = Take(bytes);
    Some(KeyEntry { slot: take.array()?, received_ms: take.u64()?, position: take.u32()? })
}

fn decode_usage(bytes: &[u8]) -> Option<(TenantId, Month, u64)> {
    let mut take = Take(bytes);
    Some((TenantId(Uuid(take.array()?)), Month(take.u32()?), take.u64()?))
}

/// Caches of both kinds of pieces.
#[derive(Debug)]
pub(super) struct Caches {
    /// By index file and offset.
    pub tables: Cache<(u64, u64), Vec<BlockRef>>,
    pub columns: Cache<(u64, u64), Block>,
}

impl FileRun {
    pub(super) fn segment(&self) -> u64 {
        self.sidecar.segment
    }

    pub(super) fn end_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }

    pub(super) fn table(&self, caches: &Caches) -> io::Result<Arc<Vec<BlockRef>>> {
        let (offset, length, checksum) = self.table;
        let bytes = length as usize + self.blocks as usize * size_of::<BlockRef>();
        caches.tables.get_or_load(&(self.sidecar.id, offset), bytes, || {
            let bytes = self.sidecar.read(offset, length as usize)?;
            if crc32c::crc32c(&bytes) != checksum {
                return Err(damaged(self.segment(), "a block table is damaged"));
            }
            let mut take = Take(&bytes);
            (0..self.blocks)
                .map(|_| decode_block_ref(&mut take))
                .collect::<Option<_>>()
                .ok_or_else(|| damaged(self.segment(), "a block table is malformed"))
        })
    }

    /// The blocks that may have events with these keys.
    pub(super) fn candidates(&self, keys: &[Key]) -> io::Result<Vec<usize>> {
        filter::candidates(
            &self.filter,
            keys,
            |offset, length| self.sidecar.read(self.filter_at + offset, length),
            || damaged(self.segment(), "a filter is damaged"),
        )
    }

    pub(super) fn block(&self, caches: &Caches, table: &[BlockRef], number: usize) -> io::Result<Arc<Block>> {
        let block = &table[number];
        let count = (self.count as usize - number * BLOCK_EVENTS).min(BLOCK_EVENTS);
        let length = Block::encoded_len(count);
        caches.columns.get_or_load(&(self.sidecar.id, block.offset), length, || {
            let bytes = self.sidecar.read(block.offset, length)?;
            if crc32c::crc32c(&bytes) != block.checksum {
                return Err(damaged(self.segment(), "a block is damaged"));
            }
            Block::decode(&bytes, count).ok_or_else(|| damaged(self.segment(), "a block is malformed"))
        })
    }
}

fn decode_block_ref(take: &mut Take<'_>) -> Option<BlockRef> {
    let first_log_id = take.ulid()?;
    let (offset, checksum) = (take.u64()?, take.u32()?);
    let actions = take.array()?;
    Some(BlockRef { summary: Summary { first_log_id, actions }, offset, checksum })
}
