//! Tiles and entry bundles of C2SP `tlog-tiles`: how a tree is cut into files, and where each file is.

use std::fmt;

use sealog_core::id::Hash;

use crate::merkle::{self, Node, SIZE_MAX};
use crate::text::{Malformed, decimal, malformed};

/// Hashes in a full tile, and entries in a full bundle.
pub const WIDTH: u16 = 256;
const HASH_LEN: usize = 32;
/// Levels of a tree in one tile.
const HEIGHT: u8 = 8;
const LEVEL_MAX: u64 = 63;
/// Longest entry: a bundle has its length in two bytes.
pub const ENTRY_BYTES_MAX: usize = u16::MAX as usize;

/// What a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Content {
    /// Hashes of this level of tiles: of level 8 · L of the tree.
    Hashes(u8),
    Entries,
}

/// A tile or an entry bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    pub content: Content,
    pub index: u64,
    /// 1 to 256. Less than 256 for a partial one, which is a prefix of the full one.
    pub width: u16,
}

impl Tile {
    /// Reads a path such as `tile/0/x001/x234/067.p/8`, in its one spelling.
    pub fn parse(path: &str) -> Result<Tile, Malformed> {
        const INDEX: &str = "must have groups of three digits, all but the last with `x` before them and none that is needless";
        let rest = path.strip_prefix("tile/").ok_or(malformed("path", "must begin with `tile/`"))?;
        let (level, rest) =
            rest.split_once('/').ok_or(malformed("path", "must be `tile/L/N` or `tile/L/N.p/W`"))?;
        let content = match level {
            "entries" => Content::Entries,
            _ => {
                let level = decimal(level).filter(|level| *level <= LEVEL_MAX);
                let level = level.and_then(|level| u8::try_from(level).ok());
                Content::Hashes(level.ok_or(malformed("L", "must be `entries` or a number from 0 to 63"))?)
            }
        };
        let (groups, width) = match rest.split_once(".p/") {
            None => (rest, WIDTH),
            Some((groups, width)) => {
                let width = decimal(width).and_then(|width| u16::try_from(width).ok());
                let width = width.filter(|width| (1..WIDTH).contains(width));
                (groups, width.ok_or(malformed("W", "must be a number from 1 to 255"))?)
            }
        };
        let mut index = 0u64;
        let mut groups = groups.split('/').peekable();
        let (mut first, mut many) = (true, false);
        while let Some(group) = groups.next() {
            let digits = if groups.peek().is_some() {
                many = true;
                group.strip_prefix('x').ok_or(malformed("N", INDEX))?
            } else {
                group
            };
            let is_right = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            // A first group of zeros is needless, unless it is the only one.
            if !is_right || (first && many && digits == "000") {
                return Err(malformed("N", INDEX));
            }
            let next = digits.parse().ok().and_then(|low: u64| index.checked_mul(1000)?.checked_add(low));
            index = next.filter(|index| *index <= SIZE_MAX).ok_or(malformed("N", "is above 2^63 - 1"))?;
            first = false;
        }
        Ok(Tile { content, index, width })
    }

    /// All tiles of hashes of a tree, of each level from left to right.
    pub fn of_tree(size: u64) -> impl Iterator<Item = Tile> {
        (0..HEIGHT).flat_map(move |level| {
            let hashes = size >> (u32::from(level) * u32::from(HEIGHT));
            let (full, rest) = (hashes / u64::from(WIDTH), hashes % u64::from(WIDTH));
            let last = u16::try_from(rest).ok().filter(|rest| *rest > 0);
            let full = (0..full).map(move |index| (index, WIDTH));
            full.chain(last.map(|width| (hashes / u64::from(WIDTH), width))).map(move |(index, width)| Tile {
                content: Content::Hashes(level),
                index,
                width,
            })
        })
    }

    /// Whether the tree of this size has the tile in this width, for its own or for an older checkpoint.
    pub fn is_in_tree(&self, size: u64) -> bool {
        let level = match self.content {
            Content::Entries => 0,
            Content::Hashes(level) => level,
        };
        let hashes = size.checked_shr(u32::from(level) * u32::from(HEIGHT)).unwrap_or(0);
        let start = self.index.checked_mul(u64::from(WIDTH));
        start.is_some_and(|start| start.saturating_add(u64::from(self.width)) <= hashes)
    }

    /// Which tile of hashes has what makes up a node, in a tree of this size, and which of its hashes: from
    /// the first, so many. Nothing if the tree does not have the node.
    pub fn of_node(node: Node, size: u64) -> Option<(Tile, usize, usize)> {
        let (level, height) = (node.level / HEIGHT, node.level % HEIGHT);
        let end = node.index.checked_add(1)?.checked_shl(u32::from(node.level))?;
        if end >> node.level != node.index + 1 || end > size {
            return None;
        }
        let first = node.index << height;
        let index = first / u64::from(WIDTH);
        let hashes = size >> (u32::from(level) * u32::from(HEIGHT));
        let width = u16::try_from((hashes - index * u64::from(WIDTH)).min(u64::from(WIDTH))).ok()?;
        let offset = usize::try_from(first % u64::from(WIDTH)).ok()?;
        Some((Tile { content: Content::Hashes(level), index, width }, offset, 1 << height))
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Content::Hashes(level) => write!(f, "tile/{level}/")?,
            Content::Entries => f.write_str("tile/entries/")?,
        }
        let mut groups = vec![self.index % 1000];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.push(rest % 1000);
            rest /= 1000;
        }
        for group in groups[1..].iter().rev() {
            write!(f, "x{group:03}/")?;
        }
        write!(f, "{:03}", groups[0])?;
        if self.width < WIDTH { write!(f, ".p/{}", self.width) } else { Ok(()) }
    }
}

/// Reads the hashes of a tile of this width.
pub fn hashes(bytes: &[u8], width: u16) -> Result<Vec<Hash>, Malformed> {
    if bytes.len() != usize::from(width) * HASH_LEN {
        return Err(malformed("tile", "must have 32 bytes for each hash of its width"));
    }
    Ok(bytes.chunks_exact(HASH_LEN).map(|hash| Hash(hash.try_into().expect("32 bytes"))).collect())
}

/// The hash of a node from the bytes of its tile, at the place that [`Tile::of_node`] gave. Nothing if the
/// tile is too short.
pub fn node_in_tile(bytes: &[u8], first: usize, count: usize) -> Option<Hash> {
    let bytes = bytes.get(first.checked_mul(HASH_LEN)?..first.checked_add(count)?.checked_mul(HASH_LEN)?)?;
    let hashes: Vec<Hash> =
        bytes.chunks_exact(HASH_LEN).map(|hash| Hash(hash.try_into().expect("32 bytes"))).collect();
    Some(merkle::root_of(&hashes))
}

/// Adds an entry to a bundle. Returns false, and adds nothing, if the entry is too long.
#[must_use]
pub fn put_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> bool {
    let Ok(length) = u16::try_from(entry.len()) else { return false };
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    true
}

/// Reads the entries of a bundle of this width.
pub fn entries(mut bundle: &[u8], width: u16) -> Result<Vec<&[u8]>, Malformed> {
    const ENDS: &str = "ends inside an entry, or has another number of entries than its width";
    let mut entries = Vec::new();
    for _ in 0..width {
        let (length, rest) = bundle.split_first_chunk().ok_or(malformed("bundle", ENDS))?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, rest) = rest.split_at_checked(length).ok_or(malformed("bundle", ENDS))?;
        entries.push(entry);
        bundle = rest;
    }
    if bundle.is_empty() { Ok(entries) } else { Err(malformed("bundle", ENDS)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_70000_has_the_tiles_of_the_c2sp_example() {
        let tiles: Vec<Tile> = Tile::of_tree(70_000).collect();
        let of = |level, width| {
            let right = |tile: &&Tile| tile.content == Content::Hashes(level) && tile.width == width;
            tiles.iter().filter(right).count()
        };
        assert_eq!((of(0, 256), of(0, 112), of(1, 256), of(1, 17), of(2, 1)), (273, 1, 1, 1, 1));
        assert_eq!(tiles.len(), 277);
        assert_eq!(
            Tile::of_tree(256).map(|tile| tile.to_string()).collect::<Vec<_>>(),
            ["tile/0/000", "tile/1/000.p/1"]
        );
        assert_eq!(Tile::of_tree(0).count(), 0);
    }

    #[test]
    fn a_node_that_the_tree_does_not_have_is_in_no_tile() {
        assert!(Tile::of_node(Node { level: 0, index: 4 }, 5).is_some());
        assert!(Tile::of_node(Node { level: 0, index: 5 }, 5).is_none());
        assert!(Tile::of_node(Node { level: 2, index: 1 }, 7).is_none());
        for level in [8, 62, 63, 64, 255] {
            assert!(Tile::of_node(Node { level, index: u64::MAX }, SIZE_MAX).is_none());
            assert!(Tile::of_node(Node { level, index: 1 << 62 }, SIZE_MAX).is_none(), "{level}");
        }
        let (tile, first, count) = Tile::of_node(Node { level: 62, index: 0 }, SIZE_MAX).unwrap();
        assert_eq!((tile.content, tile.index, first, count), (Content::Hashes(7), 0, 0, 64));
    }
}
