//! Chains whose last events are lost, and what lets them go on.

use std::sync::Arc;

use sealog_control::Tenant;
use sealog_core::id::ChainId;
use sealog_store::loss::{self, Loss};
use sealog_store::{ChainHead, Receipt};
use serde_json::json;

use super::desk::Desk;
use crate::people::admin::{AdminError, FieldError};
use crate::records::system_chain::{Actor, Recorder, actions};

/// Chains that are looked at for one list. Accepting one makes room for the next.
pub const LOSSES_MAX: usize = 50;

/// A chain that accepts no events until its loss is accepted.
#[derive(Clone, Debug)]
pub struct LostChain {
    pub chain: ChainId,
    pub tenant: Tenant,
    /// The name of its project; nothing for a system chain.
    pub project: Option<String>,
    pub head: ChainHead,
    pub loss: Loss,
}

impl Desk {
    /// The first ones, and how many there are in all. Chains of tenants and projects that control data does
    /// not know are counted and not shown: there is nobody to tell.
    pub async fn losses(&self) -> Result<(Vec<LostChain>, usize), AdminError> {
        let losses = self.store.losses().await?;
        let mut known = Vec::new();
        for (chain, loss) in losses.iter().take(LOSSES_MAX) {
            known.extend(self.about(*chain, *loss).await?);
        }
        Ok((known, losses.len()))
    }

    pub async fn loss(&self, chain: ChainId) -> Result<Option<LostChain>, AdminError> {
        let losses = self.store.losses().await?;
        match losses.into_iter().find(|(lost, _)| *lost == chain) {
            Some((chain, loss)) => self.about(chain, loss).await,
            None => Ok(None),
        }
    }

    async fn about(&self, chain: ChainId, loss: Loss) -> Result<Option<LostChain>, AdminError> {
        let administration = &self.control;
        let project = if chain.is_system() {
            let owner = self.control.tenant_of_system_project(chain.project_id).await?;
            owner.filter(|owner| *owner == chain.tenant_id).map(|_| None)
        } else {
            let project = administration.project(chain.project_id).await?;
            project.filter(|project| project.tenant_id == chain.tenant_id).map(|project| Some(project.name))
        };
        let (Some(project), Some(tenant)) = (project, administration.tenant(chain.tenant_id).await?) else {
            return Ok(None);
        };
        let head = self.store.head(chain).await?;
        Ok(Some(LostChain { chain, tenant, project, head, loss }))
    }

    /// Lets a chain go on without what it has lost. What was sealed into it says what that is.
    ///
    /// The order is in the tenant's system chain before anything is done, so that nobody accepts a loss
    /// without a name, in the console or on the host. The acceptance itself, with its reason, is an event of
    /// the chain.
    pub async fn accept_loss(
        &self,
        who: Actor,
        chain: ChainId,
        reason: &str,
    ) -> Result<(Receipt, Option<Loss>), AdminError> {
        let reason = reason.trim();
        if let Err(error) = loss::check_reason(reason) {
            return Err(FieldError::new("reason", error.to_string()).into());
        }
        let lost = self.loss(chain).await?.ok_or(AdminError::NotFound)?;
        let resource = format!("project/{}", chain.project_id);
        let metadata = json!({
            "mode": chain.mode.as_str(),
            "lost_from": lost.loss.lost_from,
            "lost_to": lost.loss.lost_to,
            "recorded_hash": lost.loss.recorded_hash.to_string(),
        });
        let recorder = Recorder::new(who, Arc::clone(&self.world));
        let record = recorder.record(&actions::LOSS_ACCEPTANCE_ORDERED, &resource, metadata);
        self.keep(chain.tenant_id, record).await?;
        let receipt = self.store.accept_loss(chain, reason.to_owned()).await?;
        tracing::warn!(by = %who.id(), %chain, seq = receipt.first_seq, "accepted the loss of a chain's last events; the chain accepts events again");
        // Records of a system chain have waited for this.
        self.wake.wake();
        let event = self.store.get(chain, receipt.log_ids[0]).await?;
        let loss = event.as_ref().and_then(Loss::accepted_by);
        Ok((receipt, loss))
    }
}
