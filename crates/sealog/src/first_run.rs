//! An empty data directory gets what is needed for the first event.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};
use sealog_core::key;
use sealog_core::plan::Billing;
use sealog_server::password;
use sealog_store::accounts::{
    AccountError, Accounts, KeyId, ListPage, NewKey, NewProject, NewTenant, NewUser, Role, UserId,
};
use sealog_store::world::World;

const OWNER: &str = "owner@localhost";

/// Creates a tenant, a project, two keys and an owner if there is no tenant yet, and shows them once.
pub(crate) async fn prepare(
    accounts: &dyn Accounts,
    world: &dyn World,
    data_dir: &Path,
    base_url: &str,
) -> Result<(), String> {
    let tenants =
        accounts.tenants(ListPage { after: None, limit: 1 }).await.map_err(|error| error.to_string())?;
    if !tenants.is_empty() {
        return Ok(());
    }
    let text = create(accounts, world, data_dir, base_url).await?;
    if io::stdout().is_terminal() {
        println!("{text}");
    } else {
        let path = write_for_owner(data_dir, &text)
            .map_err(|error| format!("cannot write the first keys: {error}"))?;
        tracing::info!(file = %path.display(), "created a tenant, a project, keys and an owner; they are in this file, which only its owner can read");
    }
    Ok(())
}

async fn create(
    accounts: &dyn Accounts,
    world: &dyn World,
    data_dir: &Path,
    base_url: &str,
) -> Result<String, String> {
    let failed = |error: sealog_store::StoreError| error.to_string();
    let now_ms = world.now_ms();
    let random = || {
        let mut bytes = [0; 32];
        world.fill_random(&mut bytes);
        bytes
    };
    let id = || {
        let bytes = random();
        Uuid::from_random(std::array::from_fn(|at| bytes[at]))
    };
    let (tenant_id, project_id) = (TenantId(id()), ProjectId(id()));
    let (live, test) = (key::generate(Mode::Live, random()), key::generate(Mode::Test, random()));
    // 26 characters of a key's alphabet: more than 150 bits.
    let password = key::generate(Mode::Live, random())[8..34].to_owned();
    let salt = random();
    let password_hash = password::hash_now(&password, &std::array::from_fn(|at| salt[at]))?;
    accounts
        .create_tenant(NewTenant {
            id: tenant_id,
            name: "My organisation".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: now_ms,
        })
        .await
        .map_err(failed)?;
    let project = NewProject {
        id: project_id,
        tenant_id,
        name: "My project".into(),
        frameworks: FrameworkSet::NONE,
        created_at_ms: now_ms,
    };
    accounts.create_project(project).await.map_err(failed)?;
    for (mode, key) in [(Mode::Live, &live), (Mode::Test, &test)] {
        let new = NewKey {
            id: KeyId(id()),
            project_id,
            name: format!("first {} key", mode.as_str()),
            mode,
            digest: key::digest(key),
            prefix: key[..key::DISPLAY_LEN].to_owned(),
            expires_at_ms: None,
            created_at_ms: now_ms,
        };
        accounts.create_key(new).await.map_err(failed)?;
    }
    let owner = NewUser {
        id: UserId(id()),
        tenant_id,
        email: OWNER.into(),
        password_hash,
        role: Role::Owner,
        created_at_ms: now_ms,
    };
    accounts.create_user(owner).await.map_err(|error| match error {
        AccountError::AlreadyExists => "the owner exists already".to_owned(),
        AccountError::Store(error) => error.to_string(),
    })?;
    let data_dir = data_dir.canonicalize().unwrap_or(data_dir.to_owned());
    Ok(format!(
        "Sealog is ready. These are shown once; keep them.

  live key   {live}
  test key   {test}
  dashboard  {OWNER}  {password}
  data       {}

Send the first event:

  curl -sS -i {base_url}/v1/events -H 'Authorization: Bearer {live}' \\
    -H 'Content-Type: application/json' -d '{{\"action\":\"user.login\",\"actor_id\":\"me\"}}'

Read it back:

  curl -sS {base_url}/v1/events -H 'Authorization: Bearer {live}'
",
        data_dir.display()
    ))
}

fn write_for_owner(data_dir: &Path, text: &str) -> io::Result<PathBuf> {
    let path = data_dir.join("first-run.txt");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(path)
}
