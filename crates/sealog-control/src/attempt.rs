//! How often somebody has tried to sign in, counted here so that several nodes count together.
//!
//! Counts are kept for a window of time that begins with the first attempt, and then forgotten. They are no
//! part of a copy.

use sealog_core::id::Hash;
use sealog_store::pool::Payer;

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Room, Row, all, one, params};

impl Control {
    /// Counts an attempt for each of these subjects (digests of an account, of an address), before it is
    /// made: attempts at the same time are all counted. How many there were in the window of each, with this
    /// one. `Err(NoRoom)` on a full disk.
    pub fn count_attempt(
        &self,
        subjects: Vec<Hash>,
        now_ms: u64,
        window_ms: u64,
    ) -> Answer<'_, Vec<Counted>> {
        // Anybody can make rows of it. Where they are refused, whoever asks counts in memory.
        self.change_for_in(Payer::Stranger, Room::Ordinary, Lock::None, move |db| {
            // A few at a time: whoever tries a million names leaves no more than that to clean up at once.
            let over = "SELECT subject FROM {attempts} WHERE ends_at_ms <= ?1 ORDER BY ends_at_ms LIMIT 8";
            let mut ordered = all(db, over, params![now_ms], |row| row.get("subject"))?;
            ordered.extend(&subjects);
            // In one order on every node, those that are cleaned up among those that are counted, so that two
            // nodes never wait for each other.
            ordered.sort_unstable_by_key(|subject: &Hash| subject.0);
            ordered.dedup();
            for subject in ordered {
                if subjects.contains(&subject) {
                    add(db, subject, now_ms, now_ms.saturating_add(window_ms))?;
                } else {
                    let sql = "DELETE FROM {attempts} WHERE subject = ?1 AND ends_at_ms <= ?2";
                    db.execute(sql, params![subject, now_ms])?;
                }
            }
            subjects.iter().map(|subject| counted(db, *subject)).collect()
        })
    }

    /// Forgets a subject's: the attempt was right.
    pub fn forget_attempts(&self, subject: Hash) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            db.execute("DELETE FROM {attempts} WHERE subject = ?1", params![subject]).map(drop)
        })
    }

    /// Takes one attempt of a subject back: it was right, and the others stay counted. On a full disk, too:
    /// an owner who signs in there has been counted earlier that day.
    pub fn take_back_attempt(&self, subject: Hash) -> Answer<'_, ()> {
        self.change_in(Room::Reserve, Lock::None, move |db| {
            let sql = "UPDATE {attempts} SET attempts = attempts - 1 WHERE subject = ?1 AND attempts > 0";
            db.execute(sql, params![subject]).map(drop)
        })
    }
}

/// Attempts of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub attempts: u64,
    /// When they are forgotten.
    pub ends_at_ms: u64,
}

fn counted(db: &mut dyn Db, subject: Hash) -> Result<Counted, DbError> {
    let sql = "SELECT attempts, ends_at_ms FROM {attempts} WHERE subject = ?1";
    let read = |row: &Row| Ok(Counted { attempts: row.get("attempts")?, ends_at_ms: row.get("ends_at_ms")? });
    Ok(one(db, sql, params![subject], read)?.unwrap_or(Counted { attempts: 0, ends_at_ms: 0 }))
}

fn add(db: &mut dyn Db, subject: Hash, now_ms: u64, ends_at_ms: u64) -> Result<(), DbError> {
    let sql = "INSERT INTO {attempts} (subject, attempts, ends_at_ms) VALUES (?1, 1, ?3)
               ON CONFLICT (subject) DO UPDATE SET
                   attempts = CASE WHEN attempts.ends_at_ms <= ?2 THEN 1 ELSE attempts.attempts + 1 END,
                   ends_at_ms = CASE WHEN attempts.ends_at_ms <= ?2 THEN ?3 ELSE attempts.ends_at_ms END";
    db.execute(sql, params![subject, now_ms, ends_at_ms]).map(drop)
}
