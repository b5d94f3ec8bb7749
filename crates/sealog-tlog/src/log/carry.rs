//! Copies the log of one store into another, for `sealog copy`, `sealog replicate` and `sealog restore`.
//!
//! ```text
//! t0  the outline of the source is read: where its log ends, and what it published last of each chain
//! t1  the caller copies the events, up to at least the end that they have now
//! t2  the log is copied up to the outline
//! ```
//! In this order the copy never has a published head of an event that it lacks. A copy that is made again
//! adds what is new, in one transaction if that is little. Entries are verified: they must lead to the tree
//! that the outline has.
//!
//! A copy is marked, since the source may sign more after t0. Its server signs nothing until that is excluded
//! ([`Signer`](super::Signer)). Private keys are in files, and no part of it.

use std::collections::HashMap;
use std::fmt;

use sealog_control::db::{Db, DbError, Lock, Room, Row, Value, all, count, one, params};
use sealog_core::id::{Hash, Uuid};
use sealog_store::StoreError;

use super::store_log::{
    Place, State, StoreLog, Tree, append_known, insert_state, mark_copied, state, take, update_state,
};

/// Rows of a table that are read and written at a time.
const PAGE: usize = 2000;
/// Most rows in one statement. Fewer are sent in statements of a power of two each.
const ROWS_IN_STATEMENT: usize = 256;
/// The mark of a copy that was interrupted: nothing but making it again helps.
pub(super) const INCOMPLETE: &str = "the copy of the log is incomplete; run the command that makes it again";

/// A log as it was at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Outline {
    pub place: Place,
    blind: Vec<u8>,
    published: Vec<Vec<Value>>,
    /// The mark of the source, if that is a copy itself.
    copied: Option<String>,
}

/// Without its secret.
impl fmt::Debug for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outline").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why a log was not copied.
#[derive(Debug)]
pub enum CarryError {
    Source(StoreError),
    Target(StoreError),
    /// The target has another log, or more of it.
    NoBeginning {
        ours: u64,
        theirs: u64,
    },
    /// Entries of the source do not lead to its tree.
    Broken,
}

impl fmt::Display for CarryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CarryError::Source(error) | CarryError::Target(error) => error.fmt(f),
            CarryError::NoBeginning { ours, theirs } => write!(
                f,
                "the signed log of the target, with {ours} entries, is not the beginning of that of the source, with {theirs}"
            ),
            CarryError::Broken => f.write_str("the entries of the signed log do not lead to its tree"),
        }
    }
}

impl std::error::Error for CarryError {}

#[derive(Clone, Copy)]
enum Kind {
    Id,
    Int,
    Bytes,
    Text,
    OptionalText,
}

/// A table as it is copied: all of its columns, those of its primary key first.
struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Kind)],
}

const SALT_KEYS: Table = Table {
    name: "salt_keys",
    columns: &[
        ("tenant_id", Kind::Id),
        ("project_id", Kind::Id),
        ("number", Kind::Int),
        ("from_seq", Kind::Int),
        ("event_hash", Kind::Bytes),
        ("key", Kind::Bytes),
    ],
};
/// Without the number, which each database gives by itself.
const PUBLISHED: Table = Table {
    name: "published",
    columns: &[
        ("tag", Kind::Bytes),
        ("tenant_id", Kind::Id),
        ("project_id", Kind::Id),
        ("log", Kind::Int),
        ("idx", Kind::Int),
        ("size", Kind::Int),
        ("root", Kind::Bytes),
        ("hash", Kind::Bytes),
        ("finding", Kind::OptionalText),
    ],
};
const SNAPSHOTS: Table = Table {
    name: "snapshots",
    columns: &[
        ("log", Kind::Int),
        ("idx", Kind::Int),
        ("time_ms", Kind::Int),
        ("root", Kind::Bytes),
        ("kept", Kind::Int),
    ],
};
const CHECKPOINTS: Table =
    Table { name: "checkpoints", columns: &[("log", Kind::Int), ("size", Kind::Int), ("note", Kind::Text)] };
const HEADS: Table = Table {
    name: "heads",
    columns: &[
        ("chain", Kind::Int),
        ("log", Kind::Int),
        ("idx", Kind::Int),
        ("size", Kind::Int),
        ("root", Kind::Bytes),
    ],
};

impl Table {
    fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    fn read(&self, row: &Row) -> Result<Vec<Value>, DbError> {
        let value = |(name, kind): &(&str, Kind)| {
            Ok(match kind {
                Kind::Id => row.get::<Uuid>(name)?.into(),
                Kind::Int => row.get::<i64>(name)?.into(),
                Kind::Bytes => row.get::<Vec<u8>>(name)?.into(),
                Kind::Text => row.get::<String>(name)?.into(),
                Kind::OptionalText => row.get::<Option<String>>(name)?.into(),
            })
        };
        self.columns.iter().map(value).collect()
    }

    fn insert(&self, db: &mut dyn Db, rows: &[Vec<Value>], on_conflict: &str) -> Result<(), DbError> {
        let (width, mut rest) = (self.columns.len(), rows);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(ROWS_IN_STATEMENT.min(1 << rest.len().ilog2()));
            rest = later;
            let row = |row: usize| {
                let places: Vec<String> = (1..=width).map(|at| format!("?{}", row * width + at)).collect();
                format!("({})", places.join(", "))
            };
            let places: Vec<String> = (0..now.len()).map(row).collect();
            let (table, names) = (self.name, self.names());
            let sql = format!("INSERT INTO {{{table}}} ({names}) VALUES {} {on_conflict}", places.join(", "));
            db.execute(&sql, &now.concat())?;
        }
        Ok(())
    }
}

const KEEP: &str = "ON CONFLICT DO NOTHING";

/// Behind which row of a table to go on: its log, its index, and for heads the number of its chain.
type Behind = (u64, u64, u64);

#[derive(Clone, Copy)]
struct Cursors {
    snapshots: Behind,
    checkpoints: Behind,
    heads: Behind,
}

/// What one transaction of the target writes.
#[derive(Default)]
struct Round {
    /// The log of the entries.
    log: u64,
    entries: Vec<Vec<u8>>,
    snapshots: Vec<Vec<Value>>,
    checkpoints: Vec<Vec<Value>>,
    /// With the tag of the chain in the place of its number.
    heads: Vec<(Hash, Vec<Value>)>,
    /// All entries are there, with this round.
    has_entries: bool,
    is_last: bool,
}

impl StoreLog {
    /// Returns where the log is, with what it published last; None before it began.
    pub fn outline(&self) -> Result<Option<Outline>, StoreError> {
        self.database.read(|db| {
            let Some(State { place, blind, .. }) = state(db)? else { return Ok(None) };
            let copied = one(db, "SELECT copied FROM {state}", &[], |row| row.get("copied"))?.flatten();
            let sql = format!("SELECT {} FROM {{published}} ORDER BY number", PUBLISHED.names());
            let mut published = all(db, &sql, &[], |row| {
                let is_of_place =
                    row.get::<u64>("log")? < place.log || row.get::<u64>("idx")? < place.tree.size;
                Ok((is_of_place, PUBLISHED.read(row)?))
            })?;
            // Another server may have published between the two statements.
            published.retain(|(is_of_place, _)| *is_of_place);
            let published = published.into_iter().map(|(_, row)| row).collect();
            Ok(Some(Outline { place, blind, published, copied }))
        })
    }

    /// Brings this log up to an outline of another one, of which it must be the beginning, and returns how
    /// many entries that took. `why` is the mark that it gets.
    pub fn carry(&self, from: &StoreLog, outline: &Outline, why: Option<&str>) -> Result<u64, CarryError> {
        if let Some(ours) = self.place().map_err(CarryError::Target)?
            && !from.continues(&ours, outline).map_err(CarryError::Source)?
        {
            let theirs = outline.place.tree.size;
            return Err(CarryError::NoBeginning { ours: ours.tree.size, theirs });
        }
        self.carry_salts(from)?;
        let mut cursors = self.cursors().map_err(CarryError::Target)?;
        let (mut carried, why) = (0, outline.copied.as_deref().or(why));
        // Written once, and before the heads, which refer to them.
        let mut published = Some(outline.published.as_slice());
        loop {
            let at = self.place().map_err(CarryError::Target)?;
            let round = from.round(outline, at.as_ref(), &mut cursors).map_err(CarryError::Source)?;
            if round.entries.is_empty() && !round.has_entries {
                return Err(CarryError::Broken);
            }
            let published = if round.has_entries { published.take() } else { None };
            let mark = if round.is_last { why } else { Some(INCOMPLETE) };
            let tree = self.write(at.as_ref(), &round, (outline, published), mark);
            if tree.map_err(CarryError::Target)? != outline.place.tree && round.has_entries {
                return Err(CarryError::Broken);
            }
            carried += round.entries.len() as u64;
            if round.is_last {
                return Ok(carried);
            }
        }
    }

    /// Whether a log with this end is the beginning of this one, of which the caller has the outline.
    pub fn continues(&self, ours: &Place, outline: &Outline) -> Result<bool, StoreError> {
        let size = match outline.place.log {
            log if log == ours.log => outline.place.tree.size,
            log if log > ours.log => self.database.read(|db| size_of(db, ours.log))?,
            _ => return Ok(false),
        };
        let tree = Tree { size, root: Hash::ZERO };
        Ok(self.root_at(ours.log, tree, ours.tree.size)? == Some(ours.tree.root))
    }

    /// Root keys of chains are durable before anything is published of their trees, so those that are there
    /// now have all of the outline. Further ones do no harm.
    fn carry_salts(&self, from: &StoreLog) -> Result<(), CarryError> {
        let keys = |log: &StoreLog| {
            log.database.read(|db| count(db, "SELECT count(*) AS count FROM {salt_keys}", &[]))
        };
        if keys(from).map_err(CarryError::Source)? == keys(self).map_err(CarryError::Target)? {
            return Ok(());
        }
        let mut behind = vec![Value::Uuid(Uuid([0; 16])), Value::Uuid(Uuid([0; 16])), 0u64.into()];
        let sql = format!(
            "SELECT {} FROM {{salt_keys}} WHERE (tenant_id, project_id, number) > (?1, ?2, ?3)
             ORDER BY tenant_id, project_id, number LIMIT {PAGE}",
            SALT_KEYS.names()
        );
        loop {
            let rows = from.database.read(|db| all(db, &sql, &behind, |row| SALT_KEYS.read(row)));
            let rows = rows.map_err(CarryError::Source)?;
            let Some(last) = rows.last() else { return Ok(()) };
            behind = last[..3].to_vec();
            let kept = self
                .database
                .change_in(Room::Ordinary, Lock::None, |db, _| SALT_KEYS.insert(db, &rows, KEEP));
            kept.map_err(CarryError::Target)?;
        }
    }

    /// Where an earlier copy ended. Heads of its last snapshot may be missing, so they are read once more.
    fn cursors(&self) -> Result<Cursors, StoreError> {
        self.database.read(|db| {
            let mut last = |table: &str, column: &str| {
                let sql = format!(
                    "SELECT log, {column} AS at FROM {{{table}}} ORDER BY log DESC, {column} DESC LIMIT 1"
                );
                let last = one(db, &sql, &[], |row| Ok((row.get::<u64>("log")?, row.get::<u64>("at")?)))?;
                Ok::<_, DbError>(last.map_or((0, 0, 0), |(log, at)| (log, at, 0)))
            };
            Ok(Cursors {
                snapshots: last("snapshots", "idx")?,
                checkpoints: last("checkpoints", "size")?,
                heads: last("heads", "idx")?,
            })
        })
    }

    /// What comes next, for a copy whose log ends at `at`.
    fn round(
        &self,
        outline: &Outline,
        at: Option<&Place>,
        cursors: &mut Cursors,
    ) -> Result<Round, StoreError> {
        let Place { log: last, tree, .. } = &outline.place;
        self.database.read(|db| {
            let (mut log, mut first) = at.map_or((1, 0), |at| (at.log, at.tree.size));
            if log < *last && first >= size_of(db, log)? {
                (log, first) = (log + 1, 0);
            }
            let end = if log == *last { tree.size } else { size_of(db, log)? };
            let sql = format!(
                "SELECT entry FROM {{entries}} WHERE log = ?1 AND idx >= ?2 AND idx < ?3 ORDER BY idx LIMIT {PAGE}"
            );
            let entries = all(db, &sql, params![log, first, end], |row| row.get::<Vec<u8>>("entry"))?;
            let has_entries = log == *last && first + entries.len() as u64 == end;
            let mut round = Round { log, entries, has_entries, ..Round::default() };
            // What speaks of entries comes after them.
            if !has_entries {
                return Ok(round);
            }
            round.snapshots = page(db, &SNAPSHOTS, "idx", &mut cursors.snapshots, (*last, tree.size))?;
            round.checkpoints = page(db, &CHECKPOINTS, "size", &mut cursors.checkpoints, (*last, tree.size + 1))?;
            let (of_log, index, chain) = cursors.heads;
            let sql = format!(
                "SELECT p.tag, h.chain, h.log, h.idx, h.size, h.root FROM {{heads}} h
                 JOIN {{published}} p ON p.number = h.chain
                 WHERE (h.log, h.idx, h.chain) > (?1, ?2, ?3) AND (h.log, h.idx) < (?4, ?5)
                 ORDER BY h.log, h.idx, h.chain LIMIT {PAGE}"
            );
            let params = params![of_log, index, chain, *last, tree.size];
            round.heads = all(db, &sql, params, |row| {
                cursors.heads = (row.get("log")?, row.get("idx")?, row.get("chain")?);
                Ok((row.get("tag")?, HEADS.read(row)?))
            })?;
            let rows = [round.snapshots.len(), round.checkpoints.len(), round.heads.len()];
            round.is_last = rows.iter().all(|rows| *rows < PAGE);
            Ok(round)
        })
    }

    /// The tree of the log with this round. One that should be that of the outline, and is not, is not kept.
    fn write(
        &self,
        at: Option<&Place>,
        round: &Round,
        (outline, published): (&Outline, Option<&[Vec<Value>]>),
        mark: Option<&str>,
    ) -> Result<Tree, StoreError> {
        let moved = || DbError::Refused("another program changes the log of the target".into());
        let mut other = None;
        let written = self.database.change_in(Room::Ordinary, Lock::None, |db, _| {
            let same = at.filter(|at| at.log == round.log);
            let mut known = match same {
                None => State::empty(round.log, String::new(), 0, outline.blind.clone()),
                Some(at) if !take(db, at)? => return Err(moved()),
                Some(_) => state(db)?.ok_or_else(moved)?,
            };
            round.entries.iter().try_for_each(|entry| append_known(db, &mut known, entry))?;
            let tree = known.place.tree;
            if round.has_entries && tree != outline.place.tree {
                other = Some(tree);
                return Err(moved());
            }
            match same {
                Some(at) => update_state(db, &known, at)?,
                None => {
                    db.execute("DELETE FROM {state}", &[])?;
                    insert_state(db, &known)?;
                }
            }
            write_rows(db, round, published.unwrap_or_default())?;
            mark_copied(db, mark)?;
            Ok(tree)
        });
        match other {
            Some(tree) => Ok(tree),
            None => written,
        }
    }
}

/// Everything but the entries. Heads name their chains by the numbers of this database.
fn write_rows(db: &mut dyn Db, round: &Round, published: &[Vec<Value>]) -> Result<(), DbError> {
    PUBLISHED.insert(
        db,
        published,
        "ON CONFLICT (tag) DO UPDATE SET log = excluded.log, idx = excluded.idx, size = excluded.size,
             root = excluded.root, hash = excluded.hash, finding = excluded.finding",
    )?;
    SNAPSHOTS.insert(db, &round.snapshots, KEEP)?;
    CHECKPOINTS.insert(db, &round.checkpoints, KEEP)?;
    if round.heads.is_empty() {
        return Ok(());
    }
    let numbers = all(db, "SELECT tag, number FROM {published}", &[], |row| {
        Ok((row.get::<Hash>("tag")?, row.get::<u64>("number")?))
    })?;
    let numbers: HashMap<Hash, u64> = numbers.into_iter().collect();
    let mut heads = Vec::with_capacity(round.heads.len());
    for (tag, row) in &round.heads {
        let number = numbers.get(tag).ok_or_else(|| DbError::Failed("a head has no chain".into()))?;
        let mut row = row.clone();
        row[0] = (*number).into();
        heads.push(row);
    }
    HEADS.insert(db, &heads, KEEP)
}

fn size_of(db: &mut dyn Db, log: u64) -> Result<u64, DbError> {
    count(db, "SELECT count(*) AS count FROM {entries} WHERE log = ?1", params![log])
}

/// Rows of a table with a log and an index, behind the cursor and before the end.
fn page(
    db: &mut dyn Db,
    table: &Table,
    column: &str,
    behind: &mut Behind,
    end: (u64, u64),
) -> Result<Vec<Vec<Value>>, DbError> {
    let sql = format!(
        "SELECT {} FROM {{{}}} WHERE (log, {column}) > (?1, ?2) AND (log, {column}) < (?3, ?4)
         ORDER BY log, {column} LIMIT {PAGE}",
        table.names(),
        table.name
    );
    all(db, &sql, params![behind.0, behind.1, end.0, end.1], |row| {
        *behind = (row.get("log")?, row.get(column)?, 0);
        table.read(row)
    })
}
