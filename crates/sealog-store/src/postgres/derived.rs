//! Derived tables compared with the events that they were made of: [`crate::derived`] has the reason.
//!
//! A step is some events of one chain. The members of their `metadata` must be in `event_fields`, as far as a
//! list goes by it: a row that is missing hides an event, one too many costs a look. Of live chains the
//! counts of a day and the usage of a month are added up from step to step, in the position, and compared
//! when the day or the month cannot get another event. Not compared: the database's own indexes (`pg_amcheck`
//! does), and idempotency records, which no event holds.

use std::collections::BTreeSet;

use sealog_core::id::{ChainId, Mode, ProjectId, TenantId};
use sealog_core::time::{DAY_MS, Month};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fields::{self, FieldKeys};
use super::inner::Inner;
use super::rows::{Id, signed, unsigned};
use crate::bytes::Take;
use crate::counts::{Counted, DayCounts, day_of};
use crate::derived::DerivedStep;
use crate::error::StoreError;

/// Events of one step, and bytes of their metadata, as they are indexed.
const STEP_ROWS: i64 = 1000;
const STEP_BYTES: i64 = 1 << 20;
/// A chain's time never goes back: after so many days no event comes to a day any more, whatever the clocks
/// of nodes say.
const SETTLED_DAYS: u64 = 2;

const CHAIN: &str = "SELECT c.chain_id, c.tenant_id, c.project_id, c.mode, coalesce(c.dropped_seq, 0) AS dropped,
        coalesce((SELECT f.chain_seq FROM sealog.fields_indexed f JOIN sealog.events e ON e.chain_id = f.chain_id AND e.chain_seq = f.chain_seq
            AND e.log_id = f.log_id WHERE f.chain_id = c.chain_id), 0) AS indexed,
        coalesce((SELECT k.chain_seq FROM sealog.counted k JOIN sealog.events e ON e.chain_id = k.chain_id AND e.chain_seq = k.chain_seq
            AND e.log_id = k.log_id WHERE k.chain_id = c.chain_id), 0) AS counted,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
    FROM sealog.chains c WHERE c.chain_id >= $1 ORDER BY c.chain_id LIMIT 1";
/// The first one always comes.
const EVENTS: &str = "SELECT chain_seq, timestamp_ms, action, actor_id, severity, country, metadata FROM (
        SELECT *, sum(octet_length(metadata)) OVER (ORDER BY chain_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (SELECT chain_seq, timestamp_ms, action, actor_id, severity, country, metadata FROM sealog.events
            WHERE chain_id = $1 AND chain_seq > $2 ORDER BY chain_seq LIMIT $3) AS next
    ) AS counted WHERE coalesce(bytes_before, 0) < $4 ORDER BY chain_seq";
/// Of events that are still there: retention may have dropped some meanwhile.
const MISSING: &str =
    "SELECT w.key, w.chain_seq FROM unnest($2::bigint[], $3::bigint[]) AS w (key, chain_seq)
    WHERE NOT EXISTS (SELECT FROM sealog.event_fields f WHERE f.chain_id = $1 AND f.key = w.key AND f.chain_seq = w.chain_seq)
        AND EXISTS (SELECT FROM sealog.events e WHERE e.chain_id = $1 AND e.chain_seq = w.chain_seq)";
const DAY: &str = "SELECT content FROM sealog.counts WHERE chain_id = $1 AND day = $2";
const USAGE: &str = "SELECT events FROM sealog.usage WHERE chain_id = $1 AND month = $2";
const SET_USAGE: &str =
    "INSERT INTO sealog.usage (chain_id, month, tenant_id, events) VALUES ($1, $2, $3, $4)
    ON CONFLICT (chain_id, month) DO UPDATE SET events = excluded.events";

/// How far the comparison has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    chain: [u8; 16],
    after: u64,
    /// The day of the last event, and what was counted of it so far. Nothing of a chain that is not counted.
    day: Option<(u32, DayCounts)>,
    month: Option<(u32, u64)>,
}

impl Position {
    fn encode(&self) -> Vec<u8> {
        let mut out = [&self.chain[..], &self.after.to_le_bytes()].concat();
        let (month, events) = self.month.unwrap_or((u32::MAX, 0));
        out.extend_from_slice(&month.to_le_bytes());
        out.extend_from_slice(&events.to_le_bytes());
        if let Some((day, counts)) = &self.day {
            out.extend_from_slice(&day.to_le_bytes());
            counts.encode(&mut out);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Position> {
        let mut take = Take(bytes);
        let (chain, after) = (take.array()?, take.u64()?);
        let month = Some((take.u32()?, take.u64()?)).filter(|(month, _)| *month != u32::MAX);
        let day = match take.0 {
            [] => None,
            _ => Some((take.u32()?, DayCounts::decode(&mut take)?)),
        };
        take.0.is_empty().then_some(Position { chain, after, day, month })
    }

    /// The beginning of the next chain.
    fn behind(chain: Id) -> Option<Position> {
        let next = u128::from_be_bytes(chain.0).checked_add(1)?;
        Some(Position { chain: next.to_be_bytes(), ..Position::default() })
    }
}

/// A chain, and how far its derived tables go.
struct Of {
    id: Id,
    chain: ChainId,
    dropped: u64,
    indexed: i64,
    counted: u64,
    now_ms: u64,
}

impl Of {
    fn read(row: &Row, now_ms: u64) -> Of {
        let uuid = |column| row.get::<_, Id>(column).uuid();
        let mode = if row.get::<_, &str>("mode") == "test" { Mode::Test } else { Mode::Live };
        let chain = ChainId {
            tenant_id: TenantId(uuid("tenant_id")),
            project_id: ProjectId(uuid("project_id")),
            mode,
        };
        // Events of a live chain are never dropped, whatever its row says.
        let dropped = if mode == Mode::Test { unsigned(row.get("dropped")) } else { 0 };
        Of {
            id: row.get("chain_id"),
            chain,
            dropped,
            indexed: row.get("indexed"),
            counted: unsigned(row.get("counted")),
            now_ms,
        }
    }

    fn is_counted(&self) -> bool {
        self.chain.mode == Mode::Live
    }

    fn has_usage(&self) -> bool {
        self.chain.mode == Mode::Live && !self.chain.is_system()
    }

    /// The first millisecond to which events may still come.
    fn settled_ms(&self) -> u64 {
        self.now_ms.saturating_sub(SETTLED_DAYS * DAY_MS)
    }
}

/// What events make: postings of their members, days and months that have ended with them.
#[derive(Default)]
struct Made {
    keys: Vec<i64>,
    seqs: Vec<i64>,
    /// With the last event of each.
    days: Vec<(u32, DayCounts, u64)>,
    months: Vec<(u32, u64)>,
}

impl Made {
    fn add(&mut self, of: &Of, position: &mut Position, row: &Row, keys: FieldKeys) {
        let seq: i64 = row.get("chain_seq");
        let timestamp_ms = unsigned(row.get("timestamp_ms"));
        if seq <= of.indexed {
            let found = keys.of(row.get("metadata"));
            self.seqs.extend(found.iter().map(|_| seq));
            self.keys.extend(found);
        }
        if of.is_counted() {
            let day = day_of(timestamp_ms);
            if position.day.as_ref().is_some_and(|(open, _)| *open != day) {
                self.end_day(position);
            }
            let (_, counts) = position.day.get_or_insert_with(|| (day, DayCounts::default()));
            counts.add(&Counted {
                action: row.get("action"),
                actor_id: row.get("actor_id"),
                severity: row.get("severity"),
                country: row.get("country"),
            });
        }
        if of.has_usage() {
            let Month(month) = Month::of(timestamp_ms);
            if position.month.is_some_and(|(open, _)| open != month) {
                self.months.extend(position.month.take());
            }
            position.month.get_or_insert((month, 0)).1 += 1;
        }
        position.after = unsigned(seq);
    }

    fn end_day(&mut self, position: &mut Position) {
        let last = position.after;
        self.days.extend(position.day.take().map(|(day, counts)| (day, counts, last)));
    }
}

impl Inner {
    pub(super) async fn check_derived(
        &self,
        position: Vec<u8>,
        heal: bool,
    ) -> Result<DerivedStep, StoreError> {
        let mut step = DerivedStep::default();
        let mut position = Position::decode(&position).unwrap_or_default();
        let from = Id(position.chain);
        let found = self.read(move |session| {
            Box::pin(async move { session.query(CHAIN, &[Type::UUID], &[&from]).await })
        });
        let found = found.await?;
        let read = |row: &Row| Of::read(row, self.clock.read_row(row).now_ms);
        let Some(of) = found.first().map(read) else { return Ok(step) };
        if of.id != from {
            position = Position { chain: of.id.0, ..Position::default() };
        }
        position.after = position.after.max(of.dropped);
        let rows = self.events_of(of.id, signed(position.after)).await?;
        step.events = rows.len() as u64;
        let is_end = rows.is_empty();
        let keys = FieldKeys::new(&self.store_id);
        // Metadata may have megabytes, and this thread has everyone's connections.
        let made = tokio::task::spawn_blocking(move || {
            let mut made = Made::default();
            rows.iter().for_each(|row| made.add(&of, &mut position, row, keys));
            if is_end {
                made.end_day(&mut position);
                made.months.extend(position.month.take());
            }
            (of, position, made)
        });
        let (of, position, made) =
            made.await.map_err(|_| StoreError::Read("panic in a comparison".into()))?;
        self.compare(&of, made, heal, &mut step.faults).await?;
        step.next = if is_end { Position::behind(of.id) } else { Some(position) }.map(|next| next.encode());
        Ok(step)
    }

    async fn events_of(&self, chain: Id, after: i64) -> Result<Vec<Row>, StoreError> {
        let types = [Type::UUID, Type::INT8, Type::INT8, Type::INT8];
        let events = self.read_of(chain, move |session| {
            Box::pin(async move {
                session.query(EVENTS, &types, &[&chain, &after, &STEP_ROWS, &STEP_BYTES]).await
            })
        });
        events.await
    }

    async fn compare(
        &self,
        of: &Of,
        made: Made,
        heal: bool,
        faults: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        let (chain, mode) = (of.chain, of.chain.mode.as_str());
        let missing = self.missing_members(of.id, made.keys, made.seqs).await?;
        if !missing.is_empty() {
            let events: BTreeSet<i64> = missing.iter().map(|(_, seq)| *seq).collect();
            let healed = if heal { Some(self.put_members(of.id, missing).await) } else { None };
            faults.push(format!(
                "the index of metadata lacks {} events of {mode} chain {chain}, from event {} on{}",
                events.len(),
                events.first().copied().unwrap_or(0),
                outcome(healed)
            ));
        }
        for (day, counts, last) in made.days {
            // What is not counted yet is counted from the events.
            let is_settled = u64::from(day) < of.settled_ms() / DAY_MS && last <= of.counted;
            if !is_settled || self.day_agrees(of.id, day, &counts).await? {
                continue;
            }
            let healed = if heal { Some(self.recount(of.id).await) } else { None };
            faults.push(format!(
                "the counts of {mode} chain {chain} do not match its events on day {day}{}",
                outcome(healed)
            ));
            // All days of the chain are counted again.
            break;
        }
        for (month, events) in made.months {
            if Month(month) >= Month::of(of.settled_ms()) {
                continue;
            }
            let counted = self.usage_of(of.id, month).await?;
            if counted != events {
                let healed = if heal { Some(self.set_usage(of, month, events).await) } else { None };
                faults.push(format!(
                    "the usage of chain {chain} in {} is {counted}, but it has {events} events{}",
                    Month(month),
                    outcome(healed)
                ));
            }
        }
        Ok(())
    }

    async fn missing_members(
        &self,
        chain: Id,
        keys: Vec<i64>,
        seqs: Vec<i64>,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let types = [Type::UUID, Type::INT8_ARRAY, Type::INT8_ARRAY];
        let missing = self.read_of(chain, move |session| {
            Box::pin(async move {
                let rows = session.query(MISSING, &types, &[&chain, &keys, &seqs]).await?;
                Ok(rows.iter().map(|row| (row.get("key"), row.get("chain_seq"))).collect())
            })
        });
        missing.await
    }

    async fn day_agrees(&self, chain: Id, day: u32, counts: &DayCounts) -> Result<bool, StoreError> {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let stored = self.read_of(chain, move |session| {
            Box::pin(async move {
                let params: [&(dyn ToSql + Sync); 2] = [&chain, &day];
                let rows = session.query(DAY, &[Type::UUID, Type::INT4], &params).await?;
                Ok(rows.first().map(|row| row.get::<_, Vec<u8>>("content")))
            })
        });
        let stored = stored.await?;
        let decoded = stored.and_then(|content| DayCounts::decode(&mut Take(&content)));
        Ok(decoded.is_some_and(|stored| stored.agrees(counts)))
    }

    async fn usage_of(&self, chain: Id, month: u32) -> Result<u64, StoreError> {
        let month = i32::try_from(month).unwrap_or(i32::MAX);
        let usage = self.read_of(chain, move |session| {
            Box::pin(async move {
                let params: [&(dyn ToSql + Sync); 2] = [&chain, &month];
                let rows = session.query(USAGE, &[Type::UUID, Type::INT4], &params).await?;
                Ok(rows.first().map_or(0, |row| unsigned(row.get("events"))))
            })
        });
        usage.await
    }

    async fn set_usage(&self, of: &Of, month: u32, events: u64) -> Result<(), StoreError> {
        let (chain, tenant) = (of.id, Id(of.chain.tenant_id.0.0));
        let (month, events) = (i32::try_from(month).unwrap_or(i32::MAX), signed(events));
        let set = self.read_of(chain, move |session| {
            Box::pin(async move {
                let params: [&(dyn ToSql + Sync); 4] = [&chain, &month, &tenant, &events];
                let types = [Type::UUID, Type::INT4, Type::UUID, Type::INT8];
                session.execute(SET_USAGE, &types, &params).await.map(drop)
            })
        });
        set.await
    }

    async fn put_members(&self, chain: Id, missing: Vec<(i64, i64)>) -> Result<(), StoreError> {
        let (keys, seqs): (Vec<i64>, Vec<i64>) = missing.into_iter().unzip();
        let put = self.read_of(chain, move |session| {
            Box::pin(async move { fields::put(session, chain, &keys, &seqs).await })
        });
        put.await
    }
}

fn outcome(healed: Option<Result<(), StoreError>>) -> String {
    match healed {
        None => String::new(),
        Some(Ok(())) => "; rebuilt from the events".into(),
        Some(Err(error)) => format!("; cannot be rebuilt: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_the_last_chain_has_none_behind_it() {
        let mut counts = DayCounts::default();
        counts.add(&Counted { action: "a", actor_id: Some("x"), severity: None, country: None });
        let whole =
            Position { chain: [7; 16], after: 9, day: Some((20_000, counts)), month: Some((24_000, 3)) };
        for position in [whole.clone(), Position::default(), Position { day: None, ..whole }] {
            assert_eq!(Position::decode(&position.encode()), Some(position));
        }
        assert_eq!(Position::decode(b"x"), None);
        assert_eq!(Position::behind(Id([0; 16])).unwrap().chain[15], 1);
        assert_eq!(Position::behind(Id([255; 16])), None);
    }
}
