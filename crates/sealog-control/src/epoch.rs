//! The epoch of a store: how often a copy of it was promoted. Of two servers that both believe to be the
//! primary, the one with the lower epoch is the old one.
//!
//! What a peer has told is kept, too: an old primary that is started again while its peer is away would
//! accept events once more, and nothing that it acknowledged would be in the new history.

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, one, params};

/// Both are 0 in a store that was never promoted and knows of no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    pub own: u64,
    /// The highest that a peer has told.
    pub seen: u64,
}

impl Epochs {
    /// The epoch that has taken this store's place, if one has.
    pub fn superseded_by(self) -> Option<u64> {
        (self.seen > self.own).then_some(self.seen)
    }
}

impl Control {
    pub fn epochs(&self) -> Answer<'_, Epochs> {
        self.read(find)
    }

    /// Keeps what a peer has told, if it is higher than anything before. Also on a full disk: a fence that
    /// needs room would be missing when it counts.
    pub fn see_epoch(&self, seen: u64) -> Answer<'_, Epochs> {
        self.change_in(Room::Reserve, Lock::Order, move |db| {
            let known = find(db)?;
            let epochs = Epochs { seen: known.seen.max(seen), ..known };
            if epochs != known {
                put(db, epochs)?;
            }
            Ok(epochs)
        })
    }

    /// Makes this store the newest of all that it knows of.
    pub fn raise_epoch(&self) -> Answer<'_, u64> {
        self.change(Lock::Order, move |db| {
            let Epochs { own, seen } = find(db)?;
            let raised = own.max(seen) + 1;
            put(db, Epochs { own: raised, seen })?;
            Ok(raised)
        })
    }
}

fn find(db: &mut dyn Db) -> Result<Epochs, DbError> {
    let sql = "SELECT own, seen FROM {epochs}";
    let found = one(db, sql, &[], |row| Ok(Epochs { own: row.get("own")?, seen: row.get("seen")? }))?;
    Ok(found.unwrap_or_default())
}

fn put(db: &mut dyn Db, Epochs { own, seen }: Epochs) -> Result<(), DbError> {
    let sql = "INSERT INTO {epochs} (id, own, seen) VALUES (1, ?1, ?2)
               ON CONFLICT (id) DO UPDATE SET own = excluded.own, seen = excluded.seen";
    db.execute(sql, params![own, seen]).map(drop)
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Epochs, DbError> {
    find(db)
}

pub(crate) fn import(db: &mut dyn Db, epochs: Epochs) -> Result<(), DbError> {
    if epochs == Epochs::default() { Ok(()) } else { put(db, epochs) }
}
