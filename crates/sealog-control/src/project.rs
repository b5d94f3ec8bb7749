//! Projects, and the history of the frameworks that were enabled for each.

use std::collections::HashMap;

use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ProjectId, TenantId};

use crate::control::{Answer, Changed, Control, set};
use crate::db::{Db, DbError, ListPage, Lock, Row, Table, Value, all, one, params, table};
use crate::record::{NewRecord, Records};
use crate::tenant;

impl Control {
    /// Nothing when there is no such tenant. An id that is reserved for system chains is refused.
    pub fn create_project(&self, new: NewProject, records: Vec<NewRecord>) -> Answer<'_, Option<Project>> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            let made = create(db, &new)?;
            room.check(db, new.tenant_id)?;
            Ok(made.map(|project| Changed { tenant_id: new.tenant_id, value: project, records }))
        })
    }

    /// Nothing when there is no such project.
    pub fn update_project(
        &self,
        id: ProjectId,
        change: ProjectChange,
        records: Records<Project>,
    ) -> Answer<'_, Option<Project>> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Version, move |db| {
            let Some((before, after)) = update(db, id, change)? else { return Ok(None) };
            // Each time that a framework is enabled is a row.
            if (0..32).any(|index| after.frameworks.contains(index) && !before.frameworks.contains(index)) {
                room.check(db, after.tenant_id)?;
            }
            let records = records.tell(Some(&before), &after);
            Ok(Some(Changed { tenant_id: after.tenant_id, value: after, records }))
        })
    }

    pub fn project(&self, id: ProjectId) -> Answer<'_, Option<Project>> {
        self.read(move |db| find(db, id))
    }

    pub fn projects(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Project>> {
        self.read(move |db| {
            let scope = ("tenant_id", tenant_id.into());
            let projects = PROJECTS.page(db, Some(scope), page, read)?;
            with_frameworks(db, projects, "WHERE projects.tenant_id = ?1", params![tenant_id])
        })
    }

    /// Those of a tenant that have these ids, in the order of creation.
    pub fn projects_named(&self, tenant_id: TenantId, ids: Vec<ProjectId>) -> Answer<'_, Vec<Project>> {
        self.read(move |db| {
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let places: Vec<String> = (0..ids.len()).map(|at| format!("?{}", at + 2)).collect();
            let sql = format!(
                "{} WHERE tenant_id = ?1 AND id IN ({}) ORDER BY number",
                PROJECTS.select,
                places.join(", ")
            );
            let params: Vec<Value> =
                [tenant_id.into()].into_iter().chain(ids.into_iter().map(Value::from)).collect();
            let projects = all(db, &sql, &params, read)?;
            with_frameworks(db, projects, "WHERE projects.tenant_id = ?1", params![tenant_id])
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProject {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    pub frameworks: FrameworkSet,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    pub id: ProjectId,
    pub tenant_id: TenantId,
    pub name: String,
    /// Enabled now.
    pub frameworks: FrameworkSet,
    /// Enabled now or at any time before.
    pub frameworks_ever: FrameworkSet,
    pub rate_limit_rps: Option<u32>,
    pub created_at_ms: u64,
}

/// Each field is left alone unless it is given; an inner `None` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    pub name: Option<String>,
    /// All of them, whichever there are.
    pub frameworks: Option<FrameworkSet>,
    /// Some of them, whatever else is changed at the same time: those that are neither stay what they are.
    pub enable: FrameworkSet,
    pub disable: FrameworkSet,
    pub rate_limit_rps: Option<Option<u32>>,
    /// When, for the history of frameworks.
    pub now_ms: u64,
}

impl ProjectChange {
    fn apply(self, project: &mut Project) {
        set(&mut project.name, self.name);
        set(&mut project.frameworks, self.frameworks);
        project.frameworks = project.frameworks.union(self.enable).without(self.disable);
        set(&mut project.rate_limit_rps, self.rate_limit_rps);
        project.frameworks_ever = project.frameworks_ever.union(project.frameworks);
    }
}

/// A time during which a framework was enabled; it may not be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// Its place in the catalog.
    pub framework: u8,
    pub enabled_at_ms: u64,
    pub disabled_at_ms: Option<u64>,
}

const PROJECTS: Table = table!("projects", "id", "id, tenant_id, name, rate_limit_rps, created_at_ms");

pub(crate) fn create(db: &mut dyn Db, new: &NewProject) -> Result<Option<Project>, DbError> {
    if new.id.is_system() {
        return Err(DbError::Refused(format!("{} is reserved for a system chain", new.id)));
    }
    if tenant::find(db, new.tenant_id)?.is_none() {
        return Ok(None);
    }
    let NewProject { id, tenant_id, ref name, frameworks, created_at_ms } = *new;
    let project = Project {
        id,
        tenant_id,
        name: name.clone(),
        frameworks,
        frameworks_ever: frameworks,
        rate_limit_rps: None,
        created_at_ms,
    };
    insert(db, &project)?;
    set_frameworks(db, id, FrameworkSet::NONE, frameworks, created_at_ms)?;
    Ok(Some(project))
}

fn insert(db: &mut dyn Db, project: &Project) -> Result<(), DbError> {
    let Project { id, tenant_id, name, rate_limit_rps, created_at_ms, .. } = project;
    PROJECTS.insert(db, params![*id, *tenant_id, name, *rate_limit_rps, *created_at_ms], "").map(drop)
}

/// Before and after.
fn update(
    db: &mut dyn Db,
    id: ProjectId,
    change: ProjectChange,
) -> Result<Option<(Project, Project)>, DbError> {
    let Some(before) = find(db, id)? else { return Ok(None) };
    let (mut project, now_ms) = (before.clone(), change.now_ms);
    change.apply(&mut project);
    db.execute(
        "UPDATE {projects} SET name = ?2, rate_limit_rps = ?3 WHERE id = ?1",
        params![id, &project.name, project.rate_limit_rps],
    )?;
    set_frameworks(db, id, before.frameworks, project.frameworks, now_ms)?;
    Ok(Some((before, project)))
}

/// Writes the history on: a new row for what was enabled, the end of its row for what was disabled.
fn set_frameworks(
    db: &mut dyn Db,
    id: ProjectId,
    before: FrameworkSet,
    after: FrameworkSet,
    now_ms: u64,
) -> Result<(), DbError> {
    for framework in 0..32u8 {
        match (before.contains(framework.into()), after.contains(framework.into())) {
            (false, true) => {
                insert_enabled(db, id, Enabled { framework, enabled_at_ms: now_ms, disabled_at_ms: None })?;
            }
            (true, false) => {
                let sql = "UPDATE {project_frameworks} SET disabled_at_ms = ?3
                           WHERE project_id = ?1 AND framework = ?2 AND disabled_at_ms IS NULL";
                db.execute(sql, params![id, framework, now_ms])?;
            }
            (false, false) | (true, true) => {}
        }
    }
    Ok(())
}

fn insert_enabled(db: &mut dyn Db, id: ProjectId, enabled: Enabled) -> Result<(), DbError> {
    let sql = "INSERT INTO {project_frameworks} (project_id, framework, enabled_at_ms, disabled_at_ms) VALUES (?1, ?2, ?3, ?4)";
    let Enabled { framework, enabled_at_ms, disabled_at_ms } = enabled;
    db.execute(sql, params![id, framework, enabled_at_ms, disabled_at_ms]).map(drop)
}

pub(crate) fn find(db: &mut dyn Db, id: ProjectId) -> Result<Option<Project>, DbError> {
    let project = one(db, &format!("{} WHERE id = ?1", PROJECTS.select), params![id], read)?;
    let found = with_frameworks(db, project.into_iter().collect(), "WHERE projects.id = ?1", params![id])?;
    Ok(found.into_iter().next())
}

/// Enabled in any of a tenant's projects.
pub(crate) fn frameworks_of_tenant(db: &mut dyn Db, tenant_id: TenantId) -> Result<FrameworkSet, DbError> {
    let enabled = history(db, "WHERE projects.tenant_id = ?1", params![tenant_id])?;
    let now = enabled.iter().filter(|(_, enabled)| enabled.disabled_at_ms.is_none());
    Ok(now.fold(FrameworkSet::NONE, |set, (_, enabled)| set.with(enabled.framework.into())))
}

/// Puts the sets together from the history, since the two databases have no common way to do so.
fn with_frameworks(
    db: &mut dyn Db,
    mut projects: Vec<Project>,
    scope: &str,
    params: &[Value],
) -> Result<Vec<Project>, DbError> {
    if projects.is_empty() {
        return Ok(projects);
    }
    let mut sets: HashMap<ProjectId, (FrameworkSet, FrameworkSet)> = HashMap::new();
    for (id, enabled) in history(db, scope, params)? {
        let (now, ever) = sets.entry(id).or_insert((FrameworkSet::NONE, FrameworkSet::NONE));
        *ever = ever.with(enabled.framework.into());
        if enabled.disabled_at_ms.is_none() {
            *now = now.with(enabled.framework.into());
        }
    }
    for project in &mut projects {
        if let Some(&(now, ever)) = sets.get(&project.id) {
            (project.frameworks, project.frameworks_ever) = (now, ever);
        }
    }
    Ok(projects)
}

fn history(db: &mut dyn Db, scope: &str, params: &[Value]) -> Result<Vec<(ProjectId, Enabled)>, DbError> {
    let sql = format!(
        "SELECT project_id, framework, enabled_at_ms, disabled_at_ms
         FROM {{project_frameworks}} JOIN {{projects}} ON projects.id = project_id {scope} ORDER BY project_frameworks.number"
    );
    all(db, &sql, params, |row| {
        let framework: u8 = row.get("framework")?;
        if framework >= 32 {
            return Err(crate::db::damaged("framework", "is not below 32"));
        }
        let enabled = Enabled {
            framework,
            enabled_at_ms: row.get("enabled_at_ms")?,
            disabled_at_ms: row.get("disabled_at_ms")?,
        };
        Ok((row.get("project_id")?, enabled))
    })
}

/// Without its frameworks.
fn read(row: &Row) -> Result<Project, DbError> {
    Ok(Project {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        name: row.get("name")?,
        frameworks: FrameworkSet::NONE,
        frameworks_ever: FrameworkSet::NONE,
        rate_limit_rps: row.get("rate_limit_rps")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(Project, Vec<Enabled>)>, DbError> {
    let projects = PROJECTS.all(db, read)?;
    let projects = with_frameworks(db, projects, "", &[])?;
    let mut histories: HashMap<ProjectId, Vec<Enabled>> = HashMap::new();
    for (id, enabled) in history(db, "", &[])? {
        histories.entry(id).or_default().push(enabled);
    }
    let with_history = |project: Project| {
        let history = histories.remove(&project.id).unwrap_or_default();
        (project, history)
    };
    Ok(projects.into_iter().map(with_history).collect())
}

pub(crate) fn import(db: &mut dyn Db, projects: Vec<(Project, Vec<Enabled>)>) -> Result<(), DbError> {
    for (project, history) in projects {
        insert(db, &project)?;
        history.into_iter().try_for_each(|enabled| insert_enabled(db, project.id, enabled))?;
    }
    Ok(())
}
