//! Retention of test events: rows of the oldest events of a test chain are deleted, a bounded number in one
//! transaction, and the chain's row names the last of them.
//!
//! The role of a node may not delete events. It calls `sealog.drop_test_events`, which runs with the rights
//! of the owner and looks at the chain itself: its id must be that of a test chain, the events must be older
//! than the limit and follow what was dropped before without a gap, and the last event of a chain always
//! stays, since appends prove the head by it. Any number of nodes may do this at the same time; the row of
//! the chain is locked, as by an append.

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use super::error::explain;
use super::fields::{self, FieldKeys};
use super::inner::Inner;
use super::pool::Session;
use super::rows::{Id, signed, unsigned};
use crate::error::StoreError;
use crate::store::{DropPlan, DropStep};

/// Chains that are looked at in one step. In no order: one that has a gap keeps no other from it.
const CHAINS: i64 = 16;
/// The last old event of each is found by its id, which begins with its time; the last event of a chain
/// stays.
const OLD: &str = "SELECT c.tenant_id, c.project_id, last.chain_seq, last.log_id, last.hash FROM sealog.chains c CROSS JOIN LATERAL
        (SELECT e.timestamp_ms FROM sealog.events e WHERE e.chain_id = c.chain_id ORDER BY e.chain_seq LIMIT 1) AS oldest CROSS JOIN LATERAL
        (SELECT e.chain_seq, e.log_id, e.hash FROM sealog.events e WHERE e.chain_id = c.chain_id AND e.log_id < $3 AND e.chain_seq < c.chain_seq
            ORDER BY e.log_id DESC LIMIT 1) AS last
    WHERE c.mode = 'test' AND c.recorded_seq IS NULL AND oldest.timestamp_ms < $1 AND c.chain_seq > coalesce(c.dropped_seq, 0) + 1
    ORDER BY random() LIMIT $2";
const DROP: &str = "SELECT sealog.drop_test_events($1, $2, $3) AS through";
/// What led to them in the index of members leads nowhere any more.
const UNINDEX: &str =
    "DELETE FROM sealog.event_fields f USING unnest($2::bigint[], $3::bigint[]) AS gone (key, chain_seq)
    WHERE f.chain_id = $1 AND f.key = gone.key AND f.chain_seq = gone.chain_seq";
/// Counts of days of which nothing is kept.
const UNCOUNT: &str = "DELETE FROM sealog.counts WHERE chain_id = $1 AND day <
    (SELECT min(e.timestamp_ms) / 86400000 FROM (SELECT timestamp_ms FROM sealog.events WHERE chain_id = $1 ORDER BY chain_seq LIMIT 1) AS e)";

impl Inner {
    pub(super) async fn plan_drop(&self, before_ms: u64) -> Result<DropPlan, StoreError> {
        let mut plan = DropPlan { before_ms, ..DropPlan::default() };
        let (before, first_id) = (signed(before_ms), Id(first_id(before_ms)));
        let old = self.read(move |session| {
            let types = [Type::INT8, Type::INT8, Type::UUID];
            Box::pin(async move { session.query(OLD, &types, &[&before, &CHAINS, &first_id]).await })
        });
        plan.chains = old.await?.iter().filter_map(planned).collect();
        Ok(plan)
    }

    pub(super) async fn drop_planned(&self, plan: DropPlan) -> Result<DropStep, StoreError> {
        let mut step = DropStep::default();
        for (chain, last) in plan.chains {
            let until = signed(last.chain_seq);
            let dropped = self.drop_of_chain(Id::of_chain(chain), signed(plan.before_ms), until).await?;
            step.events += dropped;
            step.more |= dropped > 0;
        }
        Ok(step)
    }

    async fn drop_of_chain(&self, chain: Id, before_ms: i64, until: i64) -> Result<u64, StoreError> {
        let lease = self.lease_of(chain).await?;
        let (begin, keys) = (self.target.begin(&self.options), FieldKeys::new(&self.store_id));
        let step = drop_rows(&lease.session, &begin, chain, (before_ms, until), keys);
        match tokio::time::timeout(self.options.transaction_timeout, step).await {
            Ok(Ok(events)) => {
                lease.give_back();
                Ok(events)
            }
            // The connection goes, and the transaction with it.
            Ok(Err(error)) => Err(StoreError::Unavailable(explain(&error))),
            Err(_) => Err(StoreError::Unavailable("the database did not respond in time".into())),
        }
    }
}

/// The lowest id of an event at this time, or the highest of all where none can be so late.
fn first_id(ms: u64) -> [u8; 16] {
    match ms.to_be_bytes() {
        [0, 0, time @ ..] => std::array::from_fn(|at| time.get(at).copied().unwrap_or(0)),
        _ => [255; 16],
    }
}

fn planned(row: &Row) -> Option<(ChainId, Head)> {
    let uuid = |column| row.get::<_, Id>(column).uuid();
    let (tenant_id, project_id) = (TenantId(uuid("tenant_id")), ProjectId(uuid("project_id")));
    let hash = Hash(row.get::<_, &[u8]>("hash").try_into().ok()?);
    let (chain_seq, log_id) = (unsigned(row.get("chain_seq")), row.get::<_, Id>("log_id").ulid());
    Some((ChainId { tenant_id, project_id, mode: Mode::Test }, Head { chain_seq, log_id, hash }))
}

async fn drop_rows(
    session: &Session,
    begin: &str,
    chain: Id,
    (before_ms, planned): (i64, i64),
    keys: FieldKeys,
) -> Result<u64, Error> {
    session.client.batch_execute(begin).await?;
    let oldest = fields::next_of(session, chain, 0).await?;
    let mut events = 0;
    if let Some(last) = oldest.last() {
        let until = last.get::<_, i64>("chain_seq").min(planned);
        let params: [&(dyn ToSql + Sync); 3] = [&chain, &before_ms, &until];
        let rows = session.query(DROP, &[Type::UUID, Type::INT8, Type::INT8], &params).await?;
        let through = rows.first().and_then(|row| row.get::<_, Option<i64>>("through")).unwrap_or(0);
        let gone: Vec<_> =
            oldest.into_iter().filter(|row| row.get::<_, i64>("chain_seq") <= through).collect();
        events = gone.len() as u64;
        if events > 0 {
            // Metadata may have megabytes, and this thread has everyone's connections.
            if let Ok((keys, seqs)) = tokio::task::spawn_blocking(move || fields::postings(&gone, keys)).await
            {
                let types = [Type::UUID, Type::INT8_ARRAY, Type::INT8_ARRAY];
                session.execute(UNINDEX, &types, &[&chain, &keys, &seqs]).await?;
            }
            session.execute(UNCOUNT, &[Type::UUID], &[&chain]).await?;
        }
    }
    session.client.batch_execute("COMMIT").await?;
    Ok(events)
}
