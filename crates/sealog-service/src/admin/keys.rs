//! API keys.

use sealog_control::{ApiKey, KeyId, NewKey, NewRecord, Records};
use sealog_core::id::{Mode, ProjectId};
use sealog_core::key;
use sealog_core::time::iso_ms;
use serde_json::json;

use super::{Actor, Admin, AdminError, fields};
use crate::secret::Secret;
use crate::system_chain::{Recorder, actions};

#[derive(Clone, Debug, Default)]
pub struct KeyInput {
    pub name: String,
    pub mode: String,
    pub expires_at: Option<String>,
}

/// A key with its text, which nothing keeps: it can be shown this once.
#[derive(Clone, Debug)]
pub struct CreatedKey {
    pub key: ApiKey,
    pub text: Secret,
}

impl Admin {
    pub async fn create_key(
        &self,
        actor: Actor,
        project_id: ProjectId,
        input: KeyInput,
    ) -> Result<CreatedKey, AdminError> {
        let recorder = self.recorder(actor);
        let name = fields::some_text("name", input.name)?;
        let mode = fields::mode("mode", input.mode)?;
        let expires_at = input.expires_at.map(|given| fields::time_ms("expires_at", given)).transpose()?;
        let (new, text) = generate(&recorder, project_id, name, mode, expires_at);
        let records = vec![created(&recorder, &new)];
        let key = self.made(self.administration().create_key(new, records)).await?;
        key.map(|key| CreatedKey { key, text }).ok_or(AdminError::NotFound)
    }

    /// Revoking twice is the same as once.
    pub async fn revoke_key(&self, actor: Actor, id: KeyId) -> Result<ApiKey, AdminError> {
        let recorder = self.recorder(actor);
        let now_ms = recorder.now_ms();
        let records = Records::told_by(move |before: Option<&ApiKey>, after: &ApiKey| {
            let was_revoked = before.is_some_and(|before| before.revoked_at_ms.is_some());
            if was_revoked { Vec::new() } else { vec![revoked(&recorder, after)] }
        });
        let key = self.made(self.administration().revoke_key(id, now_ms, records)).await?;
        key.ok_or(AdminError::NotFound)
    }
}

/// A new key, and its text. Kept are the digest, by which it is found, and the first characters, by which people
/// know it.
pub(super) fn generate(
    recorder: &Recorder,
    project_id: ProjectId,
    name: String,
    mode: Mode,
    expires_at_ms: Option<u64>,
) -> (NewKey, Secret) {
    let text = Secret(key::generate(mode, recorder.random()));
    let new = NewKey {
        id: KeyId(recorder.random_id()),
        project_id,
        name,
        mode,
        digest: key::digest(&text.0),
        prefix: text.0[..key::DISPLAY_LEN].to_owned(),
        expires_at_ms,
        created_at_ms: recorder.now_ms(),
    };
    (new, text)
}

pub(super) fn created(recorder: &Recorder, new: &NewKey) -> NewRecord {
    let metadata = json!({
        "project_id": new.project_id.to_string(),
        "name": new.name,
        "mode": new.mode.as_str(),
        "prefix": new.prefix,
        "expires_at": new.expires_at_ms.map(iso_ms),
    });
    recorder.record(&actions::KEY_CREATED, &resource(new.id), metadata)
}

fn revoked(recorder: &Recorder, key: &ApiKey) -> NewRecord {
    let metadata = json!({
        "project_id": key.project_id.to_string(),
        "name": key.name,
        "mode": key.mode.as_str(),
        "prefix": key.prefix,
    });
    recorder.record(&actions::KEY_REVOKED, &resource(key.id), metadata)
}

fn resource(id: KeyId) -> String {
    format!("key/{}", id.0)
}
