//! What the signed log of this store is, kept apart from it: where the log is gone, this says that there was
//! one, so that no start begins another as if there had never been any.

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, one, params};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLog {
    pub origin: String,
    /// What its checkpoints are verified with.
    pub vkey: String,
    /// Entries that were signed when this was written.
    pub size: u64,
}

impl Control {
    /// Returns the newest log that this store is known to have had.
    pub fn known_log(&self) -> Answer<'_, Option<KnownLog>> {
        self.read(export)
    }

    pub fn know_log(&self, log: KnownLog) -> Answer<'_, ()> {
        self.change(Lock::Order, move |db| put(db, &log))
    }
}

fn put(db: &mut dyn Db, KnownLog { origin, vkey, size }: &KnownLog) -> Result<(), DbError> {
    let sql = "INSERT INTO {known_log} (id, origin, vkey, size) VALUES (1, ?1, ?2, ?3)
               ON CONFLICT (id) DO UPDATE SET origin = excluded.origin, vkey = excluded.vkey, size = excluded.size";
    db.execute(sql, params![origin, vkey, *size]).map(drop)
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Option<KnownLog>, DbError> {
    one(db, "SELECT origin, vkey, size FROM {known_log}", &[], |row| {
        Ok(KnownLog { origin: row.get("origin")?, vkey: row.get("vkey")?, size: row.get("size")? })
    })
}

pub(crate) fn import(db: &mut dyn Db, log: Option<&KnownLog>) -> Result<(), DbError> {
    log.map_or(Ok(()), |log| put(db, log))
}
