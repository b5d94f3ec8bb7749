//! Exports: a query and a range of `chain_seq` that were frozen. The events themselves are read at each
//! download, and since events never change, each has the same bytes; the first one that was complete says how
//! many.

use sealog_core::id::{Hash, Mode, ProjectId, TenantId};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, ListPage, Lock, Row, Table, Value, all, count, one, params, table};
use crate::person::PersonId;
use crate::record::{self, Records};

impl Control {
    /// A tenant keeps so many. The oldest of those that were downloaded whole gives way to one more, and
    /// `records` are told of it as of the state before; nothing is made where there is none.
    pub fn create_export(
        &self,
        new: NewExport,
        kept_max: u64,
        records: Records<Export>,
    ) -> Answer<'_, Option<Export>> {
        let room = self.tenant_room();
        self.change(Lock::Order, move |db| {
            let tenant_id = new.tenant_id;
            let sql = "SELECT count(*) AS count FROM {exports} WHERE tenant_id = ?1";
            let mut removed = None;
            if count(db, sql, params![tenant_id])? >= kept_max {
                removed = oldest_done(db, tenant_id)?;
                let Some(removed) = &removed else { return Ok(None) };
                db.execute("DELETE FROM {exports} WHERE id = ?1", params![removed.new.id])?;
            }
            let export = Export { new, totals: None };
            insert(db, &export)?;
            room.check(db, tenant_id)?;
            record::insert(db, tenant_id, &records.tell(removed.as_ref(), &export))?;
            Ok(Some(export))
        })
    }

    pub fn export_by_id(&self, id: ExportId) -> Answer<'_, Option<Export>> {
        self.read(move |db| find(db, id))
    }

    /// Those of a project and mode, newest first: what was created before `page.after`.
    pub fn exports_of(
        &self,
        tenant_id: TenantId,
        project_id: ProjectId,
        mode: Mode,
        page: ListPage,
    ) -> Answer<'_, Vec<Export>> {
        self.read(move |db| {
            let mut params =
                vec![tenant_id.into(), project_id.into(), mode.as_str().into(), page.limit.into()];
            let scope = "tenant_id = ?1 AND project_id = ?2 AND mode = ?3";
            let mut sql = format!("{} WHERE {scope}", EXPORTS.select);
            if let Some(after) = page.after {
                params.push(Value::from(after));
                sql.push_str(&format!(
                    " AND number < (SELECT number FROM {{exports}} WHERE id = ?5 AND {scope})"
                ));
            }
            sql.push_str(" ORDER BY number DESC LIMIT ?4");
            all(db, &sql, &params, read)
        })
    }

    /// Notes what a complete download came to, unless that is known. What is known then.
    pub fn complete_export(&self, id: ExportId, totals: ExportTotals) -> Answer<'_, Option<ExportTotals>> {
        self.change(Lock::None, move |db| {
            let ExportTotals { rows, bytes, sha256, at_ms } = totals;
            // Of two downloads that end at once the second waits for the row, and then finds it noted.
            let sql =
                "UPDATE {exports} SET row_count = ?2, byte_count = ?3, sha256 = ?4, completed_at_ms = ?5
                       WHERE id = ?1 AND completed_at_ms IS NULL";
            db.execute(sql, params![id, rows, bytes, sha256, at_ms])?;
            Ok(find(db, id)?.and_then(|export| export.totals))
        })
    }
}

crate::db::id!(ExportId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExport {
    pub id: ExportId,
    pub tenant_id: TenantId,
    /// May be that of a system chain.
    pub project_id: ProjectId,
    pub mode: Mode,
    /// Who asked for it.
    pub person_id: PersonId,
    /// In a form that those know who write it.
    pub format: String,
    /// The filters, form-encoded.
    pub query: String,
    /// The time that it covers: by its filters, and by what the person was granted.
    pub from_ms: Option<u64>,
    pub until_ms: Option<u64>,
    /// Both included; a range without events ends below its beginning.
    pub first_seq: u64,
    pub last_seq: u64,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub new: NewExport,
    /// Nothing until it was downloaded whole.
    pub totals: Option<ExportTotals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportTotals {
    pub rows: u64,
    pub bytes: u64,
    pub sha256: Hash,
    pub at_ms: u64,
}

const EXPORTS: Table = table!(
    "exports",
    "id",
    "id, tenant_id, project_id, mode, person_id, format, query, from_ms, until_ms, first_seq, \
     last_seq, created_at_ms, row_count, byte_count, sha256, completed_at_ms"
);

fn insert(db: &mut dyn Db, export: &Export) -> Result<(), DbError> {
    let (new, totals) = (&export.new, export.totals);
    let params = params![
        new.id,
        new.tenant_id,
        new.project_id,
        new.mode.as_str(),
        new.person_id,
        &new.format,
        &new.query,
        new.from_ms,
        new.until_ms,
        new.first_seq,
        new.last_seq,
        new.created_at_ms,
        totals.map(|totals| totals.rows),
        totals.map(|totals| totals.bytes),
        totals.map(|totals| totals.sha256),
        totals.map(|totals| totals.at_ms),
    ];
    EXPORTS.insert(db, params, "").map(drop)
}

fn oldest_done(db: &mut dyn Db, tenant_id: TenantId) -> Result<Option<Export>, DbError> {
    let scope = "tenant_id = ?1 AND completed_at_ms IS NOT NULL";
    let sql = format!("{} WHERE {scope} ORDER BY number LIMIT 1", EXPORTS.select);
    one(db, &sql, params![tenant_id], read)
}

fn find(db: &mut dyn Db, id: ExportId) -> Result<Option<Export>, DbError> {
    one(db, &format!("{} WHERE id = ?1", EXPORTS.select), params![id], read)
}

fn read(row: &Row) -> Result<Export, DbError> {
    let (rows, bytes): (Option<u64>, Option<u64>) = (row.get("row_count")?, row.get("byte_count")?);
    let (sha256, at_ms): (Option<Hash>, Option<u64>) = (row.get("sha256")?, row.get("completed_at_ms")?);
    let totals = match (rows, bytes, sha256, at_ms) {
        (Some(rows), Some(bytes), Some(sha256), Some(at_ms)) => {
            Some(ExportTotals { rows, bytes, sha256, at_ms })
        }
        _ => None,
    };
    let new = NewExport {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        project_id: row.get("project_id")?,
        mode: row.word("mode", &Mode::ALL, Mode::as_str)?,
        person_id: row.get("person_id")?,
        format: row.get("format")?,
        query: row.get("query")?,
        from_ms: row.get("from_ms")?,
        until_ms: row.get("until_ms")?,
        first_seq: row.get("first_seq")?,
        last_seq: row.get("last_seq")?,
        created_at_ms: row.get("created_at_ms")?,
    };
    Ok(Export { new, totals })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Export>, DbError> {
    EXPORTS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, exports: &[Export]) -> Result<(), DbError> {
    exports.iter().try_for_each(|export| insert(db, export))
}
