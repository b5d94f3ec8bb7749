//! The feed on PostgreSQL: each append leaves its transaction id in the chain's row, and a follower asks for
//! rows whose transaction it has not seen.
//!
//! Transactions become visible in another order than that of their ids, so a follower's position is no single
//! number:
//! ```text
//! t0  transaction 90 appends to chain A and does not commit yet
//! t1  transaction 100 appends to chain B and commits
//! t2  a follower polls: B has changed, by 100. Of those below 100, 90 is still in progress
//! t3  90 commits
//! t4  the follower polls for rows whose transaction is above 100, or is 90
//! ```
//! So a position is the highest transaction that was seen to have changed a chain, and those below it that
//! were in progress. It is one that has changed a chain because such a transaction is durable: a server that
//! restarts gives no id below it again, while ids that were only handed out may be. And the event that it
//! left behind is named, so that a database that has gone back behind it in a failover is noticed; then every
//! chain is announced again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::error::damaged;
use super::hub::Watched;
use super::inner::Inner;
use super::numbers;
use super::pool::Session;
use super::progress::{Found, PAGE_ROWS, Page, Progress, Seen, Transactions};
use super::reader;
use super::rows::{self, Digest32, Id, signed, unsigned};
use crate::error::StoreError;
use crate::feed::{Change, Follower, Position, Registration, Scope, Source, Start};
use crate::types::BoxFuture;

/// On Citus a look takes several journeys to each node, so a follower rests between two.
const REST: Duration = Duration::from_millis(50);
/// Chains that a follower remembers to have announced before they had their number.
const LATE_MAX: usize = 10_000;

/// Begins to follow.
pub(super) async fn follow(
    inner: Arc<Inner>,
    runtime: Handle,
    scope: Scope,
    start: Start,
) -> Result<Follower, StoreError> {
    if inner.distributed && !inner.read(|session| Box::pin(numbers::is_there(session))).await? {
        return Err(StoreError::Refused(
            "the database has no counters for followers, or those of another version: run `sealog migrate --citus` as the owner".into(),
        ));
    }
    // Before the first poll, so that nothing falls between that and the first wait.
    let registration = inner.feed.register(scope);
    let progress = match &start {
        Start::Beginning => Progress::default(),
        Start::After(position) => {
            Progress::parse(position, &scope, inner.store_id)?.on_this_store(inner.distributed)
        }
        Start::Now => {
            let page = poll_changes(&inner, scope, Progress::default(), 0).await?;
            Progress { cluster: page.cluster, base: Some(page.seen), scan: None }
        }
    };
    watch(&inner, &runtime);
    Ok(Follower::new(PostgresFollower {
        store_id: inner.store_id,
        inner,
        runtime,
        scope,
        progress,
        rows: VecDeque::new(),
        is_last: true,
        late: HashMap::new(),
        rests_until: None,
        barrier: Barrier::Ahead,
        registration,
    }))
}

#[derive(Debug)]
struct PostgresFollower {
    store_id: [u8; 16],
    inner: Arc<Inner>,
    runtime: Handle,
    scope: Scope,
    progress: Progress,
    /// The rest of a page, and whether there is none behind it.
    rows: VecDeque<Found>,
    is_last: bool,
    /// What was announced and will be found once more.
    late: HashMap<Id, Head>,
    rests_until: Option<Instant>,
    barrier: Barrier,
    registration: Registration<Watched>,
}

/// A scan that begins behind a barrier finds every chain that had changed at it, whatever changes meanwhile:
/// such a chain is found with the head that it has then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Barrier {
    /// The scan in progress, if there is one, began before it.
    Ahead,
    /// The scan in progress began behind it.
    InScan,
    Passed,
}

impl Source for PostgresFollower {
    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Change>, StoreError>> {
        Box::pin(async move {
            while !self.fill().await? {
                self.registration.wait().await?;
            }
            Ok(self.take(limit))
        })
    }

    /// Whoever wants to know at once does not wait for a rest.
    fn set_barrier(&mut self) {
        self.barrier = Barrier::Ahead;
        self.rests_until = None;
    }

    fn next_before_barrier(
        &mut self,
        limit: usize,
    ) -> BoxFuture<'_, Result<Option<Vec<Change>>, StoreError>> {
        Box::pin(async move {
            loop {
                if self.rows.is_empty() && self.barrier == Barrier::Passed {
                    return Ok(None);
                }
                if self.fill().await? {
                    return Ok(Some(self.take(limit)));
                }
            }
        })
    }

    fn position(&self) -> Position {
        self.progress.position(&self.scope, self.store_id)
    }
}

impl PostgresFollower {
    /// Polls until there are rows to announce, or none at the end of a scan. Whether there are some.
    async fn fill(&mut self) -> Result<bool, StoreError> {
        while self.rows.is_empty() {
            let begins = self.progress.scan.is_none();
            let (inner, scope, progress) = (Arc::clone(&self.inner), self.scope, self.progress.clone());
            let rests_until = self.rests_until.filter(|_| begins);
            let (answer, answered) = oneshot::channel();
            self.runtime.spawn(async move {
                if let Some(until) = rests_until {
                    tokio::time::sleep_until(until.into()).await;
                }
                let _ = answer.send(poll_changes(&inner, scope, progress, PAGE_ROWS).await);
            });
            let page = answered.await.unwrap_or(Err(StoreError::Closing))?;
            self.rests_until = self.inner.distributed.then(|| Instant::now() + REST);
            self.is_last = page.rows.len() < PAGE_ROWS;
            let last = page.rows.back().map(|found| found.id);
            self.rows = self.progress.take(page);
            let late = &mut self.late;
            self.rows.retain(|found| {
                let is_heard = late.get(&found.id).is_some_and(|head| *head == found.change.head);
                if is_heard && !found.is_late {
                    late.remove(&found.id);
                }
                !is_heard
            });
            let Some((_, at)) = &mut self.progress.scan else {
                // The database has gone back: the next scan is of everything.
                self.late.clear();
                continue;
            };
            if let (Some(last), true) = (last, self.rows.is_empty()) {
                *at = last;
            }
            if begins && self.barrier == Barrier::Ahead {
                self.barrier = Barrier::InScan;
            }
            if self.rows.is_empty() && self.is_last {
                self.finish();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn take(&mut self, limit: usize) -> Vec<Change> {
        let taken: Vec<_> = self.rows.drain(..limit.min(self.rows.len())).collect();
        if let (Some((_, at)), Some(found)) = (&mut self.progress.scan, taken.last()) {
            *at = found.id;
        }
        if self.rows.is_empty() && self.is_last {
            self.finish();
        }
        if self.late.len() > LATE_MAX {
            self.late.clear();
        }
        for found in &taken {
            match found.is_late {
                true => drop(self.late.insert(found.id, found.change.head)),
                false => drop(self.late.remove(&found.id)),
            }
        }
        taken.into_iter().map(|found| found.change).collect()
    }

    /// A scan has come to its end.
    fn finish(&mut self) {
        self.progress.finish();
        if self.barrier == Barrier::InScan {
            self.barrier = Barrier::Passed;
        }
    }
}

/// One poll, on a connection of its own.
async fn poll_changes(
    inner: &Inner,
    scope: Scope,
    progress: Progress,
    limit: usize,
) -> Result<Page, StoreError> {
    if inner.distributed {
        return numbers::poll(inner, scope, &progress, limit).await;
    }
    let page = inner.read(move |session| Box::pin(page(session, scope, progress, limit))).await?;
    page.ok_or_else(|| damaged("the row of a chain"))
}

/// In one statement, so that all of it is of one moment. Rows whose transaction is not below the end of that
/// moment are from before a dump that was restored.
async fn page(
    session: &Session,
    scope: Scope,
    progress: Progress,
    limit: usize,
) -> Result<Option<Page>, Error> {
    let base = match &progress.base {
        Some(Seen::Transactions(base)) => Some(base),
        _ => None,
    };
    let condition = match (base, scope) {
        (_, Scope::Chain(_)) | (None, _) => "$9::bigint[] IS NOT NULL",
        (Some(_), _) => "(changed_group >= $1::bigint >> 8 OR changed_group = ANY ($9))",
    };
    let of_scope = match scope {
        Scope::Everything => "$7::uuid IS NULL",
        Scope::Tenant(_) => "tenant_id = $7",
        Scope::Chain(_) => "chain_id = $7",
    };
    // The candidates by themselves, so that no order tempts the planner to go through all chains.
    let sql = format!(
        "SELECT pg_current_snapshot()::text AS snapshot, (SELECT system_identifier FROM pg_control_system()) AS cluster,
             top.changed::text AS top_changed, top.chain_id AS top_id, top.chain_seq AS top_seq,
             (SELECT hash FROM sealog.events e WHERE e.chain_id = top.chain_id AND e.chain_seq = top.chain_seq) AS top_hash,
             $4::uuid IS NULL OR EXISTS (SELECT FROM sealog.events WHERE chain_id = $4 AND chain_seq = $5 AND hash = $6) AS known,
             found.*
         FROM (VALUES (1)) AS one
         LEFT JOIN LATERAL (
             SELECT chain_id, chain_seq, changed FROM sealog.chains
             WHERE changed_group = (SELECT max(changed_group) FROM sealog.chains
                     WHERE changed_group <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 8)
               AND changed < pg_snapshot_xmax(pg_current_snapshot())
             ORDER BY changed DESC LIMIT 1) AS top ON true
         LEFT JOIN LATERAL (
             WITH candidates AS MATERIALIZED (
                 SELECT chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash, changed FROM sealog.chains
                 WHERE {condition} AND {of_scope} AND chain_seq > 0)
             SELECT * FROM candidates
             WHERE ($1::bigint IS NULL OR changed > $1::text::xid8 AND changed < pg_snapshot_xmax(pg_current_snapshot())
                     OR changed = ANY ($2::bigint[]::text[]::xid8[]))
               AND ($3::uuid IS NULL OR chain_id > $3)
             ORDER BY chain_id LIMIT $8) AS found ON true"
    );
    let sql = match base {
        // By the primary key, a page after the other.
        None => sql.replace("AS MATERIALIZED", "AS NOT MATERIALIZED"),
        Some(_) => sql,
    };
    let changed = base.map(|base| signed(base.changed));
    let in_progress: Vec<i64> =
        base.map_or(Vec::new(), |base| base.in_progress.iter().map(|xid| signed(*xid)).collect());
    let groups: Vec<i64> = in_progress.iter().map(|xid| xid >> 8).collect();
    let after = progress.scan.as_ref().map(|(_, id)| *id);
    let witness = base.and_then(|base| base.witness);
    let (witness_id, witness_hash) = (witness.map(|(id, ..)| id), witness.map(|(.., hash)| hash));
    let witness_seq = witness.map(|(_, seq, _)| signed(seq));
    let of_scope = match scope {
        Scope::Everything => None,
        Scope::Tenant(tenant_id) => Some(Id(tenant_id.0.0)),
        Scope::Chain(chain) => Some(Id::of_chain(chain)),
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 9] = [
        &changed,
        &in_progress,
        &after,
        &witness_id,
        &witness_seq,
        &witness_hash,
        &of_scope,
        &limit,
        &groups,
    ];
    let types = [
        Type::INT8,
        Type::INT8_ARRAY,
        Type::UUID,
        Type::UUID,
        Type::INT8,
        Type::BYTEA,
        Type::UUID,
        Type::INT8,
        Type::INT8_ARRAY,
    ];
    // Planned for these values: how many rows are behind a transaction is what the plan depends on.
    let found = session.query_planned(&sql, &types, &params).await?;
    Ok(found.first().and_then(|first| Page::of(first, &found, progress.cluster)))
}

impl Page {
    fn of(first: &Row, found: &[Row], cluster_before: u64) -> Option<Page> {
        let cluster = first.get::<_, i64>("cluster").cast_unsigned();
        let top: Option<&str> = first.get("top_changed");
        let changed = top.map_or(Some(0), |top| top.parse().ok())?;
        let hash = first.get::<_, Option<&[u8]>>("top_hash").and_then(rows::hash);
        let seen = Transactions {
            changed,
            in_progress: in_progress(first.get("snapshot"), changed)?,
            witness: hash.and_then(|hash| {
                let seq = unsigned(first.get::<_, Option<i64>>("top_seq")?);
                Some((first.get::<_, Option<Id>>("top_id")?, seq, Digest32(hash.0)))
            }),
        };
        let known = first.get::<_, bool>("known") && (cluster_before == 0 || cluster_before == cluster);
        let row = |row: &Row| {
            let change = Change { chain: reader::chain(row)?, head: head(row)? };
            Some(Found { id: row.get("chain_id"), change, is_late: false })
        };
        let has_row = |row: &&Row| row.get::<_, Option<Id>>("chain_id").is_some();
        let rows = found.iter().filter(has_row).map(row).collect::<Option<VecDeque<_>>>()?;
        Some(Page { cluster, seen: Seen::Transactions(seen), known, rows })
    }
}

fn head(row: &Row) -> Option<Head> {
    rows::head(row, "chain_seq", "log_id", "hash")
}

/// The transactions below one that a snapshot (`xmin:xmax:xip,xip`) shows in progress.
fn in_progress(snapshot: &str, below: u64) -> Option<Vec<u64>> {
    let list = snapshot.split(':').nth(2)?;
    let all = list.split(',').filter(|xid| !xid.is_empty()).map(|xid| xid.parse::<u64>().ok());
    let all: Option<Vec<u64>> = all.collect();
    Some(all?.into_iter().filter(|xid| *xid < below).collect())
}

/// Polls for all followers of this node, while there are any: one statement for each interval. A follower
/// itself polls only when one of its chains has changed.
fn watch(inner: &Arc<Inner>, runtime: &Handle) {
    let mut registry = inner.feed.registry();
    if registry.kept.watch.is_some() {
        return;
    }
    let watch = Arc::new(());
    registry.kept.watch = Some(Arc::clone(&watch));
    drop(registry);
    let inner = Arc::clone(inner);
    runtime.spawn(async move {
        let watched = || watch_changes(&inner, &watch);
        inner.loops.run("database_feed", watched).await;
    });
}

/// For as long as it is this watch that is wanted.
async fn watch_changes(inner: &Inner, watch: &Arc<()>) {
    let is_wanted = || {
        let registry = inner.feed.registry();
        registry.kept.watch.as_ref().is_some_and(|wanted| Arc::ptr_eq(wanted, watch))
    };
    let mut progress: Option<Progress> = None;
    while is_wanted() {
        if let Err(error) = watch_once(inner, &mut progress).await {
            tracing::debug!(%error, "failed to poll for changes; retrying");
            progress = None;
            if inner.distributed {
                // A node may be gone that has none of the chains that somebody follows.
                inner.feed.registry().wake_all();
            }
        }
        tokio::time::sleep(inner.options.poll).await;
    }
}

async fn watch_once(inner: &Inner, progress: &mut Option<Progress>) -> Result<(), StoreError> {
    loop {
        let Some(known) = progress else {
            let now = poll_changes(inner, Scope::Everything, Progress::default(), 0).await?;
            *progress = Some(Progress { cluster: now.cluster, base: Some(now.seen), scan: None });
            // For what has changed until here the followers poll themselves.
            inner.feed.registry().wake_all();
            return Ok(());
        };
        let page = poll_changes(inner, Scope::Everything, known.clone(), PAGE_ROWS).await?;
        if !page.known {
            *progress = None;
            continue;
        }
        let is_last = page.rows.len() < PAGE_ROWS;
        let rows = known.take(page);
        if let (Some((_, at)), Some(found)) = (&mut known.scan, rows.back()) {
            *at = found.id;
        }
        let chains: Vec<ChainId> = rows.iter().map(|found| found.change.chain).collect();
        inner.feed.registry().wake(chains.into_iter());
        if is_last {
            known.finish();
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_progress_is_read_from_a_snapshot() {
        assert_eq!(in_progress("10:10:", 10), Some(vec![]));
        assert_eq!(in_progress("10:20:10,14,19", 15), Some(vec![10, 14]));
        assert_eq!(in_progress("10:20:10,x", 15), None);
        assert_eq!(in_progress("", 15), None);
    }
}
