//! The PostgreSQL store where it differs from the others: what can be done to its tables, its settings, its
//! schema and its roles.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_core::verify::{Reason, Verdict};
use sealog_store::counts::{Days, day_of};
use sealog_store::postgres::sessions::{self, Schema};
use sealog_store::postgres::{OpenError, Options, PostgresStore};
use sealog_store::{IDEMPOTENCY_RETENTION_MS, List, Store, StoreError};
use sealog_testing::postgres::{Cluster, Database, cluster};
use sealog_testing::*;

struct Stage {
    database: Database,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { database: cluster().database(), world: StillWorld::new() }
    }

    fn options(&self) -> Options {
        on_postgres(&self.world)
    }

    fn open(&self) -> PostgresStore {
        PostgresStore::open(&self.database.url(), &self.options()).unwrap()
    }

    fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }
}

/// A store with ten events, and the one with seq 5.
fn ten_events(stage: &Stage) -> (PostgresStore, sealog_core::event::StoredEvent) {
    let store = stage.open();
    for n in 1..=10 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
        stage.world.advance(1);
    }
    let fifth = list(&store, live(), &Filter::default(), Some(6), 1).remove(0);
    (store, fifth)
}

fn seqs(store: &dyn Store) -> Vec<u64> {
    list(store, live(), &Filter::default(), None, 100).iter().map(|event| event.sealed.chain_seq).collect()
}

// ---- What is done to the tables -------------------------------------------------------------------------

#[test]
fn a_change_of_any_field_that_is_hashed_is_found_where_it_was_made() {
    let stage = Stage::new();
    let (store, fifth) = ten_events(&stage);
    for (change, reason) in [
        ("action = 'user.logout'", Reason::Hash),
        ("actor_id = 'someone else'", Reason::Hash),
        ("actor_id = NULL", Reason::Hash),
        ("resource = 'session/other'", Reason::Hash),
        ("metadata = '{\"n\":1}'", Reason::Hash),
        ("metadata = NULL", Reason::Hash),
        ("timestamp_ms = timestamp_ms + 1", Reason::Hash),
        ("tenant_id = gen_random_uuid()", Reason::Hash),
        ("log_id = gen_random_uuid()", Reason::Hash),
        ("hash = sha256('x')", Reason::Hash),
        ("prev_hash = sha256('x')", Reason::Link),
    ] {
        stage.sql("CREATE TABLE before AS SELECT * FROM sealog.events WHERE chain_seq = 5");
        stage.sql(&format!("UPDATE sealog.events SET {change} WHERE chain_seq = 5"));
        let verdict = verify(&store, live());
        let broken = verdict.broken.unwrap_or_else(|| panic!("{change} was not found"));
        assert_eq!((broken.at, broken.reason, verdict.checked), (5, reason, 5), "{change}");
        assert_eq!(seqs(&store), [10, 9, 8, 7, 6, 4, 3, 2, 1], "{change}");
        if !change.starts_with("log_id") {
            assert_eq!(
                wait(store.get(live(), fifth.sealed.log_id)),
                Err(StoreError::Damaged { chain_seq: 5 }),
                "{change}"
            );
        }
        stage.sql("DELETE FROM sealog.events WHERE chain_seq = 5; INSERT INTO sealog.events SELECT * FROM before; DROP TABLE before");
        assert_valid(&store, live(), 10);
    }
}

#[test]
fn values_that_no_event_has_are_damage_and_never_a_panic() {
    let stage = Stage::new();
    let (store, fifth) = ten_events(&stage);
    for change in
        ["metadata = 'x'", "metadata = '['", "hash = '\\x00'", "prev_hash = ''", "timestamp_ms = -1"]
    {
        stage.sql("CREATE TABLE before AS SELECT * FROM sealog.events WHERE chain_seq = 5");
        stage.sql(&format!("UPDATE sealog.events SET {change} WHERE chain_seq = 5"));
        let broken = verify(&store, live()).broken.unwrap();
        assert_eq!(
            (broken.at, broken.reason, broken.hash),
            (5, Reason::Damaged, fifth.sealed.hash),
            "{change}"
        );
        assert_eq!(seqs(&store), [10, 9, 8, 7, 6, 4, 3, 2, 1], "{change}");
        // Alone on its page it is left out all the same, and the page goes on behind it.
        assert_eq!(list(&store, live(), &Filter::default(), Some(6), 1)[0].sealed.chain_seq, 4);
        stage.sql("DELETE FROM sealog.events WHERE chain_seq = 5; INSERT INTO sealog.events SELECT * FROM before; DROP TABLE before");
    }
    assert_valid(&store, live(), 10);
}

#[test]
fn annotations_can_change_without_breaking_the_chain() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    stage.sql("UPDATE sealog.events SET country = 'DE', city = 'Köln', severity = NULL");
    assert_valid(&store, live(), 10);
    assert_eq!(seqs(&store).len(), 10);
}

#[test]
fn the_schema_version_is_kept_in_the_row_and_read_from_there() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    assert_eq!(stage.sql("SELECT DISTINCT schema_version FROM sealog.events"), "1");
    // As a later program would have written it.
    stage.sql("UPDATE sealog.events SET schema_version = 2 WHERE chain_seq = 7");
    let kept = list(&store, live(), &Filter::default(), None, 10).into_iter();
    let kept: Vec<u32> = kept.rev().map(|event| event.schema_version).collect();
    assert_eq!(kept, [1, 1, 1, 1, 1, 1, 2, 1, 1, 1]);
    assert_valid(&store, live(), 10);
}

/// Events of the last days that are counted and that are not; nothing where the counts cannot be read.
fn counted(store: &PostgresStore) -> Option<(u64, u64)> {
    let today = day_of(MORNING_MS);
    let counts = wait(store.counts(live(), Days::new(today, today + 10))).ok()?;
    Some((counts.events(), counts.uncounted))
}

#[test]
fn events_are_counted_without_being_asked_for_and_again_where_counts_are_lost_or_damaged() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    eventually("nobody had to ask", || stage.sql("SELECT sum(chain_seq) FROM sealog.counted") == "10");
    // Whoever asks beside the one who counts may see how far that was a moment ago.
    eventually("all are counted", || counted(&store) == Some((10, 0)));
    stage.sql("TRUNCATE sealog.counts, sealog.counted");
    eventually("all are counted again", || counted(&store) == Some((10, 0)));
    stage.sql("UPDATE sealog.counts SET content = substr(content, 2)");
    assert_eq!(counted(&store), None, "what is damaged is not taken for nothing");
    append(&store, live(), vec![login("later")]);
    eventually("the day is counted anew", || counted(&store) == Some((11, 0)));
}

#[test]
fn removed_events_are_missed_in_the_middle_and_at_the_end_and_nothing_is_sealed_on_top() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    let head = wait(store.head(live())).unwrap().durable;
    stage.sql("DELETE FROM sealog.events WHERE chain_seq IN (4, 5)");
    let broken = verify(&store, live()).broken.unwrap();
    assert_eq!((broken.at, broken.reason), (6, Reason::Gap));
    append(&store, live(), vec![login("on a sound head")]);

    stage.sql("DELETE FROM sealog.events WHERE chain_seq >= 10");
    let heads = wait(store.head(live())).unwrap();
    assert_eq!((heads.durable.chain_seq, heads.recorded.chain_seq), (9, 11));
    let broken = verify_window(&store, live(), 7, 20).broken.unwrap();
    assert_eq!((broken.at, broken.reason, broken.hash), (10, Reason::Tail, heads.recorded.hash));
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
    // Nor does a head that was set back to what is left hide that another chain's end is asked for.
    assert_eq!(head.chain_seq, 10);
}

#[test]
fn a_last_event_that_was_rewritten_with_its_hash_is_found_by_the_head() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    // What a database administrator would do who knows how hashes are made.
    let other = stage.world.clone();
    let forged = {
        let events = list(&store, live(), &Filter::default(), None, 2);
        let last = &events[0];
        events[1].head().seal(
            live().tenant_id,
            &login("forged").text,
            last.timestamp_ms,
            sealog_core::id::Random80([9; 10]),
        )
    };
    drop(other);
    stage.sql(&format!(
        "UPDATE sealog.events SET actor_id = 'forged', resource = 'session/forged', hash = '\\x{}', log_id = '{}' WHERE chain_seq = 10",
        forged.hash,
        sealog_core::id::Uuid(forged.log_id.to_bytes())
    ));
    let broken = verify(&store, live()).broken.unwrap();
    assert_eq!((broken.at, broken.reason), (10, Reason::Head));
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
}

#[test]
fn a_chains_row_that_was_removed_does_not_begin_the_chain_again() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    stage.sql("DELETE FROM sealog.chains");
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
    assert_valid(&store, live(), 10);
}

#[test]
fn an_append_whose_commit_fails_is_an_error_and_leaves_nothing() {
    let stage = Stage::new();
    let (store, _) = ten_events(&stage);
    // The statements succeed; only the COMMIT behind them does not.
    stage.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON sealog.events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let failed = try_append(&store, live(), vec![login("x")]);
    assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    stage.sql("DROP TRIGGER refuse ON sealog.events");
    assert_valid(&store, live(), 10);
    append(&store, live(), vec![login("y")]);
    assert_valid(&store, live(), 11);
}

// ---- What it keeps --------------------------------------------------------------------------------------

/// PostgreSQL quotes the row that a rule refuses in its DETAIL.
#[test]
fn what_events_hold_is_in_no_error_of_the_database() {
    let stage = Stage::new();
    let store = stage.open();
    stage.database.sql("ALTER TABLE sealog.events ADD CONSTRAINT never CHECK (chain_seq < 0) NOT VALID");
    let failed = try_append(&store, live(), vec![login("somebody-by-name")]).unwrap_err().to_string();
    assert!(failed.contains("never") && !failed.contains("somebody-by-name"), "{failed}");
}

#[test]
fn everything_is_there_after_a_restart() {
    let stage = Stage::new();
    let (store, fifth) = ten_events(&stage);
    let done = append_once(&store, live(), vec![login("k")], key("k", "b"), sealog_core::id::Ulid(7));
    let Outcome::Sealed(receipt) = done else { panic!("{done:?}") };
    drop(store);
    for _ in 0..2 {
        let store = stage.open();
        assert_eq!(store.findings(), []);
        assert_valid(&store, live(), 11);
        assert_eq!(get(&store, live(), fifth.sealed.log_id), Some(fifth.clone()));
        let again = append_once(&store, live(), vec![login("k")], key("k", "b"), sealog_core::id::Ulid(8));
        assert_eq!(again, Outcome::Replayed(receipt.clone()));
    }
}

#[test]
fn idempotency_records_are_removed_when_their_24_hours_are_over() {
    let stage = Stage::new();
    let store = PostgresStore::open(
        &stage.database.url(),
        &Options { sweep: Duration::from_millis(20), ..stage.options() },
    )
    .unwrap();
    append_once(&store, live(), vec![login("a")], key("old", "b"), sealog_core::id::Ulid(1));
    stage.world.advance(1000);
    append_once(&store, live(), vec![login("a")], key("young", "b"), sealog_core::id::Ulid(2));
    let count = || stage.sql("SELECT count(*) FROM sealog.idempotency");
    stage.world.set(MORNING_MS + IDEMPOTENCY_RETENTION_MS - 1);
    // Once a record from the beginning of time is gone, a sweep has looked at the others.
    stage.sql("INSERT INTO sealog.idempotency SELECT gen_random_uuid(), sha256('a'), sha256(''), gen_random_uuid(), 1, '', sha256(''), 1");
    eventually("a sweep has been", || count() != "3");
    assert_eq!(count(), "2");
    stage.world.set(MORNING_MS + IDEMPOTENCY_RETENTION_MS);
    eventually("the old record is removed", || count() == "1");
    let young = append_once(&store, live(), vec![login("a")], key("young", "b"), sealog_core::id::Ulid(3));
    assert!(matches!(young, Outcome::Replayed(_)), "{young:?}");
}

#[test]
fn expired_idempotency_records_are_removed_some_at_a_time() {
    const STEP: u32 = 100;
    let stage = Stage::new();
    let options = Options { sweep: Duration::from_millis(20), sweep_rows_max: STEP, ..stage.options() };
    drop(stage.open());
    stage.sql(
        "CREATE TABLE swept (rows bigint);
         CREATE FUNCTION count_swept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO swept SELECT count(*) FROM gone; RETURN NULL; END';
         CREATE TRIGGER count_swept AFTER DELETE ON sealog.idempotency REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION count_swept();
         INSERT INTO sealog.idempotency SELECT gen_random_uuid(), sha256(n::text::bytea), sha256(''), gen_random_uuid(), n, '', sha256(''), 1 FROM generate_series(1, 1234) AS n",
    );
    // Two nodes at once: neither waits for the other, and nothing is removed twice.
    let nodes = [0; 2].map(|_| PostgresStore::open(&stage.database.url(), &options).unwrap());
    append_once(&nodes[0], live(), vec![login("a")], key("young", "b"), sealog_core::id::Ulid(1));
    eventually("the old ones are gone", || stage.sql("SELECT count(*) FROM sealog.idempotency") == "1");
    drop(nodes);
    let of_statement = "SELECT sum(rows), max(rows) FROM swept";
    assert_eq!(stage.sql(of_statement), format!("1234|{STEP}"));
}

#[test]
fn a_damaged_idempotency_record_is_an_error_and_its_key_is_not_free() {
    let stage = Stage::new();
    let store = stage.open();
    append_once(&store, live(), vec![login("a")], key("k", "b"), sealog_core::id::Ulid(1));
    let Ok(sealog_store::Reserved::Fresh(reservation)) = wait(store.reserve(live(), key("l", "b"))) else {
        panic!("it is free")
    };
    append_once(&stage.open(), live(), vec![login("a")], key("l", "b"), sealog_core::id::Ulid(1));
    let wanted = sealog_store::WantedKeys { from: 1, received_after_ms: 0, limit: 10 };
    for change in ["hash = ''", "fingerprint = '\\x00'", "log_ids = ''", "log_ids = '\\x0011'"] {
        stage.sql("CREATE TABLE before AS SELECT * FROM sealog.idempotency");
        stage.sql(&format!("UPDATE sealog.idempotency SET {change}"));
        let reserved = wait(store.reserve(live(), key("k", "b")));
        assert!(matches!(reserved, Err(StoreError::Read(_))), "{change}: {reserved:?}");
        assert!(matches!(wait(store.kept_keys(live(), wanted)), Err(StoreError::Read(_))), "{change}");
        stage.sql("DELETE FROM sealog.idempotency; INSERT INTO sealog.idempotency SELECT * FROM before; DROP TABLE before");
    }
    // Also where it is decided, under the lock.
    stage.sql("UPDATE sealog.idempotency SET hash = ''");
    let idempotency = Some((reservation, sealog_core::id::Ulid(2)));
    let appended =
        wait(store.append(sealog_store::Append { chain: live(), drafts: vec![login("a")], idempotency }));
    assert!(matches!(appended, Err(StoreError::Unavailable(_))), "{appended:?}");
    assert_valid(&store, live(), 2);
}

// ---- Settings -------------------------------------------------------------------------------------------

#[test]
fn settings_that_lose_acknowledged_events_are_refused_by_name_wherever_they_are_set() {
    let stage = Stage::new();
    let refused = |url: &str| match PostgresStore::open(url, &stage.options()) {
        Err(OpenError::UnsafeSettings(settings)) => settings,
        other => panic!("{other:?}"),
    };
    let name = &stage.database.name;
    stage.sql(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    assert_eq!(refused(&stage.database.url()), ["synchronous_commit"]);
    stage.sql(&format!("ALTER DATABASE {name} RESET synchronous_commit"));
    stage.sql(&format!(
        "CREATE ROLE hasty_{name} SUPERUSER LOGIN; ALTER ROLE hasty_{name} SET synchronous_commit = off"
    ));
    assert_eq!(
        refused(&stage.database.url().replace("owner@", &format!("hasty_{name}@"))),
        ["synchronous_commit"]
    );
    drop(stage.open());

    let other = Cluster::start("fsync = off\nfull_page_writes = off");
    assert_eq!(refused(&other.url("postgres")), ["fsync", "full_page_writes"]);
    let error = PostgresStore::open(&other.url("postgres"), &stage.options()).unwrap_err().to_string();
    assert!(error.contains("fsync, full_page_writes off"), "{error}");
    let allowed = Options { allow_unsafe_storage: true, ..stage.options() };
    append(&PostgresStore::open(&other.url("postgres"), &allowed).unwrap(), live(), vec![login("a")]);
}

#[test]
fn a_setting_that_is_switched_off_while_the_store_runs_stops_appends_until_it_is_on_again() {
    let cluster = Cluster::start("");
    let world = StillWorld::new();
    let store = PostgresStore::open(&cluster.url("postgres"), &on_postgres(&world)).unwrap();
    append(&store, live(), vec![login("a")]);
    let set = |sql: &str| {
        cluster.sql("postgres", sql);
        cluster.sql("postgres", "SELECT pg_reload_conf()");
    };
    set("ALTER SYSTEM SET synchronous_commit = off");
    eventually("appends are refused", || match try_append(&store, live(), vec![login("b")]) {
        Ok(_) => false,
        Err(StoreError::Unavailable(why)) => why.contains("synchronous_commit off"),
        Err(other) => panic!("{other:?}"),
    });
    set("ALTER SYSTEM RESET synchronous_commit");
    eventually("appends go on", || try_append(&store, live(), vec![login("c")]).is_ok());
    assert!(verify(&store, live()).valid());
}

#[test]
fn ready_says_that_a_setting_was_switched_off_at_any_level_and_then_that_it_is_on_again() {
    let cluster = Cluster::start("");
    let store = PostgresStore::open(&cluster.url("postgres"), &on_postgres(&StillWorld::new())).unwrap();
    assert_eq!(store.ready(), Ok(()));
    let says = |what: &str| {
        let expected = format!("the database runs with {what} off and can lose acknowledged events");
        eventually(what, || store.ready() == Err(StoreError::Unavailable(expected.clone())));
    };
    for (level, setting) in [
        ("ALTER SYSTEM", "synchronous_commit"),
        ("ALTER SYSTEM", "full_page_writes"),
        ("ALTER SYSTEM", "fsync"),
        ("ALTER DATABASE postgres", "synchronous_commit"),
        ("ALTER ROLE owner", "synchronous_commit"),
        ("ALTER ROLE ALL", "synchronous_commit"),
        ("ALTER ROLE owner IN DATABASE postgres", "synchronous_commit"),
    ] {
        let set = |what: &str| {
            cluster.sql("postgres", &format!("{level} {what}"));
            cluster.sql("postgres", "SELECT pg_reload_conf()");
        };
        // No event has to be refused first.
        set(&format!("SET {setting} = off"));
        says(setting);
        set(&format!("RESET {setting}"));
        eventually("it is ready again", || store.ready() == Ok(()));
    }
    append(&store, live(), vec![login("a")]);
    // What is said elsewhere, of another role or of a harmless setting, changes nothing.
    cluster.sql("postgres", "CREATE ROLE other; ALTER ROLE other SET synchronous_commit = off; ALTER ROLE owner SET work_mem = '5MB'");
    for _ in 0..2 {
        let version = store.version();
        cluster.sql("postgres", "UPDATE sealog.store SET version = version + 1");
        eventually("it has looked again", || store.version() > version);
    }
    assert_eq!(store.ready(), Ok(()));
}

#[test]
fn a_standby_is_not_ready_for_events() {
    let primary = Cluster::start("");
    drop(PostgresStore::open(&primary.url("postgres"), &on_postgres(&StillWorld::new())).unwrap());
    let standby = primary.standby();
    let url = standby.url("postgres");
    let store = PostgresStore::open(&url, &on_postgres(&StillWorld::new())).unwrap();
    let is_standby = || matches!(store.ready(), Err(StoreError::Unavailable(why)) if why.contains("standby"));
    eventually("it says so", is_standby);
    assert!(matches!(try_append(&store, live(), vec![login("a")]), Err(StoreError::Unavailable(_))));
    standby.promote();
    eventually("it is ready", || store.ready() == Ok(()));
    append(&store, live(), vec![login("a")]);
}

// ---- The schema -----------------------------------------------------------------------------------------

#[test]
fn nodes_that_start_at_once_on_an_empty_database_make_one_schema() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..6).map(|_| scope.spawn(|| stage.open())).collect();
        for node in nodes {
            append(&node.join().unwrap(), live(), vec![login("a")]);
        }
    });
    assert_valid(&stage.open(), live(), 6);
    assert_eq!(stage.sql("SELECT count(*) = max(version) FROM sealog.migrations"), "t");
}

/// A schema of another part of the program, with so many of its steps. The third one cannot be made.
fn of_tests(steps: usize) -> Schema {
    let sql = [
        "CREATE TABLE sealog_tests.kept (n integer); INSERT INTO sealog_tests.kept VALUES (7)",
        "ALTER TABLE sealog_tests.kept ADD COLUMN later integer NOT NULL DEFAULT 2",
        "UPDATE sealog_tests.kept SET n = 8; SELECT 1 / 0",
    ];
    Schema {
        name: "sealog_tests".into(),
        steps: sql[..steps].iter().map(|step| (*step).to_owned()).collect(),
        rights: String::new(),
    }
}

#[test]
fn a_server_changes_no_tables_that_are_there_and_names_the_command_that_does() {
    let stage = Stage::new();
    let (store, url) = (stage.open(), stage.database.url());
    let sessions = store.sessions(1);
    sessions.prepare(of_tests(1)).unwrap();
    let error = sessions.prepare(of_tests(2)).unwrap_err();
    assert!(error.to_string().contains("has version 1, but this program needs 2; run `sealog migrate`"));
    assert!(!error.may_pass());
    assert_eq!(stage.sql("SELECT max(version) FROM sealog_tests.migrations"), "1");
    assert_eq!(sessions::migrate(&url, &of_tests(2)).unwrap(), 1);
    assert_eq!(sessions::migrate(&url, &of_tests(2)).unwrap(), 0);
    assert_eq!(stage.sql("SELECT n + later FROM sealog_tests.kept"), "9", "what was there is kept");
    sessions.prepare(of_tests(2)).unwrap();
}

#[test]
fn a_step_that_fails_changes_nothing_and_those_before_it_stay() {
    let stage = Stage::new();
    let (store, url) = (stage.open(), stage.database.url());
    store.sessions(1).prepare(of_tests(1)).unwrap();
    let error = sessions::migrate(&url, &of_tests(3)).unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    assert_eq!(stage.sql("SELECT max(version) FROM sealog_tests.migrations"), "2");
    assert_eq!(stage.sql("SELECT n FROM sealog_tests.kept"), "7");
}

#[test]
fn a_newer_schema_is_refused_and_left_as_it_is() {
    let stage = Stage::new();
    drop(stage.open());
    let known: i64 = stage.sql("SELECT max(version) FROM sealog.migrations").parse().unwrap();
    stage.sql(&format!("INSERT INTO sealog.migrations (version) VALUES ({})", known + 1));
    let error = PostgresStore::open(&stage.database.url(), &stage.options()).unwrap_err();
    assert!(
        matches!(error, OpenError::Schema { found, wanted, .. } if (found, wanted) == (known + 1, known)),
        "{error}"
    );
    assert!(sealog_store::postgres::migrate(&stage.database.url()).is_err());
}

/// Filters by members of `metadata`, whichever comes first in them, while the index follows and when it is
/// there.
#[test]
fn members_are_found_in_whatever_order_they_are_asked_for() {
    let seed = seed("members_are_found_in_whatever_order_they_are_asked_for");
    let mut dice = Dice::new(seed);
    let stage = Stage::new();
    let store = stage.open();
    let names = ["common", "some", "rare", "tags"];
    for _ in 0..12 {
        let drafts = (0..50).map(|_| {
            let member = |name: &str, of: u64, dice: &mut Dice| format!("\"{name}\":{}", dice.below(of));
            let mut members = vec![
                member("common", 2, &mut dice),
                member("some", 8, &mut dice),
                member("rare", 100, &mut dice),
                format!("\"tags\":[{},{}]", dice.below(5), dice.below(5)),
            ];
            members.swap(0, usize::try_from(dice.below(4)).unwrap());
            members.truncate(1 + usize::try_from(dice.below(4)).unwrap());
            draft(&format!(
                r#"{{"action":"a.b","actor_id":"u{}","metadata":{{{}}}}}"#,
                dice.below(3),
                members.join(",")
            ))
        });
        append(&store, live(), drafts.collect());
        let all = list(&store, live(), &Filter::default(), None, 1000);
        for _ in 0..20 {
            let mut order: Vec<usize> = (0..names.len()).collect();
            (0..3).for_each(|at| order.swap(at, at + usize::try_from(dice.below(4 - at as u64)).unwrap()));
            let wanted = 1 + usize::try_from(dice.below(4)).unwrap();
            let fields = order[..wanted].iter().map(|at| {
                let of = [2, 8, 100, 5][*at];
                FieldIs::new(names[*at], &dice.below(of).to_string())
            });
            let fields: Vec<FieldIs> = fields.collect();
            let actor_id = dice.chance(3).then(|| "\"u1\"".to_owned());
            let filter = Filter { fields, actor_id, ..Filter::default() };
            let before = dice.chance(2).then(|| 1 + dice.below(all.len() as u64));
            let expected: Vec<u64> = all
                .iter()
                .filter(|event| before.is_none_or(|before| event.sealed.chain_seq < before))
                .filter(|event| filter.matches(event))
                .map(|event| event.sealed.chain_seq)
                .collect();
            let found = list(&store, live(), &filter, before, 1000);
            let found: Vec<u64> = found.iter().map(|event| event.sealed.chain_seq).collect();
            assert_eq!(found, expected, "{filter:?} before {before:?}");
        }
    }
    eventually("everything is indexed", || {
        stage.sql("SELECT max(chain_seq) FROM sealog.fields_indexed") == "600"
    });
}

#[test]
fn every_hot_table_begins_its_keys_with_chain_id_and_has_no_foreign_key() {
    let stage = Stage::new();
    drop(stage.open());
    for table in sealog_store::postgres::DISTRIBUTED_TABLES {
        let of = format!("'sealog.{table}'::regclass");
        let primary = stage.sql(&format!(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = {of} AND i.indisprimary"
        ));
        assert_eq!(primary, "chain_id", "{table}");
        // On Citus a unique index without the column of distribution could not be kept.
        let unique = stage.sql(&format!(
            "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = {of} AND i.indisunique AND a.attname <> 'chain_id'"
        ));
        assert_eq!(unique, "0", "{table}");
        assert_eq!(
            stage.sql(&format!(
                "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND {of} IN (conrelid, confrelid)"
            )),
            "0"
        );
    }
    let json = stage.sql("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'sealog' AND data_type LIKE 'json%'");
    assert_eq!(json, "0");
}

/// Statements that look at more than one chain, none of which is on the way of a request for events.
const NOT_HOT: [&str; 6] = [
    "SELECT c.chain_id FROM sealog.chains c LEFT JOIN sealog.counted k ON k.chain_id = c.chain_id WHERE c.chain_seq > 0 AND (k.chain_id IS NULL OR k.chain_seq <> c.chain_seq OR k.log_id <> c.log_id) ORDER BY random() LIMIT $1",
    "SELECT chain_id, tenant_id, project_id, mode, chain_seq, log_id, hash FROM sealog.chains WHERE chain_seq > 0",
    "SELECT coalesce(sum(events), 0)::bigint FROM sealog.usage WHERE tenant_id = $1 AND month = $2",
    "DELETE FROM sealog.idempotency WHERE received_ms <= $1 AND ctid = ANY (ARRAY( SELECT ctid FROM sealog.idempotency WHERE received_ms <= $1 ORDER BY received_ms LIMIT $2 FOR UPDATE SKIP LOCKED))",
    "SELECT * FROM ( SELECT tenant_id, project_id, mode, chain_seq, log_id, hash, recorded_seq, recorded_log_id, recorded_hash, dropped_seq, dropped_seq IS NOT NULL AND NOT (dropped_seq > 0 AND dropped_seq < chain_seq AND substr(sha256('sealog chain'::bytea || uuid_send(tenant_id) || uuid_send(project_id) || 'test'::bytea), 1, 16) = uuid_send(chain_id)) AS forged FROM sealog.chains ) AS chains WHERE recorded_seq IS NOT NULL OR forged",
    "SELECT c.chain_id FROM sealog.chains c LEFT JOIN sealog.fields_indexed f ON f.chain_id = c.chain_id WHERE c.chain_seq > coalesce(f.chain_seq, 0) ORDER BY random() LIMIT $1",
];

#[test]
fn no_hot_statement_touches_two_chains() {
    let cluster = Cluster::start("log_statement = all");
    let world = StillWorld::new();
    let options = Options { sweep: Duration::from_millis(20), ..on_postgres(&world) };
    let store = PostgresStore::open(&cluster.url("postgres"), &options).unwrap();
    for n in 0..5 {
        append_once(
            &store,
            live(),
            vec![login("a"); 30],
            key(&format!("k{n}"), "b"),
            sealog_core::id::Ulid(1),
        );
    }
    append_once(&store, live(), vec![login("a")], key("k1", "b"), sealog_core::id::Ulid(1));
    let all = list(&store, live(), &Filter::default(), None, 10);
    let filter = Filter {
        action: Some("\"user.login\"".into()),
        actor_id: Some("\"a\"".into()),
        resource: Some("\"r\"".into()),
        from_ms: Some(1),
        until_ms: Some(2),
        ..Filter::default()
    };
    list(&store, live(), &filter, Some(9), 10);
    get(&store, live(), all[0].sealed.log_id);
    assert!(verify(&store, live()).valid());
    let elsewhere = chain(1, 2, sealog_core::id::Mode::Test);
    wait(store.import(elsewhere, vec![], None)).unwrap_err();
    let wanted = sealog_store::WantedKeys { from: 1, received_after_ms: 0, limit: 10 };
    assert_eq!(wait(store.kept_keys(live(), wanted)).unwrap().len(), 5);
    wait(store.heads()).unwrap();
    wait(store.usage(live().tenant_id, sealog_core::time::Month::of(MORNING_MS))).unwrap();
    let is_logged = |part: &str| logged(&cluster.dir).iter().any(|sql| sql.contains(part));
    eventually("the sweep has run", || is_logged("DELETE"));
    // What the tasks beside requests ask for is known, too, and they begin when they like.
    for table in ["sealog.counted", "sealog.fields_indexed"] {
        let look = format!("SELECT c.chain_id FROM sealog.chains c LEFT JOIN {table}");
        eventually("the tasks have looked for chains", || is_logged(&look));
    }
    drop(store);

    let statements = logged(&cluster.dir);
    let hot: BTreeSet<String> = statements
        .into_iter()
        .filter(|sql| {
            ["chains", "events", "idempotency", "usage", "counts", "counted"]
                .iter()
                .any(|table| sql.contains(&format!("sealog.{table}")))
        })
        .filter(|sql| !["CREATE", "ALTER"].iter().any(|verb| sql.starts_with(verb)))
        .filter(|sql| !sql.contains("CREATE TABLE") && !sql.contains("ALTER TABLE"))
        .collect();
    let wrong: Vec<&String> =
        hot.iter().filter(|sql| !NOT_HOT.contains(&sql.as_str()) && !touches_one_chain(sql)).collect();
    assert_eq!(wrong, Vec::<&String>::new());
    for expected in [
        "FOR UPDATE",
        "WITH head AS",
        "INSERT INTO sealog.events",
        "INSERT INTO sealog.idempotency",
        "INSERT INTO sealog.usage",
        "UPDATE sealog.chains",
    ] {
        assert!(hot.iter().any(|sql| sql.contains(expected)), "the workload must reach {expected}: {hot:#?}");
    }
}

/// Every table that it names is bound to the chain of its first parameter, or every row that it inserts is;
/// so is every statement inside it.
fn touches_one_chain(sql: &str) -> bool {
    if let Some(inner) = sql.strip_prefix("WITH ") {
        return parts(inner).into_iter().all(|part| !part.contains("sealog.") || touches_one_chain(part));
    }
    if let Some((into, from)) = sql.split_once(" SELECT ").filter(|_| sql.starts_with("INSERT INTO sealog."))
    {
        let from = from.split(" ON CONFLICT").next().unwrap();
        return into.contains(" (chain_id, ")
            && from.starts_with("$1, ")
            // A head is the row that another part of the statement has returned.
            && (from.contains(" FROM unnest(") || from.contains(" FROM head"))
            && !from.contains("sealog.");
    }
    if let Some((_, rows)) = sql.split_once(" VALUES ").filter(|_| sql.starts_with("INSERT INTO sealog.")) {
        let rows = rows.split(" ON CONFLICT").next().unwrap();
        return rows.matches('(').count() == rows.matches("($1, ").count();
    }
    let named = sql.matches("FROM sealog.").count() + sql.matches("UPDATE sealog.").count();
    named > 0 && named == sql.matches("chain_id = $1").count()
}

/// The statements in parentheses behind `AS`, and the one behind them.
fn parts(sql: &str) -> Vec<&str> {
    let Some((_, rest)) = sql.split_once(" AS (").filter(|(name, _)| !name.contains(['(', '.'])) else {
        return vec![sql.trim()];
    };
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    let end = end.expect("parentheses come in pairs");
    let mut all = vec![&rest[..end]];
    all.extend(parts(&rest[end + 1..]));
    all
}

#[test]
fn a_statement_that_touches_two_chains_is_noticed() {
    assert!(touches_one_chain("SELECT x FROM sealog.events WHERE chain_id = $1 AND chain_seq = $2"));
    assert!(touches_one_chain("INSERT INTO sealog.events (chain_id, x) VALUES ($1, $2), ($1, $3)"));
    assert!(touches_one_chain("INSERT INTO sealog.events (chain_id, x) SELECT $1, * FROM unnest($2)"));
    let with = |usage: &str| {
        format!(
            "WITH stored AS (INSERT INTO sealog.events (chain_id, x) SELECT $1, * FROM unnest($2)), counted AS ({usage}) UPDATE sealog.chains SET x = $3 WHERE chain_id = $1"
        )
    };
    assert!(touches_one_chain(&with("INSERT INTO sealog.usage (chain_id, x) VALUES ($1, $4)")));
    assert!(!touches_one_chain(&with("INSERT INTO sealog.usage (chain_id, x) VALUES ($4, $1)")));
    let at_once = |of: &str, stored: &str| {
        format!(
            "WITH head AS (UPDATE sealog.chains SET x = $2 WHERE {of} RETURNING y), stored AS (INSERT INTO sealog.events (chain_id, x) {stored}) SELECT y FROM head"
        )
    };
    assert!(touches_one_chain(&at_once("chain_id = $1", "SELECT $1, $3 FROM head")));
    assert!(!touches_one_chain(&at_once("log_id = $1", "SELECT $1, $3 FROM head")));
    assert!(!touches_one_chain(&at_once("chain_id = $1", "SELECT $3, $1 FROM head")));
    for sql in [
        "WITH stored AS (INSERT INTO sealog.events (chain_id, x) SELECT $1, * FROM unnest($2)) UPDATE sealog.chains SET x = $3",
        "SELECT x FROM sealog.events WHERE log_id = $1",
        "SELECT x FROM sealog.events JOIN sealog.chains USING (chain_id) WHERE chain_id = $1 UNION SELECT x FROM sealog.usage",
        "INSERT INTO sealog.events (chain_id, x) VALUES ($1, $2), ($3, $4)",
        "INSERT INTO sealog.events (chain_id, x) SELECT * FROM unnest($1, $2)",
        "INSERT INTO sealog.events (chain_id, x) SELECT $1, x FROM sealog.events",
        "DELETE FROM sealog.events",
    ] {
        assert!(!touches_one_chain(sql), "{sql}");
    }
}

/// Every statement that the server has logged, each in one line.
fn logged(dir: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(dir.join("log")).unwrap().replace("\n\t", " ");
    let statement = |line: &str| {
        let (_, sql) = line.split_once("LOG:  execute ").or_else(|| line.split_once("LOG:  statement"))?;
        Some(sql.split_once(": ")?.1.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    log.lines().filter_map(statement).collect()
}

/// What there is of Citus for a node that asks: the name of the extension, and that the table of events is
/// distributed. The rows stay where they are.
const AS_IF_DISTRIBUTED: &str = "SET allow_system_table_mods = on;
    CREATE TABLE pg_catalog.pg_dist_partition AS SELECT 'sealog.events'::regclass AS logicalrelid;
    CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint, shardminvalue text);
    CREATE TABLE pg_catalog.pg_dist_placement (shardid bigint, shardstate integer, groupid integer);
    CREATE TABLE pg_catalog.pg_dist_local_group AS SELECT 0 AS groupid;
    CREATE TABLE pg_catalog.pg_dist_node (groupid integer, nodename text, nodeport integer, noderole text);
    INSERT INTO pg_extension VALUES (99999, 'citus', 10, 11, false, '0', NULL, NULL)";

#[test]
fn where_events_are_distributed_each_statement_of_an_append_names_its_chain_in_its_text_or_its_rows() {
    let cluster = Cluster::start("log_statement = all");
    let (url, options) = (cluster.url("postgres"), on_postgres(&StillWorld::new()));
    let receipt = append(&PostgresStore::open(&url, &options).unwrap(), live(), vec![login("before")]);
    cluster.sql("postgres", AS_IF_DISTRIBUTED);
    let before = logged(&cluster.dir).len();
    let store = PostgresStore::open(&url, &options).unwrap();
    assert_eq!(wait(store.head(live())).unwrap().durable.hash, receipt.hash);
    for (n, events) in [1, 2, 3, 100].into_iter().enumerate() {
        let drafts = (0..events).map(|event| login(&format!("n{n}e{event}"))).collect();
        let key = key(&format!("k{n}"), "b");
        let done = append_once(&store, live(), drafts, key, sealog_core::id::Ulid(n as u128));
        assert!(matches!(done, Outcome::Sealed(_)), "{done:?}");
    }
    // Many requests at once, so that a group has more keys than one.
    let waiting: Vec<_> = (0..40)
        .map(|n| match wait(store.reserve(live(), key(&format!("together {n}"), "b"))).unwrap() {
            sealog_store::Reserved::Fresh(reservation) => store.append(sealog_store::Append {
                chain: live(),
                drafts: vec![login("a"); 5],
                idempotency: Some((reservation, sealog_core::id::Ulid(n))),
            }),
            other => panic!("{other:?}"),
        })
        .collect();
    waiting.into_iter().for_each(|append| drop(wait(append).unwrap()));
    let again =
        append_once(&store, live(), vec![login("x")], key("together 7", "b"), sealog_core::id::Ulid(1));
    assert!(matches!(again, Outcome::Replayed(_)), "{again:?}");
    assert_valid(&store, live(), 1 + 106 + 200);
    assert_eq!(cluster.sql("postgres", "SELECT sum(events) FROM sealog.usage"), "307");
    drop(store);

    let id = format!("'{}'", cluster.sql("postgres", "SELECT chain_id FROM sealog.chains"));
    let hot: BTreeSet<String> = logged(&cluster.dir)
        .split_off(before)
        .into_iter()
        .filter(|sql| ["INSERT INTO sealog.", "UPDATE", "BEGIN"].iter().any(|word| sql.starts_with(word)))
        // Of appends: the index of metadata follows behind them, and what names no table goes to no shard.
        .filter(|sql| sql.contains("sealog.") && !sql.contains("sealog.event_fields"))
        .map(|sql| sql.replace(&id, "$1"))
        .collect();
    for sql in &hot {
        assert!(!sql.contains("unnest") && !sql.contains("EXECUTE"), "{sql}");
        assert!(touches_one_chain(sql), "{sql}");
    }
    for expected in [
        "pg_advisory_xact_lock",
        "sealog.events",
        "sealog.idempotency",
        "sealog.usage",
        "UPDATE sealog.chains",
    ] {
        assert!(hot.iter().any(|sql| sql.contains(expected)), "the workload must reach {expected}: {hot:#?}");
    }
}

// ---- Plans ----------------------------------------------------------------------------------------------

const MANY: usize = 100_000;

/// Event *n* of many: 20 actions, 500 actors of which one sends a twentieth, resources of their own;
/// `never.together` is a frequent action that the frequent actor does not do.
fn one_of_many(n: usize) -> String {
    let actor = if n.is_multiple_of(20) { 0 } else { n % 500 + 1 };
    let action = match (n % 19, actor) {
        (0, 1..) => "never.together".to_owned(),
        (0, 0) => "once.more".to_owned(),
        (kind, _) => format!("kind.n{kind}"),
    };
    format!(r#"{{"action":"{action}","actor_id":"u{actor}","resource":"doc/{n}","metadata":{{"n":{n}}}}}"#)
}

/// The rows that each node of a plan has looked at, whether it has kept them or not, and the kinds of nodes.
fn looked_at(plan: &serde_json::Value, kinds: &mut BTreeSet<String>) -> u64 {
    let number = |name: &str| plan[name].as_u64().unwrap_or(0);
    let kind = plan["Node Type"].as_str().unwrap_or_default();
    kinds.insert(kind.to_owned());
    let rows = number("Actual Rows") + number("Rows Removed by Filter");
    // What one statement inside another returns was looked at there.
    let own =
        if kind.ends_with("Scan") && kind != "Subquery Scan" { rows * number("Actual Loops") } else { 0 };
    let below = plan["Plans"].as_array().into_iter().flatten();
    own + below.map(|plan| looked_at(plan, kinds)).sum::<u64>()
}

/// The plans of lists that the server has logged behind what was `read` before.
fn plans_of_lists(dir: &Path, read: &mut u64) -> Vec<serde_json::Value> {
    let (mut file, mut log) = (std::fs::File::open(dir.join("log")).unwrap(), String::new());
    file.seek(SeekFrom::Start(*read)).unwrap();
    *read += file.read_to_string(&mut log).unwrap() as u64;
    let plans = log.split("LOG:  duration: ").skip(1).filter_map(|entry| {
        let (_, json) = entry.split_once("plan:\n")?;
        let lines = json.lines().take_while(|line| line.starts_with('\t'));
        serde_json::from_str::<serde_json::Value>(&lines.collect::<String>()).ok()
    });
    plans
        .filter(|plan| plan["Query Text"].as_str().is_some_and(|sql| sql.contains("chain_seq DESC")))
        .collect()
}

#[test]
fn a_list_of_any_filters_reads_by_an_index_and_looks_at_a_bounded_number_of_rows() {
    let cluster = Cluster::start(
        "session_preload_libraries = 'auto_explain'\nauto_explain.log_analyze = on\nauto_explain.log_format = json",
    );
    let world = StillWorld::new();
    let store = PostgresStore::open(&cluster.url("postgres"), &on_postgres(&world)).unwrap();
    let mut waiting = Vec::new();
    for batch in 0..MANY / 100 {
        let drafts = (batch * 100..(batch + 1) * 100).map(|n| draft(&one_of_many(n))).collect();
        waiting.push(store.append(sealog_store::Append { chain: live(), drafts, idempotency: None }));
        if waiting.len() == 20 {
            waiting.drain(..).for_each(|append| drop(wait(append).unwrap()));
            world.advance(60_000);
        }
    }
    waiting.drain(..).for_each(|append| drop(wait(append).unwrap()));
    cluster.sql("postgres", "ANALYZE sealog.events");
    cluster.set("auto_explain.log_min_duration = 0");
    let mut read = 0;
    eventually("plans are logged", || {
        list(&store, live(), &Filter::default(), None, 50);
        !plans_of_lists(&cluster.dir, &mut read).is_empty()
    });

    let some = |text: &str| Some(format!("\"{text}\""));
    let actions = [None, some("kind.n3"), some("never.together"), some("absent.action")];
    let actors = [None, some("u0"), some("u77"), some("absent")];
    let resources = [None, some("doc/50000"), some("absent")];
    let days = [(None, None), (Some(MORNING_MS + 600_000), Some(MORNING_MS + 900_000))];
    let mut worst = (0, String::new());
    for (action, actor_id) in
        actions.iter().flat_map(|action| actors.iter().map(move |actor| (action, actor)))
    {
        for (resource, (from_ms, until_ms)) in
            resources.iter().flat_map(|resource| days.iter().map(move |days| (resource, *days)))
        {
            let (action, actor_id, resource) = (action.clone(), actor_id.clone(), resource.clone());
            let filter = Filter { action, actor_id, resource, from_ms, until_ms, ..Filter::default() };
            for before in [None, Some(MANY as u64 / 2)] {
                let list = List { filter: filter.clone(), before_seq: before, limit: 50, bytes_max: 1 << 20 };
                wait(store.list(live(), list)).unwrap();
                let plans = plans_of_lists(&cluster.dir, &mut read);
                assert!(!plans.is_empty(), "{filter:?} was not logged");
                let mut kinds = BTreeSet::new();
                let rows = plans.iter().map(|plan| looked_at(&plan["Plan"], &mut kinds)).sum();
                assert!(!kinds.contains("Seq Scan"), "{filter:?}: {:#}", plans[0]);
                if rows > worst.0 {
                    worst = (rows, format!("{filter:?} before {before:?}"));
                }
            }
        }
    }
    println!("of {MANY} events a list looked at {} at most: {}", worst.0, worst.1);
    // However many there are of the rarer of two values: rows that one list looks at, and some to find out
    // which is rarer.
    assert!(worst.0 <= 2048 + 3 * 257 + 10, "{worst:?}");
    assert!(worst.0 > 2048, "the worst list must have reached its limit");
    // It goes on from there, to the end.
    let never = Filter { action: some("never.together"), actor_id: some("u0"), ..Filter::default() };
    assert_eq!(list(&store, live(), &never, None, 50), []);
    let rare = Filter { action: some("kind.n3"), actor_id: some("u77"), ..Filter::default() };
    let expected = (0..MANY).filter(|n| n % 19 == 3 && n % 500 == 76 && !n.is_multiple_of(20)).count();
    assert_eq!(list(&store, live(), &rare, None, usize::MAX).len(), expected);
}

// ---- The way to the database ----------------------------------------------------------------------------

/// A key and a certificate for `localhost` in files of these names.
fn make_certificate(dir: &Path, name: &str) {
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=database.example",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
        .current_dir(dir)
        .output()
        .expect("openssl comes with PostgreSQL's package");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A cluster that speaks TLS with the key and the certificate `server`, restarted with whatever else was set
/// up.
fn with_tls(dir: &Path, set_up: impl Fn(&Cluster)) -> Cluster {
    let cluster = Cluster::start("");
    for name in ["server.key", "server.pem"] {
        cluster.adopt(&dir.join(name), &format!("data/{name}"));
    }
    for sql in ["SET ssl_cert_file = 'server.pem'", "SET ssl_key_file = 'server.key'", "SET ssl = on"] {
        cluster.sql("postgres", &format!("ALTER SYSTEM {sql}"));
    }
    set_up(&cluster);
    cluster.stop("fast");
    cluster.restart();
    cluster
}

#[test]
fn the_tls_modes_of_the_url_are_honoured() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["server", "other"] {
        make_certificate(dir.path(), name);
    }
    let cluster = with_tls(dir.path(), |_| ());
    let root = |name: &str| dir.path().join(format!("{name}.pem")).display().to_string().replace('/', "%2F");
    let open = |host: &str, parameters: &str| {
        let url =
            format!("postgres://owner@{host}:{}/postgres?application_name=probe&{parameters}", cluster.port);
        PostgresStore::open(&url, &on_postgres(&StillWorld::new()))
    };
    let encrypted = |host: &str, parameters: &str| {
        let store = open(host, parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"));
        append(&store, live(), vec![login("a")]);
        let sql = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'probe'";
        cluster.sql("postgres", sql)
    };
    assert_eq!(encrypted("127.0.0.1", "sslmode=disable"), "f");
    assert_eq!(encrypted("127.0.0.1", "sslmode=prefer"), "t");
    assert_eq!(encrypted("127.0.0.1", "sslmode=require"), "t");
    let ours = root("server");
    assert_eq!(encrypted("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ours}")), "t");
    assert_eq!(encrypted("127.0.0.1", &format!("sslmode=require&sslrootcert={ours}")), "t");
    assert_eq!(encrypted("localhost", &format!("sslmode=verify-full&sslrootcert={ours}")), "t");
    for (host, parameters) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ours}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={}", root("other"))),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={}", root("other"))),
        // As with libpq, a root certificate that is named counts.
        ("localhost", format!("sslmode=require&sslrootcert={}", root("other"))),
        ("localhost", format!("sslrootcert={}", root("other"))),
    ] {
        let error = open(host, &parameters).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{host} {parameters}: {error}");
    }
    // Without TLS on the server, nobody is connected who asked for it.
    let error = PostgresStore::open(
        &format!("{}?sslmode=require", postgres::cluster().url("postgres")),
        &on_postgres(&StillWorld::new()),
    );
    assert!(error.is_err());
}

/// Ends TLS with a certificate of its own and passes everything on to the database, by TLS as well. Its port.
fn man_in_the_middle(dir: &Path, name: &str, database: u16) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

    let certificate = |name: &str| CertificateDer::from_pem_file(dir.join(format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join(format!("{name}.key"))).unwrap();
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate(name)], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate("server")).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((mut near, _)) = listener.accept().await {
                let (acceptor, connector) = (acceptor.clone(), connector.clone());
                tokio::spawn(async move {
                    let mut asked = [0; 8];
                    near.read_exact(&mut asked).await?;
                    assert_eq!(asked, SSL_REQUEST);
                    near.write_all(b"S").await?;
                    let mut near = acceptor.accept(near).await?;
                    let mut far = TcpStream::connect(("127.0.0.1", database)).await?;
                    far.write_all(&SSL_REQUEST).await?;
                    assert_eq!(far.read_u8().await?, b'S');
                    let name = ServerName::try_from("localhost").unwrap();
                    let mut far = connector.connect(name, far).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
    });
    port
}

#[test]
fn whoever_stands_in_between_with_another_certificate_is_refused_by_channel_binding() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["server", "other"] {
        make_certificate(dir.path(), name);
    }
    let cluster = with_tls(dir.path(), |cluster| {
        let hba = dir.path().join("hba");
        std::fs::write(&hba, "hostssl all scrammed all scram-sha-256\nhost all owner all trust\n").unwrap();
        cluster.adopt(&hba, "data/pg_hba.conf");
        cluster.sql("postgres", "CREATE ROLE scrammed SUPERUSER LOGIN PASSWORD 'secret'");
    });
    let between = man_in_the_middle(dir.path(), "other", cluster.port);
    let open = |role: &str, port: u16, parameters: &str| {
        let url = format!("postgres://{role}:secret@127.0.0.1:{port}/postgres?sslmode=require{parameters}");
        let store = PostgresStore::open(&url, &on_postgres(&StillWorld::new()))?;
        append(&store, live(), vec![login("a")]);
        Ok::<_, OpenError>(())
    };
    for parameters in ["", "&channel_binding=prefer", "&channel_binding=require", "&channel_binding=disable"]
    {
        open("scrammed", cluster.port, parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"));
    }
    // Without the binding the one in between reads everything.
    open("scrammed", between, "&channel_binding=disable").unwrap();
    for parameters in ["", "&channel_binding=prefer", "&channel_binding=require"] {
        let error = open("scrammed", between, parameters).unwrap_err().to_string();
        assert!(error.contains("channel binding"), "{parameters}: {error}");
    }
    // A server that does not ask for the password proves nothing.
    let error = open("owner", cluster.port, "&channel_binding=require").unwrap_err().to_string();
    assert!(error.contains("channel binding"), "{error}");
}

#[test]
fn nodes_behind_pgbouncer_in_transaction_mode_work_as_all_others_do() {
    let stage = Stage::new();
    drop(stage.open());
    let pooler = postgres::Pooler::start(cluster());
    let url = format!("postgres://owner@127.0.0.1:{}/{}?pgbouncer=true", pooler.port, stage.database.name);
    let nodes: Vec<_> = (0..3).map(|_| PostgresStore::open(&url, &stage.options()).unwrap()).collect();
    // More at once than there are connections behind the pooler, so that they are passed around.
    std::thread::scope(|scope| {
        for (n, node) in nodes.iter().enumerate() {
            for thread in 0..4 {
                scope.spawn(move || {
                    for i in 0..15 {
                        let key = key(&format!("n{n}t{thread}i{i}"), "b");
                        let done = append_once(
                            node,
                            live(),
                            vec![login("a"); i % 4 + 1],
                            key,
                            sealog_core::id::Ulid(1),
                        );
                        let Outcome::Sealed(receipt) = done else { panic!("{done:?}") };
                        assert!(get(node, live(), receipt.log_ids[0]).is_some());
                    }
                });
            }
        }
    });
    // A statement ends in time there too.
    let hasty = Options { statement_timeout: Duration::from_secs(2), ..stage.options() };
    let hasty = PostgresStore::open(&url, &hasty).unwrap();
    let held = stage.database.hold("LOCK TABLE sealog.events");
    let read = wait(hasty.get(live(), sealog_core::id::Ulid(1)));
    assert!(matches!(&read, Err(StoreError::Read(why)) if why.contains("statement timeout")), "{read:?}");
    held.release();
    for node in &nodes {
        // 12 threads with 15 requests of 1, 2, 3, 4, 1, ... events.
        assert_eq!(verify(node, live()), Verdict { checked: 432, first_seq: 1, last_seq: 432, broken: None });
    }
}

#[test]
fn nodes_behind_pgbouncer_in_session_mode_work_as_they_are() {
    let stage = Stage::new();
    drop(stage.open());
    let pooler = postgres::Pooler::in_mode(cluster(), "session", 40);
    let url = format!("postgres://owner@127.0.0.1:{}/{}", pooler.port, stage.database.name);
    let hasty = Options { statement_timeout: Duration::from_secs(2), ..stage.options() };
    let store = PostgresStore::open(&url, &hasty).unwrap();
    append(&store, live(), vec![login("a"); 3]);
    let held = stage.database.hold("LOCK TABLE sealog.events");
    let read = wait(store.get(live(), sealog_core::id::Ulid(1)));
    assert!(matches!(&read, Err(StoreError::Read(why)) if why.contains("statement timeout")), "{read:?}");
    held.release();
    assert_valid(&store, live(), 3);
    // What the pooler refuses for good ends the start, with what to do about it.
    let refused = PostgresStore::open(&format!("{url}?options=-c%20geqo%3Doff"), &hasty).unwrap_err();
    assert!(!refused.may_pass(), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("unsupported startup parameter") && said.contains("ignore_startup_parameters"),
        "{said}"
    );
}
