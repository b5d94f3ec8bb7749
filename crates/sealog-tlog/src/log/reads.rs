//! Reads of the store log: what anyone may have of it, and proofs for a chain. Only what a signed checkpoint
//! covers is given out.
//!
//! Each call blocks and is bounded: one tile, one bundle, a path of at most 63 hashes.
//! [`StoreLog::head_proof`] of an old snapshot builds a trie over all chains, one at a time, and the last 16
//! stay in memory.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use sealog_control::db::{Db, DbError, Value, all, one, params};
use sealog_core::id::Hash;
use sealog_store::StoreError;
use sealog_store::sync::lock;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::heads::{Blind, Trie, TrieProof};
use sealog_trust::leaf::Tag;
use sealog_trust::merkle::{Node, Plan};
use sealog_trust::note::Note;
use sealog_trust::tile::{self, Content, Tile, WIDTH};

use super::store_log::{StoreLog, Tree, blind, trie_of};

/// Tries that stay in memory. One of 10,000 chains takes some 2 MB.
pub const TRIES_MAX: usize = 16;

/// A signed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub tree: Tree,
    /// The note, as it is served.
    pub note: String,
}

/// The head of a chain in the newest published snapshot, without the way to the root of its trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedHead {
    /// The snapshot, as in [`HeadProof`].
    pub index: u64,
    pub time_ms: u64,
    pub size: u64,
    pub root: Hash,
}

/// What a snapshot says of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadProof {
    /// The snapshot: the index of its heads entry, its time and the root of its trie.
    pub index: u64,
    pub time_ms: u64,
    pub trie_root: Hash,
    pub found: Found,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Present { size: u64, root: Hash, blind: Blind, path: Vec<Hash> },
    Absent { path: Vec<Hash>, foreign: Option<(Tag, Hash)> },
}

/// An answer about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtSnapshot<T> {
    Is(T),
    /// There is no published heads entry at this index.
    Unknown,
    /// It was thinned out. The kept snapshots before and behind it.
    Pruned {
        before: Option<u64>,
        after: Option<u64>,
    },
}

impl StoreLog {
    /// Returns the newest signed checkpoint of the current log.
    pub fn newest(&self) -> Result<Option<Signed>, StoreError> {
        self.database.read(|db| match log_of(db)? {
            Some(log) => newest(db, log),
            None => Ok(None),
        })
    }

    /// Returns the oldest kept checkpoint that covers the entry at this index.
    pub fn checkpoint_at(&self, index: u64) -> Result<Option<Signed>, StoreError> {
        self.database.read(|db| {
            let Some(log) = log_of(db)? else { return Ok(None) };
            let sql = "SELECT note FROM {checkpoints} WHERE log = ?1 AND size > ?2 ORDER BY size LIMIT 1";
            signed(db, sql, params![log, index])
        })
    }

    pub(super) fn checkpoint_of(&self, log: u64, size: u64) -> Result<Option<Signed>, StoreError> {
        self.database.read(|db| {
            signed(db, "SELECT note FROM {checkpoints} WHERE log = ?1 AND size = ?2", params![log, size])
        })
    }

    /// Returns the bytes of a tile or of an entry bundle; None if no signed tree has it in this width.
    pub fn tile(&self, tile: Tile) -> Result<Option<Vec<u8>>, StoreError> {
        self.database.read(|db| {
            let Some((log, size)) = published_size(db)? else { return Ok(None) };
            if !tile.is_in_tree(size) {
                return Ok(None);
            }
            match tile.content {
                Content::Hashes(level) => {
                    let sql = "SELECT hashes FROM {tiles} WHERE log = ?1 AND level = ?2 AND idx = ?3";
                    let params = params![log, level, tile.index];
                    let Some(mut hashes) = one(db, sql, params, |row| row.get::<Vec<u8>>("hashes"))? else {
                        return Err(missing("a tile"));
                    };
                    hashes.truncate(usize::from(tile.width) * 32);
                    Ok(Some(hashes))
                }
                Content::Entries => {
                    let first = tile.index * u64::from(WIDTH);
                    let sql =
                        "SELECT entry FROM {entries} WHERE log = ?1 AND idx >= ?2 AND idx < ?3 ORDER BY idx";
                    let end = first + u64::from(tile.width);
                    let entries = all(db, sql, params![log, first, end], |row| row.get::<Vec<u8>>("entry"))?;
                    let mut bundle = Vec::new();
                    if entries.len() != usize::from(tile.width)
                        || !entries.iter().all(|entry| tile::put_entry(&mut bundle, entry))
                    {
                        return Err(missing("an entry"));
                    }
                    Ok(Some(bundle))
                }
            }
        })
    }

    /// Returns an entry that a signed checkpoint covers.
    pub fn entry(&self, index: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.database.read(|db| {
            let Some((log, size)) = published_size(db)? else { return Ok(None) };
            if index >= size {
                return Ok(None);
            }
            entry(db, log, index)
        })
    }

    /// Returns the path from an entry to the root of the tree of this size. None if there is no such entry,
    /// or if no checkpoint of that size or above is signed.
    pub fn inclusion(&self, index: u64, size: u64) -> Result<Option<Vec<Hash>>, StoreError> {
        self.prove(size, || Plan::inclusion(index, size).ok())
    }

    /// Returns the proof that one tree begins the other.
    pub fn consistency(&self, old: u64, size: u64) -> Result<Option<Vec<Hash>>, StoreError> {
        self.prove(size, || Plan::consistency(old, size).ok())
    }

    fn prove(&self, size: u64, plan: impl FnOnce() -> Option<Plan>) -> Result<Option<Vec<Hash>>, StoreError> {
        self.database.read(|db| match (published_size(db)?, plan()) {
            (Some((log, published)), Some(plan)) if size <= published => {
                proof(db, log, size, &plan).map(Some)
            }
            _ => Ok(None),
        })
    }

    /// Returns the root that a tree of this log has, or had, at a size. None if it was never so large.
    pub(super) fn root_at(&self, log: u64, tree: Tree, size: u64) -> Result<Option<Hash>, StoreError> {
        if size > tree.size {
            return Ok(None);
        }
        self.database.read(|db| {
            let plan = Plan::root(size).map_err(|error| DbError::Refused(error.to_string()))?;
            // The proof of a root is the root.
            Ok(proof(db, log, tree.size, &plan)?.first().copied())
        })
    }

    /// Returns the newest published head of a chain. Costs a few look-ups, where a proof needs the trie.
    pub fn published_head(&self, tag: Tag) -> Result<Option<PublishedHead>, StoreError> {
        self.database.read(|db| {
            let Some((log, size)) = published_size(db)? else { return Ok(None) };
            let AtSnapshot::Is((log, index, time_ms, _)) = snapshot_at(db, log, size, None)? else {
                return Ok(None);
            };
            let head = head_at(db, log, index, tag)?;
            Ok(head.map(|(size, root)| PublishedHead { index, time_ms, size, root }))
        })
    }

    /// Returns what the newest published snapshot, or that at an index, says of a chain.
    pub fn head_proof(&self, tag: Tag, at: Option<u64>) -> Result<AtSnapshot<HeadProof>, StoreError> {
        let asked = self.database.read(|db| {
            let Some((log, size)) = published_size(db)? else { return Ok(AtSnapshot::Unknown) };
            snapshot_at(db, log, size, at)
        })?;
        let (log, index, time_ms, trie_root) = match asked {
            AtSnapshot::Is(snapshot) => snapshot,
            AtSnapshot::Unknown => return Ok(AtSnapshot::Unknown),
            AtSnapshot::Pruned { before, after } => return Ok(AtSnapshot::Pruned { before, after }),
        };
        let trie = self.trie(log, index, trie_root)?;
        let found = match trie.prove(&tag) {
            TrieProof::Absent { path, foreign } => Found::Absent { path, foreign },
            TrieProof::Present { path } => self.database.read(|db| {
                let secret = blind(db)?.ok_or_else(|| missing("the state"))?.1;
                let (size, root) = head_at(db, log, index, tag)?.ok_or_else(|| missing("a head"))?;
                Ok(Found::Present { size, root, blind: Blind::of(&secret, &tag, index), path })
            })?,
        };
        Ok(AtSnapshot::Is(HeadProof { index, time_ms, trie_root, found }))
    }

    /// The trie of a snapshot, from memory or from the history of heads.
    fn trie(&self, log: u64, index: u64, root: Hash) -> Result<Arc<Trie>, StoreError> {
        if let Some(trie) = self.kept_trie((log, index)) {
            return Ok(trie);
        }
        let _one_at_a_time = lock(&self.building);
        if let Some(trie) = self.kept_trie((log, index)) {
            return Ok(trie);
        }
        let trie = self.database.read(|db| {
            let (_, secret) = blind(db)?.ok_or_else(|| missing("the state"))?;
            let sql = "SELECT p.tag AS tag, h.size AS size, h.root AS root
                       FROM {published} p JOIN {heads} h ON h.chain = p.number AND h.log = ?1
                       WHERE h.idx = (SELECT max(l.idx) FROM {heads} l
                                      WHERE l.chain = p.number AND l.log = ?1 AND l.idx <= ?2)";
            let heads = all(db, sql, params![log, index], |row| {
                Ok((Tag(row.get("tag")?), row.get::<u64>("size")?, row.get::<Hash>("root")?))
            })?;
            trie_of(heads.into_iter(), &secret, index)
                .map_err(|tag| DbError::Failed(format!("two chains have the tag {}", tag.0)))
        })?;
        if trie.root() != root {
            return Err(StoreError::Read(format!(
                "the heads of snapshot {index} do not lead to its published root; the store log is damaged"
            )));
        }
        let trie = Arc::new(trie);
        self.keep_trie((log, index), Arc::clone(&trie));
        Ok(trie)
    }

    fn kept_trie(&self, key: (u64, u64)) -> Option<Arc<Trie>> {
        lock(&self.tries).iter().find(|(kept, _)| *kept == key).map(|(_, trie)| Arc::clone(trie))
    }

    pub(super) fn keep_trie(&self, key: (u64, u64), trie: Arc<Trie>) {
        let mut tries = lock(&self.tries);
        tries.push_back((key, trie));
        while tries.len() > TRIES_MAX {
            tries.pop_front();
        }
    }
}

type SnapshotRow = (u64, u64, u64, Hash);

/// Log, index, time and root of a snapshot that a signed tree of this size has.
fn snapshot_at(
    db: &mut dyn Db,
    log: u64,
    size: u64,
    at: Option<u64>,
) -> Result<AtSnapshot<SnapshotRow>, DbError> {
    let row = |condition: &str, order: &str| {
        format!(
            "SELECT idx, time_ms, root FROM {{snapshots}} WHERE log = ?1 AND idx < ?2 AND {condition}
             ORDER BY idx {order} LIMIT 1"
        )
    };
    let mut find = |sql: String, params: &[Value]| {
        one(db, &sql, params, |row| Ok((log, row.get("idx")?, row.get("time_ms")?, row.get("root")?)))
    };
    let Some(at) = at else {
        let found = find(row("true", "DESC"), params![log, size])?;
        return Ok(found.map_or(AtSnapshot::Unknown, AtSnapshot::Is));
    };
    if let Some(found) = find(row("idx = ?3", "ASC"), params![log, size, at])? {
        return Ok(AtSnapshot::Is(found));
    }
    let before = find(row("idx < ?3", "DESC"), params![log, size, at])?.map(|(_, index, ..)| index);
    let after = find(row("idx > ?3", "ASC"), params![log, size, at])?.map(|(_, index, ..)| index);
    if at >= size {
        return Ok(AtSnapshot::Unknown);
    }
    // Other kinds of entries are no snapshots.
    let text = entry(db, log, at)?.ok_or_else(|| missing("an entry"))?;
    match sealog_trust::entry::Entry::parse(&text) {
        Ok(sealog_trust::entry::Entry::Heads { .. }) => Ok(AtSnapshot::Pruned { before, after }),
        _ => Ok(AtSnapshot::Unknown),
    }
}

/// Size and root of a chain at a snapshot: its last row at or before it.
fn head_at(db: &mut dyn Db, log: u64, index: u64, tag: Tag) -> Result<Option<(u64, Hash)>, DbError> {
    let sql = "SELECT size, root FROM {heads} WHERE log = ?1 AND idx <= ?2
               AND chain = (SELECT number FROM {published} WHERE tag = ?3) ORDER BY idx DESC LIMIT 1";
    one(db, sql, params![log, index, tag.0], |row| Ok((row.get("size")?, row.get("root")?)))
}

fn missing(what: &str) -> DbError {
    DbError::Failed(format!("{what} of the store log is missing"))
}

fn log_of(db: &mut dyn Db) -> Result<Option<u64>, DbError> {
    one(db, "SELECT log FROM {state}", &[], |row| row.get("log"))
}

fn entry(db: &mut dyn Db, log: u64, index: u64) -> Result<Option<Vec<u8>>, DbError> {
    one(db, "SELECT entry FROM {entries} WHERE log = ?1 AND idx = ?2", params![log, index], |row| {
        row.get("entry")
    })
}

/// The current log, and the size of its newest signed tree.
fn published_size(db: &mut dyn Db) -> Result<Option<(u64, u64)>, DbError> {
    let sql = "SELECT log, size FROM {checkpoints} WHERE log = (SELECT log FROM {state}) ORDER BY size DESC LIMIT 1";
    one(db, sql, &[], |row| Ok((row.get("log")?, row.get("size")?)))
}

fn newest(db: &mut dyn Db, log: u64) -> Result<Option<Signed>, DbError> {
    signed(db, "SELECT note FROM {checkpoints} WHERE log = ?1 ORDER BY size DESC LIMIT 1", params![log])
}

fn signed(db: &mut dyn Db, sql: &str, params: &[Value]) -> Result<Option<Signed>, DbError> {
    let Some(note) = one(db, sql, params, |row| row.get::<String>("note"))? else { return Ok(None) };
    let damaged = |problem: String| DbError::Damaged { column: "note".into(), problem };
    let parsed = Note::parse(note.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    let Checkpoint { size, root, .. } =
        Checkpoint::parse(parsed.text()).map_err(|error| damaged(error.to_string()))?;
    Ok(Some(Signed { tree: Tree { size, root }, note }))
}

/// A proof from the tiles. The tree of `size` must be one that the log has, or had.
fn proof(db: &mut dyn Db, log: u64, size: u64, plan: &Plan) -> Result<Vec<Hash>, DbError> {
    let mut tiles: HashMap<(u8, u64), Vec<u8>> = HashMap::new();
    let mut node = |node: &Node| {
        let (tile, first, count) = Tile::of_node(*node, size).ok_or_else(|| missing("a node"))?;
        let Content::Hashes(level) = tile.content else { return Err(missing("a node")) };
        let key = (level, tile.index);
        let hashes = match tiles.entry(key) {
            hash_map::Entry::Occupied(known) => known.into_mut(),
            hash_map::Entry::Vacant(unknown) => {
                let sql = "SELECT hashes FROM {tiles} WHERE log = ?1 AND level = ?2 AND idx = ?3";
                let read = one(db, sql, params![log, level, tile.index], |row| row.get("hashes"))?;
                unknown.insert(read.ok_or_else(|| missing("a tile"))?)
            }
        };
        tile::node_in_tile(hashes, first, count).ok_or_else(|| missing("a hash of a tile"))
    };
    let hashes = plan.nodes().iter().map(&mut node).collect::<Result<Vec<Hash>, DbError>>()?;
    plan.proof(&hashes).ok_or_else(|| missing("a hash"))
}
