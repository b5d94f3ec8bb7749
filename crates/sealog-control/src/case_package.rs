//! Packages of cases: what was handed out, kept in pieces until it expires. The record, its digest and its
//! manifest stay.
//!
//! A package is made by a job, which may have to begin again. Each attempt has pieces of its own, and the one
//! that is finished first is the package.

use sealog_core::id::{Hash, TenantId};

use crate::case_found::{self, SearchId, last_done};
use crate::case_record::{self, CaseId};
use crate::case_words::CaseState;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, Table, Value, all, one, params, readable, table};
use crate::job::{self, JobId, NewJob};
use crate::membership::Grants;
use crate::person::PersonId;
use crate::record::{self, NewRecord};

crate::db::id!(PackageId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCasePackage {
    pub id: PackageId,
    pub tenant_id: TenantId,
    pub case_id: CaseId,
    pub person_id: PersonId,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CasePackage {
    pub new: NewCasePackage,
    pub search_id: SearchId,
    pub job_id: JobId,
    /// Of the decisions that it was made from: `Review::mark`.
    pub review: u64,
    /// That are disclosed in it.
    pub events: u64,
    pub built: Option<(u64, PackageBuilt)>,
    pub dropped_at_ms: Option<u64>,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageBuilt {
    pub bytes: u64,
    pub sha256: Hash,
    /// JSON.
    pub manifest: String,
    /// Where each file lies, in a form that those know who write it.
    pub entries: String,
    pub at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageCreated {
    Done(Box<CasePackage>),
    /// The case is in this state, in which nothing is disclosed.
    Locked(CaseState),
    NotIdentified,
    /// There is no search that has ended, or so many events are not decided.
    Undecided(Option<u64>),
    /// The tenant has so many under way.
    TooMany,
    Missing,
}

impl Control {
    /// Queues the job along with it, if the identity is confirmed, the case is in one of `states`, and
    /// nothing is left to decide.
    pub fn create_package(
        &self,
        new: NewCasePackage,
        states: &'static [CaseState],
        job: NewJob,
        unended_max: usize,
        records: Vec<NewRecord>,
    ) -> Answer<'_, PackageCreated> {
        let room = self.tenant_room();
        self.change(Lock::Order, move |db| {
            let Some(case) = case_record::find(db, new.tenant_id, new.case_id)? else {
                return Ok(PackageCreated::Missing);
            };
            if !case.is_identity_confirmed() {
                return Ok(PackageCreated::NotIdentified);
            }
            if !states.contains(&case.state) {
                return Ok(PackageCreated::Locked(case.state));
            }
            let Some(search_id) = last_done(db, case.id)? else {
                return Ok(PackageCreated::Undecided(None));
            };
            let review = case_found::review(db, search_id, &Grants::default())?;
            if review.open > 0 {
                return Ok(PackageCreated::Undecided(Some(review.open)));
            }
            let Some(job) = job::queue(db, job, unended_max, &records)? else {
                return Ok(PackageCreated::TooMany);
            };
            let package = CasePackage {
                new,
                search_id,
                job_id: job.id,
                review: review.mark,
                events: review.included,
                built: None,
                dropped_at_ms: None,
            };
            insert(db, &package)?;
            room.check(db, package.new.tenant_id)?;
            Ok(PackageCreated::Done(Box::new(package)))
        })
    }

    pub fn case_package(&self, id: PackageId) -> Answer<'_, Option<CasePackage>> {
        self.read(move |db| find(db, id))
    }

    /// Newest first.
    pub fn case_packages(
        &self,
        tenant_id: TenantId,
        id: CaseId,
        limit: usize,
    ) -> Answer<'_, Vec<CasePackage>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE case_id = ?1 AND tenant_id = ?2 ORDER BY number DESC LIMIT ?3",
                PACKAGES.select
            );
            all(db, &sql, params![id, tenant_id, limit], read)
        })
    }

    /// Whether the package still waits for it. Refused while the disk has no room to spare.
    pub fn add_package_piece(
        &self,
        id: PackageId,
        attempt: u64,
        piece: u64,
        content: Vec<u8>,
    ) -> Answer<'_, bool> {
        // It is in the write-ahead log first, and in the file later.
        self.change_bulky(2 * content.len() as u64, move |db| {
            if find(db, id)?.is_none_or(|package| package.built.is_some() || package.dropped_at_ms.is_some()) {
                return Ok(false);
            }
            let sql = "INSERT INTO {case_package_pieces} (package_id, attempt, piece, content) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (package_id, attempt, piece) DO UPDATE SET content = excluded.content";
            db.execute(sql, params![id, attempt, piece, Value::Bytes(content)])?;
            Ok(true)
        })
    }

    /// Whether it was the first attempt to be finished.
    pub fn finish_package(&self, id: PackageId, attempt: u64, built: PackageBuilt) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let PackageBuilt { bytes, sha256, manifest, entries, at_ms } = built;
            let sql = "UPDATE {case_packages} SET attempt = ?2, byte_count = ?3, sha256 = ?4, manifest = ?5, entries = ?6, built_at_ms = ?7
                       WHERE id = ?1 AND built_at_ms IS NULL AND dropped_at_ms IS NULL";
            Ok(db.execute(sql, params![id, attempt, bytes, sha256, manifest, entries, at_ms])? > 0)
        })
    }

    pub fn package_piece(&self, id: PackageId, attempt: u64, piece: u64) -> Answer<'_, Option<Vec<u8>>> {
        self.read(move |db| {
            let sql = "SELECT content FROM {case_package_pieces} WHERE package_id = ?1 AND attempt = ?2 AND piece = ?3";
            one(db, sql, params![id, attempt, piece], |row| row.get("content"))
        })
    }

    /// Gives up one that is not finished. Whether it was not.
    pub fn abandon_package(&self, id: PackageId, now_ms: u64) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let sql = "UPDATE {case_packages} SET dropped_at_ms = ?2 WHERE id = ?1 AND built_at_ms IS NULL AND dropped_at_ms IS NULL";
            Ok(db.execute(sql, params![id, now_ms])? > 0)
        })
    }

    /// Those whose time is over and that are still kept, oldest first.
    pub fn expired_packages(&self, now_ms: u64, limit: usize) -> Answer<'_, Vec<CasePackage>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE dropped_at_ms IS NULL AND expires_at_ms <= ?1 ORDER BY expires_at_ms, number LIMIT ?2",
                PACKAGES.select
            );
            readable(db, &sql, params![now_ms, limit], read)
        })
    }

    /// Whether it was kept: from here on it cannot be downloaded.
    pub fn drop_package(&self, id: PackageId, now_ms: u64, records: Vec<NewRecord>) -> Answer<'_, bool> {
        self.change_in(Room::Reserve, Lock::Order, move |db| {
            let sql = "UPDATE {case_packages} SET dropped_at_ms = ?2 WHERE id = ?1 AND dropped_at_ms IS NULL";
            let dropped = db.execute(sql, params![id, now_ms])? > 0;
            if let Some(package) = find(db, id)?.filter(|_| dropped) {
                record::insert(db, package.new.tenant_id, &records)?;
            }
            Ok(dropped)
        })
    }

    /// Removes pieces of no use: of packages that were dropped, and of attempts that were not the first. How
    /// many; fewer than asked for means that there are no more.
    pub fn remove_pieces(&self, limit: usize) -> Answer<'_, u64> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            let sql = "DELETE FROM {case_package_pieces} WHERE (package_id, attempt, piece) IN (
                           SELECT pieces.package_id, pieces.attempt, pieces.piece
                           FROM {case_packages} AS packages JOIN {case_package_pieces} AS pieces ON pieces.package_id = packages.id
                           WHERE packages.dropped_at_ms IS NOT NULL OR (packages.built_at_ms IS NOT NULL AND pieces.attempt <> packages.attempt)
                           LIMIT ?1)";
            db.execute(sql, params![limit])
        })
    }
}

const PACKAGES: Table = table!(
    "case_packages",
    "id",
    "id, tenant_id, case_id, search_id, job_id, person_id, review, events, attempt, byte_count, \
     sha256, manifest, entries, created_at_ms, built_at_ms, expires_at_ms, dropped_at_ms"
);

fn insert(db: &mut dyn Db, package: &CasePackage) -> Result<(), DbError> {
    let (new, built) = (&package.new, package.built.as_ref());
    let params = params![
        new.id,
        new.tenant_id,
        new.case_id,
        package.search_id,
        package.job_id,
        new.person_id,
        package.review,
        package.events,
        built.map(|(attempt, _)| *attempt),
        built.map(|(_, built)| built.bytes),
        built.map(|(_, built)| built.sha256),
        built.map(|(_, built)| built.manifest.clone()),
        built.map(|(_, built)| built.entries.clone()),
        new.created_at_ms,
        built.map(|(_, built)| built.at_ms),
        new.expires_at_ms,
        package.dropped_at_ms,
    ];
    PACKAGES.insert(db, params, "").map(drop)
}

fn find(db: &mut dyn Db, id: PackageId) -> Result<Option<CasePackage>, DbError> {
    one(db, &format!("{} WHERE id = ?1", PACKAGES.select), params![id], read)
}

fn read(row: &Row) -> Result<CasePackage, DbError> {
    let built = match row.get::<Option<u64>>("built_at_ms")? {
        None => None,
        Some(at_ms) => {
            let built = PackageBuilt {
                bytes: row.get("byte_count")?,
                sha256: row.get("sha256")?,
                manifest: row.get("manifest")?,
                entries: row.get("entries")?,
                at_ms,
            };
            Some((row.get("attempt")?, built))
        }
    };
    Ok(CasePackage {
        new: NewCasePackage {
            id: row.get("id")?,
            tenant_id: row.get("tenant_id")?,
            case_id: row.get("case_id")?,
            person_id: row.get("person_id")?,
            created_at_ms: row.get("created_at_ms")?,
            expires_at_ms: row.get("expires_at_ms")?,
        },
        search_id: row.get("search_id")?,
        job_id: row.get("job_id")?,
        review: row.get("review")?,
        events: row.get("events")?,
        built,
        dropped_at_ms: row.get("dropped_at_ms")?,
    })
}

/// Without their pieces: those are made from events and decisions again, and a copy in memory has no room for
/// them.
pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<CasePackage>, DbError> {
    PACKAGES.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, packages: &[CasePackage]) -> Result<(), DbError> {
    packages.iter().try_for_each(|package| insert(db, package))
}
