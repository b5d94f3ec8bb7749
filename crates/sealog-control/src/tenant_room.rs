//! What the cases of a tenant take of the disk, and how much they may.
//!
//! Events are bounded by rates and plans. Cases are not: whoever may open them can open as many as they like,
//! and each search and each package keeps what it has found. A limit is asked for before each of these three
//! begins, so what a tenant has can exceed it by one search or one package, which have bounds of their own.

use sealog_core::id::TenantId;
use sealog_store::StoreError;

use crate::db::{Db, DbError, count, params};

/// What a row takes beside its texts, with its places in indexes.
const ROW_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;

/// Refuses something new to a tenant whose cases take all that they may.
pub(crate) fn check(db: &mut dyn Db, tenant_id: TenantId, max: u64) -> Result<(), DbError> {
    if max == u64::MAX || taken(db, tenant_id)? < max {
        return Ok(());
    }
    Err(DbError::Store(StoreError::Refused(format!(
        "The cases of your organisation have used the {} MB that this server allows. Packages free space when they expire. Ask the operator of this server for more (limits.tenant_disk_mb).",
        max / MIB
    ))))
}

fn taken(db: &mut dyn Db, tenant_id: TenantId) -> Result<u64, DbError> {
    const TEXTS: &str = "SELECT CAST(COALESCE(sum(length(requester) + length(contact) + length(wrote) + length(projects) + length(identifiers)), 0) AS BIGINT) AS count FROM {cases} WHERE tenant_id = ?1";
    const CASES: &str = "SELECT count(*) AS count FROM {cases} WHERE tenant_id = ?1";
    const NOTES: &str = "SELECT CAST(COALESCE(sum(length(e.note) + length(e.differences)), 0) AS BIGINT) AS count FROM {case_entries} AS e JOIN {cases} AS c ON c.id = e.case_id WHERE c.tenant_id = ?1";
    const ENTRIES: &str = "SELECT count(*) AS count FROM {case_entries} AS e JOIN {cases} AS c ON c.id = e.case_id WHERE c.tenant_id = ?1";
    const FOUND: &str =
        "SELECT CAST(COALESCE(sum(events), 0) AS BIGINT) AS count FROM {case_searches} WHERE tenant_id = ?1";
    const PACKED: &str = "SELECT CAST(COALESCE(sum(byte_count), 0) AS BIGINT) AS count FROM {case_packages} WHERE tenant_id = ?1 AND dropped_at_ms IS NULL";
    let mut bytes: u64 = 0;
    for (sql, each) in
        [(TEXTS, 1), (NOTES, 1), (PACKED, 1), (CASES, ROW_BYTES), (ENTRIES, ROW_BYTES), (FOUND, ROW_BYTES)]
    {
        bytes = bytes.saturating_add(count(db, sql, params![tenant_id])?.saturating_mul(each));
    }
    Ok(bytes)
}
