//! Browsers that accounts have signed in with. A browser keeps a random cookie; here is its digest.

use sealog_core::id::{Hash, Uuid};
use sealog_store::pool::Payer;

use crate::account::{Account, of, uuid};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, count, params};
use crate::outbox::{self, NewNotice};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device<A: Account> {
    pub account_id: A::Id,
    pub digest: Hash,
    pub created_at_ms: u64,
    pub last_seen_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSeen {
    Known,
    /// There is none to compare it with.
    First,
    /// The notice, if there is one, is in the outbox.
    New,
}

impl Control {
    /// Notes that an account has signed in with a browser. An account has at most `most` of them: the one
    /// that was unused for the longest is forgotten. `notice` is put into the outbox if the account has
    /// others and this one is new.
    pub fn signed_in_with<A: Account>(
        &self,
        device: Device<A>,
        most: u64,
        notice: Option<NewNotice>,
    ) -> Answer<'_, DeviceSeen> {
        self.change_in(Room::Ordinary, Lock::None, move |db| {
            let Device { account_id, digest, last_seen_at_ms, .. } = device;
            let sql = of::<A>("UPDATE {devices} SET last_seen_at_ms = ?3 WHERE {owner} = ?1 AND digest = ?2");
            if db.execute(&sql, params![uuid(account_id), digest, last_seen_at_ms])? > 0 {
                return Ok(DeviceSeen::Known);
            }
            let sql = of::<A>("SELECT count(*) AS count FROM {devices} WHERE {owner} = ?1");
            let known = count(db, &sql, params![uuid(account_id)])?;
            insert(db, &device)?;
            if known >= most {
                let sql = of::<A>("DELETE FROM {devices} WHERE {owner} = ?1 AND digest NOT IN
                     (SELECT digest FROM {devices} WHERE {owner} = ?1 ORDER BY last_seen_at_ms DESC, digest LIMIT ?2)");
                db.execute(&sql, params![uuid(account_id), most])?;
            }
            if known == 0 {
                return Ok(DeviceSeen::First);
            }
            notice.map_or(Ok(()), |notice| outbox::enqueue(db, notice).map(drop))?;
            Ok(DeviceSeen::New)
        })
    }

    /// Whether the account has signed in with this browser before.
    pub fn knows_device<A: Account>(&self, id: A::Id, digest: Hash) -> Answer<'_, bool> {
        self.read_for(Payer::Stranger, move |db| {
            let sql = of::<A>("SELECT count(*) AS count FROM {devices} WHERE {owner} = ?1 AND digest = ?2");
            Ok(count(db, &sql, params![uuid(id), digest])? > 0)
        })
    }
}

pub(crate) fn forget<A: Account>(db: &mut dyn Db, id: A::Id) -> Result<(), DbError> {
    db.execute(&of::<A>("DELETE FROM {devices} WHERE {owner} = ?1"), params![uuid(id)]).map(drop)
}

fn insert<A: Account>(db: &mut dyn Db, device: &Device<A>) -> Result<(), DbError> {
    let Device { account_id, digest, created_at_ms, last_seen_at_ms } = device;
    // A browser that signs in twice at once is one.
    let sql = of::<A>(
        "INSERT INTO {devices} ({owner}, digest, created_at_ms, last_seen_at_ms) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT ({owner}, digest) DO NOTHING",
    );
    db.execute(&sql, params![uuid(*account_id), *digest, *created_at_ms, *last_seen_at_ms]).map(drop)
}

fn read<A: Account>(row: &Row) -> Result<Device<A>, DbError> {
    Ok(Device {
        account_id: row.get::<Uuid>("account_id")?.into(),
        digest: row.get("digest")?,
        created_at_ms: row.get("created_at_ms")?,
        last_seen_at_ms: row.get("last_seen_at_ms")?,
    })
}

pub(crate) fn export<A: Account>(db: &mut dyn Db) -> Result<Vec<Device<A>>, DbError> {
    let sql = of::<A>(
        "SELECT {owner} AS account_id, digest, created_at_ms, last_seen_at_ms FROM {devices} ORDER BY {owner}, digest",
    );
    all(db, &sql, &[], read)
}

pub(crate) fn import<A: Account>(db: &mut dyn Db, devices: &[Device<A>]) -> Result<(), DbError> {
    devices.iter().try_for_each(|device| insert(db, device))
}
