//! Bytes of segments: `docs/format.md`, section 3. Encoding and decoding stand side by side here and nowhere
//! else.

use crc32c::crc32c_append;
use sealog_core::canonical::{self, EventText};
use sealog_core::chain::Sealed;
use sealog_core::event::{Annotations, BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::verify::Record;

use crate::append::IdempotencyKey;
use crate::bytes::Take;
use crate::embedded::mutants::{self, Mutant};

pub(crate) const SEGMENT_HEADER_LEN: usize = 128;
pub(crate) const FRAME_HEADER_LEN: usize = 88;
/// A record without its annotations and text.
const RECORD_FIXED_LEN: usize = 92;
const RECORD_TEXT_AT: usize = 88;
const IDEMPOTENCY_LEN: usize = 84;
/// Larger than any request can become; a length beyond it is not one.
pub(crate) const FRAME_LEN_MAX: usize = 16 << 20;
pub(crate) const FORMAT_VERSION: u32 = 1;
const SEGMENT_MAGIC: &[u8; 8] = b"SEALOGSG";
pub(crate) const FRAME_MAGIC: &[u8; 4] = b"SLFR";
/// A frame's version says how its records are laid out and which `schema_version` they have. The next
/// `schema_version` is the next frame version.
const FRAME_VERSION: u8 = 1;
/// Of every record in a frame of [`FRAME_VERSION`].
pub(crate) const FRAME_SCHEMA_VERSION: u32 = 1;
const FLAG_IDEMPOTENCY: u8 = 1;
const FLAG_IMPORTED: u8 = 2;
const ANNOTATIONS_VERSION: u8 = 1;

/// No chain, no log and no row of segments gets near these. A larger number was put there by someone, and
/// counting on from it would overflow.
pub(crate) const SEQ_MAX: u64 = u64::MAX >> 1;
pub(crate) const COMMIT_MAX: u64 = u64::MAX >> 1;
pub(crate) const SEGMENT_MAX: u64 = 999_999_999_999_999;

pub(crate) type Salt = [u8; 16];

/// Lengths inside a segment fit in 32 bits: segments and frames are far smaller than 4 GiB.
pub(crate) fn u32_len(length: usize) -> u32 {
    u32::try_from(length).expect("lengths are bounded before they get here")
}

pub(crate) fn put_chain(chain: ChainId, out: &mut Vec<u8>) {
    out.extend_from_slice(&chain.tenant_id.0.0);
    out.extend_from_slice(&chain.project_id.0.0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub mode: Mode,
    pub recovered: bool,
    pub number: u64,
    pub salt: Salt,
    pub first_commit: u64,
    pub created_ms: u64,
    pub before: Option<Predecessor>,
}

/// What a segment says of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub number: u64,
    pub final_len: u64,
    pub checksum: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged,
    UnknownVersion(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let before = self.before.unwrap_or(Predecessor { number: 0, final_len: 0, checksum: 0 });
        let mut out = Vec::with_capacity(SEGMENT_HEADER_LEN);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.push(u8::from(self.mode == Mode::Test));
        out.push(u8::from(self.recovered));
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.first_commit.to_le_bytes());
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&before.number.to_le_bytes());
        out.extend_from_slice(&before.final_len.to_le_bytes());
        out.extend_from_slice(&before.checksum.to_le_bytes());
        out.resize(SEGMENT_HEADER_LEN - 4, 0);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderError> {
        let bytes = bytes.get(..SEGMENT_HEADER_LEN).ok_or(HeaderError::Damaged)?;
        let (content, checksum) = bytes.split_at(SEGMENT_HEADER_LEN - 4);
        let mut take = Take(content);
        let read = |take: &mut Take<'_>| {
            if take.bytes(8)? != SEGMENT_MAGIC || checksum != crc32c::crc32c(content).to_le_bytes() {
                return None;
            }
            take.u32()
        };
        match read(&mut take) {
            None => return Err(HeaderError::Damaged),
            Some(FORMAT_VERSION) => {}
            Some(version) => return Err(HeaderError::UnknownVersion(version)),
        }
        let rest = |take: &mut Take<'_>| {
            let mode = if take.u8()? == 0 { Mode::Live } else { Mode::Test };
            let recovered = take.u8()? == 1;
            take.bytes(2)?;
            let (number, salt, first_commit, created_ms) =
                (take.u64()?, take.array()?, take.u64()?, take.u64()?);
            let before = Predecessor { number: take.u64()?, final_len: take.u64()?, checksum: take.u32()? };
            let before = (before.number != 0).then_some(before);
            if number > SEGMENT_MAX || first_commit > COMMIT_MAX {
                return None;
            }
            Some(SegmentHeader { mode, recovered, number, salt, first_commit, created_ms, before })
        };
        rest(&mut take).ok_or(HeaderError::Damaged)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub length: u32,
    pub idempotency: bool,
    pub imported: bool,
    pub count: u16,
    pub group_back: u32,
    pub commit: u64,
    pub position: u64,
    pub chain: ChainId,
    pub first_seq: u64,
    pub received_ms: u64,
}

impl FrameHeader {
    fn encode(&self, salt: &Salt) -> [u8; FRAME_HEADER_LEN] {
        let mut out = Vec::with_capacity(FRAME_HEADER_LEN);
        out.extend_from_slice(FRAME_MAGIC);
        out.extend_from_slice(&self.length.to_le_bytes());
        out.push(FRAME_VERSION);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(flag(self.idempotency, FLAG_IDEMPOTENCY) | flag(self.imported, FLAG_IMPORTED));
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.group_back.to_le_bytes());
        out.extend_from_slice(&self.commit.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        put_chain(self.chain, &mut out);
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.received_ms.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let checksum = crc32c_append(crc32c::crc32c(salt), &out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.try_into().expect("the fields above have this length")
    }

    /// The header of a frame that stands at `position`, if its checksum is right and it says so itself.
    pub(crate) fn decode(bytes: &[u8], position: u64, salt: &Salt, mode: Mode) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_LEN)?;
        // Before the checksum: the search for the next frame behind damage comes here for every candidate.
        if &bytes[..4] != FRAME_MAGIC || bytes[24..32] != position.to_le_bytes() {
            return None;
        }
        let (content, checksum) = bytes.split_at(FRAME_HEADER_LEN - 4);
        if checksum != crc32c_append(crc32c::crc32c(salt), content).to_le_bytes() {
            return None;
        }
        let mut take = Take(&content[4..]);
        let length = take.u32()?;
        if take.u8()? != FRAME_VERSION {
            return None;
        }
        let flags = take.u8()?;
        let (count, group_back, commit, position) = (take.u16()?, take.u32()?, take.u64()?, take.u64()?);
        let chain = take.chain(mode)?;
        let (first_seq, received_ms) = (take.u64()?, take.u64()?);
        let sane = (FRAME_HEADER_LEN..=FRAME_LEN_MAX).contains(&(length as usize))
            && (1..=BATCH_EVENTS_MAX).contains(&usize::from(count))
            && u64::from(group_back) <= position
            && commit <= COMMIT_MAX
            && first_seq.checked_add(u64::from(count)).is_some_and(|end| end <= SEQ_MAX);
        sane.then_some(FrameHeader {
            length,
            idempotency: flags & FLAG_IDEMPOTENCY != 0,
            imported: flags & FLAG_IMPORTED != 0,
            count,
            group_back,
            commit,
            position,
            chain,
            first_seq,
            received_ms,
        })
    }

    /// Where this frame's commit group begins.
    pub(crate) fn group_start(&self) -> u64 {
        self.position - u64::from(self.group_back)
    }

    pub(crate) fn end(&self) -> u64 {
        self.position + u64::from(self.length)
    }
}

/// The idempotency record of a frame, and the `request_id` of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredKey {
    pub key: IdempotencyKey,
    pub request_id: Ulid,
}

/// A frame being written into a buffer.
pub(crate) struct FrameWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    salt: &'a Salt,
    header: FrameHeader,
    /// Of the parts behind the header, as stored.
    checksums: Vec<u8>,
}

impl<'a> FrameWriter<'a> {
    /// `header.length`, `count` and `idempotency` are filled in at the end.
    pub(crate) fn begin(out: &'a mut Vec<u8>, salt: &'a Salt, header: FrameHeader) -> FrameWriter<'a> {
        let start = out.len();
        out.resize(start + FRAME_HEADER_LEN, 0);
        FrameWriter { out, start, salt, header: FrameHeader { count: 0, ..header }, checksums: Vec::new() }
    }

    /// Adds a record and returns its offset in the segment.
    pub(crate) fn record(&mut self, sealed: &Sealed, text: &str, annotations: &Annotations) -> u32 {
        let chain_seq = self.header.first_seq + u64::from(self.header.count);
        assert_eq!(sealed.chain_seq, chain_seq, "records of a frame follow each other");
        self.header.count += 1;
        let start = self.out.len();
        let offset = self.header.position + (start - self.start) as u64;
        self.out.extend_from_slice(&[0; 8]);
        self.out.extend_from_slice(&sealed.log_id.to_bytes());
        self.out.extend_from_slice(&sealed.prev_hash.0);
        self.out.extend_from_slice(&sealed.hash.0);
        put_annotations(annotations, self.out);
        let annotations_len = u32_len(self.out.len() - start - RECORD_TEXT_AT);
        self.out.extend_from_slice(text.as_bytes());
        let length = u32_len(self.out.len() - start + 4);
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.out[start + 4..start + 8].copy_from_slice(&annotations_len.to_le_bytes());
        let checksum = record_checksum(&self.out[start..], self.salt, self.header.chain, chain_seq);
        self.put_checksum(checksum);
        u32::try_from(offset).expect("segments are smaller than 4 GiB")
    }

    /// Adds a record of another frame as it is, whatever is in it; only its checksum is made anew.
    pub(crate) fn copy(&mut self, record: &RecordSlice<'_>) {
        self.header.count += 1;
        let content = &record.bytes[..record.bytes.len() - 4];
        self.out.extend_from_slice(content);
        let checksum = record_checksum(content, self.salt, self.header.chain, record.chain_seq);
        self.put_checksum(checksum);
    }

    /// Completes the frame and returns the running checksum behind it.
    pub(crate) fn finish(mut self, key: Option<&StoredKey>, running: u32) -> u32 {
        if let Some(stored) = key {
            let start = self.out.len();
            self.out.extend_from_slice(&stored.key.key_hash.0);
            self.out.extend_from_slice(&stored.key.fingerprint.0);
            self.out.extend_from_slice(&stored.request_id.to_bytes());
            let checksum = idempotency_checksum(&self.out[start..], self.salt, self.header.position);
            self.put_checksum(checksum);
        }
        self.header.idempotency = key.is_some();
        self.header.length = u32_len(self.out.len() - self.start);
        let header = self.header.encode(self.salt);
        self.out[self.start..self.start + FRAME_HEADER_LEN].copy_from_slice(&header);
        crc32c_append(crc32c_append(running, &header[FRAME_HEADER_LEN - 4..]), &self.checksums)
    }

    fn put_checksum(&mut self, checksum: u32) {
        self.out.extend_from_slice(&checksum.to_le_bytes());
        self.checksums.extend_from_slice(&checksum.to_le_bytes());
    }
}

fn record_checksum(content: &[u8], salt: &Salt, chain: ChainId, chain_seq: u64) -> u32 {
    RecordSeed::new(salt, chain).checksum(content, chain_seq)
}

/// The part of a record's checksum that all records of a chain in a segment have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSeed(u32);

impl RecordSeed {
    pub(crate) fn new(salt: &Salt, chain: ChainId) -> RecordSeed {
        let mut seed = [0u8; 48];
        seed[..16].copy_from_slice(salt);
        seed[16..32].copy_from_slice(&chain.tenant_id.0.0);
        seed[32..].copy_from_slice(&chain.project_id.0.0);
        RecordSeed(crc32c::crc32c(&seed))
    }

    fn checksum(self, content: &[u8], chain_seq: u64) -> u32 {
        crc32c_append(crc32c_append(self.0, &chain_seq.to_le_bytes()), content)
    }

    fn is_right(self, record: &[u8], chain_seq: u64) -> bool {
        let (content, checksum) = record.split_at(record.len() - 4);
        checksum == self.checksum(content, chain_seq).to_le_bytes()
            || mutants::on(Mutant::FrameWithoutChecksum)
    }
}

fn idempotency_checksum(content: &[u8], salt: &Salt, position: u64) -> u32 {
    crc32c_append(crc32c_append(crc32c::crc32c(salt), &position.to_le_bytes()), content)
}

/// A frame in memory whose header is right. Its parts may still be damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub header: FrameHeader,
    bytes: &'a [u8],
    salt: &'a Salt,
}

/// A record cut out of a frame: which one, where, and whether its checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSlice<'a> {
    pub chain_seq: u64,
    /// In the segment.
    pub offset: u32,
    bytes: &'a [u8],
    pub intact: bool,
}

impl<'a> Frame<'a> {
    pub(crate) fn decode(bytes: &'a [u8], position: u64, salt: &'a Salt, mode: Mode) -> Option<Frame<'a>> {
        let header = FrameHeader::decode(bytes, position, salt, mode)?;
        let bytes = bytes.get(..header.length as usize)?;
        Some(Frame { header, bytes, salt })
    }

    /// The records, as far as their lengths lead. Where a length is damaged, the records behind it cannot be
    /// found.
    pub(crate) fn records(&self) -> impl Iterator<Item = RecordSlice<'a>> + use<'a> {
        let Frame { header, bytes, salt } = *self;
        let end = bytes.len()
            - if header.idempotency { IDEMPOTENCY_LEN.min(bytes.len() - FRAME_HEADER_LEN) } else { 0 };
        let mut at = FRAME_HEADER_LEN;
        (0..u64::from(header.count)).map_while(move |index| {
            let length = record_len(bytes.get(at..end)?)?;
            let record = bytes.get(at..at + length).filter(|_| at + length <= end)?;
            let chain_seq = header.first_seq + index;
            let offset = u32::try_from(header.position + at as u64).ok()?;
            at += length;
            let intact = record_intact(record, salt, header.chain, chain_seq);
            Some(RecordSlice { chain_seq, offset, bytes: record, intact })
        })
    }

    pub(crate) fn idempotency(&self) -> Option<StoredKey> {
        if !self.header.idempotency {
            return None;
        }
        let at = self.bytes.len().checked_sub(IDEMPOTENCY_LEN).filter(|at| *at >= FRAME_HEADER_LEN)?;
        let (content, checksum) = self.bytes[at..].split_at(IDEMPOTENCY_LEN - 4);
        if checksum != idempotency_checksum(content, self.salt, self.header.position).to_le_bytes() {
            return None;
        }
        let mut take = Take(content);
        Some(StoredKey {
            key: IdempotencyKey { key_hash: take.hash()?, fingerprint: take.hash()? },
            request_id: take.ulid()?,
        })
    }

    /// Whether every part has the right checksum and the parts fill the frame exactly.
    pub(crate) fn intact(&self) -> bool {
        let (mut count, mut length) = (0, FRAME_HEADER_LEN);
        for record in self.records() {
            if !record.intact {
                return false;
            }
            count += 1;
            length += record.bytes.len();
        }
        if self.header.idempotency {
            length += IDEMPOTENCY_LEN;
            if self.idempotency().is_none() {
                return false;
            }
        }
        count == self.header.count && length == self.bytes.len()
    }

    /// The segment's running checksum, continued over this frame's checksums.
    pub(crate) fn running_checksum(&self, running: u32) -> u32 {
        let header = crc32c_append(running, &self.bytes[FRAME_HEADER_LEN - 4..FRAME_HEADER_LEN]);
        let records = self
            .records()
            .fold(header, |sum, record| crc32c_append(sum, &record.bytes[record.bytes.len() - 4..]));
        if self.header.idempotency {
            crc32c_append(records, &self.bytes[self.bytes.len() - 4..])
        } else {
            records
        }
    }
}

/// The length that a record's first bytes name, if it is possible.
pub(crate) fn record_len(bytes: &[u8]) -> Option<usize> {
    let length = Take(bytes).u32()? as usize;
    (RECORD_FIXED_LEN..=FRAME_LEN_MAX).contains(&length).then_some(length)
}

fn record_intact(record: &[u8], salt: &Salt, chain: ChainId, chain_seq: u64) -> bool {
    RecordSeed::new(salt, chain).is_right(record, chain_seq)
}

/// What is counted of a record, where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance<'a> {
    pub log_id: Ulid,
    pub text: &'a str,
    pub severity: Option<&'a str>,
    pub country: Option<&'a str>,
}

impl<'a> RecordSlice<'a> {
    /// Nothing for a record that is damaged.
    pub(crate) fn glance(&self) -> Option<Glance<'a>> {
        let mut take = Take(self.bytes.get(..self.bytes.len() - 4).filter(|_| self.intact)?);
        take.u32()?;
        let annotations_len = take.u32()? as usize;
        let log_id = take.ulid()?;
        take.bytes(64)?;
        let (mut severity, mut country) = (None, None);
        each_annotation(take.bytes(annotations_len)?, |tag, value| {
            match *Annotations::NAMES.get(usize::from(tag).checked_sub(1)?)? {
                "severity" => severity = Some(std::str::from_utf8(value).ok()?),
                "country" => country = Some(std::str::from_utf8(value).ok()?),
                _ => {}
            }
            Some(())
        })?;
        Some(Glance { log_id, text: std::str::from_utf8(take.0).ok()?, severity, country })
    }
}

impl RecordSlice<'_> {
    /// What stands where the hash should be, even if the record is damaged.
    pub(crate) fn raw_hash(&self) -> Hash {
        self.bytes.get(56..88).and_then(|bytes| bytes.try_into().ok()).map_or(Hash::ZERO, Hash)
    }

    /// What is verified of it, where it stands. Nothing for a record that is damaged.
    pub(crate) fn verifiable(&self, chain: ChainId) -> Option<Record<'_>> {
        if self.intact { borrow_checked(self.bytes, chain, self.chain_seq) } else { None }
    }

    pub(crate) fn event(&self, chain: ChainId) -> Option<StoredEvent> {
        if self.intact { decode_event(self.bytes, chain, self.chain_seq) } else { None }
    }
}

/// The event in a record, if the record is intact and is this event's.
pub(crate) fn decode_record(
    record: &[u8],
    salt: &Salt,
    chain: ChainId,
    chain_seq: u64,
) -> Option<StoredEvent> {
    if record.len() < RECORD_FIXED_LEN || !record_intact(record, salt, chain, chain_seq) {
        return None;
    }
    decode_event(record, chain, chain_seq)
}

/// As [`decode_record`], for a look at what is verified without taking it out of the buffer.
pub(crate) fn borrow_record<'a>(
    record: &'a [u8],
    seed: RecordSeed,
    chain: ChainId,
    chain_seq: u64,
) -> Option<Record<'a>> {
    if record.len() < RECORD_FIXED_LEN || !seed.is_right(record, chain_seq) {
        return None;
    }
    borrow_checked(record, chain, chain_seq)
}

/// Of a record whose checksum is right.
fn borrow_checked(record: &[u8], chain: ChainId, chain_seq: u64) -> Option<Record<'_>> {
    let mut take = Take(&record[..record.len() - 4]);
    take.u32()?;
    let annotations_len = take.u32()? as usize;
    let (log_id, prev_hash, hash) = (take.ulid()?, take.hash()?, take.hash()?);
    check_annotations(take.bytes(annotations_len)?)?;
    let text = take.0;
    if !canonical::is_text(text) {
        return None;
    }
    let sealed = Sealed { chain_seq, log_id, prev_hash, hash };
    Some(Record { tenant_id: chain.tenant_id, sealed, timestamp_ms: sealed.timestamp_ms(), text })
}

fn decode_event(record: &[u8], chain: ChainId, chain_seq: u64) -> Option<StoredEvent> {
    let mut take = Take(&record[..record.len() - 4]);
    take.u32()?;
    let annotations_len = take.u32()? as usize;
    let (log_id, prev_hash, hash) = (take.ulid()?, take.hash()?, take.hash()?);
    let annotations = decode_annotations(take.bytes(annotations_len)?)?;
    let text = EventText::from_stored(std::str::from_utf8(take.0).ok()?.to_owned())?;
    let sealed = Sealed { chain_seq, log_id, prev_hash, hash };
    Some(StoredEvent {
        schema_version: FRAME_SCHEMA_VERSION,
        tenant_id: chain.tenant_id,
        project_id: chain.project_id,
        timestamp_ms: sealed.timestamp_ms(),
        sealed,
        text,
        annotations,
    })
}

fn put_annotations(annotations: &Annotations, out: &mut Vec<u8>) {
    // The tags are the numbers of the fields, from 1.
    let fields = annotations.values();
    if fields.iter().all(Option::is_none) {
        return;
    }
    out.push(ANNOTATIONS_VERSION);
    out.extend_from_slice(&0u32.to_le_bytes());
    for (tag, field) in (1u8..).zip(fields) {
        if let Some(value) = field {
            out.push(tag);
            let length = u16::try_from(value.len()).expect("annotations are short texts; ingest bounds them");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(value.as_bytes());
        }
    }
}

fn decode_annotations(bytes: &[u8]) -> Option<Annotations> {
    let mut values = [None; Annotations::NAMES.len()];
    each_annotation(bytes, |tag, value| {
        *values.get_mut(usize::from(tag).checked_sub(1)?)? = Some(std::str::from_utf8(value).ok()?);
        Some(())
    })?;
    Some(Annotations::from_values(values))
}

/// Whether [`decode_annotations`] would succeed.
fn check_annotations(bytes: &[u8]) -> Option<()> {
    let is_ascii = bytes.is_ascii();
    each_annotation(bytes, |tag, value| {
        let is_text = is_ascii || std::str::from_utf8(value).is_ok();
        (is_text && (1..=Annotations::NAMES.len()).contains(&usize::from(tag))).then_some(())
    })
}

/// Passes on each tag and value; nothing when the block is not one that this program writes.
fn each_annotation<'a>(bytes: &'a [u8], mut act: impl FnMut(u8, &'a [u8]) -> Option<()>) -> Option<()> {
    if bytes.is_empty() {
        return Some(());
    }
    let mut take = Take(bytes);
    // Another version or an encrypted block is not something that this program has ever written.
    if take.u8()? != ANNOTATIONS_VERSION || take.u32()? != 0 {
        return None;
    }
    while !take.0.is_empty() {
        let tag = take.u8()?;
        let length = usize::from(take.u16()?);
        act(tag, take.bytes(length)?)?;
    }
    Some(())
}

/// What an encoded record takes, for planning.
pub(crate) fn record_len_of(text: &str, annotations: &Annotations) -> usize {
    let fields: usize = annotations.values().iter().flatten().map(|value| value.len() + 3).sum();
    RECORD_FIXED_LEN + text.len() + if fields == 0 { 0 } else { fields + 5 }
}

/// Longest annotation value that a record can hold.
pub(crate) const ANNOTATION_BYTES_MAX: usize = u16::MAX as usize;

/// Upper bound of what a frame takes besides its records.
pub(crate) const FRAME_OVERHEAD: usize = FRAME_HEADER_LEN + IDEMPOTENCY_LEN;

/// Whether every annotation fits in a record.
pub(crate) fn annotations_fit(annotations: &Annotations) -> bool {
    annotations.values().iter().flatten().all(|value| value.len() <= ANNOTATION_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::canonical::Fields;
    use sealog_core::chain::Head;
    use sealog_core::event::Draft;
    use sealog_core::id::{ProjectId, Random80, TenantId, Uuid};

    const SALT: Salt = [9; 16];

    fn chain() -> ChainId {
        ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid([2; 16])), mode: Mode::Live }
    }

    fn event(head: Head, actor: &str) -> StoredEvent {
        let text = EventText::new(Fields {
            action: "\"a.b\"",
            actor_id: Some(actor),
            resource: None,
            metadata: Some("{\"n\":1.0}"),
        });
        let annotations =
            Annotations { category: Some("c".into()), city: Some("Köln".into()), ..Annotations::default() };
        let sealed = head.seal(chain().tenant_id, &text, 1000, Random80([3; 10]));
        StoredEvent::new(chain(), sealed, Draft { text, annotations })
    }

    fn frame(events: &[StoredEvent], key: Option<&StoredKey>) -> Vec<u8> {
        let mut out = Vec::new();
        let header = FrameHeader {
            length: 0,
            idempotency: false,
            imported: false,
            count: 0,
            group_back: 100,
            commit: 7,
            position: 500,
            chain: chain(),
            first_seq: events[0].sealed.chain_seq,
            received_ms: 1234,
        };
        let mut writer = FrameWriter::begin(&mut out, &SALT, header);
        let mut at = 500 + FRAME_HEADER_LEN;
        for event in events {
            assert_eq!(writer.record(&event.sealed, event.text.as_str(), &event.annotations) as usize, at);
            at += record_len_of(event.text.as_str(), &event.annotations);
        }
        let running = writer.finish(key, 77);
        assert_eq!(Frame::decode(&out, 500, &SALT, Mode::Live).unwrap().running_checksum(77), running);
        out
    }

    fn two_events() -> [StoredEvent; 2] {
        let first = event(Head::EMPTY, "\"x\"");
        let second = event(first.head(), "\"y\"");
        [first, second]
    }

    fn key() -> StoredKey {
        StoredKey {
            key: IdempotencyKey { key_hash: Hash([4; 32]), fingerprint: Hash([5; 32]) },
            request_id: Ulid(6),
        }
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let events = two_events();
        let bytes = frame(&events, Some(&key()));
        let frame = Frame::decode(&bytes, 500, &SALT, Mode::Live).unwrap();
        assert!(frame.intact());
        assert_eq!(frame.header.length as usize, bytes.len());
        assert_eq!(
            (frame.header.count, frame.header.commit, frame.header.group_start(), frame.header.received_ms),
            (2, 7, 400, 1234)
        );
        let read: Vec<_> = frame.records().map(|record| record.event(chain()).unwrap()).collect();
        assert_eq!(read, events);
        assert_eq!(frame.idempotency(), Some(key()));
    }

    #[test]
    fn a_flipped_bit_anywhere_in_a_frame_is_noticed() {
        let bytes = frame(&two_events(), Some(&key()));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let intact =
                    Frame::decode(&damaged, 500, &SALT, Mode::Live).is_some_and(|frame| frame.intact());
                assert!(!intact, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_frame_whose_events_would_have_no_number_is_not_a_frame() {
        for (first_seq, is_frame) in
            [(SEQ_MAX - 2, true), (SEQ_MAX - 1, false), (SEQ_MAX, false), (u64::MAX, false)]
        {
            let bytes = frame(&two_events(), None);
            let header = FrameHeader::decode(&bytes, 500, &SALT, Mode::Live).unwrap();
            let bytes =
                [&FrameHeader { first_seq, ..header }.encode(&SALT), &bytes[FRAME_HEADER_LEN..]].concat();
            let decoded = Frame::decode(&bytes, 500, &SALT, Mode::Live);
            assert_eq!(decoded.map(|frame| frame.records().count()), is_frame.then_some(2), "{first_seq}");
        }
    }

    #[test]
    fn a_frame_elsewhere_or_with_another_salt_is_not_a_frame() {
        let bytes = frame(&two_events(), None);
        assert!(Frame::decode(&bytes, 501, &SALT, Mode::Live).is_none());
        assert!(Frame::decode(&bytes, 500, &[8; 16], Mode::Live).is_none());
        assert!(Frame::decode(&bytes[..bytes.len() - 1], 500, &SALT, Mode::Live).is_none());
    }

    #[test]
    fn a_record_is_only_taken_for_the_event_that_it_is() {
        let events = two_events();
        let bytes = frame(&events, None);
        let length = record_len(&bytes[FRAME_HEADER_LEN..]).unwrap();
        let record = &bytes[FRAME_HEADER_LEN..FRAME_HEADER_LEN + length];
        assert_eq!(decode_record(record, &SALT, chain(), 1).as_ref(), Some(&events[0]));
        assert_eq!(decode_record(record, &SALT, chain(), 2), None);
        let other = ChainId { project_id: ProjectId(Uuid([3; 16])), ..chain() };
        assert_eq!(decode_record(record, &SALT, other, 1), None);
    }

    #[test]
    fn one_damaged_record_leaves_the_others_readable() {
        let events = two_events();
        let mut bytes = frame(&events, None);
        bytes[FRAME_HEADER_LEN + 30] ^= 1;
        let frame = Frame::decode(&bytes, 500, &SALT, Mode::Live).unwrap();
        assert!(!frame.intact());
        let intact: Vec<_> = frame.records().map(|record| (record.chain_seq, record.intact)).collect();
        assert_eq!(intact, [(1, false), (2, true)]);
    }

    #[test]
    fn a_segment_header_reads_back_and_damage_and_versions_are_told_apart() {
        let header = SegmentHeader {
            mode: Mode::Test,
            recovered: true,
            number: 7,
            salt: SALT,
            first_commit: 70,
            created_ms: 5,
            before: Some(Predecessor { number: 6, final_len: 1000, checksum: 3 }),
        };
        let bytes = header.encode();
        assert_eq!(bytes.len(), SEGMENT_HEADER_LEN);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        let mut damaged = bytes.clone();
        damaged[40] ^= 1;
        assert_eq!(SegmentHeader::decode(&damaged), Err(HeaderError::Damaged));
        assert_eq!(SegmentHeader::decode(&bytes[..127]), Err(HeaderError::Damaged));
        let mut newer = bytes;
        newer[8] = 2;
        let checksum = crc32c::crc32c(&newer[..124]).to_le_bytes();
        newer[124..].copy_from_slice(&checksum);
        assert_eq!(SegmentHeader::decode(&newer), Err(HeaderError::UnknownVersion(2)));
    }

    #[test]
    fn unknown_annotations_are_damage_not_silence() {
        for (bytes, known) in [
            (&[2, 0, 0, 0, 0][..], false),
            (&[1, 1, 0, 0, 0], false),
            (&[1, 0, 0, 0, 0, 10, 1, 0, b'x'], false),
            (&[1, 0, 0, 0, 0, 0, 1, 0, b'x'], false),
            (&[1, 0, 0, 0, 0, 9, 2, 0, b'x'], false),
            (&[1, 0, 0, 0, 0, 9, 1, 0, 0xFF], false),
            (&[1, 0, 0, 0, 0, 9, 2, 0, 0xC3, 0xB6], true),
            (&[1, 0, 0, 0, 0, 9, 1, 0, b'x'], true),
            (&[], true),
        ] {
            assert_eq!(decode_annotations(bytes).is_some(), known, "{bytes:?}");
            assert_eq!(check_annotations(bytes).is_some(), known, "{bytes:?}");
        }
    }
}
