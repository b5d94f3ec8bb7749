//! Custom actions of a tenant.

use sealog_core::catalog::{Catalog, CustomAction};
use sealog_core::event::FIELD_SCALARS_MAX;
use sealog_core::id::TenantId;
use serde_json::json;

use super::{Actor, Admin, AdminError, FieldError, change_error, fields};
use crate::records::system_chain::actions;

/// Custom actions of a tenant, retired ones included.
const ACTIONS_MAX: usize = 1000;

impl Admin {
    pub async fn create_action(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        input: CustomAction,
    ) -> Result<CustomAction, AdminError> {
        let optional =
            |name: &str, given: Option<String>| given.map(|given| fields::text(name, given)).transpose();
        let action = CustomAction {
            action: fields::some_text("action", input.action)?,
            description: optional("description", input.description)?,
            category: optional("category", input.category)?,
            severity: optional("severity", input.severity)?,
            required_fields: fields::texts("required_fields", input.required_fields)?,
            optional_fields: fields::texts("optional_fields", input.optional_fields)?,
        };
        let invalid = |problem: String| FieldError::new("action", problem);
        Catalog::builtin().check_custom_name(&action.action).map_err(invalid)?;
        // Every caller of the tenant has them in memory, and `GET /v1/actions` shows them all.
        let known = self.administration().known_actions(tenant_id).await?;
        if known.len() >= ACTIONS_MAX && !known.iter().any(|known| known.action.action == action.action) {
            return Err(invalid(format!("exceeds the limit of {ACTIONS_MAX} actions for a tenant")).into());
        }
        let metadata = json!({
            "action": action.action,
            "category": action.category,
            "severity": action.severity,
            "required_fields": action.required_fields,
            "optional_fields": action.optional_fields,
        });
        let records =
            vec![self.recorder(actor).record(&actions::ACTION_CREATED, &resource(&action.action), metadata)];
        let made = self.made(self.administration().create_action(tenant_id, action, records)).await;
        made.map_err(|error| change_error(error, invalid("is already registered".into())))?
            .ok_or(AdminError::NotFound)
    }

    /// From now on events with it are refused; those that exist keep its name.
    pub async fn retire_action(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        action: String,
    ) -> Result<(), AdminError> {
        // A name that nobody has registered could be one that no record can hold.
        let known = self.administration().actions(tenant_id).await?;
        if !known.iter().any(|known| known.action == action) {
            return Err(AdminError::NotFound);
        }
        let recorder = self.recorder(actor);
        let metadata = json!({ "action": action });
        let records = vec![recorder.record(&actions::ACTION_RETIRED, &resource(&action), metadata)];
        let now_ms = recorder.now_ms();
        let made = self.made(self.administration().retire_action(tenant_id, action, now_ms, records)).await?;
        made.ok_or(AdminError::NotFound)
    }
}

/// A name may have as many characters as a resource, which then has only its beginning; `metadata` has all of
/// it.
fn resource(action: &str) -> String {
    format!("action/{action}").chars().take(FIELD_SCALARS_MAX).collect()
}
