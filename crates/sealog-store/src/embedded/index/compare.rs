//! An index file compared with the index that its segment makes.
//!
//! Checksums of an index file detect accidents: whoever forges a column makes them fit. What a column says is
//! proven by the events alone, so everything is made again from the segment, and section by section compared.

use std::collections::HashMap;
use std::io;

use super::salt::IndexSalt;
use super::sidecar::{self, KeyEntry, Part, SegmentEnd, SegmentIndex, Slot, kind};
use crate::embedded::log::disk::{DiskFile, read_exact};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    /// It can be read and cannot be compared: it was made with another salt.
    Stale,
    /// What is not as the segment has it.
    Other(Vec<&'static str>),
}

/// Compares a file with what the segment makes. At most one section of the expected length is in memory,
/// whatever the file says of itself.
pub(crate) fn compare(
    file: &dyn DiskFile,
    index: &SegmentIndex,
    end: &SegmentEnd,
    salt: &IndexSalt,
) -> io::Result<Compared> {
    let foreign = || Compared::Other(vec!["header"]);
    let Some(directory) = present(sidecar::read_directory(file, end))?.flatten() else {
        return Ok(foreign());
    };
    if directory.doubled {
        return Ok(foreign());
    }
    if directory.salt_id != salt.id() {
        return Ok(Compared::Stale);
    }
    let is_there = |part: &Part| -> io::Result<bool> {
        let Some(section) = directory.sections.get(&part.kind) else { return Ok(false) };
        let is_as_long = section.length == part.bytes.len()
            && section.entries as usize == part.entries
            && section.parameter == part.parameter
            && section.checksum == part.checksum.unwrap_or(0);
        if !is_as_long {
            return Ok(false);
        }
        let bytes = present(read_exact(file, section.offset, section.length))?;
        Ok(bytes.is_some_and(|bytes| bytes == part.bytes))
    };
    let mut other = Vec::new();
    let parts = index.parts(salt);
    for part in &parts {
        if !is_there(part)? {
            other.push(part.kind);
        }
    }
    // Keys where the segment has none.
    let has_keys = parts.iter().any(|part| part.kind == kind::KEYS);
    let key_kinds = [kind::KEYS, kind::KEY_FENCES, kind::KEY_FILTER];
    if !has_keys && key_kinds.iter().any(|kind| directory.sections.contains_key(kind)) {
        other.push(kind::KEYS);
    }
    if other.iter().any(|kind| key_kinds.contains(kind)) {
        // A key that was used again after its 24 hours: an index that was written from memory has its last
        // use, one that was built from the segment has both. Either finds the use that counts.
        let last = SegmentIndex { keys: last_uses(&index.keys), ..SegmentIndex::default() };
        let mut is_last = has_keys;
        for part in last.key_parts(salt) {
            is_last = is_last && is_there(&part)?;
        }
        if is_last {
            other.retain(|kind| !key_kinds.contains(kind));
        }
    }
    if other.is_empty() {
        return Ok(Compared::Same);
    }
    let mut words: Vec<&'static str> = other.into_iter().map(word).collect();
    words.sort_unstable();
    words.dedup();
    Ok(Compared::Other(words))
}

/// What the file does not have is no failure of the disk.
fn present<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn last_uses(keys: &[KeyEntry]) -> Vec<KeyEntry> {
    let mut last: HashMap<Slot, KeyEntry> = HashMap::new();
    for key in keys {
        let known = last.entry(key.slot).or_insert(*key);
        if known.position < key.position {
            *known = *key;
        }
    }
    last.into_values().collect()
}

/// What people call a section.
fn word(of: u16) -> &'static str {
    match of {
        kind::RUNS | kind::BLOCKS => "where events are",
        kind::FILTERS => "filters",
        kind::KEYS | kind::KEY_FENCES | kind::KEY_FILTER => "idempotency keys",
        kind::USAGE => "usage",
        _ => "members of metadata",
    }
}
