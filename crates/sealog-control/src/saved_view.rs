//! Saved views: a name for a query of the events page, for one person in one tenant, or shared by that person
//! with those who may see a project.

use sealog_core::id::{ProjectId, TenantId, Uuid};

use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, count, one, params, table};
use crate::person::PersonId;
use crate::record::Records;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedView {
    /// Chosen by the caller from randomness.
    pub id: Uuid,
    pub tenant_id: TenantId,
    /// Whose it is.
    pub person_id: PersonId,
    pub name: String,
    /// A query string.
    pub query: String,
    /// Whoever may see this project sees it. Without one it is the person's alone.
    pub shared_in: Option<ProjectId>,
    /// It stands on the first page, too.
    pub is_pinned: bool,
    pub created_at_ms: u64,
}

/// How many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewsMax {
    /// Of a person in a tenant.
    pub own: u64,
    /// That are shared in a project.
    pub shared: u64,
}

/// What is given changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewChange {
    pub shared_in: Option<Option<ProjectId>>,
    pub is_pinned: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewKept {
    Kept,
    /// The person has as many as there may be.
    Full,
    /// As many as there may be are shared in the project.
    SharedFull,
    /// The person shares another one of this name.
    NameShared,
    NotFound,
}

/// Which view may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhoseView {
    /// One of this person.
    Of(PersonId),
    /// Of anybody, if it is shared in this project.
    SharedIn(ProjectId),
}

impl Control {
    /// Keeps a view, in place of the person's own of the same name. One that is shared is not replaced:
    /// others use it.
    pub fn save_view(
        &self,
        view: SavedView,
        most: ViewsMax,
        records: Records<SavedView>,
    ) -> Answer<'_, ViewKept> {
        let room = self.tenant_room();
        // In one order, so that two at a time do not both find the last place.
        let kept: Answer<'_, _> = self.change_of_tenant(Lock::Order, move |db| {
            let tenant_id = view.tenant_id;
            let problem = save(db, &view, most)?;
            room.check(db, tenant_id)?;
            let records = if problem.is_none() { records.tell(None, &view) } else { Vec::new() };
            Ok(Some(Changed { tenant_id, value: problem.unwrap_or(ViewKept::Kept), records }))
        });
        Box::pin(async move { Ok(kept.await?.unwrap_or(ViewKept::NotFound)) })
    }

    /// The person's own, and those that others share in this project, in the order in which they were saved.
    pub fn saved_views(
        &self,
        tenant_id: TenantId,
        person_id: PersonId,
        project_id: ProjectId,
    ) -> Answer<'_, Vec<SavedView>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE tenant_id = ?1 AND (person_id = ?2 OR shared_in = ?3) ORDER BY number",
                VIEWS.select
            );
            all(db, &sql, params![tenant_id, person_id, project_id], read)
        })
    }

    /// Shares one of the person's own, takes it back, or pins it. `records` are told of it before and after.
    pub fn change_view(
        &self,
        tenant_id: TenantId,
        person_id: PersonId,
        id: Uuid,
        change: ViewChange,
        most: ViewsMax,
        records: Records<SavedView>,
    ) -> Answer<'_, ViewKept> {
        let changed: Answer<'_, _> = self.change_of_tenant(Lock::Order, move |db| {
            let Some(before) = find(db, tenant_id, id, WhoseView::Of(person_id))? else { return Ok(None) };
            let after = SavedView {
                shared_in: change.shared_in.unwrap_or(before.shared_in),
                is_pinned: change.is_pinned.unwrap_or(before.is_pinned),
                ..before.clone()
            };
            if after.shared_in != before.shared_in && !has_room(db, &after, most)? {
                return Ok(Some(Changed { tenant_id, value: ViewKept::SharedFull, records: Vec::new() }));
            }
            let sql = "UPDATE {saved_views} SET shared_in = ?2, is_pinned = ?3 WHERE id = ?1";
            db.execute(sql, params![id, after.shared_in, after.is_pinned])?;
            let records = records.tell(Some(&before), &after);
            Ok(Some(Changed { tenant_id, value: ViewKept::Kept, records }))
        });
        Box::pin(async move { Ok(changed.await?.unwrap_or(ViewKept::NotFound)) })
    }

    /// Whether there was such a one. `records` are told of it as it was.
    pub fn remove_view(
        &self,
        tenant_id: TenantId,
        id: Uuid,
        whose: WhoseView,
        records: Records<SavedView>,
    ) -> Answer<'_, bool> {
        let removed: Answer<'_, _> = self.change_of_tenant(Lock::Order, move |db| {
            let Some(view) = find(db, tenant_id, id, whose)? else { return Ok(None) };
            db.execute("DELETE FROM {saved_views} WHERE id = ?1", params![id])?;
            let records = records.tell(Some(&view), &view);
            Ok(Some(Changed { tenant_id, value: (), records }))
        });
        Box::pin(async move { Ok(removed.await?.is_some()) })
    }
}

const VIEWS: Table =
    table!("saved_views", "id", "id, tenant_id, person_id, name, query, shared_in, is_pinned, created_at_ms");

/// Why it was not.
fn save(db: &mut dyn Db, view: &SavedView, most: ViewsMax) -> Result<Option<ViewKept>, DbError> {
    let owner = params![view.tenant_id, view.person_id, &view.name];
    let sql = format!("{} WHERE tenant_id = ?1 AND person_id = ?2 AND name = ?3", VIEWS.select);
    let before = one(db, &sql, owner, read)?;
    if before.as_ref().is_some_and(|before| before.shared_in.is_some()) {
        return Ok(Some(ViewKept::NameShared));
    }
    let sql = "SELECT count(*) AS count FROM {saved_views} WHERE tenant_id = ?1 AND person_id = ?2";
    let own = count(db, sql, params![view.tenant_id, view.person_id])?;
    if own - u64::from(before.is_some()) >= most.own {
        return Ok(Some(ViewKept::Full));
    }
    if !has_room(db, view, most)? {
        return Ok(Some(ViewKept::SharedFull));
    }
    let sql = "DELETE FROM {saved_views} WHERE tenant_id = ?1 AND person_id = ?2 AND name = ?3";
    db.execute(sql, owner)?;
    insert(db, view)?;
    Ok(None)
}

/// Among those that are shared in its project.
fn has_room(db: &mut dyn Db, view: &SavedView, most: ViewsMax) -> Result<bool, DbError> {
    let Some(project_id) = view.shared_in else { return Ok(true) };
    let sql = "SELECT count(*) AS count FROM {saved_views} WHERE tenant_id = ?1 AND shared_in = ?2";
    Ok(count(db, sql, params![view.tenant_id, project_id])? < most.shared)
}

fn find(
    db: &mut dyn Db,
    tenant_id: TenantId,
    id: Uuid,
    whose: WhoseView,
) -> Result<Option<SavedView>, DbError> {
    let sql = format!("{} WHERE tenant_id = ?1 AND id = ?2", VIEWS.select);
    let view = one(db, &sql, params![tenant_id, id], read)?;
    Ok(view.filter(|view| match whose {
        WhoseView::Of(person_id) => view.person_id == person_id,
        WhoseView::SharedIn(project_id) => view.shared_in == Some(project_id),
    }))
}

fn insert(db: &mut dyn Db, view: &SavedView) -> Result<(), DbError> {
    let SavedView { id, tenant_id, person_id, name, query, shared_in, is_pinned, created_at_ms } = view;
    let params = params![*id, *tenant_id, *person_id, name, query, *shared_in, *is_pinned, *created_at_ms];
    VIEWS.insert(db, params, "").map(drop)
}

fn read(row: &Row) -> Result<SavedView, DbError> {
    Ok(SavedView {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        name: row.get("name")?,
        query: row.get("query")?,
        shared_in: row.get("shared_in")?,
        is_pinned: row.get("is_pinned")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<SavedView>, DbError> {
    VIEWS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, views: &[SavedView]) -> Result<(), DbError> {
    views.iter().try_for_each(|view| insert(db, view))
}
