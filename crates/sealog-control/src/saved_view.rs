//! Saved views: a name for a query of the events page, for one person in one tenant.

use sealog_core::id::{TenantId, Uuid};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Listed, Lock, Row, all, count, params};
use crate::person::PersonId;

pub trait SavedViews: Send + Sync {
    /// Keeps a view, in place of the person's own of the same name. Whether there was room: a person has at most
    /// `most` in a tenant.
    fn save_view(&self, view: SavedView, most: u64) -> Answer<'_, bool>;
    /// In the order in which they were saved.
    fn saved_views(&self, tenant_id: TenantId, person_id: PersonId) -> Answer<'_, Vec<SavedView>>;
    /// One of the person's own in this tenant. Whether there was such a one.
    fn remove_view(&self, tenant_id: TenantId, person_id: PersonId, id: Uuid) -> Answer<'_, bool>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedView {
    /// Chosen by the caller from randomness.
    pub id: Uuid,
    pub tenant_id: TenantId,
    pub person_id: PersonId,
    pub name: String,
    /// A query string.
    pub query: String,
    pub created_at_ms: u64,
}

impl SavedViews for Control {
    fn save_view(&self, view: SavedView, most: u64) -> Answer<'_, bool> {
        // In one order, so that two at a time do not both find the last place.
        self.change(Lock::Order, move |db| {
            let owner = params![view.tenant_id, view.person_id, &view.name];
            let sql = "DELETE FROM {saved_views} WHERE tenant_id = ?1 AND person_id = ?2 AND name = ?3";
            db.execute(sql, owner)?;
            let sql = "SELECT count(*) AS count FROM {saved_views} WHERE tenant_id = ?1 AND person_id = ?2";
            let is_room = count(db, sql, params![view.tenant_id, view.person_id])? < most;
            if is_room {
                insert(db, &view)?;
            }
            Ok(is_room)
        })
    }

    fn saved_views(&self, tenant_id: TenantId, person_id: PersonId) -> Answer<'_, Vec<SavedView>> {
        self.read(move |db| {
            let sql = format!("{} WHERE tenant_id = ?1 AND person_id = ?2 ORDER BY number", VIEWS.select);
            all(db, &sql, params![tenant_id, person_id], read)
        })
    }

    fn remove_view(&self, tenant_id: TenantId, person_id: PersonId, id: Uuid) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let sql = "DELETE FROM {saved_views} WHERE tenant_id = ?1 AND person_id = ?2 AND id = ?3";
            Ok(db.execute(sql, params![tenant_id, person_id, id])? > 0)
        })
    }
}

const VIEWS: Listed = Listed {
    select: "SELECT id, tenant_id, person_id, name, query, created_at_ms FROM {saved_views}",
    table: "saved_views",
    id: "id",
};

fn insert(db: &mut dyn Db, view: &SavedView) -> Result<(), DbError> {
    let SavedView { id, tenant_id, person_id, name, query, created_at_ms } = view;
    let sql = "INSERT INTO {saved_views} (id, tenant_id, person_id, name, query, created_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    db.execute(sql, params![*id, *tenant_id, *person_id, name, query, *created_at_ms]).map(drop)
}

fn read(row: &Row) -> Result<SavedView, DbError> {
    Ok(SavedView {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        name: row.get("name")?,
        query: row.get("query")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<SavedView>, DbError> {
    VIEWS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, views: &[SavedView]) -> Result<(), DbError> {
    views.iter().try_for_each(|view| insert(db, view))
}
