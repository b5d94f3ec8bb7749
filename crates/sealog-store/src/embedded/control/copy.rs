//! All control data at once, out of the file and into it.

use rusqlite::{Connection, Row, params};
use sealog_core::catalog::CustomAction;
use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_core::time::Month;

use super::{
    KEYS, Ms, Names, PROJECTS, TENANTS, USERS, all, ms, optional_ms, read_key, read_project, read_tenant,
    read_user, run,
};
use crate::accounts::{Enabled, Everything, KeptMail, MailKey, Session, UserId};

pub(super) fn export(db: &Connection) -> rusqlite::Result<Everything> {
    let projects = all(db, &format!("{PROJECTS} ORDER BY number"), [], read_project)?;
    let history = "SELECT framework, enabled_at_ms, disabled_at_ms FROM project_frameworks WHERE project_id = ?1 ORDER BY number";
    let with_history = projects.into_iter().map(|project| {
        let history = all(db, history, [project.id.0.0], |row| {
            Ok(Enabled {
                framework: row.get("framework")?,
                enabled_at_ms: ms(row, "enabled_at_ms")?,
                disabled_at_ms: optional_ms(row, "disabled_at_ms")?,
            })
        })?;
        Ok((project, history))
    });
    Ok(Everything {
        tenants: all(db, &format!("{TENANTS} ORDER BY number"), [], read_tenant)?,
        projects: with_history.collect::<rusqlite::Result<_>>()?,
        keys: all(
            db,
            &format!("{} ORDER BY number", KEYS.replace("prefix,", "prefix, digest,")),
            [],
            |row| Ok((read_key(row)?, Hash(row.get("digest")?))),
        )?,
        actions: all(db, "SELECT * FROM actions ORDER BY tenant_id, action", [], |row| {
            Ok((TenantId(Uuid(row.get("tenant_id")?)), read_action(row)?))
        })?,
        users: all(db, &format!("{USERS} ORDER BY number"), [], |row| {
            Ok((read_user(row)?, row.get("password_hash")?))
        })?,
        sessions: all(db, "SELECT * FROM sessions ORDER BY token_digest", [], |row| {
            Ok(Session {
                token_digest: Hash(row.get("token_digest")?),
                user_id: UserId(Uuid(row.get("user_id")?)),
                created_at_ms: ms(row, "created_at_ms")?,
                expires_at_ms: ms(row, "expires_at_ms")?,
            })
        })?,
        mails: all(db, "SELECT * FROM mails ORDER BY id", [], read_mail)?,
    })
}

pub(super) fn replace(db: &Connection, everything: &Everything) -> rusqlite::Result<()> {
    for table in
        ["mails", "sessions", "users", "actions", "keys", "project_frameworks", "projects", "tenants"]
    {
        run(db, &format!("DELETE FROM {table}"), [])?;
    }
    for tenant in &everything.tenants {
        run(
            db,
            "INSERT INTO tenants (id, name, plan, contact_email, trial_ends_at_ms, billing_active, rate_limit_rps, created_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                tenant.id.0.0,
                tenant.name,
                tenant.plan,
                tenant.contact_email,
                tenant.billing.trial_ends_at_ms.map(Ms),
                tenant.billing.billing_active,
                tenant.rate_limit_rps,
                Ms(tenant.created_at_ms)
            ],
        )?;
    }
    for (project, history) in &everything.projects {
        run(
            db,
            "INSERT INTO projects (id, tenant_id, name, rate_limit_rps, created_at_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                project.id.0.0,
                project.tenant_id.0.0,
                project.name,
                project.rate_limit_rps,
                Ms(project.created_at_ms)
            ],
        )?;
        for enabled in history {
            run(
                db,
                "INSERT INTO project_frameworks (project_id, framework, enabled_at_ms, disabled_at_ms) VALUES (?1, ?2, ?3, ?4)",
                params![
                    project.id.0.0,
                    enabled.framework,
                    Ms(enabled.enabled_at_ms),
                    enabled.disabled_at_ms.map(Ms)
                ],
            )?;
        }
    }
    for (key, digest) in &everything.keys {
        run(
            db,
            "INSERT INTO keys (id, project_id, name, mode, digest, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, created_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                key.id.0.0,
                key.project_id.0.0,
                key.name,
                key.mode.as_str(),
                digest.0,
                key.prefix,
                key.expires_at_ms.map(Ms),
                key.revoked_at_ms.map(Ms),
                key.last_used_at_ms.map(Ms),
                Ms(key.created_at_ms)
            ],
        )?;
    }
    for (tenant_id, action) in &everything.actions {
        super::create_action(db, *tenant_id, action.clone())?.ok();
    }
    for (user, password_hash) in &everything.users {
        run(
            db,
            "INSERT INTO users (id, tenant_id, email, email_lower, password_hash, role, created_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                user.id.0.0,
                user.tenant_id.0.0,
                user.email,
                user.email.to_lowercase(),
                password_hash,
                user.role.as_str(),
                Ms(user.created_at_ms)
            ],
        )?;
    }
    for session in &everything.sessions {
        super::insert_session(db, session)?;
    }
    for mail in &everything.mails {
        run(
            db,
            "INSERT INTO mails (tenant_id, month, percent, recipient, subject, body, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                mail.key.tenant_id.0.0,
                mail.key.month.0,
                mail.key.percent,
                mail.to,
                mail.subject,
                mail.body,
                Ms(mail.created_at_ms),
                Ms(mail.due_at_ms),
                mail.attempts,
                mail.last_failure,
                mail.sent_at_ms.map(Ms)
            ],
        )?;
    }
    Ok(())
}

fn read_action(row: &Row<'_>) -> rusqlite::Result<CustomAction> {
    Ok(CustomAction {
        action: row.get("action")?,
        description: row.get("description")?,
        category: row.get("category")?,
        severity: row.get("severity")?,
        required_fields: row.get::<_, Names>("required_fields")?.0,
        optional_fields: row.get::<_, Names>("optional_fields")?.0,
    })
}

fn read_mail(row: &Row<'_>) -> rusqlite::Result<KeptMail> {
    Ok(KeptMail {
        key: MailKey {
            tenant_id: TenantId(Uuid(row.get("tenant_id")?)),
            month: Month(row.get("month")?),
            percent: row.get("percent")?,
        },
        to: row.get("recipient")?,
        subject: row.get("subject")?,
        body: row.get("body")?,
        created_at_ms: ms(row, "created_at_ms")?,
        due_at_ms: ms(row, "due_at_ms")?,
        attempts: row.get("attempts")?,
        last_failure: row.get("last_failure")?,
        sent_at_ms: optional_ms(row, "sent_at_ms")?,
    })
}
