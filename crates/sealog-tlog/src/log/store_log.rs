//! The store log in its tables: an append-only list of entries, its Merkle tree as tiles, the heads of all
//! chains, and signed checkpoints. It holds no key and signs nothing; [`Signer`](super::Signer) does.
//!
//! All calls block. Event loops must not make them.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sealog_control::OpenError;
use sealog_control::database::Database;
use sealog_control::db::{Db, DbError, Lock, Room, Row, Value, all, one, params};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId};
use sealog_store::StoreError;
use sealog_store::embedded::Directory;
use sealog_store::postgres::PostgresStore;
use sealog_trust::entry::{Entry, KeyChange, Previous, Role};
use sealog_trust::heads::{Blind, Head, Trie};
use sealog_trust::leaf::Tag;
use sealog_trust::merkle::{CompactRange, EMPTY_ROOT, leaf_hash};
use sealog_trust::note::VerifierKey;
use sealog_trust::tile::WIDTH;

use super::schema::{FOLDER, LOG};

/// Sessions of a database for the store log.
const CONNECTIONS: usize = 2;
/// Most heads in one statement. Fewer are sent in statements of a power of two each, so that a session
/// prepares few statements.
const HEADS_IN_STATEMENT: usize = 512;
const HASH_LEN: usize = 32;

/// The tree of a chain, as its builder has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// A live chain.
    pub chain: ChainId,
    pub size: u64,
    pub root: Hash,
    /// `hash` of the event whose `chain_seq` is `size`.
    pub event_hash: Hash,
}

/// The last head of a chain that a snapshot published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub chain: ChainId,
    pub size: u64,
    pub root: Hash,
    pub event_hash: Hash,
    /// The snapshot: the index of its heads entry.
    pub index: u64,
}

/// A chain that is not as it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub chain: ChainId,
    pub published: u64,
    pub problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The chain, or its tree, ends before its published head.
    Shorter { size: u64 },
    /// Another event is where the published head was.
    OtherEvent,
    /// The tree has another root at the published size.
    OtherRoot,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { chain, published, problem } = self;
        match problem {
            Problem::Shorter { size } => {
                write!(f, "chain {chain} was published with {published} events and has {size}")
            }
            Problem::OtherEvent => {
                write!(f, "event {published} of chain {chain} is not the one that was published")
            }
            Problem::OtherRoot => {
                write!(f, "the tree of chain {chain} at {published} events is not the one that was published")
            }
        }
    }
}

impl Published {
    /// Compares the chain with what was published: `size` and `event_hash` of its last event, and the `hash`
    /// of its event at the published size where the chain is longer and the caller has read it.
    pub fn compare(&self, size: u64, event_hash: Hash, at_published: Option<Hash>) -> Option<Finding> {
        let problem = if size < self.size {
            Problem::Shorter { size }
        } else {
            let there = if size == self.size { Some(event_hash) } else { at_published };
            if there.is_none_or(|hash| hash == self.event_hash) {
                return None;
            }
            Problem::OtherEvent
        };
        Some(Finding { chain: self.chain, published: self.size, problem })
    }
}

/// A tree of the store log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub size: u64,
    pub root: Hash,
}

/// Where the current log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many logs this store began, this one included.
    pub log: u64,
    pub origin: String,
    pub tree: Tree,
    /// Time of the last entry. None comes before it.
    pub time_ms: u64,
    /// Index of the last heads entry, and its time; 0 before the first.
    pub heads_index: Option<u64>,
    pub heads_ms: u64,
}

pub(super) struct State {
    pub place: Place,
    pub range: CompactRange,
    pub blind: Vec<u8>,
}

impl State {
    /// Of a log without an entry yet.
    pub(super) fn empty(log: u64, origin: String, time_ms: u64, blind: Vec<u8>) -> State {
        let tree = Tree { size: 0, root: EMPTY_ROOT };
        let place = Place { log, origin, tree, time_ms, heads_index: None, heads_ms: 0 };
        State { place, range: CompactRange::default(), blind }
    }
}

/// A key that an entry added.
#[derive(Clone, Debug)]
pub struct LogKey {
    pub role: Role,
    pub key: VerifierKey,
    pub index: u64,
    pub added_ms: u64,
    /// Index and time of the entry that retires it.
    pub retired: Option<(u64, u64)>,
}

/// What a log begins with.
#[derive(Clone, Debug)]
pub struct Genesis {
    pub origin: String,
    pub interval_s: u64,
    pub max_delay_s: u64,
    pub keys: Vec<(Role, VerifierKey)>,
    pub blind: [u8; 32],
}

/// A snapshot that was made.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub index: u64,
    pub time_ms: u64,
    pub tree: Tree,
    /// Chains whose given heads do not continue what was published. Their published heads stay.
    pub findings: Vec<Finding>,
}

/// The newest tries, by log and index of their snapshots.
pub(super) type Tries = VecDeque<((u64, u64), Arc<Trie>)>;

#[derive(Debug)]
pub struct StoreLog {
    pub(super) database: Arc<Database>,
    pub(super) tries: Mutex<Tries>,
    /// Held while an old trie is built: one at a time.
    pub(super) building: Mutex<()>,
}

impl StoreLog {
    pub fn in_memory() -> Result<StoreLog, OpenError> {
        Database::in_memory(&LOG).map(Arc::new).map(StoreLog::over)
    }

    pub fn in_directory(directory: &Directory) -> Result<StoreLog, OpenError> {
        Database::in_folder(directory, FOLDER, &LOG).map(Arc::new).map(StoreLog::over)
    }

    /// Whether a directory has a log, or had one.
    pub fn is_in(directory: &Directory) -> bool {
        directory.path().join(FOLDER).join(format!("{}.db", LOG.name)).is_file()
    }

    pub fn on_postgres(store: &PostgresStore) -> Result<StoreLog, OpenError> {
        Database::on_postgres(store.sessions(CONNECTIONS), &LOG).map(Arc::new).map(StoreLog::over)
    }

    /// In a copy of `trust/log.db`, which no other process has open.
    pub fn of_copy(path: &Path) -> Result<StoreLog, OpenError> {
        Database::of_copy(path, &LOG).map(Arc::new).map(StoreLog::over)
    }

    /// Over a database with [`LOG`].
    pub fn over(database: Arc<Database>) -> StoreLog {
        StoreLog { database, tries: Mutex::default(), building: Mutex::default() }
    }

    /// Returns where the current log is; None before the first one began.
    pub fn place(&self) -> Result<Option<Place>, StoreError> {
        self.database.read(|db| Ok(state(db)?.map(|state| state.place)))
    }

    /// Whether this store had a log of this name before the current one.
    pub fn was_before(&self, origin: &str) -> Result<bool, StoreError> {
        self.database.read(|db| {
            let Some(State { place, .. }) = state(db)? else { return Ok(false) };
            let sql = "SELECT entry FROM {entries} WHERE idx = 0 AND log < ?1";
            let begun = all(db, sql, params![place.log], |row| row.get::<Vec<u8>>("entry"))?;
            Ok(begun.iter().any(
                |entry| matches!(Entry::parse(entry), Ok(Entry::Genesis { origin: of, .. }) if of == origin),
            ))
        })
    }

    /// Returns the keys of the current log in the order of their entries.
    pub fn keys(&self) -> Result<Vec<LogKey>, StoreError> {
        self.database.read(|db| match state(db)? {
            None => Ok(Vec::new()),
            Some(state) => keys(db, state.place.log),
        })
    }

    /// Returns what the checkpoints of the current log are verified with: its newest log key.
    pub fn vkey(&self) -> Result<Option<VerifierKey>, StoreError> {
        let signs = |key: &LogKey| key.role == Role::Log && key.retired.is_none();
        Ok(self.keys()?.into_iter().rfind(signs).map(|key| key.key))
    }

    /// Returns the last published head of each chain.
    pub fn published(&self) -> Result<Vec<Published>, StoreError> {
        self.database.read(|db| {
            let sql = "SELECT tenant_id, project_id, idx, size, root, hash FROM {published} ORDER BY number";
            all(db, sql, &[], read_published)
        })
    }

    /// Returns the last published head of a chain.
    pub fn published_of(&self, chain: ChainId) -> Result<Option<Published>, StoreError> {
        let tag = Tag::of(chain);
        self.database.read(|db| {
            let sql = "SELECT tenant_id, project_id, idx, size, root, hash FROM {published} WHERE tag = ?1";
            one(db, sql, params![tag.0], read_published)
        })
    }

    /// Returns what the snapshots found wrong with chains, in words.
    pub fn findings(&self) -> Result<Vec<(ChainId, String)>, StoreError> {
        self.database.read(|db| {
            let sql = "SELECT tenant_id, project_id, idx, size, root, hash, finding FROM {published}
                       WHERE finding IS NOT NULL ORDER BY number";
            all(db, sql, &[], |row| Ok((read_published(row)?.chain, row.get("finding")?)))
        })
    }

    /// Begins a log: the genesis entry and an entry for each key. False, and nothing is changed, if another
    /// process began one meanwhile: `replaces` is the log that the caller knows, which the genesis entry
    /// names as the previous one.
    pub fn begin(
        &self,
        genesis: &Genesis,
        time_ms: u64,
        replaces: Option<&Place>,
    ) -> Result<bool, StoreError> {
        self.change(|db| {
            let known = state(db)?;
            if known.as_ref().map(|state| (state.place.log, state.place.tree))
                != replaces.map(|place| (place.log, place.tree))
            {
                return Ok(false);
            }
            if let Some(place) = replaces
                && !take(db, place)?
            {
                return Ok(false);
            }
            let time_ms = replaces.map_or(time_ms, |place| time_ms.max(place.time_ms));
            let previous = replaces.map(|place| Previous {
                origin: place.origin.clone(),
                size: place.tree.size,
                root: place.tree.root,
            });
            let log = replaces.map_or(1, |place| place.log + 1);
            let mut begun = State::empty(log, genesis.origin.clone(), time_ms, genesis.blind.to_vec());
            let entry = Entry::Genesis {
                origin: genesis.origin.clone(),
                time_ms,
                interval_s: genesis.interval_s,
                max_delay_s: genesis.max_delay_s,
                previous,
            };
            append(db, &mut begun, &entry)?;
            for (role, key) in &genesis.keys {
                add_key(db, &mut begun, *role, key)?;
            }
            // The first log of two that begin at once is the one that the other finds.
            let sql = "DELETE FROM {state}";
            if replaces.is_some() {
                db.execute(sql, &[])?;
            }
            insert_state(db, &begun)?;
            Ok(true)
        })
        .or_else(|error| match error {
            Raced::Race => Ok(false),
            Raced::Store(error) => Err(error),
        })
    }

    /// Adds a key or retires one. None, and nothing is changed, if the log has moved on from `place`.
    pub fn change_key(
        &self,
        place: &Place,
        change: KeyChange,
        role: Role,
        key: &VerifierKey,
        time_ms: u64,
    ) -> Result<Option<Tree>, StoreError> {
        self.extend(place, time_ms, |db, state| match change {
            KeyChange::Add => add_key(db, state, role, key),
            KeyChange::Retire => {
                let time_ms = state.place.time_ms;
                let entry = Entry::Key { time_ms, role, change, key: Box::new(key.clone()) };
                let index = append(db, state, &entry)?;
                let sql = "UPDATE {log_keys} SET retired_idx = ?1, retired_ms = ?2
                           WHERE log = ?3 AND vkey = ?4 AND retired_idx IS NULL";
                match db.execute(sql, params![index, time_ms, state.place.log, key.to_string()])? {
                    1 => Ok(()),
                    _ => Err(DbError::Refused(format!("the log has no key {key} to retire"))),
                }
            }
        })
        .map(|made| made.map(|(tree, ())| tree))
    }

    /// Adds a `restore` entry: from the next heads entry on, a chain is shorter, or entries were lost.
    /// `replaced` is the head of a chain whose loss was accepted; it replaces the published one.
    pub fn declare_restore(
        &self,
        place: &Place,
        reason: &str,
        replaced: Option<&TreeHead>,
        time_ms: u64,
    ) -> Result<Option<Tree>, StoreError> {
        self.extend(place, time_ms, |db, state| {
            // The heads entry that it concerns is the next one.
            let index = state.place.tree.size + 1;
            let entry =
                Entry::Restore { time_ms: state.place.time_ms, index, reason: reason.to_owned() };
            append(db, state, &entry)?;
            if let Some(head) = replaced {
                // Of no log, so that the next snapshot writes it into the history.
                let sql = "UPDATE {published} SET log = 0, size = ?1, root = ?2, hash = ?3, finding = NULL WHERE tag = ?4";
                db.execute(sql, params![head.size, head.root, head.event_hash, Tag::of(head.chain).0])?;
            }
            Ok(())
        })
        .map(|made| made.map(|(tree, ())| tree))
    }

    /// Makes a snapshot: publishes the heads that changed and appends a heads entry, in one transaction. The
    /// caller must have read `time_ms` before it asked how far the log of events is durable, because the
    /// entry says that it covers everything that was acknowledged before that time.
    ///
    /// None, and nothing is changed, if the log has moved on from `place`: another signer was faster.
    pub fn snapshot(
        &self,
        place: &Place,
        time_ms: u64,
        heads: &[TreeHead],
    ) -> Result<Option<Snapshot>, StoreError> {
        let made = self.extend(place, time_ms, |db, state| {
            let (log, index) = (state.place.log, state.place.tree.size);
            let mut published = BTreeMap::new();
            let sql = "SELECT tag, tenant_id, project_id, log, idx, size, root, hash FROM {published}";
            for (tag, log, head) in all(db, sql, &[], |row| {
                Ok((row.get::<Hash>("tag")?, row.get::<u64>("log")?, read_published(row)?))
            })? {
                published.insert(tag.0, (log, head));
            }
            let (mut changed, mut findings) = (BTreeMap::new(), Vec::new());
            // A log that begins anew has no heads of its own yet.
            for (tag, (of_log, head)) in &published {
                if *of_log != log {
                    changed.insert(*tag, TreeHead::from(*head));
                }
            }
            for head in heads {
                let tag = Tag::of(head.chain).0.0;
                match published.get(&tag) {
                    None if head.size == 0 => {}
                    None => drop(changed.insert(tag, *head)),
                    Some((of_log, known)) => match continues(known, head) {
                        Err(problem) => {
                            findings.push(Finding { chain: head.chain, published: known.size, problem })
                        }
                        Ok(false) if *of_log == log => {}
                        Ok(_) => drop(changed.insert(tag, *head)),
                    },
                }
            }
            publish(db, log, index, &changed)?;
            for finding in &findings {
                let sql = "UPDATE {published} SET finding = ?1 WHERE tag = ?2";
                db.execute(sql, params![finding.to_string(), Tag::of(finding.chain).0])?;
            }
            let all_heads = published.iter().map(|(tag, (_, head))| (*tag, TreeHead::from(*head)));
            let mut all_heads: BTreeMap<[u8; 32], TreeHead> = all_heads.collect();
            all_heads.extend(changed);
            let of = |(tag, head): (&[u8; 32], &TreeHead)| (Tag(Hash(*tag)), head.size, head.root);
            let trie = trie_of(all_heads.iter().map(of), &state.blind, index);
            let trie = trie.map_err(|tag| DbError::Refused(format!("two chains have the tag {}", tag.0)))?;
            let entry = Entry::Heads { time_ms: state.place.time_ms, root: trie.root() };
            append(db, state, &entry)?;
            let sql = "INSERT INTO {snapshots} (log, idx, time_ms, root, kept) VALUES (?1, ?2, ?3, ?4, 0)";
            db.execute(sql, params![log, index, state.place.time_ms, trie.root()])?;
            state.place.heads_index = Some(index);
            state.place.heads_ms = state.place.time_ms;
            Ok((trie, findings))
        })?;
        Ok(made.map(|(tree, (trie, findings))| {
            let index = tree.size - 1;
            self.keep_trie((place.log, index), Arc::new(trie));
            Snapshot { index, time_ms: time_ms.max(place.time_ms), tree, findings }
        }))
    }

    /// Appends entries of this log that another copy of it has. They must be what comes next.
    pub fn append_copied(&self, place: &Place, entries: &[Vec<u8>]) -> Result<Option<Tree>, StoreError> {
        self.extend(place, place.time_ms, |db, state| {
            entries.iter().try_for_each(|bytes| append_known(db, state, bytes))
        })
        .map(|made| made.map(|(tree, ())| tree))
    }

    /// Why this log may lack entries that were signed: it is a copy. None once that is excluded.
    pub fn copied(&self) -> Result<Option<String>, StoreError> {
        self.database.read(|db| {
            Ok(one(db, "SELECT copied FROM {state}", &[], |row| row.get::<Option<String>>("copied"))?
                .flatten())
        })
    }

    /// Marks the log as a copy, or as one that lacks nothing. Nothing where no log began.
    pub fn mark_copied(&self, why: Option<&str>) -> Result<(), StoreError> {
        self.database.change_in(Room::InPlace, Lock::None, |db, _| mark_copied(db, why))
    }

    /// Keeps a signed checkpoint. The same again changes nothing.
    pub(super) fn keep_checkpoint(&self, log: u64, size: u64, note: &str) -> Result<(), StoreError> {
        let kept = self.database.change_in(Room::Ordinary, Lock::None, |db, _| {
            let sql =
                "INSERT INTO {checkpoints} (log, size, note) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            db.execute(sql, params![log, size, note]).map(drop)
        });
        kept.map_err(|error: StoreError| error)
    }

    /// One transaction that appends to the log. It takes the row of the state first, by its size and root, so
    /// of several signers that know the same tree one extends it, whatever leases they believe to hold.
    fn extend<T>(
        &self,
        place: &Place,
        time_ms: u64,
        act: impl FnOnce(&mut dyn Db, &mut State) -> Result<T, DbError>,
    ) -> Result<Option<(Tree, T)>, StoreError> {
        let made = self.change(|db| {
            if !take(db, place)? {
                return Ok(None);
            }
            let Some(mut state) = state(db)? else { return Ok(None) };
            state.place.time_ms = state.place.time_ms.max(time_ms);
            let value = act(db, &mut state)?;
            update_state(db, &state, place)?;
            Ok(Some((state.place.tree, value)))
        });
        match made {
            // The row of the state is ours, so no other process can have inserted it.
            Err(Raced::Race) => Err(StoreError::Control("a row of the store log is there already".into())),
            Err(Raced::Store(error)) => Err(error),
            Ok(made) => Ok(made),
        }
    }

    fn change<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, Raced> {
        // Every snapshot makes the database longer, so none is made of the room that is kept free.
        self.database.change_in(Room::Ordinary, Lock::None, |db, _| act(db))
    }
}

/// Why a change of the log was not made.
enum Raced {
    /// Another process inserted the same row.
    Race,
    Store(StoreError),
}

impl From<DbError> for Raced {
    fn from(error: DbError) -> Raced {
        match error {
            DbError::Duplicate(_) => Raced::Race,
            error => Raced::Store(error.into()),
        }
    }
}

impl From<Published> for TreeHead {
    fn from(Published { chain, size, root, event_hash, .. }: Published) -> TreeHead {
        TreeHead { chain, size, root, event_hash }
    }
}

/// Whether a head continues the published one, and differs from it. What a builder gives is the end of a tree
/// that it extended from its own record, so of a longer one only the builder knows the older roots.
fn continues(published: &Published, head: &TreeHead) -> Result<bool, Problem> {
    if head.size < published.size {
        return Err(Problem::Shorter { size: head.size });
    }
    if head.size > published.size {
        return Ok(true);
    }
    if head.event_hash != published.event_hash {
        return Err(Problem::OtherEvent);
    }
    if head.root != published.root { Err(Problem::OtherRoot) } else { Ok(false) }
}

fn time_of(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Genesis { time_ms, .. }
        | Entry::Key { time_ms, .. }
        | Entry::Heads { time_ms, .. }
        | Entry::Restore { time_ms, .. } => Some(*time_ms),
        Entry::Unknown { .. } => None,
    }
}

pub(super) fn trie_of(
    heads: impl Iterator<Item = (Tag, u64, Hash)>,
    blind: &[u8],
    index: u64,
) -> Result<Trie, Tag> {
    let hidden = |(tag, size, root)| {
        let head = Head { tag, size, root, blind: Blind::of(blind, &tag, index) };
        (tag, head.hidden())
    };
    Trie::new(heads.map(hidden).collect())
}

// ---- Rows -----------------------------------------------------------------------------------------------

pub(super) fn read_published(row: &Row) -> Result<Published, DbError> {
    let (tenant_id, project_id): (TenantId, ProjectId) = (row.get("tenant_id")?, row.get("project_id")?);
    Ok(Published {
        chain: ChainId { tenant_id, project_id, mode: Mode::Live },
        size: row.get("size")?,
        root: row.get("root")?,
        event_hash: row.get("hash")?,
        index: row.get("idx")?,
    })
}

/// Takes the row of the state if it still has this tree. On PostgreSQL the row stays locked until the
/// transaction ends; SQLite has one writer at a time.
pub(super) fn take(db: &mut dyn Db, place: &Place) -> Result<bool, DbError> {
    let sql = "UPDATE {state} SET taken = taken + 1 WHERE id = 1 AND log = ?1 AND size = ?2 AND root = ?3";
    Ok(db.execute(sql, params![place.log, place.tree.size, place.tree.root])? == 1)
}

pub(super) fn state(db: &mut dyn Db) -> Result<Option<State>, DbError> {
    let sql = "SELECT log, origin, size, root, peaks, time_ms, heads_idx, heads_ms, blind FROM {state}";
    one(db, sql, &[], |row| {
        let tree = Tree { size: row.get("size")?, root: row.get("root")? };
        let damaged = |problem: &str| DbError::Damaged { column: "peaks".into(), problem: problem.into() };
        let peaks: Vec<u8> = row.get("peaks")?;
        let peaks = peaks.chunks(HASH_LEN).map(|hash| hash.try_into().map(Hash)).collect::<Result<_, _>>();
        let range = peaks.ok().and_then(|peaks| CompactRange::from_peaks(tree.size, peaks));
        let range = range.ok_or_else(|| damaged("does not have a hash for each complete subtree"))?;
        if range.root() != tree.root {
            return Err(damaged("does not lead to the root"));
        }
        let place = Place {
            log: row.get("log")?,
            origin: row.get("origin")?,
            tree,
            time_ms: row.get("time_ms")?,
            heads_index: row.get("heads_idx")?,
            heads_ms: row.get("heads_ms")?,
        };
        Ok(State { place, range, blind: row.get("blind")? })
    })
}

pub(super) fn blind(db: &mut dyn Db) -> Result<Option<(u64, Vec<u8>)>, DbError> {
    Ok(state(db)?.map(|state| (state.place.log, state.blind)))
}

fn peaks(range: &CompactRange) -> Vec<u8> {
    range.peaks().iter().flat_map(|hash| hash.0).collect()
}

pub(super) fn insert_state(db: &mut dyn Db, State { place, range, blind }: &State) -> Result<(), DbError> {
    let Place { log, origin, tree, time_ms, heads_index, heads_ms } = place;
    let sql =
        "INSERT INTO {state} (id, log, origin, size, root, peaks, time_ms, heads_idx, heads_ms, blind, taken)
               VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)";
    let params: &[Value] = params![
        *log,
        origin,
        tree.size,
        tree.root,
        peaks(range),
        *time_ms,
        *heads_index,
        *heads_ms,
        blind.clone()
    ];
    db.execute(sql, params).map(drop)
}

pub(super) fn update_state(
    db: &mut dyn Db,
    State { place, range, .. }: &State,
    before: &Place,
) -> Result<(), DbError> {
    let Place { log, tree, time_ms, heads_index, heads_ms, .. } = place;
    let sql =
        "UPDATE {state} SET size = ?1, root = ?2, peaks = ?3, time_ms = ?4, heads_idx = ?5, heads_ms = ?6
               WHERE id = 1 AND log = ?7 AND size = ?8 AND root = ?9";
    let params: &[Value] = params![
        tree.size,
        tree.root,
        peaks(range),
        *time_ms,
        *heads_index,
        *heads_ms,
        *log,
        before.tree.size,
        before.tree.root
    ];
    match db.execute(sql, params)? {
        1 => Ok(()),
        _ => Err(DbError::Failed("the state of the store log changed under its lock".into())),
    }
}

/// The index of the entry.
fn append(db: &mut dyn Db, state: &mut State, entry: &Entry) -> Result<u64, DbError> {
    let text = entry.to_text().ok_or_else(|| {
        DbError::Refused("a field of the entry must not be empty and must be printable text".into())
    })?;
    append_bytes(db, state, text.as_bytes())
}

/// Appends an entry of another copy of this log, with what follows from it.
pub(super) fn append_known(db: &mut dyn Db, state: &mut State, bytes: &[u8]) -> Result<(), DbError> {
    let entry = Entry::parse(bytes).map_err(|error| DbError::Refused(error.to_string()))?;
    let (log, index) = (state.place.log, state.place.tree.size);
    append_bytes(db, state, bytes)?;
    state.place.time_ms = state.place.time_ms.max(time_of(&entry).unwrap_or(0));
    match entry {
        Entry::Key { time_ms, role, change: KeyChange::Add, key } => {
            put_key(db, log, index, role, &key, time_ms)?;
        }
        Entry::Key { time_ms, change: KeyChange::Retire, key, .. } => {
            let sql = "UPDATE {log_keys} SET retired_idx = ?1, retired_ms = ?2 WHERE log = ?3 AND vkey = ?4";
            db.execute(sql, params![index, time_ms, log, key.to_string()])?;
        }
        Entry::Heads { time_ms, .. } => {
            state.place.heads_index = Some(index);
            state.place.heads_ms = time_ms;
        }
        Entry::Genesis { origin, .. } if index == 0 => state.place.origin = origin,
        Entry::Genesis { .. } => return Err(DbError::Refused("the genesis entry is only the first".into())),
        Entry::Restore { .. } | Entry::Unknown { .. } => {}
    }
    Ok(())
}

pub(super) fn mark_copied(db: &mut dyn Db, why: Option<&str>) -> Result<(), DbError> {
    db.execute("UPDATE {state} SET copied = ?1", params![why]).map(drop)
}

fn append_bytes(db: &mut dyn Db, state: &mut State, entry: &[u8]) -> Result<u64, DbError> {
    let (log, index) = (state.place.log, state.place.tree.size);
    let sql = "INSERT INTO {entries} (log, idx, entry) VALUES (?1, ?2, ?3)";
    db.execute(sql, params![log, index, entry.to_vec()])?;
    let mut completed = Vec::new();
    if !state.range.append(leaf_hash(entry), |node, hash| completed.push((node, hash))) {
        return Err(DbError::Refused("the store log is full".into()));
    }
    // A tile has the hashes of every eighth level.
    for (node, hash) in completed.into_iter().filter(|(node, _)| node.level % 8 == 0) {
        let (level, tile, at) =
            (node.level / 8, node.index / u64::from(WIDTH), node.index % u64::from(WIDTH));
        let sql = "SELECT hashes FROM {tiles} WHERE log = ?1 AND level = ?2 AND idx = ?3";
        let known = one(db, sql, params![log, level, tile], |row| row.get::<Vec<u8>>("hashes"))?;
        let mut hashes = known.unwrap_or_default();
        if hashes.len() as u64 != at * HASH_LEN as u64 {
            let problem = format!("of tile {level}/{tile} does not have {at} hashes");
            return Err(DbError::Damaged { column: "hashes".into(), problem });
        }
        hashes.extend(hash.0);
        let sql = "INSERT INTO {tiles} (log, level, idx, hashes) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (log, level, idx) DO UPDATE SET hashes = excluded.hashes";
        db.execute(sql, params![log, level, tile, hashes])?;
    }
    state.place.tree = Tree { size: state.range.size(), root: state.range.root() };
    Ok(index)
}

fn add_key(db: &mut dyn Db, state: &mut State, role: Role, key: &VerifierKey) -> Result<(), DbError> {
    let time_ms = state.place.time_ms;
    let entry = Entry::Key { time_ms, role, change: KeyChange::Add, key: Box::new(key.clone()) };
    let index = append(db, state, &entry)?;
    put_key(db, state.place.log, index, role, key, time_ms)
}

fn put_key(
    db: &mut dyn Db,
    log: u64,
    index: u64,
    role: Role,
    key: &VerifierKey,
    time_ms: u64,
) -> Result<(), DbError> {
    let sql = "INSERT INTO {log_keys} (log, idx, role, vkey, added_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
    db.execute(sql, params![log, index, role_name(role), key.to_string(), time_ms]).map(drop)
}

pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Log => "log",
        Role::Service => "service",
    }
}

fn keys(db: &mut dyn Db, log: u64) -> Result<Vec<LogKey>, DbError> {
    let sql = "SELECT idx, role, vkey, added_ms, retired_idx, retired_ms FROM {log_keys} WHERE log = ?1 ORDER BY idx";
    all(db, sql, params![log], |row| {
        let vkey: String = row.get("vkey")?;
        let key = VerifierKey::parse(&vkey)
            .map_err(|error| DbError::Damaged { column: "vkey".into(), problem: error.to_string() })?;
        let retired: (Option<u64>, Option<u64>) = (row.get("retired_idx")?, row.get("retired_ms")?);
        Ok(LogKey {
            role: row.word("role", &[Role::Log, Role::Service], role_name)?,
            key,
            index: row.get("idx")?,
            added_ms: row.get("added_ms")?,
            retired: retired.0.zip(retired.1),
        })
    })
}

/// Writes the heads that changed, and a row of each into the history.
fn publish(
    db: &mut dyn Db,
    log: u64,
    index: u64,
    changed: &BTreeMap<[u8; 32], TreeHead>,
) -> Result<(), DbError> {
    const COLUMNS: usize = 8;
    let heads: Vec<(&[u8; 32], &TreeHead)> = changed.iter().collect();
    let mut rest = heads.as_slice();
    while !rest.is_empty() {
        let count = HEADS_IN_STATEMENT.min(1 << rest.len().ilog2());
        let (now, later) = rest.split_at(count);
        rest = later;
        let row = |row: usize| {
            let places: Vec<String> = (1..=COLUMNS).map(|at| format!("?{}", row * COLUMNS + at)).collect();
            format!("({})", places.join(", "))
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        let sql = format!(
            "INSERT INTO {{published}} (tag, tenant_id, project_id, log, idx, size, root, hash) VALUES {}
             ON CONFLICT (tag) DO UPDATE SET log = excluded.log, idx = excluded.idx, size = excluded.size,
                 root = excluded.root, hash = excluded.hash, finding = NULL",
            rows.join(", ")
        );
        let values = now.iter().flat_map(|(tag, head)| {
            [
                Value::Bytes(tag.to_vec()),
                head.chain.tenant_id.into(),
                head.chain.project_id.into(),
                log.into(),
                index.into(),
                head.size.into(),
                head.root.into(),
                head.event_hash.into(),
            ]
        });
        db.execute(&sql, &values.collect::<Vec<Value>>())?;
    }
    if heads.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO {heads} (chain, log, idx, size, root)
               SELECT number, log, idx, size, root FROM {published} WHERE log = ?1 AND idx = ?2";
    let written = db.execute(sql, params![log, index])?;
    if written == heads.len() as u64 {
        return Ok(());
    }
    Err(DbError::Failed(format!("{written} heads were written, not {}", heads.len())))
}
