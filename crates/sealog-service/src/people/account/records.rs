//! What people do here goes into the system chains of the organisations that they are members of, by their
//! ids: an address never does.

use std::sync::Arc;

use sealog_control::{Control, NewRecord, PersonId, PersonRecords, Room};
use sealog_core::id::TenantId;
use serde_json::{Value, json};

use super::kind::{People, room_of};
use crate::people::sign_in::{Accounts, Failed};
use crate::records::system_chain::actions::{self, SystemAction};
use crate::records::system_chain::{Actor, Recorder};

/// Something that concerns a person everywhere: a record for each organisation that the person is a member
/// of.
pub(super) async fn about_member(
    control: &Control,
    recorder: &Recorder,
    person_id: PersonId,
    action: &SystemAction,
    metadata: Value,
) -> Result<Vec<(TenantId, NewRecord)>, Failed> {
    let now_ms = recorder.now_ms();
    let mut memberships = control.memberships(person_id).await?;
    memberships.retain(|membership| !membership.has_ended(now_ms));
    let resource = format!("member/{}", person_id.0);
    let record = |tenant_id| (tenant_id, recorder.record(action, &resource, metadata.clone()));
    Ok(memberships.iter().map(|membership| record(membership.tenant_id)).collect())
}

impl Accounts<People> {
    pub(super) fn recorder(&self, person_id: PersonId) -> Recorder {
        Recorder::new(Actor::Person(person_id), Arc::clone(&self.world))
    }

    /// Of a change of the person's account: a record for each organisation, kept with the change.
    pub(super) fn records(
        &self,
        person_id: PersonId,
        action: &'static SystemAction,
        metadata: Value,
    ) -> PersonRecords {
        let (recorder, resource) = (self.recorder(person_id), format!("member/{}", person_id.0));
        PersonRecords::told_by(recorder.now_ms(), move || {
            recorder.record(action, &resource, metadata.clone())
        })
    }

    /// Of something that concerns the person everywhere. Durable when this returns.
    pub(super) async fn record(
        &self,
        person_id: PersonId,
        action: &'static SystemAction,
        metadata: Value,
    ) -> Result<(), Failed> {
        let recorder = self.recorder(person_id);
        let records = about_member(&self.control, &recorder, person_id, action, metadata).await?;
        let room = room_of(&self.control.memberships(person_id).await?);
        self.add_records(records, room).await
    }

    async fn add_records(&self, records: Vec<(TenantId, NewRecord)>, room: Room) -> Result<(), Failed> {
        if !records.is_empty() {
            self.control.add_records(records, room).await?;
            self.kind.wake.wake();
        }
        Ok(())
    }

    pub(super) async fn record_sign_in(&self, person_id: PersonId, with_code: bool) -> Result<(), Failed> {
        self.record(person_id, &actions::SIGNED_IN, json!({ "with_code": with_code })).await
    }
}
