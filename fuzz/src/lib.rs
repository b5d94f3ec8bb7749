//! What must hold for any bytes at all. One function for each target; `tests/seeds.rs` runs the seeds through
//! the same functions.

#![forbid(unsafe_code)]

pub mod trust;

// The decoder of segments and the auditor's reader are private to their crates and stay so: they are compiled
// here once more, as they are.
#[allow(dead_code)]
#[path = "../../crates/sealog-store/src/bytes.rs"]
mod bytes;
#[allow(dead_code)]
#[path = "../../crates/sealog-store/src/embedded/log/format.rs"]
mod format;
#[allow(dead_code)]
#[path = "../../crates/sealog-verify/src/input.rs"]
mod input;
// What the decoder of segments asks whether a deliberate bug is switched on; here none is.
#[allow(dead_code)]
#[path = "../../crates/sealog-store/src/embedded/mutants.rs"]
mod mutants;

/// The paths under which the decoder finds that, and the key.
mod embedded {
    pub(crate) use crate::mutants;
}
mod append {
    pub(crate) use crate::IdempotencyKey;
}

use std::cell::Cell;
use std::rc::Rc;

use sealog_core::audit;
use sealog_core::canonical::EventText;
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{self, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, Random80, RequestId, TenantId, Ulid, Uuid};
use sealog_core::json::{self, Members};
use sealog_core::query::{self, ListQuery, PageLimit, PageParameter, SeqRange, VERIFY_EVENTS_MAX};
use sealog_core::{key, time};
use sealog_formats::input::{Adapter, EVENTS_BYTES_MAX, ITEMS_MAX};
use serde_json::Value;

/// As in the store, whose decoder is compiled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdempotencyKey {
    pub key_hash: Hash,
    pub fingerprint: Hash,
}

/// serde_json gives up at a depth of 128, and Sealog at none.
const SERDE_DEPTH_MAX: usize = 120;

fn chain() -> ChainId {
    ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid([2; 16])), mode: Mode::Live }
}

fn shallow(text: &str) -> bool {
    // More brackets than levels, which is the safe side.
    text.bytes().filter(|byte| b"[{".contains(byte)).count() <= SERDE_DEPTH_MAX
}

/// The scanner takes what serde_json takes, and its canonical text is the same value and the same text again.
pub fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let canonical = json::canonical(text);
    if shallow(text) {
        let other = serde_json::from_str::<serde::de::IgnoredAny>(text);
        assert_eq!(canonical.is_ok(), other.is_ok(), "{canonical:?} {other:?}");
    }
    let Ok(canonical) = canonical else { return };
    assert_eq!(json::canonical(&canonical).as_deref(), Ok(canonical.as_str()), "canonical text is canonical");
    assert!(canonical.len() <= 6 * text.len(), "nothing grows by more than an escape");
    // serde_json has no room for half of a surrogate pair; everything else is the same value before and
    // after.
    if shallow(text)
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        assert_eq!(serde_json::from_str::<Value>(&canonical).ok(), Some(value));
    }
    if canonical.starts_with('{') {
        let mut length = 2;
        for (name, value) in Members::of(&canonical) {
            length += name.len() + value.len() + 2;
            assert_eq!(json::canonical(value).as_deref(), Ok(value));
            assert_eq!(json::canonical(name).as_deref(), Ok(name));
        }
        assert!(
            length == 2 && canonical == "{}" || length == canonical.len() + 1,
            "no member is passed over"
        );
    }
}

/// A body is refused or becomes an event that survives being stored, returned and read back.
pub fn event(data: &[u8]) {
    let single = event::parse_single(data);
    let _ = event::parse_batch(data);
    let Ok(single) = single else { return };
    let wrapped = [b"{\"events\":[", data, b"]}"].concat();
    let batch = event::parse_batch(&wrapped).expect("an event is JSON inside a batch, too");
    assert_eq!(
        (batch.count, &batch.events),
        (1, &vec![single.clone()]),
        "an event is the same alone and in a batch"
    );
    let draft = match single {
        Ok(draft) => draft,
        Err(reject) => {
            assert!((400..500).contains(&reject.code().status()) && !reject.to_string().is_empty());
            return;
        }
    };
    assert_eq!(EventText::from_stored(draft.text.as_str().to_owned()), Some(draft.text.clone()));
    let sealed = Head::EMPTY.seal(chain().tenant_id, &draft.text, 1_700_000_000_123, Random80([7; 10]));
    let stored = StoredEvent::new(chain(), sealed, draft);
    let mut text = Vec::new();
    stored.put_json(&mut text);
    let text = String::from_utf8(text).expect("an event is UTF-8");
    assert_eq!(StoredEvent::parse_json(&text), Ok(stored), "what is returned can be read back");
    assert_eq!(json::canonical(&text).as_deref(), Ok(text.as_str()));
    assert!(audit::parse_entry(&text).is_ok());
}

/// Query strings, cursors, keys and ids: refused, or within their bounds and with one spelling.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(list) = ListQuery::parse(text, chain()) {
        assert!((1..=usize::from(PageLimit::MAX)).contains(&list.limit.get()));
        for filter in
            [&list.filter.action, &list.filter.actor_id, &list.filter.resource].into_iter().flatten()
        {
            assert_eq!(json::canonical(filter).as_deref(), Ok(filter.as_str()));
        }
        if let Some(seq) = list.before_seq {
            let cursor = query::encode_cursor(seq, chain());
            assert!(
                text.to_ascii_uppercase().contains(&cursor) || text.contains('%'),
                "a cursor was made by this server"
            );
        }
    }
    if let Ok(range) = SeqRange::parse(text) {
        assert!(1 <= range.from && range.from <= range.to && range.to - range.from < VERIFY_EVENTS_MAX);
    }
    if let Ok(pairs) = PageParameter::read(text) {
        for (at, (parameter, value)) in pairs.iter().enumerate() {
            assert!(pairs[..at].iter().all(|(earlier, _)| earlier != parameter));
            let _ = query::integer(parameter.as_str(), value);
        }
    }
    let _ = key::parse_authorization(Some(text)).and_then(|presented| presented.check_form());
    if let Some(id) = Ulid::parse(text) {
        assert_eq!(id.to_string(), text.to_ascii_uppercase());
        assert_eq!(RequestId(id).to_string(), format!("req_{id}"));
    }
    if let Some(id) = Uuid::parse(text) {
        assert_eq!(id.to_string(), text.to_ascii_lowercase());
    }
    if let Some(hash) = Hash::parse(text) {
        assert_eq!(hash.to_string(), text);
    }
}

/// Times: refused, or the same time when written and read again.
pub fn time(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(ms) = time::parse_rfc3339_ms(text) {
        assert!(time::is_rfc3339(text) && ms <= time::TIMESTAMP_MS_MAX);
        assert_eq!(time::parse_rfc3339_ms(&time::iso_ms(ms)), Some(ms));
        assert_eq!(time::parse_iso_ms(&time::iso_ms(ms)), Some(ms));
    }
    if let Some(ms) = time::parse_iso_ms(text) {
        assert_eq!(time::iso_ms(ms), text, "a timestamp has one spelling");
        assert_eq!(time::parse_rfc3339_ms(text), Some(ms));
    }
    if let Some(date) = time::Date::parse(text) {
        assert!(date.start_ms() < date.end_ms());
    }
}

/// Bytes of a segment: a frame is refused, or what is in it can be written again. The first 24 bytes are the
/// segment's salt and the frame's place.
pub fn frame(data: &[u8]) {
    let Some((salt, rest)) = data.split_first_chunk::<16>() else { return };
    let Some((position, bytes)) = rest.split_first_chunk::<8>() else { return };
    // Segments are smaller than 4 GiB, and a frame is only looked for inside one.
    let position = u64::from_le_bytes(*position) & u64::from(u32::MAX);
    let _ = format::SegmentHeader::decode(bytes);
    read_frame(bytes, position, salt);
    // Random bytes never have the right checksums, so what is behind those is only reached when they are
    // mended.
    let mut mended = bytes.to_vec();
    if mend(&mut mended, position, salt).is_some() {
        read_frame(&mended, position, salt);
    }
}

fn read_frame(bytes: &[u8], position: u64, salt: &format::Salt) {
    let Some(frame) = format::Frame::decode(bytes, position, salt, Mode::Live) else { return };
    let header = frame.header;
    let events: Vec<Option<StoredEvent>> = frame.records().map(|record| record.event(header.chain)).collect();
    for record in frame.records() {
        let _ = record.raw_hash();
    }
    let key = frame.idempotency();
    let _ = (frame.running_checksum(0), header.group_start(), header.end());
    let Some(events) = events.into_iter().collect::<Option<Vec<_>>>().filter(|_| frame.intact()) else {
        return;
    };
    let mut again = Vec::new();
    let mut writer = format::FrameWriter::begin(&mut again, salt, header);
    for event in &events {
        let Sealed { chain_seq, log_id, prev_hash, hash } = event.sealed;
        writer.record(
            &Sealed { chain_seq, log_id, prev_hash, hash },
            event.text.as_str(),
            &event.annotations,
        );
    }
    writer.finish(key.as_ref(), 0);
    let copy =
        format::Frame::decode(&again, position, salt, Mode::Live).expect("what is written can be read");
    assert!(copy.intact());
    let read: Vec<_> = copy.records().map(|record| record.event(header.chain)).collect();
    assert_eq!(read, events.into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(copy.idempotency(), key);
}

/// Gives a frame the magic, place and checksums that it should have, by `docs/format.md`; nothing if it is
/// too short for that.
fn mend(bytes: &mut [u8], position: u64, salt: &format::Salt) -> Option<()> {
    let put = |bytes: &mut [u8], at: usize, with: &[u8]| {
        bytes.get_mut(at..at + with.len()).map(|to| to.copy_from_slice(with))
    };
    put(bytes, 0, format::FRAME_MAGIC)?;
    put(bytes, 8, &[1])?;
    put(bytes, 24, &position.to_le_bytes())?;
    let salted = crc32c::crc32c(salt);
    let header = crc32c::crc32c_append(salted, bytes.get(..84)?);
    put(bytes, 84, &header.to_le_bytes())?;
    let number = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let first_seq = u64::from_le_bytes(*bytes[64..].first_chunk()?);
    let count = u16::from_le_bytes([bytes[10], bytes[11]]);
    let mut at = format::FRAME_HEADER_LEN;
    for index in 0..u64::from(count) {
        let Some(length) = number(bytes, at).map(|length| length as usize) else { break };
        if length < 92 || at + length > bytes.len() {
            break;
        }
        let mut seed = salt.to_vec();
        seed.extend_from_slice(&bytes[32..64]);
        seed.extend_from_slice(&first_seq.wrapping_add(index).to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&seed), &bytes[at..at + length - 4]);
        put(bytes, at + length - 4, &checksum.to_le_bytes())?;
        at += length;
    }
    if bytes[9] & 1 != 0 && at + 84 <= bytes.len() {
        let placed = crc32c::crc32c_append(salted, &position.to_le_bytes());
        let checksum = crc32c::crc32c_append(placed, &bytes[at..at + 80]);
        put(bytes, at + 80, &checksum.to_le_bytes())?;
    }
    Some(())
}

/// Files for the auditor's program: read to their end or refused with a reason. What comes out is what
/// `sealog-verify` checks.
pub fn input(data: &[u8]) {
    let path = std::env::temp_dir().join(format!("sealog-fuzz-{}", std::process::id()));
    std::fs::write(&path, data).expect("the temporary directory can be written");
    let input = input::Input::open(&path, Rc::new(Cell::new(0)));
    // At once: it stays open, and the next one is a new file, which no file system has to sync.
    let _ = std::fs::remove_file(&path);
    let mut input = match input {
        Ok(input) => input,
        Err(problem) => return assert!(!problem.to_string().is_empty()),
    };
    let mut checking = audit::Audit::new(Vec::new());
    let mut before = None;
    loop {
        match input.next_event() {
            Ok(Some((text, offset))) => {
                assert!(before.is_none_or(|before| before < offset), "each event lies behind the one before");
                before = Some(offset);
                match audit::parse_entry(&text) {
                    Ok(entry) if checking.wants_more() => checking.entry(entry),
                    _ => break,
                }
            }
            Ok(None) => break,
            Err(problem) => return assert!(!problem.to_string().is_empty()),
        }
    }
    let _ = checking.finish();
}

/// What shippers send as JSON, by each of the adapters that take it.
pub fn adapters(data: &[u8]) {
    for adapter in [Adapter::Json, Adapter::CloudEvents, Adapter::OtlpJson] {
        items(adapter, data);
    }
}

/// Log records in Protocol Buffers.
pub fn otlp(data: &[u8]) {
    items(Adapter::OtlpProtobuf, data);
}

/// A body is refused with a reason, or its items are, one by one; what is left is within the bounds and is
/// what `POST /v1/events` takes.
fn items(adapter: Adapter, data: &[u8]) {
    let items = match adapter.items(data) {
        Ok(items) => items,
        Err(reject) => {
            assert!((400..500).contains(&reject.code().status()) && !reject.to_string().is_empty());
            return;
        }
    };
    assert!((1..=ITEMS_MAX).contains(&items.len()));
    let bytes: usize = items.iter().flatten().map(|item| item.len()).sum();
    assert!(bytes <= data.len().max(EVENTS_BYTES_MAX), "{} bytes became {bytes}", data.len());
    for item in items {
        match item {
            // As it was sent: it may be anything.
            Ok(item) if adapter == Adapter::Json => event(item.as_bytes()),
            Ok(item) => {
                assert_eq!(json::canonical(&item).as_deref(), Ok(&*item), "what is written is canonical");
                assert!(item.starts_with('{'));
                event(item.as_bytes());
            }
            Err(reject) => {
                assert!((400..500).contains(&reject.code().status()) && !reject.to_string().is_empty());
            }
        }
    }
}
