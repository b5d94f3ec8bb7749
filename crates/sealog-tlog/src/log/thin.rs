//! Thinning: every snapshot is kept for 3 days, then the last of each hour for 90 days, then the last of each
//! day. Entries of the log are never thinned, so a snapshot that was stays provable as an entry; its heads
//! are not.

use sealog_control::db::{Db, DbError, all, one, params};
use sealog_control::{Room, db::Lock};
use sealog_store::StoreError;

use super::store_log::StoreLog;

const HOUR_MS: u64 = 3600 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Step, length of what is thinned to one snapshot, age from which it is.
const STEPS: [(u64, u64, u64); 2] = [(0, HOUR_MS, 3 * DAY_MS), (1, DAY_MS, 90 * DAY_MS)];

impl StoreLog {
    /// Thins one hour to its last snapshot, and one day. Returns true if there may be more to thin. A call
    /// removes at most the snapshots of one hour or day, and their heads.
    pub fn thin(&self, now_ms: u64) -> Result<bool, StoreError> {
        self.database.change_in(Room::InPlace, Lock::None, |db, _| {
            let mut did = false;
            for (step, length_ms, age_ms) in STEPS {
                did |= thin_one(db, step, length_ms, now_ms.saturating_sub(age_ms))?;
            }
            Ok(did)
        })
    }
}

/// Thins the oldest hour or day that ended before a time.
fn thin_one(db: &mut dyn Db, step: u64, length_ms: u64, before_ms: u64) -> Result<bool, DbError> {
    let sql = "SELECT log, time_ms FROM {snapshots} WHERE kept = ?1 ORDER BY time_ms, log, idx LIMIT 1";
    let oldest = one(db, sql, params![step], |row| Ok((row.get::<u64>("log")?, row.get::<u64>("time_ms")?)))?;
    let Some((log, time_ms)) = oldest else { return Ok(false) };
    let begin_ms = time_ms / length_ms * length_ms;
    let end_ms = begin_ms + length_ms;
    if end_ms > before_ms {
        return Ok(false);
    }
    let sql = "SELECT idx FROM {snapshots} WHERE kept = ?1 AND log = ?2 AND time_ms >= ?3 AND time_ms < ?4 ORDER BY idx";
    let found = all(db, sql, params![step, log, begin_ms, end_ms], |row| row.get::<u64>("idx"))?;
    let (Some(first), Some(last)) = (found.first(), found.last()) else { return Ok(false) };
    // A head stays if it is the last of its chain up to the snapshot that is kept.
    let sql = "DELETE FROM {heads} WHERE log = ?1 AND idx >= ?2 AND idx < ?3 AND EXISTS (
                   SELECT 1 FROM {heads} l WHERE l.chain = {heads}.chain AND l.log = ?1
                       AND l.idx > {heads}.idx AND l.idx <= ?3)";
    db.execute(sql, params![log, *first, *last])?;
    let sql = "DELETE FROM {checkpoints} WHERE log = ?1 AND size > ?2 AND size <= ?3";
    db.execute(sql, params![log, *first, *last])?;
    let sql = "DELETE FROM {snapshots} WHERE kept = ?1 AND log = ?2 AND idx >= ?3 AND idx < ?4";
    db.execute(sql, params![step, log, *first, *last])?;
    let sql = "UPDATE {snapshots} SET kept = ?1 WHERE log = ?2 AND idx = ?3";
    db.execute(sql, params![step + 1, log, *last])?;
    Ok(true)
}
