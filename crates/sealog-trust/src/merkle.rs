//! Merkle trees of RFC 6962: roots, and proofs that are made and verified.
//!
//! A tree lives in a store, as tiles or in memory. A [`Plan`] names the nodes that a proof is made of; the
//! caller reads them, in one query or in many, and the plan makes the proof. So nothing here waits.

use std::fmt;

use sealog_core::id::Hash;

use crate::digest::{Kind, digest};
pub use crate::text::NUMBER_MAX as SIZE_MAX;

/// Most hashes of an inclusion or a consistency proof, as C2SP has it. It is enough for every tree of up to
/// 2^62 leaves.
pub const PROOF_HASHES_MAX: usize = 63;

/// The hash of an entry.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    digest(Kind::Leaf, &[entry])
}

pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    digest(Kind::Node, &[&left.0, &right.0])
}

/// The root of the tree without leaves: SHA-256 of nothing.
pub const EMPTY_ROOT: Hash = Hash([
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
]);

/// A complete subtree: its 2^`level` leaves begin at `index` · 2^`level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub level: u8,
    pub index: u64,
}

/// Why a proof does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofError {
    /// More leaves than a signed integer can count.
    Size { size: u64 },
    /// The leaf, the range or the older tree is not inside the tree.
    Outside { end: u64, size: u64 },
    /// A range without leaves, or one that ends before it begins.
    EmptyRange,
    /// A proof between these places has another number of hashes. It was made for another size or place.
    Length { expected: usize, found: usize },
    /// No proof of that many hashes is accepted.
    TooLong { found: usize },
    /// The proof leads to another root than the one that was given.
    Root,
    /// The older root is not that of the beginning of the newer tree.
    OldRoot,
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProofError::Size { size } => write!(f, "`size` {size} is above {SIZE_MAX}"),
            ProofError::Outside { end, size } => {
                write!(f, "the proof is about {end} leaves, but the tree has {size}")
            }
            ProofError::EmptyRange => f.write_str("the range must have at least one leaf"),
            ProofError::Length { expected, found } => {
                write!(f, "`path` must have {expected} hashes for this place and size, and has {found}")
            }
            ProofError::TooLong { found } => {
                write!(f, "`path` may have {PROOF_HASHES_MAX} hashes, and has {found}")
            }
            ProofError::Root => f.write_str("the proof leads to another root"),
            ProofError::OldRoot => f.write_str("the older root does not begin the newer tree"),
        }
    }
}

impl std::error::Error for ProofError {}

// ---- The right edge -------------------------------------------------------------------------------------

/// The complete subtrees of a tree from left to right: all that appending needs, in at most 63 hashes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CompactRange {
    size: u64,
    /// One for each bit of the size, the largest first.
    peaks: Vec<Hash>,
}

impl CompactRange {
    /// `peaks` are the hashes of [`Plan::root`]'s nodes. Nothing if their number does not fit the size.
    pub fn from_peaks(size: u64, peaks: Vec<Hash>) -> Option<CompactRange> {
        let fits = size <= SIZE_MAX && peaks.len() == size.count_ones() as usize;
        fits.then_some(CompactRange { size, peaks })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds a leaf and reports each subtree that it completes, itself first. Returns false, and adds nothing,
    /// if the tree is full.
    #[must_use]
    pub fn append(&mut self, leaf: Hash, mut completed: impl FnMut(Node, Hash)) -> bool {
        if self.size >= SIZE_MAX {
            return false;
        }
        let (mut node, mut hash) = (Node { level: 0, index: self.size }, leaf);
        completed(node, hash);
        // Each trailing one of the size is a subtree that now has its right sibling.
        for _ in 0..self.size.trailing_ones() {
            let left = self.peaks.pop().expect("there is a peak for each one of the size");
            hash = node_hash(&left, &hash);
            node = Node { level: node.level + 1, index: node.index / 2 };
            completed(node, hash);
        }
        self.peaks.push(hash);
        self.size += 1;
        true
    }

    pub fn root(&self) -> Hash {
        fold(&self.peaks)
    }
}

/// The root over leaves that are at hand.
pub fn root_of(leaves: &[Hash]) -> Hash {
    let mut range = CompactRange::default();
    for leaf in leaves {
        assert!(range.append(*leaf, |_, _| {}), "no memory holds 2^63 leaves");
    }
    range.root()
}

/// The root over complete subtrees of falling size.
fn fold(peaks: &[Hash]) -> Hash {
    peaks.iter().rev().copied().reduce(|right, left| node_hash(&left, &right)).unwrap_or(EMPTY_ROOT)
}

// ---- Making proofs --------------------------------------------------------------------------------------

/// The nodes that a proof is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    nodes: Vec<Node>,
    /// How many of the nodes make up each hash of the proof: several only at the right edge of the tree.
    groups: Vec<usize>,
}

impl Plan {
    /// For the root at a size; the proof has one hash. Also for the peaks of a [`CompactRange`].
    pub fn root(size: u64) -> Result<Plan, ProofError> {
        checked(size)?;
        Ok(Plan::of([(0, size)]))
    }

    /// For the path from a leaf to the root.
    pub fn inclusion(index: u64, size: u64) -> Result<Plan, ProofError> {
        inside(index, size)?;
        let mut beside = Vec::new();
        let (mut start, mut end) = (0, size);
        while end - start > 1 {
            let middle = start + split(end - start);
            if index < middle {
                beside.push((middle, end));
                end = middle;
            } else {
                beside.push((start, middle));
                start = middle;
            }
        }
        Ok(Plan::of(beside.into_iter().rev()))
    }

    /// For the proof that the tree of `old` leaves is the beginning of that of `size`.
    pub fn consistency(old: u64, size: u64) -> Result<Plan, ProofError> {
        checked(size)?;
        if old > size {
            return Err(ProofError::Outside { end: old, size });
        }
        if old == 0 || old == size {
            return Ok(Plan::of([]));
        }
        let mut beside = Vec::new();
        let (mut start, mut end) = (0, size);
        while end != old {
            let middle = start + split(end - start);
            if old <= middle {
                beside.push((middle, end));
                end = middle;
            } else {
                beside.push((start, middle));
                start = middle;
            }
        }
        // The subtree that ends with the older tree. If it is the older tree itself, its root is known.
        if start > 0 {
            beside.push((start, end));
        }
        Ok(Plan::of(beside.into_iter().rev()))
    }

    /// For the proof that leaves `start` to `end` (exclusive) are all that the tree has there.
    pub fn range(start: u64, end: u64, size: u64) -> Result<Plan, ProofError> {
        Ok(Plan::of(outside(start, end, size)?))
    }

    fn of(spans: impl IntoIterator<Item = (u64, u64)>) -> Plan {
        let mut plan = Plan { nodes: Vec::new(), groups: Vec::new() };
        for (start, end) in spans {
            let before = plan.nodes.len();
            plan.nodes.extend(subtrees(start, end));
            plan.groups.push(plan.nodes.len() - before);
        }
        plan
    }

    /// What to read.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The proof, from the hashes of [`Plan::nodes`] in their order. Nothing if there are more or fewer.
    pub fn proof(&self, hashes: &[Hash]) -> Option<Vec<Hash>> {
        if hashes.len() != self.nodes.len() {
            return None;
        }
        let mut rest = hashes;
        Some(
            self.groups
                .iter()
                .map(|&count| {
                    let (group, behind) = rest.split_at(count);
                    rest = behind;
                    fold(group)
                })
                .collect(),
        )
    }
}

/// The largest power of two below the number of leaves: RFC 6962 splits every tree there.
fn split(leaves: u64) -> u64 {
    1 << (leaves - 1).ilog2()
}

/// The complete subtrees of a subtree of an RFC 6962 tree, from left to right.
fn subtrees(mut start: u64, end: u64) -> impl Iterator<Item = Node> {
    std::iter::from_fn(move || {
        let level = (end - start).checked_ilog2()?;
        let node =
            Node { level: u8::try_from(level).expect("a logarithm is below 64"), index: start >> level };
        start += 1 << level;
        Some(node)
    })
}

/// The largest subtrees that lie wholly outside of a range, from left to right.
fn outside(start: u64, end: u64, size: u64) -> Result<Vec<(u64, u64)>, ProofError> {
    checked(size)?;
    if start >= end {
        return Err(ProofError::EmptyRange);
    }
    if end > size {
        return Err(ProofError::Outside { end, size });
    }
    let mut spans = Vec::new();
    // Only the two edges of the range are cut further, so there are a few subtrees of each level.
    let mut open = vec![(0, size)];
    while let Some((from, to)) = open.pop() {
        if to <= start || end <= from {
            spans.push((from, to));
        } else if from < start || end < to {
            let middle = from + split(to - from);
            open.extend([(middle, to), (from, middle)]);
        }
    }
    Ok(spans)
}

// ---- Verifying proofs -----------------------------------------------------------------------------------

/// The root that a path leads to from a leaf.
pub fn root_from_path(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Result<Hash, ProofError> {
    inside(index, size)?;
    bounded(path)?;
    // Up to `inner` levels the path may turn left or right; above it is the right edge of the tree, where
    // only left siblings exist.
    let inner = inner_levels(index, size);
    let expected = inner + (index >> inner).count_ones() as usize;
    if path.len() != expected {
        return Err(ProofError::Length { expected, found: path.len() });
    }
    Ok(climb(leaf, index, path, inner))
}

/// The root of the tree that ends with the leaf. An inclusion proof shows it, too: the siblings on the left
/// are all of the older tree. So a proof of its last leaf shows that an older tree begins a newer one.
pub fn root_up_to(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Result<Hash, ProofError> {
    root_from_path(leaf, index, size, path)?;
    Ok(climb_left(leaf, index, path, inner_levels(index, size)))
}

pub fn verify_inclusion(
    leaf: Hash,
    index: u64,
    size: u64,
    root: &Hash,
    path: &[Hash],
) -> Result<(), ProofError> {
    let found = root_from_path(leaf, index, size, path)?;
    if found == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// Whether the tree of `old` leaves and root `old_root` is the beginning of the other.
pub fn verify_consistency(
    old: u64,
    old_root: &Hash,
    size: u64,
    root: &Hash,
    path: &[Hash],
) -> Result<(), ProofError> {
    checked(size)?;
    bounded(path)?;
    if old > size {
        return Err(ProofError::Outside { end: old, size });
    }
    if old == 0 || old == size {
        if !path.is_empty() {
            return Err(ProofError::Length { expected: 0, found: path.len() });
        }
        if old == 0 && *old_root != EMPTY_ROOT {
            return Err(ProofError::OldRoot);
        }
        return if old == size && old_root != root { Err(ProofError::Root) } else { Ok(()) };
    }
    // The walk begins at the last complete subtree of the older tree. If that is the whole older tree, its
    // root is known and not in the proof.
    let level = old.trailing_zeros();
    let index = (old - 1) >> level;
    let inner = inner_levels(old - 1, size) - level as usize;
    let is_whole = old.is_power_of_two();
    let expected = usize::from(!is_whole) + inner + (index >> inner).count_ones() as usize;
    if path.len() != expected {
        return Err(ProofError::Length { expected, found: path.len() });
    }
    let (seed, path) = match path.split_first() {
        Some((seed, rest)) if !is_whole => (*seed, rest),
        _ => (*old_root, path),
    };
    if climb_left(seed, index, path, inner) != *old_root {
        return Err(ProofError::OldRoot);
    }
    if climb(seed, index, path, inner) == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// Whether `leaves` are all leaves of the tree from `start` on, as many as there are. The proof has the roots
/// of the largest subtrees left of them, then right of them, each from left to right.
pub fn verify_range(
    start: u64,
    leaves: &[Hash],
    size: u64,
    root: &Hash,
    path: &[Hash],
) -> Result<(), ProofError> {
    let end = start.saturating_add(leaves.len() as u64);
    let expected = outside(start, end, size)?.len();
    if path.len() != expected {
        return Err(ProofError::Length { expected, found: path.len() });
    }
    let found = join((0, size), (start, end), &mut leaves.iter(), &mut path.iter());
    if found == *root { Ok(()) } else { Err(ProofError::Root) }
}

/// The hash of the subtree `tree` from the leaves of the range and the proof. Calls itself once for each
/// level, of which there are at most 63.
fn join(
    tree: (u64, u64),
    range: (u64, u64),
    leaves: &mut std::slice::Iter<'_, Hash>,
    path: &mut std::slice::Iter<'_, Hash>,
) -> Hash {
    if tree.1 <= range.0 || range.1 <= tree.0 {
        return *path.next().expect("the number of hashes was checked");
    }
    if range.0 <= tree.0 && tree.1 <= range.1 {
        let count = usize::try_from(tree.1 - tree.0).expect("its leaves are in memory");
        let (here, behind) = leaves.as_slice().split_at(count);
        *leaves = behind.iter();
        return root_of(here);
    }
    let middle = tree.0 + split(tree.1 - tree.0);
    let left = join((tree.0, middle), range, leaves, path);
    node_hash(&left, &join((middle, tree.1), range, leaves, path))
}

/// Follows a path upwards. Below `inner` the bits of the index say on which side the sibling is, above it is
/// always on the left.
fn climb(seed: Hash, index: u64, path: &[Hash], inner: usize) -> Hash {
    path.iter().enumerate().fold(seed, |hash, (at, sibling)| {
        if at >= inner || index >> at & 1 == 1 {
            node_hash(sibling, &hash)
        } else {
            node_hash(&hash, sibling)
        }
    })
}

/// The same in the older tree, which ends where the seed does: siblings on the right belong to the newer tree
/// alone.
fn climb_left(seed: Hash, index: u64, path: &[Hash], inner: usize) -> Hash {
    let is_left = |at: usize| at >= inner || index >> at & 1 == 1;
    let left = path.iter().enumerate().filter(|(at, _)| is_left(*at));
    left.fold(seed, |hash, (_, sibling)| node_hash(sibling, &hash))
}

/// At how many levels the path of a leaf differs from the path of the last leaf.
fn inner_levels(index: u64, size: u64) -> usize {
    (u64::BITS - (index ^ (size - 1)).leading_zeros()) as usize
}

fn checked(size: u64) -> Result<(), ProofError> {
    if size > SIZE_MAX { Err(ProofError::Size { size }) } else { Ok(()) }
}

fn inside(index: u64, size: u64) -> Result<(), ProofError> {
    checked(size)?;
    if index >= size { Err(ProofError::Outside { end: index.saturating_add(1), size }) } else { Ok(()) }
}

fn bounded(path: &[Hash]) -> Result<(), ProofError> {
    if path.len() > PROOF_HASHES_MAX { Err(ProofError::TooLong { found: path.len() }) } else { Ok(()) }
}
