//! Projects, and the frameworks that are enabled for them.

use sealog_control::{ListPage, NewProject, NewRecord, Project, ProjectChange, Records};
use sealog_core::catalog::{Catalog, FrameworkSet};
use sealog_core::id::{ProjectId, TenantId};
use serde_json::{Map, Value, json};

use super::{Actor, Admin, AdminError, FieldError, fields};
use crate::records::system_chain::{Recorder, actions, change};

/// Projects that people make in one organisation.
pub const PROJECTS_MAX: usize = 1000;

#[derive(Clone, Debug, Default)]
pub struct ProjectInput {
    pub name: String,
    /// Ids of the catalog.
    pub frameworks: Vec<String>,
}

/// Each field is left alone unless it is given; an inner nothing clears it.
#[derive(Clone, Debug, Default)]
pub struct ProjectUpdate {
    pub name: Option<String>,
    /// All of them: whoever says so does not ask which there are.
    pub frameworks: Option<Vec<String>>,
    /// Some of them. Of two people who change different ones at the same time, neither undoes what the other
    /// did.
    pub enable: Vec<String>,
    pub disable: Vec<String>,
    pub rate_limit_rps: Option<Option<u32>>,
}

impl Admin {
    pub async fn create_project(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        input: ProjectInput,
    ) -> Result<Project, AdminError> {
        // The operator may have as many as it takes.
        if matches!(actor, Actor::Person(_)) {
            let page = ListPage { after: None, limit: PROJECTS_MAX };
            if self.administration().projects(tenant_id, page).await?.len() >= PROJECTS_MAX {
                let problem = format!("exceeds the limit of {PROJECTS_MAX} projects for an organisation");
                return Err(FieldError::new("name", problem).into());
            }
        }
        let recorder = self.recorder(actor);
        let new = NewProject {
            id: ProjectId(recorder.random_id()),
            tenant_id,
            name: fields::some_text("name", input.name)?,
            frameworks: fields::frameworks("frameworks", input.frameworks)?,
            created_at_ms: recorder.now_ms(),
        };
        let records = vec![created(&recorder, &new)];
        let project = self.made(self.administration().create_project(new, records)).await?;
        project.ok_or(AdminError::NotFound)
    }

    pub async fn update_project(
        &self,
        actor: Actor,
        id: ProjectId,
        update: ProjectUpdate,
    ) -> Result<Project, AdminError> {
        let recorder = self.recorder(actor);
        let change = ProjectChange {
            name: update.name.map(|given| fields::some_text("name", given)).transpose()?,
            frameworks: update.frameworks.map(|ids| fields::frameworks("frameworks", ids)).transpose()?,
            enable: fields::frameworks("enable", update.enable)?,
            disable: fields::frameworks("disable", update.disable)?,
            rate_limit_rps: update.rate_limit_rps,
            now_ms: recorder.now_ms(),
        };
        let records = Records::told_by(move |before: Option<&Project>, after: &Project| {
            before.map_or_else(Vec::new, |before| changed(&recorder, before, after))
        });
        let project = self.made(self.administration().update_project(id, change, records)).await?;
        project.ok_or(AdminError::NotFound)
    }
}

/// The ids of a set, in the order of the catalog.
pub fn framework_ids(set: FrameworkSet) -> Vec<&'static str> {
    let frameworks = Catalog::builtin().frameworks.iter().enumerate();
    let of_set = frameworks.filter(|(index, _)| set.contains(*index));
    of_set.map(|(_, framework)| framework.framework.as_str()).collect()
}

pub(super) fn created(recorder: &Recorder, new: &NewProject) -> NewRecord {
    let metadata = json!({ "name": new.name, "frameworks": framework_ids(new.frameworks) });
    recorder.record(&actions::PROJECT_CREATED, &resource(new.id), metadata)
}

/// One record for the project's own fields and one for its frameworks: auditors look for the second.
fn changed(recorder: &Recorder, before: &Project, after: &Project) -> Vec<NewRecord> {
    let mut records = Vec::new();
    let mut metadata = Map::new();
    change(&mut metadata, "name", before.name.as_str(), after.name.as_str());
    change(&mut metadata, "rate_limit_rps", before.rate_limit_rps, after.rate_limit_rps);
    if !metadata.is_empty() {
        let metadata = Value::Object(metadata);
        records.push(recorder.record(&actions::PROJECT_CHANGED, &resource(after.id), metadata));
    }
    let mut metadata = Map::new();
    change(&mut metadata, "frameworks", framework_ids(before.frameworks), framework_ids(after.frameworks));
    if !metadata.is_empty() {
        let metadata = Value::Object(metadata);
        records.push(recorder.record(&actions::FRAMEWORKS_CHANGED, &resource(after.id), metadata));
    }
    records
}

fn resource(id: ProjectId) -> String {
    format!("project/{id}")
}
