//! Where each event of a chain stands, and which blocks can hold a match. Derived from the log, never the
//! truth.

use std::sync::Arc;

use sealog_core::canonical::Fields;
use sealog_core::chain::Head;
use sealog_core::id::{Hash, Ulid};
use sealog_core::query::Filter;

use super::fields::FieldColumn;
use super::salt::IndexSalt;
use crate::bytes::Take;

pub(crate) const BLOCK_EVENTS: usize = 1024;

/// What the index keeps of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub log_id: Ulid,
    /// Of the record in its segment.
    pub position: u32,
    pub hashes: FieldHashes,
}

/// Hashes of the three fields that lists filter by; 0 for an absent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldHashes {
    pub action: u32,
    pub actor_id: u32,
    pub resource: u32,
}

impl FieldHashes {
    pub(crate) fn of(fields: &Fields<'_>, salt: &IndexSalt) -> FieldHashes {
        let hash = |text: Option<&str>| text.map_or(0, |text| salted(text, salt));
        FieldHashes {
            action: hash(Some(fields.action)),
            actor_id: hash(fields.actor_id),
            resource: hash(fields.resource),
        }
    }
}

/// Never 0 for a value that is there: it would be taken for absent.
fn salted(text: &str, salt: &IndexSalt) -> u32 {
    salt.hash(text.as_bytes()).max(1)
}

/// How the hashes of an index were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashing {
    /// With the salt of this store.
    Salted,
    /// With a salt that is lost. Such hashes tell nothing.
    Unknown,
}

/// A [`Filter`] as the index sees it. It lets through every event that matches, and some that do not: the
/// record decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    action: Option<u32>,
    actor_id: Option<u32>,
    resource: Option<u32>,
    /// `log_id`s in `from..until`, since the time is their prefix.
    from: Ulid,
    until: Ulid,
}

impl Probe {
    pub(crate) fn of(filter: &Filter, hashing: Hashing, salt: &IndexSalt) -> Probe {
        let wanted = |text: &Option<String>| {
            let text = text.as_deref()?;
            match hashing {
                Hashing::Salted => Some(salted(text, salt)),
                Hashing::Unknown => None,
            }
        };
        // A time past 48 bits is later than any event.
        let bound = |ms: u64| {
            Ulid(u128::from(ms.min(1 << 48)).checked_shl(80).filter(|_| ms < 1 << 48).unwrap_or(u128::MAX))
        };
        Probe {
            action: wanted(&filter.action),
            actor_id: wanted(&filter.actor_id),
            resource: wanted(&filter.resource),
            from: filter.from_ms.map_or(Ulid(0), bound),
            until: filter.until_ms.map_or(Ulid(u128::MAX), bound),
        }
    }

    /// The values that are wanted; 0 for any.
    pub(crate) fn wanted(&self) -> FieldHashes {
        FieldHashes {
            action: self.action.unwrap_or(0),
            actor_id: self.actor_id.unwrap_or(0),
            resource: self.resource.unwrap_or(0),
        }
    }

    pub(crate) fn may_match_times(&self, first: Ulid, last: Ulid) -> bool {
        first < self.until && last >= self.from
    }
}

/// Up to 1,024 consecutive events of a chain, column by column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    action: Vec<u32>,
    actor_id: Vec<u32>,
    resource: Vec<u32>,
    position: Vec<u32>,
    log_id: Vec<Ulid>,
    /// Of blocks in memory; in files they stand apart.
    fields: FieldColumn,
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        self.log_id.len()
    }

    pub(crate) fn push(&mut self, entry: &Entry, fields: &[u32]) {
        self.fields.push(fields);
        self.action.push(entry.hashes.action);
        self.actor_id.push(entry.hashes.actor_id);
        self.resource.push(entry.hashes.resource);
        self.position.push(entry.position);
        self.log_id.push(entry.log_id);
    }

    pub(crate) fn position(&self, at: usize) -> u32 {
        self.position[at]
    }

    pub(crate) fn fields(&self) -> &FieldColumn {
        &self.fields
    }

    pub(crate) fn hashes(&self, at: usize) -> FieldHashes {
        FieldHashes { action: self.action[at], actor_id: self.actor_id[at], resource: self.resource[at] }
    }

    pub(crate) fn first_log_id(&self) -> Ulid {
        self.log_id[0]
    }

    pub(crate) fn last_log_id(&self) -> Ulid {
        self.log_id[self.len() - 1]
    }

    /// Where an id stands, or the damaged record that it may be: one whose id is unknown has no action, and
    /// the lowest id that it can have had.
    pub(crate) fn find(&self, log_id: Ulid) -> Option<usize> {
        let place = self.log_id.partition_point(|id| *id <= log_id).checked_sub(1)?;
        (self.log_id[place] == log_id || self.action[place] == 0).then_some(place)
    }

    /// Places of possible matches below `end`, newest first.
    pub(crate) fn matches(&self, probe: &Probe, end: usize) -> Vec<usize> {
        let from = self.log_id.partition_point(|id| *id < probe.from);
        let until = self.log_id.partition_point(|id| *id < probe.until).min(end);
        let mut places = Vec::new();
        let mut upper = until;
        while upper > from {
            let lower = upper.saturating_sub(64).max(from);
            // The rarest values first: mostly that is enough.
            let columns = [
                (&self.resource, probe.resource),
                (&self.actor_id, probe.actor_id),
                (&self.action, probe.action),
            ];
            let mut bits = u64::MAX >> (64 - (upper - lower));
            for (column, wanted) in columns {
                if bits != 0
                    && let Some(wanted) = wanted
                {
                    bits &= bits_equal(&column[lower..upper], wanted);
                }
            }
            while bits != 0 {
                let highest = 63 - bits.leading_zeros() as usize;
                places.push(lower + highest);
                bits &= !(1 << highest);
            }
            upper = lower;
        }
        places
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for column in [&self.action, &self.actor_id, &self.resource, &self.position] {
            for value in column {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
        for log_id in &self.log_id {
            out.extend_from_slice(&log_id.to_bytes());
        }
    }

    pub(crate) fn decode(bytes: &[u8], count: usize) -> Option<Block> {
        let mut take = Take(bytes);
        let mut column = || {
            let bytes = take.bytes(count * 4)?;
            Some(bytes.chunks_exact(4).filter_map(|b| b.try_into().ok().map(u32::from_le_bytes)).collect())
        };
        let (action, actor_id, resource, position) = (column()?, column()?, column()?, column()?);
        let log_id = (0..count).map(|_| take.ulid()).collect::<Option<_>>()?;
        let fields = FieldColumn::default();
        take.0.is_empty().then_some(Block { action, actor_id, resource, position, log_id, fields })
    }

    pub(crate) fn encoded_len(count: usize) -> usize {
        count * 32
    }
}

/// A bit for each of up to 64 values: whether it is the wanted one.
fn bits_equal(values: &[u32], wanted: u32) -> u64 {
    // Mostly there is none, and that is found out for many values at a time.
    if !values.iter().fold(false, |any, value| any | (*value == wanted)) {
        return 0;
    }
    values.iter().enumerate().fold(0, |bits, (at, value)| bits | u64::from(*value == wanted) << at)
}

/// A Bloom filter over field hashes, sized to how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bloom(Vec<u8>);

impl Bloom {
    const PROBES: u32 = 6;
    const BITS_PER_VALUE: usize = 10;

    pub(crate) fn of(hashes: impl IntoIterator<Item = u32>) -> Bloom {
        let mut distinct: Vec<u32> = hashes.into_iter().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let mut bloom = Bloom(vec![0; (distinct.len() * Self::BITS_PER_VALUE).div_ceil(8).max(1)]);
        for hash in distinct {
            for bit in bloom.bits(hash) {
                bloom.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        bloom
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Bloom> {
        (!bytes.is_empty()).then(|| Bloom(bytes.to_vec()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn may_contain(&self, hash: u32) -> bool {
        self.bits(hash).all(|bit| self.0[bit / 8] & 1 << (bit % 8) != 0)
    }

    fn bits(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let step = hash.wrapping_mul(0x9E37_79B1) | 1;
        let size = self.0.len() * 8;
        (0..Self::PROBES).map(move |i| hash.wrapping_add(step.wrapping_mul(i)) as usize % size)
    }
}

/// The events of one chain in a segment whose index is still in memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryRun {
    pub segment: u64,
    pub first_seq: u64,
    /// The last event whose record is intact.
    pub head: Head,
    /// What the last record says of its hash, intact or not.
    pub last_hash: Hash,
    full: Vec<Arc<Block>>,
    tail: Block,
}

impl MemoryRun {
    pub(crate) fn new(segment: u64, first_seq: u64) -> MemoryRun {
        MemoryRun {
            segment,
            first_seq,
            head: Head::EMPTY,
            last_hash: Hash::ZERO,
            full: Vec::new(),
            tail: Block::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.full.len() * BLOCK_EVENTS + self.tail.len()
    }

    /// One past the last `chain_seq`.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.count() as u64
    }

    pub(crate) fn push(&mut self, entry: &Entry, fields: &[u32]) {
        self.tail.push(entry, fields);
        if self.tail.len() == BLOCK_EVENTS {
            let block = std::mem::take(&mut self.tail);
            self.full.push(Arc::new(block));
        }
    }

    /// Forgets the events from this seq on. Nothing remains known of the last one but its place.
    pub(crate) fn truncate(&mut self, end_seq: u64) {
        let keep = usize::try_from(end_seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        if keep >= self.count() {
            return;
        }
        let blocks = self.blocks();
        *self = MemoryRun { full: Vec::new(), tail: Block::default(), ..*self };
        for at in 0..keep {
            let block = &blocks[at / BLOCK_EVENTS];
            let place = at % BLOCK_EVENTS;
            let hashes = FieldHashes {
                action: block.action[place],
                actor_id: block.actor_id[place],
                resource: block.resource[place],
            };
            let entry = Entry { log_id: block.log_id[place], position: block.position[place], hashes };
            self.push(&entry, block.fields.of(place));
        }
    }

    pub(crate) fn log_ids(&self) -> impl Iterator<Item = Ulid> {
        let full = self.full.iter().flat_map(|block| block.log_id.iter());
        full.chain(&self.tail.log_id).copied()
    }

    /// All blocks, the last one possibly short.
    pub(crate) fn blocks(&self) -> Vec<Arc<Block>> {
        let mut blocks = self.full.clone();
        if self.tail.len() > 0 {
            blocks.push(Arc::new(self.tail.clone()));
        }
        blocks
    }

    pub(crate) fn block_count(&self) -> usize {
        self.full.len() + usize::from(self.tail.len() > 0)
    }

    /// A block by its number.
    pub(crate) fn block(&self, number: usize) -> &Block {
        match self.full.get(number) {
            Some(block) => block,
            None => &self.tail,
        }
    }

    pub(crate) fn first_log_id(&self) -> Ulid {
        self.block(0).first_log_id()
    }

    pub(crate) fn last_log_id(&self) -> Ulid {
        if self.tail.len() > 0 {
            self.tail.last_log_id()
        } else {
            self.full[self.full.len() - 1].last_log_id()
        }
    }

    pub(crate) fn position(&self, chain_seq: u64) -> u32 {
        let at = usize::try_from(chain_seq - self.first_seq).unwrap_or(usize::MAX);
        self.block(at / BLOCK_EVENTS).position(at % BLOCK_EVENTS)
    }

    pub(crate) fn find(&self, log_id: Ulid) -> Option<u64> {
        let block = self.full.partition_point(|block| block.first_log_id() <= log_id);
        let in_tail = self.tail.len() > 0 && self.tail.first_log_id() <= log_id;
        let (number, place) = if in_tail {
            (self.full.len(), self.tail.find(log_id)?)
        } else {
            let number = block.checked_sub(1)?;
            (number, self.full[number].find(log_id)?)
        };
        Some(self.first_seq + (number * BLOCK_EVENTS + place) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u32) -> Entry {
        let hashes = FieldHashes { action: n % 3 + 1, actor_id: n % 7, resource: n };
        Entry { log_id: Ulid(u128::from(n) << 80 | 5), position: n * 10, hashes }
    }

    fn run(count: u32) -> MemoryRun {
        let mut run = MemoryRun::new(1, 1);
        for n in 0..count {
            run.push(&entry(n), &[]);
        }
        run
    }

    #[test]
    fn positions_and_ids_are_found_on_both_sides_of_a_block_boundary() {
        for count in [1, 1023, 1024, 1025, 3000] {
            let run = run(count);
            for n in 0..count {
                assert_eq!(run.position(u64::from(n) + 1), n * 10);
                assert_eq!(run.find(entry(n).log_id), Some(u64::from(n) + 1));
                assert_eq!(run.find(Ulid(entry(n).log_id.0 + 1)), None);
            }
            assert_eq!(run.find(Ulid(0)), None);
        }
    }

    #[test]
    fn blocks_read_back_as_they_were_written() {
        let run = run(1500);
        for block in run.blocks() {
            let mut bytes = Vec::new();
            block.encode(&mut bytes);
            assert_eq!(bytes.len(), Block::encoded_len(block.len()));
            let read = Block::decode(&bytes, block.len()).unwrap();
            let without_fields = Block { fields: FieldColumn::default(), ..Block::clone(&block) };
            assert_eq!(format!("{read:?}"), format!("{without_fields:?}"));
            assert!(Block::decode(&bytes[1..], block.len()).is_none());
        }
    }

    #[test]
    fn matches_are_found_newest_first_for_every_combination() {
        let run = run(1000);
        let block = &run.blocks()[0];
        for (action, actor_id, resource) in [
            (None, None, None),
            (Some(1), None, None),
            (Some(2), Some(3), None),
            (None, None, Some(77)),
            (Some(99), None, None),
        ] {
            for (from, until, end) in
                [(0, 1000, 1000), (100, 900, 1000), (0, 1000, 513), (63, 64, 1000), (500, 400, 1000)]
            {
                let probe = Probe {
                    action,
                    actor_id,
                    resource,
                    from: entry(from).log_id,
                    until: Ulid(u128::from(until) << 80 | 5),
                };
                let expected: Vec<usize> = (0..1000u32)
                    .rev()
                    .filter(|n| {
                        let h = entry(*n).hashes;
                        action.is_none_or(|a| a == h.action)
                            && actor_id.is_none_or(|a| a == h.actor_id)
                            && resource.is_none_or(|r| r == h.resource)
                            && (from..until).contains(n)
                            && (*n as usize) < end
                    })
                    .map(|n| n as usize)
                    .collect();
                assert_eq!(block.matches(&probe, end), expected);
            }
        }
    }

    #[test]
    fn a_bloom_filter_is_sized_to_its_values_and_mostly_right() {
        assert_eq!(Bloom::of([]).bytes().len(), 1);
        assert_eq!(Bloom::of([7, 7, 7]).bytes().len(), 2);
        let hash = |n: u32| crc32c::crc32c(&n.to_le_bytes());
        let bloom = Bloom::of((0..1024).map(hash));
        assert!((0..1024).all(|n| bloom.may_contain(hash(n))));
        let wrong = (10_000..20_000).filter(|n| bloom.may_contain(hash(*n))).count();
        assert!(wrong < 300, "{wrong} of 10,000 false positives");
    }
}
