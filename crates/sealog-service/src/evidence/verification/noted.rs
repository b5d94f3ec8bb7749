//! Heads that control data holds from earlier verifications, compared with the chain.
//!
//! An older copy of a log is valid by itself, and so is one that was rewritten with all its hashes. The end
//! that an earlier run has seen is in control data, which is another file: whoever rolls the log back alone
//! is found.

use sealog_control::ListPage;
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::query::Filter;
use sealog_core::verify::{Broken, Reason};
use sealog_store::loss::{self, Loss};
use sealog_store::{List, Store, StoreError};
use std::sync::Arc;

use super::found::{self, Found};
use super::run::{KIND, Run, RunEnd, subject};
use sealog_control::Control;

/// Runs that are looked at, the newest: three months of nights.
const RUNS_MAX: usize = 100;
/// Acceptances of losses that are looked at, the newest.
const LOSSES_MAX: usize = 100;
const BYTES_MAX: usize = 1 << 20;
/// Projects of a page.
const PROJECTS: usize = 100;

/// How a chain contradicts the furthest end that an earlier run has found valid; nothing if it does not. A
/// loss that an event of the chain accepts is no contradiction.
pub(super) async fn contradiction(
    store: &dyn Store,
    control: &Control,
    chain: ChainId,
) -> Result<Option<Found>, StoreError> {
    let page = ListPage { after: None, limit: RUNS_MAX };
    let jobs = control.jobs_about(chain.tenant_id, KIND.into(), subject(chain), page).await?;
    let runs = jobs.iter().filter_map(Run::of).filter(|run| run.end == Some(RunEnd::Valid));
    let ends = runs.filter_map(|run| run.progress.last);
    let mut heads: Vec<Head> = ends
        .map(|event| Head { chain_seq: event.chain_seq, log_id: event.log_id, hash: event.hash })
        .collect();
    heads.sort_unstable_by_key(|head| std::cmp::Reverse(head.chain_seq));
    let mut accepted = None;
    for head in heads {
        let Some(broken) = contradicts(store, chain, &head).await? else { return Ok(None) };
        let losses = match &accepted {
            Some(losses) => losses,
            None => accepted.insert(accepted_losses(store, chain).await?),
        };
        if losses.iter().any(|loss| loss.covers(&head)) {
            // What came before it has to be there all the same.
            continue;
        }
        let found = found::look(store, chain, broken).await?;
        return Ok(Some(Found { expected: Some(head.hash), ..found }));
    }
    Ok(None)
}

/// Live chains of a tenant of which an earlier run has seen events, and that have none: a log that was rolled
/// back to before they began has nothing that a verification could walk through.
pub(super) async fn gone(
    store: &dyn Store,
    control: &Arc<Control>,
    tenant_id: TenantId,
) -> Result<Vec<String>, StoreError> {
    let (mut gone, mut after) = (Vec::new(), None);
    loop {
        let page = ListPage { after, limit: PROJECTS };
        let projects = control.projects(tenant_id, page).await?;
        for project in &projects {
            let chain = ChainId { tenant_id, project_id: project.id, mode: Mode::Live };
            if store.head(chain).await?.end().chain_seq > 0 {
                continue;
            }
            if contradiction(store, control, chain).await?.is_some() {
                gone.push(format!("chain {chain} has no events, but an earlier verification saw some"));
            }
        }
        match projects.last() {
            Some(last) if projects.len() == PROJECTS => after = Some(last.id.0),
            _ => return Ok(gone),
        }
    }
}

async fn contradicts(store: &dyn Store, chain: ChainId, head: &Head) -> Result<Option<Broken>, StoreError> {
    let now = store.head(chain).await?;
    let (end, dropped) = (now.end().chain_seq, now.dropped);
    if head.chain_seq <= dropped.chain_seq {
        // Of a test chain, gone for its age.
        return Ok(None);
    }
    if end < head.chain_seq {
        return Ok(Some(Broken { at: end + 1, hash: head.hash, reason: Reason::Tail }));
    }
    match found::at(store, chain, head.chain_seq).await? {
        Some(event) if event.hash == head.hash => Ok(None),
        Some(event) => Ok(Some(Broken { at: head.chain_seq, hash: event.hash, reason: Reason::Head })),
        // Missing or damaged: the windows say so.
        None => Ok(None),
    }
}

async fn accepted_losses(store: &dyn Store, chain: ChainId) -> Result<Vec<Loss>, StoreError> {
    let filter = Filter { action: Some(format!("\"{}\"", loss::ACTION)), ..Filter::default() };
    let (mut losses, mut before_seq) = (Vec::new(), None);
    while losses.len() < LOSSES_MAX {
        let list = List { filter: filter.clone(), before_seq, limit: LOSSES_MAX, bytes_max: BYTES_MAX };
        let chunk = store.list(chain, list).await?;
        losses.extend(chunk.items.iter().filter_map(Loss::accepted_by));
        match chunk.resume {
            Some(resume) => before_seq = Some(resume),
            None => break,
        }
    }
    Ok(losses)
}
