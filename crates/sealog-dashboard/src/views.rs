//! What auditors see is in the system chain before they see it.

use std::sync::Arc;

use sealog_core::reject::Code;
use sealog_service::records::system_chain::actions::SystemAction;
use sealog_service::records::system_chain::{Actor, Recorder};
use sealog_store::StoreError;
use serde_json::Value;

use crate::app::Dashboard;
use crate::problem::Problem;
use crate::request::Asked;

/// Seals that an auditor looks at something, before the first byte of it leaves. A view that cannot be sealed
/// is refused. Others look without a record.
pub(crate) async fn seal(
    app: &Dashboard,
    asked: &Asked,
    action: &SystemAction,
    resource: &str,
    metadata: Value,
) -> Result<(), Problem> {
    let place = asked.place();
    if !place.role().rules().seals_views {
        return Ok(());
    }
    let recorder = Recorder::new(Actor::Person(asked.person().person.id), Arc::clone(&app.service.world));
    let record = recorder.record(action, resource, metadata);
    app.service.drain.record_and_seal(place.tenant.id, record).await.map_err(|error| not_sealed(&error))
}

pub(crate) fn not_sealed(error: &StoreError) -> Problem {
    tracing::error!(%error, "a view or a download was refused: its record could not be sealed");
    Problem::new(
        Code::EventWriteFailed,
        "Sealog records your access before it shows this page, and the record failed. Try again in a moment.",
    )
}
