//! The system log: what operators and people have done, in a chain that is seen and verified like any other.

use std::sync::Arc;

use axum::response::Response;
use sealog_core::id::ProjectId;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::problem::Problem;
use crate::request::{Asked, see_other};

/// Leads to the events of the chain. One that has none yet is made: its first event may be that somebody
/// looks.
pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    // Who is limited to projects sees nothing of the organisation as a whole.
    if place.membership.grants.projects.is_some() {
        return Err(Problem::not_found());
    }
    let mut random = [0; 16];
    app.service.world.fill_random(&mut random);
    let reserved = app.service.control.system_project(place.tenant.id, ProjectId::system_from_random(random));
    let project_id = reserved.await.map_err(of_control)?.ok_or(Problem::not_found())?;
    Ok(see_other(&format!("/app/p/{project_id}/live/events")))
}
