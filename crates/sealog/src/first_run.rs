//! An empty store gets what is needed for the first event.
//!
//! A crash at any moment leaves either an empty store, which the next start sets up, or one whose keys are in the file:
//! t0: the secrets are written to `first-run.txt` and synced. Nothing exists that they open. t1: tenant, project, keys and owner are committed in one step.
//! t2: on a terminal they are shown, and the file is removed. The other way round, a crash between t1 and t0 would leave a store that nobody has a key to.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sealog_control::{
    Administration, FirstRun, Grants, KeyId, ListPage, NewKey, NewMember, NewPerson, NewProject, NewTenant,
    PersonId, Role,
};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};
use sealog_core::key;
use sealog_core::plan::Billing;
use sealog_service::{Secret, password};
use sealog_store::StoreError;
use sealog_store::world::World;

const OWNER: &str = "owner@localhost";
const FILE: &str = "first-run.txt";
/// Enough for a data directory with the longest path.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Why there are no first keys.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may work later.
    Store(StoreError),
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Other(problem) => f.write_str(problem),
        }
    }
}

/// Creates a tenant, a project, two keys and an owner if there is no tenant yet, and shows them once.
pub(crate) async fn prepare(
    accounts: &dyn Administration,
    world: &dyn World,
    data_dir: &Path,
    base_url: &str,
) -> Result<(), Failure> {
    let page = ListPage { after: None, limit: 1 };
    if !accounts.tenants(page).await.map_err(Failure::Store)?.is_empty() {
        let path = data_dir.join(FILE);
        if path.exists() {
            tracing::info!(file = %path.display(), "the keys of the first run are still in this file; keep them elsewhere and remove it");
        }
        return Ok(());
    }
    let (first, text) = generate(world, data_dir, base_url).map_err(Failure::Other)?;
    let cannot = |error: io::Error| Failure::Other(format!("cannot write the first keys: {error}"));
    let path = write_for_owner(data_dir, &text).map_err(cannot)?;
    if !accounts.create_first(first, Vec::new()).await.map_err(Failure::Store)? {
        // Somebody else was faster; what was written opens nothing.
        return std::fs::remove_file(&path).map_err(cannot);
    }
    if io::stdout().is_terminal() {
        println!("{}", text.0);
        std::fs::remove_file(&path).map_err(cannot)
    } else {
        tracing::info!(file = %path.display(), "created a tenant, a project, keys and an owner; they are in this file, which only its owner can read");
        Ok(())
    }
}

/// Everything that the first run creates, and the text that says how to use it.
fn generate(world: &dyn World, data_dir: &Path, base_url: &str) -> Result<(FirstRun, Secret), String> {
    let created_at_ms = world.now_ms();
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
    let new_key = |mode| Secret(key::generate(mode, random()));
    let (live, test) = (new_key(Mode::Live), new_key(Mode::Test));
    // 26 characters of a key's alphabet: more than 150 bits.
    let password = Secret(new_key(Mode::Live).0[8..34].to_owned());
    let salt = random();
    let password_hash = password::hash_now(&password.0, &std::array::from_fn(|at| salt[at]))?;
    let keys = [(Mode::Live, &live), (Mode::Test, &test)].map(|(mode, key)| NewKey {
        id: KeyId(id()),
        project_id,
        name: format!("first {} key", mode.as_str()),
        mode,
        digest: key::digest(&key.0),
        prefix: key.0[..key::DISPLAY_LEN].to_owned(),
        expires_at_ms: None,
        created_at_ms,
    });
    let first = FirstRun {
        tenant: NewTenant {
            id: tenant_id,
            name: "My organisation".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms,
        },
        project: NewProject {
            id: project_id,
            tenant_id,
            name: "My project".into(),
            frameworks: FrameworkSet::NONE,
            created_at_ms,
        },
        keys: keys.into(),
        owner: NewMember {
            tenant_id,
            person: NewPerson {
                id: PersonId(id()),
                email: OWNER.into(),
                password_hash: Some(password_hash),
                verified: true,
                created_at_ms,
            },
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms,
        },
        claim: None,
    };
    let (live, test, password) = (&live.0, &test.0, &password.0);
    let data_dir = data_dir.canonicalize().unwrap_or(data_dir.to_owned());
    // Not `format!`: a text that grows leaves copies of itself behind.
    let mut text = Secret(String::with_capacity(TEXT_BYTES_MAX));
    write!(
        text.0,
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
    )
    .expect("a String takes every text");
    Ok((first, text))
}

/// Durable when this returns, and readable for its owner alone. The file has its name only when it is whole.
fn write_for_owner(data_dir: &Path, text: &Secret) -> io::Result<PathBuf> {
    let (path, unfinished) = (data_dir.join(FILE), data_dir.join("first-run.unfinished"));
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.0.as_bytes())?;
    file.sync_all()?;
    // The keys of a first run that has not got as far as its accounts; or, where the store is not in this directory, perhaps those of another database.
    if path.exists() {
        let aside = (1..).map(|number| data_dir.join(format!("first-run.{number}.txt")));
        let aside = aside.into_iter().find(|aside| !aside.exists()).expect("numbers do not end");
        std::fs::rename(&path, &aside)?;
        tracing::warn!(file = %aside.display(), "the keys of an earlier first run do not open this store; they were put aside");
    }
    std::fs::rename(&unfinished, &path)?;
    File::open(data_dir)?.sync_all()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use sealog_control::{Control, FirstRuns, KeyAccess, Persons, Tenants};
    use sealog_store::embedded::{EmbeddedStore, Options};
    use sealog_store::world::SystemWorld;

    const URL: &str = "http://127.0.0.1:8080";

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// It keeps the directory of the store to itself.
    fn open(dir: &Path) -> Control {
        Control::embedded(&EmbeddedStore::open(dir, &Options::default()).unwrap()).unwrap()
    }

    /// What the first run does, one step after the other; a crash comes after so many of them.
    fn crash_after(steps: usize, dir: &Path) {
        let store = open(dir);
        let (first, text) = generate(&SystemWorld, dir, URL).unwrap();
        if steps >= 1 {
            // Power fails while the file is written.
            std::fs::write(dir.join("first-run.unfinished"), &text.0[..100]).unwrap();
        }
        if steps >= 2 {
            write_for_owner(dir, &text).unwrap();
        }
        if steps >= 3 {
            assert_eq!(wait(store.create_first(first, vec![])), Ok(true));
        }
    }

    fn keys_in(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let mut keys: Vec<String> =
            text.split_whitespace().filter(|word| word.starts_with("at_")).map(str::to_owned).collect();
        keys.truncate(2);
        keys
    }

    #[test]
    fn a_crash_after_any_step_of_the_first_run_leaves_a_store_that_the_next_start_has_keys_to() {
        for steps in 0..=3 {
            let dir = tempfile::tempdir().unwrap();
            crash_after(steps, dir.path());
            let store = open(dir.path());
            wait(prepare(&store, &SystemWorld, dir.path(), URL)).unwrap();
            let file = dir.path().join(FILE);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let keys = keys_in(&file);
            assert_eq!(keys.len(), 2, "after {steps} steps");
            for key in keys {
                let access = wait(store.access(key::digest(&key))).unwrap();
                assert!(access.is_some(), "after {steps} steps the keys in the file open nothing");
            }
            assert_eq!(wait(store.tenants(ListPage { after: None, limit: 9 })).unwrap().len(), 1);
            assert!(wait(store.person_by_email(OWNER.into())).unwrap().is_some());
            assert!(!dir.path().join("first-run.unfinished").exists());
        }
    }

    #[test]
    fn the_keys_of_an_earlier_first_run_are_put_aside_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "keys of another database").unwrap();
        std::fs::write(dir.path().join("first-run.1.txt"), "and of a third").unwrap();
        let store = open(dir.path());
        wait(prepare(&store, &SystemWorld, dir.path(), URL)).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("first-run.1.txt"), read("first-run.2.txt")), {
            ("and of a third".to_owned(), "keys of another database".to_owned())
        });
        assert_eq!(keys_in(&dir.path().join(FILE)).len(), 2);
    }

    #[test]
    fn where_the_keys_cannot_be_written_nothing_is_created() {
        let dir = tempfile::tempdir().unwrap();
        // Not even root can write a file where a directory is.
        std::fs::create_dir(dir.path().join("first-run.unfinished")).unwrap();
        let store = open(dir.path());
        let failure = wait(prepare(&store, &SystemWorld, dir.path(), URL)).unwrap_err();
        assert!(failure.to_string().starts_with("cannot write the first keys: "), "{failure}");
        assert_eq!(wait(store.tenants(ListPage { after: None, limit: 1 })), Ok(vec![]));
    }
}
