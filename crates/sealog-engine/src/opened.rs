//! The store that the settings name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_control::{Control, KnownLog};
use sealog_service::Secret;
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::{self, PostgresStore};
use sealog_store::world::{SystemWorld, World};
use sealog_store::{Store, StoreError};
use sealog_tlog::log::{Settings as TrustSettings, StoreLog};
use sealog_tlog::trees::Trees;

use crate::restoring_mark;
use crate::trust::{Begins, Trust};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the data directory.
    Embedded,
    /// The URL may hold a password.
    Postgres(Secret),
}

impl Place {
    pub fn parse(text: &str) -> Option<Place> {
        match text {
            "embedded" => Some(Place::Embedded),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Some(Place::Postgres(Secret(url.to_owned())))
            }
            _ => None,
        }
    }
}

/// An open store of either kind, and its control data.
#[derive(Clone, Debug)]
pub struct Opened {
    kind: Kind,
    control: Arc<Control>,
}

#[derive(Clone, Debug)]
enum Kind {
    Embedded(Arc<EmbeddedStore>),
    Postgres(Arc<PostgresStore>),
}

/// Why a store could not be opened.
#[derive(Debug)]
pub struct Unopened {
    /// What could not be opened.
    what: &'static str,
    problem: String,
    /// Nobody has to change anything for it to work later: the database is not there yet, or takes nobody
    /// now.
    pub may_pass: bool,
    /// Another process has it open.
    pub locked: bool,
    /// The setting itself cannot be used.
    pub is_setting: bool,
}

impl std::fmt::Display for Unopened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot open {}: {}", self.what, self.problem)
    }
}

/// What the settings say about how a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    pub allow_unsafe_storage: bool,
    pub clock_strict: bool,
    /// What the control data of a tenant may take of the disk.
    pub tenant_bytes_max: Option<u64>,
}

impl Opened {
    /// The data directory has the embedded store, or, with PostgreSQL, what this node has acknowledged.
    pub fn open(
        place: &Place,
        data_dir: &Path,
        options: OpenOptions,
        world: Arc<dyn World>,
    ) -> Result<Opened, Unopened> {
        Opened::open_as(place, data_dir, Some(PathBuf::from(data_dir)), options, world)
    }

    /// For a program that acknowledges nothing to anyone.
    pub fn open_unmarked(place: &Place, data_dir: &Path) -> Result<Opened, Unopened> {
        Opened::open_as(place, data_dir, None, OpenOptions::default(), Arc::new(SystemWorld))
    }

    fn open_as(
        place: &Place,
        data_dir: &Path,
        mark_dir: Option<PathBuf>,
        OpenOptions { allow_unsafe_storage, clock_strict, tenant_bytes_max }: OpenOptions,
        world: Arc<dyn World>,
    ) -> Result<Opened, Unopened> {
        let cannot = |error: &dyn std::fmt::Display, may_pass| Unopened {
            what: "the store",
            problem: error.to_string(),
            may_pass,
            locked: false,
            is_setting: false,
        };
        match place {
            Place::Embedded => {
                restoring_mark::refuse(data_dir).map_err(|problem| cannot(&problem, false))?;
                let options =
                    embedded::Options { allow_unsafe_storage, world, ..embedded::Options::default() };
                let store = EmbeddedStore::open(data_dir, &options).map_err(|error| {
                    let locked = matches!(error, embedded::OpenError::Locked { .. });
                    Unopened { locked, ..cannot(&error, false) }
                })?;
                let control = Control::embedded(&store).map_err(|error| cannot(&error, error.may_pass()))?;
                control.limit_tenant_bytes(tenant_bytes_max);
                Ok(Opened { kind: Kind::Embedded(Arc::new(store)), control: Arc::new(control) })
            }
            Place::Postgres(url) => {
                let options = postgres::Options {
                    allow_unsafe_storage,
                    mark_dir,
                    clock_strict,
                    world,
                    ..postgres::Options::default()
                };
                let store = PostgresStore::open(&url.0, &options);
                let store = store.map_err(|error| Unopened {
                    is_setting: matches!(error, postgres::OpenError::Url(_)),
                    ..cannot(&error, error.may_pass())
                })?;
                let control =
                    Control::on_postgres(&store).map_err(|error| cannot(&error, error.may_pass()))?;
                control.limit_tenant_bytes(tenant_bytes_max);
                Ok(Opened { kind: Kind::Postgres(Arc::new(store)), control: Arc::new(control) })
            }
        }
    }

    pub fn store(&self) -> Arc<dyn Store> {
        match &self.kind {
            Kind::Embedded(store) => Arc::clone(store) as _,
            Kind::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// The database, if it is in one.
    pub fn database(&self) -> Option<&Arc<PostgresStore>> {
        match &self.kind {
            Kind::Embedded(_) => None,
            Kind::Postgres(store) => Some(store),
        }
    }

    /// The trees of its chains and its signed log, which are made where there are none. `known` is the log
    /// that control data knows of. Blocks.
    pub fn trust(
        &self,
        settings: TrustSettings,
        world: Arc<dyn World>,
        begins: Begins,
        known: Option<KnownLog>,
    ) -> Result<Trust, Unopened> {
        let trees = match &self.kind {
            Kind::Embedded(store) => Trees::embedded(store, Arc::clone(&world)),
            Kind::Postgres(store) => Trees::on_postgres(store, Arc::clone(&world)),
        };
        let cannot = |problem: String, may_pass| {
            let what = "the signed log";
            Unopened { what, problem, may_pass, locked: false, is_setting: false }
        };
        let trees = trees.map_err(|error| cannot(error.to_string(), error.may_pass()))?;
        Trust::open(trees, (self.store(), Arc::clone(&self.control)), known, settings, world, begins)
            .map_err(|error| cannot(error.to_string(), error.may_pass()))
    }

    /// Its signed log alone, for a program that copies it; None where there is none, unless it is to be made.
    /// Blocks.
    pub fn store_log(&self, make: bool) -> Result<Option<StoreLog>, Unopened> {
        let log = match &self.kind {
            Kind::Embedded(store) => match store.directory() {
                Some(directory) if make || StoreLog::is_in(directory) => StoreLog::in_directory(directory),
                _ => return Ok(None),
            },
            Kind::Postgres(store) => StoreLog::on_postgres(store),
        };
        log.map(Some).map_err(|error| Unopened {
            what: "the signed log",
            problem: error.to_string(),
            may_pass: error.may_pass(),
            locked: false,
            is_setting: false,
        })
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Which it is, with the version of what it has written, for operators.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Embedded(_) => format!("Embedded store, format “{}”", EmbeddedStore::format()),
            Kind::Postgres(_) => format!("PostgreSQL, schema {} of the events", postgres::schema_version()),
        }
    }

    /// Whether it is in the data directory, where a stop means that everything is synced.
    pub fn is_embedded(&self) -> bool {
        matches!(self.kind, Kind::Embedded(_))
    }

    /// One node at a time does what only one may do; the others wait until it is dropped.
    pub async fn startup_lock(&self) -> Result<Option<postgres::StartupLock>, StoreError> {
        match &self.kind {
            // The directory's lock has seen to it.
            Kind::Embedded(_) => Ok(None),
            Kind::Postgres(store) => store.startup_lock().await.map(Some),
        }
    }

    /// Why nothing is written any more until the process is started again. A database heals without that.
    pub fn failure(&self) -> Option<String> {
        match &self.kind {
            Kind::Embedded(store) => store.failure().or_else(|| self.control.failure()),
            Kind::Postgres(_) => None,
        }
    }

    /// Accepts no events any more, since a copy of the store was promoted; a database has its own fencing.
    /// Whether that is news.
    pub fn supersede(&self, epoch: u64) -> bool {
        match &self.kind {
            Kind::Embedded(store) => store.supersede(epoch),
            Kind::Postgres(_) => false,
        }
    }

    pub fn close(&self) {
        match &self.kind {
            Kind::Embedded(store) => store.close(),
            Kind::Postgres(store) => store.close(),
        }
    }
}
