//! The operator's interface: how tenants, projects, keys, monitor tokens, actions and users come to be.
//! `docs/spec.md`, "The operator's interface".

mod fields;
mod render;

use sealog_control::Control;
use std::sync::Arc;

use axum::body::Body as RequestBody;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use sealog_control::{KeyId, ListPage, MonitorTokenId};
use sealog_core::catalog::CustomAction;
use sealog_core::id::{ProjectId, RequestId, TenantId, Uuid};
use sealog_core::query::{self, PageLimit, PageParameter};
use sealog_core::reject::{Code, Reject};
use sealog_service::Secret;
use sealog_service::people::admin::keys::{CreatedKey, KeyInput};
use sealog_service::people::admin::monitor_tokens::{CreatedMonitorToken, MonitorTokenInput, Watched};
use sealog_service::people::admin::people::MemberInput;
use sealog_service::people::admin::projects::{ProjectInput, ProjectUpdate};
use sealog_service::people::admin::tenants::{TenantInput, TenantUpdate};
use sealog_service::people::admin::{Actor, AdminError, FieldError};
use sealog_store::StoreError;
use serde_json::{Value, json};

use crate::app::App;
use crate::operator_routes::{BODY_BYTES_MAX, Operation};
use crate::respond;
use crate::respond::{Answer, Body, Failure};
use fields::Fields;

/// Answers a request of someone who has shown the operator's token. `parameters` are those of the path.
pub(crate) async fn handle(
    app: &Arc<App>,
    operation: Operation,
    parameters: &[&str],
    parts: &Parts,
    body: &mut RequestBody,
    request_id: RequestId,
) -> Answer {
    let call = Call { app, headers: &parts.headers, request_id };
    let query = parts.uri.query().unwrap_or("");
    let id = parameters.first().copied().unwrap_or("");
    match operation {
        Operation::CreateTenant => call.create_tenant(call.body(body).await?).await,
        Operation::ListTenants => call.tenants(query).await,
        Operation::UpdateTenant => call.update_tenant(tenant_id(id)?, call.body(body).await?).await,
        Operation::ReadTenant => call.tenant(tenant_id(id)?).await,
        Operation::CreateProject => call.create_project(tenant_id(id)?, call.body(body).await?).await,
        Operation::ListProjects => call.projects(tenant_id(id)?, query).await,
        Operation::UpdateProject => call.update_project(project_id(id)?, call.body(body).await?).await,
        Operation::ReadProject => call.project(project_id(id)?).await,
        Operation::CreateKey => call.create_key(project_id(id)?, call.body(body).await?).await,
        Operation::ListKeys => call.keys(project_id(id)?, query).await,
        Operation::RevokeKey => call.revoke_key(KeyId(uuid(id)?)).await,
        Operation::CreateMonitorToken => {
            call.create_monitor_token(project_id(id)?, call.body(body).await?).await
        }
        Operation::ListMonitorTokens => call.monitor_tokens(project_id(id)?, query).await,
        Operation::RevokeMonitorToken => call.revoke_monitor_token(MonitorTokenId(uuid(id)?)).await,
        Operation::CreateAction => call.create_action(tenant_id(id)?, call.body(body).await?).await,
        Operation::ListActions => call.actions(tenant_id(id)?, query).await,
        Operation::CreateUser => call.create_user(tenant_id(id)?, call.body(body).await?).await,
        Operation::ListUsers => call.users(tenant_id(id)?, query).await,
        Operation::ReadEpoch => call.epoch().await,
    }
}

fn uuid(text: &str) -> Result<Uuid, Failure> {
    Uuid::parse(text).ok_or_else(|| Reject::PathNotFound.into())
}

fn tenant_id(text: &str) -> Result<TenantId, Failure> {
    uuid(text).map(TenantId)
}

fn project_id(text: &str) -> Result<ProjectId, Failure> {
    uuid(text).map(ProjectId)
}

/// One request.
struct Call<'a> {
    app: &'a Arc<App>,
    headers: &'a HeaderMap,
    request_id: RequestId,
}

impl Call<'_> {
    async fn body(&self, body: &mut RequestBody) -> Result<Fields, Failure> {
        let (body, _) =
            crate::body::read(self.app, self.headers, body, BODY_BYTES_MAX, None, self.request_id).await?;
        Fields::parse(&body)
    }

    fn failed(&self, error: &StoreError) -> Failure {
        Failure::control(error, self.request_id)
    }

    fn accounts(&self) -> &Control {
        &self.app.service.control
    }

    /// Why a change was not made.
    fn unmade(&self, error: AdminError) -> Failure {
        match error {
            AdminError::Field(error) => error.into(),
            AdminError::NotFound => Reject::PathNotFound.into(),
            AdminError::Store(error) => self.failed(&error),
            AdminError::Internal(cause) => Failure::internal(&cause, self.request_id),
        }
    }

    async fn create_tenant(&self, mut fields: Fields) -> Answer {
        let input = TenantInput {
            name: fields.required_text("name")?,
            plan: fields.text("plan")?.flatten(),
            contact_email: fields.text("contact_email")?.flatten(),
            trial_ends_at: fields.text("trial_ends_at")?.flatten(),
            billing_active: fields.boolean("billing_active")?,
        };
        fields.nothing_else()?;
        let tenant = self.app.service.admin.create_tenant(Actor::Operator, input).await;
        Ok(created(&render::tenant(&tenant.map_err(|error| self.unmade(error))?)))
    }

    async fn update_tenant(&self, id: TenantId, mut fields: Fields) -> Answer {
        let not_null = |plan: Option<String>| plan.ok_or_else(|| FieldError::new("plan", "must not be null"));
        let update = TenantUpdate {
            name: fields.given("name").then(|| fields.required_text("name")).transpose()?,
            plan: fields.text("plan")?.map(not_null).transpose()?,
            contact_email: fields.text("contact_email")?,
            trial_ends_at: fields.text("trial_ends_at")?,
            billing_active: fields.boolean("billing_active")?,
            rate_limit_rps: fields.rate("rate_limit_rps")?,
        };
        fields.nothing_else()?;
        let tenant = self.app.service.admin.update_tenant(Actor::Operator, id, update).await;
        Ok(changed(&render::tenant(&tenant.map_err(|error| self.unmade(error))?)))
    }

    async fn tenant(&self, id: TenantId) -> Answer {
        let tenant = self.accounts().tenant(id).await.map_err(|error| self.failed(&error))?;
        found(tenant.as_ref().map(render::tenant))
    }

    async fn tenants(&self, query: &str) -> Answer {
        let page = Page::parse(query)?;
        let tenants = self.accounts().tenants(page.one_more()?).await.map_err(|error| self.failed(&error))?;
        Ok(page.answer(
            "tenants",
            tenants.iter().map(|tenant| (tenant.id.0.to_string(), render::tenant(tenant))),
        ))
    }

    async fn create_project(&self, tenant_id: TenantId, mut fields: Fields) -> Answer {
        let input = ProjectInput {
            name: fields.required_text("name")?,
            frameworks: fields.texts("frameworks")?.unwrap_or_default(),
        };
        fields.nothing_else()?;
        let project = self.app.service.admin.create_project(Actor::Operator, tenant_id, input).await;
        Ok(created(&render::project(&project.map_err(|error| self.unmade(error))?)))
    }

    async fn update_project(&self, id: ProjectId, mut fields: Fields) -> Answer {
        let update = ProjectUpdate {
            name: fields.given("name").then(|| fields.required_text("name")).transpose()?,
            frameworks: fields.texts("frameworks")?,
            rate_limit_rps: fields.rate("rate_limit_rps")?,
            ..ProjectUpdate::default()
        };
        fields.nothing_else()?;
        let project = self.app.service.admin.update_project(Actor::Operator, id, update).await;
        Ok(changed(&render::project(&project.map_err(|error| self.unmade(error))?)))
    }

    async fn project(&self, id: ProjectId) -> Answer {
        let project = self.accounts().project(id).await.map_err(|error| self.failed(&error))?;
        found(project.as_ref().map(render::project))
    }

    async fn projects(&self, tenant_id: TenantId, query: &str) -> Answer {
        self.must_exist(tenant_id).await?;
        let page = Page::parse(query)?;
        let projects = self
            .accounts()
            .projects(tenant_id, page.one_more()?)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(page.answer(
            "projects",
            projects.iter().map(|project| (project.id.0.to_string(), render::project(project))),
        ))
    }

    async fn create_key(&self, project_id: ProjectId, mut fields: Fields) -> Answer {
        let input = KeyInput {
            name: fields.required_text("name")?,
            mode: fields.required_text("mode")?,
            expires_at: fields.text("expires_at")?.flatten(),
            form: None,
        };
        fields.nothing_else()?;
        let made = self.app.service.admin.create_key(Actor::Operator, project_id, input).await;
        let CreatedKey { key, text } = made.map_err(|error| self.unmade(error))?;
        let mut answer = render::key(&key);
        // This once.
        answer["key"] = text.0.as_str().into();
        Ok(created(&answer))
    }

    async fn keys(&self, project_id: ProjectId, query: &str) -> Answer {
        let page = Page::parse(query)?;
        let project = self.accounts().project(project_id).await.map_err(|error| self.failed(&error))?;
        project.ok_or(Reject::PathNotFound)?;
        let keys =
            self.accounts().keys(project_id, page.one_more()?).await.map_err(|error| self.failed(&error))?;
        Ok(page.answer("keys", keys.iter().map(|key| (key.id.0.to_string(), render::key(key)))))
    }

    async fn revoke_key(&self, id: KeyId) -> Answer {
        let key = self.app.service.admin.revoke_key(Actor::Operator, id).await;
        Ok(changed(&render::key(&key.map_err(|error| self.unmade(error))?)))
    }

    async fn create_monitor_token(&self, project_id: ProjectId, mut fields: Fields) -> Answer {
        let input = MonitorTokenInput {
            name: fields.required_text("name")?,
            expires_at: fields.text("expires_at")?.flatten(),
            form: None,
        };
        fields.nothing_else()?;
        let watched = Watched::Project(project_id);
        let made = self.app.service.admin.create_monitor_token(Actor::Operator, watched, input).await;
        let CreatedMonitorToken { token, text } = made.map_err(|error| self.unmade(error))?;
        let mut answer = render::monitor_token(&token);
        // This once.
        answer["token"] = text.0.as_str().into();
        Ok(created(&answer))
    }

    async fn monitor_tokens(&self, project_id: ProjectId, query: &str) -> Answer {
        let page = Page::parse(query)?;
        let project = self.accounts().project(project_id).await.map_err(|error| self.failed(&error))?;
        project.ok_or(Reject::PathNotFound)?;
        let tokens = self.accounts().monitor_tokens(project_id, page.one_more()?).await;
        let tokens = tokens.map_err(|error| self.failed(&error))?;
        let tokens = tokens.iter().map(|token| (token.id.0.to_string(), render::monitor_token(token)));
        Ok(page.answer("monitor_tokens", tokens))
    }

    async fn revoke_monitor_token(&self, id: MonitorTokenId) -> Answer {
        let token = self.app.service.admin.revoke_monitor_token(Actor::Operator, id).await;
        Ok(changed(&render::monitor_token(&token.map_err(|error| self.unmade(error))?)))
    }

    async fn create_action(&self, tenant_id: TenantId, mut fields: Fields) -> Answer {
        let input = CustomAction {
            action: fields.required_text("action")?,
            description: fields.text("description")?.flatten(),
            category: fields.text("category")?.flatten(),
            severity: fields.text("severity")?.flatten(),
            required_fields: fields.texts("required_fields")?.unwrap_or_default(),
            optional_fields: fields.texts("optional_fields")?.unwrap_or_default(),
        };
        fields.nothing_else()?;
        let action = self.app.service.admin.create_action(Actor::Operator, tenant_id, input).await;
        Ok(created(&render::action(&action.map_err(|error| self.unmade(error))?)))
    }

    async fn actions(&self, tenant_id: TenantId, query: &str) -> Answer {
        self.must_exist(tenant_id).await?;
        let page = Page::parse(query)?;
        let after = page.after(name_of_cursor)?;
        let actions = self.accounts().actions(tenant_id).await.map_err(|error| self.failed(&error))?;
        let rest = actions.iter().filter(|action| after.as_ref().is_none_or(|after| action.action > *after));
        let rest = rest.take(page.limit + 1);
        Ok(page
            .answer("actions", rest.map(|action| (cursor_of_name(&action.action), render::action(action)))))
    }

    async fn create_user(&self, tenant_id: TenantId, mut fields: Fields) -> Answer {
        let input = MemberInput {
            email: fields.required_text("email")?,
            password: Secret(fields.required_text("password")?),
            role: fields.required_text("role")?,
        };
        fields.nothing_else()?;
        let member = self.app.service.admin.add_member(Actor::Operator, tenant_id, input).await;
        Ok(created(&render::user(&member.map_err(|error| self.unmade(error))?)))
    }

    async fn users(&self, tenant_id: TenantId, query: &str) -> Answer {
        self.must_exist(tenant_id).await?;
        let page = Page::parse(query)?;
        let members = self.app.service.control.members(tenant_id, page.one_more()?);
        let members = members.await.map_err(|error| self.failed(&error))?;
        let users = members.iter().map(|member| (member.person.id.0.to_string(), render::user(member)));
        Ok(page.answer("users", users))
    }

    async fn epoch(&self) -> Answer {
        let epochs = self.accounts().epochs().await.map_err(|error| self.failed(&error))?;
        found(Some(json!({ "epoch": epochs.own })))
    }

    async fn must_exist(&self, id: TenantId) -> Result<(), Failure> {
        let tenant = self.accounts().tenant(id).await.map_err(|error| self.failed(&error))?;
        tenant.map(|_| ()).ok_or_else(|| Reject::PathNotFound.into())
    }
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Failure {
        Failure::new(Code::ValidationInvalidField, error.to_string())
    }
}

fn created(body: &Value) -> Response<Body> {
    respond::json(StatusCode::CREATED, body.to_string())
}

fn changed(body: &Value) -> Response<Body> {
    respond::json(StatusCode::OK, body.to_string())
}

fn found(body: Option<Value>) -> Answer {
    let body = body.ok_or(Reject::PathNotFound)?;
    Ok(respond::json(StatusCode::OK, body.to_string()))
}

/// `limit` and `cursor`, as in the API; the cursor is what the page before ended with: an id, or a name in
/// hex digits.
struct Page {
    limit: usize,
    cursor: Option<String>,
}

impl Page {
    fn parse(text: &str) -> Result<Page, Failure> {
        let mut page = Page { limit: PageLimit::default().get(), cursor: None };
        for (parameter, value) in PageParameter::read(text)? {
            match parameter {
                PageParameter::Limit => {
                    page.limit = PageLimit::new(query::integer(parameter.as_str(), &value)?).get();
                }
                PageParameter::Cursor => page.cursor = Some(value),
            }
        }
        Ok(page)
    }

    /// What the page before ended with.
    fn after<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Failure> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let problem =
            || Reject::InvalidParam { name: "cursor".into(), problem: "is not a cursor of this list" };
        read(cursor).map(Some).ok_or_else(|| problem().into())
    }

    /// One more than the page has room for tells whether there is another page.
    fn one_more(&self) -> Result<ListPage, Failure> {
        Ok(ListPage { after: self.after(Uuid::parse)?, limit: self.limit + 1 })
    }

    /// Each item with the cursor behind it.
    fn answer(&self, name: &str, items: impl Iterator<Item = (String, Value)>) -> Response<Body> {
        let mut items: Vec<(String, Value)> = items.collect();
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        let mut body = json!({ "has_more": has_more });
        if let (true, Some((last, _))) = (has_more, items.last()) {
            body["next_cursor"] = last.as_str().into();
        }
        body[name] = items.into_iter().map(|(_, item)| item).collect();
        respond::json(StatusCode::OK, body.to_string())
    }
}

fn cursor_of_name(name: &str) -> String {
    hex::encode(name)
}

fn name_of_cursor(cursor: &str) -> Option<String> {
    String::from_utf8(hex::decode(cursor).ok()?).ok().filter(|name| !name.is_empty())
}
