//! The control data of the [reference store](crate::reference): lists in memory, in the order of creation.

use std::sync::Mutex;

use sealog_core::catalog::{CustomAction, FrameworkSet};
use sealog_core::id::{Hash, ProjectId, TenantId, Uuid};

use crate::accounts::{
    Access, AccountError, Accounts, ApiKey, FirstRun, KeyId, ListPage, Mail, MailKey, MailOutcome, NewKey,
    NewMail, NewProject, NewTenant, NewUser, Project, ProjectChange, Session, Tenant, TenantChange, User,
};
use crate::reference::ReferenceStore;
use crate::{BoxFuture, StoreError};

#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    changes: u64,
    tenants: Vec<Tenant>,
    projects: Vec<Project>,
    keys: Vec<(ApiKey, Hash)>,
    actions: Vec<(TenantId, CustomAction)>,
    users: Vec<(User, String)>,
    sessions: Vec<Session>,
    mails: Vec<QueuedMail>,
}

#[derive(Debug)]
struct QueuedMail {
    key: MailKey,
    mail: Mail,
    due_at_ms: u64,
    sent: bool,
}

impl Book {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().expect("reference store lock"))
    }
}

impl State {
    fn has_tenant(&self, id: TenantId) -> bool {
        self.tenants.iter().any(|tenant| tenant.id == id)
    }

    fn create_first(&mut self, first: FirstRun) -> Result<bool, StoreError> {
        if !self.tenants.is_empty() {
            return Ok(false);
        }
        let FirstRun { tenant, project, keys, owner } = first;
        // Aside, so that all of it is there or nothing: there is nothing to roll back.
        let mut made = State { changes: self.changes, ..State::default() };
        made.create_tenant(tenant)?;
        made.create_project(project)?.expect("it is of this tenant");
        for key in keys {
            made.create_key(key)?.expect("it is of this project");
        }
        made.create_user(owner).ok().flatten().expect("nobody has this address");
        *self = made;
        Ok(true)
    }

    fn create_tenant(&mut self, new: NewTenant) -> Result<Tenant, StoreError> {
        refuse_if(self.has_tenant(new.id), "a tenant with this id exists")?;
        let NewTenant { id, name, plan, contact_email, billing, created_at_ms } = new;
        let tenant = Tenant { id, name, plan, contact_email, billing, rate_limit_rps: None, created_at_ms };
        self.tenants.push(tenant.clone());
        self.changes += 1;
        Ok(tenant)
    }

    fn update_tenant(&mut self, id: TenantId, change: TenantChange) -> Option<Tenant> {
        let tenant = self.tenants.iter_mut().find(|tenant| tenant.id == id)?;
        change.apply(tenant);
        self.changes += 1;
        Some(tenant.clone())
    }

    fn create_project(&mut self, new: NewProject) -> Result<Option<Project>, StoreError> {
        if !self.has_tenant(new.tenant_id) {
            return Ok(None);
        }
        let exists = self.projects.iter().any(|project| project.id == new.id);
        refuse_if(exists, "a project with this id exists")?;
        let project = Project {
            id: new.id,
            tenant_id: new.tenant_id,
            name: new.name,
            frameworks: new.frameworks,
            frameworks_ever: new.frameworks,
            rate_limit_rps: None,
            created_at_ms: new.created_at_ms,
        };
        self.projects.push(project.clone());
        self.changes += 1;
        Ok(Some(project))
    }

    fn update_project(&mut self, id: ProjectId, change: ProjectChange) -> Option<Project> {
        let project = self.projects.iter_mut().find(|project| project.id == id)?;
        change.apply(project);
        self.changes += 1;
        Some(project.clone())
    }

    fn create_key(&mut self, new: NewKey) -> Result<Option<ApiKey>, StoreError> {
        if !self.projects.iter().any(|project| project.id == new.project_id) {
            return Ok(None);
        }
        let exists = self.keys.iter().any(|(key, digest)| key.id == new.id || *digest == new.digest);
        refuse_if(exists, "a key with this id or digest exists")?;
        let key = ApiKey {
            id: new.id,
            project_id: new.project_id,
            name: new.name,
            mode: new.mode,
            prefix: new.prefix,
            expires_at_ms: new.expires_at_ms,
            revoked_at_ms: None,
            last_used_at_ms: None,
            created_at_ms: new.created_at_ms,
        };
        self.keys.push((key.clone(), new.digest));
        self.changes += 1;
        Ok(Some(key))
    }

    fn revoke_key(&mut self, id: KeyId, now_ms: u64) -> Option<ApiKey> {
        let (key, _) = self.keys.iter_mut().find(|(key, _)| key.id == id)?;
        key.revoked_at_ms.get_or_insert(now_ms);
        self.changes += 1;
        Some(key.clone())
    }

    fn access(&self, key_digest: Hash) -> Option<Access> {
        let (key, digest) = self.keys.iter().find(|(_, digest)| *digest == key_digest)?;
        let project = self.projects.iter().find(|project| project.id == key.project_id)?;
        let tenant = self.tenants.iter().find(|tenant| tenant.id == project.tenant_id)?;
        let of_tenant = self.projects.iter().filter(|project| project.tenant_id == tenant.id);
        Some(Access {
            key: key.clone(),
            digest: *digest,
            project: project.clone(),
            tenant: tenant.clone(),
            actions: self.actions(tenant.id),
            tenant_frameworks: of_tenant
                .fold(FrameworkSet::NONE, |set, project| set.union(project.frameworks)),
        })
    }

    fn keys_used(&mut self, used: &[(KeyId, u64)]) {
        for (id, used_at_ms) in used {
            if let Some((key, _)) = self.keys.iter_mut().find(|(key, _)| key.id == *id) {
                key.last_used_at_ms = key.last_used_at_ms.max(Some(*used_at_ms));
            }
        }
    }

    fn create_action(
        &mut self,
        tenant_id: TenantId,
        action: CustomAction,
    ) -> Result<Option<CustomAction>, AccountError> {
        if !self.has_tenant(tenant_id) {
            return Ok(None);
        }
        if self.actions(tenant_id).iter().any(|existing| existing.action == action.action) {
            return Err(AccountError::AlreadyExists);
        }
        self.actions.push((tenant_id, action.clone()));
        self.changes += 1;
        Ok(Some(action))
    }

    fn actions(&self, tenant_id: TenantId) -> Vec<CustomAction> {
        let of_tenant = self.actions.iter().filter(|(owner, _)| *owner == tenant_id);
        let mut actions: Vec<CustomAction> = of_tenant.map(|(_, action)| action.clone()).collect();
        actions.sort_by(|a, b| a.action.cmp(&b.action));
        actions
    }

    fn create_user(&mut self, new: NewUser) -> Result<Option<User>, AccountError> {
        if !self.has_tenant(new.tenant_id) {
            return Ok(None);
        }
        if self.user_by_email(&new.email).is_some() {
            return Err(AccountError::AlreadyExists);
        }
        let exists = self.users.iter().any(|(user, _)| user.id == new.id);
        refuse_if(exists, "a user with this id exists")?;
        let NewUser { id, tenant_id, email, password_hash, role, created_at_ms } = new;
        let user = User { id, tenant_id, email, role, created_at_ms };
        self.users.push((user.clone(), password_hash));
        Ok(Some(user))
    }

    fn user_by_email(&self, email: &str) -> Option<(User, String)> {
        let wanted = email.to_lowercase();
        self.users.iter().find(|(user, _)| user.email.to_lowercase() == wanted).cloned()
    }

    fn create_session(&mut self, session: Session) -> Result<(), StoreError> {
        let has_user = self.users.iter().any(|(user, _)| user.id == session.user_id);
        refuse_if(!has_user, "there is no such user")?;
        self.sessions.retain(|existing| existing.expires_at_ms > session.created_at_ms);
        let taken = self.sessions.iter().any(|existing| existing.token_digest == session.token_digest);
        refuse_if(taken, "a session with this token exists")?;
        self.sessions.push(session);
        Ok(())
    }

    fn session(&self, token_digest: Hash, now_ms: u64) -> Option<Session> {
        let session = self.sessions.iter().find(|session| session.token_digest == token_digest)?;
        (now_ms < session.expires_at_ms).then(|| session.clone())
    }

    fn enqueue_mail(&mut self, new: NewMail) -> Result<bool, StoreError> {
        refuse_if(!self.has_tenant(new.key.tenant_id), "there is no such tenant")?;
        if self.mails.iter().any(|queued| queued.key == new.key) {
            return Ok(false);
        }
        let NewMail { key, to, subject, body, created_at_ms } = new;
        let id = i64::try_from(self.mails.len()).expect("they are in memory") + 1;
        let mail = Mail { id, to, subject, body, attempts: 0 };
        self.mails.push(QueuedMail { key, mail, due_at_ms: created_at_ms, sent: false });
        Ok(true)
    }

    fn claim_mail(&mut self, id: i64, now_ms: u64, until_ms: u64) -> bool {
        let due =
            |queued: &&mut QueuedMail| queued.mail.id == id && !queued.sent && queued.due_at_ms <= now_ms;
        let claimed = self.mails.iter_mut().find(due);
        claimed.map(|queued| queued.due_at_ms = until_ms).is_some()
    }

    fn mail_attempted(&mut self, id: i64, outcome: &MailOutcome) {
        let waiting = |queued: &&mut QueuedMail| queued.mail.id == id && !queued.sent;
        if let Some(queued) = self.mails.iter_mut().find(waiting) {
            queued.mail.attempts += 1;
            match outcome {
                MailOutcome::Sent { .. } => queued.sent = true,
                MailOutcome::Failed { retry_at_ms, .. } => queued.due_at_ms = *retry_at_ms,
            }
        }
    }
}

fn refuse_if(wrong: bool, why: &str) -> Result<(), StoreError> {
    if wrong { Err(StoreError::Refused(why.into())) } else { Ok(()) }
}

/// What comes after the item with the id `page.after`; nothing if it is not one of them.
fn page_of<'a, T: Clone + 'a>(
    items: impl Iterator<Item = &'a T>,
    id: impl Fn(&T) -> Uuid,
    page: ListPage,
) -> Vec<T> {
    let mut items = items;
    if let Some(after) = page.after {
        items.find(|item| id(item) == after);
    }
    items.take(page.limit).cloned().collect()
}

impl Accounts for ReferenceStore {
    fn create_first(&self, first: FirstRun) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move { self.book.with(|state| state.create_first(first)) })
    }

    fn create_tenant(&self, new: NewTenant) -> BoxFuture<'_, Result<Tenant, StoreError>> {
        Box::pin(async move { self.book.with(|state| state.create_tenant(new)) })
    }

    fn update_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
    ) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        Box::pin(async move { Ok(self.book.with(|state| state.update_tenant(id, change))) })
    }

    fn tenant(&self, id: TenantId) -> BoxFuture<'_, Result<Option<Tenant>, StoreError>> {
        let found = self.book.with(|state| state.tenants.iter().find(|tenant| tenant.id == id).cloned());
        Box::pin(async move { Ok(found) })
    }

    fn tenants(&self, page: ListPage) -> BoxFuture<'_, Result<Vec<Tenant>, StoreError>> {
        let found = self.book.with(|state| page_of(state.tenants.iter(), |tenant| tenant.id.0, page));
        Box::pin(async move { Ok(found) })
    }

    fn create_project(&self, new: NewProject) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        Box::pin(async move { self.book.with(|state| state.create_project(new)) })
    }

    fn update_project(
        &self,
        id: ProjectId,
        change: ProjectChange,
    ) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        Box::pin(async move { Ok(self.book.with(|state| state.update_project(id, change))) })
    }

    fn project(&self, id: ProjectId) -> BoxFuture<'_, Result<Option<Project>, StoreError>> {
        let found = self.book.with(|state| state.projects.iter().find(|project| project.id == id).cloned());
        Box::pin(async move { Ok(found) })
    }

    fn projects(
        &self,
        tenant_id: TenantId,
        page: ListPage,
    ) -> BoxFuture<'_, Result<Vec<Project>, StoreError>> {
        let found = self.book.with(|state| {
            let of_tenant = state.projects.iter().filter(|project| project.tenant_id == tenant_id);
            page_of(of_tenant, |project| project.id.0, page)
        });
        Box::pin(async move { Ok(found) })
    }

    fn create_key(&self, new: NewKey) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        Box::pin(async move { self.book.with(|state| state.create_key(new)) })
    }

    fn revoke_key(&self, id: KeyId, now_ms: u64) -> BoxFuture<'_, Result<Option<ApiKey>, StoreError>> {
        Box::pin(async move { Ok(self.book.with(|state| state.revoke_key(id, now_ms))) })
    }

    fn keys(&self, project_id: ProjectId, page: ListPage) -> BoxFuture<'_, Result<Vec<ApiKey>, StoreError>> {
        let found = self.book.with(|state| {
            let keys = state.keys.iter().map(|(key, _)| key);
            page_of(keys.filter(|key| key.project_id == project_id), |key| key.id.0, page)
        });
        Box::pin(async move { Ok(found) })
    }

    fn access(&self, key_digest: Hash) -> BoxFuture<'_, Result<Option<Access>, StoreError>> {
        let found = self.book.with(|state| state.access(key_digest));
        Box::pin(async move { Ok(found) })
    }

    fn keys_used(&self, used: Vec<(KeyId, u64)>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.book.with(|state| state.keys_used(&used));
            Ok(())
        })
    }

    fn create_action(
        &self,
        tenant_id: TenantId,
        action: CustomAction,
    ) -> BoxFuture<'_, Result<Option<CustomAction>, AccountError>> {
        Box::pin(async move { self.book.with(|state| state.create_action(tenant_id, action)) })
    }

    fn actions(&self, tenant_id: TenantId) -> BoxFuture<'_, Result<Vec<CustomAction>, StoreError>> {
        let found = self.book.with(|state| state.actions(tenant_id));
        Box::pin(async move { Ok(found) })
    }

    fn create_user(&self, new: NewUser) -> BoxFuture<'_, Result<Option<User>, AccountError>> {
        Box::pin(async move { self.book.with(|state| state.create_user(new)) })
    }

    fn users(&self, tenant_id: TenantId, page: ListPage) -> BoxFuture<'_, Result<Vec<User>, StoreError>> {
        let found = self.book.with(|state| {
            let users = state.users.iter().map(|(user, _)| user);
            page_of(users.filter(|user| user.tenant_id == tenant_id), |user| user.id.0, page)
        });
        Box::pin(async move { Ok(found) })
    }

    fn user_by_email(&self, email: String) -> BoxFuture<'_, Result<Option<(User, String)>, StoreError>> {
        let found = self.book.with(|state| state.user_by_email(&email));
        Box::pin(async move { Ok(found) })
    }

    fn create_session(&self, session: Session) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.book.with(|state| state.create_session(session)) })
    }

    fn session(&self, token_digest: Hash, now_ms: u64) -> BoxFuture<'_, Result<Option<Session>, StoreError>> {
        let found = self.book.with(|state| state.session(token_digest, now_ms));
        Box::pin(async move { Ok(found) })
    }

    fn end_session(&self, token_digest: Hash) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.book.with(|state| state.sessions.retain(|session| session.token_digest != token_digest));
            Ok(())
        })
    }

    fn enqueue_mail(&self, mail: NewMail) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move { self.book.with(|state| state.enqueue_mail(mail)) })
    }

    fn due_mails(&self, now_ms: u64, limit: usize) -> BoxFuture<'_, Result<Vec<Mail>, StoreError>> {
        let found = self.book.with(|state| {
            let due = state.mails.iter().filter(|queued| !queued.sent && queued.due_at_ms <= now_ms);
            due.take(limit).map(|queued| queued.mail.clone()).collect()
        });
        Box::pin(async move { Ok(found) })
    }

    fn claim_mail(&self, id: i64, now_ms: u64, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        let claimed = self.book.with(|state| state.claim_mail(id, now_ms, until_ms));
        Box::pin(async move { Ok(claimed) })
    }

    fn mail_attempted(&self, id: i64, outcome: MailOutcome) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.book.with(|state| state.mail_attempted(id, &outcome));
            Ok(())
        })
    }

    fn pending_mails(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        let waiting = self.book.with(|state| state.mails.iter().filter(|queued| !queued.sent).count());
        Box::pin(async move { Ok(waiting as u64) })
    }

    fn version(&self) -> u64 {
        self.book.with(|state| 1 + state.changes)
    }
}
