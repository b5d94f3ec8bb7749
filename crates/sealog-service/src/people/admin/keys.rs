//! API keys.

use sealog_control::{ApiKey, ChangeError, KeyId, KeyRoll, NewKey, NewRecord, Records};
use sealog_core::id::{Mode, ProjectId, Uuid};
use sealog_core::key;
use sealog_core::time::{DAY_MS, iso_ms};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Actor, Admin, AdminError, FieldError, change_error, fields};
use crate::records::system_chain::{Recorder, actions};
use crate::secret::Secret;

#[derive(Clone, Debug, Default)]
pub struct KeyInput {
    pub name: String,
    pub mode: String,
    pub expires_at: Option<String>,
    /// The form that a person sends. Sent again, as browsers do when its page is reloaded, it never makes a
    /// second key: the id of the key follows from it. A form also wants a name that no other active key of
    /// the project has. The operator's interface has no form: there, each call makes a key.
    pub form: Option<Uuid>,
}

/// Field of the error for a form that has made its key already.
pub const FORM: &str = "form";

/// Longest time that a key works beside the one in its place.
pub const OVERLAP_MS_MAX: u64 = 30 * DAY_MS;

#[derive(Clone, Debug, Default)]
pub struct RollInput {
    /// How long the old key works on. Nothing at all revokes it.
    pub overlap_ms: u64,
    /// Of the new key.
    pub expires_at: Option<String>,
    /// See [`KeyInput::form`].
    pub form: Option<Uuid>,
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
        let project = self.administration().project(project_id).await?.ok_or(AdminError::NotFound)?;
        self.refuse_closed("project_id", project.tenant_id).await?;
        let policy = self.key_policy_of(project.tenant_id).await?;
        let now_ms = recorder.now_ms();
        let expires_at = policy.end_of(expires_at, now_ms)?;
        let (new, text) = generate(&recorder, now_ms, project_id, name, mode, expires_at);
        let (new, control) = (of_form(new, actor, input.form), self.administration());
        let (id, records) = (new.id, vec![created(&recorder, &new)]);
        let key = match input.form {
            None => self.made(control.create_key(new, records)).await?,
            Some(_) => match self.made(control.create_named_key(new, records)).await {
                Err(ChangeError::AlreadyExists) if control.key(id).await?.is_none() => {
                    return Err(
                        FieldError::new("name", "belongs to another active key of this project").into()
                    );
                }
                made => made.map_err(sent_before)?,
            },
        };
        key.map(|key| CreatedKey { key, text }).ok_or(AdminError::NotFound)
    }

    /// A new key in place of one that works, which works on for so long, and not beyond its own end. Not
    /// found when there is no such key, it does not work any more, or it is being replaced already.
    pub async fn roll_key(
        &self,
        actor: Actor,
        id: KeyId,
        input: RollInput,
    ) -> Result<CreatedKey, AdminError> {
        let recorder = self.recorder(actor);
        let now_ms = recorder.now_ms();
        if input.overlap_ms > OVERLAP_MS_MAX {
            return Err(FieldError::new("overlap", "must be at most 30 days").into());
        }
        let expires_at = input.expires_at.map(|given| fields::time_ms("expires_at", given)).transpose()?;
        let (tenant_id, old) = self.administration().key(id).await?.ok_or(AdminError::NotFound)?;
        let expires_at = self.key_policy_of(tenant_id).await?.end_of(expires_at, now_ms)?;
        // The two keys of a roll are of one moment: the overlap is what was asked for, to the millisecond.
        let (new, text) = generate(&recorder, now_ms, old.project_id, old.name, old.mode, expires_at);
        let new = of_form(new, actor, input.form);
        let old_ends_at_ms = now_ms.saturating_add(input.overlap_ms);
        let roll = KeyRoll { old: id, new, old_ends_at_ms, now_ms };
        let records = Records::told_by(move |old: Option<&ApiKey>, new: &ApiKey| {
            old.map(|old| rolled(&recorder, old, new)).into_iter().collect()
        });
        let key = self.made(self.administration().roll_key(roll, records)).await.map_err(sent_before)?;
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

/// A new key, and its text. Kept are the digest, by which it is found, and the first characters, by which
/// people know it.
pub(super) fn generate(
    recorder: &Recorder,
    now_ms: u64,
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
        created_at_ms: now_ms,
        created_by: None,
    };
    (new, text)
}

/// The id of a form's key also follows from who sends it: nobody meets the key of another.
fn of_form(new: NewKey, actor: Actor, form: Option<Uuid>) -> NewKey {
    let created_by = actor.person();
    let Some(form) = form else { return NewKey { created_by, ..new } };
    let digest = Sha256::digest([b"key of form", &form.0[..], actor.id().as_bytes()].concat());
    NewKey { id: KeyId(Uuid::from_random(std::array::from_fn(|at| digest[at]))), created_by, ..new }
}

fn sent_before(error: ChangeError) -> AdminError {
    change_error(error, FieldError::new(FORM, "was already sent"))
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

fn rolled(recorder: &Recorder, old: &ApiKey, new: &ApiKey) -> NewRecord {
    let metadata = json!({
        "project_id": new.project_id.to_string(),
        "name": new.name,
        "mode": new.mode.as_str(),
        "prefix": new.prefix,
        "expires_at": new.expires_at_ms.map(iso_ms),
        "replaces": resource(old.id),
        "replaced_until": old.revoked_at_ms.or(old.expires_at_ms).map(iso_ms),
    });
    recorder.record(&actions::KEY_ROLLED, &resource(new.id), metadata)
}

fn resource(id: KeyId) -> String {
    format!("key/{}", id.0)
}
