//! How the PostgreSQL store is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::world::{SystemWorld, World};

/// How the store is set up. The defaults are for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections of this node at most, apart from the monitor's and those of control data. Half are for
    /// appends, half for everything else.
    pub connections: usize,
    /// How long an append waits for another node that has its chain.
    pub lock_timeout: Duration,
    /// After this the server ends a node that has a chain and says nothing. Nobody waits longer for a node
    /// that was stopped.
    pub idle_in_transaction_timeout: Duration,
    pub statement_timeout: Duration,
    pub connect_timeout: Duration,
    /// After this the outcome of an append counts as unknown.
    pub transaction_timeout: Duration,
    /// Most bytes in one transaction.
    pub group_bytes_max: usize,
    /// Most bytes that may wait to be written.
    pub queue_bytes_max: usize,
    /// How long a request may wait in the queue.
    pub queue_deadline: Duration,
    /// How often the version in the shared row is looked at.
    pub poll: Duration,
    /// How often the mark is written while events arrive.
    pub tick: Duration,
    /// How often idempotency records are looked through for those whose time is over.
    pub sweep: Duration,
    /// Most of them that one statement removes.
    pub sweep_rows_max: u32,
    /// Where this node's mark is kept; without it a loss by failover is noticed only while the node runs.
    pub mark_dir: Option<PathBuf>,
    /// Accepts a database that does not keep what it acknowledges.
    pub allow_unsafe_storage: bool,
    pub time: Time,
    /// Refuses events when the clock has leapt and is not set right in ten minutes, instead of believing it.
    pub clock_strict: bool,
    pub world: Arc<dyn World>,
    /// See [`Loops::new`](crate::supervise::Loops::new). Does nothing, but in tests.
    pub at_begin: fn(&'static str),
}

/// Whose clock events are stamped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The database's: there is one of it, however many nodes there are.
    OfDatabase,
    /// For tests.
    OfWorld,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections: 16,
            lock_timeout: Duration::from_secs(8),
            idle_in_transaction_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            transaction_timeout: Duration::from_secs(20),
            group_bytes_max: 4 << 20,
            queue_bytes_max: 64 << 20,
            queue_deadline: Duration::from_secs(10),
            poll: Duration::from_millis(250),
            tick: Duration::from_secs(1),
            sweep: Duration::from_secs(60),
            sweep_rows_max: 1000,
            mark_dir: None,
            allow_unsafe_storage: false,
            time: Time::OfDatabase,
            clock_strict: false,
            world: Arc::new(SystemWorld),
            at_begin: |_| {},
        }
    }
}
