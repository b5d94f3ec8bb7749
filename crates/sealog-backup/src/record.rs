//! The record of a restore in the system chains: which backup, and what was lost with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealog_control::{Control, ListPage, NewRecord, Room};
use sealog_core::id::TenantId;
use sealog_service::records::system_chain::{Actor, Recorder, actions};
use sealog_store::world::SystemWorld;
use serde_json::{Value, json};

use super::rollback::Behind;

/// Tenants that are read at once.
const PAGE: usize = 100;
/// Chains that one record names; how many there are it says in any case.
const CHAINS_MAX: usize = 100;

/// What happened, for every tenant the same.
#[derive(Debug)]
pub(super) struct Restored<'a> {
    /// Of a promotion.
    pub epoch: Option<u64>,
    pub backup: &'a str,
    pub made_at: &'a str,
    pub reason: Option<&'a str>,
    pub lost: &'a [Behind],
    /// Events of any tenant may be lost that nothing here names.
    pub concerns_all: bool,
    /// Of the old log, behind the end of the backup.
    pub recovered_events: u64,
}

/// Puts the records where the next start of the server drains them from. The tenants of lost chains are told
/// which; a receipt that names no chain is told to all.
pub(super) async fn add_records(control: &Control, restored: &Restored<'_>) -> Result<usize, String> {
    let recorder = Recorder::new(Actor::Host, Arc::new(SystemWorld));
    let (mut after, mut count) = (None, 0);
    loop {
        let page =
            control.tenants(ListPage { after, limit: PAGE }).await.map_err(|error| error.to_string())?;
        let records: Vec<(TenantId, NewRecord)> =
            page.iter().map(|tenant| (tenant.id, record(&recorder, tenant.id, restored))).collect();
        count += records.len();
        control.add_records(records, Room::Ordinary).await.map_err(|error| error.to_string())?;
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.id.0),
            _ => break,
        }
    }
    Ok(count)
}

fn record(recorder: &Recorder, tenant_id: TenantId, restored: &Restored<'_>) -> NewRecord {
    let Restored { epoch, backup, made_at, reason, lost, concerns_all, recovered_events } = restored;
    let concerns = |behind: &&Behind| behind.chain.is_none_or(|chain| chain.tenant_id == tenant_id);
    let of_tenant: Vec<&Behind> = lost.iter().filter(concerns).collect();
    // Several events of one chain may be missing, each known by something else.
    let chains: BTreeSet<_> = of_tenant.iter().filter_map(|behind| behind.chain).collect();
    let unplaced = of_tenant.iter().filter(|behind| behind.chain.is_none()).count();
    let count = chains.len() + unplaced;
    let mut metadata = json!({ "backup": backup, "made_at": made_at, "rolled_back_chains": count });
    if let Some(epoch) = epoch {
        metadata["promoted_to_epoch"] = json!(epoch);
    }
    if *recovered_events > 0 {
        // The sum of all tenants is nobody's business.
        metadata["recovered_tail"] = json!(true);
    }
    if !of_tenant.is_empty() {
        metadata["rolled_back"] = of_tenant.iter().take(CHAINS_MAX).map(|behind| told(behind)).collect();
    }
    // What an operator writes about one tenant's loss is not for the others.
    if !of_tenant.is_empty() || *concerns_all {
        metadata["reason"] = json!(reason);
    }
    recorder.record(&actions::STORE_RESTORED, &format!("backup/{backup}"), metadata)
}

fn told(behind: &Behind) -> Value {
    let Behind { chain, known, end_seq, .. } = behind;
    match chain {
        Some(chain) => json!({
            "project_id": chain.project_id.to_string(),
            "mode": chain.mode.as_str(),
            "lost_from": known.chain_seq.min(end_seq + 1),
            "lost_to": known.chain_seq,
            "recorded_hash": known.hash.to_string(),
        }),
        None => json!({ "log_id": known.log_id.to_string() }),
    }
}
