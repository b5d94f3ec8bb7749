//! Events by members of their `metadata`: the index, which follows the events at a distance, and lists that
//! use it.
//!
//! ```text
//! t0  an event is appended. Its append does not wait for the index.
//! t1  a node takes the chain's row in `fields_indexed`, indexes the events behind it and moves it, in one
//!     transaction
//! t2  a list reads how far the chain is indexed: above that it looks at each event, from there down it goes
//!     by the index
//! ```
//! Between t0 and t1 nothing is missed, and neither is anything of an old database whose events were never
//! indexed: they are looked through until the index has come to them.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::metadata;
use siphasher::sip::SipHasher13;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::inner::Inner;
use super::pool::Session;
use super::reader::{Bounds, Listing, PROBE_ROWS, Rows, bounded, resume, sound, wanted};
use super::rows::{self, Id, columns, unsigned};
use crate::error::StoreError;
use crate::query::{Chunk, List};

/// Events of one step, and bytes of their metadata.
const STEP_ROWS: i64 = 1000;
const STEP_BYTES: i64 = 1 << 20;
/// Chains that are looked for at once.
const CHAINS: i64 = 32;
/// The longest pause between two steps.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Looks for chains that are behind take no more than this part of the time.
const LOOK_SHARE: u32 = 20;
/// After a failure: a role that may not write the index yet will not be able to a moment later.
const RETRY: Duration = Duration::from_secs(60);
/// Events that one list looks at where the index has not come to yet.
const SCAN_ROWS: i64 = 512;
/// Events that one list finds by the index and then holds against other conditions.
const FOUND_ROWS: i64 = 2048;

/// Stands for all members of an event that has too many of them.
const ANY: i64 = 0;

/// Keys of members. Clients choose them, and do not know what the hash is keyed with.
#[derive(Clone, Copy)]
pub(super) struct FieldKeys(SipHasher13);

impl FieldKeys {
    pub(super) fn new(store_id: &[u8; 16]) -> FieldKeys {
        FieldKeys(SipHasher13::new_with_key(store_id))
    }

    fn key(&self, name: &str, text: &str) -> i64 {
        let mut hasher = self.0;
        hasher.write(name.as_bytes());
        hasher.write(text.as_bytes());
        let key = i64::from_le_bytes(hasher.finish().to_le_bytes());
        if key == ANY { 1 } else { key }
    }

    /// Of an event.
    pub(super) fn of(&self, metadata: Option<&str>) -> Vec<i64> {
        let mut keys = Vec::new();
        if !metadata::index(metadata, |name, text| keys.push(self.key(name, text))) {
            return vec![ANY];
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Indexes what has been appended, as long as the store is open.
pub(super) async fn follow(inner: Arc<Inner>) {
    let mut pause = inner.options.poll;
    let mut failed = false;
    loop {
        tokio::time::sleep(pause).await;
        loop {
            let begun = Instant::now();
            match inner.index_fields(&mut failed).await {
                Ok(0) => {
                    // To look for what is to be done takes longer the more chains there are.
                    pause = inner.options.poll.max(begun.elapsed() * LOOK_SHARE);
                    break;
                }
                // As long a pause as the step took, so that at most half of a connection's time goes into
                // this.
                Ok(_) => tokio::time::sleep(begun.elapsed().min(PAUSE_MAX)).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot index the members of metadata; searches scan events instead. Retrying in a minute");
                    tokio::time::sleep(RETRY).await;
                    break;
                }
            }
        }
    }
}

/// In no order, so that chains of which nothing more can be indexed do not keep the others from it.
const BEHIND: &str =
    "SELECT c.chain_id FROM sealog.chains c LEFT JOIN sealog.fields_indexed f ON f.chain_id = c.chain_id
    WHERE c.chain_seq > coalesce(f.chain_seq, 0) ORDER BY random() LIMIT $1";
const BEGIN: &str = "INSERT INTO sealog.fields_indexed (chain_id, chain_seq, log_id)
    VALUES ($1, 0, '00000000-0000-0000-0000-000000000000') ON CONFLICT DO NOTHING";
/// Whoever holds the row indexes the chain; another node passes it over.
const TAKE: &str = "SELECT f.chain_seq, (SELECT e.log_id FROM sealog.events e WHERE e.chain_id = $1 AND e.chain_seq = f.chain_seq) = f.log_id AS is_same
    FROM sealog.fields_indexed f WHERE f.chain_id = $1 FOR UPDATE SKIP LOCKED";
/// The first one always comes.
const NEXT: &str = "SELECT chain_seq, log_id, metadata FROM (
        SELECT *, sum(octet_length(metadata)) OVER (ORDER BY chain_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (SELECT chain_seq, log_id, metadata FROM sealog.events WHERE chain_id = $1 AND chain_seq > $2 ORDER BY chain_seq LIMIT $3) AS next
    ) AS counted WHERE coalesce(bytes_before, 0) < $4 ORDER BY chain_seq";
const PUT: &str = "INSERT INTO sealog.event_fields (chain_id, key, chain_seq) SELECT $1, * FROM unnest($2::bigint[], $3::bigint[]) ON CONFLICT DO NOTHING";
const MOVE: &str = "UPDATE sealog.fields_indexed SET chain_seq = $2, log_id = $3 WHERE chain_id = $1";

impl Inner {
    /// A step for each of some chains that are behind: how many events were indexed. One that fails does not
    /// keep the others from it; an error where all that was done is to fail.
    async fn index_fields(&self, failed: &mut bool) -> Result<usize, StoreError> {
        let behind = self
            .read(|session| Box::pin(async move { session.query(BEHIND, &[Type::INT8], &[&CHAINS]).await }));
        let behind = behind.await?;
        let (mut indexed, mut failure) = (0, None);
        for row in behind {
            let chain: Id = row.get(0);
            let step = tokio::time::timeout(self.options.transaction_timeout, self.index_chain(chain));
            let timed_out = || StoreError::Unavailable("the database did not respond in time".into());
            match step.await.unwrap_or_else(|_| Err(timed_out())) {
                Ok(events) => indexed += events,
                Err(error) => failure = Some((chain, error)),
            }
        }
        match failure {
            Some((_, error)) if indexed == 0 => return Err(error),
            Some((chain, error)) => {
                // Rounds follow each other closely while others are behind.
                if !std::mem::replace(failed, true) {
                    tracing::warn!(%error, chain = %chain.uuid(), "cannot index the members of a chain's metadata; continuing with other chains");
                }
            }
            None => *failed = false,
        }
        Ok(indexed)
    }

    async fn index_chain(&self, chain: Id) -> Result<usize, StoreError> {
        let lease = self.lease_of(chain).await?;
        let failed = |error: Error| StoreError::Unavailable(super::error::explain(&error));
        let (begin, keys) = (self.target.begin(&self.options), FieldKeys::new(&self.store_id));
        let indexed = index_step(&lease.session, &begin, chain, keys).await.map_err(failed)?;
        lease.give_back();
        Ok(indexed)
    }
}

async fn index_step(session: &Session, begin: &str, chain: Id, keys: FieldKeys) -> Result<usize, Error> {
    // Nobody waits for the disk: what a crash loses is lost with the row that says so.
    session.client.batch_execute(&format!("{begin}; SET LOCAL synchronous_commit = off")).await?;
    session.execute(BEGIN, &[Type::UUID], &[&chain]).await?;
    let rows = session.query(TAKE, &[Type::UUID], &[&chain]).await?;
    let mut indexed = 0;
    if let Some(row) = rows.first() {
        // Where another event stands in that place by now, everything is looked at again. What was indexed of
        // events that are gone leads nowhere.
        let is_same = row.get::<_, Option<bool>>("is_same") == Some(true);
        let done: i64 = if is_same { row.get("chain_seq") } else { 0 };
        let next = next_of(session, chain, done).await?;
        let last = next.last().map(|row| (row.get::<_, i64>("chain_seq"), row.get::<_, Id>("log_id")));
        indexed = next.len();
        // Metadata may have megabytes, and this thread has everyone's connections.
        let hashed = tokio::task::spawn_blocking(move || postings(&next, keys));
        if let (Some((seq, log_id)), Ok((keys, seqs))) = (last, hashed.await) {
            put(session, chain, &keys, &seqs).await?;
            session.execute(MOVE, &[Type::UUID, Type::INT8, Type::UUID], &[&chain, &seq, &log_id]).await?;
        }
    }
    session.client.batch_execute("COMMIT").await?;
    Ok(indexed)
}

/// Adds postings; those that are there stay as they are.
pub(super) async fn put(session: &Session, chain: Id, keys: &[i64], seqs: &[i64]) -> Result<(), Error> {
    let types = [Type::UUID, Type::INT8_ARRAY, Type::INT8_ARRAY];
    session.execute(PUT, &types, &[&chain, &keys, &seqs]).await.map(drop)
}

/// The next events of a chain behind this seq, as many as are indexed in one step.
pub(super) async fn next_of(session: &Session, chain: Id, after: i64) -> Result<Vec<Row>, Error> {
    let types = [Type::UUID, Type::INT8, Type::INT8, Type::INT8];
    session.query(NEXT, &types, &[&chain, &after, &STEP_ROWS, &STEP_BYTES]).await
}

pub(super) fn postings(rows: &[Row], keys: FieldKeys) -> (Vec<i64>, Vec<i64>) {
    let of_row = |row: &Row| {
        let seq: i64 = row.get("chain_seq");
        keys.of(row.get("metadata")).into_iter().map(move |key| (key, seq))
    };
    rows.iter().flat_map(of_row).unzip()
}

/// Up to which event a chain is indexed.
async fn indexed_to(session: &Session, chain: Id) -> Result<i64, Error> {
    let sql = "SELECT f.chain_seq FROM sealog.fields_indexed f JOIN sealog.events e
                   ON e.chain_id = f.chain_id AND e.chain_seq = f.chain_seq AND e.log_id = f.log_id WHERE f.chain_id = $1";
    let rows = session.query(sql, &[Type::UUID], &[&chain]).await?;
    Ok(rows.first().map_or(0, |row| row.get("chain_seq")))
}

/// A list by members of `metadata`.
pub(super) async fn list(
    session: &Session,
    chain: ChainId,
    list: &List,
    keys: FieldKeys,
) -> Result<Rows<Chunk<StoredEvent>>, Error> {
    let mut listing = Listing::new(chain, list);
    if listing.nothing {
        return Ok(Rows::new(Vec::new(), |_| Chunk { items: Vec::new(), resume: None }));
    }
    let indexed = indexed_to(session, listing.chain).await?;
    let (mut rows, mut below) = (Vec::new(), None);
    if listing.before > indexed + 1 {
        // Above the index: each event is looked at, here.
        let mut above = Listing::new(chain, list);
        above.lowest = indexed + 1;
        (above.looked, above.limit) = (SCAN_ROWS, SCAN_ROWS);
        above.choose(session).await?;
        rows = session.query_planned(&above.sql(), &above.types(), &above.params()).await?;
        below = (indexed > 0).then(|| unsigned(indexed + 1));
        listing.before = indexed + 1;
    }
    if rows.is_empty() && indexed > 0 {
        let wanted = list.filter.fields.iter().map(|field| keys.key(field.name(), field.text())).collect();
        (rows, below) = (by_index(session, &mut listing, wanted).await?, None);
    }
    let (filter, limit) = (list.filter.clone(), list.limit);
    Ok(Rows::new(rows, move |rows| {
        let mut chunk = Chunk { items: Vec::new(), resume: resume(rows).map(rows::chain_seq).or(below) };
        for row in wanted(rows) {
            let Some(event) = sound(row, chain) else {
                tracing::error!(%chain, chain_seq = rows::chain_seq(row), "skipped a damaged event in a list");
                continue;
            };
            if filter.matches(&event) {
                chunk.items.push(event);
                if chunk.items.len() == limit {
                    chunk.resume = Some(rows::chain_seq(row));
                    break;
                }
            }
        }
        chunk
    }))
}

/// Candidates, newest first: the rarest of the members leads to them, and what else is wanted is held against
/// each. A key that several members have, and an event with too many members, cost a row that is read for
/// nothing; their number is bounded as that of all rows is.
async fn by_index(session: &Session, listing: &mut Listing, mut keys: Vec<i64>) -> Result<Vec<Row>, Error> {
    let rarest = rarest(session, listing, &keys).await?;
    keys.swap(0, rarest);
    if keys.len() > 1 || !listing.strings.is_empty() {
        listing.looked = FOUND_ROWS;
    }
    let first = Listing::PARAMS + 1 + listing.strings.len();
    let (upper, lower) = listing.limits(first);
    let first_key = first + listing.bounds.len();
    let one = |key: &str| {
        format!(
            "(SELECT chain_seq FROM sealog.event_fields WHERE chain_id = $1 AND key = {key} AND chain_seq < {upper} AND chain_seq >= {lower} ORDER BY chain_seq DESC LIMIT $5)"
        )
    };
    let found = format!(
        "SELECT chain_seq FROM ({} UNION {}) AS either ORDER BY chain_seq DESC LIMIT $5",
        one(&format!("${first_key}")),
        one(&ANY.to_string())
    );
    let strings = listing.strings.iter().enumerate();
    let strings = strings.map(|(at, (column, _))| format!("{column} = ${}", Listing::PARAMS + 1 + at));
    let others = (1..keys.len()).map(|at| {
        format!("EXISTS (SELECT FROM sealog.event_fields o WHERE o.chain_id = $1 AND o.key IN (${}, {ANY}) AND o.chain_seq = found.chain_seq)", first_key + at)
    });
    let matches: Vec<String> = strings.chain(others).chain(["log_id IS NOT NULL".to_owned()]).collect();
    // Each event by its place: no other plan is bounded. An event that is indexed and gone counts as one that
    // was looked at.
    let columns = columns().trim_start_matches("chain_seq, ");
    let inner = format!(
        "SELECT found.chain_seq, {columns}, tenant_id, project_id, coalesce({}, false) AS matches FROM ({found}) AS found
         LEFT JOIN LATERAL (SELECT {columns}, tenant_id, project_id FROM sealog.events e WHERE e.chain_id = $1 AND e.chain_seq = found.chain_seq LIMIT 1) AS event ON true
         ORDER BY chain_seq DESC",
        matches.join(" AND ")
    );
    let sql = bounded(&inner, "chain_seq DESC", &Bounds { looked: "$5", limit: "$3", bytes: "$4" });
    let (mut types, mut params) = (listing.types(), listing.params());
    types.extend(keys.iter().map(|_| Type::INT8));
    params.extend(keys.iter().map(|key| key as &(dyn ToSql + Sync)));
    session.query_planned(&sql, &types, &params).await
}

/// Which of several keys goes back furthest within a number of rows.
async fn rarest(session: &Session, listing: &Listing, keys: &[i64]) -> Result<usize, Error> {
    if keys.len() < 2 {
        return Ok(0);
    }
    let probe = |at: usize| {
        format!(
            "(SELECT chain_seq FROM sealog.event_fields WHERE chain_id = $1 AND key = ${} AND chain_seq < $2 ORDER BY chain_seq DESC OFFSET {PROBE_ROWS} LIMIT 1)",
            at + 3
        )
    };
    let probes: Vec<String> = (0..keys.len()).map(probe).collect();
    let sql = format!("SELECT ARRAY[{}] AS reached", probes.join(", "));
    let (mut types, mut params): (Vec<Type>, Vec<&(dyn ToSql + Sync)>) =
        (vec![Type::UUID, Type::INT8], vec![&listing.chain, &listing.before]);
    types.extend(keys.iter().map(|_| Type::INT8));
    params.extend(keys.iter().map(|key| key as &(dyn ToSql + Sync)));
    let rows = session.query_planned(&sql, &types, &params).await?;
    let reached: Vec<Option<i64>> = rows[0].get("reached");
    Ok((0..reached.len()).min_by_key(|at| reached[*at].unwrap_or(-1)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_key_for_each_member_and_one_for_all_where_it_has_too_many() {
        let keys = FieldKeys::new(&[3; 16]);
        let mut expected = vec![keys.key("\"a\"", "1"), keys.key("\"b\"", "x")];
        expected.sort_unstable();
        assert_eq!(keys.of(Some(r#"{"a":1,"b":["x","x"],"c":null}"#)), expected);
        assert!(keys.of(None).is_empty());
        let many: Vec<String> = (0..=metadata::INDEXED_MAX).map(|n| format!("\"k{n}\":1")).collect();
        assert_eq!(keys.of(Some(&format!("{{{}}}", many.join(",")))), [ANY]);
        assert_ne!(FieldKeys::new(&[4; 16]).key("\"a\"", "1"), keys.key("\"a\"", "1"));
    }
}
