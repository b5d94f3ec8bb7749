//! All control data at once, out of the tables and into them.

use sealog_core::id::{Hash, TenantId};
use sealog_core::time::Month;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::super::pool::Session;
use super::super::rows::{self, Digest32, Id, Text, signed};
use super::{
    KEYS, PROJECTS, TENANTS, USERS, ms, optional_ms, optional_text, read_action, read_key, read_project,
    read_tenant, read_user,
};
use crate::accounts::{Enabled, Everything, KeptMail, MailKey, Session as UserSession, UserId};

/// Every read in the one transaction that the caller has begun.
pub(super) async fn export(db: &Session) -> Result<Everything, Error> {
    let rows = |sql: String| async move { db.query(&sql, &[], &[]).await };
    let mut projects = Vec::new();
    for row in &rows(format!("{PROJECTS} ORDER BY number")).await? {
        let project = read_project(row);
        let sql = "SELECT framework, enabled_at_ms, disabled_at_ms FROM sealog.project_frameworks WHERE project_id = $1 ORDER BY number";
        let history = db.query(sql, &[Type::UUID], &[&Id(project.id.0.0)]).await?;
        projects.push((project, history.iter().map(read_enabled).collect()));
    }
    let keys = rows(format!("{} ORDER BY number", KEYS.replace("prefix,", "prefix, digest,"))).await?;
    let key = |row: &Row| Some((read_key(row)?, Hash(rows::hash(row.get("digest"))?.0)));
    let actions = rows("SELECT * FROM sealog.actions ORDER BY tenant_id, action".into()).await?;
    let users = rows(format!("{USERS} ORDER BY number")).await?;
    let sessions = rows("SELECT * FROM sealog.sessions ORDER BY token_digest".into()).await?;
    Ok(Everything {
        tenants: rows(format!("{TENANTS} ORDER BY number")).await?.iter().map(read_tenant).collect(),
        projects,
        keys: keys.iter().filter_map(key).collect(),
        actions: actions
            .iter()
            .map(|row| (TenantId(row.get::<_, Id>("tenant_id").uuid()), read_action(row)))
            .collect(),
        users: users.iter().filter_map(|row| Some((read_user(row)?, row.get("password_hash")))).collect(),
        sessions: sessions.iter().filter_map(read_session).collect(),
        mails: rows("SELECT * FROM sealog.mails ORDER BY id".into()).await?.iter().map(read_mail).collect(),
    })
}

pub(super) async fn replace(db: &Session, everything: Everything) -> Result<(), Error> {
    for table in
        ["mails", "sessions", "users", "actions", "keys", "project_frameworks", "projects", "tenants"]
    {
        db.execute(&format!("DELETE FROM sealog.{table}"), &[], &[]).await?;
    }
    for tenant in &everything.tenants {
        db.execute(
            "INSERT INTO sealog.tenants (id, name, plan, contact_email, trial_ends_at_ms, billing_active, rate_limit_rps, created_at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL, Type::INT8, Type::INT8],
            &[
                &Id(tenant.id.0.0),
                &Text(&tenant.name),
                &Text(&tenant.plan),
                &tenant.contact_email.as_deref().map(Text),
                &tenant.billing.trial_ends_at_ms.map(signed),
                &tenant.billing.billing_active,
                &tenant.rate_limit_rps.map(i64::from),
                &signed(tenant.created_at_ms),
            ],
        )
        .await?;
    }
    for (project, history) in &everything.projects {
        db.execute(
            "INSERT INTO sealog.projects (id, tenant_id, name, rate_limit_rps, created_at_ms) VALUES ($1, $2, $3, $4, $5)",
            &[Type::UUID, Type::UUID, Type::TEXT, Type::INT8, Type::INT8],
            &[
                &Id(project.id.0.0),
                &Id(project.tenant_id.0.0),
                &Text(&project.name),
                &project.rate_limit_rps.map(i64::from),
                &signed(project.created_at_ms),
            ],
        )
        .await?;
        for enabled in history {
            db.execute(
                "INSERT INTO sealog.project_frameworks (project_id, framework, enabled_at_ms, disabled_at_ms) VALUES ($1, $2, $3, $4)",
                &[Type::UUID, Type::INT4, Type::INT8, Type::INT8],
                &[
                    &Id(project.id.0.0),
                    &i32::from(enabled.framework),
                    &signed(enabled.enabled_at_ms),
                    &enabled.disabled_at_ms.map(signed),
                ],
            )
            .await?;
        }
    }
    for (key, digest) in &everything.keys {
        db.execute(
            "INSERT INTO sealog.keys (id, project_id, name, mode, digest, prefix, expires_at_ms, revoked_at_ms, last_used_at_ms, created_at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            &[
                Type::UUID,
                Type::UUID,
                Type::TEXT,
                Type::TEXT,
                Type::BYTEA,
                Type::TEXT,
                Type::INT8,
                Type::INT8,
                Type::INT8,
                Type::INT8,
            ],
            &[
                &Id(key.id.0.0),
                &Id(key.project_id.0.0),
                &Text(&key.name),
                &key.mode.as_str(),
                &Digest32(digest.0),
                &Text(&key.prefix),
                &key.expires_at_ms.map(signed),
                &key.revoked_at_ms.map(signed),
                &key.last_used_at_ms.map(signed),
                &signed(key.created_at_ms),
            ],
        )
        .await?;
    }
    for (tenant_id, action) in everything.actions {
        super::create_action(db, tenant_id, action).await?.ok();
    }
    for (user, password_hash) in &everything.users {
        db.execute(
            "INSERT INTO sealog.users (id, tenant_id, email, email_lower, password_hash, role, created_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[Type::UUID, Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8],
            &[
                &Id(user.id.0.0),
                &Id(user.tenant_id.0.0),
                &Text(&user.email),
                &Text(&user.email.to_lowercase()),
                password_hash,
                &user.role.as_str(),
                &signed(user.created_at_ms),
            ],
        )
        .await?;
    }
    for session in everything.sessions {
        super::insert_session(db, &session).await?;
    }
    for mail in &everything.mails {
        db.execute(
            "INSERT INTO sealog.mails (tenant_id, month, percent, recipient, subject, body, created_at_ms, due_at_ms, attempts, last_failure, sent_at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                Type::UUID,
                Type::INT4,
                Type::INT4,
                Type::TEXT,
                Type::TEXT,
                Type::TEXT,
                Type::INT8,
                Type::INT8,
                Type::INT4,
                Type::TEXT,
                Type::INT8,
            ],
            &[
                &Id(mail.key.tenant_id.0.0),
                &i32::try_from(mail.key.month.0).unwrap_or(i32::MAX),
                &i32::from(mail.key.percent),
                &mail.to.as_deref().map(Text),
                &mail.subject.as_deref().map(Text),
                &mail.body.as_deref().map(Text),
                &signed(mail.created_at_ms),
                &signed(mail.due_at_ms),
                &i32::try_from(mail.attempts).unwrap_or(i32::MAX),
                &mail.last_failure.as_deref().map(Text),
                &mail.sent_at_ms.map(signed),
            ],
        )
        .await?;
    }
    Ok(())
}

fn read_enabled(row: &Row) -> Enabled {
    Enabled {
        framework: u8::try_from(row.get::<_, i32>("framework")).expect("a CHECK keeps them below 32"),
        enabled_at_ms: ms(row, "enabled_at_ms"),
        disabled_at_ms: optional_ms(row, "disabled_at_ms"),
    }
}

fn read_session(row: &Row) -> Option<UserSession> {
    Some(UserSession {
        token_digest: rows::hash(row.get("token_digest"))?,
        user_id: UserId(row.get::<_, Id>("user_id").uuid()),
        created_at_ms: ms(row, "created_at_ms"),
        expires_at_ms: ms(row, "expires_at_ms"),
    })
}

fn read_mail(row: &Row) -> KeptMail {
    KeptMail {
        key: MailKey {
            tenant_id: TenantId(row.get::<_, Id>("tenant_id").uuid()),
            month: Month(u32::try_from(row.get::<_, i32>("month")).unwrap_or(0)),
            percent: u8::try_from(row.get::<_, i32>("percent")).unwrap_or(u8::MAX),
        },
        to: optional_text(row, "recipient"),
        subject: optional_text(row, "subject"),
        body: optional_text(row, "body"),
        created_at_ms: ms(row, "created_at_ms"),
        due_at_ms: ms(row, "due_at_ms"),
        attempts: u32::try_from(row.get::<_, i32>("attempts")).unwrap_or(0),
        last_failure: optional_text(row, "last_failure"),
        sent_at_ms: optional_ms(row, "sent_at_ms"),
    }
}
