//! A copy of the control data in a file of its own, for backups.

use std::collections::BTreeSet;
use std::path::Path;

use sealog_core::id::ProjectId;
use sealog_store::StoreError;

use crate::control::Control;
use crate::db::DbError;
use crate::schema::SCHEMA;
use crate::sqlite;

impl Control {
    /// Copies everything, as it is at one moment, into a new file that only its owner can read: durable when
    /// it returns. Nobody waits for it: it reads by a connection of its own. The projects that the copy
    /// knows, those that are reserved for system chains among them.
    ///
    /// Blocks, for as long as the file takes to be read and written.
    pub fn copy_to(&self, path: &Path) -> Result<BTreeSet<ProjectId>, StoreError> {
        durable(self.database.copy_to(path), path)
    }

    /// Whether the disk has room for so many bytes beside what events and changes of access need. Blocks.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.database.has_room(bytes)
    }
}

/// As [`Control::copy_to`], for a program that is not the server that has the data directory open: it copies
/// to where the server may not write, and takes no room of the server's disk.
pub fn copy_of_directory(data_dir: &Path, path: &Path) -> Result<BTreeSet<ProjectId>, StoreError> {
    let from = data_dir.join(format!("{}.db", SCHEMA.name));
    durable(sqlite::copy_file(&from, path), path)
}

/// Copies a database of any schema, which a server may have open, to a new file.
pub fn copy_of_file(from: &Path, path: &Path) -> Result<(), StoreError> {
    durable(sqlite::copy_any_file(from, path), path)
}

fn durable<T>(copied: Result<T, DbError>, path: &Path) -> Result<T, StoreError> {
    let copied = copied.map_err(StoreError::from);
    let copied =
        copied.map_err(|error| StoreError::Control(format!("cannot copy the control data: {error}")))?;
    let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::Control(format!("{}: {error}", path.display())))?;
    Ok(copied)
}

/// The projects that a copy knows, those that are reserved for system chains among them.
pub fn projects_of_copy(path: &Path) -> Result<BTreeSet<ProjectId>, StoreError> {
    sqlite::projects_of_copy(path).map_err(DbError::of_read)
}

/// What a copy knows by name, in words for the operator: its projects and its keys.
pub fn names_of_copy(path: &Path) -> Result<BTreeSet<String>, StoreError> {
    sqlite::names_of_copy(path).map_err(DbError::of_read)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sealog_core::id::{TenantId, Uuid};
    use sealog_core::plan::Billing;
    use sealog_store::embedded::{EmbeddedStore, Options};

    use super::*;
    use crate::NewTenant;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_copy_has_what_was_committed_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { allow_unsafe_storage: true, ..Options::default() };
        let store = EmbeddedStore::open(&dir.path().join("data"), &options).unwrap();
        let control = Control::embedded(&store).unwrap();
        let tenant_id = TenantId(Uuid::from_random([3; 16]));
        let tenant = NewTenant {
            id: tenant_id,
            name: "n".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 1,
        };
        wait(control.create_tenant(tenant, Vec::new())).unwrap();
        let system = ProjectId::system_from_random([5; 16]);
        wait(control.system_project(tenant_id, system)).unwrap();
        let to = dir.path().join("copy.db");
        assert_eq!(control.copy_to(&to).unwrap(), BTreeSet::from([system]));
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(control.copy_to(&to).is_err(), "a file that is there is not overwritten");
    }
}
