//! Index files of sealed segments: `docs/format.md`, section 5.
//!
//! A file is read in pieces, on demand: at start only its directory, its runs, its usage and the keys'
//! filter, so that start-up does not read what is stored.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::id::{ChainId, Hash, Mode, TenantId, Ulid, Uuid};
use sealog_core::time::Month;

use super::block::{BLOCK_EVENTS, Block, Bloom, Hashing, MemoryRun};
use super::fields::FieldColumn;
use super::filter::{self, Key, Shape};
use super::salt::IndexSalt;
use crate::bytes::Take;
use crate::embedded::cache::Cache;
use crate::embedded::log::disk::{DiskFile, read_exact};
use crate::embedded::log::format::{SEQ_MAX, put_chain, u32_len};

const MAGIC: &[u8; 8] = b"SEALOGIX";
const VERSION: u32 = 3;
const HEADER_LEN: usize = 64;
/// Of a directory's entry, without the name.
const ENTRY_LEN: usize = 40;
const RUN_LEN: usize = 144;
const FIELD_RUN_LEN: usize = 32;
const KEY_LEN: usize = 28;
/// Keys are read and checked by the page.
const PAGE_KEYS: usize = 128;
const CHECKSUM_LEN: usize = 4;
const USAGE_LEN: usize = 28;
/// More than any directory has; a larger one is damaged.
const DIRECTORY_LEN_MAX: usize = 1 << 20;

/// What a section of an index file holds. Others may come; a reader passes over those that it does not know.
pub(super) mod kind {
    pub(crate) const RUNS: u16 = 1;
    pub(crate) const BLOCKS: u16 = 2;
    pub(crate) const FILTERS: u16 = 3;
    pub(crate) const KEYS: u16 = 4;
    pub(crate) const KEY_FENCES: u16 = 5;
    pub(crate) const KEY_FILTER: u16 = 6;
    pub(crate) const USAGE: u16 = 7;
    /// Of members of `metadata`: the runs, their columns, their filters.
    pub(crate) const FIELD_RUNS: u16 = 16;
    pub(crate) const FIELD_COLUMNS: u16 = 17;
    pub(crate) const FIELD_FILTERS: u16 = 18;
}

/// An idempotency key's place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyEntry {
    pub slot: Slot,
    pub received_ms: u64,
    /// Of the frame.
    pub position: u32,
}

/// Chain and key in 16 bytes.
pub(crate) type Slot = [u8; 16];

pub(crate) fn slot(chain: ChainId, key_hash: Hash) -> Slot {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    hasher.update(chain.tenant_id.0.0);
    hasher.update(chain.project_id.0.0);
    hasher.update(key_hash.0);
    let digest = hasher.finalize();
    std::array::from_fn(|at| digest[at])
}

/// A slot and what filters know it by. Clients choose keys, and with them slots: without the salt they could
/// choose those that fill a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotProbe {
    pub slot: Slot,
    salted: u32,
}

impl SlotProbe {
    pub(crate) fn new(slot: Slot, salt: &IndexSalt) -> SlotProbe {
        SlotProbe { slot, salted: salt.hash(&slot) }
    }
}

/// What an index file says of its segment, to tell whether it is that segment's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEnd {
    pub number: u64,
    pub final_len: u64,
    pub checksum: u32,
}

/// Everything that is derived from one segment, in memory.
#[derive(Debug, Default)]
pub(crate) struct SegmentIndex {
    pub runs: Vec<(ChainId, MemoryRun)>,
    pub keys: Vec<KeyEntry>,
    pub usage: BTreeMap<(TenantId, Month), u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) checksum: u32,
    pub(super) entries: u32,
    /// What the kind says.
    pub(super) parameter: u64,
}

/// A section that is being written.
pub(super) struct Part {
    pub(super) kind: u16,
    pub(super) entries: usize,
    pub(super) parameter: u64,
    /// Nothing where the pieces have checksums of their own.
    pub(super) checksum: Option<u32>,
    pub(super) bytes: Vec<u8>,
}

impl Part {
    fn new(kind: u16, entries: usize, bytes: Vec<u8>) -> Part {
        Part { kind, entries, parameter: 0, checksum: Some(crc32c::crc32c(&bytes)), bytes }
    }

    fn of_pieces(kind: u16, entries: usize, bytes: Vec<u8>) -> Part {
        Part { kind, entries, parameter: 0, checksum: None, bytes }
    }
}

impl SegmentIndex {
    /// Counts the events of each tenant by month. Those of a system chain count for nobody.
    pub(crate) fn count_usage(&mut self) {
        for (chain, run) in self.runs.iter().filter(|(chain, _)| !chain.is_system()) {
            for log_id in run.log_ids() {
                *self.usage.entry((chain.tenant_id, Month::of(log_id.timestamp_ms()))).or_default() += 1;
            }
        }
    }

    pub(crate) fn encode(&self, end: &SegmentEnd, salt: &IndexSalt) -> Vec<u8> {
        assemble(end, salt, &self.parts(salt))
    }

    /// The sections, in the order of the file. The same events always make the same bytes.
    pub(super) fn parts(&self, salt: &IndexSalt) -> Vec<Part> {
        let mut parts = self.runs_parts();
        parts.extend(self.field_parts());
        parts.extend(self.key_parts(salt));
        let usage = self.usage.iter().fold(Vec::new(), |mut bytes, ((tenant_id, month), count)| {
            bytes.extend_from_slice(&tenant_id.0.0);
            bytes.extend_from_slice(&month.0.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes
        });
        parts.push(Part::new(kind::USAGE, self.usage.len(), usage));
        parts
    }

    /// Runs, blocks and filters.
    fn runs_parts(&self) -> Vec<Part> {
        let order = self.ordered_runs();
        let (mut runs, mut columns, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        let (mut events, count) = (0, order.len());
        for (chain, run) in order {
            let blocks = run.blocks();
            let table = encode_blocks(&blocks, &mut columns);
            let table_at = columns.len() as u64;
            columns.extend_from_slice(&table);
            let (shape, filter) = filter::build(blocks.iter().map(|block| &**block));
            let filter_at = filters.len() as u64;
            filters.extend_from_slice(&filter);
            events += run.count();
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
        vec![
            Part::new(kind::RUNS, count, runs),
            Part::of_pieces(kind::BLOCKS, events, columns),
            Part::of_pieces(kind::FILTERS, count, filters),
        ]
    }

    /// As they stand in the file.
    fn ordered_runs(&self) -> Vec<&(ChainId, MemoryRun)> {
        let mut order: Vec<_> = self.runs.iter().collect();
        order.sort_by_key(|(chain, run)| (*chain, run.first_seq));
        order
    }

    /// Members of `metadata`: for each run, in the order of the runs, where its columns and its filter are.
    fn field_parts(&self) -> Vec<Part> {
        let (mut runs, mut columns, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        for (_, run) in self.ordered_runs() {
            let blocks = run.blocks();
            let mut table = Vec::new();
            for block in &blocks {
                let start = columns.len();
                block.fields().encode(&mut columns);
                table.extend_from_slice(&(start as u64).to_le_bytes());
                table.extend_from_slice(&u32_len(columns.len() - start).to_le_bytes());
                table.extend_from_slice(&crc32c::crc32c(&columns[start..]).to_le_bytes());
            }
            let (shape, filter) = filter::build_of_fields(blocks.iter().map(|block| &**block));
            runs.extend_from_slice(&(columns.len() as u64).to_le_bytes());
            runs.extend_from_slice(&u32_len(table.len()).to_le_bytes());
            runs.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
            runs.extend_from_slice(&(filters.len() as u64).to_le_bytes());
            runs.extend_from_slice(&shape.pages.to_le_bytes());
            runs.extend_from_slice(&shape.page_rows.to_le_bytes());
            columns.extend_from_slice(&table);
            filters.extend_from_slice(&filter);
        }
        let count = self.runs.len();
        vec![
            Part::new(kind::FIELD_RUNS, count, runs),
            Part::of_pieces(kind::FIELD_COLUMNS, count, columns),
            Part::of_pieces(kind::FIELD_FILTERS, count, filters),
        ]
    }

    /// Keys in pages, the first slot of each page, and the filter; nothing where there are no keys.
    pub(super) fn key_parts(&self, salt: &IndexSalt) -> Vec<Part> {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        let Some(newest_ms) = keys.iter().map(|key| key.received_ms).max() else { return Vec::new() };
        let (mut pages, mut fences) = (Vec::new(), Vec::new());
        for page in keys.chunks(PAGE_KEYS) {
            let start = pages.len();
            for key in page {
                pages.extend_from_slice(&key.slot);
                pages.extend_from_slice(&key.received_ms.to_le_bytes());
                pages.extend_from_slice(&key.position.to_le_bytes());
            }
            let checksum = crc32c::crc32c(&pages[start..]);
            pages.extend_from_slice(&checksum.to_le_bytes());
            fences.extend_from_slice(&page[0].slot);
        }
        let filter = Bloom::of(keys.iter().map(|key| salt.hash(&key.slot)));
        vec![
            Part { parameter: newest_ms, ..Part::of_pieces(kind::KEYS, keys.len(), pages) },
            Part::new(kind::KEY_FENCES, fences.len() / size_of::<Slot>(), fences),
            Part::new(kind::KEY_FILTER, 1, filter.bytes().to_vec()),
        ]
    }
}

/// Header, directory, sections.
fn assemble(end: &SegmentEnd, salt: &IndexSalt, parts: &[Part]) -> Vec<u8> {
    let directory_len = parts.len() * ENTRY_LEN;
    let mut out = Vec::with_capacity(
        HEADER_LEN + directory_len + parts.iter().map(|part| part.bytes.len()).sum::<usize>(),
    );
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&end.checksum.to_le_bytes());
    out.extend_from_slice(&end.number.to_le_bytes());
    out.extend_from_slice(&end.final_len.to_le_bytes());
    out.extend_from_slice(&salt.id().to_le_bytes());
    out.extend_from_slice(&u32_len(parts.len()).to_le_bytes());
    out.extend_from_slice(&u32_len(directory_len).to_le_bytes());
    out.resize(HEADER_LEN, 0);
    let mut offset = (HEADER_LEN + directory_len) as u64;
    for part in parts {
        out.extend_from_slice(&u16::try_from(ENTRY_LEN).expect("it is 40").to_le_bytes());
        out.extend_from_slice(&part.kind.to_le_bytes());
        out.extend_from_slice(&u32_len(part.entries).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&(part.bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&part.checksum.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&part.parameter.to_le_bytes());
        offset += part.bytes.len() as u64;
    }
    let checksum = header_checksum(&out);
    out[HEADER_LEN - CHECKSUM_LEN..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
    for part in parts {
        out.extend_from_slice(&part.bytes);
    }
    out
}

/// Of the header and of the directory behind it.
fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..HEADER_LEN - CHECKSUM_LEN]), &bytes[HEADER_LEN..])
}

/// Writes the columns of each block and returns the table that finds them.
fn encode_blocks(blocks: &[Arc<Block>], out: &mut Vec<u8>) -> Vec<u8> {
    let mut table = Vec::new();
    for block in blocks {
        let start = out.len();
        block.encode(out);
        table.extend_from_slice(&block.first_log_id().to_bytes());
        table.extend_from_slice(&(start as u64).to_le_bytes());
        table.extend_from_slice(&crc32c::crc32c(&out[start..]).to_le_bytes());
    }
    table
}

/// An index file that has been opened and belongs to its segment.
#[derive(Debug)]
pub(crate) struct Sidecar {
    /// Tells index files apart in caches: a segment's index may be built again with another layout.
    id: u64,
    file: Box<dyn DiskFile>,
    segment: u64,
    hashing: Hashing,
    keys: Option<KeySections>,
    key_filter: Bloom,
}

/// Where the keys are.
#[derive(Clone, Copy, Debug)]
struct KeySections {
    pages: Section,
    fences: Section,
}

/// A run whose index is in a file.
#[derive(Clone, Debug)]
pub(crate) struct FileRun {
    pub sidecar: Arc<Sidecar>,
    pub first_seq: u64,
    pub count: u32,
    pub first_log_id: Ulid,
    pub last_log_id: Ulid,
    pub last_hash: Hash,
    table: (u64, u32, u32),
    /// Where the offsets of its table begin.
    columns_at: u64,
    blocks: u32,
    filter_at: u64,
    filter: Shape,
    fields: FieldRun,
}

/// Where the members of `metadata` of a run's events are.
#[derive(Clone, Copy, Debug)]
struct FieldRun {
    table: (u64, u32, u32),
    columns_at: u64,
    filter_at: u64,
    filter: Shape,
}

/// A block's column, as the table describes it.
#[derive(Debug)]
pub(crate) struct FieldRef {
    offset: u64,
    length: u32,
    checksum: u32,
}

/// What start-up takes from an index file.
#[derive(Debug)]
pub(crate) struct Opened {
    pub sidecar: Arc<Sidecar>,
    pub runs: Vec<(ChainId, FileRun)>,
    pub usage: Vec<(TenantId, Month, u64)>,
    /// Receipt time of the newest key, to know when all have expired.
    pub keys_newest_ms: Option<u64>,
}

/// A block as its table describes it.
#[derive(Debug)]
pub(crate) struct BlockRef {
    pub first_log_id: Ulid,
    offset: u64,
    checksum: u32,
}

/// An index file that contradicts its checksums. Its segment has everything that is needed to make it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexDamaged {
    pub segment: u64,
    /// Of the [`Sidecar`]: the segment may have another index by now.
    pub id: u64,
    what: &'static str,
}

impl std::fmt::Display for IndexDamaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the index of segment {}: {}", self.segment, self.what)
    }
}

impl std::error::Error for IndexDamaged {}

fn damaged(segment: u64, id: u64, what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, IndexDamaged { segment, id, what })
}

/// The index that is to blame for an error.
pub(crate) fn damaged_index(error: &io::Error) -> Option<IndexDamaged> {
    error.get_ref()?.downcast_ref::<IndexDamaged>().copied()
}

/// A number for an index, higher than those of all before it.
pub(crate) fn next_id() -> u64 {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// What a header says.
struct Layout {
    hashing: Hashing,
    runs: Section,
    /// What offsets of tables and blocks, and those of filters, are counted from.
    bases: (u64, u64),
    /// Runs, and what the offsets of columns and of filters are counted from.
    fields: (Section, u64, u64),
    keys: Option<KeySections>,
    key_filter: Option<Section>,
    usage: Section,
}

impl Sidecar {
    /// Opens the index of a segment that ends as given; an error means that it must be built again.
    pub(crate) fn open(
        file: Box<dyn DiskFile>,
        end: &SegmentEnd,
        mode: Mode,
        salt: &IndexSalt,
    ) -> io::Result<Opened> {
        let id = next_id();
        let damaged = |what| damaged(end.number, id, what);
        let header = read_exact(&*file, 0, HEADER_LEN)?;
        let foreign = || damaged("it is damaged or of another segment");
        if begin_header(&header, end).ok_or_else(foreign)? != VERSION {
            return Err(damaged("its version is not known"));
        }
        let directory_len = directory_len(&header).ok_or_else(foreign)?;
        let bytes = read_exact(&*file, 0, HEADER_LEN + directory_len)?;
        let layout = decode_header(&bytes, salt).ok_or_else(foreign)?;
        let read = |section: Section| {
            let bytes = read_exact(&*file, section.offset, section.length)?;
            if crc32c::crc32c(&bytes) != section.checksum {
                return Err(damaged("a section is damaged"));
            }
            Ok(bytes)
        };
        let (runs_bytes, usage_bytes) = (read(layout.runs)?, read(layout.usage)?);
        let key_filter = match layout.key_filter {
            Some(section) => {
                Bloom::from_bytes(&read(section)?).ok_or_else(|| damaged("the filter is empty"))?
            }
            None => Bloom::of([]),
        };
        let field_runs = read(layout.fields.0)?;
        // The keys themselves stay on disk; each lookup is confirmed by its frame.
        let keys_newest_ms = layout.keys.map(|keys| keys.pages.parameter);
        let sidecar = Arc::new(Sidecar {
            id,
            file,
            segment: end.number,
            hashing: layout.hashing,
            keys: layout.keys,
            key_filter,
        });
        let of_runs = runs_bytes.chunks_exact(RUN_LEN);
        if field_runs.len() != of_runs.len() * FIELD_RUN_LEN {
            return Err(damaged("it does not have the members of every run"));
        }
        let runs = of_runs
            .zip(field_runs.chunks_exact(FIELD_RUN_LEN))
            .map(|(bytes, of_fields)| {
                let run = decode_run(bytes, of_fields, &sidecar, &layout, mode);
                run.ok_or_else(|| damaged("a run is malformed"))
            })
            .collect::<io::Result<Vec<(ChainId, FileRun)>>>()?;
        let usage = usage_bytes.chunks_exact(USAGE_LEN).filter_map(decode_usage).collect();
        Ok(Opened { sidecar, runs, usage, keys_newest_ms })
    }

    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn hashing(&self) -> Hashing {
        self.hashing
    }

    /// Whether it can be read but should be made anew: the salt that it was made with is lost.
    pub(crate) fn is_stale(&self) -> bool {
        self.hashing == Hashing::Unknown
    }

    fn damaged(&self, what: &'static str) -> io::Error {
        damaged(self.segment, self.id, what)
    }

    /// A file that cannot be read is as good as a damaged one: its segment has everything that is in it.
    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        read_exact(&*self.file, offset, length).map_err(|error| {
            tracing::warn!(%error, segment = self.segment, "cannot read an index file");
            self.damaged("it cannot be read")
        })
    }

    /// A part of the file with its checksum: given, or in its last four bytes.
    fn read_checked(
        &self,
        offset: u64,
        length: usize,
        checksum: Option<u32>,
        what: &'static str,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = self.read(offset, length)?;
        let expected = match (checksum, length.checked_sub(CHECKSUM_LEN)) {
            (Some(checksum), _) => checksum.to_le_bytes().to_vec(),
            (None, Some(covered)) => bytes.split_off(covered),
            (None, None) => return Err(self.damaged(what)),
        };
        if crc32c::crc32c(&bytes).to_le_bytes()[..] == expected { Ok(bytes) } else { Err(self.damaged(what)) }
    }

    /// Whether a lookup would have to read.
    pub(crate) fn may_have_key(&self, probe: &SlotProbe) -> bool {
        match self.hashing {
            Hashing::Salted => self.key_filter.may_contain(probe.salted),
            Hashing::Unknown => self.keys.is_some(),
        }
    }

    /// Keys with this slot, newest first. What is read is checked first: a key that is overlooked would be an
    /// event twice.
    pub(crate) fn find_key(&self, probe: &SlotProbe) -> io::Result<Vec<KeyEntry>> {
        if !self.may_have_key(probe) {
            return Ok(Vec::new());
        }
        let Some(KeySections { pages, fences }) = self.keys else { return Ok(Vec::new()) };
        let what = "the first keys of its pages are damaged";
        let firsts = self.read_checked(fences.offset, fences.length, Some(fences.checksum), what)?;
        let firsts: Vec<&[u8]> = firsts.chunks_exact(size_of::<Slot>()).collect();
        let slot = &probe.slot[..];
        // The slot may begin in the page before the first one that begins with it, and may fill several.
        let begin = firsts.partition_point(|first| *first < slot).saturating_sub(1);
        let mut found = Vec::new();
        for number in (begin..firsts.len()).take_while(|number| firsts[*number] <= slot) {
            let page_len = PAGE_KEYS * KEY_LEN + CHECKSUM_LEN;
            let at = number * page_len;
            let length = page_len.min(pages.length.saturating_sub(at));
            let what = "a page of keys is damaged";
            let page = self.read_checked(pages.offset + at as u64, length, None, what)?;
            let keys = page.chunks_exact(KEY_LEN).filter_map(decode_key);
            found.extend(keys.filter(|key| key.slot == probe.slot));
        }
        found.reverse();
        Ok(found)
    }
}

/// The version of an index file that belongs to this segment.
fn begin_header(bytes: &[u8], end: &SegmentEnd) -> Option<u32> {
    let mut take = Take(bytes);
    let magic = take.bytes(8)? == MAGIC;
    let version = take.u32()?;
    let own = take.u32()? == end.checksum && take.u64()? == end.number && take.u64()? == end.final_len;
    (magic && own).then_some(version)
}

fn directory_len(header: &[u8]) -> Option<usize> {
    let length = Take(header.get(44..)?).u32()? as usize;
    (length <= DIRECTORY_LEN_MAX).then_some(length)
}

/// What a file of this version and of this segment says of itself.
pub(super) struct Directory {
    pub(super) salt_id: u64,
    /// By their kinds. Columns that have names are not among them: none of the kinds that are known here has
    /// one.
    pub(super) sections: BTreeMap<u16, Section>,
    /// Whether a kind stands there twice. A reader takes the first.
    pub(super) doubled: bool,
}

/// Nothing where the header is damaged, of another segment or of another version.
pub(super) fn read_directory(file: &dyn DiskFile, end: &SegmentEnd) -> io::Result<Option<Directory>> {
    let header = read_exact(file, 0, HEADER_LEN)?;
    let (Some(VERSION), Some(length)) = (begin_header(&header, end), directory_len(&header)) else {
        return Ok(None);
    };
    Ok(decode_directory(&read_exact(file, 0, HEADER_LEN + length)?))
}

fn decode_directory(bytes: &[u8]) -> Option<Directory> {
    let (header, directory) = bytes.split_at_checked(HEADER_LEN)?;
    let checksum = header_checksum(bytes).to_le_bytes();
    if header[HEADER_LEN - CHECKSUM_LEN..] != checksum {
        return None;
    }
    let mut take = Take(&header[32..]);
    let (salt_id, entries) = (take.u64()?, take.u32()?);
    let mut known = Directory { salt_id, sections: BTreeMap::new(), doubled: false };
    let mut rest = directory;
    for _ in 0..entries {
        let entry_len = usize::from(Take(rest).u16()?);
        let (entry, behind) = rest.split_at_checked(entry_len)?;
        rest = behind;
        let mut take = Take(entry.get(2..)?);
        let (kind, entries) = (take.u16()?, take.u32()?);
        let (offset, length, checksum) = (take.u64()?, take.u64()?, take.u32()?);
        take.u32()?;
        let parameter = take.u64()?;
        // What follows is the name of a column, which tells columns of one kind apart.
        let section = Section { offset, length: usize::try_from(length).ok()?, checksum, entries, parameter };
        if take.0.is_empty() {
            known.doubled |= known.sections.contains_key(&kind);
            known.sections.entry(kind).or_insert(section);
        }
    }
    Some(known)
}

fn decode_header(bytes: &[u8], salt: &IndexSalt) -> Option<Layout> {
    let Directory { salt_id, sections: known, .. } = decode_directory(bytes)?;
    let keys = match (known.get(&kind::KEYS), known.get(&kind::KEY_FENCES)) {
        (Some(pages), Some(fences)) => Some(KeySections { pages: *pages, fences: *fences }),
        (None, None) => None,
        _ => return None,
    };
    let key_filter = known.get(&kind::KEY_FILTER).copied();
    if key_filter.is_none() != keys.is_none() {
        return None;
    }
    Some(Layout {
        hashing: if salt_id == salt.id() { Hashing::Salted } else { Hashing::Unknown },
        runs: *known.get(&kind::RUNS)?,
        bases: (known.get(&kind::BLOCKS)?.offset, known.get(&kind::FILTERS)?.offset),
        fields: (
            *known.get(&kind::FIELD_RUNS)?,
            known.get(&kind::FIELD_COLUMNS)?.offset,
            known.get(&kind::FIELD_FILTERS)?.offset,
        ),
        keys,
        key_filter,
        usage: *known.get(&kind::USAGE)?,
    })
}

fn decode_run(
    bytes: &[u8],
    of_fields: &[u8],
    sidecar: &Arc<Sidecar>,
    layout: &Layout,
    mode: Mode,
) -> Option<(ChainId, FileRun)> {
    let (columns_at, filters_at) = layout.bases;
    let mut take = Take(bytes);
    let chain = take.chain(mode)?;
    let (first_seq, count, blocks) = (take.u64()?, take.u32()?, take.u32()?);
    let (first_log_id, last_log_id, last_hash) = (take.ulid()?, take.ulid()?, take.hash()?);
    let table = (columns_at.checked_add(take.u64()?)?, take.u32()?, take.u32()?);
    let (filter_at, pages, page_rows) = (filters_at.checked_add(take.u64()?)?, take.u32()?, take.u32()?);
    let run = FileRun {
        sidecar: Arc::clone(sidecar),
        first_seq,
        count,
        first_log_id,
        last_log_id,
        last_hash,
        table,
        columns_at,
        blocks,
        filter_at,
        filter: Shape { blocks, pages, page_rows },
        fields: decode_field_run(of_fields, blocks, layout)?,
    };
    let sane =
        first_seq <= SEQ_MAX && count > 0 && (count as usize).div_ceil(BLOCK_EVENTS) == blocks as usize;
    sane.then_some((chain, run))
}

fn decode_field_run(bytes: &[u8], blocks: u32, layout: &Layout) -> Option<FieldRun> {
    let (_, columns_at, filters_at) = layout.fields;
    let mut take = Take(bytes);
    let table = (columns_at.checked_add(take.u64()?)?, take.u32()?, take.u32()?);
    let (filter_at, pages, page_rows) = (filters_at.checked_add(take.u64()?)?, take.u32()?, take.u32()?);
    let filter = Shape { blocks, pages, page_rows };
    Some(FieldRun { table, columns_at, filter_at, filter })
}

fn decode_key(bytes: &[u8]) -> Option<KeyEntry> {
    let mut take = Take(bytes);
    Some(KeyEntry { slot: take.array()?, received_ms: take.u64()?, position: take.u32()? })
}

fn decode_usage(bytes: &[u8]) -> Option<(TenantId, Month, u64)> {
    let mut take = Take(bytes);
    Some((TenantId(Uuid(take.array()?)), Month(take.u32()?), take.u64()?))
}

/// Caches of each kind of pieces.
#[derive(Debug)]
pub(crate) struct Caches {
    /// By index file and offset.
    pub tables: Cache<(u64, u64), Vec<BlockRef>>,
    pub columns: Cache<(u64, u64), Block>,
    pub field_tables: Cache<(u64, u64), Vec<FieldRef>>,
    pub field_columns: Cache<(u64, u64), FieldColumn>,
}

impl Caches {
    /// For whoever reads everything once.
    pub(crate) fn none() -> Caches {
        Caches {
            tables: Cache::new(0),
            columns: Cache::new(0),
            field_tables: Cache::new(0),
            field_columns: Cache::new(0),
        }
    }
}

impl FileRun {
    pub(crate) fn segment(&self) -> u64 {
        self.sidecar.segment
    }

    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + u64::from(self.count)
    }

    pub(crate) fn table(&self, caches: &Caches) -> io::Result<Arc<Vec<BlockRef>>> {
        let (offset, length, checksum) = self.table;
        let bytes = length as usize + self.blocks as usize * size_of::<BlockRef>();
        caches.tables.get_or_load(&(self.sidecar.id, offset), bytes, || {
            let what = "a block table is damaged";
            let bytes = self.sidecar.read_checked(offset, length as usize, Some(checksum), what)?;
            let mut take = Take(&bytes);
            (0..self.blocks)
                .map(|_| self.decode_block_ref(&mut take))
                .collect::<Option<_>>()
                .ok_or_else(|| self.sidecar.damaged("a block table is malformed"))
        })
    }

    fn decode_block_ref(&self, take: &mut Take<'_>) -> Option<BlockRef> {
        let first_log_id = take.ulid()?;
        let (offset, checksum) = (self.columns_at.checked_add(take.u64()?)?, take.u32()?);
        Some(BlockRef { first_log_id, offset, checksum })
    }

    /// The blocks that may have events with these keys.
    pub(crate) fn candidates(&self, keys: &[Key]) -> io::Result<Vec<usize>> {
        filter::candidates(
            &self.filter,
            keys,
            |offset, length| self.sidecar.read(self.filter_at + offset, length),
            || self.sidecar.damaged("a filter is damaged"),
        )
    }

    /// The blocks that may have events with all of these members of `metadata`; nothing where that is not
    /// known.
    pub(crate) fn field_candidates(&self, keys: &[Key]) -> io::Result<Option<Vec<usize>>> {
        let Some(fields) = self.known_fields() else { return Ok(None) };
        let candidates = filter::candidates(
            &fields.filter,
            keys,
            |offset, length| self.sidecar.read(fields.filter_at + offset, length),
            || self.sidecar.damaged("a filter of members is damaged"),
        );
        candidates.map(Some)
    }

    /// The members of `metadata` of a block's events; nothing where they are not known.
    pub(crate) fn field_column(
        &self,
        caches: &Caches,
        number: usize,
    ) -> io::Result<Option<Arc<FieldColumn>>> {
        let Some(FieldRun { table: (offset, length, checksum), columns_at, .. }) = self.known_fields() else {
            return Ok(None);
        };
        let bytes = length as usize + self.blocks as usize * size_of::<FieldRef>();
        let table = caches.field_tables.get_or_load(&(self.sidecar.id, offset), bytes, || {
            let what = "a table of members is damaged";
            let bytes = self.sidecar.read_checked(offset, length as usize, Some(checksum), what)?;
            let mut take = Take(&bytes);
            let mut next = || {
                let offset = columns_at.checked_add(take.u64()?)?;
                Some(FieldRef { offset, length: take.u32()?, checksum: take.u32()? })
            };
            let table = (0..self.blocks).map(|_| next()).collect::<Option<Vec<_>>>();
            table.ok_or_else(|| self.sidecar.damaged("a table of members is malformed"))
        })?;
        let FieldRef { offset, length, checksum } = table[number];
        let length = length as usize;
        let column = caches.field_columns.get_or_load(&(self.sidecar.id, offset), length, || {
            let what = "a column of members is damaged";
            let bytes = self.sidecar.read_checked(offset, length, Some(checksum), what)?;
            FieldColumn::decode(&bytes, self.block_len(number))
                .ok_or_else(|| self.sidecar.damaged("a column of members is malformed"))
        });
        column.map(Some)
    }

    /// Hashes that were made with another salt tell nothing.
    fn known_fields(&self) -> Option<FieldRun> {
        (self.sidecar.hashing == Hashing::Salted).then_some(self.fields)
    }

    fn block_len(&self, number: usize) -> usize {
        (self.count as usize - number * BLOCK_EVENTS).min(BLOCK_EVENTS)
    }

    pub(crate) fn block(&self, caches: &Caches, table: &[BlockRef], number: usize) -> io::Result<Arc<Block>> {
        let block = &table[number];
        let count = self.block_len(number);
        let length = Block::encoded_len(count);
        caches.columns.get_or_load(&(self.sidecar.id, block.offset), length, || {
            let what = "a block is damaged";
            let bytes = self.sidecar.read_checked(block.offset, length, Some(block.checksum), what)?;
            Block::decode(&bytes, count).ok_or_else(|| self.sidecar.damaged("a block is malformed"))
        })
    }
}
