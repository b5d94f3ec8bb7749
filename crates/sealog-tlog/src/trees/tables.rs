//! The SQL of the trees. Every change is one transaction that counts the revision up from the one that its
//! reader has seen: whatever another node has changed since makes it fail, and nothing of it is kept.

use std::collections::HashMap;

use sealog_control::db::{Db, DbError, Lock, Room, Row, Value, all, count, one, params};
use sealog_core::id::{ChainId, Hash, Uuid};
use sealog_store::StoreError;
use sealog_trust::leaf::Tag;
use sealog_trust::merkle::CompactRange;
use sealog_trust::tile::WIDTH;

use super::edge::{Edge, Place};
use super::{Cut, Inner, Stopped, TreeHead};
use crate::log::salt_keys::{chain, wanted};

/// Chains in one statement.
pub(super) const CHAINS_MAX: usize = 200;
/// Tiles in one statement: at most 1 MiB of hashes.
const TILES_MAX: usize = 128;
const HASH_BYTES: usize = 32;
const TILE_BYTES: usize = WIDTH as usize * HASH_BYTES;
/// What a transaction may take of a disk.
const TRANSACTION_BYTES: u64 = 32 << 20;
/// How long a node that does not say anything keeps others from building.
const LEASE_MS: u64 = 15_000;

const COLUMNS: &str = "number, tenant_id, project_id, size, hash, peaks, revision, cut_to, cut_revision, stopped_at, problem, tried";
const COLUMNS_COUNT: usize = 12;

/// The row of the builder, as this process has last seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Builder {
    pub life: Uuid,
    pub revision: u64,
    /// Empty before the first one.
    pub position: String,
}

/// A tree as its row has it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub number: u64,
    pub chain: ChainId,
    pub range: CompactRange,
    pub hash: Hash,
    pub revision: u64,
    pub cut: Option<Cut>,
    pub stopped: Option<Stopped>,
}

impl Kept {
    pub(super) fn edge(self) -> Edge {
        let Kept { number, chain, range, hash, cut, stopped, .. } = self;
        Edge { number: Some(number), range, hash, cut, stopped, ..Edge::new(chain) }
    }

    pub(super) fn head(self) -> TreeHead {
        let Kept { chain, range, hash, revision, cut, stopped, .. } = self;
        let (tag, size, root) = (Tag::of(chain), range.size(), range.root());
        TreeHead { chain, tag, size, root, hash, revision, cut, stopped }
    }
}

fn read(row: &Row) -> Result<Kept, DbError> {
    let damaged = |column: &str, problem: &str| DbError::Damaged {
        column: column.to_owned(),
        problem: problem.to_owned(),
    };
    let size: u64 = row.get("size")?;
    let peaks: Vec<u8> = row.get("peaks")?;
    let hashes = peaks.chunks_exact(HASH_BYTES);
    if !hashes.remainder().is_empty() {
        return Err(damaged("peaks", "ends inside a hash"));
    }
    let peaks = hashes.map(|hash| Hash(hash.try_into().expect("32 bytes"))).collect();
    let range =
        CompactRange::from_peaks(size, peaks).ok_or_else(|| damaged("peaks", "does not fit the size"))?;
    let cut_revision: u64 = row.get("cut_revision")?;
    let stopped_at: u64 = row.get("stopped_at")?;
    let cut_to = row.get("cut_to")?;
    let problem = row.get("problem")?;
    Ok(Kept {
        number: row.get("number")?,
        chain: chain(row)?,
        range,
        hash: row.get("hash")?,
        revision: row.get("revision")?,
        cut: (cut_revision > 0).then_some(Cut { to: cut_to, revision: cut_revision }),
        stopped: (stopped_at > 0).then_some(Stopped { at: stopped_at, problem }),
    })
}

/// The rows of these chains, those that have one.
pub(super) fn find(db: &mut dyn Db, chains: &[ChainId]) -> Result<HashMap<ChainId, Kept>, DbError> {
    let mut found = HashMap::new();
    for chains in chains.chunks(CHAINS_MAX) {
        let (wanted, params) = wanted(chains);
        let columns: Vec<String> = COLUMNS.split(", ").map(|column| format!("c.{column}")).collect();
        let sql = format!(
            "{wanted} SELECT {} FROM wanted JOIN {{chains}} c
             ON c.tenant_id = wanted.tenant_id AND c.project_id = wanted.project_id",
            columns.join(", ")
        );
        for kept in all(db, &sql, &params, read)? {
            found.insert(kept.chain, kept);
        }
    }
    Ok(found)
}

/// Trees that were changed behind a revision and a number, in that order.
pub(super) fn changed(
    db: &mut dyn Db,
    revision: u64,
    number: u64,
    limit: usize,
) -> Result<Vec<Kept>, DbError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {{chains}} WHERE (revision, number) > (?1, ?2) ORDER BY revision, number LIMIT ?3"
    );
    all(db, &sql, params![revision, number, limit], read)
}

/// Trees that have stopped, the one that was tried first.
pub(super) fn stopped(db: &mut dyn Db, limit: usize) -> Result<Vec<Kept>, DbError> {
    let sql =
        format!("SELECT {COLUMNS} FROM {{chains}} WHERE stopped_at > 0 ORDER BY tried, number LIMIT ?1");
    all(db, &sql, params![limit], read)
}

pub(super) fn count_stopped(db: &mut dyn Db) -> Result<u64, DbError> {
    count(db, "SELECT count(*) AS count FROM {chains} WHERE stopped_at > 0", &[])
}

/// Leaves of all trees.
pub(super) fn count_leaves(db: &mut dyn Db) -> Result<u64, DbError> {
    count(db, "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) AS count FROM {chains}", &[])
}

pub(super) fn builder(db: &mut dyn Db) -> Result<Option<Builder>, DbError> {
    one(db, "SELECT life, revision, position FROM {builder} WHERE id = 1", &[], |row| {
        Ok(Builder { life: row.get("life")?, revision: row.get("revision")?, position: row.get("position")? })
    })
}

impl Inner {
    /// The row of the builder, with the right to build for a while. Nothing while another node has it.
    pub(super) fn begin(&self) -> Result<Option<Builder>, StoreError> {
        let now_ms = self.world.now_ms();
        let mut life = [0; 16];
        self.world.fill_random(&mut life);
        self.change(|db| {
            let sql = "INSERT INTO {builder} (id, life, revision, position, node, until_ms) VALUES (1, ?1, 1, '', ?2, 0) ON CONFLICT DO NOTHING";
            db.execute(sql, params![Uuid(life), self.node])?;
            // A clock that was set back must not keep everyone waiting.
            let sql = "UPDATE {builder} SET node = ?1, until_ms = ?2
                       WHERE id = 1 AND (node = ?1 OR ?3 OR until_ms <= ?4 OR until_ms > ?2)";
            let taken = db.execute(sql, params![self.node, now_ms + LEASE_MS, !self.shared, now_ms])?;
            if taken == 0 { Ok(None) } else { builder(db) }
        })
    }

    /// Lets other nodes build.
    pub(super) fn end(&self) -> Result<(), StoreError> {
        if !self.shared {
            return Ok(());
        }
        let sql = "UPDATE {builder} SET until_ms = 0 WHERE id = 1 AND node = ?1";
        self.change(|db| db.execute(sql, params![self.node]).map(drop))
    }

    /// Keeps what has grown, and the position if there is one: all of it or nothing.
    pub(super) fn keep(
        &self,
        seen: &mut Builder,
        edges: &mut [Edge],
        position: Option<String>,
    ) -> Result<(), StoreError> {
        let written = position.clone();
        let revision = self.revise(seen, |db, revision| {
            number(db, edges)?;
            write_tiles(db, edges)?;
            write_chains(db, edges, revision)?;
            if let Some(position) = written {
                db.execute("UPDATE {builder} SET position = ?1 WHERE id = 1", params![position])?;
            }
            Ok(())
        })?;
        seen.revision = revision;
        if let Some(position) = position {
            seen.position = position;
        }
        edges.iter_mut().for_each(|edge| edge.tiles.clear());
        Ok(())
    }

    /// Cuts a tree that is in the database to its first leaves, of which `range` is the right edge.
    pub(super) fn cut(
        &self,
        seen: &mut Builder,
        edge: &mut Edge,
        range: CompactRange,
        hash: Hash,
    ) -> Result<(), StoreError> {
        let number =
            edge.number.ok_or_else(|| StoreError::Control("a new tree has nothing to cut".into()))?;
        let to = range.size();
        let mut kept = Edge { range, hash, stopped: None, ..edge.clone() };
        kept.tiles.clear();
        seen.revision = self.revise(seen, |db, revision| {
            cut_tiles(db, number, to)?;
            kept.cut = Some(Cut { to, revision });
            write_chains(db, std::slice::from_ref(&kept), revision)
        })?;
        *edge = kept;
        Ok(())
    }

    /// One transaction on top of the revision that was seen; the new one.
    fn revise(
        &self,
        seen: &Builder,
        act: impl FnOnce(&mut dyn Db, u64) -> Result<(), DbError>,
    ) -> Result<u64, StoreError> {
        if !self.database.has_room(TRANSACTION_BYTES) {
            return Err(StoreError::NoRoom);
        }
        let next = seen.revision + 1;
        let until_ms = self.world.now_ms() + LEASE_MS;
        self.change(|db| {
            // Also a lock: another node's transaction waits for the end of this one, and then fails.
            let sql = "UPDATE {builder} SET revision = ?1, until_ms = ?2
                       WHERE id = 1 AND life = ?3 AND revision = ?4 AND node = ?5";
            let params = params![next, until_ms, seen.life, seen.revision, self.node];
            if db.execute(sql, params)? == 0 {
                return Err(DbError::Failed("another node has changed the trees meanwhile".into()));
            }
            act(db, next)
        })?;
        Ok(next)
    }

    fn change<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, StoreError> {
        self.database.change_in(Room::Ordinary, Lock::None, |db, _| act(db))
    }
}

/// New trees get the numbers behind the last one.
fn number(db: &mut dyn Db, edges: &mut [Edge]) -> Result<(), DbError> {
    if edges.iter().all(|edge| edge.number.is_some()) {
        return Ok(());
    }
    let last = count(db, "SELECT coalesce(max(number), 0) AS count FROM {chains}", &[])?;
    let new = edges.iter_mut().filter(|edge| edge.number.is_none());
    new.zip(last + 1..).for_each(|(edge, number)| edge.number = Some(number));
    Ok(())
}

fn write_chains(db: &mut dyn Db, edges: &[Edge], revision: u64) -> Result<(), DbError> {
    for edges in edges.chunks(CHAINS_MAX) {
        let mut params: Vec<Value> = Vec::with_capacity(edges.len() * COLUMNS_COUNT);
        for edge in edges {
            let peaks: Vec<u8> = edge.range.peaks().iter().flat_map(|hash| hash.0).collect();
            let cut = edge.cut.unwrap_or(Cut { to: 0, revision: 0 });
            let (stopped_at, problem) =
                edge.stopped.as_ref().map_or((0, ""), |stopped| (stopped.at, stopped.problem.as_str()));
            params.extend([
                edge.number.into(),
                edge.chain.tenant_id.into(),
                edge.chain.project_id.into(),
                edge.size().into(),
                edge.hash.into(),
                peaks.into(),
                revision.into(),
                cut.to.into(),
                cut.revision.into(),
                stopped_at.into(),
                problem.into(),
                revision.into(),
            ]);
        }
        let set: Vec<String> = COLUMNS
            .split(", ")
            .filter(|column| !["number", "tenant_id", "project_id"].contains(column))
            .map(|column| format!("{column} = excluded.{column}"))
            .collect();
        let sql = format!(
            "INSERT INTO {{chains}} ({COLUMNS}) VALUES {} ON CONFLICT (number) DO UPDATE SET {}",
            places(edges.len(), COLUMNS_COUNT, 0),
            set.join(", ")
        );
        db.execute(&sql, &params)?;
    }
    Ok(())
}

/// Each tile with the hashes that it has before those that are new: a row is written whole.
fn write_tiles(db: &mut dyn Db, edges: &[Edge]) -> Result<(), DbError> {
    let grown: Vec<_> = edges
        .iter()
        .flat_map(|edge| edge.tiles.iter().map(|(place, growth)| (edge.number.unwrap_or(0), place, growth)))
        .collect();
    for grown in grown.chunks(TILES_MAX) {
        let begun: Vec<(u64, Place)> = grown
            .iter()
            .filter(|(.., growth)| growth.has > 0)
            .map(|(number, place, _)| (*number, **place))
            .collect();
        let before = tiles(db, &begun)?;
        let mut params: Vec<Value> = Vec::with_capacity(grown.len() * 4);
        for (number, place, growth) in grown {
            let has = usize::from(growth.has) * HASH_BYTES;
            let mut hashes = Vec::with_capacity(TILE_BYTES);
            if has > 0 {
                let kept = before.get(&(*number, **place)).and_then(|kept| kept.get(..has));
                // The transaction ends, and the next attempt finds what is there then.
                hashes.extend_from_slice(kept.ok_or_else(|| DbError::Damaged {
                    column: "hashes".into(),
                    problem: format!("of tile {}/{} of tree {number} is too short", place.level, place.index),
                })?);
            }
            hashes.extend_from_slice(&growth.hashes);
            params.extend([(*number).into(), place.level.into(), place.index.into(), hashes.into()]);
        }
        let sql = format!(
            "INSERT INTO {{tiles}} (chain, level, idx, hashes) VALUES {} ON CONFLICT (chain, level, idx) DO UPDATE SET hashes = excluded.hashes",
            places(grown.len(), 4, 0)
        );
        db.execute(&sql, &params)?;
    }
    Ok(())
}

fn tiles(db: &mut dyn Db, wanted: &[(u64, Place)]) -> Result<HashMap<(u64, Place), Vec<u8>>, DbError> {
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let params: Vec<Value> = wanted
        .iter()
        .flat_map(|(number, place)| [(*number).into(), place.level.into(), place.index.into()])
        .collect();
    let sql = format!(
        "WITH wanted (chain, level, idx) AS (VALUES {}) SELECT t.chain, t.level, t.idx, t.hashes FROM wanted
         JOIN {{tiles}} t ON t.chain = wanted.chain AND t.level = wanted.level AND t.idx = wanted.idx",
        places(wanted.len(), 3, 0)
    );
    let read = |row: &Row| {
        let place = Place { level: row.get("level")?, index: row.get("idx")? };
        Ok(((row.get("chain")?, place), row.get("hashes")?))
    };
    Ok(all(db, &sql, &params, read)?.into_iter().collect())
}

/// Removes what lies behind the first `size` leaves.
fn cut_tiles(db: &mut dyn Db, number: u64, size: u64) -> Result<(), DbError> {
    for level in 0..8u32 {
        let hashes = size >> (8 * level);
        let (index, width) = (hashes / u64::from(WIDTH), hashes % u64::from(WIDTH));
        let sql = "DELETE FROM {tiles} WHERE chain = ?1 AND level = ?2 AND idx >= ?3";
        let first_gone = if width > 0 { index + 1 } else { index };
        db.execute(sql, params![number, level, first_gone])?;
        let sql = "UPDATE {tiles} SET hashes = substr(hashes, 1, CAST(?1 AS INTEGER)) WHERE chain = ?2 AND level = ?3 AND idx = ?4";
        db.execute(sql, params![width * HASH_BYTES as u64, number, level, index])?;
    }
    Ok(())
}

/// `(?1, ?2), (?3, ?4)` for two rows of two columns, with no parameter before them.
pub(super) fn places(rows: usize, columns: usize, before: usize) -> String {
    let row = |row: usize| {
        let places: Vec<String> =
            (1..=columns).map(|column| format!("?{}", before + row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}
