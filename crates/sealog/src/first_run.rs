//! An empty store gets what is needed for the first event, and its owner a link to claim the account with.
//!
//! A crash at any moment leaves either an empty store, which the next start sets up, or one whose keys are in
//! the file: t0: the secrets are written to `first-run.txt` and synced. Nothing exists that they open. t1:
//! tenant, project, keys, owner and the link are committed in one step. t2: on a terminal they are shown, and
//! the file is removed. The other way round, a crash between t1 and t0 would leave a store that nobody has a
//! key to.
//!
//! Once somebody has claimed the account, the file loses the link: t3: the claim is committed. t4: the file
//! is written without the link. After a crash between the two the next start does it. A link that is over and
//! that nobody has used is replaced by a new one at the next start, which is committed before it is written:
//! a crash in between leaves one that nobody has seen, and the start after it makes another as soon as that
//! is over, or `sealog reset` at once.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_control::{Control, ListPage};
use sealog_service::Secret;
use sealog_service::people::account::{self, OWNER};
use sealog_service::people::admin::first::First;
use sealog_service::people::admin::{Actor, Admin, AdminError};
use sealog_service::people::sign_in::Failed;
use sealog_store::StoreError;
use sealog_store::world::World;

const FILE: &str = "first-run.txt";
/// What the line with the link begins with.
const CLAIM: &str = "  dashboard  ";
const ABOUT_CLAIM: &str = "The dashboard link makes you the owner. It works once and expires after 24 hours.";
const ABOUT_VKEY: &str = "
Everything that this server signs is verified with one line. Give this line to your auditor,
by another way than this server; it is no secret:";
/// Enough for a data directory with the longest path.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Why there are no first keys.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may work later.
    Store(StoreError),
    Other(String),
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Failure {
        match error {
            AdminError::Store(error) => Failure::Store(error),
            AdminError::Internal(problem) => Failure::Other(problem),
            AdminError::Field(error) => Failure::Other(error.to_string()),
            AdminError::NotFound => Failure::Other("the first tenant is not there".into()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Other(problem) => f.write_str(problem),
        }
    }
}

/// Where things are and how they are reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    pub data_dir: &'a Path,
    pub base_url: &'a str,
    pub app_url: &'a str,
    /// What the signed log is verified with, if this store has one.
    pub vkey: Option<&'a str>,
}

/// Creates a tenant, a project, two keys and an owner if there is no tenant yet, and shows them once.
pub(crate) async fn prepare(
    control: &Control,
    admin: &Admin,
    world: &Arc<dyn World>,
    addresses: Addresses<'_>,
) -> Result<(), Failure> {
    let data_dir = addresses.data_dir;
    let page = ListPage { after: None, limit: 1 };
    if !control.tenants(page).await.map_err(Failure::Store)?.is_empty() {
        renew_claim(control, world, addresses).await?;
        let path = data_dir.join(FILE);
        if path.exists() {
            tracing::info!(file = %path.display(), "the first-run keys are still in this file; store them elsewhere and remove it");
        }
        return Ok(());
    }
    let first = admin.prepare_first(Actor::Host, addresses.app_url);
    let text = text(&first, addresses);
    let cannot = |error: io::Error| Failure::Other(format!("cannot write the first keys: {error}"));
    let path = write_for_owner(data_dir, &text).map_err(cannot)?;
    if !admin.create_first(first).await? {
        // Somebody else was faster; what was written opens nothing.
        return std::fs::remove_file(&path).map_err(cannot);
    }
    if io::stdout().is_terminal() {
        println!("{}", text.0);
        std::fs::remove_file(&path).map_err(cannot)
    } else {
        tracing::info!(file = %path.display(), "created a tenant, a project, keys and an owner; keys and the claim link are in this file, which only its owner can read");
        Ok(())
    }
}

/// As long as nobody has claimed the account of the first owner, there is a link to do it with; afterwards
/// there is none in the file.
async fn renew_claim(
    control: &Control,
    world: &Arc<dyn World>,
    addresses: Addresses<'_>,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::Other(format!("cannot write the claim link: {error}"));
    let owner = control.person_by_email(OWNER.into()).await.map_err(Failure::Store)?;
    let Some((owner, None)) = owner else { return forget_claim(addresses.data_dir).map_err(cannot) };
    if control.has_claim(owner.id, world.now_ms()).await.map_err(Failure::Store)? {
        return Ok(());
    }
    let made = account::make_reset_link(control, world, addresses.app_url, OWNER).await;
    let made = made.map_err(|Failed(error)| Failure::Store(error))?;
    let Some(account::HostLink { url: link, .. }) = made else { return Ok(()) };
    if io::stdout().is_terminal() {
        println!(
            "The owner account is not claimed yet. This link claims it. It works once and expires after 24 hours:\n\n  {}\n",
            link.0
        );
        return Ok(());
    }
    let path = rewrite(addresses.data_dir, Some(&link)).map_err(cannot)?;
    tracing::info!(file = %path.display(), "owner claim link expired; wrote a new one to this file");
    Ok(())
}

/// The file without the link, which is worth nothing any more.
pub(crate) fn forget_claim(data_dir: &Path) -> io::Result<()> {
    match std::fs::read_to_string(data_dir.join(FILE)).map(Secret) {
        Ok(text) if text.0.lines().any(is_claim) => rewrite(data_dir, None).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_claim(line: &str) -> bool {
    line.starts_with(CLAIM)
}

/// The same file with another link, or with none.
fn rewrite(data_dir: &Path, link: Option<&Secret>) -> io::Result<PathBuf> {
    let path = data_dir.join(FILE);
    let before = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    };
    let before = Secret(before?);
    let mut text = Secret(String::with_capacity(TEXT_BYTES_MAX.max(before.0.len() + 200)));
    let (mut link, is_gone) = (link, link.is_none());
    for line in before.0.lines() {
        match link.filter(|_| is_claim(line)) {
            Some(link) => writeln!(text.0, "{CLAIM}{}", link.0),
            None if is_claim(line) || is_gone && line == ABOUT_CLAIM => Ok(()),
            None => writeln!(text.0, "{line}"),
        }
        .expect("a String takes every text");
        if is_claim(line) {
            link = None;
        }
    }
    if let Some(link) = link {
        writeln!(text.0, "{CLAIM}{}", link.0).expect("a String takes every text");
    }
    let unfinished = write_unfinished(data_dir, &text)?;
    std::fs::rename(&unfinished, &path)?;
    File::open(data_dir)?.sync_all()?;
    Ok(path)
}

/// The text that says what was created and how to use it.
fn text(First { live, test, claim, .. }: &First, addresses: Addresses<'_>) -> Secret {
    let Addresses { data_dir, base_url, vkey, .. } = addresses;
    let (live, test, claim) = (&live.0, &test.0, &claim.0);
    let data_dir = data_dir.canonicalize().unwrap_or(data_dir.to_owned());
    let vkey = vkey.map_or(String::new(), |vkey| format!("{ABOUT_VKEY}\n\n  vkey       {vkey}\n"));
    // Not `format!`: a text that grows leaves copies of itself behind.
    let mut text = Secret(String::with_capacity(TEXT_BYTES_MAX));
    write!(
        text.0,
        "Sealog is ready. These are shown once; keep them.

  live key   {live}
  test key   {test}
{CLAIM}{claim}
  data       {}

{ABOUT_CLAIM}
{vkey}
Send the first event:

  curl -sS -i {base_url}/v1/events -H 'Authorization: Bearer {live}' \\
    -H 'Content-Type: application/json' -d '{{\"action\":\"user.login\",\"actor_id\":\"me\"}}'

Read it back:

  curl -sS {base_url}/v1/events -H 'Authorization: Bearer {live}'
",
        data_dir.display()
    )
    .expect("a String takes every text");
    text
}

/// Durable when this returns, and readable for its owner alone.
fn write_unfinished(data_dir: &Path, text: &Secret) -> io::Result<PathBuf> {
    let unfinished = data_dir.join("first-run.unfinished");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.0.as_bytes())?;
    file.sync_all()?;
    Ok(unfinished)
}

/// Durable when this returns. The file has its name only when it is whole.
fn write_for_owner(data_dir: &Path, text: &Secret) -> io::Result<PathBuf> {
    let (path, unfinished) = (data_dir.join(FILE), write_unfinished(data_dir, text)?);
    // The keys of a first run that has not got as far as its accounts; or, where the store is not in this
    // directory, perhaps those of another database.
    if path.exists() {
        let aside = (1..).map(|number| data_dir.join(format!("first-run.{number}.txt")));
        let aside = aside.into_iter().find(|aside| !aside.exists()).expect("numbers do not end");
        std::fs::rename(&path, &aside)?;
        tracing::warn!(file = %aside.display(), "keys of an earlier first run do not open this store; moved them aside");
    }
    std::fs::rename(&unfinished, &path)?;
    File::open(data_dir)?.sync_all()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use sealog_control::{Claimed, KeyAccess, Records};
    use sealog_core::key;
    use sealog_core::plan::Plan;
    use sealog_service::people::sign_in::Token;
    use sealog_service::records::system_chain::Wake;
    use sealog_store::embedded::{EmbeddedStore, Options};
    use sealog_store::world::SystemWorld;

    const URL: &str = "http://127.0.0.1:8080";
    const APP_URL: &str = "http://127.0.0.1:8080/app";
    const VKEY: &str = "log.example+00000000+AQ==";

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// It keeps the directory of the store to itself.
    fn open(dir: &Path) -> Arc<Control> {
        Arc::new(Control::embedded(&EmbeddedStore::open(dir, &Options::default()).unwrap()).unwrap())
    }

    fn admin(control: &Arc<Control>) -> Admin {
        let control = Arc::clone(control);
        Admin::new(control, Arc::new(SystemWorld), &Plan::defaults(), Wake::default())
    }

    fn addresses(data_dir: &Path) -> Addresses<'_> {
        Addresses { data_dir, base_url: URL, app_url: APP_URL, vkey: Some(VKEY) }
    }

    fn prepare_in(dir: &Path, store: &Arc<Control>, world: impl World + 'static) -> Result<(), Failure> {
        let world: Arc<dyn World> = Arc::new(world);
        wait(prepare(store, &admin(store), &world, addresses(dir)))
    }

    /// What the first run does, one step after the other; a crash comes after so many of them.
    fn crash_after(steps: usize, dir: &Path) {
        let store = open(dir);
        let first = admin(&store).prepare_first(Actor::Host, APP_URL);
        let text = text(&first, addresses(dir));
        if steps >= 1 {
            // Power fails while the file is written.
            std::fs::write(dir.join("first-run.unfinished"), &text.0[..100]).unwrap();
        }
        if steps >= 2 {
            write_for_owner(dir, &text).unwrap();
        }
        if steps >= 3 {
            assert_eq!(wait(admin(&store).create_first(first)), Ok(true));
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
            prepare_in(dir.path(), &store, SystemWorld).unwrap();
            let file = dir.path().join(FILE);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let keys = keys_in(&file);
            assert_eq!(keys.len(), 2, "after {steps} steps");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains("Give this line to your auditor"), "{text}");
            assert!(text.lines().any(|line| line == format!("  vkey       {VKEY}")), "{text}");
            for key in keys {
                let access = wait(store.access(key::digest(&key))).unwrap();
                assert!(access.is_some(), "after {steps} steps the keys in the file open nothing");
            }
            let tenants = wait(store.tenants(ListPage { after: None, limit: 9 })).unwrap();
            assert_eq!(tenants.len(), 1);
            // Tenant, project, two keys and the owner, by whoever sits at the machine.
            let records = wait(store.pending_records(tenants[0].id, 9)).unwrap();
            assert_eq!(records.len(), 5, "after {steps} steps");
            assert!(
                records.iter().all(|record| record.draft.contains("\"actor_id\":\"host\"")),
                "{records:?}"
            );
            assert!(!records.iter().any(|record| record.draft.contains(OWNER)), "{records:?}");
            assert!(wait(store.person_by_email(OWNER.into())).unwrap().is_some());
            let claim = claim_in(&file).expect("a link to claim the account");
            assert!(wait(store.link(claim.digest(), now())).unwrap().is_some(), "after {steps} steps");
            assert!(!dir.path().join("first-run.unfinished").exists());
        }
    }

    fn now() -> u64 {
        SystemWorld.now_ms()
    }

    fn claim_in(path: &Path) -> Option<Token> {
        let text = std::fs::read_to_string(path).unwrap();
        let link =
            text.split_whitespace().find_map(|word| word.strip_prefix(APP_URL)?.strip_prefix("/claim#"));
        link.and_then(Token::parse)
    }

    #[test]
    fn the_file_loses_the_link_once_the_account_is_claimed_and_keeps_the_keys() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        prepare_in(dir.path(), &store, SystemWorld).unwrap();
        let file = dir.path().join(FILE);
        let (before, claim) = (std::fs::read_to_string(&file).unwrap(), claim_in(&file).unwrap());
        // Nothing happens to a link that works, however often the server starts.
        prepare_in(dir.path(), &store, SystemWorld).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
        let owner = Claimed { email: "me@example.org".into(), password_hash: "h".into() };
        wait(store.claim(claim.digest(), now(), owner, Records::none())).unwrap().unwrap();
        // The server died before it could write the file.
        prepare_in(dir.path(), &store, SystemWorld).unwrap();
        let after = std::fs::read_to_string(&file).unwrap();
        assert_eq!((claim_in(&file), keys_in(&file).len()), (None, 2));
        assert!(!after.contains("/claim#") && !after.contains(&claim.0.0), "{after}");
        assert!(!after.contains(ABOUT_CLAIM));
        assert_eq!(after.lines().count(), before.lines().count() - 2);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        forget_claim(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
        std::fs::remove_file(&file).unwrap();
        prepare_in(dir.path(), &store, SystemWorld).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn a_link_that_is_over_is_replaced_until_somebody_claims_the_account() {
        #[derive(Debug)]
        struct Later;
        impl World for Later {
            fn now_ms(&self) -> u64 {
                SystemWorld.now_ms() + account::CLAIM_MS + 1
            }
            fn fill_random(&self, bytes: &mut [u8]) {
                SystemWorld.fill_random(bytes);
            }
        }
        for keeps_file in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let store = open(dir.path());
            prepare_in(dir.path(), &store, SystemWorld).unwrap();
            let file = dir.path().join(FILE);
            let first = claim_in(&file).unwrap();
            if !keeps_file {
                std::fs::remove_file(&file).unwrap();
            }
            prepare_in(dir.path(), &store, Later).unwrap();
            let second = claim_in(&file).unwrap();
            assert_ne!(first, second);
            let works = |token: &Token| wait(store.link(token.digest(), Later.now_ms())).unwrap().is_some();
            assert_eq!((works(&first), works(&second)), (false, true));
            let tenants = wait(store.tenants(ListPage { after: None, limit: 9 })).unwrap();
            let told = wait(store.pending_records(tenants[0].id, 9)).unwrap().pop().unwrap().draft;
            assert!(told.contains("sealog.reset_link_made") && told.contains("\"host\""), "{told}");
            assert_eq!(keys_in(&file).len(), if keeps_file { 2 } else { 0 });
        }
    }

    #[test]
    fn the_keys_of_an_earlier_first_run_are_put_aside_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "keys of another database").unwrap();
        std::fs::write(dir.path().join("first-run.1.txt"), "and of a third").unwrap();
        let store = open(dir.path());
        prepare_in(dir.path(), &store, SystemWorld).unwrap();
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
        let failure = prepare_in(dir.path(), &store, SystemWorld).unwrap_err();
        assert!(failure.to_string().starts_with("cannot write the first keys: "), "{failure}");
        assert_eq!(wait(store.tenants(ListPage { after: None, limit: 1 })), Ok(vec![]));
    }
}
