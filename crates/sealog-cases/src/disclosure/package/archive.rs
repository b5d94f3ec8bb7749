//! A ZIP, written from the beginning to the end: entries have names that are fixed here, one date and one
//! mode, so that the same contents have the same bytes. Sizes and checksums stand behind each entry and in
//! the directory.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use sealog_core::id::Hash;
use sha2::{Digest, Sha256};

/// A ZIP without 64-bit sizes holds less than four gigabytes in an entry.
pub const ENTRY_BYTES_MAX: u64 = 1 << 30;

pub(super) const LOCAL_HEADER_BYTES: u64 = 30;
pub(super) const DESCRIPTOR_BYTES: u64 = 16;
/// Names are UTF-8.
pub(super) const UTF8: u16 = 1 << 11;
/// Sizes stand behind the data.
const SIZES_BEHIND: u16 = 1 << 3;
const VERSION: u16 = 20;
const DEFLATED: u16 = 8;
/// 1 January 1980, the first day that a ZIP can name.
pub(super) const DATE: u16 = (1 << 5) | 1;
/// A file that its owner can write and all can read.
pub(super) const MODE: u32 = 0o100_644 << 16;
/// Made on Unix.
pub(super) const MADE_BY: u16 = 3 << 8;

/// An entry that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub size: u64,
    pub compressed: u64,
    pub crc: u32,
    pub sha256: Hash,
}

/// Writes entries one after the other. What it has written is taken from it in pieces.
pub struct ArchiveWriter {
    out: Vec<u8>,
    taken: u64,
    /// With where each begins.
    entries: Vec<(Entry, u64)>,
    open: Option<Open>,
}

struct Open {
    name: &'static str,
    begins: u64,
    deflate: DeflateEncoder<Vec<u8>>,
    crc: Crc,
    sha256: Sha256,
    compressed: u64,
}

impl Default for ArchiveWriter {
    fn default() -> ArchiveWriter {
        ArchiveWriter::new()
    }
}

impl ArchiveWriter {
    pub fn new() -> ArchiveWriter {
        ArchiveWriter { out: Vec::new(), taken: 0, entries: Vec::new(), open: None }
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    /// What was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        self.taken = self.length();
        std::mem::take(&mut self.out)
    }

    pub fn begin(&mut self, name: &'static str) {
        assert!(self.open.is_none(), "an entry is ended before the next one begins");
        let begins = self.length();
        put_u32(&mut self.out, 0x0403_4b50);
        for value in [VERSION, UTF8 | SIZES_BEHIND, DEFLATED, 0, DATE] {
            put_u16(&mut self.out, value);
        }
        for _ in 0..3 {
            put_u32(&mut self.out, 0);
        }
        put_u16(&mut self.out, small(name.len()));
        put_u16(&mut self.out, 0);
        self.out.extend_from_slice(name.as_bytes());
        self.open = Some(Open {
            name,
            begins,
            deflate: DeflateEncoder::new(Vec::new(), Compression::default()),
            crc: Crc::new(),
            sha256: Sha256::new(),
            compressed: 0,
        });
    }

    /// Bytes of the open entry, before they were compressed.
    pub fn size(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.deflate.total_in())
    }

    pub fn write(&mut self, bytes: &[u8]) {
        let open = self.open.as_mut().expect("an entry is open");
        open.crc.update(bytes);
        open.sha256.update(bytes);
        open.deflate.write_all(bytes).expect("memory takes what is written");
        open.compressed += open.deflate.get_ref().len() as u64;
        self.out.append(open.deflate.get_mut());
    }

    pub fn end(&mut self) {
        let Open { name, begins, deflate, crc, sha256, compressed } =
            self.open.take().expect("an entry is open");
        let size = deflate.total_in();
        let mut rest = deflate.finish().expect("memory takes what is written");
        let compressed = compressed + rest.len() as u64;
        self.out.append(&mut rest);
        put_u32(&mut self.out, 0x0807_4b50);
        put_u32(&mut self.out, crc.sum());
        put_u32(&mut self.out, small(compressed));
        put_u32(&mut self.out, small(size));
        let sha256 = Hash(sha256.finalize().into());
        self.entries.push((Entry { name: name.into(), size, compressed, crc: crc.sum(), sha256 }, begins));
    }

    /// A whole entry.
    pub fn put(&mut self, name: &'static str, content: &[u8]) {
        self.begin(name);
        self.write(content);
        self.end();
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// Writes the directory.
    pub fn finish(&mut self) {
        assert!(self.open.is_none(), "an entry is ended before the archive is");
        let begins = self.length();
        for (entry, at) in &self.entries {
            put_u32(&mut self.out, 0x0201_4b50);
            for value in [MADE_BY | VERSION, VERSION, UTF8 | SIZES_BEHIND, DEFLATED, 0, DATE] {
                put_u16(&mut self.out, value);
            }
            put_u32(&mut self.out, entry.crc);
            put_u32(&mut self.out, small(entry.compressed));
            put_u32(&mut self.out, small(entry.size));
            put_directory_end(&mut self.out, &entry.name, 0, *at);
            self.out.extend_from_slice(entry.name.as_bytes());
        }
        let length = self.length() - begins;
        put_end(&mut self.out, self.entries.len(), length, begins);
    }
}

/// What follows the sizes in an entry of the directory.
pub(super) fn put_directory_end(out: &mut Vec<u8>, name: &str, extra: u16, at: u64) {
    put_u16(out, small(name.len()));
    put_u16(out, extra);
    // No comment, the first disk, no text.
    for _ in 0..3 {
        put_u16(out, 0);
    }
    put_u32(out, MODE);
    put_u32(out, small(at));
}

pub(super) fn put_end(out: &mut Vec<u8>, entries: usize, length: u64, begins: u64) {
    put_u32(out, 0x0605_4b50);
    for value in [0, 0, small(entries), small(entries)] {
        put_u16(out, value);
    }
    put_u32(out, small(length));
    put_u32(out, small(begins));
    put_u16(out, 0);
}

/// Packages are far smaller than what the fields of a ZIP hold.
pub(super) fn small<T: TryFrom<V>, V>(value: V) -> T {
    T::try_from(value).unwrap_or_else(|_| panic!("a package is smaller than this"))
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Cursor, Read};

    use super::*;

    pub(in super::super) fn example() -> (Vec<u8>, Vec<Entry>) {
        let mut writer = ArchiveWriter::new();
        writer.put("one.txt", b"first");
        writer.begin("two.bin");
        let noise: Vec<u8> =
            (0..300_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[1]).collect();
        let mut out = Vec::new();
        for piece in noise.chunks(70_001) {
            writer.write(piece);
            out.extend(writer.take());
        }
        writer.end();
        writer.put("empty.txt", b"");
        writer.finish();
        out.extend(writer.take());
        assert_eq!(out.len() as u64, writer.length());
        (out, writer.entries().cloned().collect())
    }

    #[test]
    fn another_reader_finds_what_was_written_and_the_bytes_are_the_same_each_time() {
        let (bytes, entries) = example();
        assert_eq!(bytes, example().0);
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        assert_eq!(archive.len(), 3);
        for (at, entry) in entries.iter().enumerate() {
            let mut file = archive.by_index(at).unwrap();
            assert_eq!(
                (file.name().unwrap().as_ref(), file.size(), file.crc32()),
                (entry.name.as_str(), entry.size, entry.crc)
            );
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            assert_eq!(Hash(Sha256::digest(&content).into()), entry.sha256);
        }
    }
}
