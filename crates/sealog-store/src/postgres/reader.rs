//! Reads: one statement each, bounded in rows and bytes.

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Random80, TenantId, Ulid};
use sealog_core::query::Filter;
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};
use sealog_core::verify::Item;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::pool::Session;
use super::rows::{self, COLUMNS, Id, signed, unsigned};
use crate::{ChainHead, Chunk, IdempotencyKey, KeptKey, List, Range, StoreError, WantedKeys};

/// Rows that one statement of a range looks at.
const RANGE_ROWS_MAX: i64 = 1000;

pub(super) async fn get(
    session: &Session,
    chain: ChainId,
    log_id: Ulid,
) -> Result<Result<Option<StoredEvent>, StoreError>, Error> {
    let sql = format!(
        "SELECT {COLUMNS}, tenant_id, project_id FROM sealog.events WHERE chain_id = $1 AND log_id = $2"
    );
    let rows =
        session.query(&sql, &[Type::UUID, Type::UUID], &[&Id::of_chain(chain), &Id::of_ulid(log_id)]).await?;
    let Some(row) = rows.first() else { return Ok(Ok(None)) };
    Ok(match sound(row, chain) {
        Some(event) => Ok(Some(event)),
        None => Err(StoreError::Damaged { chain_seq: rows::chain_seq(row) }),
    })
}

pub(super) async fn list(
    session: &Session,
    chain: ChainId,
    list: &List,
) -> Result<Chunk<StoredEvent>, Error> {
    let mut before_seq = list.before_seq;
    loop {
        let statement = Listing::new(chain, &list.filter, before_seq, list.limit, list.bytes_max);
        let rows = session.query_planned(&statement.sql(), &statement.types(), &statement.params()).await?;
        let resume = resume(&rows, Some(list.limit)).map(rows::chain_seq);
        let items: Vec<StoredEvent> = rows
            .iter()
            .filter_map(|row| {
                let event = sound(row, chain);
                if event.is_none() {
                    tracing::error!(%chain, chain_seq = rows::chain_seq(row), "a damaged event was left out of a list");
                }
                event
            })
            .collect();
        // A piece in which everything was left out says nothing; the next one may.
        if items.is_empty() && resume.is_some() {
            before_seq = resume;
            continue;
        }
        return Ok(Chunk { items, resume });
    }
}

pub(super) async fn range(session: &Session, chain: ChainId, range: Range) -> Result<Chunk<Item>, Error> {
    let sql = bounded(
        &format!(
            "SELECT {COLUMNS}, tenant_id, project_id FROM sealog.events
             WHERE chain_id = $1 AND chain_seq BETWEEN $2 AND $3 ORDER BY chain_seq LIMIT {RANGE_ROWS_MAX}"
        ),
        "chain_seq",
        "$4",
    );
    let types = [Type::UUID, Type::INT8, Type::INT8, Type::INT8];
    let (from, to, bytes_max) = (signed(range.from), signed(range.to), bytes_max(range.bytes_max));
    let rows = session.query(&sql, &types, &[&Id::of_chain(chain), &from, &to, &bytes_max]).await?;
    let cut_at = usize::try_from(RANGE_ROWS_MAX).ok();
    let resume = resume(&rows, cut_at).map(|row| rows::chain_seq(row) + 1).filter(|next| *next <= range.to);
    let item = |row: &Row| match rows::event(row) {
        // As it stands there, whatever was done to it: the verifier looks at what readers see.
        Some(event) => Item::Event(Box::new(event)),
        None => Item::Damaged { chain_seq: rows::chain_seq(row) },
    };
    Ok(Chunk { items: rows.iter().map(item).collect(), resume })
}

pub(super) async fn head(session: &Session, chain: ChainId) -> Result<ChainHead, Error> {
    // One statement, so that both answers are of one moment.
    let sql = "SELECT chain_seq, log_id, hash, NULL::bigint AS recorded_seq, NULL::uuid AS recorded_log_id, NULL::bytea AS recorded_hash, true AS stored
               FROM (SELECT chain_seq, log_id, hash FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq DESC LIMIT 1) AS last
               UNION ALL
               SELECT chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash, false FROM sealog.chains WHERE chain_id = $1";
    let rows = session.query(sql, &[Type::UUID], &[&Id::of_chain(chain)]).await?;
    let (mut durable, mut recorded) = (Head::EMPTY, Head::EMPTY);
    for row in &rows {
        let head = rows::head(row, "chain_seq", "log_id", "hash");
        if row.get("stored") {
            durable = head.unwrap_or(Head::EMPTY);
        } else {
            let known = [head, rows::head(row, "recorded_seq", "recorded_log_id", "recorded_hash")];
            // Of two with the same seq the one that was recorded: it is what someone was told.
            recorded = known.into_iter().flatten().max_by_key(|head| head.chain_seq).unwrap_or(Head::EMPTY);
        }
    }
    Ok(ChainHead {
        durable,
        recorded: if durable.chain_seq > recorded.chain_seq { durable } else { recorded },
    })
}

pub(super) async fn heads(session: &Session) -> Result<Vec<(ChainId, Head)>, Error> {
    let sql =
        "SELECT tenant_id, project_id, mode, chain_seq, log_id, hash FROM sealog.chains WHERE chain_seq > 0";
    let rows = session.query(sql, &[], &[]).await?;
    let mut heads: Vec<(ChainId, Head)> = rows
        .iter()
        .filter_map(|row| Some((chain(row)?, rows::head(row, "chain_seq", "log_id", "hash")?)))
        .collect();
    heads.sort_by_key(|(chain, _)| *chain);
    Ok(heads)
}

pub(super) async fn kept_keys(
    session: &Session,
    chain: ChainId,
    wanted: WantedKeys,
) -> Result<Vec<KeptKey>, Error> {
    let sql = "SELECT key_hash, fingerprint, request_id, received_ms, first_seq, octet_length(log_ids) / 16 AS events FROM sealog.idempotency
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
            events: usize::try_from(row.get::<_, i32>("events")).ok()?,
        })
    };
    Ok(rows.iter().filter_map(kept).collect())
}

pub(super) async fn usage(session: &Session, tenant_id: TenantId, month: Month) -> Result<u64, Error> {
    let sql = "SELECT coalesce(sum(events), 0)::bigint FROM sealog.usage WHERE tenant_id = $1 AND month = $2";
    let month = i32::try_from(month.0).unwrap_or(i32::MAX);
    let rows = session.query(sql, &[Type::UUID, Type::INT4], &[&Id(tenant_id.0.0), &month]).await?;
    Ok(unsigned(rows[0].get(0)))
}

/// What the tables take with their indexes.
pub(super) async fn storage_bytes(session: &Session) -> Result<u64, Error> {
    let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'sealog' AND c.relkind = 'r'";
    let rows = session.query(sql, &[], &[]).await?;
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
fn sound(row: &Row, chain: ChainId) -> Option<StoredEvent> {
    rows::event(row).filter(|event| rows::is_as_sealed(event, chain))
}

/// The last row, if there may be more behind it.
fn resume(rows: &[Row], limit: Option<usize>) -> Option<&Row> {
    let last = rows.last()?;
    let found = usize::try_from(last.get::<_, i64>("found")).unwrap_or(usize::MAX);
    (rows.len() < found || limit.is_some_and(|limit| rows.len() >= limit)).then_some(last)
}

/// Cuts the rows of a statement where they reach a number of bytes, on the server: an event can have two megabytes. The first one always comes.
/// `octet_length` does not fetch a large value, so what is cut off costs nothing.
fn bounded(inner: &str, order: &str, bytes: &str) -> String {
    format!(
        "SELECT * FROM (
             SELECT *, count(*) OVER () AS found,
                 sum(octet_length(action) + coalesce(octet_length(metadata), 0) + 300)
                     OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
             FROM ({inner}) AS inside
         ) AS counted WHERE coalesce(bytes_before, 0) < {bytes} ORDER BY {order}"
    )
}

fn bytes_max(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A list's statement: only the conditions that were given, so that the planner sees what there is.
struct Listing {
    chain: Id,
    before: i64,
    limit: i64,
    bytes_max: i64,
    strings: Vec<(&'static str, String)>,
    bounds: Vec<(&'static str, Id)>,
    /// A value that cannot be in the table.
    nothing: bool,
}

impl Listing {
    fn new(chain: ChainId, filter: &Filter, before_seq: Option<u64>, limit: usize, bytes: usize) -> Listing {
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
        Listing {
            chain: Id::of_chain(chain),
            before: before_seq.map_or(i64::MAX, signed),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            bytes_max: bytes_max(bytes),
            strings,
            bounds,
            nothing,
        }
    }

    fn sql(&self) -> String {
        let mut conditions = String::new();
        let mut number = 5;
        for (column, _) in &self.strings {
            conditions.push_str(&format!(" AND {column} = ${number}"));
            number += 1;
        }
        for (comparison, _) in &self.bounds {
            let first = format!(
                "(SELECT chain_seq FROM sealog.events WHERE chain_id = $1 AND log_id >= ${number} ORDER BY log_id LIMIT 1)"
            );
            // Without such an event nothing is at or after it, and everything is before it.
            conditions.push_str(&match *comparison {
                "<" => format!(" AND chain_seq < coalesce({first}, {})", i64::MAX),
                _ => format!(" AND chain_seq >= {first}"),
            });
            number += 1;
        }
        if self.nothing {
            conditions.push_str(" AND false");
        }
        let inner = format!(
            "SELECT {COLUMNS}, tenant_id, project_id FROM sealog.events
             WHERE chain_id = $1 AND chain_seq < $2{conditions} ORDER BY chain_seq DESC LIMIT $3"
        );
        bounded(&inner, "chain_seq DESC", "$4")
    }

    fn types(&self) -> Vec<Type> {
        let mut types = vec![Type::UUID, Type::INT8, Type::INT8, Type::INT8];
        types.extend(self.strings.iter().map(|_| Type::TEXT));
        types.extend(self.bounds.iter().map(|_| Type::UUID));
        types
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&self.chain, &self.before, &self.limit, &self.bytes_max];
        params.extend(self.strings.iter().map(|(_, value)| value as &(dyn ToSql + Sync)));
        params.extend(self.bounds.iter().map(|(_, id)| id as &(dyn ToSql + Sync)));
        params
    }
}
