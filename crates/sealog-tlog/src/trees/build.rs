//! A pass: everything that was durable when it began goes into the trees.
//!
//! Memory is bounded by a piece: so many bytes of events are read at a time, and what has grown is written
//! once it has so many leaves. Each write is one transaction, and the position of the feed moves only in the
//! one that ends its batch: a crash between them repeats announcements, and a tree that has their events has
//! nothing to do.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::verify::Item;
use sealog_store::feed::{BATCH_CHANGES_MAX, Change, Follower, Position, Scope, Start};
use sealog_store::{Range, StoreError};

use super::edge::{Edge, Grown};
use super::tables::{self, Builder, Kept};
use super::{Inner, Pass, Stopped, Trees};
use crate::log::salt_keys::RootKeys;

/// Bytes of events that are read at a time. One event may be larger.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Leaves that are kept in memory before they are written: 1 MiB of hashes.
const LEAVES_MAX: u64 = 32 << 10;
/// Stopped trees that a pass tries again.
const RETRIES: usize = 16;

/// What a pass has in memory.
struct Piece {
    seen: Builder,
    /// Trees that have grown since the last write.
    edges: Vec<Edge>,
    leaves: u64,
    /// Of the whole pass.
    all_leaves: u64,
}

impl Trees {
    /// Takes everything that is durable now into the trees. One pass runs at a time.
    pub async fn pass(&self) -> Result<Pass, StoreError> {
        let _one = self.passing.lock().await;
        let passed = self.pass_now().await;
        match &passed {
            Ok(Pass::Done { at_ms, .. }) => {
                self.figures.lag_events.store(0, Ordering::Relaxed);
                self.figures.caught_up_ms.store(*at_ms, Ordering::Relaxed);
            }
            // Everything is as the other node says, which is not known here.
            Ok(Pass::Elsewhere) => {}
            Err(_) => {
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        passed
    }

    async fn pass_now(&self) -> Result<Pass, StoreError> {
        // Before the barrier: what was acknowledged until then is durable.
        let at_ms = self.inner.world.now_ms();
        let Some(seen) = self.on_builder(Inner::begin).await? else {
            return Ok(Pass::Elsewhere);
        };
        self.count_lag().await?;
        let mut piece = Piece { seen, edges: Vec::new(), leaves: 0, all_leaves: 0 };
        let mut follower = self.follow(&piece.seen.position).await?;
        let mut catch_up = follower.catch_up();
        while let Some(batch) = catch_up.next(BATCH_CHANGES_MAX).await? {
            self.take(&mut piece, batch.changes).await?;
            self.write(&mut piece, Some(batch.position)).await?;
        }
        self.try_again(&mut piece).await?;
        self.write(&mut piece, None).await?;
        let stopped = self
            .on_builder(|inner| {
                inner.end()?;
                inner.database.read(tables::count_stopped)
            })
            .await?;
        self.figures.stopped.store(stopped, Ordering::Relaxed);
        Ok(Pass::Done { at_ms, leaves: piece.all_leaves })
    }

    /// From the position on. Where the store does not know it, after a restore for example, every chain is
    /// announced instead.
    async fn follow(&self, position: &str) -> Result<Follower, StoreError> {
        if position.is_empty() {
            return self.store.follow(Scope::Everything, Start::Beginning).await;
        }
        let followed = match Position::parse(position) {
            Ok(position) => self.store.follow(Scope::Everything, Start::After(position)).await,
            Err(error) => Err(error),
        };
        match followed {
            Err(StoreError::Refused(why)) => {
                tracing::warn!(why, "the trees cannot go on where they were; comparing them with all chains");
                self.store.follow(Scope::Everything, Start::Beginning).await
            }
            followed => followed,
        }
    }

    async fn count_lag(&self) -> Result<(), StoreError> {
        let heads = self.store.heads().await?;
        let live = heads.iter().filter(|(chain, _)| chain.mode == Mode::Live);
        let events: u64 = live.map(|(_, head)| head.chain_seq).sum();
        let leaves = self.on_builder(|inner| inner.database.read(tables::count_leaves)).await?;
        self.figures.lag_events.store(events.saturating_sub(leaves), Ordering::Relaxed);
        Ok(())
    }

    async fn take(&self, piece: &mut Piece, changes: Vec<Change>) -> Result<(), StoreError> {
        let heads = changes.into_iter().filter(|change| change.chain.mode == Mode::Live);
        let heads: Vec<(ChainId, Head)> = heads.map(|change| (change.chain, change.head)).collect();
        let chains: Vec<ChainId> = heads.iter().map(|(chain, _)| *chain).collect();
        let (mut kept, mut keys) = self
            .on_builder(move |inner| {
                let kept = inner.database.read(|db| tables::find(db, &chains))?;
                // A chain has its key before its first leaf is made.
                Ok((kept, inner.salts.of(&chains)?))
            })
            .await?;
        for (chain, head) in heads {
            let edge = kept.remove(&chain).map_or_else(|| Edge::new(chain), Kept::edge);
            if edge.stopped.is_none() && (edge.size(), edge.hash) == (head.chain_seq, head.hash) {
                continue;
            }
            let keys = remove(&mut keys, chain)?;
            self.extend(piece, edge, keys, head).await?;
        }
        Ok(())
    }

    /// Trees that have stopped: their records may have been repaired since, and a chain that is not announced
    /// again would stay behind for ever.
    async fn try_again(&self, piece: &mut Piece) -> Result<(), StoreError> {
        let (stopped, mut keys) = self
            .on_builder(|inner| {
                let stopped = inner.database.read(|db| tables::stopped(db, RETRIES))?;
                let chains: Vec<ChainId> = stopped.iter().map(|kept| kept.chain).collect();
                Ok((stopped, inner.salts.of(&chains)?))
            })
            .await?;
        for kept in stopped {
            let keys = remove(&mut keys, kept.chain)?;
            let head = self.store.head(kept.chain).await?.durable;
            self.extend(piece, kept.edge(), keys, head).await?;
        }
        Ok(())
    }

    /// Takes the events of a chain up to its head into its tree.
    async fn extend(
        &self,
        piece: &mut Piece,
        mut edge: Edge,
        mut keys: RootKeys,
        head: Head,
    ) -> Result<(), StoreError> {
        let before = edge.stopped.take();
        let is_behind =
            head.chain_seq < edge.size() || (head.chain_seq == edge.size() && head.hash != edge.hash);
        if is_behind {
            self.reconcile(&mut piece.seen, &mut edge, &keys, head.chain_seq).await?;
        }
        while edge.stopped.is_none() && edge.size() < head.chain_seq {
            let from = edge.size() + 1;
            let range = Range { from, to: head.chain_seq, bytes_max: READ_BYTES };
            let items = match self.store.range(edge.chain, range).await {
                Ok(chunk) => chunk.items,
                Err(error) => {
                    edge.stopped = Some(unread(&edge, error)?);
                    break;
                }
            };
            if items.is_empty() {
                edge.stopped = Some(edge.stop("it is missing"));
                break;
            }
            let (grown, found) = self.grow(edge, keys, items).await?;
            (edge, keys) = found;
            let leaves = edge.size() + 1 - from;
            piece.leaves += leaves;
            piece.all_leaves += leaves;
            match grown {
                Grown::All => {}
                Grown::Stopped(stopped) => edge.stopped = Some(stopped),
                Grown::Differs => {
                    // What is compared is what the database has.
                    edge = self.write_one(piece, edge).await?;
                    self.reconcile(&mut piece.seen, &mut edge, &keys, head.chain_seq).await?;
                }
            }
            if piece.leaves >= LEAVES_MAX {
                edge = self.write_one(piece, edge).await?;
            }
        }
        if let Some(stopped) = edge.stopped.as_ref().filter(|stopped| Some(*stopped) != before.as_ref()) {
            let Stopped { at, problem } = stopped;
            tracing::error!(chain = %edge.chain, seq = at, problem, "the tree of a chain stopped growing; its events after this one get no proofs");
        }
        piece.edges.push(edge);
        Ok(())
    }

    async fn grow(
        &self,
        mut edge: Edge,
        mut keys: RootKeys,
        items: Vec<Item>,
    ) -> Result<(Grown, (Edge, RootKeys)), StoreError> {
        self.on_builder(move |inner| {
            let grown = edge.grow(&items, &mut keys, &inner.salts)?;
            Ok((grown, (edge, keys)))
        })
        .await
    }

    /// Writes everything, and goes on with this tree.
    async fn write_one(&self, piece: &mut Piece, edge: Edge) -> Result<Edge, StoreError> {
        piece.edges.push(edge);
        let mut written = self.write(piece, None).await?;
        Ok(written.pop().expect("it was the last one"))
    }

    /// Keeps what has grown in one transaction; the trees as they were written.
    async fn write(&self, piece: &mut Piece, position: Option<Position>) -> Result<Vec<Edge>, StoreError> {
        if piece.edges.is_empty() && position.is_none() {
            return Ok(Vec::new());
        }
        let (mut seen, mut edges) = (piece.seen.clone(), std::mem::take(&mut piece.edges));
        let position = position.map(|position| position.to_string());
        let (seen, edges) = self
            .on_builder(move |inner| {
                inner.keep(&mut seen, &mut edges, position)?;
                Ok((seen, edges))
            })
            .await?;
        piece.seen = seen;
        let leaves = std::mem::take(&mut piece.leaves);
        self.figures.leaves.fetch_add(leaves, Ordering::Relaxed);
        let lag = &self.figures.lag_events;
        lag.store(lag.load(Ordering::Relaxed).saturating_sub(leaves), Ordering::Relaxed);
        Ok(edges)
    }
}

/// Whether an error is of this chain alone: the others go on without it.
pub(super) fn unread(edge: &Edge, error: StoreError) -> Result<Stopped, StoreError> {
    match error {
        StoreError::Damaged { chain_seq } => {
            Ok(Stopped { at: chain_seq, problem: "its record is damaged".into() })
        }
        StoreError::Read(cause) => Ok(edge.stop(&format!("it cannot be read: {cause}"))),
        other => Err(other),
    }
}

fn remove(keys: &mut HashMap<ChainId, RootKeys>, chain: ChainId) -> Result<RootKeys, StoreError> {
    keys.remove(&chain).ok_or_else(|| StoreError::Control(format!("chain {chain} has no salt key")))
}
