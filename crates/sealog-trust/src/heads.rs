//! The trie of all chains' heads.
//!
//! The bits of a tag decide its place, so that no trie can have two heads for one chain. A proof has the
//! hashes beside the way, from the head up to the root.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sealog_core::id::Hash;
use sha2::Sha256;

use crate::digest::{Kind, digest};
use crate::leaf::Tag;

/// The bits of a tag, hence the most hashes of a proof.
pub const PATH_HASHES_MAX: usize = 256;
/// In place of a subtree without heads.
const EMPTY: Hash = Hash::ZERO;
const HEAD_VERSION: u8 = 1;

/// Hides a head from those who see its hash beside their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blind(pub [u8; 16]);

impl Blind {
    /// A blind differs for each entry of the store log: equal hashes would show which chains were idle.
    pub fn of(secret: &[u8], tag: &Tag, index: u64) -> Blind {
        let mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of HMAC may have any length");
        let code = mac.chain_update(tag.0.0).chain_update(index.to_be_bytes()).finalize().into_bytes();
        Blind(*code.first_chunk().expect("32 bytes"))
    }
}

/// Size and root of a chain's tree, as one snapshot has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub tag: Tag,
    pub size: u64,
    pub root: Hash,
    pub blind: Blind,
}

impl Head {
    /// All that the trie has of it beside the tag.
    pub fn hidden(&self) -> Hash {
        let size = self.size.to_be_bytes();
        digest(Kind::HiddenHead, &[&[HEAD_VERSION], &size, &self.root.0, &self.blind.0])
    }
}

/// Why a proof of the trie does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrieError {
    TooLong {
        found: usize,
    },
    /// The foreign head of a proof of absence lies on another way, or is that of the tag itself.
    Foreign,
    Root,
}

impl fmt::Display for TrieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrieError::TooLong { found } => {
                write!(f, "`path` may have {PATH_HASHES_MAX} hashes, and has {found}")
            }
            TrieError::Foreign => {
                f.write_str("`foreign` must be the head of another chain whose tag begins with the same bits")
            }
            TrieError::Root => f.write_str("the proof leads to another root of the trie"),
        }
    }
}

impl std::error::Error for TrieError {}

/// What a trie says of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrieProof {
    Present {
        path: Vec<Hash>,
    },
    /// The way ends at an empty subtree, or at the head of another chain.
    Absent {
        path: Vec<Hash>,
        foreign: Option<(Tag, Hash)>,
    },
}

/// The root that a head leads to.
pub fn root_with(tag: &Tag, hidden: &Hash, path: &[Hash]) -> Result<Hash, TrieError> {
    climb(tag, leaf(tag, hidden), path)
}

/// Whether the trie with this root has the head.
pub fn verify_present(head: &Head, root: &Hash, path: &[Hash]) -> Result<(), TrieError> {
    let found = root_with(&head.tag, &head.hidden(), path)?;
    if found == *root { Ok(()) } else { Err(TrieError::Root) }
}

/// Whether the trie with this root has no head for the tag.
pub fn verify_absent(
    tag: &Tag,
    root: &Hash,
    path: &[Hash],
    foreign: Option<&(Tag, Hash)>,
) -> Result<(), TrieError> {
    let end = match foreign {
        None => EMPTY,
        Some((other, _)) if other == tag || other.common_bits(tag) < path.len() => {
            return Err(TrieError::Foreign);
        }
        Some((other, hidden)) => leaf(other, hidden),
    };
    if climb(tag, end, path)? == *root { Ok(()) } else { Err(TrieError::Root) }
}

fn climb(tag: &Tag, end: Hash, path: &[Hash]) -> Result<Hash, TrieError> {
    if path.len() > PATH_HASHES_MAX {
        return Err(TrieError::TooLong { found: path.len() });
    }
    let depths = (0..path.len()).rev();
    Ok(path.iter().zip(depths).fold(end, |hash, (beside, depth)| match tag.bit(depth) {
        0 => node(&hash, beside),
        _ => node(beside, &hash),
    }))
}

fn leaf(tag: &Tag, hidden: &Hash) -> Hash {
    digest(Kind::TrieLeaf, &[&tag.0.0, &hidden.0])
}

fn node(left: &Hash, right: &Hash) -> Hash {
    digest(Kind::TrieNode, &[&left.0, &right.0])
}

/// A trie in memory, with all its hashes: a proof reads them and computes none.
#[derive(Clone, Debug)]
pub struct Trie {
    /// In the order of the tags.
    heads: Vec<(Tag, Hash)>,
    branches: Vec<Branch>,
    root: Link,
}

#[derive(Clone, Debug)]
struct Branch {
    children: [Link; 2],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    hash: Hash,
    to: To,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Nothing,
    Head(usize),
    Branch(usize),
}

impl Trie {
    /// Takes tags with hidden heads in any order. The error is a tag that comes twice.
    pub fn new(mut heads: Vec<(Tag, Hash)>) -> Result<Trie, Tag> {
        heads.sort_unstable_by_key(|(tag, _)| tag.0.0);
        if let Some(twice) = heads.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice[0].0);
        }
        let mut branches = Vec::new();
        let root = grow(&heads, 0, 0, &mut branches);
        Ok(Trie { heads, branches, root })
    }

    pub fn root(&self) -> Hash {
        self.root.hash
    }

    pub fn prove(&self, tag: &Tag) -> TrieProof {
        let (mut link, mut path) = (self.root, Vec::new());
        while let To::Branch(at) = link.to {
            let children = &self.branches[at].children;
            let bit = tag.bit(path.len());
            path.push(children[1 - bit].hash);
            link = children[bit];
        }
        path.reverse();
        match link.to {
            To::Head(at) if self.heads[at].0 == *tag => TrieProof::Present { path },
            To::Head(at) => TrieProof::Absent { path, foreign: Some(self.heads[at]) },
            _ => TrieProof::Absent { path, foreign: None },
        }
    }
}

/// Makes the subtree of heads whose tags begin with the same `depth` bits. Different tags part at bit 255 at
/// the latest, so it calls itself no deeper. `first` is the place of the first head.
fn grow(heads: &[(Tag, Hash)], first: usize, depth: usize, branches: &mut Vec<Branch>) -> Link {
    match heads {
        [] => Link { hash: EMPTY, to: To::Nothing },
        [(tag, hidden)] => Link { hash: leaf(tag, hidden), to: To::Head(first) },
        _ => {
            let middle = heads.partition_point(|(tag, _)| tag.bit(depth) == 0);
            let (zeros, ones) = heads.split_at(middle);
            let left = grow(zeros, first, depth + 1, branches);
            let right = grow(ones, first + middle, depth + 1, branches);
            branches.push(Branch { children: [left, right] });
            Link { hash: node(&left.hash, &right.hash), to: To::Branch(branches.len() - 1) }
        }
    }
}
