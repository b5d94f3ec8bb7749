//! What an earlier build wrote, opened by this one. `fixtures/README.md` says what is in there and how it was made; a change of the bytes on disk or in the database is
//! held against it.

mod support;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use flate2::read::GzDecoder;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::key;
use sealog_core::query::Filter;
use sealog_core::time::parse_rfc3339_ms;
use sealog_store::accounts::{Accounts, ListPage};
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_store::{IdempotencyKey, Receipt, Store};
use serde_json::Value;
use sha2::{Digest, Sha256};
use support::postgres::{Database, cluster};
use support::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Every build whose data is kept.
const BUILDS: [&str; 1] = ["d450eb1"];

/// A snapshot, and what its own build read from it.
struct Fixture {
    dir: PathBuf,
    name: &'static str,
    expected: Value,
    /// The lines of all chains, one after the other.
    events: Vec<Vec<u8>>,
}

impl Fixture {
    fn load(build: &str, name: &'static str) -> Fixture {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(build);
        let expected = unzipped(&dir.join(format!("{name}.json.gz")));
        let lines = unzipped(&dir.join(format!("{name}.ndjson.gz")));
        let events = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Fixture {
            events: events.map(<[u8]>::to_vec).collect(),
            expected: serde_json::from_slice(&expected).unwrap(),
            dir,
            name,
        }
    }

    /// A minute after the snapshot was made: its idempotency keys still count.
    fn world(&self) -> Arc<StillWorld> {
        let world = StillWorld::new();
        world.set(self.expected["read_at_ms"].as_u64().unwrap() + 60_000);
        world
    }

    /// A new copy of an archive.
    fn unpacked(&self, archive: &str) -> tempfile::TempDir {
        let to = tempfile::tempdir().unwrap();
        let tar =
            Command::new("tar").arg("-xzf").arg(self.dir.join(archive)).arg("-C").arg(to.path()).status();
        assert!(tar.unwrap().success());
        to
    }

    /// Each chain with its last number and hash and its events, oldest first.
    fn chains(&self) -> Vec<(ChainId, u64, &str, &[Vec<u8>])> {
        let mut rest = self.events.as_slice();
        let chains = self.expected["chains"].as_array().unwrap().iter().map(|chain| {
            let (of_chain, others) = rest.split_at(number(chain, "chain_seq").try_into().unwrap());
            rest = others;
            (chain_of(chain), number(chain, "chain_seq"), text(chain, "hash"), of_chain)
        });
        let chains: Vec<_> = chains.collect();
        assert!(rest.is_empty() && chains.len() == 10, "{}", self.name);
        chains
    }

    fn list(&self, name: &str) -> &[Value] {
        self.expected[name].as_array().unwrap()
    }
}

fn unzipped(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn id(value: &Value, name: &str) -> Uuid {
    Uuid::parse(text(value, name)).unwrap()
}

fn chain_of(value: &Value) -> ChainId {
    let mode = if text(value, "mode") == "live" { Mode::Live } else { Mode::Test };
    ChainId {
        tenant_id: TenantId(id(value, "tenant_id")),
        project_id: ProjectId(id(value, "project_id")),
        mode,
    }
}

/// All chains are there, verify from the first event to the head of then, and every event reads as it did, byte for byte.
fn reads_as_it_did(store: &dyn Store, fixture: &Fixture) {
    let mut heads = Vec::new();
    for (chain, chain_seq, hash, events) in fixture.chains() {
        let head = wait(store.head(chain)).unwrap();
        assert_eq!(head.durable, head.recorded, "{chain}");
        assert_eq!((head.durable.chain_seq, head.durable.hash.to_string().as_str()), (chain_seq, hash));
        assert_valid(store, chain, chain_seq);
        heads.push((chain, head.durable));
        let found = list(store, chain, &Filter::default(), None, usize::MAX);
        assert_eq!(found.len(), events.len(), "{chain}");
        for (found, expected) in found.iter().rev().zip(events) {
            let mut json = Vec::new();
            found.put_json(&mut json);
            assert!(json == *expected, "event {} of {chain} differs", found.sealed.chain_seq);
            if found.sealed.chain_seq % 50 == 1 {
                assert_eq!(get(store, chain, found.sealed.log_id).as_ref(), Some(found));
            }
        }
    }
    heads.sort_by_key(|(chain, _)| *chain);
    assert_eq!(wait(store.heads()).unwrap(), heads);
}

/// Keys open what they opened, and tenants, projects, custom actions and users are what they were.
fn control_data_is_there(accounts: &dyn Accounts, fixture: &Fixture, now_ms: u64) {
    let page = ListPage { after: None, limit: 1000 };
    for expected in fixture.list("keys") {
        let access = wait(accounts.access(key::digest(text(expected, "key")))).unwrap().unwrap();
        let chain = chain_of(expected);
        assert_eq!(
            (access.tenant.id, access.project.id, access.key.mode),
            (chain.tenant_id, chain.project_id, chain.mode)
        );
        assert!(text(expected, "key").starts_with(&access.key.prefix));
        let state = match access.key.state().check(now_ms) {
            Ok(()) => "valid",
            Err(sealog_core::reject::Reject::KeyRevoked) => "revoked",
            Err(sealog_core::reject::Reject::KeyExpired) => "expired",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(state, text(expected, "state"));
    }
    assert_eq!(wait(accounts.access(key::digest("at_live_of_nobody"))).unwrap(), None);
    let tenants = wait(accounts.tenants(page)).unwrap();
    assert_eq!(tenants.len(), fixture.list("control").len());
    for (tenant, expected) in tenants.iter().zip(fixture.list("control")) {
        let facts = &expected["tenant"];
        assert_eq!(tenant.id.to_string(), text(facts, "tenant_id"));
        assert_eq!((tenant.name.as_str(), tenant.plan.as_str()), (text(facts, "name"), text(facts, "plan")));
        assert_eq!(tenant.contact_email.as_deref(), facts["contact_email"].as_str());
        assert_eq!(tenant.rate_limit_rps.map(u64::from), facts["rate_limit_rps"].as_u64());
        assert_eq!(Some(tenant.created_at_ms), parse_rfc3339_ms(text(facts, "created_at")));
        let projects = wait(accounts.projects(tenant.id, page)).unwrap();
        let expected_projects = expected["projects"].as_array().unwrap();
        assert_eq!(projects.len(), expected_projects.len());
        for (project, expected) in projects.iter().zip(expected_projects) {
            assert_eq!(project.id.to_string(), text(expected, "project_id"));
            assert_eq!(project.name, text(expected, "name"));
            let enabled: Vec<&str> =
                expected["frameworks"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let catalog = sealog_core::catalog::Catalog::builtin();
            assert_eq!(Ok(project.frameworks), catalog.framework_set(enabled.iter().copied()));
            // One that is no longer enabled is remembered.
            let ever: &[&str] = if enabled.is_empty() { &[] } else { &["hipaa", "gdpr"] };
            assert_eq!(Ok(project.frameworks_ever), catalog.framework_set(ever.iter().copied()));
        }
        let actions = wait(accounts.actions(tenant.id)).unwrap();
        let names = |actions: &[Value]| {
            actions.iter().map(|action| text(action, "action").to_owned()).collect::<Vec<_>>()
        };
        let expected_actions = expected["actions"].as_array().unwrap();
        assert_eq!(
            actions.iter().map(|action| action.action.clone()).collect::<Vec<_>>(),
            names(expected_actions)
        );
        for action in &actions {
            assert_eq!(action.required_fields, ["order_id"]);
            assert_eq!(action.optional_fields, ["note"]);
        }
        let users = wait(accounts.users(tenant.id, page)).unwrap();
        let emails: Vec<&str> = users.iter().map(|user| user.email.as_str()).collect();
        let expected_users = expected["users"].as_array().unwrap();
        assert_eq!(emails, expected_users.iter().map(|user| text(user, "email")).collect::<Vec<_>>());
        for email in emails {
            let (user, hash) = wait(accounts.user_by_email(email.to_uppercase())).unwrap().unwrap();
            assert!(user.tenant_id == tenant.id && hash.starts_with("$argon2id$"), "{email}");
        }
    }
}

/// A request that was acknowledged then is answered from its record; another under its key is a conflict.
fn answers_retries(store: &dyn Store, fixture: &Fixture) {
    assert!(fixture.list("requests").len() > 20, "too few to say anything");
    for request in fixture.list("requests") {
        let key_hash = Hash(Sha256::digest(text(request, "idempotency_key")).into());
        let fingerprint =
            |body: &str| Hash(Sha256::digest(format!("{}\0{body}", text(request, "endpoint"))).into());
        let key = IdempotencyKey { key_hash, fingerprint: fingerprint(text(request, "body")) };
        let receipt = Receipt {
            request_id: Ulid::parse(text(request, "request_id").trim_start_matches("req_")),
            log_ids: request["log_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| Ulid::parse(id.as_str().unwrap()).unwrap())
                .collect(),
            first_seq: number(request, "first_seq"),
            hash: Hash::parse(text(request, "hash")).unwrap(),
        };
        assert!(receipt.request_id.is_some());
        let retried = append_once(store, chain_of(request), vec![login("nobody")], key, Ulid(7));
        assert_eq!(retried, Outcome::Replayed(receipt));
        let other = IdempotencyKey { fingerprint: fingerprint("{}"), ..key };
        let outcome = append_once(store, chain_of(request), vec![login("nobody")], other, Ulid(7));
        assert_eq!(outcome, Outcome::Conflict);
    }
}

/// Appends to every chain; each goes on where it ended, and what was there before verifies with it.
fn goes_on(store: &dyn Store, fixture: &Fixture, before: u64) {
    for (chain, chain_seq, ..) in fixture.chains() {
        let receipt = append(store, chain, vec![login("later"), login("later still")]);
        assert_eq!(receipt.first_seq, chain_seq + before + 1);
        assert_valid(store, chain, chain_seq + before + 2);
    }
}

/// All of the above, on a store that `open` opens again and again.
fn opens_verifies_and_extends<S: Store + Accounts>(
    fixture: &Fixture,
    world: &StillWorld,
    open: impl Fn() -> S,
) {
    let store = open();
    reads_as_it_did(&store, fixture);
    control_data_is_there(&store, fixture, world.now_ms());
    answers_retries(&store, fixture);
    reads_as_it_did(&store, fixture);
    goes_on(&store, fixture, 0);
    drop(store);

    let store = open();
    answers_retries(&store, fixture);
    goes_on(&store, fixture, 2);
    control_data_is_there(&store, fixture, world.now_ms());
    // A day later its keys are free.
    world.advance(DAY_MS);
    let request = &fixture.list("requests")[0];
    let key = IdempotencyKey {
        key_hash: Hash(Sha256::digest(text(request, "idempotency_key")).into()),
        fingerprint: Hash([0; 32]),
    };
    let reused = append_once(&store, chain_of(request), vec![login("next day")], key, Ulid(8));
    assert!(matches!(reused, Outcome::Sealed(_)), "{reused:?}");
}

fn options(world: &Arc<StillWorld>) -> embedded::Options {
    embedded::Options { world: Arc::clone(world) as Arc<dyn World>, ..embedded::Options::default() }
}

fn of_embedded(name: &'static str, archive: &str) {
    for build in BUILDS {
        let fixture = Fixture::load(build, name);
        let (dir, world) = (fixture.unpacked(archive), fixture.world());
        opens_verifies_and_extends(&fixture, &world, || {
            let store = EmbeddedStore::open(dir.path(), &options(&world)).unwrap();
            assert_eq!(store.findings(), []);
            store
        });
    }
}

#[test]
fn a_data_directory_that_an_earlier_build_wrote_opens_verifies_and_goes_on() {
    of_embedded("stopped", "stopped.tar.gz");
}

#[test]
fn a_data_directory_that_an_earlier_build_left_when_it_was_killed_is_recovered() {
    of_embedded("killed", "killed.tar.gz");
}

#[test]
fn an_index_that_an_earlier_build_wrote_can_be_made_again() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "stopped");
        let (dir, world) = (fixture.unpacked("stopped.tar.gz"), fixture.world());
        let indexes: Vec<PathBuf> = ["live", "test"]
            .iter()
            .flat_map(|mode| std::fs::read_dir(dir.path().join(mode)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "idx"))
            .collect();
        assert!(indexes.len() > 1, "{indexes:?}");
        indexes.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let store = EmbeddedStore::open(dir.path(), &options(&world)).unwrap();
        reads_as_it_did(&store, &fixture);
        answers_retries(&store, &fixture);
    }
}

#[test]
fn a_database_that_an_earlier_build_wrote_opens_verifies_and_goes_on() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "postgres");
        // The data directory of the node that wrote it: what it knows to have acknowledged.
        let (node, world) = (fixture.unpacked("postgres-node.tar.gz"), fixture.world());
        let database = cluster().database();
        restore(&database, &fixture.dir.join("postgres.sql.gz"));
        opens_verifies_and_extends(&fixture, &world, || {
            let options = sealog_store::postgres::Options {
                mark_dir: Some(node.path().to_owned()),
                ..on_postgres(&world)
            };
            let store = PostgresStore::open(&database.url(), &options).unwrap();
            assert_eq!(store.findings(), []);
            store
        });
    }
}

fn restore(database: &Database, dump: &Path) {
    let sql = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&sql, unzipped(dump)).unwrap();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &database.url(), "-f"]).arg(sql.path());
    let output = psql.stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_python_reader_reads_what_an_earlier_build_wrote() {
    for build in BUILDS {
        for (name, archive) in [("stopped", "stopped.tar.gz"), ("killed", "killed.tar.gz")] {
            let fixture = Fixture::load(build, name);
            let dir = fixture.unpacked(archive);
            let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/sealog_verify.py");
            let run = |arguments: &[&str]| {
                let output =
                    Command::new("python3").arg(&tool).arg("--data").arg(dir.path()).args(arguments).output();
                let output = output.unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                output.stdout
            };
            let said = String::from_utf8(run(&[])).unwrap();
            for (chain, chain_seq, hash, events) in fixture.chains() {
                assert!(said.contains(&format!("head {chain_seq}:{hash}")), "{chain}: {said}");
                if chain.mode == Mode::Live {
                    let exported = run(&["--export", &chain.project_id.to_string()]);
                    assert!(exported == [events.join(&b'\n'), b"\n".to_vec()].concat(), "{chain}");
                }
            }
        }
    }
}
