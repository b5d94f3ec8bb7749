//! A store with its log, its keys and a clock, on either database.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_store::StoreError;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_testing::postgres::{Database, cluster};
use sealog_testing::*;
use sealog_tlog::log::keys::{KeyFile, Origin};
use sealog_tlog::log::*;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::merkle;
use sealog_trust::note::{Note, VerifierKey};
use sealog_trust::tile::{self, Content, Tile};

pub const INTERVAL_S: u64 = 60;
const TABLES: [&str; 7] = ["state", "entries", "tiles", "checkpoints", "log_keys", "published", "snapshots"];

/// Runs a test on both stores.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod embedded {
            $(#[test]
            fn $name() {
                super::$name(&mut $crate::log::stage::Stage::embedded());
            })*
        }
        mod on_postgres {
            $(#[test]
            fn $name() {
                super::$name(&mut $crate::log::stage::Stage::on_postgres());
            })*
        }
    };
}
pub(crate) use on_both;

pub struct Stage {
    pub world: Arc<StillWorld>,
    pub dir: tempfile::TempDir,
    store: Option<Kind>,
    database: Option<Database>,
    /// Where the key files and the state copy are.
    outside: PathBuf,
    /// Copies of the tables that were taken.
    copies: u64,
}

enum Kind {
    Embedded(EmbeddedStore),
    Postgres(PostgresStore),
}

impl Stage {
    pub fn embedded() -> Stage {
        Stage::new(None)
    }

    /// On a file system of the test's.
    pub fn embedded_in(place: &std::path::Path) -> Stage {
        let dir = tempfile::tempdir_in(place).unwrap();
        Stage::in_dir(dir, None, StillWorld::random_at(MORNING_MS))
    }

    pub fn on_postgres() -> Stage {
        Stage::new(Some(cluster().database()))
    }

    fn new(database: Option<Database>) -> Stage {
        Stage::in_dir(tempfile::tempdir().unwrap(), database, StillWorld::random_at(MORNING_MS))
    }

    fn in_dir(dir: tempfile::TempDir, database: Option<Database>, world: Arc<StillWorld>) -> Stage {
        let outside = dir.path().to_owned();
        std::fs::create_dir(outside.join("keys")).unwrap();
        let mut stage = Stage { world, dir, store: None, database, outside, copies: 0 };
        stage.open();
        stage
    }

    /// A second live copy: a store with a copy of the tables, the same key files and the same state copy. No
    /// signer may be open.
    pub fn twin(&self) -> Stage {
        let twin = self.beside();
        let (Some(from), Some(to)) = (&self.database, &twin.database) else {
            let trust = twin.dir.path().join("data/trust");
            std::fs::create_dir_all(&trust).unwrap();
            copy_files(&self.dir.path().join("data/trust"), &trust);
            return twin;
        };
        // Makes the tables.
        drop(twin.log());
        for table in tables() {
            let rows = from.sql(&format!("SELECT coalesce(json_agg(t), '[]') FROM sealog_log.{table} t"));
            to.sql(&format!(
                "INSERT INTO sealog_log.{table} OVERRIDING SYSTEM VALUE
                 SELECT * FROM json_populate_recordset(NULL::sealog_log.{table}, '{}')",
                rows.replace('\'', "''")
            ));
        }
        to.sql(
            "SELECT setval(pg_get_serial_sequence('sealog_log.published', 'number'), max(number))
             FROM sealog_log.published",
        );
        twin
    }

    /// Another store of the same kind with an empty log, for a copy: with the same key files and the same
    /// state copy.
    pub fn beside(&self) -> Stage {
        self.empty(self.database.as_ref().map(|_| cluster().database()))
    }

    /// Likewise, of the other kind.
    pub fn across(&self) -> Stage {
        self.empty(if self.is_embedded() { Some(cluster().database()) } else { None })
    }

    fn empty(&self, database: Option<Database>) -> Stage {
        let mut other = Stage::in_dir(tempfile::tempdir().unwrap(), database, Arc::clone(&self.world));
        other.outside.clone_from(&self.outside);
        other
    }

    fn open(&mut self) {
        self.store = Some(match &self.database {
            Some(database) => {
                Kind::Postgres(PostgresStore::open(&database.url(), &on_postgres(&self.world)).unwrap())
            }
            None => {
                let dir = self.dir.path().join("data");
                std::fs::create_dir_all(&dir).unwrap();
                let options =
                    sealog_store::embedded::Options { allow_unsafe_storage: true, ..small(&self.world) };
                Kind::Embedded(EmbeddedStore::open(&dir, &options).unwrap())
            }
        });
    }

    pub fn is_embedded(&self) -> bool {
        self.database.is_none()
    }

    /// One more connection to the log, as another process has it.
    pub fn log(&self) -> Arc<StoreLog> {
        Arc::new(match self.store.as_ref().unwrap() {
            Kind::Embedded(store) => StoreLog::in_directory(store.directory().unwrap()).unwrap(),
            Kind::Postgres(store) => StoreLog::on_postgres(store).unwrap(),
        })
    }

    pub fn key_file(&self, name: &str) -> KeyFile {
        KeyFile { path: self.outside.join("keys").join(name), origin: Origin::Made }
    }

    pub fn state_copy(&self) -> PathBuf {
        self.outside.join("state-copy")
    }

    pub fn settings(&self) -> Settings {
        Settings {
            log_key: Some(self.key_file("log.key")),
            service_key: Some(self.key_file("service.key")),
            origin: None,
            host: None,
            state_copy: Some(StateCopy::at(self.state_copy())),
            interval_s: INTERVAL_S,
            max_delay_s: 600,
        }
    }

    pub fn signer(&self) -> Arc<Signer> {
        self.signer_with(self.settings(), &Arc::default()).unwrap()
    }

    pub fn signer_with(
        &self,
        settings: Settings,
        collector: &Arc<Collector>,
    ) -> Result<Arc<Signer>, SignerError> {
        let world = Arc::clone(&self.world) as Arc<dyn World>;
        let probe = Arc::clone(collector) as Arc<dyn Probe>;
        Signer::open_with(self.log(), settings, world, None, probe).map(Arc::new)
    }

    /// Lets an interval go by.
    pub fn pass(&self) {
        self.world.advance(INTERVAL_S * 1000);
    }

    /// Copies the tables of the log, as a backup does. No signer may be open.
    pub fn backup(&mut self) -> u64 {
        self.copies += 1;
        match &self.database {
            Some(database) => {
                for table in tables() {
                    database.sql(&format!(
                        "CREATE TABLE public.{table}_{} AS SELECT * FROM sealog_log.{table}",
                        self.copies
                    ));
                }
            }
            None => {
                let to = self.dir.path().join(format!("backup-{}", self.copies));
                std::fs::create_dir(&to).unwrap();
                copy_files(&self.dir.path().join("data/trust"), &to);
            }
        }
        self.copies
    }

    /// Puts a copy in the place of the tables. No signer may be open.
    pub fn restore(&mut self, copy: u64) {
        match &self.database {
            Some(database) => {
                let mut sql = String::from("BEGIN; SET LOCAL session_replication_role = replica;");
                for table in tables().rev() {
                    sql += &format!("DELETE FROM sealog_log.{table};");
                }
                for table in tables() {
                    sql += &format!(
                        "INSERT INTO sealog_log.{table} OVERRIDING SYSTEM VALUE SELECT * FROM public.{table}_{copy};"
                    );
                }
                database.sql(&(sql + "COMMIT"));
            }
            None => {
                let trust = self.dir.path().join("data/trust");
                for file in ["log.db", "log.db-wal", "log.db-shm"] {
                    let _ = std::fs::remove_file(trust.join(file));
                }
                copy_files(&self.dir.path().join(format!("backup-{copy}")), &trust);
            }
        }
    }

    /// Makes a change that no part of the program makes.
    pub fn change(&self, sql: &str) -> Result<u64, StoreError> {
        let schema = &LOG;
        let database = match self.store.as_ref().unwrap() {
            Kind::Embedded(store) => sealog_control::database::Database::in_folder(
                store.directory().unwrap(),
                sealog_tlog::trees::FOLDER,
                schema,
            ),
            Kind::Postgres(store) => {
                sealog_control::database::Database::on_postgres(store.sessions(1), schema)
            }
        };
        let lock = sealog_control::db::Lock::None;
        database.unwrap().change(lock, |db, _| db.execute(sql, &[]))
    }

    /// Loses the tables.
    pub fn lose(&mut self) {
        match &self.database {
            Some(database) => {
                let mut sql = String::from("BEGIN; SET LOCAL session_replication_role = replica;");
                for table in tables().rev() {
                    sql += &format!("DELETE FROM sealog_log.{table};");
                }
                database.sql(&(sql + "COMMIT"));
            }
            None => {
                for file in ["log.db", "log.db-wal", "log.db-shm"] {
                    let _ = std::fs::remove_file(self.dir.path().join("data/trust").join(file));
                }
            }
        }
    }
}

fn tables() -> impl DoubleEndedIterator<Item = &'static str> {
    TABLES.into_iter().chain(["heads"])
}

fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for file in ["log.db", "log.db-wal"] {
        let _ = std::fs::copy(from.join(file), to.join(file));
    }
}

/// Sees every signature, and ends a signer at a moment as a crash would.
#[derive(Debug, Default)]
pub struct Collector {
    pub notes: Mutex<Vec<String>>,
    crash: Mutex<Option<Moment>>,
}

impl Collector {
    pub fn crash_at(&self, moment: Option<Moment>) {
        *self.crash.lock().unwrap() = moment;
    }
}

impl Probe for Collector {
    fn reached(&self, moment: Moment) -> Result<(), StoreError> {
        if *self.crash.lock().unwrap() == Some(moment) {
            return Err(StoreError::Refused("crashed".into()));
        }
        Ok(())
    }

    fn signed(&self, note: &Note) {
        self.notes.lock().unwrap().push(note.to_string());
    }
}

/// The heads that a builder would give.
#[derive(Debug, Default)]
pub struct Heads(pub Mutex<Vec<TreeHead>>);

impl HeadSource for Heads {
    fn heads(&self) -> Result<Option<Vec<TreeHead>>, StoreError> {
        Ok(Some(self.0.lock().unwrap().clone()))
    }
}

impl Heads {
    pub fn of(heads: &[TreeHead]) -> Heads {
        Heads(Mutex::new(heads.to_vec()))
    }
}

pub fn chain(n: u64) -> ChainId {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid(id)), mode: Mode::Live }
}

/// A head whose root and event follow from chain and size, as on an honest server.
pub fn head(n: u64, size: u64) -> TreeHead {
    let of = |kind: &str| merkle::leaf_hash(format!("{kind} {n} {size}").as_bytes());
    TreeHead { chain: chain(n), size, root: of("root"), event_hash: of("event") }
}

/// Makes a snapshot that is due.
pub fn make(stage: &Stage, signer: &Signer, heads: &[TreeHead]) -> Signed {
    stage.pass();
    match signer.turn(&Heads::of(heads)).unwrap() {
        Turn::Made { signed, .. } => signed,
        other => panic!("{other:?}"),
    }
}

pub fn checkpoint(note: &str) -> Checkpoint {
    Checkpoint::parse(Note::parse(note.as_bytes()).unwrap().text()).unwrap()
}

/// Reads the log as anyone does: checkpoint, entry bundles and tiles, all verified against each other.
pub fn fetch(log: &StoreLog, key: &VerifierKey) -> (Checkpoint, Vec<Vec<u8>>) {
    let note = log.newest().unwrap().expect("there is a checkpoint").note;
    let note = Note::parse(note.as_bytes()).unwrap();
    note.verify(&[key]).unwrap();
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    let mut entries = Vec::new();
    let mut tiles: BTreeMap<Tile, Vec<Hash>> = BTreeMap::new();
    for found in Tile::of_tree(checkpoint.size) {
        let bytes = log.tile(found).unwrap().unwrap_or_else(|| panic!("{found}"));
        tiles.insert(found, tile::hashes(&bytes, found.width).unwrap());
        if found.content == Content::Hashes(0) {
            let bundle = log.tile(Tile { content: Content::Entries, ..found }).unwrap().unwrap();
            entries.extend(tile::entries(&bundle, found.width).unwrap().into_iter().map(<[u8]>::to_vec));
        }
    }
    let leaves: Vec<Hash> = entries.iter().map(|entry| merkle::leaf_hash(entry)).collect();
    assert_eq!(merkle::root_of(&leaves), checkpoint.root);
    for (found, hashes) in tiles {
        let Content::Hashes(level) = found.content else { unreachable!() };
        let width = 1usize << (8 * u32::from(level));
        for (at, hash) in hashes.iter().enumerate() {
            let first = (usize::try_from(found.index).unwrap() * 256 + at) * width;
            assert_eq!(merkle::root_of(&leaves[first..first + width]), *hash, "{found}");
        }
    }
    (checkpoint, entries)
}

/// The key that signs.
pub fn vkey(log: &StoreLog) -> VerifierKey {
    let keys = log.keys().unwrap();
    keys.into_iter().rfind(|key| key.role == Role::Log).unwrap().key
}
