//! What the operator's interface shows of each thing.

use sealog_control::{ApiKey, Member, MonitorToken, Project, Tenant};
use sealog_core::catalog::CustomAction;
use sealog_core::time::iso_ms;
use sealog_service::people::admin::projects::framework_ids;
use serde_json::{Value, json};

fn time(ms: Option<u64>) -> Value {
    ms.map_or(Value::Null, |ms| iso_ms(ms).into())
}

pub(super) fn tenant(tenant: &Tenant) -> Value {
    json!({
        "tenant_id": tenant.id.to_string(),
        "name": tenant.name,
        "plan": tenant.plan,
        "contact_email": tenant.contact_email,
        "trial_ends_at": time(tenant.billing.trial_ends_at_ms),
        "billing_active": tenant.billing.billing_active,
        "rate_limit_rps": tenant.rate_limit_rps,
        "created_at": iso_ms(tenant.created_at_ms),
    })
}

pub(super) fn project(project: &Project) -> Value {
    json!({
        "project_id": project.id.to_string(),
        "tenant_id": project.tenant_id.to_string(),
        "name": project.name,
        "frameworks": framework_ids(project.frameworks),
        "rate_limit_rps": project.rate_limit_rps,
        "created_at": iso_ms(project.created_at_ms),
    })
}

/// Never the key itself: only its first characters were kept.
pub(super) fn key(key: &ApiKey) -> Value {
    json!({
        "key_id": key.id.0.to_string(),
        "project_id": key.project_id.to_string(),
        "name": key.name,
        "mode": key.mode.as_str(),
        "prefix": key.prefix,
        "expires_at": time(key.expires_at_ms),
        "revoked_at": time(key.revoked_at_ms),
        "last_used_at": time(key.last_used_at_ms),
        "created_at": iso_ms(key.created_at_ms),
    })
}

/// As a key: never the token itself.
pub(super) fn monitor_token(token: &MonitorToken) -> Value {
    json!({
        "token_id": token.id.0.to_string(),
        "project_id": token.project_id.to_string(),
        "name": token.name,
        "prefix": token.prefix,
        "expires_at": time(token.expires_at_ms),
        "revoked_at": time(token.revoked_at_ms),
        "last_used_at": time(token.last_used_at_ms),
        "created_at": iso_ms(token.created_at_ms),
    })
}

pub(super) fn action(action: &CustomAction) -> Value {
    json!({
        "action": action.action,
        "description": action.description,
        "category": action.category,
        "severity": action.severity,
        "required_fields": action.required_fields,
        "optional_fields": action.optional_fields,
    })
}

/// A member of a tenant.
pub(super) fn user(Member { person, membership }: &Member) -> Value {
    json!({
        "user_id": person.id.0.to_string(),
        "tenant_id": membership.tenant_id.to_string(),
        "email": person.email,
        "role": membership.role.as_str(),
        "created_at": iso_ms(membership.created_at_ms),
    })
}
