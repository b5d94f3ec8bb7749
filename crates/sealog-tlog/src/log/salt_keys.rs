//! Root keys of the salts: one for each chain, and one more for each loss that was accepted in it.
//!
//! A key is durable before the first leaf that it serves is made. Keys are only ever added: a tree that is
//! built again gets the salts that it had.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use sealog_control::database::Database;
use sealog_control::db::{Db, DbError, Lock, Room, Row, Value, params};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId};
use sealog_store::StoreError;
use sealog_store::world::World;
use sealog_trust::salt::{SEQ_MAX, SaltKey, SaltKeys};

/// Chains in one statement.
const CHAINS_MAX: usize = 200;

/// The root keys of one chain, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct RootKeys(Vec<RootKey>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct RootKey {
    from_seq: u64,
    /// Of the acceptance that it was made for; zeros for the first.
    event_hash: Hash,
    keys: SaltKeys,
}

impl RootKeys {
    /// The key that has the salt of an event, and the events from this one on that it is for. The last one
    /// that begins at the event or before it: earlier ones served events that are lost.
    pub fn at(&self, chain_seq: u64) -> Option<(&SaltKeys, RangeInclusive<u64>)> {
        let place = self.0.iter().rposition(|key| key.from_seq <= chain_seq)?;
        let later = self.0[place + 1..].iter().map(|key| key.from_seq);
        let next = later.filter(|from| *from > chain_seq).min();
        let last = next.map_or(SEQ_MAX, |from| from - 1);
        (chain_seq <= SEQ_MAX).then(|| (&self.0[place].keys, chain_seq..=last))
    }

    /// How many losses were accepted in the chain since it has a tree.
    pub fn losses(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// The event that accepted the last of them.
    pub fn last_loss(&self) -> Option<u64> {
        self.0.last().filter(|_| self.losses() > 0).map(|key| key.from_seq)
    }

    fn has(&self, from_seq: u64, event_hash: &Hash) -> bool {
        self.0.iter().any(|key| (key.from_seq, &key.event_hash) == (from_seq, event_hash))
    }
}

/// The table of them.
#[derive(Clone, Debug)]
pub struct SaltRoots {
    database: Arc<Database>,
    world: Arc<dyn World>,
}

impl SaltRoots {
    pub fn new(database: Arc<Database>, world: Arc<dyn World>) -> SaltRoots {
        SaltRoots { database, world }
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The keys of these chains, those that have one. Blocks.
    pub fn find(&self, chains: &[ChainId]) -> Result<HashMap<ChainId, RootKeys>, StoreError> {
        let mut found = HashMap::new();
        for chains in chains.chunks(CHAINS_MAX) {
            found.extend(self.database.read(|db| find(db, chains))?);
        }
        Ok(found)
    }

    /// The keys of these chains. A chain without one gets its first: durable when this returns. Blocks.
    pub fn of(&self, chains: &[ChainId]) -> Result<HashMap<ChainId, RootKeys>, StoreError> {
        let mut found = self.find(chains)?;
        let new: BTreeSet<ChainId> =
            chains.iter().copied().filter(|chain| !found.contains_key(chain)).collect();
        let new: Vec<ChainId> = new.into_iter().collect();
        for chains in new.chunks(CHAINS_MAX) {
            let rows: Vec<Value> =
                chains.iter().flat_map(|chain| self.row(*chain, 1, 1, Hash::ZERO)).collect();
            let kept = self.change(|db| {
                insert(db, &rows)?;
                // Those of another node, where one was faster.
                find(db, chains)
            })?;
            found.extend(kept);
        }
        Ok(found)
    }

    /// The keys of a chain, with one of its own for the events from an accepted loss on. Durable when this
    /// returns. Blocks.
    pub fn from_acceptance(
        &self,
        chain: ChainId,
        known: &RootKeys,
        from_seq: u64,
        event_hash: Hash,
    ) -> Result<RootKeys, StoreError> {
        if known.has(from_seq, &event_hash) {
            return Ok(known.clone());
        }
        let row = |number| self.row(chain, number, from_seq, event_hash);
        let kept = self.change(|db| {
            let sql = "SELECT coalesce(max(number), 0) + 1 AS number FROM {salt_keys} WHERE tenant_id = ?1 AND project_id = ?2";
            let rows = db.query(sql, params![chain.tenant_id, chain.project_id])?;
            let number = rows.first().map_or(Ok(1), |row| row.get::<u64>("number"))?;
            insert(db, &row(number))?;
            find(db, &[chain])
        })?;
        let kept = kept.into_iter().next().map(|(_, keys)| keys);
        // Another node has taken the number for another acceptance: the next attempt sees it.
        kept.filter(|keys| keys.has(from_seq, &event_hash))
            .ok_or_else(|| StoreError::Control("another node has changed the salt keys of this chain".into()))
    }

    fn change<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, StoreError> {
        self.database.change_in(Room::Ordinary, Lock::None, |db, _| act(db))
    }

    fn row(&self, chain: ChainId, number: u64, from_seq: u64, event_hash: Hash) -> [Value; 6] {
        let mut key = [0; 16];
        self.world.fill_random(&mut key);
        [
            chain.tenant_id.into(),
            chain.project_id.into(),
            number.into(),
            from_seq.into(),
            event_hash.into(),
            key.to_vec().into(),
        ]
    }
}

fn insert(db: &mut dyn Db, rows: &[Value]) -> Result<u64, DbError> {
    let places: Vec<String> = (0..rows.len() / 6)
        .map(|row| {
            let places: Vec<String> = (1..=6).map(|column| format!("?{}", row * 6 + column)).collect();
            format!("({})", places.join(", "))
        })
        .collect();
    let sql = format!(
        "INSERT INTO {{salt_keys}} (tenant_id, project_id, number, from_seq, event_hash, key) VALUES {} ON CONFLICT DO NOTHING",
        places.join(", ")
    );
    db.execute(&sql, rows)
}

fn find(db: &mut dyn Db, chains: &[ChainId]) -> Result<HashMap<ChainId, RootKeys>, DbError> {
    let (wanted, params) = wanted(chains);
    let sql = format!(
        "{wanted} SELECT k.tenant_id, k.project_id, k.from_seq, k.event_hash, k.key FROM wanted
         JOIN {{salt_keys}} k ON k.tenant_id = wanted.tenant_id AND k.project_id = wanted.project_id
         ORDER BY k.number"
    );
    let mut found: HashMap<ChainId, RootKeys> = HashMap::new();
    for row in db.query(&sql, &params)? {
        let (chain, key) = read(&row)?;
        found.entry(chain).or_insert_with(|| RootKeys(Vec::new())).0.push(key);
    }
    Ok(found)
}

fn read(row: &Row) -> Result<(ChainId, RootKey), DbError> {
    let key: Vec<u8> = row.get("key")?;
    let key: [u8; 16] = key
        .try_into()
        .map_err(|_| DbError::Damaged { column: "key".into(), problem: "has no 16 bytes".into() })?;
    let keys = SaltKeys::new(vec![SaltKey::root(key)]).expect("one key overlaps no other");
    Ok((chain(row)?, RootKey { from_seq: row.get("from_seq")?, event_hash: row.get("event_hash")?, keys }))
}

/// The chain that a row is about. All that have trees are live.
pub(crate) fn chain(row: &Row) -> Result<ChainId, DbError> {
    let (tenant_id, project_id): (TenantId, ProjectId) = (row.get("tenant_id")?, row.get("project_id")?);
    Ok(ChainId { tenant_id, project_id, mode: Mode::Live })
}

/// The beginning of a statement about these chains, as the table `wanted`, with its parameters.
pub(crate) fn wanted(chains: &[ChainId]) -> (String, Vec<Value>) {
    let places: Vec<String> =
        (0..chains.len()).map(|at| format!("(?{}, ?{})", 2 * at + 1, 2 * at + 2)).collect();
    let params = chains.iter().flat_map(|chain| [chain.tenant_id.into(), chain.project_id.into()]).collect();
    (format!("WITH wanted (tenant_id, project_id) AS (VALUES {})", places.join(", ")), params)
}
