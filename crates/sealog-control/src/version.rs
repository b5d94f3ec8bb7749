//! Cache invalidation: how often a tenant's data has changed, so that a cached answer is known to be stale,
//! and a change of one tenant invalidates no other tenant's.
//!
//! Every process counts for itself what it has heard of. What it changes itself it counts at once; on
//! PostgreSQL it hears of the others by the version in the store's shared row, at which every node looks
//! several times a second. Only when that has grown are the tenants read whose own version is newer than what
//! was last read: t0: a node holds the row, counts it up to v, makes its change, and writes v beside the
//! tenant. t1: it commits. t2: another node sees v in the row, and reads all tenants above the version it saw
//! before. Versions commit in their order, since the row is held, so none below v can appear after t2.
//!
//! In doubt everything is invalidated: when the version has gone back or the connection was made anew (a
//! failover may have lost changes and given their versions out again), and when the tenants cannot be read in
//! time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use sealog_core::id::TenantId;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::postgres::SharedVersion;
use sealog_store::sync::{read, write};
use tokio::sync::watch;

use crate::database::{COST, Database};
use crate::db::{Db, DbError, all, params};

/// How long to wait for the tenants that have changed. With the time between two looks at the version it is
/// less than the second within which a revoked key must be refused on every node.
const READ_MAX: Duration = Duration::from_millis(600);

#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// Grows with every change of any tenant that this process hears of.
    latest: AtomicU64,
    changed: RwLock<Changed>,
}

#[derive(Debug, Default)]
struct Changed {
    /// With the version in the database, if it has one.
    tenants: HashMap<TenantId, (u64, Option<u64>)>,
    /// When everything was replaced.
    all: u64,
}

impl Versions {
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::SeqCst)
    }

    /// The count at which a tenant last changed, 0 if it never did.
    pub(crate) fn of(&self, tenant_id: TenantId) -> u64 {
        let changed = read(&self.changed);
        changed.tenants.get(&tenant_id).map_or(0, |(at, _)| *at).max(changed.all)
    }

    /// Counts a change of these tenants, except those of whom this very version is known. One that is lower
    /// counts, too: after a failover that lost changes, versions are given out again.
    pub(crate) fn note(&self, tenants: impl IntoIterator<Item = (TenantId, Option<u64>)>) {
        let mut changed = write(&self.changed);
        let next = self.latest() + 1;
        let mut noted = false;
        for (tenant_id, version) in tenants {
            let known = changed.tenants.get(&tenant_id).and_then(|(_, known)| *known);
            if version.is_none() || version != known {
                changed.tenants.insert(tenant_id, (next, version.or(known)));
                noted = true;
            }
        }
        // Behind the tenants: whoever sees the new count finds what it stands for.
        if noted {
            self.latest.store(next, Ordering::SeqCst);
        }
    }

    pub(crate) fn note_all(&self) {
        let mut changed = write(&self.changed);
        changed.all = self.latest() + 1;
        self.latest.store(changed.all, Ordering::SeqCst);
    }
}

/// Writes beside the tenant which version its change is. Only PostgreSQL has the column: elsewhere there are
/// no other nodes.
pub(crate) fn touch(db: &mut dyn Db, tenant_id: TenantId, version: u64) -> Result<(), DbError> {
    db.execute("UPDATE {tenants} SET version = ?2 WHERE id = ?1", params![tenant_id, version]).map(drop)
}

pub(crate) fn touch_all(db: &mut dyn Db, version: u64) -> Result<(), DbError> {
    db.execute("UPDATE {tenants} SET version = ?1", params![version]).map(drop)
}

fn changed_since(db: &mut dyn Db, version: u64) -> Result<Vec<(TenantId, Option<u64>)>, DbError> {
    let sql = "SELECT id, version FROM {tenants} WHERE version > ?1";
    all(db, sql, params![version], |row| Ok((row.get("id")?, Some(row.get("version")?))))
}

/// Hears of what other nodes have changed, until the control data or the store is closed.
pub(crate) async fn follow(
    mut seen: watch::Receiver<SharedVersion>,
    database: Weak<Database>,
    pool: Weak<ThreadPool>,
    versions: Arc<Versions>,
    at_start: SharedVersion,
) {
    let mut known = *seen.borrow_and_update();
    // Whoever begins anew after a panic does not know what was changed meanwhile: that may be a revoked key.
    if known != at_start {
        versions.note_all();
    }
    while seen.changed().await.is_ok() {
        let now = *seen.borrow_and_update();
        let (Some(database), Some(pool)) = (database.upgrade(), pool.upgrade()) else { return };
        let is_later = now.connection == known.connection && now.version >= known.version;
        let since = std::mem::replace(&mut known, now).version;
        if !is_later {
            tracing::info!("reconnected to the database; invalidated all cached callers");
            versions.note_all();
            continue;
        }
        let changed = pool.run(Payer::Operator, COST, move || database.read(|db| changed_since(db, since)));
        // Not held while waiting: whoever closes waits for the pool's threads, not for this.
        drop(pool);
        match tokio::time::timeout(READ_MAX, changed).await {
            Ok(Ok(Ok(changed))) => versions.note(changed),
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, "failed to read changed tenants; invalidated all cached callers");
                versions.note_all();
            }
            Err(_) => {
                tracing::warn!("timed out reading changed tenants; invalidated all cached callers");
                versions.note_all();
            }
            // The read has panicked; or this is being closed, which shows at the next look.
            Ok(Err(_)) => versions.note_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    #[test]
    fn a_change_counts_for_its_tenant_alone_and_once_however_often_it_is_heard_of() {
        let [a, b] = [1, 2].map(|n| TenantId(Uuid([n; 16])));
        let versions = Versions::default();
        let all = || (versions.latest(), versions.of(a), versions.of(b));
        assert_eq!(all(), (0, 0, 0));
        versions.note([(a, Some(7))]);
        assert_eq!(all(), (1, 1, 0));
        // The database tells of it, too; and then of one that another node has made before, and of a later
        // one.
        versions.note([(a, Some(7))]);
        versions.note([(b, Some(6)), (a, Some(7))]);
        assert_eq!(all(), (2, 1, 2));
        versions.note([(a, Some(8))]);
        assert_eq!(all(), (3, 3, 2));
        versions.note([(b, None)]);
        versions.note([(b, None)]);
        assert_eq!(all(), (5, 3, 5));
        // A failover has taken the version back: what is changed under it now is another change.
        versions.note([(a, Some(7))]);
        assert_eq!(all(), (6, 6, 5));
        // One of which the outcome was unknown is heard of again when it shows.
        versions.note([(b, Some(9))]);
        assert_eq!(all(), (7, 6, 7));
        versions.note_all();
        assert_eq!(all(), (8, 8, 8));
    }
}
