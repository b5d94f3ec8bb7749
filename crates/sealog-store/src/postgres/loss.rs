//! Acknowledged events that the database no longer has: how a node proves it, where every node finds the
//! proof, and how an operator lets the chain go on.
//!
//! A failover to a standby that lagged takes back what the old primary had acknowledged, and other nodes may
//! seal other events in the same places before anyone notices:
//! ```text
//! t0  node A acknowledges event 96                    A's high-water mark: 96, hash x
//! t1  failover to a standby that has 95
//! t2  node B, which knows of nothing, appends 96..105 event 96 has hash y
//! t3  A appends: the head is past its mark, so only the hash at 96 tells
//! ```
//! What A knows goes into the chain's row as the recorded head. From then on no node seals anything into the
//! chain, until the loss is accepted: an event in the chain itself that names what was lost. A node whose
//! mark proves a loss looks for such an event first, which is how it learns that its proof was dealt with.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Ulid};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::pool::Session;
use super::rows::{self, Digest32, Id, columns, signed};
use super::{chain_row, error, reader};
use crate::loss::{ACTION, Loss};

/// A chain that ends before a head that was acknowledged, or has another event there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub chain: ChainId,
    pub acknowledged: Head,
    pub found: Head,
}

/// A chain whose row says that events were dropped that never are: those of a live chain, or the last one of
/// a test chain. It is not believed ([`rows::dropped`]), and the chain takes no events until it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgedDrop {
    pub chain: ChainId,
    pub dropped_seq: u64,
}

/// Acceptances of one chain that are looked at, newest first. Each stands for a failover that lost events.
const ACCEPTANCES_MAX: usize = 100;

const NOTE: &str = "UPDATE sealog.chains SET recorded_seq = $2, recorded_log_id = $3, recorded_hash = $4
    WHERE chain_id = $1 AND coalesce(recorded_seq, 0) < $2";
const CLEAR: &str = "UPDATE sealog.chains SET recorded_seq = NULL, recorded_log_id = NULL, recorded_hash = NULL WHERE chain_id = $1";
/// Losses that were noted, and drops that the schema refuses: only its owner can write them.
const NOTED: &str = "SELECT * FROM (
        SELECT tenant_id, project_id, mode, chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash, dropped_seq,
            dropped_seq IS NOT NULL AND NOT (dropped_seq > 0 AND dropped_seq < chain_seq
                AND substr(sha256('sealog chain'::bytea || uuid_send(tenant_id) || uuid_send(project_id) || 'test'::bytea), 1, 16) = uuid_send(chain_id)) AS forged
        FROM sealog.chains
    ) AS chains WHERE recorded_seq IS NOT NULL OR forged";
const AT_OR_BEFORE: &str = "SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_id = $1 AND chain_seq <= $2 ORDER BY chain_seq DESC LIMIT 1";
const OLDER: &str = "SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_id = $1 AND log_id < $2 ORDER BY log_id DESC LIMIT 1";

/// The losses that this node knows of at the moment.
#[derive(Debug, Default)]
pub(super) struct Findings {
    known: Mutex<Known>,
    /// Someone has met a recorded head that is not among them.
    stale: AtomicBool,
    /// A loss was noted in a chain's row, and the other nodes do not know.
    unannounced: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    /// In the database, where every node sees them.
    recorded: BTreeMap<ChainId, Finding>,
    /// Met by this node while it appended.
    met: BTreeMap<ChainId, Finding>,
    forged: Vec<ForgedDrop>,
    /// How many losses this node has accepted.
    accepted: u64,
}

impl Findings {
    pub(super) fn all(&self) -> Vec<Finding> {
        let known = self.lock();
        let mut all = known.recorded.clone();
        all.extend(known.met.iter().map(|(chain, finding)| (*chain, finding.clone())));
        all.into_values().collect()
    }

    pub(super) fn forged(&self) -> Vec<ForgedDrop> {
        self.lock().forged.clone()
    }

    pub(super) fn add(&self, finding: Finding) {
        self.lock().met.insert(finding.chain, finding);
    }

    /// An event was sealed into the chain, so whatever was found of it is over.
    pub(super) fn proven(&self, chain: ChainId) {
        let mut known = self.lock();
        if !known.met.is_empty() {
            known.met.remove(&chain);
        }
        known.forged.retain(|forged| forged.chain != chain);
        if !known.recorded.is_empty() && known.recorded.remove(&chain).is_some() {
            // The monitor may just be bringing an older state.
            self.set_stale();
        }
    }

    pub(super) fn accepted(&self, chain: ChainId) {
        let mut known = self.lock();
        known.met.remove(&chain);
        known.recorded.remove(&chain);
        known.accepted += 1;
    }

    pub(super) fn set_stale(&self) {
        self.stale.store(true, Ordering::SeqCst);
    }

    pub(super) fn take_stale(&self) -> bool {
        self.stale.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_unannounced(&self) {
        self.unannounced.store(true, Ordering::SeqCst);
    }

    pub(super) fn take_unannounced(&self) -> bool {
        self.unannounced.swap(false, Ordering::SeqCst)
    }

    /// Takes over what the database has.
    pub(super) async fn refresh(&self, session: &Session) -> Result<(), Error> {
        let accepted_before = self.lock().accepted;
        let rows = session.query(NOTED, &[], &[]).await?;
        let finding = |row: &Row| {
            let (chain, found) = (reader::chain(row)?, rows::head(row, "chain_seq", "log_id", "hash")?);
            let acknowledged = rows::head(row, "recorded_seq", "recorded_log_id", "recorded_hash")?;
            Some((chain, Finding { chain, acknowledged, found }))
        };
        let recorded = rows.iter().filter_map(finding).collect();
        let forged = |row: &Row| {
            let dropped_seq = rows::unsigned(row.get("dropped_seq"));
            Some(ForgedDrop { chain: reader::chain(row)?, dropped_seq })
        };
        let is_forged = |row: &&Row| row.get::<_, bool>("forged");
        let forged: Vec<_> = rows.iter().filter(is_forged).filter_map(forged).collect();
        let mut known = self.lock();
        if known.accepted != accepted_before {
            // What was read may be from before the acceptance.
            self.set_stale();
            return Ok(());
        }
        for ForgedDrop { chain, dropped_seq } in forged.iter().filter(|new| !known.forged.contains(new)) {
            tracing::error!(%chain, dropped_seq, "the row of a chain claims deletions that never happen; ignored it, and the chain rejects events");
        }
        (known.recorded, known.forged) = (recorded, forged);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares what this node has acknowledged with what is there, and notes in the database what is missing, so
/// that every node knows. Where the loss was accepted, the acceptance takes the place of what was lost.
pub(super) async fn detect(
    session: &Session,
    acknowledged: &mut BTreeMap<ChainId, Head>,
) -> Result<(), Error> {
    for (chain, known) in acknowledged {
        let found = at_or_before(session, *chain, known.chain_seq).await?;
        if is_same(&found, known) || is_dropped(session, *chain, known.chain_seq).await? {
            continue;
        }
        if let Some(acceptance) = accepted(session, *chain, *known).await? {
            *known = acceptance;
            continue;
        }
        tracing::error!(%chain, acknowledged = known.chain_seq, found = found.chain_seq, "the database lost events that this node acknowledged; the chain rejects events until you accept the loss");
        chain_row::create(session, *chain).await?;
        note(session, *chain, *known).await?;
    }
    Ok(())
}

/// Whether both are one event. The id of a known one may be unknown (0), and the hash covers it.
pub(super) fn is_same(found: &Head, known: &Head) -> bool {
    (found.chain_seq, found.hash) == (known.chain_seq, known.hash)
}

/// Whether an event was dropped for its age, which is no loss.
pub(super) async fn is_dropped(session: &Session, chain: ChainId, seq: u64) -> Result<bool, Error> {
    Ok(seq <= last_dropped(session, chain).await?.chain_seq)
}

/// The last event of a chain that was dropped for its age.
pub(super) async fn last_dropped(session: &Session, chain: ChainId) -> Result<Head, Error> {
    let sql =
        "SELECT chain_seq, dropped_seq, dropped_log_id, dropped_hash FROM sealog.chains WHERE chain_id = $1";
    let rows = session.query(sql, &[Type::UUID], &[&Id::of_chain(chain)]).await?;
    Ok(rows.first().map_or(Head::EMPTY, |row| rows::dropped(row, chain, rows::chain_seq(row))))
}

/// The last event up to a seq.
pub(super) async fn at_or_before(session: &Session, chain: ChainId, seq: u64) -> Result<Head, Error> {
    one(session, AT_OR_BEFORE, Type::INT8, chain, &signed(seq)).await
}

/// The last event whose id is below that of a lost one: what follows it was sealed later, in the lost ones'
/// places. Of one whose id is unknown, what stands before its place.
pub(super) async fn older(session: &Session, chain: ChainId, lost: Head) -> Result<Head, Error> {
    if lost.log_id == Ulid(0) {
        return at_or_before(session, chain, lost.chain_seq - 1).await;
    }
    one(session, OLDER, Type::UUID, chain, &Id::of_ulid(lost.log_id)).await
}

async fn one(
    session: &Session,
    sql: &str,
    ty: Type,
    chain: ChainId,
    value: &(dyn ToSql + Sync),
) -> Result<Head, Error> {
    let rows = session.query(sql, &[Type::UUID, ty], &[&Id::of_chain(chain), value]).await?;
    let head = rows.first().and_then(|row| rows::head(row, "chain_seq", "log_id", "hash"));
    Ok(head.unwrap_or(Head::EMPTY))
}

/// Notes in the chain's row, where every node sees it, that it is known to have been longer.
pub(super) async fn note(session: &Session, chain: ChainId, known: Head) -> Result<(), Error> {
    let (seq, log_id, hash) = (signed(known.chain_seq), Id::of_ulid(known.log_id), Digest32(known.hash.0));
    let params: [&(dyn ToSql + Sync); 4] = [&Id::of_chain(chain), &seq, &log_id, &hash];
    session.execute(NOTE, &[Type::UUID, Type::INT8, Type::UUID, Type::BYTEA], &params).await.map(drop)
}

/// Takes the note back, once the loss is accepted or the events are there again.
pub(super) async fn clear(session: &Session, chain: ChainId) -> Result<(), Error> {
    session.execute(CLEAR, &[Type::UUID], &[&Id::of_chain(chain)]).await.map(drop)
}

/// Announces to the other nodes that a note was added or removed, by the version that they all poll. Without
/// it they would find out when they next append.
pub(super) async fn announce(session: &Session) {
    if let Err(error) = session.execute("UPDATE sealog.store SET version = version + 1", &[], &[]).await {
        not_announced(&error::explain(&error));
    }
}

pub(super) fn not_announced(error: &dyn std::fmt::Display) {
    tracing::warn!(%error, "failed to announce a change of findings to the other nodes; they see it at their next poll or append");
}

/// The event by which the loss of a head was accepted, if it was.
pub(super) async fn accepted(session: &Session, chain: ChainId, lost: Head) -> Result<Option<Head>, Error> {
    let sql = format!(
        "SELECT {columns}, tenant_id, project_id FROM sealog.events
         WHERE chain_id = $1 AND action = '{ACTION}' ORDER BY chain_seq DESC LIMIT {ACCEPTANCES_MAX}",
        columns = columns()
    );
    let rows = session.query(&sql, &[Type::UUID], &[&Id::of_chain(chain)]).await?;
    let acceptances = rows.iter().filter_map(|row| reader::sound(row, chain));
    let covers = |event: &StoredEvent| Loss::accepted_by(event).is_some_and(|loss| loss.covers(&lost));
    Ok(acceptances
        // Its id is above that of everything it gives up: what was acknowledged after it is not meant.
        .filter(|event| event.sealed.log_id > lost.log_id)
        .find(covers)
        .map(|event| event.head()))
}
