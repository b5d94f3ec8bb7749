//! Reads: one statement each, bounded in rows and bytes.

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Random80, TenantId, Ulid};
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};
use sealog_core::verify::Item;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::pool::Session;
use super::rows::{self, Id, columns, signed, unsigned};
use crate::append::{IdempotencyKey, KeptKey, WantedKeys};
use crate::error::StoreError;
use crate::query::{ChainHead, Chunk, List, Range};

/// Rows that one statement of a range looks at.
const RANGE_ROWS_MAX: i64 = 1000;

/// Rows that one list looks at when it has several filters: two frequent values may never meet, however long
/// one looks for it.
const LIST_ROWS_MAX: i64 = 2048;

/// Rows by which it is found out which of several filters is the rarest where the list begins.
pub(super) const PROBE_ROWS: i64 = 256;

/// A read in two steps: the statement runs on the store's thread, which only moves bytes; [`Rows::decode`]
/// makes events of them and hashes, in the thread pool.
pub(super) struct Rows<T> {
    rows: Vec<Row>,
    decode: Decode<T>,
}

type Decode<T> = Box<dyn FnOnce(&[Row]) -> T + Send>;

impl<T> Rows<T> {
    pub(super) fn new(rows: Vec<Row>, decode: impl FnOnce(&[Row]) -> T + Send + 'static) -> Rows<T> {
        Rows { rows, decode: Box::new(decode) }
    }

    /// What decoding costs, in bytes.
    pub(super) fn cost(&self) -> usize {
        self.rows.iter().map(Row::raw_size_bytes).sum()
    }

    pub(super) fn decode(self) -> T {
        (self.decode)(&self.rows)
    }
}

pub(super) async fn get(
    session: &Session,
    chain: ChainId,
    log_id: Ulid,
) -> Result<Rows<Result<Option<StoredEvent>, StoreError>>, Error> {
    let sql = format!(
        "SELECT {columns}, tenant_id, project_id FROM sealog.events WHERE chain_id = $1 AND log_id = $2",
        columns = columns()
    );
    let rows =
        session.query(&sql, &[Type::UUID, Type::UUID], &[&Id::of_chain(chain), &Id::of_ulid(log_id)]).await?;
    Ok(Rows::new(rows, move |rows| {
        let Some(row) = rows.first() else { return Ok(None) };
        let damaged = || StoreError::Damaged { chain_seq: rows::chain_seq(row) };
        sound(row, chain).map(Some).ok_or_else(damaged)
    }))
}

pub(super) async fn list(
    session: &Session,
    chain: ChainId,
    list: &List,
) -> Result<Rows<Chunk<StoredEvent>>, Error> {
    let mut listing = Listing::new(chain, list);
    let rows = if listing.nothing {
        Vec::new()
    } else {
        listing.choose(session).await?;
        session.query_planned(&listing.sql(), &listing.types(), &listing.params()).await?
    };
    Ok(Rows::new(rows, move |rows| {
        let event = |row: &Row| {
            let event = sound(row, chain);
            if event.is_none() {
                tracing::error!(%chain, chain_seq = rows::chain_seq(row), "skipped a damaged event in a list");
            }
            event
        };
        let resume = resume(rows).map(rows::chain_seq);
        Chunk { items: wanted(rows).filter_map(event).collect(), resume }
    }))
}

pub(super) async fn range(
    session: &Session,
    chain: ChainId,
    range: Range,
) -> Result<Rows<Chunk<Item>>, Error> {
    let inner = format!(
        "SELECT {columns}, tenant_id, project_id, true AS matches FROM sealog.events
         WHERE chain_id = $1 AND chain_seq BETWEEN $2 AND $3 ORDER BY chain_seq LIMIT $4",
        columns = columns()
    );
    let sql = bounded(&inner, "chain_seq", &Bounds { looked: "$4", limit: "$4", bytes: "$5" });
    let types = [Type::UUID, Type::INT8, Type::INT8, Type::INT8, Type::INT8];
    let (from, to, bytes_max) = (signed(range.from), signed(range.to), bytes_max(range.bytes_max));
    let params: [&(dyn ToSql + Sync); 5] = [&Id::of_chain(chain), &from, &to, &RANGE_ROWS_MAX, &bytes_max];
    let rows = session.query(&sql, &types, &params).await?;
    Ok(Rows::new(rows, move |rows| {
        let item = |row: &Row| match rows::event(row) {
            // As it stands there, whatever was done to it: the verifier looks at what readers see.
            Some(event) => Item::Event(Box::new(event)),
            None => Item::Damaged { chain_seq: rows::chain_seq(row) },
        };
        let resume = resume(rows).map(|row| rows::chain_seq(row) + 1).filter(|next| *next <= range.to);
        Chunk { items: wanted(rows).map(item).collect(), resume }
    }))
}

pub(super) async fn head(session: &Session, chain: ChainId) -> Result<ChainHead, Error> {
    // One statement, so that both answers are of one moment.
    let sql = "SELECT chain_seq, log_id, hash, NULL::bigint AS recorded_seq, NULL::uuid AS recorded_log_id, NULL::bytea AS recorded_hash,
                      NULL::bigint AS dropped_seq, NULL::uuid AS dropped_log_id, NULL::bytea AS dropped_hash, true AS stored
               FROM (SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq DESC LIMIT 1) AS last
               UNION ALL
               SELECT chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash,
                      dropped_seq, dropped_log_id, dropped_hash, false FROM sealog.chains WHERE chain_id = $1";
    let rows = session.query(sql, &[Type::UUID], &[&Id::of_chain(chain)]).await?;
    let (mut durable, mut last, mut lost, mut dropped) = (Head::EMPTY, Head::EMPTY, None, Head::EMPTY);
    for row in &rows {
        let head = rows::head(row, "chain_seq", "log_id", "hash").unwrap_or(Head::EMPTY);
        if row.get("stored") {
            durable = head;
        } else {
            last = head;
            lost = rows::head(row, "recorded_seq", "recorded_log_id", "recorded_hash");
            dropped = rows::dropped(row, chain, head.chain_seq);
        }
    }
    if durable.chain_seq < dropped.chain_seq {
        durable = dropped;
    }
    let last = if durable.chain_seq > last.chain_seq { durable } else { last };
    // What was noted as lost counts even if the chain has become longer since: it has another event in that
    // place.
    let lost = lost.filter(|lost| lost.chain_seq >= last.chain_seq || last == durable);
    Ok(ChainHead { durable, recorded: lost.unwrap_or(last), dropped })
}

/// Nothing if a row is damaged.
pub(super) async fn heads(session: &Session) -> Result<Option<Vec<(ChainId, Head)>>, Error> {
    let sql = "SELECT chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash FROM sealog.chains WHERE chain_seq > 0";
    let rows = session.query(sql, &[], &[]).await?;
    // A row that names another chain than its id would leave its own one out, of copies and of verification.
    let own = |row: &Row| chain(row).filter(|chain| Id::of_chain(*chain) == row.get("chain_id"));
    let head = |row: &Row| Some((own(row)?, rows::head(row, "chain_seq", "log_id", "hash")?));
    Ok(rows.iter().map(head).collect::<Option<Vec<_>>>().map(|mut heads| {
        heads.sort_by_key(|(chain, _)| *chain);
        heads
    }))
}

/// Nothing if a record is damaged.
pub(super) async fn kept_keys(
    session: &Session,
    chain: ChainId,
    wanted: WantedKeys,
) -> Result<Option<Vec<KeptKey>>, Error> {
    let sql = "SELECT key_hash, fingerprint, request_id, received_ms, first_seq, octet_length(log_ids) AS log_ids, octet_length(hash) AS hash FROM sealog.idempotency
               WHERE chain_id = $1 AND first_seq >= $2 AND received_ms > $3 ORDER BY first_seq LIMIT $4";
    let limit = i64::try_from(wanted.limit).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 4] =
        [&Id::of_chain(chain), &signed(wanted.from), &signed(wanted.received_after_ms), &limit];
    let rows = session.query(sql, &[Type::UUID, Type::INT8, Type::INT8, Type::INT8], &params).await?;
    let kept = |row: &Row| {
        Some(KeptKey {
            key: IdempotencyKey {
                key_hash: rows::hash(row.get("key_hash"))?,
                fingerprint: rows::hash(row.get("fingerprint"))?,
            },
            request_id: row.get::<_, Id>("request_id").ulid(),
            received_ms: unsigned(row.get("received_ms")),
            first_seq: unsigned(row.get("first_seq")),
            events: usize::try_from(row.get::<_, i32>("log_ids")).ok().filter(|_| is_whole(row))? / 16,
        })
    };
    Ok(rows.iter().map(kept).collect())
}

/// Whether the parts of an idempotency record that are not read have the right length.
fn is_whole(row: &Row) -> bool {
    let (log_ids, hash) = (row.get::<_, i32>("log_ids"), row.get::<_, i32>("hash"));
    log_ids > 0 && log_ids % 16 == 0 && hash == 32
}

pub(super) async fn usage(session: &Session, tenant_id: TenantId, month: Month) -> Result<u64, Error> {
    let sql = "SELECT coalesce(sum(events), 0)::bigint FROM sealog.usage WHERE tenant_id = $1 AND month = $2";
    let month = i32::try_from(month.0).unwrap_or(i32::MAX);
    let rows = session.query(sql, &[Type::UUID, Type::INT4], &[&Id(tenant_id.0.0), &month]).await?;
    Ok(unsigned(rows[0].get(0)))
}

/// What the tables take with their indexes, on whichever nodes.
pub(super) async fn storage_bytes(session: &Session, distributed: bool) -> Result<u64, Error> {
    let of_node = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'sealog' AND c.relkind = 'r'";
    let of_shards = "SELECT coalesce(sum(citus_total_relation_size(p.logicalrelid)), 0)::bigint FROM pg_catalog.pg_dist_partition p
               JOIN pg_class c ON c.oid = p.logicalrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'sealog'";
    let rows = session.query(if distributed { of_shards } else { of_node }, &[], &[]).await?;
    Ok(unsigned(rows[0].get(0)))
}

pub(super) fn chain(row: &Row) -> Option<ChainId> {
    Some(ChainId {
        tenant_id: TenantId(row.get::<_, Id>("tenant_id").uuid()),
        project_id: sealog_core::id::ProjectId(row.get::<_, Id>("project_id").uuid()),
        mode: rows::mode(row.get("mode"))?,
    })
}

/// The event of a row, if it is still what was sealed.
pub(super) fn sound(row: &Row, chain: ChainId) -> Option<StoredEvent> {
    rows::event(row).filter(|event| rows::is_as_sealed(event, chain))
}

pub(super) fn wanted(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.get("wanted"))
}

/// The row behind which the next piece begins, if there may be one.
pub(super) fn resume(rows: &[Row]) -> Option<&Row> {
    let found = rows.first()?.get::<_, i64>("found");
    let last = wanted(rows).last();
    if i64::try_from(wanted(rows).count()).is_ok_and(|wanted| wanted < found) {
        // More were found than fitted.
        return last;
    }
    // As many were looked at as may be; what is behind them nobody knows.
    rows.iter().find(|row| row.get("is_last"))
}

/// How a statement names its limits: rows that it looks at, rows that it returns, their bytes.
pub(super) struct Bounds<'a> {
    pub(super) looked: &'a str,
    pub(super) limit: &'a str,
    pub(super) bytes: &'a str,
}

/// Of the rows of a statement those that match, up to a number of them and of their bytes, on the server: an
/// event can have two megabytes. The first one always comes. `octet_length` does not fetch a large value, so
/// what is cut off costs nothing. The last row that may be looked at comes too, whether it is wanted or not.
pub(super) fn bounded(inner: &str, order: &str, Bounds { looked, limit, bytes }: &Bounds<'_>) -> String {
    format!(
        "SELECT * FROM (
             SELECT *, matches AND matches_before < {limit} AND coalesce(bytes_before, 0) < {bytes} AS wanted, number = {looked} AS is_last
             FROM (
                 SELECT *, row_number() OVER (ORDER BY {order}) AS number, count(*) FILTER (WHERE matches) OVER () AS found,
                     count(*) FILTER (WHERE matches) OVER before AS matches_before,
                     sum(octet_length(action) + coalesce(octet_length(metadata), 0) + 300) FILTER (WHERE matches) OVER before AS bytes_before
                 FROM ({inner}) AS inside
                 WINDOW before AS (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
             ) AS counted
         ) AS decided WHERE wanted OR is_last ORDER BY {order}"
    )
}

fn bytes_max(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A list's statement: only the conditions that were given, so that the planner sees what there is.
///
/// One of the filters drives: rows are read by its index, newest first, and the others are held against each
/// row. The comparison of pairs, and the order by both, leave the planner no other index: by the order of the
/// chain alone it might look at every row for a value that is rare there.
pub(super) struct Listing {
    pub(super) chain: Id,
    pub(super) before: i64,
    /// From which seq on; 0 for the first.
    pub(super) lowest: i64,
    /// Rows that are looked at.
    pub(super) looked: i64,
    pub(super) limit: i64,
    bytes_max: i64,
    /// The first one drives.
    pub(super) strings: Vec<(&'static str, String)>,
    pub(super) bounds: Vec<(&'static str, Id)>,
    /// A value that cannot be in the table.
    pub(super) nothing: bool,
}

impl Listing {
    /// Parameters before those of filters.
    pub(super) const PARAMS: usize = 5;

    pub(super) fn new(chain: ChainId, list: &List) -> Listing {
        let filter = &list.filter;
        let mut nothing = false;
        let mut strings = Vec::new();
        for (column, value) in
            [("action", &filter.action), ("actor_id", &filter.actor_id), ("resource", &filter.resource)]
        {
            if let Some(value) = value {
                match sealog_core::json::decode(value).filter(|value| !value.contains('\0')) {
                    Some(value) => strings.push((column, value)),
                    None => nothing = true,
                }
            }
        }
        // Ids and times rise with the seq, so a time is a place among the ids.
        let first_id = |ms: u64| Id::of_ulid(Ulid::new(ms.min(TIMESTAMP_MS_MAX + 1), Random80([0; 10])));
        let mut bounds = Vec::new();
        if let Some(from_ms) = filter.from_ms {
            bounds.push((">=", first_id(from_ms)));
        }
        if let Some(until_ms) = filter.until_ms {
            bounds.push(("<", first_id(until_ms)));
        }
        let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
        Listing {
            chain: Id::of_chain(chain),
            before: list.before_seq.map_or(i64::MAX, signed),
            lowest: 0,
            looked: if strings.len() > 1 { LIST_ROWS_MAX } else { limit },
            limit,
            bytes_max: bytes_max(list.bytes_max),
            strings,
            bounds,
            nothing,
        }
    }

    /// Lets the filter drive whose values go back furthest within a number of rows: it is the rarest one
    /// where the list begins.
    pub(super) async fn choose(&mut self, session: &Session) -> Result<(), Error> {
        if self.strings.len() < 2 {
            return Ok(());
        }
        let (upper, lower) = self.limits(3 + self.strings.len());
        let probe = |(at, (column, _)): (usize, &(&str, String))| {
            let conditions = driven(column, &format!("${}", at + 3), &upper, &lower);
            format!(
                "(SELECT chain_seq FROM sealog.events WHERE chain_id = $1 AND {conditions} ORDER BY {column} DESC, chain_seq DESC OFFSET {PROBE_ROWS} LIMIT 1)"
            )
        };
        let probes: Vec<String> = self.strings.iter().enumerate().map(probe).collect();
        let sql = format!("SELECT ARRAY[{}] AS reached", probes.join(", "));
        let (mut types, mut params): (Vec<Type>, Vec<&(dyn ToSql + Sync)>) =
            (vec![Type::UUID, Type::INT8], vec![&self.chain, &self.before]);
        self.add_filters(&mut types, &mut params);
        let rows = session.query_planned(&sql, &types, &params).await?;
        let reached: Vec<Option<i64>> = rows[0].get("reached");
        // Nothing: it has fewer than that altogether.
        let rarest = (0..reached.len()).min_by_key(|at| reached[*at].unwrap_or(-1)).unwrap_or(0);
        self.strings.swap(0, rarest);
        Ok(())
    }

    pub(super) fn sql(&self) -> String {
        let (upper, lower) = self.limits(Listing::PARAMS + 1 + self.strings.len());
        let number = |at: usize| format!("${}", Listing::PARAMS + 1 + at);
        let (conditions, order) = match self.strings.first() {
            None => (format!("chain_seq < {upper} AND chain_seq >= {lower}"), "chain_seq DESC".to_owned()),
            Some((column, _)) => {
                (driven(column, &number(0), &upper, &lower), format!("{column} DESC, chain_seq DESC"))
            }
        };
        let others = self.strings.iter().enumerate().skip(1);
        let others: Vec<String> =
            others.map(|(at, (column, _))| format!("{column} = {}", number(at))).collect();
        let matches =
            if others.is_empty() { "true".to_owned() } else { format!("({}) IS TRUE", others.join(" AND ")) };
        let inner = format!(
            "SELECT {columns}, tenant_id, project_id, {matches} AS matches FROM sealog.events
             WHERE chain_id = $1 AND {conditions} ORDER BY {order} LIMIT $5",
            columns = columns()
        );
        bounded(&inner, &order, &Bounds { looked: "$5", limit: "$3", bytes: "$4" })
    }

    /// Below which seq, and from which, where the parameters of times begin with a number.
    pub(super) fn limits(&self, mut number: usize) -> (String, String) {
        let (mut upper, mut lower) = ("$2".to_owned(), self.lowest.to_string());
        for (comparison, _) in &self.bounds {
            let first = format!(
                "(SELECT chain_seq FROM sealog.events WHERE chain_id = $1 AND log_id >= ${number} ORDER BY log_id LIMIT 1)"
            );
            // Without such an event nothing is at or after it, and everything is before it.
            match *comparison {
                "<" => upper = format!("least($2, coalesce({first}, $2))"),
                _ if self.lowest == 0 => lower = first,
                // Still nothing where there is no such event.
                _ => lower = format!("{first} + greatest({} - {first}, 0)", self.lowest),
            }
            number += 1;
        }
        (upper, lower)
    }

    pub(super) fn types(&self) -> Vec<Type> {
        let mut types = vec![Type::UUID, Type::INT8, Type::INT8, Type::INT8, Type::INT8];
        self.add_filters(&mut types, &mut Vec::new());
        types
    }

    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&self.chain, &self.before, &self.limit, &self.bytes_max, &self.looked];
        self.add_filters(&mut Vec::new(), &mut params);
        params
    }

    fn add_filters<'a>(&'a self, types: &mut Vec<Type>, params: &mut Vec<&'a (dyn ToSql + Sync)>) {
        types.extend(self.strings.iter().map(|_| Type::TEXT));
        types.extend(self.bounds.iter().map(|_| Type::UUID));
        params.extend(self.strings.iter().map(|(_, value)| value as &(dyn ToSql + Sync)));
        params.extend(self.bounds.iter().map(|(_, id)| id as &(dyn ToSql + Sync)));
    }
}

/// That a column has a value and the seq is within limits, so that the index of that column serves for both.
fn driven(column: &str, value: &str, upper: &str, lower: &str) -> String {
    format!(
        "{column} IS NOT NULL AND ({column}, chain_seq) < ({value}, {upper}) AND ({column}, chain_seq) >= ({value}, {lower})"
    )
}
