//! Monitor tokens: for those who watch a chain from outside. A token reads proofs, and no event.

use sealog_control::monitor_token::WORKING_MAX;
use sealog_control::{
    MonitorToken, MonitorTokenCreated, MonitorTokenId, NewMonitorToken, NewRecord, Records,
};
use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};
use sealog_core::key;
use sealog_core::time::iso_ms;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::keys::FORM;
use super::{Actor, Admin, AdminError, FieldError, fields};
use crate::records::system_chain::{Recorder, actions};
use crate::secret::Secret;

/// The chain that a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The live chain of a project.
    Project(ProjectId),
    /// The system chain of an organisation.
    SystemChain(TenantId),
}

#[derive(Clone, Debug, Default)]
pub struct MonitorTokenInput {
    pub name: String,
    pub expires_at: Option<String>,
    /// The form that a person sends. Sent again, it makes no second token: the id of the token follows from
    /// it.
    pub form: Option<Uuid>,
}

/// A token with its text, which is kept nowhere: it can be shown this once.
#[derive(Clone, Debug)]
pub struct CreatedMonitorToken {
    pub token: MonitorToken,
    pub text: Secret,
}

impl Admin {
    /// The longest lifetime that an organisation sets for its keys holds for its tokens, too.
    pub async fn create_monitor_token(
        &self,
        actor: Actor,
        watched: Watched,
        input: MonitorTokenInput,
    ) -> Result<CreatedMonitorToken, AdminError> {
        let recorder = self.recorder(actor);
        let name = fields::some_text("name", input.name)?;
        let expires_at = input.expires_at.map(|given| fields::time_ms("expires_at", given)).transpose()?;
        let tenant_id = match watched {
            Watched::Project(id) => {
                self.administration().project(id).await?.ok_or(AdminError::NotFound)?.tenant_id
            }
            Watched::SystemChain(id) => id,
        };
        self.refuse_closed("project_id", tenant_id).await?;
        let policy = self.key_policy_of(tenant_id).await?;
        let project_id = match watched {
            Watched::Project(id) => id,
            Watched::SystemChain(id) => {
                let new = ProjectId::system_from_random(recorder.random_id().0);
                let known = self.administration().system_project(id, new).await?;
                known.ok_or(AdminError::NotFound)?
            }
        };
        let now_ms = recorder.now_ms();
        let expires_at_ms = policy.end_of(expires_at, now_ms)?;
        let text = Secret(key::generate_monitor_token(recorder.random()));
        let new = NewMonitorToken {
            id: input.form.map_or_else(|| MonitorTokenId(recorder.random_id()), |form| of_form(form, actor)),
            tenant_id,
            project_id,
            name,
            digest: key::digest(&text.0),
            prefix: text.0[..key::DISPLAY_LEN].to_owned(),
            expires_at_ms,
            created_at_ms: now_ms,
            created_by: actor.person(),
        };
        let records = vec![created(&recorder, &new)];
        match self.made(self.administration().create_monitor_token(new, records)).await? {
            None => Err(AdminError::NotFound),
            Some(MonitorTokenCreated::Done(token)) => Ok(CreatedMonitorToken { token, text }),
            Some(MonitorTokenCreated::Exists) => Err(FieldError::new(FORM, "was already sent").into()),
            Some(MonitorTokenCreated::NameTaken) => {
                Err(FieldError::new("name", "belongs to another active token of this chain").into())
            }
            Some(MonitorTokenCreated::TooMany) => {
                let problem = format!("cannot be given: the chain has {WORKING_MAX} active tokens, the most");
                Err(FieldError::new("name", problem).into())
            }
        }
    }

    /// Revoking twice is the same as once.
    pub async fn revoke_monitor_token(
        &self,
        actor: Actor,
        id: MonitorTokenId,
    ) -> Result<MonitorToken, AdminError> {
        let recorder = self.recorder(actor);
        let now_ms = recorder.now_ms();
        let records = Records::told_by(move |before: Option<&MonitorToken>, after: &MonitorToken| {
            let was_revoked = before.is_some_and(|before| before.revoked_at_ms.is_some());
            if was_revoked { Vec::new() } else { vec![revoked(&recorder, after)] }
        });
        let token = self.made(self.administration().revoke_monitor_token(id, now_ms, records)).await?;
        token.ok_or(AdminError::NotFound)
    }
}

/// The id of a form's token also follows from who sends it: no person meets the token of another.
fn of_form(form: Uuid, actor: Actor) -> MonitorTokenId {
    let digest = Sha256::digest([b"monitor token of form", &form.0[..], actor.id().as_bytes()].concat());
    MonitorTokenId(Uuid::from_random(std::array::from_fn(|at| digest[at])))
}

fn created(recorder: &Recorder, new: &NewMonitorToken) -> NewRecord {
    let metadata = json!({
        "project_id": new.project_id.to_string(),
        "name": new.name,
        "mode": Mode::Live.as_str(),
        "prefix": new.prefix,
        "expires_at": new.expires_at_ms.map(iso_ms),
    });
    recorder.record(&actions::MONITOR_TOKEN_CREATED, &resource(new.id), metadata)
}

fn revoked(recorder: &Recorder, token: &MonitorToken) -> NewRecord {
    let metadata = json!({
        "project_id": token.project_id.to_string(),
        "name": token.name,
        "mode": Mode::Live.as_str(),
        "prefix": token.prefix,
    });
    recorder.record(&actions::MONITOR_TOKEN_REVOKED, &resource(token.id), metadata)
}

fn resource(id: MonitorTokenId) -> String {
    format!("monitor_token/{}", id.0)
}
