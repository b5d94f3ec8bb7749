//! Spreads the tables of events over a Citus cluster, by `chain_id`: all that belongs to a chain is on one
//! shard. Control data stays on the coordinator.
//!
//! One table at a time, so that an interrupted run goes on with the next. Servers are stopped meanwhile.

use tokio_postgres::Error;

use super::error::{OpenError, explain};
use super::migrate::{LOCK, node_roles, with_session};
use super::numbers::{self, BUCKETS_MAX, FEED};
use super::pool::Session;
use super::routes::hash;
use super::rows::Id;
use super::statements::append_function;

/// Tables that are distributed. Servers take the tables for distributed when the last one is.
pub const DISTRIBUTED_TABLES: [&str; 8] =
    ["chains", "idempotency", "usage", "counts", "counted", "event_fields", "fields_indexed", "events"];
/// The first whose nodes all have the metadata of the cluster.
const CITUS_MIN: u32 = 11;

/// What [`distribute`] has done. Nothing in both where all was done before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Tables whose rows are on the workers now.
    pub distributed: Vec<&'static str>,
    /// Tables of which a copy was left on the coordinator, where no query sees it, and is gone now.
    pub cleared: Vec<&'static str>,
}

/// Distributes the tables that are not, and says each step before it is done.
pub fn distribute(url: &str, mut say: impl FnMut(&str)) -> Result<Distribution, OpenError> {
    with_session(url, async |session| {
        // Another migration waits.
        run(
            session,
            &format!("SET lock_timeout = 0; SET statement_timeout = 0; SELECT pg_advisory_lock({LOCK})"),
        )
        .await?;
        check(session).await?;
        let mut done = Distribution::default();
        for table in DISTRIBUTED_TABLES {
            if !is_distributed(session, table).await? {
                let rows = text(session, &format!("SELECT count(*)::text FROM sealog.{table}")).await?;
                say(&format!("moving {} rows of sealog.{table} to the workers", rows.unwrap_or_default()));
                let with = if table == "chains" { "" } else { ", colocate_with => 'sealog.chains'" };
                let sql = format!("SELECT create_distributed_table('sealog.{table}', 'chain_id'{with})");
                run(session, &sql).await?;
                done.distributed.push(table);
            }
            // Citus leaves the rows where they were, out of sight.
            let bytes = format!("SELECT nullif(pg_relation_size('sealog.{table}'), 0)::text");
            if text(session, &bytes).await?.is_some() {
                say(&format!("removing the copy of sealog.{table} on the coordinator"));
                let sql = format!("SELECT truncate_local_data_after_distributing_table('sealog.{table}')");
                run(session, &sql).await?;
                done.cleared.push(table);
            }
        }
        // Which store this is, on every node: a server that connects to a worker compares it.
        let identity = "CREATE TABLE IF NOT EXISTS sealog.identity (store_id uuid PRIMARY KEY)";
        run(session, identity).await?;
        if !is_distributed(session, "identity").await? {
            run(session, "SELECT create_reference_table('sealog.identity')").await?;
        }
        run(session, "INSERT INTO sealog.identity SELECT store_id FROM sealog.store ON CONFLICT DO NOTHING")
            .await?;
        // Citus brings functions to the workers, also to those that are added later.
        run(session, "SELECT create_distributed_function('sealog.drop_test_events(uuid, bigint, bigint)')")
            .await?;
        run(session, &append_function()).await?;
        make_counters(session).await?;
        run(session, &numbers::function()).await?;
        for role in node_roles(session).await? {
            run(
                session,
                &format!(
                    "GRANT SELECT ON sealog.identity TO {role}; GRANT SELECT, UPDATE ON sealog.feed TO {role}"
                ),
            )
            .await?;
        }
        Ok(done)
    })
}

/// A counter for followers on each shard of chains.
async fn make_counters(session: &Session) -> Result<(), OpenError> {
    let is_there = "SELECT to_regclass('sealog.feed')::text";
    if text(session, is_there).await?.is_none() {
        // No follower can have a position yet, so that none has to be told of what is there by now.
        run(session, "UPDATE sealog.chains SET changed_group = 1 WHERE changed_group = 0").await?;
        run(session, FEED).await?;
    }
    if !is_distributed(session, "feed").await? {
        run(
            session,
            "SELECT create_distributed_table('sealog.feed', 'chain_id', colocate_with => 'sealog.chains')",
        )
        .await?;
    }
    let failed = |error: Error| OpenError::of(&error);
    let of_counters = "SELECT chain_id, bucket FROM sealog.feed";
    let counters = session.query(of_counters, &[], &[]).await.map_err(failed)?;
    let mut hashes: Vec<i32> = counters.iter().map(|row| hash(row.get("chain_id"))).collect();
    let mut bucket = counters.iter().map(|row| row.get::<_, i32>("bucket")).max().unwrap_or(0);
    let shards = "SELECT shardminvalue::integer AS first, shardmaxvalue::integer AS last FROM pg_catalog.pg_dist_shard WHERE logicalrelid = 'sealog.chains'::regclass ORDER BY first";
    for shard in session.query(shards, &[], &[]).await.map_err(failed)? {
        let (first, last): (i32, i32) = (shard.get("first"), shard.get("last"));
        let is_here = |hash: i32| (first..=last).contains(&hash);
        if hashes.iter().copied().any(is_here) {
            continue;
        }
        bucket += 1;
        if usize::try_from(bucket).is_ok_and(|bucket| bucket > BUCKETS_MAX) {
            return Err(OpenError::Cluster(format!(
                "the table of chains has more than {BUCKETS_MAX} shards"
            )));
        }
        // Ids spread evenly, so this takes as many as there are shards, about.
        let key = (0_u128..).map(|number| Id(number.to_be_bytes())).find(|id| is_here(hash(*id)));
        let key = key.expect("every hash has an id");
        let insert =
            format!("INSERT INTO sealog.feed (chain_id, bucket) VALUES ('{}', {bucket})", key.uuid());
        run(session, &insert).await?;
        hashes.push(hash(key));
    }
    Ok(())
}

/// What has to be so before anything is distributed.
async fn check(session: &Session) -> Result<(), OpenError> {
    let missing = |problem: String| Err(OpenError::Cluster(problem));
    let available = "SELECT name::text FROM pg_available_extensions WHERE name = 'citus'";
    if text(session, available).await?.is_none() {
        return missing("the database server has no Citus: install it on every node, add citus to shared_preload_libraries and restart".into());
    }
    let version = "SELECT extversion FROM pg_extension WHERE extname = 'citus'";
    let Some(version) = text(session, version).await? else {
        return missing("run CREATE EXTENSION citus as a superuser, in this database on every node".into());
    };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < CITUS_MIN) {
        return missing(format!("Citus {version} is too old; use {CITUS_MIN} or later"));
    }
    let known = "SELECT count(*)::text FROM pg_catalog.pg_dist_node WHERE groupid = 0";
    if text(session, known).await?.as_deref() == Some("0") {
        return missing(
            "tell the workers where the coordinator is: SELECT citus_set_coordinator_host('HOST', PORT)"
                .into(),
        );
    }
    let workers = "SELECT count(*)::text FROM pg_catalog.pg_dist_node WHERE groupid <> 0 AND noderole = 'primary' AND shouldhaveshards";
    if text(session, workers).await?.as_deref() == Some("0") {
        return missing("the cluster has no workers; add each: SELECT citus_add_node('HOST', PORT)".into());
    }
    let unready = "SELECT string_agg(nodename || ':' || nodeport, ', ') FROM pg_catalog.pg_dist_node WHERE noderole = 'primary' AND NOT (isactive AND metadatasynced)";
    if let Some(nodes) = text(session, unready).await? {
        return missing(format!(
            "nodes are not active or have no metadata: {nodes}; see citus_activate_node"
        ));
    }
    // In this database, with this role, by the network: all that a move needs.
    let answers = format!(
        "SELECT string_agg(nodename || ':' || nodeport || ' (' || result || ')', ', ')
         FROM run_command_on_workers($$SELECT extversion FROM pg_extension WHERE extname = 'citus'$$) WHERE NOT success OR result <> '{version}'"
    );
    match text(session, &answers).await? {
        Some(nodes) => missing(format!(
            "every worker must answer with the coordinator's version of Citus, {version}; these do not: {nodes}"
        )),
        None => Ok(()),
    }
}

async fn is_distributed(session: &Session, table: &str) -> Result<bool, OpenError> {
    let sql = format!(
        "SELECT partmethod::text FROM pg_catalog.pg_dist_partition WHERE logicalrelid = 'sealog.{table}'::regclass"
    );
    Ok(text(session, &sql).await?.is_some())
}

/// The first value, as text.
async fn text(session: &Session, sql: &str) -> Result<Option<String>, OpenError> {
    let rows = session.client.query_typed(sql, &[]).await.map_err(|error| failed(sql, &error))?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

async fn run(session: &Session, sql: &str) -> Result<(), OpenError> {
    session.client.batch_execute(sql).await.map_err(|error| failed(sql, &error))
}

/// With what was being done: the message of a node seldom says.
fn failed(sql: &str, error: &Error) -> OpenError {
    match error.code() {
        Some(_) => {
            OpenError::Cluster(format!("{}: {}", sql.lines().next().unwrap_or_default(), explain(error)))
        }
        None => OpenError::of(error),
    }
}
