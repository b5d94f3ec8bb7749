//! People and their memberships.

use sealog_control::{
    Grants, Member, MemberChange, MemberChanged, NewMember, NewPerson, NewRecord, PersonId, Records, Role,
    Updated,
};
use sealog_core::id::TenantId;
use sealog_core::time::iso_ms;
use serde_json::{Map, Value, json};

use super::{Actor, Admin, AdminError, FieldError, change_error, fields};
use crate::people::account::invitation_resource;
use crate::people::password;
use crate::records::system_chain::{Recorder, actions, change};
use crate::secret::Secret;

#[derive(Clone, Debug)]
pub struct MemberInput {
    pub email: String,
    /// Ignored for somebody who has an account.
    pub password: Secret,
    pub role: String,
}

/// Each field is left alone unless it is given; an inner nothing clears it.
#[derive(Clone, Debug, Default)]
pub struct MemberUpdate {
    pub role: Option<String>,
    pub grants: Option<Grants>,
    pub ends_at: Option<Option<String>>,
    /// The roles that whoever asks may give and take; nothing for all.
    pub may_give: Option<Vec<Role>>,
}

const LAST_OWNER: &str = "is the last owner without an end date; make another member an owner first";

impl Admin {
    /// Makes somebody a member at once. For those who vouch for the address, which are the operator and
    /// commands on the host: everybody else has to ask the person first, and is refused.
    pub async fn add_member(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        input: MemberInput,
    ) -> Result<Member, AdminError> {
        if !matches!(actor, Actor::Operator | Actor::Host) {
            return Err(AdminError::Internal(format!("{} cannot confirm an address", actor.id())));
        }
        let email = fields::email("email", input.email)?;
        let role = fields::role("role", input.role)?;
        let password = fields::password("password", input.password)?;
        if self.administration().tenant(tenant_id).await?.is_none() {
            return Err(AdminError::NotFound);
        }
        self.refuse_closed("tenant_id", tenant_id).await?;
        // Somebody who has an account keeps the password that it has: the one that came along is ignored.
        let password_hash = match self.people().person_by_email(email.clone()).await? {
            Some(_) => None,
            None => Some(password::hash(&*self.world, password).await.map_err(AdminError::Internal)?),
        };
        let recorder = self.recorder(actor);
        let person = NewPerson {
            id: PersonId(recorder.random_id()),
            email,
            password_hash,
            verified: true,
            created_at_ms: recorder.now_ms(),
        };
        let new = NewMember {
            tenant_id,
            created_at_ms: person.created_at_ms,
            person,
            role,
            grants: Grants::default(),
            ends_at_ms: None,
        };
        let records = Records::told_by(move |_: Option<&Member>, member: &Member| {
            vec![added(&recorder, member.person.id, member.membership.role.as_str())]
        });
        let exists = FieldError::new("email", "is already a member of this tenant");
        let added = self.made(self.people().add_member(new, records)).await;
        added.map_err(|error| change_error(error, exists))?.ok_or(AdminError::NotFound)
    }

    /// Changes what a member is and may see, or ends the membership. The last owner stays one. Invitations
    /// that the member has sent and may not send any more are withdrawn by it.
    pub async fn update_member(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        person_id: PersonId,
        update: MemberUpdate,
    ) -> Result<Member, AdminError> {
        let recorder = self.recorder(actor);
        let change = MemberChange {
            role: update.role.map(|given| fields::role("role", given)).transpose()?,
            grants: update.grants,
            ends_at_ms: fields::optional(update.ends_at, |given| fields::time_ms("ends_at", given))?,
            may_give: update.may_give,
            now_ms: recorder.now_ms(),
        };
        let records = Records::told_by(move |before: Option<&Updated>, after: &Updated| {
            let changed = before.and_then(|before| changed(&recorder, &before.member, &after.member));
            let withdrawn = after.withdrawn.iter().map(|id| {
                let metadata = json!({ "sender": after.member.person.id.0.to_string() });
                recorder.record(&actions::INVITATION_WITHDRAWN, &invitation_resource(*id), metadata)
            });
            changed.into_iter().chain(withdrawn).collect()
        });
        let member = self.made(self.people().update_member(tenant_id, person_id, change, records)).await?;
        match member.ok_or(AdminError::NotFound)? {
            MemberChanged::Done(member) => Ok(member),
            MemberChanged::NotGiven => {
                Err(FieldError::new("role", "must be a role that you may grant or remove").into())
            }
            MemberChanged::Closed => {
                Err(FieldError::new("ends_at", "must not be later: the organisation was closed").into())
            }
            MemberChanged::LastOwner => Err(FieldError::new("member", LAST_OWNER).into()),
        }
    }
}

pub(super) fn added(recorder: &Recorder, person_id: PersonId, role: &str) -> NewRecord {
    recorder.record(&actions::MEMBER_ADDED, &resource(person_id), json!({ "role": role }))
}

fn changed(recorder: &Recorder, before: &Member, after: &Member) -> Option<NewRecord> {
    let (old, new) = (&before.membership, &after.membership);
    let mut metadata = Map::new();
    change(&mut metadata, "role", old.role.as_str(), new.role.as_str());
    change(&mut metadata, "ends_at", old.ends_at_ms.map(iso_ms), new.ends_at_ms.map(iso_ms));
    change(&mut metadata, "grants", grants(&old.grants), grants(&new.grants));
    let metadata = (!metadata.is_empty()).then_some(Value::Object(metadata))?;
    Some(recorder.record(&actions::MEMBER_CHANGED, &resource(after.person.id), metadata))
}

/// As records have them.
pub(crate) fn grants(grants: &Grants) -> Value {
    let projects = grants.projects.as_ref();
    json!({
        "projects": projects.map(|ids| ids.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "from": grants.from_ms.map(iso_ms),
        "until": grants.until_ms.map(iso_ms),
    })
}

/// By the person's id: an address never goes into a chain.
fn resource(id: PersonId) -> String {
    format!("member/{}", id.0)
}
