//! What the control data of a tenant takes of the disk, and how much it may.
//!
//! Events are bounded by rates and plans. Control data is not: who may make keys or open cases can make as
//! many as they like. So whatever adds rows asks here, in its transaction and behind the rows, and is undone
//! where they are too much. Not asked: what ends or frees something, what is written over, and the steps of a
//! case, which must be answered in time. Searches and packages grow once they have begun, and have bounds of
//! their own.
//!
//! It is a price and no measurement, because it must cost little: what a search has found is counted by its
//! events, not read.

use sealog_core::id::TenantId;
use sealog_store::StoreError;

use crate::db::{Db, DbError, count, params};

const MIB: u64 = 1 << 20;

/// A table; how its rows belong to a tenant, which an index answers; and what a row takes beside 512 bytes
/// for itself and its places in indexes: its texts, and what is kept elsewhere for it.
type Counted = (&'static str, &'static str, &'static str);

const OWN: &str = "tenant_id = ?1";
const OF_PROJECT: &str = "project_id IN (SELECT id FROM {projects} WHERE tenant_id = ?1)";
const OF_CASE: &str = "case_id IN (SELECT id FROM {cases} WHERE tenant_id = ?1)";

const COUNTED: [Counted; 16] = [
    ("projects", OWN, "length(name)"),
    ("project_frameworks", OF_PROJECT, "0"),
    ("keys", OF_PROJECT, "length(name)"),
    ("monitor_tokens", OWN, "length(name)"),
    (
        "actions",
        OWN,
        "length(action) + COALESCE(length(description), 0) + length(required_fields) + length(optional_fields)",
    ),
    ("settings", OWN, "length(name) + length(value)"),
    ("memberships", OWN, "COALESCE(length(projects), 0)"),
    ("links", OWN, "COALESCE(length(email), 0) + COALESCE(length(projects), 0)"),
    ("saved_views", OWN, "length(name) + length(query)"),
    ("jobs", OWN, "length(parameters) + COALESCE(length(cause), 0)"),
    ("exports", OWN, "length(query)"),
    (
        "cases",
        OWN,
        "length(requester) + length(contact) + length(wrote) + length(projects) + length(identifiers) + length(pauses)",
    ),
    ("case_entries", OF_CASE, "length(note) + length(differences)"),
    ("case_events", OF_CASE, "length(body)"),
    ("case_letters", OF_CASE, "length(body)"),
    // For each event its row, its masks, the reason of the reviewer, and values that it has.
    ("case_searches", OF_CASE, "1048576 + 1024 * events"),
];
/// Their pieces are gone once they have ended.
const PACKAGES: &str = "SELECT CAST(COALESCE(sum(512 + COALESCE(byte_count, 0)), 0) AS BIGINT) AS count FROM {case_packages} WHERE case_id IN (SELECT id FROM {cases} WHERE tenant_id = ?1) AND dropped_at_ms IS NULL";

/// How much one may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantRoom {
    pub bytes_max: u64,
}

impl TenantRoom {
    /// Undoes what was added to a tenant that has more than it may.
    pub(crate) fn check(self, db: &mut dyn Db, tenant_id: TenantId) -> Result<(), DbError> {
        if self.bytes_max == u64::MAX || taken(db, tenant_id)? <= self.bytes_max {
            return Ok(());
        }
        Err(DbError::Store(StoreError::TenantFull { mb: self.bytes_max / MIB }))
    }
}

fn taken(db: &mut dyn Db, tenant_id: TenantId) -> Result<u64, DbError> {
    let mut bytes = count(db, PACKAGES, params![tenant_id])?;
    for (table, scope, row) in COUNTED {
        let sql = format!(
            "SELECT CAST(COALESCE(sum(512 + {row}), 0) AS BIGINT) AS count FROM {{{table}}} WHERE {scope}"
        );
        bytes = bytes.saturating_add(count(db, &sql, params![tenant_id])?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// With the reason why a tenant cannot use up the disk with it.
    const NOT_COUNTED: [(&str, &str); 22] = [
        ("tenants", "one row, made by the operator"),
        ("system_projects", "one row"),
        ("persons", "a row for a membership, which counts"),
        ("sessions", "20 of a person"),
        ("authenticators", "one of a person"),
        ("recovery_codes", "ten of a person"),
        ("devices", "some of a person"),
        ("attempts", "those of a quarter of an hour"),
        ("failures", "one of a person, for a minute"),
        ("key_requests", "the hours of a day for a key, which counts"),
        ("outbox", "what the server writes to members, one by one"),
        ("muted_notices", "one for each kind of notice and member"),
        ("pending", "events within moments"),
        ("case_packages", "counted with its bytes"),
        ("case_package_pieces", "the bytes of packages"),
        ("case_found", "in the price of its search"),
        ("case_values", "in the price of its search; 16 MiB of a case"),
        ("ops_devices", "of the operator"),
        ("ops_sessions", "of the operator"),
        ("ops_users", "of the operator"),
        ("epochs", "one row"),
        ("known_log", "one row"),
    ];

    #[test]
    fn every_table_is_counted_or_has_a_reason_not_to_be() {
        let counted = COUNTED.iter().map(|(table, ..)| *table);
        let known: Vec<&str> = counted.chain(NOT_COUNTED.iter().map(|(table, _)| *table)).collect();
        let tables: BTreeSet<&str> = crate::snapshot::TABLES.iter().copied().collect();
        assert_eq!(known.len(), tables.len());
        assert_eq!(known.into_iter().collect::<BTreeSet<&str>>(), tables);
    }
}
