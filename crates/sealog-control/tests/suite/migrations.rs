//! Steps of later versions, on a file that this version made.

use sealog_control::database::Database;
use sealog_control::db::Schema;
use sealog_control::*;
use sealog_core::id::{TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::*;

/// How many steps this version has, which is its number.
const KNOWN: usize = SCHEMA.sqlite.len();
const ADDED: &str = "ALTER TABLE tenants ADD COLUMN later INTEGER NOT NULL DEFAULT 2";

/// The schema of a later version.
const LATER: Schema = Schema { sqlite: &steps::<{ KNOWN + 1 }>([ADDED, ""]), ..SCHEMA };
/// One whose last step cannot be made.
const BROKEN: Schema = Schema {
    sqlite: &steps::<{ KNOWN + 2 }>([ADDED, "UPDATE tenants SET later = 3; SELECT * FROM missing"]),
    ..SCHEMA
};

/// Those of this version, and as many further ones as there is room for.
const fn steps<const N: usize>(further: [&'static str; 2]) -> [&'static str; N] {
    let (mut steps, mut step) = ([""; N], 0);
    while step < N {
        steps[step] = if step < KNOWN { SCHEMA.sqlite[step] } else { further[step - KNOWN] };
        step += 1;
    }
    steps
}

struct Stage {
    dir: tempfile::TempDir,
    store: EmbeddedStore,
}

impl Stage {
    /// A data directory of this version, with one tenant.
    fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
        let tenant = NewTenant {
            id: TenantId(Uuid([7; 16])),
            name: "Kept".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 1,
        };
        wait(Control::embedded(&store).unwrap().create_tenant(tenant, Vec::new())).unwrap();
        Stage { dir, store }
    }

    fn open_later(&self, schema: &Schema) -> Result<Database, OpenError> {
        Database::in_directory(self.store.directory().unwrap(), schema)
    }

    fn copies(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("control.db.")).collect()
    }
}

/// What this version had is copied to.
fn copy() -> String {
    format!("control.db.{KNOWN}")
}

/// Name and new column of every tenant.
fn tenants(database: &Database) -> Vec<(String, i64)> {
    let rows = database.read(|db| db.query("SELECT name, later FROM {tenants}", &[])).unwrap();
    rows.iter().map(|row| (row.get("name").unwrap(), row.get("later").unwrap())).collect()
}

#[test]
fn a_later_version_copies_the_file_aside_makes_its_steps_and_keeps_the_rows() {
    let stage = Stage::new();
    drop(Control::embedded(&stage.store).unwrap());
    assert_eq!(stage.copies(), Vec::<String>::new(), "there was nothing to change");
    let later = stage.open_later(&LATER).unwrap();
    assert_eq!(tenants(&later), [("Kept".to_owned(), 2)]);
    drop(later);
    assert_eq!(stage.copies(), [copy()]);

    // This version refuses the file, and opens the copy.
    let error = Control::embedded(&stage.store).unwrap_err();
    assert!(error.to_string().contains(&format!("the unknown format \"control.db version {}\"", KNOWN + 1)));
    let path = |name: &str| stage.dir.path().join(name);
    for name in ["control.db-wal", "control.db-shm"] {
        let _ = std::fs::remove_file(path(name));
    }
    std::fs::rename(path(&copy()), path("control.db")).unwrap();
    let kept = wait(Control::embedded(&stage.store).unwrap().tenants(ListPage { after: None, limit: 9 }));
    assert_eq!(kept.unwrap()[0].name, "Kept");
}

#[test]
fn a_step_that_fails_changes_nothing_and_those_before_it_stay() {
    let stage = Stage::new();
    let error = stage.open_later(&BROKEN).unwrap_err();
    assert!(error.to_string().contains("no such table: missing"), "{error}");
    assert_eq!(tenants(&stage.open_later(&LATER).unwrap()), [("Kept".to_owned(), 2)]);
    assert_eq!(stage.copies(), [copy()]);
}
