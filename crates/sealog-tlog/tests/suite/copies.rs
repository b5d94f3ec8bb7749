//! What a backup takes along, and what it need not: as files of a data directory.

use std::path::Path;
use std::sync::Arc;

use sealog_control::copy_of_file;
use sealog_core::id::Hash;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_testing::postgres::cluster;
use sealog_testing::*;
use sealog_tlog::trees::{FOLDER, Pass, Trees};

fn open(dir: &Path, world: &Arc<StillWorld>) -> (Arc<EmbeddedStore>, Trees) {
    let store = Arc::new(EmbeddedStore::open(dir, &small(world)).unwrap());
    let trees = Trees::embedded(&store, Arc::clone(world) as Arc<dyn World>).unwrap();
    (store, trees)
}

fn root(trees: &Trees) -> Hash {
    assert!(matches!(soon(trees.pass()), Ok(Pass::Done { .. })));
    soon(trees.head(live())).unwrap().unwrap().root
}

/// The logs of a stopped store, and nothing of its trees.
fn copy_logs(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let path = to.join(entry.file_name());
        if entry.file_name() == FOLDER || entry.file_name() == "LOCK" {
            continue;
        }
        if entry.path().is_dir() {
            std::fs::create_dir(&path).unwrap();
            copy_logs(&entry.path(), &path);
        } else {
            std::fs::copy(entry.path(), path).unwrap();
        }
    }
}

#[test]
fn with_a_copy_of_the_store_log_a_restored_store_has_the_same_trees_and_without_it_others() {
    let world = StillWorld::random_at(MORNING_MS);
    let (dir, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, trees) = open(dir.path(), &world);
    append(&*store, live(), vec![login("a"), login("b"), login("c")]);
    let had = root(&trees);
    let log = dir.path().join(FOLDER).join("log.db");
    let (of_open, of_stopped) = (copies.path().join("open.db"), copies.path().join("stopped.db"));
    copy_of_file(&log, &of_open).unwrap();
    assert!(copy_of_file(&log, &of_open).is_err(), "a copy that is there is not overwritten");
    drop((store, trees));
    copy_of_file(&log, &of_stopped).unwrap();
    for (copy, is_same) in [(Some(&of_open), true), (Some(&of_stopped), true), (None, false)] {
        let restored = tempfile::tempdir().unwrap();
        copy_logs(dir.path(), restored.path());
        if let Some(copy) = copy {
            std::fs::create_dir(restored.path().join(FOLDER)).unwrap();
            std::fs::copy(copy, restored.path().join(FOLDER).join("log.db")).unwrap();
        }
        let (store, trees) = open(restored.path(), &world);
        assert_eq!(root(&trees) == had, is_same, "{copy:?}");
        assert_eq!(store.faults(), Vec::<String>::new());
    }
}

#[test]
fn two_nodes_of_a_database_have_the_same_trees() {
    let world = StillWorld::random_at(MORNING_MS);
    let database = cluster().database();
    let node = || {
        let store = Arc::new(PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap());
        let trees = Trees::on_postgres(&store, Arc::clone(&world) as Arc<dyn World>).unwrap();
        (store, trees)
    };
    let (one, two) = (node(), node());
    append(&*one.0, live(), vec![login("a"), login("b")]);
    let first = root(&one.1);
    assert_eq!(root(&two.1), first);
    append(&*two.0, live(), vec![login("c")]);
    let second = root(&two.1);
    assert_ne!(second, first);
    assert_eq!(soon(one.1.head(live())).unwrap().unwrap().root, second);
}
