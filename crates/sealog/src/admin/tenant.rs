//! A tenant that leaves: what the commands ask for, what is done, and what came of it.

use std::sync::Arc;

use sealog_backup::{TenantPage, TenantPart, read_tenant};
use sealog_cli::exit::{Exit, Failure};
use sealog_control::Room;
use sealog_core::id::{TenantId, Uuid};
use sealog_core::time::iso_ms;
use sealog_service::people::admin::close::{CloseInput, Closed, OPEN_CASES};
use sealog_service::people::admin::{Actor, Admin, AdminError, FieldError};
use sealog_service::records::system_chain::{Recorder, actions};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host::Host;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Read {
    pub tenant_id: String,
    pub part: TenantPart,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Close {
    pub tenant_id: String,
    pub name: String,
    pub reason: String,
    pub even_with_open_cases: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub closed_at: String,
    pub keys_revoked: usize,
    pub members_ended: usize,
    /// Otherwise the command asks again.
    pub is_done: bool,
}

fn id(text: &str) -> Result<TenantId, Failure> {
    Uuid::parse(text).map(TenantId).ok_or_else(|| Failure::usage(format!("{text} is not the id of a tenant")))
}

fn no_tenant(id: TenantId) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no tenant {id}; `sealog admin tenant list` shows the ids"))
}

/// The first page is recorded before anything leaves: no export is without its event.
pub(crate) async fn read(host: &Host, Read { tenant_id, part }: Read) -> Result<TenantPage, Failure> {
    let id = id(&tenant_id)?;
    let page = read_tenant(&host.opened, id, part).await.map_err(|failure| match failure.exit {
        Exit::NotFound => no_tenant(id),
        _ => failure,
    })?;
    if let TenantPage::Chains { chains, .. } = &page {
        let events: u64 =
            chains.iter().map(|chain| (chain.last_seq + 1).saturating_sub(chain.first_seq)).sum();
        let metadata = json!({ "chains": chains.len(), "events": events });
        let recorder = Recorder::new(Actor::Host, Arc::clone(&host.world));
        let record = recorder.record(&actions::TENANT_EXPORTED, &format!("tenant/{id}"), metadata);
        let kept = host.opened.control().add_records(vec![(id, record)], Room::Ordinary).await;
        kept.map_err(|error| error.to_string())?;
        host.wake.wake();
    }
    Ok(page)
}

pub(crate) async fn close(host: &Host, request: Close) -> Result<Done, Failure> {
    let Close { tenant_id, name, reason, even_with_open_cases } = request;
    let id = id(&tenant_id)?;
    let admin =
        Admin::new(Arc::clone(host.opened.control()), Arc::clone(&host.world), &[], host.wake.clone());
    let input = CloseInput { name, reason, even_with_open_cases };
    match admin.close_tenant(Actor::Host, id, input).await {
        Ok(Closed { closed_at_ms, keys_revoked, members_ended, is_done }) => {
            Ok(Done { closed_at: iso_ms(closed_at_ms), keys_revoked, members_ended, is_done })
        }
        Err(AdminError::Field(FieldError { field, problem })) if field == OPEN_CASES => {
            let problem =
                format!("its open cases {problem}. To close it all the same, give --even-with-open-cases");
            Err(Failure::usage(problem))
        }
        Err(AdminError::Field(FieldError { field, problem })) => {
            Err(Failure::usage(format!("--{field} {problem}")))
        }
        Err(AdminError::NotFound) => Err(no_tenant(id)),
        Err(AdminError::Store(error)) => Err(error.to_string().into()),
        Err(AdminError::Internal(problem)) => Err(problem.into()),
    }
}
