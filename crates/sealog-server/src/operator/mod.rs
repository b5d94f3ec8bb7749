//! The operator's interface: how tenants, projects, keys, actions and users come to be. `docs/spec.md`, "The operator's interface".

pub(crate) mod fields;
mod render;

use std::sync::Arc;

use axum::body::Body as RequestBody;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use sealog_control::{
    Administration, ChangeError, Grants, KeyId, ListPage, NewKey, NewMember, NewPerson, NewProject,
    NewTenant, PersonId, ProjectChange, Records, Role, TenantChange,
};
use sealog_core::catalog::{Catalog, CustomAction, FrameworkSet};
use sealog_core::id::{Mode, ProjectId, RequestId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_core::query::{self, PageLimit, PageParameter};
use sealog_core::reject::{Code, Reject};
use sealog_service::{Secret, password};
use sealog_store::StoreError;
use serde_json::{Value, json};

use crate::respond::{Answer, Body, Failure};
use crate::routes::Path;
use crate::{App, respond};
use fields::Fields;

pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// Custom actions of a tenant.
const ACTIONS_MAX: usize = 1000;

/// What every path of the interface begins with; the table has what comes after it.
pub(crate) const BEGINNING: &str = "/operator/v1/";

/// What an operator can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateTenant,
    ListTenants,
    UpdateTenant,
    ReadTenant,
    CreateProject,
    ListProjects,
    UpdateProject,
    ReadProject,
    CreateKey,
    ListKeys,
    RevokeKey,
    CreateAction,
    ListActions,
    CreateUser,
    ListUsers,
}

pub(crate) static PATHS: [Path<Operation>; 8] = [
    Path {
        pattern: "tenants",
        operations: &[(Method::GET, Operation::ListTenants), (Method::POST, Operation::CreateTenant)],
    },
    Path {
        pattern: "tenants/{tenant_id}",
        operations: &[(Method::GET, Operation::ReadTenant), (Method::PATCH, Operation::UpdateTenant)],
    },
    Path {
        pattern: "tenants/{tenant_id}/projects",
        operations: &[(Method::GET, Operation::ListProjects), (Method::POST, Operation::CreateProject)],
    },
    Path {
        pattern: "tenants/{tenant_id}/actions",
        operations: &[(Method::GET, Operation::ListActions), (Method::POST, Operation::CreateAction)],
    },
    Path {
        pattern: "tenants/{tenant_id}/users",
        operations: &[(Method::GET, Operation::ListUsers), (Method::POST, Operation::CreateUser)],
    },
    Path {
        pattern: "projects/{project_id}",
        operations: &[(Method::GET, Operation::ReadProject), (Method::PATCH, Operation::UpdateProject)],
    },
    Path {
        pattern: "projects/{project_id}/keys",
        operations: &[(Method::GET, Operation::ListKeys), (Method::POST, Operation::CreateKey)],
    },
    Path { pattern: "keys/{key_id}/revoke", operations: &[(Method::POST, Operation::RevokeKey)] },
];

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
        Operation::CreateAction => call.create_action(tenant_id(id)?, call.body(body).await?).await,
        Operation::ListActions => call.actions(tenant_id(id)?, query).await,
        Operation::CreateUser => call.create_user(tenant_id(id)?, call.body(body).await?).await,
        Operation::ListUsers => call.users(tenant_id(id)?, query).await,
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
        Failure::internal(error, self.request_id)
    }

    fn accounts(&self) -> &dyn Administration {
        &*self.app.control.administration
    }

    fn new_id(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.app.world.fill_random(&mut bytes);
        Uuid::from_random(bytes)
    }

    fn now_ms(&self) -> u64 {
        self.app.world.now_ms()
    }

    fn plan(&self, name: &str) -> Result<(), Failure> {
        let known: Vec<&str> = self.app.config.plans.iter().map(|plan| plan.name.as_str()).collect();
        if known.contains(&name) {
            Ok(())
        } else {
            Err(invalid("plan", &format!("must be one of {}", known.join(", "))))
        }
    }

    async fn create_tenant(&self, mut fields: Fields) -> Answer {
        let new = NewTenant {
            id: TenantId(self.new_id()),
            name: fields.required_text("name")?,
            plan: fields.text("plan")?.flatten().unwrap_or_else(|| "top".into()),
            contact_email: fields.email("contact_email")?.flatten(),
            billing: Billing {
                trial_ends_at_ms: fields.time("trial_ends_at")?.flatten(),
                billing_active: fields.boolean("billing_active")?.unwrap_or(true),
            },
            created_at_ms: self.now_ms(),
        };
        fields.nothing_else()?;
        self.plan(&new.plan)?;
        let tenant =
            self.accounts().create_tenant(new, Vec::new()).await.map_err(|error| self.failed(&error))?;
        Ok(created(&render::tenant(&tenant)))
    }

    async fn update_tenant(&self, id: TenantId, mut fields: Fields) -> Answer {
        let change = TenantChange {
            name: fields.given("name").then(|| fields.required_text("name")).transpose()?,
            plan: fields
                .text("plan")?
                .map(|plan| plan.ok_or_else(|| invalid("plan", "must not be null")))
                .transpose()?,
            contact_email: fields.email("contact_email")?,
            trial_ends_at_ms: fields.time("trial_ends_at")?,
            billing_active: fields.boolean("billing_active")?,
            rate_limit_rps: fields.rate("rate_limit_rps")?,
        };
        fields.nothing_else()?;
        if let Some(plan) = &change.plan {
            self.plan(plan)?;
        }
        let tenant = self
            .accounts()
            .update_tenant(id, change, Records::none())
            .await
            .map_err(|error| self.failed(&error))?;
        found(tenant.as_ref().map(render::tenant))
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
        let new = NewProject {
            id: ProjectId(self.new_id()),
            tenant_id,
            name: fields.required_text("name")?,
            frameworks: fields.frameworks("frameworks")?.unwrap_or(FrameworkSet::NONE),
            created_at_ms: self.now_ms(),
        };
        fields.nothing_else()?;
        let project =
            self.accounts().create_project(new, Vec::new()).await.map_err(|error| self.failed(&error))?;
        found(project.as_ref().map(render::project)).map(as_created)
    }

    async fn update_project(&self, id: ProjectId, mut fields: Fields) -> Answer {
        let change = ProjectChange {
            name: fields.given("name").then(|| fields.required_text("name")).transpose()?,
            frameworks: fields.frameworks("frameworks")?,
            rate_limit_rps: fields.rate("rate_limit_rps")?,
            now_ms: self.now_ms(),
        };
        fields.nothing_else()?;
        let project = self
            .accounts()
            .update_project(id, change, Records::none())
            .await
            .map_err(|error| self.failed(&error))?;
        found(project.as_ref().map(render::project))
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
        let name = fields.required_text("name")?;
        let mode = match fields.required_text("mode")?.as_str() {
            "live" => Mode::Live,
            "test" => Mode::Test,
            _ => return Err(invalid("mode", "must be \"live\" or \"test\"")),
        };
        let expires_at_ms = fields.time("expires_at")?.flatten();
        fields.nothing_else()?;
        let mut random = [0; 32];
        self.app.world.fill_random(&mut random);
        let raw = sealog_core::key::generate(mode, random);
        let new = NewKey {
            id: KeyId(self.new_id()),
            project_id,
            name,
            mode,
            digest: sealog_core::key::digest(&raw),
            prefix: raw[..sealog_core::key::DISPLAY_LEN].to_owned(),
            expires_at_ms,
            created_at_ms: self.now_ms(),
        };
        let key = self.accounts().create_key(new, Vec::new()).await.map_err(|error| self.failed(&error))?;
        let answer = key.map(|key| {
            let mut answer = render::key(&key);
            // This once.
            answer["key"] = raw.into();
            answer
        });
        found(answer).map(as_created)
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
        let key = self
            .accounts()
            .revoke_key(id, self.now_ms(), Records::none())
            .await
            .map_err(|error| self.failed(&error))?;
        found(key.as_ref().map(render::key))
    }

    async fn create_action(&self, tenant_id: TenantId, mut fields: Fields) -> Answer {
        let action = CustomAction {
            action: fields.required_text("action")?,
            description: fields.text("description")?.flatten(),
            category: fields.text("category")?.flatten(),
            severity: fields.text("severity")?.flatten(),
            required_fields: fields.texts("required_fields")?,
            optional_fields: fields.texts("optional_fields")?,
        };
        fields.nothing_else()?;
        Catalog::builtin()
            .check_custom_name(&action.action)
            .map_err(|problem| invalid("action", &problem))?;
        // Every caller of the tenant has them in memory, and `GET /v1/actions` shows them all.
        let known = self.accounts().actions(tenant_id).await.map_err(|error| self.failed(&error))?;
        if known.len() >= ACTIONS_MAX && !known.iter().any(|known| known.action == action.action) {
            return Err(invalid("action", &format!("is one too many: a tenant has at most {ACTIONS_MAX}")));
        }
        match self.accounts().create_action(tenant_id, action, Vec::new()).await {
            Ok(action) => found(action.as_ref().map(render::action)).map(as_created),
            Err(ChangeError::AlreadyExists) => Err(invalid("action", "is registered already")),
            Err(ChangeError::Store(error)) => Err(self.failed(&error)),
        }
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
        let email = fields.email("email")?.flatten().ok_or_else(|| invalid("email", "is required"))?;
        let password = Secret(fields.required_text("password")?);
        let role = fields.required_text("role")?;
        let known = Role::ALL.into_iter().find(|known| known.as_str() == role);
        let role = known.ok_or_else(|| {
            invalid("role", &format!("must be one of {}", Role::ALL.map(Role::as_str).join(", ")))
        })?;
        fields.nothing_else()?;
        if password.0.chars().count() < password::LENGTH_MIN {
            return Err(invalid(
                "password",
                &format!("must have at least {} characters", password::LENGTH_MIN),
            ));
        }
        let people = &self.app.control.people;
        self.must_exist(tenant_id).await?;
        // Somebody who has an account keeps the password that it has: the one in the body is ignored.
        let known = people.person_by_email(email.clone()).await.map_err(|error| self.failed(&error))?;
        let password_hash = match known {
            Some(_) => None,
            None => Some(
                password::hash(&*self.app.world, password)
                    .await
                    .map_err(|error| Failure::internal(&error, self.request_id))?,
            ),
        };
        let created_at_ms = self.now_ms();
        let new = NewMember {
            tenant_id,
            // The operator vouches for the address.
            person: NewPerson {
                id: PersonId(self.new_id()),
                email,
                password_hash,
                verified: true,
                created_at_ms,
            },
            role,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms,
        };
        match people.add_member(new, Records::none()).await {
            Ok(member) => found(member.as_ref().map(render::user)).map(as_created),
            Err(ChangeError::AlreadyExists) => Err(invalid("email", "is a member of this tenant already")),
            Err(ChangeError::Store(error)) => Err(self.failed(&error)),
        }
    }

    async fn users(&self, tenant_id: TenantId, query: &str) -> Answer {
        self.must_exist(tenant_id).await?;
        let page = Page::parse(query)?;
        let members = self.app.control.people.members(tenant_id, page.one_more()?);
        let members = members.await.map_err(|error| self.failed(&error))?;
        let users = members.iter().map(|member| (member.person.id.0.to_string(), render::user(member)));
        Ok(page.answer("users", users))
    }

    async fn must_exist(&self, id: TenantId) -> Result<(), Failure> {
        let tenant = self.accounts().tenant(id).await.map_err(|error| self.failed(&error))?;
        tenant.map(|_| ()).ok_or_else(|| Reject::PathNotFound.into())
    }
}

fn invalid(field: &str, problem: &str) -> Failure {
    Failure::new(Code::ValidationInvalidField, format!("{field} {problem}"))
}

fn created(body: &Value) -> Response<Body> {
    respond::json(StatusCode::CREATED, body.to_string())
}

fn as_created(mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = StatusCode::CREATED;
    response
}

fn found(body: Option<Value>) -> Answer {
    let body = body.ok_or(Reject::PathNotFound)?;
    Ok(respond::json(StatusCode::OK, body.to_string()))
}

/// `limit` and `cursor`, as in the API; the cursor is what the page before ended with: an id, or a name in hex digits.
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
    name.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn name_of_cursor(cursor: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = cursor.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    String::from_utf8(bytes?).ok().filter(|name| !name.is_empty())
}
