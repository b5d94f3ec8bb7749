//! What the parts of an open PostgreSQL store share: connections, the writer, what is known of the database.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sealog_core::id::{ChainId, Hash};
use tokio::sync::watch;
use tokio_postgres::Error;

use super::error::explain;
use super::event_clock::{ClockBehind, EventClock};
use super::hub::Feed;
use super::loss::Findings;
use super::mark::MarkFile;
use super::options::Options;
use super::pool::{Lease, Pool, Session};
use super::routes::{Routes, Side};
use super::rows::Id;
use super::url::Target;
use super::writer::Writer;
use crate::derived::DerivedFaults;
use crate::error::StoreError;
use crate::supervise::Loops;
use crate::sync::lock;
use crate::types::BoxFuture;

/// What the monitor has seen of the version in the shared row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedVersion {
    pub version: u64,
    /// Counts the connections of the monitor. Behind a new one there may be another server, which never had
    /// some of the changes before it and may have others under the same version.
    pub connection: u64,
}

/// What the last look at the database has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// The shared row, and with it control data, does not answer. Events can be stored.
    ControlAway(String),
    Down(StoreError),
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) target: Arc<Target>,
    pub(super) routes: Arc<Routes>,
    pub(super) writer: Arc<Writer>,
    pub(super) mark: Option<MarkFile>,
    pub(super) findings: Arc<Findings>,
    pub(super) derived: DerivedFaults,
    pub(super) clock: Arc<EventClock>,
    pub(super) clock_behind: Option<ClockBehind>,
    /// Whether the tables of events are spread over a Citus cluster.
    pub(super) distributed: bool,
    pub(super) store_id: [u8; 16],
    pub(super) feed: Arc<Feed>,
    pub(super) in_flight: Arc<Mutex<HashSet<(ChainId, Hash)>>>,
    /// Connections that others use.
    pub(super) lent: Mutex<Vec<Arc<Pool>>>,
    /// The version in the shared row, as it was last seen: it grows with every change that all nodes have to
    /// know of.
    pub(super) versions: watch::Sender<SharedVersion>,
    /// What this node's boot clock showed when it last asked for that version and heard of it.
    pub(super) heard_boot_ms: AtomicU64,
    pub(super) health: Mutex<Health>,
    /// As they were last seen.
    pub(super) storage_bytes: AtomicU64,
    pub(super) loops: Arc<Loops>,
}

impl Inner {
    /// Why control data cannot be asked for, where that is known without asking.
    pub(super) fn control_away(&self) -> Option<String> {
        match &*lock(&self.health) {
            Health::ControlAway(why) => Some(why.clone()),
            Health::Up | Health::Down(_) => None,
        }
    }

    /// For how long nothing was heard of the shared row.
    pub(super) fn silent_ms(&self) -> u64 {
        self.options.world.boot_ms().saturating_sub(self.heard_boot_ms.load(Ordering::SeqCst))
    }

    /// A read on a connection of its own.
    pub(super) async fn read<T>(
        &self,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, StoreError> {
        // On a cluster that is where the shared row is.
        if self.distributed
            && let Some(why) = self.control_away()
        {
            return Err(StoreError::ControlUnavailable(why));
        }
        let lease = self.routes.own(Side::Reads).lease(self.options.queue_deadline).await?;
        self.read_by(lease, act).await
    }

    /// A read of one chain, on a connection of its own to where that is.
    pub(super) async fn read_of<T>(
        &self,
        chain: Id,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let lease = self.lease_of(chain).await?;
        self.read_by(lease, act).await
    }

    /// A connection to where a chain is, for anything but appends.
    pub(super) async fn lease_of(&self, chain: Id) -> Result<Lease, StoreError> {
        self.routes.lease(Side::Reads, chain, self.options.queue_deadline).await
    }

    async fn read_by<T>(
        &self,
        lease: Lease,
        act: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, StoreError> {
        let session = &lease.session;
        let done = tokio::time::timeout(self.options.transaction_timeout, async {
            // Behind a pooler a statement has timeouts only inside of a transaction that sets them.
            if !self.target.pooled {
                return act(session).await;
            }
            session.client.batch_execute(&self.target.begin(&self.options)).await?;
            let value = act(session).await?;
            session.client.batch_execute("COMMIT").await?;
            Ok(value)
        })
        .await;
        match done {
            Ok(Ok(value)) => {
                lease.give_back();
                Ok(value)
            }
            Ok(Err(error)) => Err(StoreError::Read(explain(&error))),
            Err(_) => Err(StoreError::Read("the database did not respond in time".into())),
        }
    }
}
