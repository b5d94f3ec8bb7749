//! Saved views. What is somebody's own is their own affair; what is shared changes what others see, and
//! leaves a record.

use sealog_control::{NewRecord, PersonId, Records, SavedView, ViewChange, ViewKept, ViewsMax, WhoseView};
use sealog_core::id::{ProjectId, TenantId, Uuid};
use serde_json::json;

use super::{Actor, Admin, AdminError};
use crate::records::system_chain::Recorder;
use crate::records::system_chain::actions::{self, SystemAction};

/// A page shows all that somebody may see: their own, and those that are shared in its project.
pub const VIEWS_MAX: ViewsMax = ViewsMax { own: 30, shared: 30 };

#[derive(Clone, Debug, Default)]
pub struct ViewInput {
    pub name: String,
    /// A query string.
    pub query: String,
    /// With those who may see this project.
    pub shared_in: Option<ProjectId>,
    pub is_pinned: bool,
}

impl Admin {
    /// In place of the person's own of the same name.
    pub async fn save_view(
        &self,
        person_id: PersonId,
        tenant_id: TenantId,
        input: ViewInput,
    ) -> Result<ViewKept, AdminError> {
        let recorder = self.recorder(Actor::Person(person_id));
        let ViewInput { name, query, shared_in, is_pinned } = input;
        let (id, created_at_ms) = (recorder.random_id(), recorder.now_ms());
        let view = SavedView { id, tenant_id, person_id, name, query, shared_in, is_pinned, created_at_ms };
        let kept = self.people().save_view(view, VIEWS_MAX, changed(recorder));
        Ok(self.made(kept).await?)
    }

    /// One of the person's own.
    pub async fn change_view(
        &self,
        person_id: PersonId,
        tenant_id: TenantId,
        id: Uuid,
        change: ViewChange,
    ) -> Result<ViewKept, AdminError> {
        let recorder = self.recorder(Actor::Person(person_id));
        let kept = self.people().change_view(tenant_id, person_id, id, change, VIEWS_MAX, changed(recorder));
        Ok(self.made(kept).await?)
    }

    /// Not found when there is none, or none that may be removed.
    pub async fn remove_view(
        &self,
        person_id: PersonId,
        tenant_id: TenantId,
        id: Uuid,
        whose: WhoseView,
    ) -> Result<(), AdminError> {
        let recorder = self.recorder(Actor::Person(person_id));
        let records = Records::told_by(move |_, view: &SavedView| {
            record(&recorder, &actions::VIEW_UNSHARED, view).into_iter().collect()
        });
        let removed = self.made(self.people().remove_view(tenant_id, id, whose, records)).await?;
        if removed { Ok(()) } else { Err(AdminError::NotFound) }
    }
}

fn changed(recorder: Recorder) -> Records<SavedView> {
    Records::told_by(move |before: Option<&SavedView>, after: &SavedView| {
        let was = before.filter(|before| before.shared_in.is_some());
        let told = match was {
            Some(before) if after.shared_in.is_none() => record(&recorder, &actions::VIEW_UNSHARED, before),
            Some(before) if before == after => None,
            _ => record(&recorder, &actions::VIEW_SHARED, after),
        };
        told.into_iter().collect()
    })
}

/// Neither its name nor its query: both may tell of those whom the events are about.
fn record(recorder: &Recorder, action: &SystemAction, view: &SavedView) -> Option<NewRecord> {
    let metadata = json!({
        "project_id": view.shared_in?.to_string(),
        "owner": view.person_id.0.to_string(),
        "pinned": view.is_pinned,
    });
    Some(recorder.record(action, &format!("view/{}", view.id), metadata))
}
