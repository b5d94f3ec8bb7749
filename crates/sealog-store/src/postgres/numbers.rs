//! The feed on Citus: whoever follows numbers the changes, and appends only say that there is one.
//!
//! The nodes of a cluster number their transactions apart, and a shard that moves brings the ids of another
//! node along. So no position here has one. The chains of a shard are a bucket with a counter, which is a row
//! on that shard; an append sets the mark of its chain to 0, and a look of a follower takes the next number
//! of the bucket and gives it to chains whose mark is 0:
//! ```text
//! t0  appends to chains A and B set their marks to 0
//! t1  a look locks the counter (7), gives A and B the mark 8, sets the counter to 8: one transaction
//! t2  an append to A sets its mark to 0
//! t3  a look reads the counters: 8. Then marks above its position, and marks of 0: A and B
//! ```
//! Whoever numbers holds the counter's lock until its commit, so who reads 8 sees every mark up to 8: either
//! as it is, or as 0 or a higher one after another change. Which transactions are in progress plays no part.
//! `docs/adr/0040-a-feed-on-citus.md` has the rest: failovers, moves, and what it costs.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::time::Instant;

use futures_util::future::join_all;
use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::error::{damaged, explain};
use super::inner::Inner;
use super::pool::Session;
use super::progress::{Found, Number, Numbers, PAGE_ROWS, Page, Progress, Seen};
use super::reader;
use super::rows::{self, Id, signed, unsigned};
use crate::error::StoreError;
use crate::feed::{Change, Scope};

/// Marks below this are of no bucket: of changes before the table was there.
const BUCKET_BITS: u32 = 48;
/// Buckets whose marks are positive numbers.
pub(super) const BUCKETS_MAX: usize = 0x7fff;
/// Chains whose rows one transaction numbers, and holds meanwhile.
const NUMBERED_AT_ONCE: usize = 200;
/// Lives of a counter that are kept: who comes back from before them hears of every chain.
const LIVES_MAX: usize = 32;

pub(super) const FEED: &str = "CREATE TABLE IF NOT EXISTS sealog.feed (
    -- An id that Citus places on the shard whose chains are counted here.
    chain_id uuid NOT NULL PRIMARY KEY,
    bucket integer NOT NULL,
    -- The last number that was given.
    number bigint NOT NULL DEFAULT 0,
    -- A process of PostgreSQL that serves the shard, and the number that it began with.
    lives uuid[] NOT NULL DEFAULT '{}',
    begins bigint[] NOT NULL DEFAULT '{}',
    server text NOT NULL DEFAULT ''
) WITH (fillfactor = 40)";

const ARGUMENTS: &str = "uuid, uuid[]";

/// Numbers those of these chains that have changed. Rows that an append holds are left out: it would wait,
/// and chains that are numbered already would wait with it. Nothing waits for a disk: what a crash takes
/// back, the next life shows.
fn body() -> String {
    format!(
        "
DECLARE
    known record;
    no_mark uuid[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT bucket, number, lives, begins, server, tableoid::bigint || ' ' || pg_postmaster_start_time() AS now_on
        INTO known FROM sealog.feed WHERE chain_id = $1 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(chain_id) INTO no_mark FROM (
        SELECT chain_id FROM sealog.chains WHERE chain_id = ANY ($2) AND changed_group = 0 FOR UPDATE SKIP LOCKED) AS free;
    IF no_mark IS NULL THEN
        RETURN known.number;
    END IF;
    known.number := known.number + 1;
    IF known.server <> known.now_on THEN
        known.lives := (known.lives || gen_random_uuid())[greatest(1, cardinality(known.lives) + 2 - {LIVES_MAX}):];
        known.begins := (known.begins || known.number)[greatest(1, cardinality(known.begins) + 2 - {LIVES_MAX}):];
    END IF;
    UPDATE sealog.chains SET changed_group = (known.bucket::bigint << {BUCKET_BITS}) + known.number WHERE chain_id = ANY (no_mark);
    UPDATE sealog.feed SET number = known.number, lives = known.lives, begins = known.begins, server = known.now_on WHERE chain_id = $1;
    RETURN known.number;
END
"
    )
}

pub(super) fn function() -> String {
    format!(
        "CREATE OR REPLACE FUNCTION sealog.number_changes({ARGUMENTS}) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $${}$$",
        body()
    )
}

/// Whether the database has what this needs.
pub(super) async fn is_there(session: &Session) -> Result<bool, Error> {
    session.has_function("number_changes", ARGUMENTS, &body()).await
}

/// The row of a counter.
#[derive(Clone, Debug)]
struct Counter {
    key: Id,
    bucket: u16,
    number: u64,
    lives: Vec<([u8; 16], u64)>,
}

impl Counter {
    fn of(row: &Row) -> Option<Counter> {
        let (lives, begins): (Vec<Id>, Vec<i64>) = (row.get("lives"), row.get("begins"));
        Some(Counter {
            key: row.get("chain_id"),
            bucket: u16::try_from(row.get::<_, i32>("bucket")).ok()?,
            number: unsigned(row.get("number")),
            lives: lives.into_iter().map(|id| id.0).zip(begins.into_iter().map(unsigned)).collect(),
        })
    }

    fn last(&self) -> Number {
        Number { life: self.lives.last().map_or([0; 16], |(life, _)| *life), number: self.number }
    }

    /// Up to where changes are known. Nothing if that number is not of this counter's past: a failover or a
    /// restore has taken it back, and may have given it again.
    fn known(&self, seen: Option<&Number>) -> Option<u64> {
        let Number { life, number } = *seen?;
        if number == 0 {
            return Some(0);
        }
        let at = self.lives.iter().position(|(known, _)| *known == life)?;
        let end = self.lives.get(at + 1).map_or(self.number, |(_, begin)| begin - 1);
        (number <= end).then_some(number)
    }
}

/// One look: numbers what has changed, then reads what is numbered above the position, and what is not
/// numbered. Rows of both are found with the heads that they have by then.
pub(super) async fn poll(
    inner: &Inner,
    scope: Scope,
    progress: &Progress,
    limit: usize,
) -> Result<Page, StoreError> {
    if let Scope::Chain(chain) = scope {
        return of_chain(inner, chain, progress, limit).await;
    }
    if progress.scan.is_some() {
        // The rest of what was begun: numbers that were given since are above those of its beginning.
        let counters = inner.read(|session| Box::pin(counters(session))).await?;
        return changes(inner, scope, progress, counters.ok_or_else(bad_counter)?, limit).await;
    }
    let mut counters = number(inner, scope).await?;
    if limit == 0 {
        // Who begins now hears of nothing that was there: all of it has to have its number.
        while let (of_now, PAGE_ROWS) = &counters {
            let before: Vec<u64> = of_now.iter().map(|counter| counter.number).collect();
            counters = number(inner, scope).await?;
            if counters.0.iter().map(|counter| counter.number).eq(before) {
                break;
            }
        }
    }
    let (counters, found) = counters;
    let is_news = |counter: &Counter| {
        let Some(Seen::Numbers(seen)) = &progress.base else { return true };
        counter.known(seen.get(&counter.bucket)) != Some(counter.number)
    };
    if limit == 0 || (found == 0 && !counters.iter().any(is_news)) {
        return Ok(Page::of_numbers(&counters, VecDeque::new()));
    }
    changes(inner, scope, progress, counters, limit).await
}

fn bad_counter() -> StoreError {
    damaged("a counter of the feed")
}

impl Page {
    fn of_numbers(counters: &[Counter], rows: VecDeque<Found>) -> Page {
        let numbers = counters.iter().map(|counter| (counter.bucket, counter.last())).collect();
        Page { cluster: 0, seen: Seen::Numbers(numbers), known: true, rows }
    }
}

/// One chain needs no number: the position is its head.
async fn of_chain(
    inner: &Inner,
    chain: ChainId,
    progress: &Progress,
    limit: usize,
) -> Result<Page, StoreError> {
    let row = inner.read_of(Id::of_chain(chain), move |session| {
        Box::pin(async move {
            let sql = "SELECT chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash FROM sealog.chains WHERE chain_id = $1";
            session.query(sql, &[Type::UUID], &[&Id::of_chain(chain)]).await
        })
    });
    let row = row.await?;
    let found =
        row.first().map(|row| change(row).ok_or_else(|| damaged("the row of a chain"))).transpose()?;
    let head = found.map_or(Head::EMPTY, |(_, change)| change.head);
    let before = match &progress.base {
        Some(Seen::Head(head)) => *head,
        _ => Head::EMPTY,
    };
    let is_news = head.chain_seq > 0 && head != before && limit > 0;
    let rows = found.filter(|_| is_news).map(|(id, change)| Found { id, change, is_late: false });
    Ok(Page { cluster: 0, seen: Seen::Head(head), known: true, rows: rows.into_iter().collect() })
}

fn change(row: &Row) -> Option<(Id, Change)> {
    let head = rows::head(row, "chain_seq", "log_id", "hash")?;
    Some((row.get("chain_id"), Change { chain: reader::chain(row)?, head }))
}

/// A condition on the rows of a scope, with their tenant as this parameter.
fn of_scope(scope: Scope, parameter: usize) -> (String, Option<Id>) {
    match scope {
        Scope::Tenant(tenant_id) => (format!("tenant_id = ${parameter}"), Some(Id(tenant_id.0.0))),
        Scope::Everything | Scope::Chain(_) => (format!("${parameter}::uuid IS NULL"), None),
    }
}

async fn counters(session: &Session) -> Result<Option<Vec<Counter>>, Error> {
    let rows =
        session.query("SELECT chain_id, bucket, number, lives, begins FROM sealog.feed", &[], &[]).await?;
    Ok(rows.iter().map(Counter::of).collect())
}

/// Numbers what has changed, as far as it can. The counters after that, and how many chains had no number
/// before.
async fn number(inner: &Inner, scope: Scope) -> Result<(Vec<Counter>, usize), StoreError> {
    let looked = inner.read(move |session| {
        Box::pin(async move {
            let (of_scope, tenant) = of_scope(scope, 1);
            // First the chains: a counter that is read behind them knows of the numbers that others gave.
            let sql = format!(
                "SELECT chain_id FROM sealog.chains WHERE changed_group = 0 AND chain_seq > 0 AND {of_scope} LIMIT {PAGE_ROWS}"
            );
            let chains = session.query(&sql, &[Type::UUID], &[&tenant]).await?;
            let chains: Vec<Id> = chains.iter().map(|row| row.get("chain_id")).collect();
            Ok(counters(session).await?.map(|counters| (chains, counters)))
        })
    });
    let (chains, counters_before) = looked.await?.ok_or_else(bad_counter)?;
    if chains.is_empty() {
        return Ok((counters_before, 0));
    }
    let shard = |id| inner.routes.shard(id);
    let keys: HashMap<i32, Id> =
        counters_before.iter().filter_map(|counter| Some((shard(counter.key)?, counter.key))).collect();
    let mut by_bucket: HashMap<Id, Vec<Id>> = HashMap::new();
    for chain in &chains {
        // A shard that was split since `migrate --citus` may have no counter; its chains are read all the
        // same.
        if let Some(key) = shard(*chain).and_then(|shard| keys.get(&shard)) {
            by_bucket.entry(*key).or_default().push(*chain);
        }
    }
    join_all(by_bucket.iter().map(|(key, chains)| number_bucket(inner, *key, chains))).await;
    let counters = inner.read(|session| Box::pin(counters(session))).await?;
    Ok((counters.ok_or_else(bad_counter)?, chains.len()))
}

/// What fails is read without a number, and numbered by a later look.
async fn number_bucket(inner: &Inner, key: Id, chains: &[Id]) {
    if let Err(error) = try_number(inner, key, chains).await {
        tracing::debug!(%error, "failed to number changes for the feed; retrying with the next look");
    }
}

async fn try_number(inner: &Inner, key: Id, chains: &[Id]) -> Result<(), StoreError> {
    let until = Instant::now() + inner.options.transaction_timeout;
    let lease = inner.lease_of(key).await?;
    for chains in chains.chunks(NUMBERED_AT_ONCE) {
        let begin = inner.target.begin(&inner.options);
        let session = &lease.session;
        let called = tokio::time::timeout_at(until.into(), async {
            let call =
                session.prepare("SELECT sealog.number_changes($1, $2)", &[Type::UUID, Type::UUID_ARRAY]);
            session.rows_at_once(&begin, &call.await?, &[&key, &chains]).await
        });
        let called = called.await.map_err(|_| StoreError::Deadline)?;
        called.map_err(|error| StoreError::Read(explain(&error)))?;
    }
    lease.give_back();
    Ok(())
}

/// Chains that have changed since the position, in the order of their ids.
async fn changes(
    inner: &Inner,
    scope: Scope,
    progress: &Progress,
    counters: Vec<Counter>,
    limit: usize,
) -> Result<Page, StoreError> {
    let base = match &progress.base {
        Some(Seen::Numbers(numbers)) => Some(numbers),
        _ => None,
    };
    let after = progress.scan.as_ref().map(|(_, id)| *id);
    let condition = base.map(|base| condition(&counters, base));
    let (of_scope, tenant) = of_scope(scope, 1);
    // In an order that no index has, unless all chains are wanted: else the planner goes through all of them.
    let order = if condition.is_some() { "chain_id::text COLLATE \"C\"" } else { "chain_id" };
    let sql = format!(
        "SELECT chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash, changed_group FROM sealog.chains
         WHERE chain_seq > 0 AND {of_scope} AND ($2::uuid IS NULL OR chain_id > $2) AND ({}) ORDER BY {order} LIMIT {limit}",
        condition.as_deref().unwrap_or("true")
    );
    let found = inner.read(move |session| {
        Box::pin(async move {
            let params: [&(dyn ToSql + Sync); 2] = [&tenant, &after];
            session.query_planned(&sql, &[Type::UUID, Type::UUID], &params).await
        })
    });
    let found = found.await?;
    // What is above the numbers of the beginning will be found again.
    let ends: HashMap<u16, u64> = match progress.scan.as_ref() {
        Some((Seen::Numbers(began), _)) => began.iter().map(|(bucket, at)| (*bucket, at.number)).collect(),
        _ => counters.iter().map(|counter| (counter.bucket, counter.number)).collect(),
    };
    let is_late = |mark: u64| {
        let bucket = u16::try_from(mark >> BUCKET_BITS).ok();
        mark == 0 || bucket.is_some_and(|bucket| ends.get(&bucket).is_some_and(|end| number_of(mark) > *end))
    };
    let row = |row: &Row| {
        let (id, change) = change(row)?;
        Some(Found { id, change, is_late: is_late(unsigned(row.get("changed_group"))) })
    };
    let rows = found.iter().map(row).collect::<Option<_>>().ok_or_else(|| damaged("the row of a chain"))?;
    Ok(Page::of_numbers(&counters, rows))
}

fn number_of(mark: u64) -> u64 {
    mark & ((1 << BUCKET_BITS) - 1)
}

/// Marks behind a position, without an end: what is numbered meanwhile was there before. Of a bucket whose
/// number is not known any more all of them, and those from before there were buckets.
fn condition(counters: &[Counter], base: &Numbers) -> String {
    let mut condition = "changed_group = 0".to_owned();
    let mut from_the_beginning = false;
    for counter in counters {
        let known = counter.known(base.get(&counter.bucket));
        from_the_beginning |= known.is_none();
        let mark = |number: u64| signed((u64::from(counter.bucket) << BUCKET_BITS) + number);
        let (from, end) = (mark(known.unwrap_or(0)), mark(1 << BUCKET_BITS));
        let _ = write!(condition, " OR (changed_group > {from} AND changed_group < {end})");
    }
    if from_the_beginning {
        let _ = write!(condition, " OR changed_group < {}", 1_u64 << BUCKET_BITS);
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(number: u64, lives: &[(u8, u64)]) -> Counter {
        let lives = lives.iter().map(|(life, begin)| ([*life; 16], *begin)).collect();
        Counter { key: Id([0; 16]), bucket: 3, number, lives }
    }

    fn number(life: u8, number: u64) -> Number {
        Number { life: [life; 16], number }
    }

    #[test]
    fn a_number_is_known_if_it_is_of_the_counters_past() {
        let counter = counter(20, &[(1, 1), (2, 11)]);
        for (seen, known) in [
            (number(1, 10), Some(10)),
            // Given by a process whose last numbers were lost, and given again.
            (number(1, 11), None),
            (number(2, 11), Some(11)),
            (number(2, 20), Some(20)),
            // The counter has gone back, and nobody has counted since.
            (number(2, 21), None),
            (number(9, 5), None),
            (number(0, 0), Some(0)),
        ] {
            assert_eq!(counter.known(Some(&seen)), known, "{seen:?}");
        }
        assert_eq!(counter.known(None), None);
    }

    #[test]
    fn a_look_asks_for_what_is_behind_the_position_and_for_all_of_a_bucket_that_is_not_known() {
        let counters = [counter(20, &[(1, 1)])];
        let of =
            |seen: Option<Number>| condition(&counters, &seen.map(|seen| (3, seen)).into_iter().collect());
        let (zero, end) = (3_u64 << 48, 4_u64 << 48);
        for known in [7, 20] {
            let from = zero + known;
            let behind = format!("changed_group = 0 OR (changed_group > {from} AND changed_group < {end})");
            assert_eq!(of(Some(number(1, known))), behind);
        }
        let all = format!(
            "changed_group = 0 OR (changed_group > {zero} AND changed_group < {end}) OR changed_group < {}",
            1_u64 << 48
        );
        assert_eq!(of(Some(number(1, 21))), all);
        assert_eq!(of(None), all);
    }
}
