//! Salts of events, from a tree of keys (a puncturable PRF after Goldreich, Goldwasser and Micali).
//!
//! A chain has one random key of 16 bytes. The children of a key are the halves of its digest, and the salt
//! of an event is the leaf at its `chain_seq`. So salts cost no storage, a few keys open a range of events,
//! and replacing a key by the keys beside a path erases the salts below that path.

use std::fmt;
use std::ops::RangeInclusive;

use sealog_core::hex;

use crate::digest::{Kind, digest};
use crate::text::{Lines, Malformed, malformed};

/// Depth of the leaves: a `chain_seq` has 48 bits here.
pub const DEPTH: u8 = 48;
/// Largest `chain_seq` that has a salt.
pub const SEQ_MAX: u64 = (1 << DEPTH) - 1;

type Key = [u8; 16];

/// Hides the private fields of one event. Random to anyone without a key above it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt(pub Key);

/// A key that opens the salts below it.
#[derive(Clone, PartialEq, Eq)]
pub struct SaltKey {
    depth: u8,
    /// The bits of the way from the root, as a number.
    prefix: u64,
    key: Key,
}

// Both are secrets: neither belongs in a log line.
impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

impl fmt::Debug for SaltKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaltKey({} {} …)", self.depth, self.prefix)
    }
}

impl SaltKey {
    /// The key of a whole chain, from 16 random bytes.
    pub fn root(key: Key) -> SaltKey {
        SaltKey { depth: 0, prefix: 0, key }
    }

    /// The `chain_seq`s whose salts it opens.
    pub fn seqs(&self) -> RangeInclusive<u64> {
        let below = DEPTH - self.depth;
        self.prefix << below..=(self.prefix << below | ((1 << below) - 1))
    }

    /// Reads a line `key DEPTH PREFIX HEX`, both numbers in decimal.
    pub fn parse(line: &str) -> Result<SaltKey, Malformed> {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let lines = Lines::of("");
        if word() != "key" {
            return Err(malformed("key", "must be the first word, before DEPTH, PREFIX and HEX"));
        }
        let depth = lines.decimal("DEPTH", word())?;
        let depth = u8::try_from(depth).ok().filter(|depth| *depth <= DEPTH);
        let depth = depth.ok_or(malformed("DEPTH", "must be a number from 0 to 48"))?;
        let prefix = lines.decimal("PREFIX", word())?;
        if prefix >> depth != 0 {
            return Err(malformed("PREFIX", "must be below 2^DEPTH"));
        }
        let key = lines.hex("HEX", word())?;
        match words.next() {
            None => Ok(SaltKey { depth, prefix, key }),
            Some(_) => Err(malformed("HEX", "must be the last word")),
        }
    }

    /// The line that [`SaltKey::parse`] reads. It is a secret.
    pub fn to_line(&self) -> String {
        format!("key {} {} {}", self.depth, self.prefix, hex::encode(&self.key))
    }

    /// Whether the two open a salt in common.
    fn overlaps(&self, seqs: &RangeInclusive<u64>) -> bool {
        let own = self.seqs();
        own.start() <= seqs.end() && seqs.start() <= own.end()
    }

    fn is_within(&self, seqs: &RangeInclusive<u64>) -> bool {
        let own = self.seqs();
        seqs.start() <= own.start() && own.end() <= seqs.end()
    }

    fn children(&self) -> [SaltKey; 2] {
        let halves = halves(&self.key);
        [0, 1].map(|bit: u8| SaltKey {
            depth: self.depth + 1,
            prefix: self.prefix << 1 | u64::from(bit),
            key: halves[usize::from(bit)],
        })
    }

    /// Cuts this key at the edges of `seqs`: the keys below it that lie wholly inside, and wholly outside.
    fn cut(&self, seqs: &RangeInclusive<u64>, inside: &mut Vec<SaltKey>, outside: &mut Vec<SaltKey>) {
        // At most two keys of each level are cut further.
        let mut open = vec![self.clone()];
        while let Some(key) = open.pop() {
            if key.is_within(seqs) {
                inside.push(key);
            } else if !key.overlaps(seqs) {
                outside.push(key);
            } else {
                let [left, right] = key.children();
                open.extend([right, left]);
            }
        }
    }
}

/// The keys of a chain, in the order of their `chain_seq`s. One key, until salts are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaltKeys(Vec<SaltKey>);

impl SaltKeys {
    /// Nothing if two of the keys open the same salt.
    pub fn new(mut keys: Vec<SaltKey>) -> Option<SaltKeys> {
        keys.sort_by_key(|key| *key.seqs().start());
        let apart = keys.windows(2).all(|pair| pair[0].seqs().end() < pair[1].seqs().start());
        apart.then_some(SaltKeys(keys))
    }

    pub fn keys(&self) -> &[SaltKey] {
        &self.0
    }

    /// None if the salt was erased, or never had a key here.
    pub fn salt(&self, chain_seq: u64) -> Option<Salt> {
        Walk::new(self).salt(chain_seq)
    }

    /// The fewest keys that open the salts of these events and no others. Erased ones stay erased.
    pub fn cover(&self, seqs: RangeInclusive<u64>) -> SaltKeys {
        self.split(&seqs).0
    }

    /// The keys without those of these events: their salts are erased once no copy of the old keys exists.
    #[must_use]
    pub fn puncture(&self, seqs: RangeInclusive<u64>) -> SaltKeys {
        self.split(&seqs).1
    }

    fn split(&self, seqs: &RangeInclusive<u64>) -> (SaltKeys, SaltKeys) {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for key in &self.0 {
            key.cut(seqs, &mut inside, &mut outside);
        }
        (SaltKeys(inside), SaltKeys(outside))
    }
}

/// Gives the salts of events one after the other. Events in order cost one hash each, since the way down is
/// kept from one to the next.
#[derive(Clone)]
pub struct Walk<'a> {
    keys: &'a [SaltKey],
    /// The key whose way is kept, and the last `chain_seq`.
    at: Option<(usize, u64)>,
    /// Both children of each key on the way, from the depth of the kept key on.
    way: Vec<[Key; 2]>,
}

impl fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<'a> Walk<'a> {
    pub fn new(keys: &'a SaltKeys) -> Walk<'a> {
        Walk { keys: &keys.0, at: None, way: Vec::new() }
    }

    pub fn salt(&mut self, chain_seq: u64) -> Option<Salt> {
        let place = self.keys.partition_point(|key| *key.seqs().end() < chain_seq);
        let key = self.keys.get(place).filter(|key| key.seqs().contains(&chain_seq))?;
        let same = match self.at {
            // The children of a key serve both ways, so the way is kept down to the bit that differs.
            Some((before, last)) if before == place => {
                let differing = u64::BITS - (last ^ chain_seq).leading_zeros();
                usize::from(DEPTH - key.depth).saturating_sub(differing as usize) + 1
            }
            _ => 0,
        };
        self.way.truncate(same);
        self.at = Some((place, chain_seq));
        let bit = |depth: usize| usize::from(chain_seq >> (usize::from(DEPTH) - 1 - depth) & 1 == 1);
        for depth in usize::from(key.depth) + self.way.len()..usize::from(DEPTH) {
            let parent = match self.way.last() {
                None => &key.key,
                Some(children) => &children[bit(depth - 1)],
            };
            let children = halves(parent);
            self.way.push(children);
        }
        let leaf = self.way.last().map_or(key.key, |children| children[bit(usize::from(DEPTH) - 1)]);
        Some(Salt(leaf))
    }
}

/// The two children of a key.
fn halves(key: &Key) -> [Key; 2] {
    let hash = digest(Kind::SaltKeys, &[key]).0;
    let (left, right) = hash.split_at(16);
    [left, right].map(|half| half.try_into().expect("half of 32 bytes"))
}
