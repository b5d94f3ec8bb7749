//! One transaction of an append: lock, look, seal, store.
//!
//! A chain that this node has to itself needs no look: [`Transaction::at_once`] seals on the head that the
//! node has written last, and one statement stores the group if that is still the head. For all others:
//! ```text
//! t0  BEGIN; wait in the chain's queue; lock the chain's row; read the clock and the last event; look up the
//!     keys: one round trip
//! t1  add the requests that arrived while the lock was waited for (their keys cost one more round trip), and
//!     seal, here, with the same functions as every store
//! t2  insert events, keys and usage; set the head; COMMIT: one round trip
//! t3  answer
//! ```
//! Up to t2 nothing has happened: a failure leaves nothing. From the moment COMMIT was sent until its answer
//! the outcome is unknown, which the caller is told by an error; its key finds out. A node that is stopped
//! between t0 and t2 loses its lock when the server ends its session, and everything that it sends then
//! fails.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::future::{join, maybe_done};
use sealog_core::chain::Head;
use sealog_core::event::{Draft, SCHEMA_VERSION};
use sealog_core::id::{ChainId, Mode, Ulid};
use sealog_core::time::Month;
use sealog_core::verify;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, SimpleQueryRow};

use super::chain_row;
use super::error::unsafe_storage;
use super::event_clock::EventClock;
use super::keys::{KeyColumns, KeyRow, UsedKey, imported_receipt, put_key};
use super::loss::{self, Finding, Findings};
use super::options::Options;
use super::pool::{Prepared, Session};
use super::queue::{Outcome, Queue, Request, Work};
use super::rows::{self, Digest32, EventColumns, Id, signed, unsigned};
use super::statements::{self, AtOnce, CommitPhase, LockPhase, Text, pieces};
use crate::append::{Appended, Receipt, Reservation};
use crate::error::StoreError;
use crate::loss::Loss;
use crate::stats::Histogram;

/// What all transactions of a node share.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) options: Options,
    pub(super) lock_phase: LockPhase,
    pub(super) commit_phase: CommitPhase,
    /// Nothing on Citus without the function for it.
    pub(super) at_once: Option<AtOnce>,
    /// How a transaction begins.
    pub(super) begin: String,
    pub(super) queue: Queue,
    /// Of commits, live and test.
    pub(super) commits: [Histogram; 2],
    pub(super) findings: Arc<Findings>,
    pub(super) clock: Arc<EventClock>,
}

/// That of live or of test events.
pub(super) fn of_mode<T>(both: &[T; 2], mode: Mode) -> &T {
    match mode {
        Mode::Live => &both[0],
        Mode::Test => &both[1],
    }
}

pub(super) struct Transaction<'a> {
    pub(super) node: &'a Node,
    pub(super) session: &'a Session,
    pub(super) chain: ChainId,
    pub(super) id: Id,
}

#[derive(Debug)]
pub(super) enum Failed {
    Database(Error),
    Store(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Database(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

const KEYS: &str =
    "SELECT key_hash, fingerprint, request_id, first_seq, log_ids, hash, received_ms FROM sealog.idempotency
    WHERE chain_id = $1 AND key_hash = ANY ($2)";
/// Requests whose answer names an event past the end of the chain.
const FORGET_KEYS: &str =
    "DELETE FROM sealog.idempotency WHERE chain_id = $1 AND first_seq + octet_length(log_ids) / 16 - 1 > $2";

/// What is known once the chain's row is locked.
struct Locked {
    head: Head,
    now_ms: u64,
    keys: HashMap<[u8; 32], UsedKey>,
}

/// A group that is sealed and not stored yet.
struct Sealed<'g> {
    next: Head,
    outcomes: Vec<Outcome>,
    events: EventColumns<'g>,
    used: Vec<KeyRow>,
    /// Live events by month.
    months: BTreeMap<u32, i64>,
}

impl Transaction<'_> {
    pub(super) async fn run(&self, group: &mut Vec<Request>) -> Result<Vec<Outcome>, Failed> {
        match self.at_once(group).await? {
            Some(outcomes) => Ok(outcomes),
            None => self.under_the_lock(group).await,
        }
    }

    /// Stores a group of a chain that this node has to itself, in one message. Nothing if it has not, or if
    /// something has to be looked up first; then nothing was stored.
    async fn at_once(&self, group: &[Request]) -> Result<Option<Vec<Outcome>>, Failed> {
        let Some(at_once) = &self.node.at_once else { return Ok(None) };
        let Some(before) = self.node.queue.own_head(self.chain) else { return Ok(None) };
        let Some(estimate) = self.node.clock.estimate() else { return Ok(None) };
        let sealed = self.seal_group(before, estimate.sealing_ms, HashMap::new(), group);
        if sealed.events.len() == 0 || sealed.months.len() > 1 {
            return Ok(None);
        }
        match self.store_at_once(at_once, before, &sealed, estimate.database_ms).await {
            Ok(true) => {
                self.acknowledge(sealed.next);
                Ok(Some(sealed.outcomes))
            }
            Ok(false) => Ok(None),
            // A key that was used before; the server has taken everything back.
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores a group under the lock of the chain's row.
    async fn under_the_lock(&self, group: &mut Vec<Request>) -> Result<Vec<Outcome>, Failed> {
        let known = self.node.queue.acknowledged(self.chain);
        let Locked { head, now_ms, mut keys } = self.lock(known, group).await?;
        // With several nodes the lock was long in coming, and what has come in the meantime would wait for as
        // long again.
        let before = group.len();
        self.node.queue.take(self.chain, group);
        let group: &[Request] = group;
        keys.extend(self.keys(&group[before..]).await?);
        let sealed = self.seal_group(head, now_ms, keys, group);
        if sealed.events.len() == 0 {
            self.session.client.batch_execute("ROLLBACK").await?;
        } else {
            let Sealed { next, events, used, months, .. } = &sealed;
            self.store(head, *next, events, used, months).await?;
            self.acknowledge(*next);
        }
        self.node.queue.set_unsure(self.chain, known.is_some_and(|known| known != head));
        Ok(sealed.outcomes)
    }

    fn acknowledge(&self, head: Head) {
        self.node.queue.acknowledge(self.chain, head);
        self.node.findings.proven(self.chain);
    }

    /// Decides about the requests of a group and seals what they bring, on top of a head. `keys` are those
    /// that were used before.
    fn seal_group<'g>(
        &self,
        head: Head,
        now_ms: u64,
        mut keys: HashMap<[u8; 32], UsedKey>,
        group: &'g [Request],
    ) -> Sealed<'g> {
        let mut next = head;
        let mut outcomes = Vec::with_capacity(group.len());
        let mut events = EventColumns::default();
        let mut used: Vec<KeyRow> = Vec::new();
        let mut months: BTreeMap<u32, i64> = BTreeMap::new();
        for request in group {
            let outcome = match &request.work {
                Work::Append { drafts, idempotency, .. } => {
                    // Decided again here, where nothing can come in between, from no node.
                    let decided =
                        request.key().and_then(|key| keys.get(&key.key_hash.0)?.decide(key, now_ms));
                    match decided {
                        Some(decided) => Outcome::Appended(decided),
                        None => {
                            let receipt =
                                self.seal(&mut next, drafts, idempotency.as_ref(), now_ms, &mut events);
                            if let Some((reservation, request_id)) = idempotency {
                                let key = reservation.key;
                                put_key(&mut used, KeyRow::new(key, *request_id, &receipt, now_ms));
                                let of_key = UsedKey {
                                    fingerprint: key.fingerprint.0,
                                    received_ms: now_ms,
                                    receipt: receipt.clone(),
                                };
                                keys.insert(key.key_hash.0, of_key);
                            }
                            *months.entry(Month::of(next.log_id.timestamp_ms()).0).or_default() +=
                                signed(drafts.len() as u64);
                            Outcome::Appended(Appended::Sealed(receipt))
                        }
                    }
                }
                Work::Import { events: imported, key, .. } => match verify::continues(&next, imported) {
                    Ok(last) => {
                        for event in imported {
                            events.push(event.schema_version, &event.sealed, &event.text, &event.annotations);
                            *months.entry(Month::of(event.timestamp_ms).0).or_default() += 1;
                        }
                        if let Some(kept) = key {
                            let receipt = imported_receipt(kept, imported, last);
                            let row = KeyRow::new(kept.key, kept.request_id, &receipt, kept.received_ms);
                            put_key(&mut used, row);
                            // An append of the same group with this key is decided by it, as if it had come
                            // later.
                            let fingerprint = kept.key.fingerprint.0;
                            let of_key = UsedKey { fingerprint, received_ms: kept.received_ms, receipt };
                            keys.insert(kept.key.key_hash.0, of_key);
                        }
                        next = last;
                        Outcome::Imported(last)
                    }
                    Err(broken) => Outcome::Refused(StoreError::Refused(format!(
                        "event {} does not continue the chain at {}: {}",
                        broken.at,
                        next.chain_seq,
                        broken.reason.explain()
                    ))),
                },
            };
            outcomes.push(outcome);
        }
        if self.chain.mode == Mode::Test || self.chain.is_system() {
            months.clear();
        }
        Sealed { next, outcomes, events, used, months }
    }

    /// Locks the chain's row and reads all that sealing needs.
    async fn lock(&self, known: Option<Head>, group: &[Request]) -> Result<Locked, Failed> {
        // Asked for before the transaction begins, so that everything can be sent at once.
        self.session.prepare(KEYS, &[Type::UUID, Type::BYTEA_ARRAY]).await?;
        let lock_phase = &self.node.lock_phase;
        if let Some(sql) = lock_phase.prepare_statements() {
            self.session.prepare_session(&sql).await?;
        }
        let mut text = lock_phase.begin(self.id, known);
        loop {
            let sent_boot_ms = self.node.clock.boot_ms();
            let (found, keys) = join(self.session.client.simple_query(&text), self.keys(group)).await;
            // The first error is the cause of those behind it.
            let (found, keys) = (found?, keys?);
            if let (Some(lock), Some(snapshot)) =
                (statements::row(&found, "recorded_seq"), statements::row(&found, "now_ms"))
            {
                if let Some(database_ms) = statements::now_ms(snapshot) {
                    self.node.clock.sample(database_ms, sent_boot_ms);
                }
                return self.locked(known, lock, snapshot, keys).await;
            }
            self.create().await?;
            text = lock_phase.lock(self.id, known);
        }
    }

    /// Earlier uses of the keys of these requests.
    async fn keys(&self, requests: &[Request]) -> Result<HashMap<[u8; 32], UsedKey>, Failed> {
        let hashes: Vec<Digest32> =
            requests.iter().filter_map(Request::key).map(|key| Digest32(key.key_hash.0)).collect();
        if hashes.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.session.query(KEYS, &[Type::UUID, Type::BYTEA_ARRAY], &[&self.id, &hashes]).await?;
        let damaged = || StoreError::Unavailable("an idempotency record of the request is damaged".into());
        let keys: Option<_> = rows.iter().map(UsedKey::of).collect();
        Ok(keys.ok_or_else(damaged)?)
    }

    async fn locked(
        &self,
        known: Option<Head>,
        lock: &SimpleQueryRow,
        snapshot: &SimpleQueryRow,
        keys: HashMap<[u8; 32], UsedKey>,
    ) -> Result<Locked, Failed> {
        let (head, now_ms) = self.checked(lock, snapshot)?;
        if let Some(known) = known
            && !statements::has_event(snapshot, head, known)
            && !loss::is_dropped(self.session, self.chain, known.chain_seq).await?
            && loss::accepted(self.session, self.chain, known).await?.is_none()
        {
            return Err(self.lost(known).await?);
        }
        // Nothing is sealed on top of events that are not there.
        if lock.get("recorded_seq").is_some() && !self.is_repaired().await? {
            self.node.findings.set_stale();
            return Err(self.unproven());
        }
        if !statements::proves(snapshot, head) && !self.proves_by_now(head).await? {
            let found = loss::at_or_before(self.session, self.chain, u64::MAX).await?;
            self.node.findings.add(Finding { chain: self.chain, acknowledged: head, found });
            return Err(self.unproven());
        }
        Ok(Locked { head, now_ms, keys })
    }

    /// The head in the row that was locked, and the time.
    fn checked(&self, lock: &SimpleQueryRow, snapshot: &SimpleQueryRow) -> Result<(Head, u64), Failed> {
        let off = statements::unsafe_settings(snapshot);
        if !off.is_empty() && !self.node.options.allow_unsafe_storage {
            return Err(unsafe_storage(&off).into());
        }
        if statements::chain(lock) != Some(self.chain) {
            return Err(StoreError::Refused("the chain's row belongs to another chain".into()).into());
        }
        let head = statements::head(lock).ok_or_else(|| self.unproven())?;
        if statements::is_forged(lock, self.chain, head) {
            self.node.findings.set_stale();
            return Err(self.unproven());
        }
        let database_ms = statements::now_ms(snapshot)
            .ok_or_else(|| StoreError::Unavailable("the database returned no time".into()))?;
        Ok((head, self.node.clock.read(database_ms).sealing_ms()?))
    }

    fn unproven(&self) -> Failed {
        StoreError::HeadUnproven { chain: self.chain }.into()
    }

    /// The database has gone back behind what this node has acknowledged, and may have other events there by
    /// now: a failover has lost events. The proof is kept, here and in the chain's row.
    async fn lost(&self, known: Head) -> Result<Failed, Failed> {
        let found = loss::at_or_before(self.session, self.chain, known.chain_seq).await?;
        tracing::error!(chain = %self.chain, acknowledged = known.chain_seq, found = found.chain_seq, "the database lost acknowledged events; the chain rejects events until you accept the loss");
        loss::note(self.session, self.chain, known).await?;
        self.session.client.batch_execute("COMMIT").await?;
        self.node.findings.add(Finding { chain: self.chain, acknowledged: known, found });
        self.node.findings.set_unannounced();
        Ok(self.unproven())
    }

    /// Whether the events whose loss is noted in the row are there again. Then the note is taken back.
    async fn is_repaired(&self) -> Result<bool, Error> {
        let Some((_, Some(noted))) = self.row().await? else { return Ok(false) };
        let found = loss::at_or_before(self.session, self.chain, noted.chain_seq).await?;
        if !loss::is_same(&found, &noted) {
            return Ok(false);
        }
        tracing::warn!(chain = %self.chain, noted = noted.chain_seq, "lost events are back in the database; the chain accepts events again");
        loss::clear(self.session, self.chain).await?;
        Ok(true)
    }

    /// The head in the chain's row, and the one that is noted as lost.
    async fn row(&self) -> Result<Option<(Option<Head>, Option<Head>)>, Error> {
        let sql = "SELECT chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash FROM sealog.chains WHERE chain_id = $1";
        let rows = self.session.query(sql, &[Type::UUID], &[&self.id]).await?;
        Ok(rows.first().map(|row| {
            let noted = rows::head(row, "recorded_seq", "recorded_log_id", "recorded_hash");
            (rows::head(row, "chain_seq", "log_id", "hash"), noted)
        }))
    }

    /// Seals the acceptance of a loss behind the last event that exists, as the one change of its
    /// transaction.
    pub(super) async fn accept_loss(&self, reason: &str) -> Result<Receipt, Failed> {
        let (session, chain) = (self.session, self.chain);
        let lock_phase = &self.node.lock_phase;
        if let Some(sql) = lock_phase.prepare_statements() {
            session.prepare_session(&sql).await?;
        }
        let known = self.node.queue.acknowledged(chain);
        let found = session.client.simple_query(&lock_phase.begin(self.id, known)).await?;
        let nothing_lost = crate::loss::nothing_lost;
        let (Some(lock), Some(snapshot)) =
            (statements::row(&found, "recorded_seq"), statements::row(&found, "now_ms"))
        else {
            return Err(nothing_lost().into());
        };
        let (head, now_ms) = self.checked(lock, snapshot)?;
        let noted = self.row().await?.and_then(|(_, noted)| noted);
        let (kept, dropped) =
            (loss::at_or_before(session, chain, u64::MAX).await?, loss::last_dropped(session, chain).await?);
        // Of a chain that has lost all that was kept, the next event follows the last one that was dropped.
        let durable = if kept.chain_seq < dropped.chain_seq { dropped } else { kept };
        // Everything that the chain is known to have had: what its row says, what any node has noted there,
        // and what this node knows itself.
        let mut lost: Option<Head> = None;
        let mut last_id = durable.log_id;
        for had in [Some(head), noted, known].into_iter().flatten().filter(|had| had.chain_seq > 0) {
            last_id = last_id.max(had.log_id);
            if had.chain_seq <= dropped.chain_seq
                || loss::is_same(&loss::at_or_before(session, chain, had.chain_seq).await?, &had)
                || loss::accepted(session, chain, had).await?.is_some()
            {
                continue;
            }
            if lost.is_none_or(|lost| lost.chain_seq < had.chain_seq) {
                lost = Some(had);
            }
        }
        let lost = lost.ok_or_else(nothing_lost)?;
        let older = loss::older(session, chain, lost).await?;
        let loss = Loss {
            lost_from: (older.chain_seq.max(dropped.chain_seq) + 1).min(lost.chain_seq),
            lost_to: Some(lost.chain_seq),
            recorded_hash: lost.hash,
        };
        let drafts = [loss.draft(reason)];
        let mut next = Head { log_id: last_id, ..durable };
        let mut events = EventColumns::default();
        let receipt = self.seal(&mut next, &drafts, None, now_ms, &mut events);
        loss::clear(session, chain).await?;
        // A client that asks again is not told of an event that is lost: the event is stored then.
        session
            .execute(FORGET_KEYS, &[Type::UUID, Type::INT8], &[&self.id, &signed(durable.chain_seq)])
            .await?;
        self.store(head, next, &events, &[], &BTreeMap::new()).await?;
        self.node.queue.acknowledge(chain, next);
        self.node.findings.accepted(chain);
        tracing::warn!(%chain, lost_from = loss.lost_from, lost_to = lost.chain_seq, reason, "accepted a loss; the chain accepts events again");
        Ok(receipt)
    }

    /// A writer that has locked the row without waiting in the queue may have appended after the statement
    /// began that waited for the row; that statement's snapshot is older. Another one sees all events.
    async fn proves_by_now(&self, head: Head) -> Result<bool, Error> {
        let found = self.session.client.simple_query(&self.node.lock_phase.snapshot(self.id, None)).await?;
        Ok(statements::row(&found, "now_ms").is_some_and(|snapshot| statements::proves(snapshot, head)))
    }

    /// The first event of a chain. Whoever comes second finds the row.
    async fn create(&self) -> Result<(), Error> {
        chain_row::create(self.session, self.chain).await
    }

    fn seal<'d>(
        &self,
        next: &mut Head,
        drafts: &'d [Draft],
        idempotency: Option<&(Reservation, Ulid)>,
        now_ms: u64,
        events: &mut EventColumns<'d>,
    ) -> Receipt {
        let first_seq = next.chain_seq + 1;
        let mut log_ids = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let random = self.node.options.world.random80();
            let sealed = next.seal(self.chain.tenant_id, &draft.text, now_ms, random);
            *next = sealed.head();
            log_ids.push(sealed.log_id);
            events.push(SCHEMA_VERSION, &sealed, &draft.text, &draft.annotations);
        }
        Receipt {
            request_id: idempotency.map(|(_, request_id)| *request_id),
            log_ids,
            first_seq,
            hash: next.hash,
        }
    }

    /// Whether the head was still the one before, and with it all the rest of what is asked of the chain.
    async fn store_at_once(
        &self,
        at_once: &AtOnce,
        before: Head,
        sealed: &Sealed<'_>,
        database_ms: u64,
    ) -> Result<bool, Error> {
        let Sealed { next, events, used, months, .. } = sealed;
        let (tenant, project) = (Id(self.chain.tenant_id.0.0), Id(self.chain.project_id.0.0));
        let [(seq, log_id, hash), (seq_before, id_before, hash_before)] = [*next, before]
            .map(|head| (signed(head.chain_seq), Id::of_ulid(head.log_id), Digest32(head.hash.0)));
        let (mode, queue) = (self.chain.mode.as_str(), statements::queue(self.id));
        let database_ms = signed(database_ms);
        let mut params: Values<'_> = vec![&self.id, &tenant, &project];
        params.extend([&seq as &(dyn ToSql + Sync), &log_id, &hash, &seq_before, &id_before, &hash_before]);
        params.extend([&mode as &(dyn ToSql + Sync), &queue, &database_ms]);
        // A function takes everything, a statement what there is.
        let (all, many) = (matches!(at_once, AtOnce::Function(_)), events.len() > 1);
        params.extend(if many || all { events.params() } else { events.row(0) });
        let month = months.keys().next().map(|month| i32::try_from(*month).unwrap_or(i32::MAX));
        let of_month = months.values().next().copied();
        if month.is_some() || all {
            params.extend([&month as &(dyn ToSql + Sync), &of_month]);
        }
        let columns = KeyColumns::of(used);
        if !used.is_empty() || all {
            params.extend(&columns.params(&self.id)[1..]);
        }
        let text = at_once.text(many, month.is_some(), !used.is_empty());
        let statement = self.session.prepare(&text.sql, &text.types).await?;
        let (begun, sent_boot_ms) = (Instant::now(), self.node.clock.boot_ms());
        let rows = self.session.rows_at_once(&self.node.begin, &statement, &params).await?;
        let now_ms = rows.first().and_then(|row| row.get::<_, Option<i64>>("now_ms"));
        let Some(now_ms) = now_ms else { return Ok(false) };
        self.node.clock.sample(unsigned(now_ms), sent_boot_ms);
        of_mode(&self.node.commits, self.chain.mode).observe_duration(begun.elapsed());
        Ok(true)
    }

    async fn store(
        &self,
        before: Head,
        after: Head,
        events: &EventColumns<'_>,
        keys: &[KeyRow],
        months: &BTreeMap<u32, i64>,
    ) -> Result<(), Failed> {
        let commit_phase = &self.node.commit_phase;
        let (id, tenant) = (self.id, Id(self.chain.tenant_id.0.0));
        let project = Id(self.chain.project_id.0.0);
        let (seq, last_id, hash) =
            (signed(after.chain_seq), Id::of_ulid(after.log_id), Digest32(after.hash.0));
        let seq_before = signed(before.chain_seq);
        let mut months: Vec<(i32, i64)> =
            months.iter().map(|(month, count)| (i32::try_from(*month).unwrap_or(i32::MAX), *count)).collect();
        let of_events: [&(dyn ToSql + Sync); 3] = [&id, &tenant, &project];
        let of_head: [&(dyn ToSql + Sync); 4] = [&seq, &last_id, &hash, &seq_before];

        // The last statement sets the head.
        let mut changes = Vec::new();
        let columns = KeyColumns::of(keys);
        match &commit_phase.combined {
            Some(_) if keys.is_empty() => {}
            Some(_) => {
                changes.push(self.change(&commit_phase.key_arrays, columns.params(&id).to_vec()).await?)
            }
            None => {
                for (size, piece) in pieces(0..keys.len()) {
                    let rows = keys[piece].iter().flat_map(KeyRow::params);
                    let params = std::iter::once(&id as &(dyn ToSql + Sync)).chain(rows).collect();
                    changes.push(self.change(&commit_phase.keys[size], params).await?);
                }
            }
        }
        // In general all events are of one month.
        let combined = commit_phase.combined.as_ref().map(|combined| {
            let month = if months.len() == 1 { months.pop() } else { None };
            (if events.len() == 1 { &combined.one } else { &combined.arrays }, month)
        });
        for (month, count) in &months {
            changes.push(self.change(&commit_phase.usage, vec![&id, month, &tenant, count]).await?);
        }
        match &combined {
            Some((texts, month)) => {
                let mut params = of_events.to_vec();
                match events.len() {
                    1 => params.extend(events.row(0)),
                    _ => params.extend(events.params()),
                }
                if let Some((month, count)) = month {
                    params.extend([month as &(dyn ToSql + Sync), count]);
                }
                params.extend(of_head);
                changes.push(self.change(&texts[usize::from(month.is_some())], params).await?);
            }
            None => {
                for (size, piece) in pieces(0..events.len()) {
                    let rows = piece.flat_map(|at| events.row(at));
                    let params = of_events.into_iter().chain(rows).collect();
                    changes.push(self.change(&commit_phase.events[size], params).await?);
                }
                let params = std::iter::once(&id as &(dyn ToSql + Sync)).chain(of_head).collect();
                changes.push(self.change(&commit_phase.head, params).await?);
            }
        }
        let begun = Instant::now();
        // Sent one behind the other, without waiting. If one fails, the server refuses the rest, and the
        // COMMIT does nothing.
        let changes = changes.iter().map(|(statement, params)| self.session.change(statement, params));
        let (changed, commit) =
            join(in_order(changes.collect()), self.session.client.batch_execute("COMMIT")).await;
        let mut head = 0;
        for changed in changed {
            head = changed?;
        }
        assert_eq!(head, 1, "the row is locked, so no other node has moved it");
        commit?;
        of_mode(&self.node.commits, self.chain.mode).observe_duration(begun.elapsed());
        Ok(())
    }

    /// A statement that is ready to be sent, with its values.
    async fn change<'v>(&self, text: &Text, params: Values<'v>) -> Result<(Prepared, Values<'v>), Error> {
        Ok((self.session.prepare(&text.sql, &text.types).await?, params))
    }
}

/// The outcomes of all of them; each begins in the order in which they stand, which `join_all` does not
/// promise for many.
async fn in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Box::pin(maybe_done(future))).collect();
    poll_fn(|context| {
        let waiting =
            futures.iter_mut().filter_map(|future| future.as_mut().poll(context).is_pending().then_some(()));
        if waiting.count() == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.iter_mut().map(|future| future.as_mut().take_output().expect("it is done")).collect()
}

type Values<'v> = Vec<&'v (dyn ToSql + Sync)>;
