//! Records of test events that were dropped for their age, and drops that have none.
//!
//! What a store says of its own drops can be forged by whoever can write its files. So a drop is sealed into
//! the tenant's system chain before it is done, and a drop that no record covers is a finding. Drops that
//! a restore finds are covered by its baseline ([`crate::evidence::verification::Baseline`]).

use std::collections::BTreeMap;

use sealog_control::NewRecord;
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::query::Filter;
use sealog_store::{List, Store, StoreError};
use serde_json::{Value, json};

use super::actions::{self, SystemAction};
use super::record::Recorder;

/// Chains that one record names.
const CHAINS_MAX: usize = 100;
/// Of a page of records.
const PAGE: usize = 100;
const PAGE_BYTES: usize = 1 << 20;

/// The records of a drop, or of drops that a baseline found, for one tenant.
pub(crate) fn records(
    recorder: &Recorder,
    action: &SystemAction,
    dropped: &[(ChainId, Head)],
) -> Vec<NewRecord> {
    let named = |(chain, head): &(ChainId, Head)| {
        json!({
            "project_id": chain.project_id.to_string(),
            "mode": chain.mode.as_str(),
            "last_seq": head.chain_seq,
            "last_hash": head.hash.to_string(),
        })
    };
    let record = |chains: &[(ChainId, Head)]| {
        let dropped: Vec<Value> = chains.iter().map(named).collect();
        recorder.record(action, "store/test", json!({ "dropped": dropped }))
    };
    dropped.chunks(CHAINS_MAX).map(record).collect()
}

/// What was found of the drops of a store.
#[derive(Debug, Default)]
pub struct Drops {
    /// Drops that no record covers.
    pub unrecorded: Vec<String>,
    /// Drops of tenants whose system chain is not in this store: nothing but the store speaks for them.
    pub unproven: Vec<String>,
}

/// Test chains that begin later than with their first event, by tenant.
pub(crate) async fn dropped(
    store: &dyn Store,
) -> Result<BTreeMap<TenantId, Vec<(ChainId, Head)>>, StoreError> {
    let mut dropped: BTreeMap<TenantId, Vec<(ChainId, Head)>> = BTreeMap::new();
    for (chain, _) in store.heads().await?.into_iter().filter(|(chain, _)| chain.mode == Mode::Test) {
        let head = store.head(chain).await?.dropped;
        if head.chain_seq > 0 {
            dropped.entry(chain.tenant_id).or_default().push((chain, head));
        }
    }
    Ok(dropped)
}

/// Compares what a store says that it has dropped with the system chains in it.
pub async fn check(store: &dyn Store) -> Result<Drops, StoreError> {
    let mut found = Drops::default();
    let system: Vec<ChainId> =
        store.heads().await?.into_iter().map(|(chain, _)| chain).filter(|chain| chain.is_system()).collect();
    for (tenant_id, drops) in dropped(store).await? {
        let chains: Vec<ChainId> =
            system.iter().copied().filter(|chain| chain.tenant_id == tenant_id).collect();
        let mut recorded = BTreeMap::new();
        for chain in &chains {
            for action in [&actions::TEST_EVENTS_DROPPED, &actions::BASELINE] {
                read_records(store, *chain, action, &mut recorded).await?;
            }
        }
        for (chain, Head { chain_seq, hash, .. }) in drops {
            if chains.is_empty() {
                found
                    .unproven
                    .push(format!("test chain {chain}: deleted up to {chain_seq}, as recorded by the store"));
                continue;
            }
            // A step of a larger drop ends before the record does.
            let is_recorded = match recorded.get(&chain.project_id.to_string()) {
                Some((last_seq, last_hash)) => {
                    *last_seq > chain_seq || *last_seq == chain_seq && *last_hash == hash.to_string()
                }
                None => false,
            };
            if !is_recorded {
                found.unrecorded.push(format!(
                    "test chain {chain}: events up to {chain_seq} are marked as deleted, but the system chain of its tenant has no record of it"
                ));
            }
        }
    }
    Ok(found)
}

/// The furthest drop of each project that the records of a chain name.
async fn read_records(
    store: &dyn Store,
    chain: ChainId,
    action: &SystemAction,
    recorded: &mut BTreeMap<String, (u64, String)>,
) -> Result<(), StoreError> {
    let filter = Filter { action: Some(format!("\"{}\"", action.action)), ..Filter::default() };
    let mut before_seq = None;
    loop {
        let list = List { filter: filter.clone(), before_seq, limit: PAGE, bytes_max: PAGE_BYTES };
        let chunk = store.list(chain, list).await?;
        for (project, seq, hash) in chunk.items.iter().flat_map(named) {
            let known = recorded.entry(project).or_default();
            if known.0 < seq {
                *known = (seq, hash);
            }
        }
        match chunk.resume {
            Some(resume) => before_seq = Some(resume),
            None => return Ok(()),
        }
    }
}

fn named(event: &StoredEvent) -> Vec<(String, u64, String)> {
    let metadata = event.text.fields().metadata.unwrap_or("null");
    let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
    let one = |drop: &Value| {
        let text = |name: &str| drop[name].as_str().map(str::to_owned);
        Some((text("project_id")?, drop["last_seq"].as_u64()?, text("last_hash")?))
    };
    metadata["dropped"].as_array().into_iter().flatten().filter_map(one).collect()
}
