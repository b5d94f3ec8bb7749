//! Puts notices into the outbox, each once for everybody whom it is for.

use std::sync::Arc;

use sealog_control::{Membership, NewNotice, NewRecord, Person, PersonId, Role, Tenant};
use sealog_core::id::TenantId;
use sealog_store::StoreError;
use sealog_store::world::World;
use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, MANAGERS};
use crate::people::account::OWNER;
use crate::people::contact::is_address;
use crate::people::organisation;
use crate::records::system_chain::{Actor, Recorder, actions};
use crate::zone;
use sealog_control::Control;

/// Most people of an organisation that one notice goes to, those first who became members first.
pub const RECIPIENTS_MAX: usize = 50;

/// Somebody has chosen notices.
pub(crate) fn chosen(world: &Arc<dyn World>, person_id: PersonId, metadata: Value) -> NewRecord {
    let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(world));
    recorder.record(&actions::NOTICES_CHOSEN, &format!("member/{}", person_id.0), metadata)
}

#[derive(Clone)]
pub struct Notifier {
    control: Arc<Control>,
    world: Arc<dyn World>,
}

impl Notifier {
    pub fn new(control: &Arc<Control>, world: Arc<dyn World>) -> Notifier {
        Notifier { control: Arc::clone(control), world }
    }

    /// The optional notices that a member with this role may get, and whether the member wants them.
    pub async fn choices(&self, membership: &Membership) -> Result<Vec<(&'static Kind, bool)>, StoreError> {
        let Membership { tenant_id, person_id, role, .. } = membership;
        let muted = self.control.muted_notices(*tenant_id, *person_id).await?;
        let optional = KINDS.iter().copied().filter(|kind| kind.is_optional && kind.is_for(*role));
        Ok(optional.map(|kind| (kind, !muted.iter().any(|name| name == kind.name))).collect())
    }

    /// Of the optional notices that the member may get, these are wanted, by their names. The organisation's
    /// system chain says which are not.
    pub async fn choose(&self, membership: &Membership, wanted: &[&str]) -> Result<(), StoreError> {
        let Membership { tenant_id, person_id, .. } = *membership;
        let choices = self.choices(membership).await?;
        let muted = choices.iter().map(|(kind, _)| kind.name).filter(|name| !wanted.contains(name));
        let muted: Vec<String> = muted.map(str::to_owned).collect();
        let record = chosen(&self.world, person_id, json!({ "turned_off": muted }));
        self.control.set_muted_notices(tenant_id, person_id, muted, vec![record]).await
    }

    /// Tells the members who have one of these roles. `key` says what it is about, and makes it one;
    /// `parameters` is an object, to which the organisation's name and time zone are added. How many were not
    /// told before.
    pub async fn tell_roles(
        &self,
        kind: &'static Kind,
        roles: &[Role],
        tenant_id: TenantId,
        key: &str,
        parameters: Value,
    ) -> Result<usize, StoreError> {
        let now_ms = self.world.now_ms();
        let members = self.control.members_with_roles(tenant_id, roles.to_vec(), now_ms, RECIPIENTS_MAX);
        let people: Vec<Person> = members.await?.into_iter().map(|member| member.person).collect();
        self.tell(kind, tenant_id, &people, key, parameters).await
    }

    /// Tells owners and admins, and the tenant's contact, if that is nobody of them. Where there is nobody,
    /// the log says so.
    pub async fn tell_managers(
        &self,
        kind: &'static Kind,
        tenant: &Tenant,
        key: &str,
        parameters: Value,
    ) -> Result<usize, StoreError> {
        let now_ms = self.world.now_ms();
        let managers = self.control.members_with_roles(tenant.id, MANAGERS.to_vec(), now_ms, RECIPIENTS_MAX);
        let people: Vec<Person> = managers.await?.into_iter().map(|member| member.person).collect();
        let mut queued = self.tell(kind, tenant.id, &people, key, parameters.clone()).await?;
        let is_own = |contact: &str| people.iter().any(|person| person.email.eq_ignore_ascii_case(contact));
        let contact = tenant.contact_email.as_ref();
        if let Some(contact) = contact.filter(|contact| is_address(contact) && !is_own(contact)) {
            let notice = NewNotice {
                key: format!("{}/{key}", kind.name),
                tenant_id: Some(tenant.id),
                person_id: None,
                to: contact.clone(),
                template: kind.name.into(),
                parameters: parameters.to_string(),
                created_at_ms: now_ms,
            };
            queued += usize::from(self.control.enqueue_notice(notice).await?);
        } else if people.is_empty() {
            tracing::warn!(tenant_id = %tenant.id.0, notice = kind.name, "dropped a notice: the tenant has no contact, owner or admin to receive it");
        }
        Ok(queued)
    }

    /// As [`Notifier::tell_roles`], for these people.
    pub async fn tell(
        &self,
        kind: &'static Kind,
        tenant_id: TenantId,
        people: &[Person],
        key: &str,
        mut parameters: Value,
    ) -> Result<usize, StoreError> {
        let key_for = |person: &Person| format!("{}/{key}/{}", kind.name, person.id.0);
        let known = self.control.notices_with_keys(people.iter().map(key_for).collect()).await?;
        let muted = match kind.is_optional {
            true => self.control.muted_by(tenant_id, kind.name.into()).await?,
            false => Vec::new(),
        };
        let is_told = |person: &&Person| {
            is_address(&person.email)
                && person.email != OWNER
                && !muted.contains(&person.id)
                && !known.iter().any(|notice| notice.key == key_for(person))
        };
        let people: Vec<&Person> = people.iter().filter(is_told).collect();
        let Some(tenant) = self.control.tenant(tenant_id).await? else { return Ok(0) };
        if people.is_empty() {
            return Ok(0);
        }
        let zone = self.control.setting(tenant_id, organisation::TIME_ZONE.into()).await?;
        let zone = zone.as_deref().and_then(organisation::text).unwrap_or_else(|| zone::UTC.into());
        parameters["organisation"] = tenant.name.into();
        parameters["zone"] = zone.into();
        let parameters = parameters.to_string();
        let notice = |person: &Person| NewNotice {
            key: key_for(person),
            tenant_id: Some(tenant_id),
            person_id: Some(person.id),
            to: person.email.clone(),
            template: kind.name.into(),
            parameters: parameters.clone(),
            created_at_ms: self.world.now_ms(),
        };
        let queued = self.control.enqueue_notices(people.into_iter().map(notice).collect()).await?;
        if queued > 0 {
            tracing::info!(tenant_id = %tenant_id.0, notice = kind.name, about = key, people = queued, "queued a notice in the outbox");
        }
        Ok(queued)
    }
}
