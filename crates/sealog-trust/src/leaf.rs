//! Tags of chains, and leaves: the entries of a chain's tree.

use std::fmt;

use sealog_core::event::{Annotations, StoredEvent};
use sealog_core::id::{ChainId, Hash};
use sha2::{Digest, Sha256};

use crate::digest::{Kind, digest};
use crate::merkle;
use crate::salt::Salt;
use crate::text::{Malformed, malformed};

const VERSION: u8 = 1;
/// How many of the annotations are public. Those behind them are private.
const PUBLIC: usize = 4;
const FIXED_LEN: usize = 1 + 8 + 32 + 32 + 2;

/// Names a chain to those who have its events. Nothing can be learned from it, because the ids are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub Hash);

impl Tag {
    pub fn of(chain: ChainId) -> Tag {
        let ChainId { tenant_id, project_id, mode } = chain;
        let text = format!("sealog/chain/v1\n{tenant_id}\n{project_id}\n{}\n", mode.as_str());
        Tag(Hash(Sha256::digest(text).into()))
    }

    /// The bit that decides the way at a depth of the trie.
    pub(crate) fn bit(&self, depth: usize) -> usize {
        usize::from(self.0.0[depth / 8] >> (7 - depth % 8) & 1)
    }

    /// How many bits both begin with.
    pub(crate) fn common_bits(&self, other: &Tag) -> usize {
        let differing = self.0.0.iter().zip(other.0.0).position(|(own, other)| *own != other);
        differing.map_or(256, |at| at * 8 + (self.0.0[at] ^ other.0.0[at]).leading_zeros() as usize)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event that no leaf has room for. Events of this version never have such fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub field: &'static str,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is above what two bytes can say: no leaf can be made of this event", self.field)
    }
}

impl std::error::Error for TooLong {}

/// The commitment to an event's private fields.
pub fn private_commitment(salt: &Salt, annotations: &Annotations) -> Result<Hash, TooLong> {
    let mut fields = Vec::new();
    put_fields(annotations, PUBLIC..Annotations::NAMES.len(), &mut fields)?;
    Ok(digest(Kind::Commitment, &[&salt.0, &fields]))
}

/// Whether an event shows at least one private field.
pub fn shows_private(annotations: &Annotations) -> bool {
    annotations.values()[PUBLIC..].iter().any(Option::is_some)
}

/// Writes the leaf of an event behind what is there. On an error, `out` ends with part of it.
pub fn put_leaf(event: &StoredEvent, private: &Hash, out: &mut Vec<u8>) -> Result<(), TooLong> {
    let schema_version =
        u16::try_from(event.schema_version).map_err(|_| TooLong { field: "schema_version" })?;
    out.reserve(2 * FIXED_LEN);
    out.push(VERSION);
    out.extend_from_slice(&event.sealed.chain_seq.to_be_bytes());
    out.extend_from_slice(&event.sealed.hash.0);
    out.extend_from_slice(&private.0);
    out.extend_from_slice(&schema_version.to_be_bytes());
    put_fields(&event.annotations, 0..PUBLIC, out)
}

/// The leaf hash of an event.
pub fn leaf_hash(event: &StoredEvent, private: &Hash) -> Result<Hash, TooLong> {
    let mut leaf = Vec::new();
    put_leaf(event, private, &mut leaf)?;
    Ok(merkle::leaf_hash(&leaf))
}

fn put_fields(
    annotations: &Annotations,
    which: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let values = annotations.values();
    for (tag, at) in (1u8..).zip(0..values.len()) {
        let Some(value) = values[at].filter(|_| which.contains(&at)) else { continue };
        let too_long = TooLong { field: Annotations::NAMES[at] };
        let length = u16::try_from(value.len()).map_err(|_| too_long)?;
        out.push(tag);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(value.as_bytes());
    }
    Ok(())
}

/// A leaf as it is read from an entry bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    pub chain_seq: u64,
    pub hash: Hash,
    pub private: Hash,
    pub schema_version: u16,
    /// `category`, `severity`, `actor_type` and `resource_type`.
    pub public: [Option<&'a str>; PUBLIC],
}

impl<'a> Leaf<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Leaf<'a>, Malformed> {
        const FIELDS: &str =
            "must be a tag from 1 to 4, a length of two bytes and that many bytes of UTF-8, tags ascending";
        let (fixed, mut fields) =
            bytes.split_first_chunk::<FIXED_LEN>().ok_or(malformed("leaf", "must have at least 75 bytes"))?;
        if fixed[0] != VERSION {
            return Err(malformed("version", "must be 1"));
        }
        let mut public = [None; PUBLIC];
        let mut last = 0;
        while let Some((head, rest)) = fields.split_first_chunk::<3>() {
            let tag = usize::from(head[0]);
            let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
            let (value, rest) = rest.split_at_checked(length).ok_or(malformed("field", FIELDS))?;
            if tag <= last || tag > PUBLIC {
                return Err(malformed("field", FIELDS));
            }
            public[tag - 1] = Some(std::str::from_utf8(value).map_err(|_| malformed("field", FIELDS))?);
            (last, fields) = (tag, rest);
        }
        if !fields.is_empty() {
            return Err(malformed("field", FIELDS));
        }
        let hash = |from: usize| Hash(fixed[from..from + 32].try_into().expect("32 bytes"));
        Ok(Leaf {
            chain_seq: u64::from_be_bytes(fixed[1..9].try_into().expect("8 bytes")),
            hash: hash(9),
            private: hash(41),
            schema_version: u16::from_be_bytes([fixed[73], fixed[74]]),
            public,
        })
    }
}
