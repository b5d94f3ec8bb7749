//! Where the store of a test is kept, and what can happen to it there while nobody looks. Embedded, or on
//! PostgreSQL with `SEALOG_TEST_STORE=postgres`, or, with `SEALOG_TEST_STORE=citus`, on the cluster that
//! `SEALOG_TEST_CITUS` names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_control::Control;
use sealog_engine::trees::Trees;
use sealog_store::Store;
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::{self, PostgresStore};
use sealog_store::world::World;

use sealog_testing::postgres::{Database, cluster};

pub enum Home {
    Directory(tempfile::TempDir),
    Database(Database),
}

impl Home {
    pub fn new() -> Home {
        match std::env::var("SEALOG_TEST_STORE").as_deref() {
            Ok("postgres") => Home::Database(cluster().database()),
            Ok("citus") => Home::Database(Database::distributed().by_workers()),
            Ok("embedded") | Err(_) => Home::Directory(tempfile::tempdir().unwrap()),
            Ok(other) => panic!("SEALOG_TEST_STORE is embedded, postgres or citus, not {other}"),
        }
    }

    /// Opens the store, its control data and, if asked for, its trees.
    pub fn open(
        &self,
        segment_bytes: u64,
        world: &Arc<dyn World>,
        with_trees: bool,
    ) -> (Arc<dyn Store>, Arc<Control>, Option<Trees>) {
        match self {
            Home::Directory(dir) => {
                let options = embedded::Options {
                    segment_bytes_first: segment_bytes,
                    segment_bytes_max: segment_bytes,
                    cache_bytes: 256 << 10,
                    allow_unsafe_storage: true,
                    world: Arc::clone(world),
                    ..embedded::Options::default()
                };
                let store = EmbeddedStore::open(dir.path(), &options).unwrap();
                let control = Control::embedded(&store).unwrap();
                let store = Arc::new(store);
                let trees = with_trees.then(|| Trees::embedded(&store, Arc::clone(world)).unwrap());
                (store, Arc::new(control), trees)
            }
            Home::Database(database) => {
                let options = postgres::Options {
                    // As `on_postgres`: a test that is kept waiting is no node that has stopped.
                    idle_in_transaction_timeout: std::time::Duration::from_secs(60),
                    connections: 8,
                    time: postgres::Time::OfWorld,
                    world: Arc::clone(world),
                    ..postgres::Options::default()
                };
                let store = PostgresStore::open(&database.url(), &options).unwrap();
                let control = Control::on_postgres(&store).unwrap();
                let store = Arc::new(store);
                let trees = with_trees.then(|| Trees::on_postgres(&store, Arc::clone(world)).unwrap());
                (store, Arc::new(control), trees)
            }
        }
    }

    /// Changes the live event of an actor, early in the chain.
    pub fn damage(&self, actor_id: &str) {
        match self {
            Home::Directory(dir) => flip(&segments(dir.path())[0], &format!("\"{actor_id}\"")),
            Home::Database(database) => {
                database
                    .sql(&format!("UPDATE sealog.events SET actor_id = 'U' WHERE actor_id = '{actor_id}'"));
            }
        }
    }

    /// Loses some live events in the middle of a chain whose actors are named after their seq. The first one
    /// that is lost, and the next one that is still there.
    pub fn lose_middle(&self) -> (u64, u64) {
        match self {
            Home::Directory(dir) => {
                let lost = &segments(dir.path())[1];
                let in_lost = |seq: &u64| contains(lost, &format!("\"u{seq}\""));
                let first_lost = (1..=1000).find(in_lost).unwrap();
                let next = (first_lost..=1000).find(|seq| !in_lost(seq)).unwrap();
                std::fs::remove_file(lost).unwrap();
                std::fs::remove_file(lost.with_extension("idx")).unwrap();
                (first_lost, next)
            }
            Home::Database(database) => {
                database.sql("DELETE FROM sealog.events WHERE chain_seq BETWEEN 200 AND 300");
                (200, 301)
            }
        }
    }

    /// Loses the live events since the last restart, before which there was one.
    pub fn lose_tail(&self) {
        match self {
            Home::Directory(dir) => std::fs::remove_file(segments(dir.path()).last().unwrap()).unwrap(),
            Home::Database(database) => {
                database.sql("DELETE FROM sealog.events WHERE chain_seq > 1");
            }
        }
    }

    /// Whether a text stands anywhere in what is kept.
    pub fn keeps(&self, text: &str) -> bool {
        match self {
            Home::Directory(dir) => files(dir.path()).iter().any(|path| contains(path, text)),
            Home::Database(database) => database.dump().contains(text),
        }
    }
}

/// Segments of the live log that have events or will have them, oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("live")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    segments.sort();
    segments
}

/// Every file of the data directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut folders = vec![dir.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Flips a bit of the first byte of this text in a file.
fn flip(path: &Path, text: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}

fn contains(path: &Path, text: &str) -> bool {
    std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
}
