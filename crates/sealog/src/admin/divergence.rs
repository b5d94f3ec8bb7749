//! Names in a tenant's system chain what only an old primary acknowledged.

use std::sync::Arc;

use sealog_backup::Diverged;
use sealog_cli::exit::Failure;
use sealog_control::Room;
use sealog_core::id::{TenantId, Uuid};
use sealog_service::people::admin::Actor;
use sealog_service::records::system_chain::{Recorder, actions};
use sealog_store::StoreError;
use serde_json::json;

use super::host::Host;

/// Whether there is such a tenant. The same file is recorded once, however often the command is run: the id
/// of the record follows from both, and the drain seals no record twice.
pub(crate) async fn record(host: &Host, diverged: &Diverged) -> Result<bool, Failure> {
    let Diverged { tenant_id, file, sha256, events, chain_count, chains } = diverged;
    let control = host.opened.control();
    let failed = |error: StoreError| Failure::from(error.to_string());
    let id = Uuid::parse(tenant_id).map(TenantId);
    let id = id.ok_or_else(|| Failure::usage(format!("{tenant_id} is not a tenant")))?;
    if control.tenant(id).await.map_err(failed)?.is_none() {
        return Ok(false);
    }
    let metadata = json!({
        "file": file, "sha256": sha256, "events": events, "chain_count": chain_count, "chains": chains,
    });
    let recorder = Recorder::new(Actor::Host, Arc::clone(&host.world));
    let mut record = recorder.record(&actions::STORE_DIVERGED, &format!("divergence/{sha256}"), metadata);
    // One for each file and tenant; a digest is as good as random.
    let of_file = |at: usize| u8::from_str_radix(sha256.get(2 * at..2 * at + 2).unwrap_or("0"), 16);
    let same = Uuid::from_random(std::array::from_fn(|at| of_file(at).unwrap_or_default() ^ id.0.0[at]));
    record.draft = record.draft.replace(&record.id.to_string(), &same.to_string());
    record.id = same;
    if !control.is_pending(same).await.map_err(failed)? {
        control.add_records(vec![(id, record)], Room::Ordinary).await.map_err(failed)?;
        host.wake.wake();
    }
    Ok(true)
}
