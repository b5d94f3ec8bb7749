//! Counts: behind the events, in pieces, by whichever node comes first. No append waits for them.
//!
//! A piece is one transaction: it takes the chain's row in `sealog.counted`, reads the events behind the last
//! one that was counted, adds them to their days and moves the row. Events of a chain become visible in the
//! order of their seqs, so nothing is passed over. The row names the last event by its id: where a failover
//! has put another one in its place, counting begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::id::{ChainId, Ulid};
use sealog_core::time::DAY_MS;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::error::explain;
use super::inner::Inner;
use super::pool::Session;
use super::rows::{Id, signed, unsigned};
use crate::bytes::Take;
use crate::counts::{Counted, Counts, DayCounts, Days};
use crate::error::StoreError;

/// Events of one piece.
const PIECE_EVENTS: i64 = 2000;
/// Days of one piece: of each, what was counted is read and written again, and that may be 160 KiB.
const PIECE_DAYS: usize = 32;
/// Pieces that one question counts itself before it is answered.
const CATCH_UP_PIECES: usize = 10;
/// Chains that are looked up at once.
const CHAINS: i64 = 32;
/// How often it is looked for chains that are behind.
const EVERY: Duration = Duration::from_secs(5);
/// Such looks take no more than this part of the time: they take longer the more chains there are.
const LOOK_SHARE: u32 = 20;

const BEGIN_CHAIN: &str = "INSERT INTO sealog.counted (chain_id, chain_seq, log_id) VALUES ($1, 0, '00000000-0000-0000-0000-000000000000') ON CONFLICT (chain_id) DO NOTHING";
/// Whoever holds the row counts the chain; another node, or a question, passes it over.
const TAKE_CHAIN: &str =
    "SELECT chain_seq, log_id FROM sealog.counted WHERE chain_id = $1 FOR UPDATE SKIP LOCKED";
const EVENTS: &str =
    "SELECT chain_seq, log_id, timestamp_ms, action, actor_id, severity, country FROM sealog.events
    WHERE chain_id = $1 AND chain_seq >= $2 ORDER BY chain_seq LIMIT $3";
const FORGET: &str = "DELETE FROM sealog.counts WHERE chain_id = $1";
const DAY: &str = "SELECT content FROM sealog.counts WHERE chain_id = $1 AND day = $2";
const SET_DAY: &str = "INSERT INTO sealog.counts (chain_id, day, content) VALUES ($1, $2, $3)
    ON CONFLICT (chain_id, day) DO UPDATE SET content = excluded.content";
const MOVE_CHAIN: &str = "UPDATE sealog.counted SET chain_seq = $2, log_id = $3 WHERE chain_id = $1";
/// In no order, so that chains of which nothing more can be counted, because events are lost, do not keep the
/// others from it.
const BEHIND: &str = "SELECT c.chain_id FROM sealog.chains c LEFT JOIN sealog.counted k ON k.chain_id = c.chain_id
    WHERE c.chain_seq > 0 AND (k.chain_id IS NULL OR k.chain_seq <> c.chain_seq OR k.log_id <> c.log_id) ORDER BY random() LIMIT $1";
const DAYS: &str = "SELECT day, content FROM sealog.counts WHERE chain_id = $1 AND day >= $2 AND day < $3";
/// How many events are left to count, and whether nothing is: the last event is the last that was counted.
/// Where more was counted than there is, events were lost, and all that are there are counted anew.
const STATE: &str = "SELECT CASE WHEN k.chain_seq >= c.chain_seq THEN c.chain_seq ELSE c.chain_seq - coalesce(k.chain_seq, 0) END AS uncounted,
        coalesce(k.chain_seq = c.chain_seq AND k.log_id = c.log_id, c.chain_seq = 0) AS is_counted
    FROM sealog.chains c LEFT JOIN sealog.counted k ON k.chain_id = c.chain_id WHERE c.chain_id = $1";

/// Counts as they were read: decoding them is work for the thread pool.
pub(super) struct Stored {
    days: Vec<(u32, Vec<u8>)>,
    uncounted: u64,
}

impl Stored {
    /// What decoding costs, in bytes.
    pub(super) fn cost(&self) -> usize {
        self.days.iter().map(|(_, content)| content.len()).sum()
    }

    /// A day that is damaged makes an error: to leave it out would be to say that nothing happened.
    pub(super) fn decode(self) -> Result<Counts, StoreError> {
        let day = |(day, content): (u32, Vec<u8>)| Some((day, decode(&content)?));
        let days = self.days.into_iter().map(day).collect::<Option<BTreeMap<_, _>>>();
        let damaged = || StoreError::Read("the counts of a day are damaged".into());
        Ok(Counts { days: days.ok_or_else(damaged)?, uncounted: self.uncounted })
    }
}

fn decode(content: &[u8]) -> Option<DayCounts> {
    let mut take = Take(content);
    DayCounts::decode(&mut take).filter(|_| take.0.is_empty())
}

impl Inner {
    /// Counts what is left of a chain, up to a bound, and reads the days.
    pub(super) async fn counts(&self, chain: ChainId, days: Days) -> Result<Stored, StoreError> {
        let id = Id::of_chain(chain);
        // Of most questions nothing is left to count, and then they cost two reads.
        let mut state = self.count_state(id).await?;
        for _ in 0..CATCH_UP_PIECES {
            let Some((_, false)) = state else { break };
            match self.count_piece(id).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    // What is counted can be read all the same, and the answer says how much is missing.
                    tracing::warn!(%error, "cannot count new events for a query; answering with the existing counts");
                    break;
                }
            }
            state = self.count_state(id).await?;
        }
        let uncounted = match state {
            Some((uncounted, false)) => u64::try_from(uncounted).unwrap_or(0),
            Some((_, true)) | None => 0,
        };
        let range = days.range();
        let bound = |day: u32| i32::try_from(day).unwrap_or(i32::MAX);
        let (from, until) = (bound(range.start), bound(range.end));
        self.read_of(id, move |session| {
            Box::pin(async move {
                let params: [&(dyn ToSql + Sync); 3] = [&id, &from, &until];
                let rows = session.query(DAYS, &[Type::UUID, Type::INT4, Type::INT4], &params).await?;
                let day =
                    |row: &Row| (u32::try_from(row.get::<_, i32>("day")).unwrap_or(0), row.get("content"));
                let days = rows.iter().map(day).collect();
                Ok(Stored { days, uncounted })
            })
        })
        .await
    }

    /// Nothing for a chain without events.
    async fn count_state(&self, id: Id) -> Result<Option<(i64, bool)>, StoreError> {
        let state = self.read_of(id, move |session| {
            Box::pin(async move {
                let rows = session.query(STATE, &[Type::UUID], &[&id]).await?;
                Ok(rows.first().map(|row| (row.get("uncounted"), row.get("is_counted"))))
            })
        });
        state.await
    }

    /// Counts one piece of a chain; how many events it had.
    async fn count_piece(&self, id: Id) -> Result<i64, StoreError> {
        let lease = self.lease_of(id).await?;
        let begin = self.target.begin(&self.options);
        let counted =
            tokio::time::timeout(self.options.transaction_timeout, transaction(&lease.session, &begin, id));
        match counted.await {
            Ok(Ok(counted)) => {
                lease.give_back();
                Ok(counted)
            }
            Ok(Err(error)) => Err(StoreError::Unavailable(explain(&error))),
            Err(_) => Err(StoreError::Unavailable("the database did not respond in time".into())),
        }
    }

    /// Forgets what was counted of a chain, so that it is counted again.
    pub(super) async fn recount(&self, id: Id) -> Result<(), StoreError> {
        let lease = self.lease_of(id).await?;
        let begin = self.target.begin(&self.options);
        let session = &lease.session;
        let forgotten = tokio::time::timeout(self.options.transaction_timeout, async {
            session.client.batch_execute(&begin).await?;
            // Whoever counts it at this moment has the row, and moves it from where it was.
            session
                .query("SELECT FROM sealog.counted WHERE chain_id = $1 FOR UPDATE", &[Type::UUID], &[&id])
                .await?;
            forget(session, id).await?;
            session.client.batch_execute("COMMIT").await
        });
        match forgotten.await {
            Ok(Ok(())) => {
                lease.give_back();
                Ok(())
            }
            Ok(Err(error)) => Err(StoreError::Unavailable(explain(&error))),
            Err(_) => Err(StoreError::Unavailable("the database did not respond in time".into())),
        }
    }

    /// Some chains that have more events than are counted.
    async fn behind(&self) -> Result<Vec<Id>, StoreError> {
        let behind = self.read(|session| {
            Box::pin(async move {
                let rows = session.query(BEHIND, &[Type::INT8], &[&CHAINS]).await?;
                Ok(rows.iter().map(|row| row.get("chain_id")).collect())
            })
        });
        behind.await
    }
}

/// Counts behind the events of all chains, whichever node they came by. Of two nodes that come to the same
/// chain one passes it over, and no event is counted twice.
pub(super) async fn keep(inner: Arc<Inner>) {
    let mut failed = false;
    let mut pause = EVERY;
    loop {
        tokio::time::sleep(pause).await;
        loop {
            let begun = Instant::now();
            let counted = async {
                let mut events = 0;
                let behind = inner.behind().await?;
                pause = EVERY.max(begun.elapsed() * LOOK_SHARE);
                for id in behind {
                    events += inner.count_piece(id).await?;
                }
                Ok::<_, StoreError>(events)
            };
            match counted.await {
                Ok(0) => {
                    failed = false;
                    break;
                }
                // As long a pause, so that at most half of the time goes into this.
                Ok(_) => tokio::time::sleep(begun.elapsed()).await,
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "cannot count events; retrying");
                    }
                    break;
                }
            }
        }
    }
}

async fn forget(session: &Session, id: Id) -> Result<(), Error> {
    session.execute(FORGET, &[Type::UUID], &[&id]).await?;
    let zero: [&(dyn ToSql + Sync); 3] = [&id, &0i64, &Id::of_ulid(Ulid(0))];
    session.execute(MOVE_CHAIN, &[Type::UUID, Type::INT8, Type::UUID], &zero).await.map(drop)
}

async fn transaction(session: &Session, begin: &str, id: Id) -> Result<i64, Error> {
    // Nobody waits for the disk: what a crash loses is lost with the row that says so.
    session.client.batch_execute(&format!("{begin}; SET LOCAL synchronous_commit = off")).await?;
    let counted = piece(session, id).await?;
    session.client.batch_execute("COMMIT").await?;
    Ok(counted)
}

async fn piece(session: &Session, id: Id) -> Result<i64, Error> {
    session.execute(BEGIN_CHAIN, &[Type::UUID], &[&id]).await?;
    let taken = session.query(TAKE_CHAIN, &[Type::UUID], &[&id]).await?;
    let Some(taken) = taken.first() else { return Ok(0) };
    let (mut after, last): (i64, Id) = (taken.get("chain_seq"), taken.get("log_id"));
    let types = [Type::UUID, Type::INT8, Type::INT8];
    let mut rows = session.query(EVENTS, &types, &[&id, &after, &(PIECE_EVENTS + 1)]).await?;
    let is_there = |row: &Row| {
        row.get::<_, i64>("chain_seq") == after && row.get::<_, Id>("log_id").ulid() == last.ulid()
    };
    if after > 0 && !rows.first().is_some_and(is_there) {
        // Lost events were counted, or others stand in their place by now.
        forget(session, id).await?;
        after = 0;
        rows = session.query(EVENTS, &types, &[&id, &after, &PIECE_EVENTS]).await?;
    }
    rows.retain(|row| row.get::<_, i64>("chain_seq") > after);
    rows.truncate(within_days(rows.iter().map(day_of_row)));
    let Some(end) = rows.last() else { return Ok(0) };
    let mut days: BTreeMap<i32, DayCounts> = BTreeMap::new();
    for row in &rows {
        let event = Counted {
            action: row.get("action"),
            actor_id: row.get("actor_id"),
            severity: row.get("severity"),
            country: row.get("country"),
        };
        days.entry(day_of_row(row)).or_default().add(&event);
    }
    for (day, counts) in &days {
        let stored = session.query(DAY, &[Type::UUID, Type::INT4], &[&id, day]).await?;
        let mut all = match stored.first().map(|row| decode(row.get("content"))) {
            None => DayCounts::default(),
            Some(Some(known)) => known,
            // Damaged: everything is counted again, beginning with the next piece.
            Some(None) => {
                forget(session, id).await?;
                return Ok(PIECE_EVENTS);
            }
        };
        all.merge(counts);
        let mut content = Vec::new();
        all.encode(&mut content);
        let params: [&(dyn ToSql + Sync); 3] = [&id, day, &content];
        session.execute(SET_DAY, &[Type::UUID, Type::INT4, Type::BYTEA], &params).await?;
    }
    let params: [&(dyn ToSql + Sync); 3] =
        [&id, &end.get::<_, i64>("chain_seq"), &end.get::<_, Id>("log_id")];
    session.execute(MOVE_CHAIN, &[Type::UUID, Type::INT8, Type::UUID], &params).await?;
    Ok(signed(rows.len() as u64))
}

fn day_of_row(row: &Row) -> i32 {
    i32::try_from(unsigned(row.get("timestamp_ms")) / DAY_MS).unwrap_or(i32::MAX)
}

/// How many of the events belong to one piece: those of the first days.
fn within_days(days: impl Iterator<Item = i32>) -> usize {
    let mut seen = BTreeSet::new();
    let is_within = |day: &i32| {
        seen.insert(*day);
        seen.len() <= PIECE_DAYS
    };
    days.take_while(is_within).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_at_most_32_days() {
        assert_eq!(within_days(std::iter::empty()), 0);
        assert_eq!(within_days([7; 2000].into_iter()), 2000);
        assert_eq!(within_days(0..32), 32);
        assert_eq!(within_days(0..33), 32);
        // A damaged time may lie anywhere.
        let twice = (0..32).flat_map(|day| [day, 0]);
        assert_eq!(within_days(twice.chain([99, 0])), 64);
    }
}
