//! Invitations by who has sent them. An invitation is worth something for as long as its sender is a member
//! who may give its role: what somebody has handed out before leaving does not stay behind.

use sealog_core::id::{TenantId, Uuid};

use crate::db::{Db, DbError, all, params};
use crate::person::PersonId;

/// Of a row of links: its sender, if one is known, is a member at the time that the parameter has. A
/// membership that ends on a day ends without a change that could withdraw anything.
pub(crate) fn sender_stays(now_ms: &str) -> String {
    format!(
        "(links.invited_by IS NULL OR EXISTS (
             SELECT 1 FROM {{memberships}} WHERE memberships.tenant_id = links.tenant_id AND memberships.person_id = links.invited_by
                AND (memberships.ends_at_ms IS NULL OR memberships.ends_at_ms > {now_ms})))"
    )
}

/// Withdraws what somebody has sent for these roles. A tenant has a bounded number of invitations, so this
/// is, too.
pub(crate) fn withdraw(
    db: &mut dyn Db,
    tenant_id: TenantId,
    person_id: PersonId,
    roles: &[&'static str],
) -> Result<Vec<Uuid>, DbError> {
    let mut withdrawn = Vec::new();
    for role in roles {
        let of_role = "tenant_id = ?1 AND invited_by = ?2 AND purpose = 'invitation' AND role = ?3";
        let params = params![tenant_id, person_id, *role];
        let sql = format!("SELECT id FROM {{links}} WHERE {of_role} ORDER BY number");
        withdrawn.extend(all(db, &sql, params, |row| row.get::<Uuid>("id"))?);
        db.execute(&format!("DELETE FROM {{links}} WHERE {of_role}"), params)?;
    }
    Ok(withdrawn)
}
