//! Which blocks of a run can hold a value, or two values together. One look at a few thousand bytes answers
//! it for all blocks of the run.
//!
//! A Bloom filter for each block, stored across instead of along: row *r* has bit *r* of the filter of every
//! block, side by side. A key is eight rows, and where all of them have a block's bit, the block may have the
//! key. All rows of a key lie in one page with its own checksum, so that a lookup is one read, and a flipped
//! bit is noticed instead of hiding events.
//!
//! t0: a tenant asks for what a frequent actor did with a frequent action. t1: both occur in every block, so
//! filters for single values exclude none, and a hundred thousand entries are compared for each segment. t2:
//! they never occur together. This is why pairs are entered too.

use std::io;

use super::block::{Block, FieldHashes};

const PROBES: u32 = 8;
/// Rows for each key of the block that has the most.
const ROWS_PER_KEY: usize = 16;
/// Fewer rows to a page would crowd some pages too much.
const PAGE_ROWS_MIN: usize = 256;
/// Smaller pages would be mostly checksum.
const PAGE_BITS_MIN: usize = 4096;
const CHECKSUM_LEN: usize = 4;

/// What is looked up. The kinds are kept apart, so that an actor is not found for a resource of the same
/// text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    fn new(kind: u32, first: u32, second: u32) -> Key {
        let seed = u64::from(kind) << 60 ^ u64::from(first) << 28 ^ u64::from(second);
        Key(mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// What to look up for an event with these values; 0 stands for any.
    pub(crate) fn of_probe(wanted: FieldHashes) -> Vec<Key> {
        let FieldHashes { action, actor_id, resource } = wanted;
        let pairs = [(3, action, actor_id), (4, action, resource), (5, actor_id, resource)];
        let together = pairs.into_iter().filter(|(_, first, second)| *first != 0 && *second != 0);
        let together: Vec<Key> =
            together.map(|(kind, first, second)| Key::new(kind, first, second)).collect();
        if !together.is_empty() {
            return together;
        }
        let alone = [(1, actor_id), (2, resource), (6, action)];
        let alone = alone.into_iter().filter(|(_, value)| *value != 0);
        alone.map(|(kind, value)| Key::new(kind, value, 0)).collect()
    }

    /// Of a member of `metadata`.
    pub(crate) fn of_field(hash: u32) -> Key {
        Key::new(7, hash, 0)
    }

    /// Everything that an event can be looked up by.
    fn of_event(hashes: FieldHashes) -> impl Iterator<Item = Key> {
        let FieldHashes { action, actor_id, resource } = hashes;
        let one = |kind, value| (value != 0).then(|| Key::new(kind, value, 0));
        let two = |kind, first, second| (first != 0 && second != 0).then(|| Key::new(kind, first, second));
        let keys = [
            one(1, actor_id),
            one(2, resource),
            two(3, action, actor_id),
            two(4, action, resource),
            two(5, actor_id, resource),
            one(6, action),
        ];
        keys.into_iter().flatten()
    }
}

/// The finalizer of MurmurHash3: every bit of the input reaches every bit of the result.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// How a run's filter is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub blocks: u32,
    pub pages: u32,
    pub page_rows: u32,
}

impl Shape {
    pub(crate) fn page_len(&self) -> usize {
        (self.page_rows as usize * self.blocks as usize).div_ceil(8) + CHECKSUM_LEN
    }

    fn page(&self, key: Key) -> u32 {
        scaled(key.0 >> 32, 32, self.pages)
    }

    fn rows(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let (low, high) = (mix(key.0 ^ 0xA5A5_A5A5), mix(key.0 ^ 0x5A5A_5A5A));
        let page_rows = self.page_rows;
        (0..PROBES).map(move |i| {
            let bits = if i < 4 { low >> (16 * i) } else { high >> (16 * (i - 4)) };
            scaled(bits & 0xFFFF, 16, page_rows) as usize
        })
    }

    fn bit(&self, row: usize, block: usize) -> usize {
        row * self.blocks as usize + block
    }
}

/// 64 bits from a position on; zeros behind the end.
fn bits_at(bits: &[u8], position: usize) -> u64 {
    let from = &bits[(position / 8).min(bits.len())..];
    let mut bytes = [0; 16];
    let length = from.len().min(9);
    bytes[..length].copy_from_slice(&from[..length]);
    let shifted = u128::from_le_bytes(bytes) >> (position % 8);
    u64::try_from(shifted & u128::from(u64::MAX)).unwrap_or(0)
}

/// A number of so many bits, brought down to below `limit`.
fn scaled(number: u64, bits: u32, limit: u32) -> u32 {
    u32::try_from((number * u64::from(limit)) >> bits).unwrap_or(0)
}

/// Makes the filter of a run.
pub(crate) fn build<'a>(blocks: impl Iterator<Item = &'a Block>) -> (Shape, Vec<u8>) {
    build_of(blocks.map(|block| (0..block.len()).flat_map(|at| Key::of_event(block.hashes(at))).collect()))
}

/// The same for members of `metadata`.
pub(crate) fn build_of_fields<'a>(blocks: impl Iterator<Item = &'a Block>) -> (Shape, Vec<u8>) {
    build_of(blocks.map(|block| block.fields().hashes().iter().map(|hash| Key::of_field(*hash)).collect()))
}

/// Each key once. Keys are hashes already, so each is looked for where it says itself, which takes a quarter
/// of the time of sorting them; `seen` is the memory of that.
fn distinct(mut keys: Vec<Key>, seen: &mut Vec<u64>) -> Vec<Key> {
    let room = (keys.len() * 2).next_power_of_two();
    seen.clear();
    seen.resize(room, 0);
    keys.retain(|Key(key)| {
        let mut at = usize::try_from(key & (room as u64 - 1)).unwrap_or(0);
        // A key that is 0 is never found, and is there as often as it was.
        while seen[at] != 0 {
            if seen[at] == *key {
                return false;
            }
            at = (at + 1) & (room - 1);
        }
        seen[at] = *key;
        true
    });
    keys
}

/// Makes a filter of the keys of each block.
fn build_of(blocks: impl Iterator<Item = Vec<Key>>) -> (Shape, Vec<u8>) {
    let mut seen = Vec::new();
    let keys: Vec<Vec<Key>> = blocks.map(|keys| distinct(keys, &mut seen)).collect();
    let count = keys.len();
    let rows = keys.iter().map(Vec::len).max().unwrap_or(0) * ROWS_PER_KEY;
    let page_rows = rows.clamp(1, PAGE_ROWS_MIN.max(PAGE_BITS_MIN / count.max(1)));
    let as_u32 = |number: usize| u32::try_from(number).expect("a segment is smaller than 4 GiB");
    let shape = Shape {
        blocks: as_u32(count),
        pages: as_u32(rows.div_ceil(page_rows).max(1)),
        page_rows: as_u32(page_rows),
    };
    let mut filter = vec![0; shape.page_len() * shape.pages as usize];
    for (block, keys) in keys.into_iter().enumerate() {
        for key in keys {
            let page = shape.page(key) as usize * shape.page_len();
            for row in shape.rows(key) {
                let bit = shape.bit(row, block);
                filter[page + bit / 8] |= 1 << (bit % 8);
            }
        }
    }
    for page in filter.chunks_exact_mut(shape.page_len()) {
        let (bits, checksum) = page.split_at_mut(shape.page_len() - CHECKSUM_LEN);
        checksum.copy_from_slice(&crc32c::crc32c(bits).to_le_bytes());
    }
    (shape, filter)
}

/// The blocks that may have all of the keys, in ascending order. `read` gives a part of the filter.
pub(crate) fn candidates(
    shape: &Shape,
    keys: &[Key],
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
    damaged: impl Fn() -> io::Error,
) -> io::Result<Vec<usize>> {
    let count = shape.blocks as usize;
    // A bit for each block that has all keys as far as is known.
    let mut blocks = vec![u64::MAX; count.div_ceil(64)];
    if let Some(last) = blocks.last_mut().filter(|_| !count.is_multiple_of(64)) {
        *last = (1 << (count % 64)) - 1;
    }
    for key in keys {
        let page = read(u64::from(shape.page(*key)) * shape.page_len() as u64, shape.page_len())?;
        let (bits, checksum) = page.split_at(page.len() - CHECKSUM_LEN);
        if crc32c::crc32c(bits).to_le_bytes() != checksum {
            return Err(damaged());
        }
        for row in shape.rows(*key) {
            for (number, word) in blocks.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
                *word &= bits_at(bits, shape.bit(row, number * 64));
            }
        }
        if blocks.iter().all(|word| *word == 0) {
            break;
        }
    }
    let of_word = |(number, word): (usize, u64)| {
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| number * 64 + bit)
    };
    Ok(blocks.into_iter().enumerate().filter(|(_, word)| *word != 0).flat_map(of_word).collect())
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Ulid;

    use super::super::block::{BLOCK_EVENTS, Entry};
    use super::*;

    fn blocks(count: usize, last: usize, hashes: impl Fn(u32) -> FieldHashes) -> Vec<Block> {
        let mut n = 0;
        (0..count)
            .map(|number| {
                let mut block = Block::default();
                for _ in 0..if number + 1 == count { last } else { BLOCK_EVENTS } {
                    block.push(&Entry { log_id: Ulid(u128::from(n)), position: n, hashes: hashes(n) }, &[]);
                    n += 1;
                }
                block
            })
            .collect()
    }

    fn look((shape, filter): &(Shape, Vec<u8>), wanted: FieldHashes) -> Vec<usize> {
        let read = |offset: u64, length: usize| {
            let offset = usize::try_from(offset).unwrap();
            Ok(filter[offset..offset + length].to_vec())
        };
        candidates(shape, &Key::of_probe(wanted), read, || io::ErrorKind::InvalidData.into()).unwrap()
    }

    /// As in a busy service: few actions, many actors, most resources once.
    fn busy(n: u32) -> FieldHashes {
        let spread = n.wrapping_mul(0x9E37_79B1);
        FieldHashes { action: spread % 20 + 1, actor_id: (spread >> 8) % 500, resource: n + 1 }
    }

    #[test]
    fn each_key_is_there_once() {
        let mut seen = Vec::new();
        for count in [0, 1, 2, 100, 5000] {
            let keys: Vec<Key> = (0..count).map(|n: u32| Key::of_field(n % 700)).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let mut once = distinct(keys, &mut seen);
            once.sort_unstable();
            assert_eq!(once, sorted);
        }
    }

    #[test]
    fn no_block_that_has_the_values_is_left_out() {
        for (count, last) in [(1, 1), (1, 10), (2, 300), (9, 1024), (100, 7)] {
            let filter = build(blocks(count, last, busy).iter());
            for n in (0..u32::try_from((count - 1) * BLOCK_EVENTS + last).unwrap()).step_by(97) {
                let FieldHashes { action, actor_id, resource } = busy(n);
                for wanted in [
                    FieldHashes { action, actor_id: 0, resource: 0 },
                    FieldHashes { action: 0, actor_id, resource: 0 },
                    FieldHashes { action: 0, actor_id: 0, resource },
                    FieldHashes { action, actor_id, resource: 0 },
                    FieldHashes { action, actor_id: 0, resource },
                    FieldHashes { action: 0, actor_id, resource },
                    FieldHashes { action, actor_id, resource },
                ] {
                    let found = look(&filter, wanted);
                    assert!(found.contains(&(n as usize / BLOCK_EVENTS)), "{n} {wanted:?}");
                }
            }
        }
    }

    #[test]
    fn values_that_never_meet_leave_hardly_a_block_to_look_into() {
        // Action 1 and actor 2 are in every block, and never in one event.
        let blocks = blocks(100, 1024, |n| match busy(n) {
            FieldHashes { action: 1, resource, .. } => FieldHashes { action: 1, actor_id: 3, resource },
            hashes => hashes,
        });
        let filter = build(blocks.iter());
        assert!(look(&filter, FieldHashes { actor_id: 2, ..FieldHashes::default() }).len() > 90);
        let left = look(&filter, FieldHashes { action: 1, actor_id: 2, resource: 0 });
        assert!(left.len() <= 2, "{left:?}");
        let absent = look(&filter, FieldHashes { action: 99, ..FieldHashes::default() });
        assert!(absent.len() <= 2, "{absent:?}");
    }

    #[test]
    fn a_filter_takes_about_ten_bytes_an_event_and_not_more_for_a_small_run() {
        for (count, last) in [(100, 1024), (8, 1024), (1, 1024), (1, 100), (1, 10)] {
            let (_, filter) = build(blocks(count, last, busy).iter());
            let events = (count - 1) * BLOCK_EVENTS + last;
            assert!(filter.len() <= events * 12 + 8, "{} bytes for {events} events", filter.len());
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_and_not_an_empty_page() {
        let blocks = blocks(3, 1024, busy);
        let (shape, mut filter) = build(blocks.iter());
        for byte in &mut filter {
            *byte ^= 1;
        }
        let read = |offset: u64, length: usize| {
            let offset = usize::try_from(offset).unwrap();
            Ok(filter[offset..offset + length].to_vec())
        };
        let keys = Key::of_probe(busy(5));
        assert!(candidates(&shape, &keys, read, || io::ErrorKind::InvalidData.into()).is_err());
    }
}
