//! Which node of a Citus cluster has a chain, so that what concerns one chain goes straight there.
//!
//! Any node that has the cluster's metadata answers for any chain, by asking the one that has it. So what is
//! known here may be old or missing: an answer then takes more journeys and is the same. Everything else goes
//! to the coordinator, whichever node the URL names (`docs/adr/0046-any-node-leads-to-the-cluster.md` has the
//! list of locks and where each is); where there is no cluster, everything goes where the URL says.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_postgres::{Error, Row};

use super::pool::{Lease, Pool, Session};
use super::rows::Id;
use super::url::Target;
use crate::error::StoreError;
use crate::sync::lock;

/// How often a node asks where the shards are: for so long it may take a detour after a move.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);
/// For so long a worker is left alone that could never be reached: the network may let servers reach the
/// coordinator only.
const AVOID_FOR: Duration = Duration::from_secs(60);

/// Shards of chains, by the lowest hash of each, and the node that has it.
const SHARDS: &str = "SELECT s.shardminvalue::integer AS first, n.nodename, n.nodeport
    FROM pg_catalog.pg_dist_shard s JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid AND p.shardstate = 1
        JOIN pg_catalog.pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
    WHERE s.logicalrelid = 'sealog.chains'::regclass ORDER BY first";

/// What connections are for. Those of appends are never taken by reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Appends,
    Reads,
}

#[derive(Debug)]
pub(super) struct Routes {
    target: Arc<Target>,
    /// Connections of each side to one node.
    size: usize,
    /// To where the URL leads, and from a worker of a cluster on to the coordinator.
    own: Pools,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    shards: Vec<(i32, Arc<Worker>)>,
    workers: HashMap<(String, u16), Arc<Worker>>,
}

#[derive(Debug)]
struct Pools([Arc<Pool>; 2]);

/// A node that has shards. Each has connections of its own: one that is gone takes none from the others.
#[derive(Debug)]
pub(super) struct Worker {
    name: String,
    target: Arc<Target>,
    pools: Pools,
    reached: AtomicBool,
    /// The connection by which it is asked whether it answers.
    watch: Mutex<Option<Session>>,
    /// Why it did not when it was last asked. Of one that was never reached it is not known whether it is
    /// there.
    trouble: Mutex<Option<String>>,
    avoid_until: Mutex<Option<Instant>>,
}

impl Pools {
    fn to(target: &Arc<Target>, size: usize) -> Pools {
        Pools([0, 1].map(|_| Pool::new(Arc::clone(target), size)))
    }

    fn of(&self, side: Side) -> &Arc<Pool> {
        &self.0[usize::from(side == Side::Reads)]
    }

    fn close(&self) {
        self.0.iter().for_each(|pool| pool.close());
    }
}

impl Worker {
    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// The connection by which it was last asked, or a new one.
    pub(super) async fn session(&self) -> Result<Session, StoreError> {
        let kept = lock(&self.watch).take();
        match kept {
            Some(session) => Ok(session),
            None => Session::connect(&self.target).await,
        }
    }

    /// It has answered on this connection, or why it has not.
    pub(super) fn answered(&self, answered: Result<Session, String>) {
        let trouble = match answered {
            Ok(session) => {
                *lock(&self.watch) = Some(session);
                self.reached.store(true, Ordering::Relaxed);
                None
            }
            Err(_) if !self.is_reached() => return,
            Err(why) => Some(why),
        };
        let (worker, before) = (&self.name, std::mem::replace(&mut *lock(&self.trouble), trouble.clone()));
        match (before, trouble) {
            (None, Some(why)) => {
                tracing::error!(
                    worker,
                    why,
                    "a worker of the cluster does not answer; its chains answer errors until it is back"
                );
            }
            (Some(_), None) => tracing::info!(worker, "the worker answers again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

impl Routes {
    pub(super) fn new(target: Arc<Target>, size: usize) -> Arc<Routes> {
        Arc::new(Routes { own: Pools::to(&target, size), target, size, known: Mutex::default() })
    }

    /// Connections to where the URL leads, for what concerns no single chain.
    pub(super) fn own(&self, side: Side) -> &Arc<Pool> {
        self.own.of(side)
    }

    /// A connection to the node that has this chain.
    pub(super) async fn lease(&self, side: Side, chain: Id, within: Duration) -> Result<Lease, StoreError> {
        let Some(worker) = self.worker(chain) else { return self.own(side).lease(within).await };
        match worker.pools.of(side).lease(within).await {
            Ok(lease) => {
                worker.reached.store(true, Ordering::Relaxed);
                Ok(lease)
            }
            Err(StoreError::Unavailable(why)) if !worker.reached.load(Ordering::Relaxed) => {
                tracing::warn!(%why, "cannot connect to a worker of the cluster; its chains are reached through the coordinator, which costs more");
                *lock(&worker.avoid_until) = Some(Instant::now() + AVOID_FOR);
                self.own(side).lease(within).await
            }
            Err(error) => Err(error),
        }
    }

    /// The node that has a chain, unless it is better asked through another.
    fn worker(&self, chain: Id) -> Option<Arc<Worker>> {
        let known = lock(&self.known);
        if known.shards.is_empty() {
            return None;
        }
        let hash = hash(chain);
        let behind = known.shards.partition_point(|(first, _)| *first <= hash);
        let (_, worker) = known.shards.get(behind.checked_sub(1)?)?;
        let avoided = lock(&worker.avoid_until).is_some_and(|until| Instant::now() < until);
        (!avoided).then(|| Arc::clone(worker))
    }

    /// The lowest hash of the shard of a chain.
    pub(super) fn shard(&self, chain: Id) -> Option<i32> {
        let (known, hash) = (lock(&self.known), hash(chain));
        let behind = known.shards.partition_point(|(first, _)| *first <= hash);
        known.shards.get(behind.checked_sub(1)?).map(|(first, _)| *first)
    }

    /// Asks where the shards are. Connections to nodes that still have some are kept.
    pub(super) async fn ask(&self, session: &Session) -> Result<(), Error> {
        let rows = session.query(SHARDS, &[], &[]).await?;
        let mut known = lock(&self.known);
        let mut workers = HashMap::new();
        let shard = |row: &Row| {
            let (host, port): (String, i32) = (row.get("nodename"), row.get("nodeport"));
            let at = (host, u16::try_from(port).ok()?);
            let worker = known.workers.get(&at).cloned().unwrap_or_else(|| self.connect_to(&at));
            workers.insert(at, Arc::clone(&worker));
            Some((row.get("first"), worker))
        };
        let shards = rows.iter().filter_map(shard).collect();
        *known = Known { shards, workers };
        Ok(())
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        lock(&self.known).workers.values().cloned().collect()
    }

    pub(super) fn any_worker_answers(&self) -> bool {
        self.workers().iter().any(|worker| worker.is_reached() && lock(&worker.trouble).is_none())
    }

    /// Workers that this node has reached, and why one does not answer.
    pub(super) fn states(&self) -> BTreeMap<String, Option<String>> {
        let reached = self.workers().into_iter().filter(|worker| worker.is_reached());
        reached.map(|worker| (worker.name.clone(), lock(&worker.trouble).clone())).collect()
    }

    fn connect_to(&self, (host, port): &(String, u16)) -> Arc<Worker> {
        let target = Arc::new(self.target.worker(host, *port));
        Arc::new(Worker {
            name: format!("{host}:{port}"),
            pools: Pools::to(&target, self.size),
            target,
            reached: AtomicBool::new(false),
            watch: Mutex::default(),
            trouble: Mutex::default(),
            avoid_until: Mutex::default(),
        })
    }

    pub(super) fn close(&self) {
        self.own.close();
        lock(&self.known).workers.values().for_each(|worker| worker.pools.close());
    }
}

/// PostgreSQL's `uuid_hash`, by which Citus places rows: Jenkins's hash of 16 bytes, on a server that counts
/// from the lowest byte.
pub(super) fn hash(id: Id) -> i32 {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| id.0[4 * at + byte]));
    let start = 0x9e37_79b9_u32.wrapping_add(16).wrapping_add(3_923_095);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|at| start.wrapping_add(word(at)));
    let mix = |to: &mut u32, from: u32, by: u32| *to = to.wrapping_sub(from) ^ from.rotate_left(by);
    mix(&mut a, c, 4);
    c = c.wrapping_add(b);
    mix(&mut b, a, 6);
    a = a.wrapping_add(c);
    mix(&mut c, b, 8);
    b = b.wrapping_add(a);
    mix(&mut a, c, 16);
    c = c.wrapping_add(b);
    mix(&mut b, a, 19);
    a = a.wrapping_add(c);
    mix(&mut c, b, 4);
    b = b.wrapping_add(a);
    a = a.wrapping_add(word(3));
    let end = |to: &mut u32, from: u32, by: u32| *to = (*to ^ from).wrapping_sub(from.rotate_left(by));
    end(&mut c, b, 14);
    end(&mut a, c, 11);
    end(&mut b, a, 25);
    end(&mut c, b, 16);
    end(&mut a, c, 4);
    end(&mut b, a, 14);
    end(&mut c, b, 24);
    c.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `SELECT uuid_hash(…)` says.
    #[test]
    fn the_hash_is_that_of_postgresql() {
        let counted = Id(std::array::from_fn(|at| u8::try_from(at).unwrap()));
        for (id, expected) in
            [(Id([0; 16]), 1_353_656_403), (Id([0xff; 16]), -682_383_255), (counted, -1_339_686_672)]
        {
            assert_eq!(hash(id), expected, "{id:?}");
        }
    }
}
