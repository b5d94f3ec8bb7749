//! A store with the databases of its trees, of each kind, that can be started again and made to lose either.

use std::path::PathBuf;
use std::sync::Arc;

use sealog_control::database::Database;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::{DISTRIBUTED_TABLES, PostgresStore};
use sealog_store::reference::ReferenceStore;
use sealog_store::world::World;
use sealog_testing::postgres::{self, cluster};
use sealog_testing::{StillWorld, on_postgres, small};
use sealog_tlog::log::LOG;
use sealog_tlog::trees::{FOLDER, TREES, Trees};

pub trait Home {
    fn world(&self) -> Arc<StillWorld>;
    fn store(&self) -> Arc<dyn Store>;
    /// The databases of the trees and of the store log.
    fn databases(&self) -> (Arc<Database>, Arc<Database>);
    /// The process ends and starts again. Whatever uses the store was dropped.
    fn restart(&mut self) {}
    /// Events may be as large as requests; tests of many segments have small ones.
    fn make_room(&mut self) {}
    /// The derived database is gone.
    fn forget_trees(&mut self);
    /// All events are gone; the databases of the trees are still there.
    fn forget_events(&mut self);
    /// Whether other nodes may build the same trees.
    fn is_shared(&self) -> bool {
        false
    }

    fn trees(&self) -> Trees {
        self.trees_over(self.store())
    }

    /// Trees in the same databases, over what a test shows of the store, or over another one.
    fn trees_over(&self, store: Arc<dyn Store>) -> Trees {
        let (trees, log) = self.databases();
        Trees::over(store, trees, log, self.world() as Arc<dyn World>, self.is_shared())
    }
}

pub struct InMemory {
    world: Arc<StillWorld>,
    store: Arc<ReferenceStore>,
    databases: (Arc<Database>, Arc<Database>),
}

impl InMemory {
    pub fn new(world: Arc<StillWorld>) -> InMemory {
        let database = |schema| Arc::new(Database::in_memory(schema).unwrap());
        let store = Arc::new(ReferenceStore::new(Arc::clone(&world) as _));
        InMemory { world, store, databases: (database(&TREES), database(&LOG)) }
    }
}

impl Home for InMemory {
    fn world(&self) -> Arc<StillWorld> {
        Arc::clone(&self.world)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    fn databases(&self) -> (Arc<Database>, Arc<Database>) {
        self.databases.clone()
    }

    fn forget_trees(&mut self) {
        self.databases.0 = Arc::new(Database::in_memory(&TREES).unwrap());
    }

    fn forget_events(&mut self) {
        self.store = Arc::new(ReferenceStore::new(Arc::clone(&self.world) as _));
    }
}

pub struct InDirectory {
    world: Arc<StillWorld>,
    dir: tempfile::TempDir,
    has_room: bool,
    open: Option<(Arc<EmbeddedStore>, Arc<Database>, Arc<Database>)>,
}

impl InDirectory {
    pub fn new(world: Arc<StillWorld>) -> InDirectory {
        let mut home = InDirectory { world, dir: tempfile::tempdir().unwrap(), has_room: false, open: None };
        home.restart();
        home
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join(FOLDER)
    }
}

impl Home for InDirectory {
    fn world(&self) -> Arc<StillWorld> {
        Arc::clone(&self.world)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.open.as_ref().unwrap().0) as _
    }

    fn databases(&self) -> (Arc<Database>, Arc<Database>) {
        let (_, trees, log) = self.open.as_ref().unwrap();
        (Arc::clone(trees), Arc::clone(log))
    }

    fn restart(&mut self) {
        self.open = None;
        let mut options = small(&self.world);
        if self.has_room {
            (options.segment_bytes_first, options.segment_bytes_max) = (8 << 20, 8 << 20);
        }
        let store = Arc::new(EmbeddedStore::open(self.dir.path(), &options).unwrap());
        let open =
            |schema| Arc::new(Database::in_folder(store.directory().unwrap(), FOLDER, schema).unwrap());
        let (trees, log) = (open(&TREES), open(&LOG));
        self.open = Some((store, trees, log));
    }

    fn make_room(&mut self) {
        self.has_room = true;
        // What is there is in small segments, and goes on so.
        self.forget_events();
    }

    fn forget_trees(&mut self) {
        self.open = None;
        for end in ["db", "db-wal", "db-shm"] {
            let _ = std::fs::remove_file(self.folder().join(format!("trees.{end}")));
        }
        self.restart();
    }

    fn forget_events(&mut self) {
        self.open = None;
        let fresh = tempfile::tempdir().unwrap();
        std::fs::rename(self.folder(), fresh.path().join(FOLDER)).unwrap();
        self.dir = fresh;
        self.restart();
    }
}

pub struct OnPostgres {
    world: Arc<StillWorld>,
    database: postgres::Database,
    open: Option<(Arc<PostgresStore>, Arc<Database>, Arc<Database>)>,
}

impl OnPostgres {
    pub fn new(world: Arc<StillWorld>) -> OnPostgres {
        let mut home = OnPostgres { world, database: cluster().database(), open: None };
        home.restart();
        home
    }
}

impl Home for OnPostgres {
    fn world(&self) -> Arc<StillWorld> {
        Arc::clone(&self.world)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.open.as_ref().unwrap().0) as _
    }

    fn databases(&self) -> (Arc<Database>, Arc<Database>) {
        let (_, trees, log) = self.open.as_ref().unwrap();
        (Arc::clone(trees), Arc::clone(log))
    }

    fn restart(&mut self) {
        self.open = None;
        let store = PostgresStore::open(&self.database.url(), &on_postgres(&self.world)).unwrap();
        let sessions = store.sessions(4);
        let open = |schema| Arc::new(Database::on_postgres(sessions.clone(), schema).unwrap());
        let (trees, log) = (open(&TREES), open(&LOG));
        self.open = Some((Arc::new(store), trees, log));
        // A node that has ended without a word keeps the others waiting for a while.
        self.world.advance(60_000);
    }

    fn forget_trees(&mut self) {
        self.open = None;
        self.database.sql("DROP SCHEMA sealog_trees CASCADE");
        self.restart();
    }

    fn forget_events(&mut self) {
        self.open = None;
        let tables = DISTRIBUTED_TABLES.map(|table| format!("sealog.{table}"));
        self.database.sql(&format!("TRUNCATE {}", tables.join(", ")));
        self.restart();
    }

    fn is_shared(&self) -> bool {
        true
    }
}
