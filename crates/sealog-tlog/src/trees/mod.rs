//! The Merkle tree of each chain: built from the feed, kept as tiles, rebuilt from the store.
//!
//! A pass ([`Trees::pass`]) takes everything that was durable when it began into the trees. It reads events
//! back from the store, which checks their checksums, never goes beyond what is durable, and takes part in no
//! append. Live chains and system chains have a tree. Test chains have none: their events are dropped.
//!
//! All of it is derived, but for the root keys of the salts ([`crate::log::salt_keys`]): delete the database,
//! and the next pass builds the same trees. `docs/adr/0036-trees-behind-the-commit-path.md` has the reasons.

mod build;
mod edge;
mod read;
mod reconcile;
mod schema;
mod tables;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealog_control::OpenError;
use sealog_control::database::Database;
use sealog_core::id::{ChainId, Hash, Uuid};
use sealog_store::embedded::EmbeddedStore;
use sealog_store::pool::{Payer, ThreadPool};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use sealog_trust::leaf::Tag;
use sealog_trust::merkle::ProofError;

use crate::log::salt_keys::SaltRoots;
use crate::log::{LOG, StoreLog};
pub use schema::TREES;

/// The folder of a data directory with both databases.
pub const FOLDER: &str = "trust";

/// The builder steps back for everything else.
const NICENESS: i32 = 10;
/// Reads for proofs that may wait for a thread.
const WAITING_MAX: usize = 1000;
/// What an operation counts in the queue of its threads. They are all small.
const COST: usize = 4 << 10;
/// Most connections to a database server: one for the builder, one for reads.
const CONNECTIONS: usize = 2;

/// The trees of a store. Closes when dropped, after what is under way.
pub struct Trees {
    store: Arc<dyn Store>,
    inner: Arc<Inner>,
    /// One pass at a time.
    passing: tokio::sync::Mutex<()>,
    builder: ThreadPool,
    reader: ThreadPool,
    figures: Figures,
}

/// What work on a thread uses.
#[derive(Debug)]
struct Inner {
    database: Arc<Database>,
    salts: SaltRoots,
    world: Arc<dyn World>,
    /// This process, for the others that use the same database.
    node: Uuid,
    /// Whether other processes may build, too.
    shared: bool,
}

/// A tree as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeHead {
    pub chain: ChainId,
    pub tag: Tag,
    /// Leaves: the `chain_seq` of the last event in it.
    pub size: u64,
    pub root: Hash,
    /// The `hash` of that event.
    pub hash: Hash,
    /// The transaction that changed it last.
    pub revision: u64,
    pub cut: Option<Cut>,
    pub stopped: Option<Stopped>,
}

/// After an accepted loss, the tree goes on from the last event that it has in common with the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Leaves that it kept.
    pub to: u64,
    /// The transaction that cut it: what was published before this revision may be gone.
    pub revision: u64,
}

/// Why a tree does not grow any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The event that it cannot take.
    pub at: u64,
    /// In words for the operator.
    pub problem: String,
}

/// Where a reader of changed heads has got to. A cursor of trees that were made anew since is behind
/// everything: all heads come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub life: Uuid,
    pub revision: u64,
    pub number: u64,
}

/// A page of heads that have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedHeads {
    pub heads: Vec<TreeHead>,
    /// Behind this page.
    pub next: Cursor,
    /// There may be more now.
    pub more: bool,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Everything that was durable at this time is in the trees, but for those that stopped.
    Done { at_ms: u64, leaves: u64 },
    /// Another node builds.
    Elsewhere,
}

/// Why something was not read from a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// The tree has fewer leaves yet.
    NotYet {
        size: u64,
    },
    /// No tree has such a proof, tile or leaf.
    Invalid(ProofError),
    /// A tile that the tree should have is missing or too short.
    Damaged {
        level: u8,
        index: u64,
    },
    Store(StoreError),
}

impl From<StoreError> for TreeError {
    fn from(error: StoreError) -> TreeError {
        TreeError::Store(error)
    }
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> StoreError {
        match error {
            TreeError::Store(error) => error,
            other => StoreError::Control(other.to_string()),
        }
    }
}

/// Figures of the builder, for `/metrics`.
#[derive(Debug, Default)]
struct Figures {
    /// Of the store's events, not yet in a tree when that was last counted.
    lag_events: AtomicU64,
    /// Everything that was durable then is in the trees; 0 before the first pass has ended.
    caught_up_ms: AtomicU64,
    stopped: AtomicU64,
    leaves: AtomicU64,
    failures: AtomicU64,
}

/// The builder at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    pub events: u64,
    /// Since the time that the trees are complete up to; nothing before the first pass of this process.
    pub ms: Option<u64>,
    /// Trees that do not grow any more.
    pub stopped: u64,
    /// Leaves that this process has made.
    pub leaves: u64,
    /// Passes that failed.
    pub failures: u64,
}

impl Trees {
    /// Forgotten when it is dropped: for tests, and for a store on a disk that is not of this machine.
    pub fn in_memory(store: Arc<dyn Store>, world: Arc<dyn World>) -> Trees {
        let database = |schema| Arc::new(Database::in_memory(schema).expect("memory has no earlier version"));
        Trees::over(store, database(&TREES), database(&LOG), world, false)
    }

    /// In the folder `trust` of the directory of an open store.
    pub fn embedded(store: &Arc<EmbeddedStore>, world: Arc<dyn World>) -> Result<Trees, OpenError> {
        let Some(directory) = store.directory() else {
            return Ok(Trees::in_memory(Arc::clone(store) as _, world));
        };
        let log = Arc::new(Database::in_folder(directory, FOLDER, &LOG)?);
        let trees = Arc::new(Database::in_folder(directory, FOLDER, &TREES)?);
        Ok(Trees::over(Arc::clone(store) as _, trees, log, world, false))
    }

    /// In the database of an open store.
    pub fn on_postgres(store: &Arc<PostgresStore>, world: Arc<dyn World>) -> Result<Trees, OpenError> {
        let sessions = store.sessions(CONNECTIONS);
        let log = Arc::new(Database::on_postgres(sessions.clone(), &LOG)?);
        let trees = Arc::new(Database::on_postgres(sessions, &TREES)?);
        Ok(Trees::over(Arc::clone(store) as _, trees, log, world, true))
    }

    /// Over databases with [`TREES`] and [`LOG`]; `shared` if other processes use them, too.
    pub fn over(
        store: Arc<dyn Store>,
        database: Arc<Database>,
        log: Arc<Database>,
        world: Arc<dyn World>,
        shared: bool,
    ) -> Trees {
        let mut node = [0; 16];
        world.fill_random(&mut node);
        let salts = SaltRoots::new(log, Arc::clone(&world));
        Trees {
            store,
            inner: Arc::new(Inner { database, salts, world, node: Uuid(node), shared }),
            passing: tokio::sync::Mutex::default(),
            builder: ThreadPool::start("sealog-trust", 1, Some(NICENESS)),
            reader: ThreadPool::start("sealog-proofs", 1, None),
            figures: Figures::default(),
        }
    }

    /// The store log, in the same database as the root keys of the salts.
    pub fn store_log(&self) -> StoreLog {
        StoreLog::over(Arc::clone(self.inner.salts.database()))
    }

    /// The root keys of the salts.
    pub fn salts(&self) -> &SaltRoots {
        &self.inner.salts
    }

    pub fn lag(&self) -> Lag {
        let Figures { lag_events, caught_up_ms, stopped, leaves, failures } = &self.figures;
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let caught_up = Some(read(caught_up_ms)).filter(|at| *at > 0);
        Lag {
            events: read(lag_events),
            ms: caught_up.map(|at| self.inner.world.now_ms().saturating_sub(at)),
            stopped: read(stopped),
            leaves: read(leaves),
            failures: read(failures),
        }
    }

    async fn on_builder<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        let answer = self.builder.run(Payer::Operator, COST, move || act(&inner));
        // The thread ends with this, so without an answer the work has panicked. The supervisor of the loop
        // counts that and starts it again.
        answer.await.expect("work on the trees panicked")
    }

    async fn on_reader<T: Send + 'static>(
        &self,
        payer: Payer,
        act: impl FnOnce(&Inner) -> Result<T, TreeError> + Send + 'static,
    ) -> Result<T, TreeError> {
        let inner = Arc::clone(&self.inner);
        let answer = self.reader.run_below(WAITING_MAX, payer, COST, move || act(&inner));
        let Some(answer) = answer else {
            return Err(TreeError::Store(StoreError::Unavailable("the queue of proofs is full".into())));
        };
        let panicked = |_| Err(TreeError::Store(StoreError::Read("a read of a tree panicked".into())));
        answer.await.unwrap_or_else(panicked)
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trees").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        // The next process that opens the same directory finds it closed.
        self.builder.stop_and_wait();
        self.reader.stop_and_wait();
    }
}
