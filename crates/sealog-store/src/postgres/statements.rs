//! The SQL of an append, and how it is batched into messages: each message that is answered by itself costs
//! both sides more than a small statement does.

use std::fmt::Write as _;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, ProjectId, TenantId, Ulid, Uuid};
use tokio_postgres::types::Type;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use super::rows::{self, Id, array_types, columns, value_types};

/// Advisory lock as FIFO queue: the nodes that want to append to a chain take it before they lock the chain's
/// row. Waiters for a row lock are all woken whenever the row changes, and a newcomer at that moment
/// overtakes them. The queue is for speed alone; mutual exclusion is the row lock's.
const QUEUE_LOCK: &str = "SELECT pg_advisory_xact_lock($1)";
const LOCK: &str = "SELECT tenant_id, project_id, mode, chain_seq, log_id, encode(hash, 'hex') AS hash, recorded_seq, dropped_seq FROM sealog.chains WHERE chain_id = $1 FOR UPDATE";
/// What sealing needs to know besides the row. The durability settings are read by each transaction, because
/// they can be changed at any time. `$2` is the last event that this node knows: if other nodes have moved
/// the head since, its hash is read, because after a failover there may be another event in its place.
const SNAPSHOT_COLUMNS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
        current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, current_setting('full_page_writes') AS full_page_writes,
        (SELECT encode(hash, 'hex') FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq DESC LIMIT 1) AS last_hash,
        CASE WHEN chain_seq <> $2 THEN (SELECT encode(hash, 'hex') FROM sealog.events WHERE chain_id = $1 AND chain_seq = $2) END AS known_hash";
pub(super) const SETTINGS: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];

const EVENTS: &str = "INSERT INTO sealog.events (chain_id, tenant_id, project_id, ";
const USAGE: &str = "INSERT INTO sealog.usage (chain_id, month, tenant_id, events)";
const USAGE_ADDS: &str =
    " ON CONFLICT (chain_id, month) DO UPDATE SET events = sealog.usage.events + excluded.events";
const KEYS: &str = "INSERT INTO sealog.idempotency (chain_id, key_hash, fingerprint, request_id, first_seq, log_ids, hash, received_ms) ";
/// A key whose 24 hours are over may still have its row.
const KEYS_REPLACE: &str = " ON CONFLICT (chain_id, key_hash) DO UPDATE SET fingerprint = excluded.fingerprint, request_id = excluded.request_id,
        first_seq = excluded.first_seq, log_ids = excluded.log_ids, hash = excluded.hash, received_ms = excluded.received_ms";

/// A statement with the types of its parameters.
#[derive(Debug)]
pub(super) struct Text {
    pub sql: String,
    pub types: Vec<Type>,
}

/// The first round trip of an append: begin, queue for the chain, lock its row, read the snapshot. One
/// message.
#[derive(Debug)]
pub(super) struct LockPhase {
    begin: String,
    lock: String,
    snapshot: String,
    /// The statements are prepared on each connection, so that the server does not parse and plan them each
    /// time.
    prepared: bool,
}

impl LockPhase {
    /// `begin` is the statements that begin a transaction. Behind a pooler nothing outlives a transaction, so
    /// nothing is prepared there; nor on Citus, which finds the shard of a statement by its text.
    pub(super) fn new(begin: String, pooled: bool, distributed: bool) -> LockPhase {
        // On Citus a statement goes to the shard of the table that it reads from, also one that only reads
        // the snapshot.
        let snapshot = format!("SELECT {SNAPSHOT_COLUMNS} FROM sealog.chains WHERE chain_id = $1");
        let lock = match distributed {
            false => format!("SELECT locked.*, {SNAPSHOT_COLUMNS} FROM ({LOCK}) AS locked"),
            true => format!("{LOCK}; {snapshot}"),
        };
        LockPhase { begin, lock, snapshot, prepared: !pooled && !distributed }
    }

    /// To be run once on each connection
    /// ([`Session::prepare_session`](super::pool::Session::prepare_session)).
    pub(super) fn prepare_statements(&self) -> Option<String> {
        let LockPhase { lock, snapshot, .. } = self;
        self.prepared.then(|| {
            format!("PREPARE sealog_queue (bigint) AS {QUEUE_LOCK}; PREPARE sealog_lock (uuid, bigint) AS {lock}; PREPARE sealog_snapshot (uuid, bigint) AS {snapshot}")
        })
    }

    /// Begins a transaction, waits in the chain's queue, then locks the chain's row.
    pub(super) fn begin(&self, id: Id, known: Option<Head>) -> String {
        let (queue, begin, lock) = (queue(id), &self.begin, self.lock(id, known));
        match self.prepared {
            true => format!("{begin}; EXECUTE sealog_queue ('{queue}'); {lock}"),
            false => format!("{begin}; {}; {lock}", QUEUE_LOCK.replace("$1", &format!("'{queue}'"))),
        }
    }

    /// Locks the chain's row and reads the snapshot: the clock after the lock was granted, the last event as
    /// it was when the statement began.
    pub(super) fn lock(&self, id: Id, known: Option<Head>) -> String {
        self.with_values(id, known, "sealog_lock", &self.lock)
    }

    /// Reads the snapshot again, which is then at least as new as the lock.
    pub(super) fn snapshot(&self, id: Id, known: Option<Head>) -> String {
        self.with_values(id, known, "sealog_snapshot", &self.snapshot)
    }

    fn with_values(&self, id: Id, known: Option<Head>, name: &str, sql: &str) -> String {
        let id = id.uuid();
        let known = known.map_or("NULL".to_owned(), |known| rows::signed(known.chain_seq).to_string());
        match self.prepared {
            true => format!("EXECUTE {name} ('{id}', {known})"),
            false => sql.replace("$1", &format!("'{id}'")).replace("$2", &known),
        }
    }
}

/// The advisory lock that is the queue of a chain.
pub(super) fn queue(id: Id) -> i64 {
    i64::from_be_bytes(std::array::from_fn(|at| id.0[at]))
}

/// The row of an answer that has this column: that of the lock, or that of the snapshot.
pub(super) fn row<'a>(messages: &'a [SimpleQueryMessage], column: &str) -> Option<&'a SimpleQueryRow> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(column).is_ok().then_some(row),
        _ => None,
    })
}

/// The chain whose row was locked.
pub(super) fn chain(lock: &SimpleQueryRow) -> Option<ChainId> {
    let uuid = |column: &str| Uuid::parse(lock.get(column)?);
    Some(ChainId {
        tenant_id: TenantId(uuid("tenant_id")?),
        project_id: ProjectId(uuid("project_id")?),
        mode: rows::mode(lock.get("mode")?)?,
    })
}

/// The head in the row that was locked.
pub(super) fn head(lock: &SimpleQueryRow) -> Option<Head> {
    Some(Head {
        chain_seq: lock.get("chain_seq")?.parse().ok()?,
        log_id: Ulid::from_bytes(Uuid::parse(lock.get("log_id")?)?.0),
        hash: Hash::parse(lock.get("hash")?)?,
    })
}

/// Whether the row says that events were dropped that never are.
pub(super) fn is_forged(lock: &SimpleQueryRow, chain: ChainId, head: Head) -> bool {
    lock.get("dropped_seq")
        .is_some_and(|seq| !seq.parse().is_ok_and(|seq| rows::may_be_dropped(chain, seq, head.chain_seq)))
}

/// Whether the last event is the one that the head names.
pub(super) fn proves(snapshot: &SimpleQueryRow, head: Head) -> bool {
    match snapshot.get("last_hash") {
        Some(last) => head.chain_seq > 0 && Hash::parse(last) == Some(head.hash),
        None => head.chain_seq == 0,
    }
}

/// Whether the chain still has the event that this node knows.
pub(super) fn has_event(snapshot: &SimpleQueryRow, head: Head, known: Head) -> bool {
    match head.chain_seq.cmp(&known.chain_seq) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => head.hash == known.hash,
        std::cmp::Ordering::Greater => {
            snapshot.get("known_hash").is_some_and(|hash| Hash::parse(hash) == Some(known.hash))
        }
    }
}

/// Settings without which an acknowledgement is worth nothing, and that are off.
pub(super) fn unsafe_settings(snapshot: &SimpleQueryRow) -> Vec<&'static str> {
    SETTINGS.into_iter().filter(|setting| snapshot.get(*setting) == Some("off")).collect()
}

pub(super) fn now_ms(snapshot: &SimpleQueryRow) -> Option<u64> {
    snapshot.get("now_ms")?.parse().ok()
}

/// The second round trip of an append: the inserts, the new head, COMMIT.
#[derive(Debug)]
pub(super) struct CommitPhase {
    /// On plain PostgreSQL one statement stores the events, counts them and sets the head. Nothing where the
    /// tables are distributed: Citus sends a statement to a shard by its text, and rows that come out of
    /// `unnest` are not in it.
    pub combined: Option<Combined>,
    /// Events, by the power of two of their number.
    pub events: Vec<Text>,
    /// Idempotency records, in the same way.
    pub keys: Vec<Text>,
    pub key_arrays: Text,
    pub usage: Text,
    pub head: Text,
}

#[derive(Debug)]
pub(super) struct Combined {
    /// Without and with a month's usage, for any number of events in arrays.
    pub arrays: [Text; 2],
    /// The same for one event, as it is.
    pub one: [Text; 2],
}

/// The most rows in one statement, as a power of two.
const VALUES_POWER_MAX: u32 = 8;

impl CommitPhase {
    pub(super) fn new(distributed: bool) -> CommitPhase {
        let sizes = || (0..=VALUES_POWER_MAX).filter(|_| distributed).map(|power| 1 << power);
        let mut key_types = vec![Type::UUID];
        key_types.extend(KEY_TYPES.map(|(_, array)| array));
        CommitPhase {
            combined: (!distributed).then(|| Combined {
                arrays: [false, true].map(|usage| combined(None, usage)),
                one: [false, true].map(|usage| combined(Some(1), usage)),
            }),
            events: sizes().map(|rows| events(Some(rows))).collect(),
            keys: sizes().map(keys).collect(),
            key_arrays: Text {
                sql: format!(
                    "{KEYS}SELECT $1, * FROM unnest({}){KEYS_REPLACE}",
                    numbered(2, KEY_TYPES.len())
                ),
                types: key_types,
            },
            usage: usage(),
            head: head_text(distributed),
        }
    }
}

/// The whole append as one statement, outside of a transaction block, for a node that has the chain to
/// itself: it moves the head if that is the one that the node knows, and stores the rest only if it has moved
/// it. The conditions are those that the lock path checks; `docs/adr/0035-an-append-in-one-message.md` has
/// the timelines.
#[derive(Debug)]
pub(super) enum AtOnce {
    Statement(Box<[Text; 8]>),
    /// On Citus, which takes no clock and no lock into a statement that changes rows: [`append_function`].
    Function(Text),
}

/// The node's estimate of the database's clock may be wrong by so much.
pub(super) const ESTIMATE_OFF_MS_MAX: u64 = 5000;

impl AtOnce {
    /// `check_settings`: nothing is stored while a setting is off that makes commits durable.
    pub(super) fn new(check_settings: bool) -> AtOnce {
        let text = |at: usize| at_once(at & 4 != 0, at & 2 != 0, at & 1 != 0, check_settings);
        AtOnce::Statement(Box::new(std::array::from_fn(text)))
    }

    /// A call of [`append_function`].
    pub(super) fn on_citus(check_settings: bool) -> AtOnce {
        let types = append_types();
        let parameters = numbered(1, types.len());
        let sql = format!("SELECT sealog.append_group({parameters}, {check_settings}) AS now_ms");
        AtOnce::Function(Text { sql, types })
    }

    /// Parameters: chain, tenant, project; the new head; the head before it; mode, queue, the estimate of the
    /// clock; one event, or many as arrays; a month and its events, with `usage`; keys as arrays, with
    /// `keys`. A function takes arrays, however many there are of each, and nulls for no month. One row with
    /// the database's clock, or none, or null.
    pub(super) fn text(&self, many: bool, usage: bool, keys: bool) -> &Text {
        match self {
            AtOnce::Statement(texts) => {
                &texts[usize::from(many) << 2 | usize::from(usage) << 1 | usize::from(keys)]
            }
            AtOnce::Function(text) => text,
        }
    }
}

const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Types of what every append at once has: see [`AtOnce::text`].
fn at_once_types() -> Vec<Type> {
    let mut types = vec![Type::UUID, Type::UUID, Type::UUID];
    types.extend(HEAD_TYPES);
    types.extend([Type::UUID, Type::BYTEA, Type::TEXT, Type::INT8, Type::INT8]);
    types
}

/// The head moves if it is the known one, and the chain is as the lock path wants it.
fn move_head(distributed: bool) -> String {
    format!(
        "{} AND log_id = $8 AND hash = $9 AND tenant_id = $2 AND project_id = $3 AND mode = $10
            AND recorded_seq IS NULL AND (dropped_seq IS NULL OR mode = 'test' AND dropped_seq > 0 AND dropped_seq < chain_seq)",
        set_head(4, distributed)
    )
}

fn append_types() -> Vec<Type> {
    let mut types = at_once_types();
    types.extend(array_types());
    types.extend([Type::INT4, Type::INT8]);
    types.extend(KEY_TYPES.map(|(_, array)| array));
    types
}

pub(super) fn append_arguments() -> String {
    let types = append_types();
    types.iter().map(Type::name).chain(["bool"]).collect::<Vec<_>>().join(", ")
}

/// The whole append where the tables are distributed: one call of this function, on the node that has the
/// chain. Each statement in it is about one chain and one table, so that Citus keeps its plan, and runs where
/// the chain is, whichever node the call reaches; so the clock and the settings are those of that node. It
/// has the rights of its caller, and stores what it is given: nothing is computed here that is hashed.
pub(super) fn append_function() -> String {
    format!(
        "CREATE OR REPLACE FUNCTION sealog.append_group({}) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $${}$$",
        append_arguments(),
        append_body()
    )
}

pub(super) fn append_body() -> String {
    let first = at_once_types().len() + 1;
    let (events, keys) = (array_types().len(), KEY_TYPES.len());
    let (month, first_key) = (first + events, first + events + 2);
    let check_settings = first_key + keys;
    let first_of = |first: usize, count: usize| {
        (first..first + count).map(|number| format!("(${number})[1]")).collect::<Vec<_>>().join(", ")
    };
    let off = SETTINGS.map(|setting| format!("current_setting('{setting}') = 'off'")).join(" OR ");
    format!(
        "
DECLARE
    last record;
BEGIN
    PERFORM pg_advisory_xact_lock($11);
    SELECT hash, {NOW} AS now_ms, {off} AS is_unsafe INTO last FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq DESC LIMIT 1;
    IF last.hash IS DISTINCT FROM $9 OR abs(last.now_ms - $12) > {ESTIMATE_OFF_MS_MAX} OR (last.is_unsafe AND ${check_settings}) THEN
        RETURN NULL;
    END IF;
    {move_head};
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF cardinality(${first}) = 1 THEN
        {EVENTS}{columns}) VALUES ($1, $2, $3, {one_event});
    ELSE
        {EVENTS}{columns}) SELECT $1, $2, $3, * FROM unnest({many_events});
    END IF;
    IF ${month} IS NOT NULL THEN
        {USAGE} VALUES ($1, ${month}, $2, ${month_events}){USAGE_ADDS};
    END IF;
    IF cardinality(${first_key}) = 1 THEN
        {KEYS}VALUES ($1, {one_key});
    ELSIF cardinality(${first_key}) > 1 THEN
        {KEYS}SELECT $1, * FROM unnest({many_keys});
    END IF;
    RETURN last.now_ms;
END
",
        move_head = move_head(true),
        columns = columns(),
        one_event = first_of(first, events),
        many_events = numbered(first, events),
        month_events = month + 1,
        one_key = first_of(first_key, keys),
        many_keys = numbered(first_key, keys),
    )
}

fn at_once(many: bool, usage: bool, keys: bool, check_settings: bool) -> Text {
    let (mut types, move_head) = (at_once_types(), move_head(false));
    let durable = |setting: &str| format!(" AND current_setting('{setting}') <> 'off'");
    let durable: String = SETTINGS.into_iter().filter(|_| check_settings).map(durable).collect();
    // The queue's lock is a sub-select so that it is taken once, and here because a condition comes before
    // the row's lock.
    let mut sql = format!(
        "WITH head AS ({move_head}{durable}
            AND (SELECT hash FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq DESC LIMIT 1) = $9
            AND (SELECT pg_advisory_xact_lock($11)) IS NOT NULL
            AND abs({NOW} - $12) <= {ESTIMATE_OFF_MS_MAX} RETURNING {NOW} AS now_ms)"
    );
    let mut next = |of: Vec<Type>| {
        let parameters = numbered(types.len() + 1, of.len());
        types.extend(of);
        parameters
    };
    let events = match many {
        false => format!("{} FROM head", next(value_types())),
        true => format!("event.* FROM head, unnest({}) AS event", next(array_types())),
    };
    let _ = write!(sql, ", stored AS ({EVENTS}{}) SELECT $1, $2, $3, {events})", columns());
    if usage {
        let (month, count) = (next(vec![Type::INT4]), next(vec![Type::INT8]));
        let _ = write!(sql, ", counted AS ({USAGE} SELECT $1, {month}, $2, {count} FROM head{USAGE_ADDS})");
    }
    if keys {
        // A key that has a row, of any age, fails the statement: the lock path decides about it.
        let of_keys = next(KEY_TYPES.map(|(_, array)| array).to_vec());
        let _ = write!(sql, ", kept AS ({KEYS}SELECT $1, key.* FROM head, unnest({of_keys}) AS key)");
    }
    sql.push_str(" SELECT now_ms FROM head");
    Text { sql, types }
}

/// Splits rows into pieces for which there is a statement: the place of each piece's statement, and its rows.
pub(super) fn pieces(mut rows: std::ops::Range<usize>) -> Vec<(usize, std::ops::Range<usize>)> {
    let mut pieces = Vec::new();
    while !rows.is_empty() {
        let power = rows.len().ilog2().min(VALUES_POWER_MAX);
        let end = rows.start + (1 << power);
        pieces.push((power as usize, rows.start..end));
        rows.start = end;
    }
    pieces
}

/// Columns of an idempotency record but its chain's: of one, and of many.
const KEY_TYPES: [(Type, Type); 7] = [
    (Type::BYTEA, Type::BYTEA_ARRAY),
    (Type::BYTEA, Type::BYTEA_ARRAY),
    (Type::UUID, Type::UUID_ARRAY),
    (Type::INT8, Type::INT8_ARRAY),
    (Type::BYTEA, Type::BYTEA_ARRAY),
    (Type::BYTEA, Type::BYTEA_ARRAY),
    (Type::INT8, Type::INT8_ARRAY),
];

/// Some rows as `VALUES`, or any number of them as arrays, which costs less from a few rows on: to a row of
/// `VALUES` the server gives an expression for each of its values.
fn events(rows: Option<usize>) -> Text {
    let mut types = vec![Type::UUID, Type::UUID, Type::UUID];
    let sql = match rows {
        None => {
            types.extend(array_types());
            let parameters = numbered(4, types.len() - 3);
            format!("{EVENTS}{}) SELECT $1, $2, $3, * FROM unnest({parameters})", columns())
        }
        Some(rows) => {
            let of_row = value_types();
            let values = values("$1, $2, $3", 4, of_row.len(), rows);
            types.extend(std::iter::repeat_n(of_row, rows).flatten());
            format!("{EVENTS}{}) VALUES {values}", columns())
        }
    };
    Text { sql, types }
}

fn keys(rows: usize) -> Text {
    let mut types = vec![Type::UUID];
    types.extend(std::iter::repeat_n(KEY_TYPES.map(|(value, _)| value), rows).flatten());
    Text { sql: format!("{KEYS}VALUES {}{KEYS_REPLACE}", values("$1", 2, KEY_TYPES.len(), rows)), types }
}

/// Chain, month, tenant, events.
fn usage() -> Text {
    let types = vec![Type::UUID, Type::INT4, Type::UUID, Type::INT8];
    Text { sql: format!("{USAGE} VALUES ($1, $2, $3, $4){USAGE_ADDS}"), types }
}

const HEAD_TYPES: [Type; 4] = [Type::INT8, Type::UUID, Type::BYTEA, Type::INT8];

/// Chain, then the new head, then the seq of the one before.
fn head_text(distributed: bool) -> Text {
    let types = std::iter::once(Type::UUID).chain(HEAD_TYPES).collect();
    Text { sql: set_head(2, distributed), types }
}

/// For the feed.
const CHANGED: &str =
    ", changed = pg_current_xact_id(), changed_group = pg_current_xact_id()::text::bigint >> 8";
/// The same on Citus, whose nodes number their transactions apart: followers give the number.
const CHANGED_ON_CITUS: &str = ", changed_group = 0";

fn set_head(first: usize, distributed: bool) -> String {
    let [seq, log_id, hash, before] = std::array::from_fn(|at| first + at);
    let changed = if distributed { CHANGED_ON_CITUS } else { CHANGED };
    format!(
        "UPDATE sealog.chains SET chain_seq = ${seq}, log_id = ${log_id}, hash = ${hash}{changed} WHERE chain_id = $1 AND chain_seq = ${before}"
    )
}

/// Chain, tenant, project and the events; a month and its events; the new head and the seq of the one before.
fn combined(rows: Option<usize>, usage: bool) -> Text {
    let Text { sql: events, mut types } = events(rows);
    let mut sql = format!("WITH stored AS ({events})");
    if usage {
        let first = types.len() + 1;
        types.extend([Type::INT4, Type::INT8]);
        let _ = write!(sql, ", counted AS ({USAGE} VALUES ($1, ${first}, $2, ${}){USAGE_ADDS})", first + 1);
    }
    let head = set_head(types.len() + 1, false);
    types.extend(HEAD_TYPES);
    Text { sql: format!("{sql} {head}"), types }
}

/// `$4, $5, …`
fn numbered(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// `($1, $2), ($1, $3), …`
fn values(same: &str, first: usize, columns: usize, rows: usize) -> String {
    let row = |row| format!("({same}, {})", numbered(first + row * columns, columns));
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id([0xab; 16]);
    const KNOWN: Option<Head> = Some(Head { chain_seq: 7, ..Head::EMPTY });

    fn lock_phase(pooled: bool, distributed: bool) -> LockPhase {
        LockPhase::new("BEGIN".into(), pooled, distributed)
    }

    #[test]
    fn statements_are_prepared_only_where_they_stay_prepared_and_every_chain_is_named_in_full() {
        let direct = lock_phase(false, false);
        assert!(direct.prepare_statements().is_some_and(|sql| sql.matches("PREPARE ").count() == 3));
        for text in [direct.begin(ID, KNOWN), direct.lock(ID, KNOWN), direct.snapshot(ID, None)] {
            assert!(!text.contains("SELECT") && !text.contains('$'), "{text}");
        }
        for (pooled, distributed) in [(true, false), (false, true), (true, true)] {
            let lock_phase = lock_phase(pooled, distributed);
            assert_eq!(lock_phase.prepare_statements(), None);
            for text in
                [lock_phase.begin(ID, KNOWN), lock_phase.lock(ID, None), lock_phase.snapshot(ID, KNOWN)]
            {
                assert!(!text.contains("EXECUTE") && !text.contains('$'), "{text}");
                let of_chain = text.matches("chain_id = 'abababab-abab-abab-abab-abababababab'").count();
                assert_eq!(of_chain, text.matches(" FROM sealog.").count(), "{text}");
            }
        }
    }

    #[test]
    fn the_row_is_locked_after_the_queue_and_the_clock_is_read_after_the_row_lock() {
        for (pooled, distributed) in [(true, false), (true, true)] {
            let text = lock_phase(pooled, distributed).begin(ID, None);
            let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
            assert!(at("BEGIN") < at("pg_advisory_xact_lock('-6076574518398440533')"));
            assert!(at("pg_advisory_xact_lock") < at("FOR UPDATE"));
            // Below another SELECT a lock is taken before that one computes anything.
            let locked_first =
                text.contains("FOR UPDATE) AS locked") || at("FOR UPDATE; ") < at("clock_timestamp");
            assert!(locked_first, "{text}");
        }
    }

    #[test]
    fn on_citus_every_row_is_a_value_in_the_text_and_never_the_outcome_of_a_function() {
        let commit_phase = CommitPhase::new(true);
        assert!(commit_phase.combined.is_none());
        for (power, (events, keys)) in commit_phase.events.iter().zip(&commit_phase.keys).enumerate() {
            for text in [events, keys] {
                assert!(!text.sql.contains("unnest") && !text.sql.contains("WITH"), "{}", text.sql);
                assert_eq!(text.sql.matches("($1, ").count(), 1 << power);
                assert!(text.sql.contains(&format!("${}", text.types.len())));
                assert!(!text.sql.contains(&format!("${}", text.types.len() + 1)));
                assert!(text.types.len() <= usize::from(u16::MAX), "PostgreSQL takes no more parameters");
            }
        }
    }

    #[test]
    fn any_number_of_rows_is_cut_into_pieces_that_have_a_statement() {
        let statements = CommitPhase::new(true).events.len();
        for rows in (0..300).chain([999, 1000, 1001]) {
            let mut next = 0;
            for (size, piece) in pieces(0..rows) {
                assert!(size < statements);
                assert_eq!((piece.start, piece.len()), (next, 1 << size));
                next = piece.end;
            }
            assert_eq!(next, rows);
        }
    }
}
