//! Browsers that people have signed in with. A browser keeps a random cookie; here is its digest.

use sealog_core::id::Hash;
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, count, params};
use crate::outbox::{self, NewNotice};
use crate::person::PersonId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub person_id: PersonId,
    pub digest: Hash,
    pub created_at_ms: u64,
    pub last_seen_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSeen {
    Known,
    /// There is none to compare it with.
    First,
    /// The notice is in the outbox.
    New,
}

impl Control {
    /// Notes that a person has signed in with a browser. A person has at most `most` of them: the one that
    /// was not used for the longest is forgotten. `notice` is put into the outbox if the person has others
    /// and this one is new.
    pub fn signed_in_with(&self, device: Device, most: u64, notice: NewNotice) -> Answer<'_, DeviceSeen> {
        self.change_in(Room::Ordinary, Lock::None, move |db| {
            let Device { person_id, digest, last_seen_at_ms, .. } = device;
            let sql = "UPDATE {devices} SET last_seen_at_ms = ?3 WHERE person_id = ?1 AND digest = ?2";
            if db.execute(sql, params![person_id, digest, last_seen_at_ms])? > 0 {
                return Ok(DeviceSeen::Known);
            }
            let known = count(db, COUNT, params![person_id])?;
            insert(db, &device)?;
            if known >= most {
                let sql = "DELETE FROM {devices} WHERE person_id = ?1 AND digest NOT IN
                           (SELECT digest FROM {devices} WHERE person_id = ?1 ORDER BY last_seen_at_ms DESC, digest LIMIT ?2)";
                db.execute(sql, params![person_id, most])?;
            }
            if known == 0 {
                return Ok(DeviceSeen::First);
            }
            outbox::enqueue(db, notice)?;
            Ok(DeviceSeen::New)
        })
    }

    /// Whether the person has signed in with this browser before.
    pub fn knows_device(&self, person_id: PersonId, digest: Hash) -> Answer<'_, bool> {
        self.read_for(Payer::Stranger, move |db| {
            let sql = "SELECT count(*) AS count FROM {devices} WHERE person_id = ?1 AND digest = ?2";
            Ok(count(db, sql, params![person_id, digest])? > 0)
        })
    }
}

const COUNT: &str = "SELECT count(*) AS count FROM {devices} WHERE person_id = ?1";

fn insert(db: &mut dyn Db, device: &Device) -> Result<(), DbError> {
    let Device { person_id, digest, created_at_ms, last_seen_at_ms } = device;
    // A browser that signs in twice at once is one.
    let sql =
        "INSERT INTO {devices} (person_id, digest, created_at_ms, last_seen_at_ms) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (person_id, digest) DO NOTHING";
    db.execute(sql, params![*person_id, *digest, *created_at_ms, *last_seen_at_ms]).map(drop)
}

fn read(row: &Row) -> Result<Device, DbError> {
    Ok(Device {
        person_id: row.get("person_id")?,
        digest: row.get("digest")?,
        created_at_ms: row.get("created_at_ms")?,
        last_seen_at_ms: row.get("last_seen_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Device>, DbError> {
    let sql =
        "SELECT person_id, digest, created_at_ms, last_seen_at_ms FROM {devices} ORDER BY person_id, digest";
    all(db, sql, &[], read)
}

pub(crate) fn import(db: &mut dyn Db, devices: &[Device]) -> Result<(), DbError> {
    devices.iter().try_for_each(|device| insert(db, device))
}
