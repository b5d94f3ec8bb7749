//! An open database: one of the two drivers beneath the seam.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use sealog_core::id::ProjectId;
use sealog_store::StoreError;
use sealog_store::embedded::Directory;
use sealog_store::postgres::sessions::Sessions;
use sealog_store::sync::lock;

use crate::db::{Db, DbError, Lock, Room, Schema};
use crate::error::OpenError;
use crate::postgres::{self, Tables};
use crate::sqlite::File;

/// What each operation counts in the fair queue, whose key is the payer. They are all small.
pub(crate) const COST: usize = 4 << 10;

/// An open database.
#[derive(Debug)]
pub struct Database {
    driver: Driver,
    /// Why the last read failed, if it did.
    unreadable: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Driver {
    Sqlite(Box<File>),
    Postgres(Tables),
}

impl Database {
    pub fn in_memory(schema: &Schema) -> Result<Database, OpenError> {
        File::in_memory(schema).map(Box::new).map(Driver::Sqlite).map(Database::over)
    }

    pub fn in_directory(directory: &Directory, schema: &Schema) -> Result<Database, OpenError> {
        File::open(directory, directory.path(), schema).map(Box::new).map(Driver::Sqlite).map(Database::over)
    }

    /// In a folder of the directory, which is made where it is missing.
    pub fn in_folder(directory: &Directory, folder: &str, schema: &Schema) -> Result<Database, OpenError> {
        let dir = directory.path().join(folder);
        let disk = directory.disk();
        disk.create_dir(&dir)
            .and_then(|()| disk.sync_dir(directory.path()))
            .map_err(|error| OpenError::Io { path: dir.clone(), error })?;
        File::open(directory, &dir, schema).map(Box::new).map(Driver::Sqlite).map(Database::over)
    }

    /// A copy of a file, which no other process has open.
    pub fn of_copy(path: &Path, schema: &Schema) -> Result<Database, OpenError> {
        File::of_copy(path, schema).map(Box::new).map(Driver::Sqlite).map(Database::over)
    }

    pub fn on_postgres(sessions: Sessions, schema: &Schema) -> Result<Database, OpenError> {
        Tables::open(sessions, schema).map(Driver::Postgres).map(Database::over)
    }

    fn over(driver: Driver) -> Database {
        Database { driver, unreadable: Mutex::default() }
    }

    /// How many threads can use it at a time.
    pub(crate) fn threads(&self) -> usize {
        match &self.driver {
            // One connection, and one thread for it: the order of work is that of the queue.
            Driver::Sqlite(_) => 1,
            Driver::Postgres(_) => postgres::CONNECTIONS,
        }
    }

    /// Why nothing may be changed any more until it is opened again.
    pub fn failure(&self) -> Option<String> {
        match &self.driver {
            Driver::Sqlite(file) => file.failure(),
            Driver::Postgres(_) => None,
        }
    }

    /// Whether there is room for so many bytes beside what is kept free. A database server looks after its
    /// own.
    pub fn has_room(&self, bytes: u64) -> bool {
        match &self.driver {
            Driver::Sqlite(file) => file.has_room(bytes),
            Driver::Postgres(_) => true,
        }
    }

    /// Copies everything into a new file; the projects that the copy knows. A database server has its own
    /// tools for that.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<BTreeSet<ProjectId>, DbError> {
        match &self.driver {
            Driver::Sqlite(file) => file.copy_to(path),
            Driver::Postgres(_) => Err(DbError::Refused("copy a database with its own tools".into())),
        }
    }

    pub fn read<T>(&self, act: impl FnOnce(&mut dyn Db) -> Result<T, DbError>) -> Result<T, StoreError> {
        let read = match &self.driver {
            Driver::Sqlite(file) => file.read(act),
            Driver::Postgres(tables) => tables.read(act),
        };
        match &read {
            Ok(_) => *lock(&self.unreadable) = None,
            Err(DbError::Failed(cause) | DbError::Final(cause)) => {
                *lock(&self.unreadable) = Some(cause.clone())
            }
            // It was read, and what stands there is wrong.
            Err(_) => {}
        }
        read.map_err(DbError::of_read)
    }

    /// Why the last read failed. A database server is watched by the store that has it.
    pub(crate) fn unreadable(&self) -> Option<String> {
        match &self.driver {
            Driver::Sqlite(_) => lock(&self.unreadable).clone(),
            Driver::Postgres(_) => None,
        }
    }

    /// For how long nothing was heard of what other nodes have changed. Nobody else changes a file.
    pub(crate) fn silent_ms(&self) -> u64 {
        match &self.driver {
            Driver::Sqlite(_) => 0,
            Driver::Postgres(tables) => tables.silent_ms(),
        }
    }

    /// One transaction: after `Ok` all of it is durable, after an error of `act` nothing of it is. The
    /// version is what other nodes will see; there is none where there are none.
    pub fn change<T, E: From<DbError>>(
        &self,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db, Option<u64>) -> Result<T, DbError>,
    ) -> Result<T, E> {
        self.change_in(lock.room(), lock, act)
    }

    /// As [`Database::change`], with what it may use of a full disk.
    pub fn change_in<T, E: From<DbError>>(
        &self,
        room: Room,
        lock: Lock,
        act: impl FnOnce(&mut dyn Db, Option<u64>) -> Result<T, DbError>,
    ) -> Result<T, E> {
        let changed = match &self.driver {
            Driver::Sqlite(file) => file.change(room, |db| act(db, None)),
            Driver::Postgres(tables) => tables.change(lock, act),
        };
        changed.map_err(E::from)
    }
}
