//! A tree whose chain has other events now, or fewer.
//!
//! Only an operator who accepts a loss makes a chain go on from an earlier event, and the next one says so.
//! The tree is then cut to the last event that both have. Anything else looks forged, or lost without a word:
//! the tree stays as it is, stops, and is named.

use sealog_core::event::StoredEvent;
use sealog_core::id::Hash;
use sealog_core::verify::Item;
use sealog_store::loss::Loss;
use sealog_store::{Range, StoreError};
use sealog_trust::merkle::{CompactRange, Node, Plan};
use sealog_trust::salt::Walk;

use super::build::{READ_BYTES, unread};
use super::edge::{Edge, leaf_of};
use super::tables::Builder;
use super::{Inner, Stopped, Trees};
use crate::log::salt_keys::RootKeys;

impl Trees {
    /// Cuts the tree to the last event that it has in common with the chain, if the event behind that one
    /// accepts the loss of the others; stops it otherwise. The tree is in the database as it is here.
    pub(super) async fn reconcile(
        &self,
        seen: &mut Builder,
        edge: &mut Edge,
        keys: &RootKeys,
        last_seq: u64,
    ) -> Result<(), StoreError> {
        // A leaf covers the hash of its event, and that covers all events before it: up to some event all
        // leaves are the same, and behind it none.
        let (mut same, mut other) = (0, edge.size().min(last_seq) + 1);
        let mut hash = Hash::ZERO;
        while other - same > 1 {
            let seq = same + (other - same) / 2;
            let event = match self.event(edge, seq).await? {
                Ok(event) => event,
                Err(stopped) => {
                    edge.stopped = Some(stopped);
                    return Ok(());
                }
            };
            match self.is_leaf(edge, keys, &event).await? {
                true => (same, hash) = (seq, event.sealed.hash),
                false => other = seq,
            }
        }
        if same == edge.size() {
            edge.stopped = Some(edge.stop("it does not continue the event before it"));
            return Ok(());
        }
        let size = edge.size();
        let differs =
            |what: &str| Stopped { at: same + 1, problem: format!("{what}, without an accepted loss") };
        if same == last_seq {
            let what = format!("it and those up to {size}, which the tree has, are missing");
            edge.stopped = Some(differs(&what));
            return Ok(());
        }
        let accepted = match self.event(edge, same + 1).await? {
            Ok(event) => Loss::accepted_by(&event).is_some(),
            Err(stopped) => {
                edge.stopped = Some(stopped);
                return Ok(());
            }
        };
        if !accepted {
            edge.stopped = Some(differs("it is another event than the one that the tree has"));
            return Ok(());
        }
        let (mut now, mut cut) = (seen.clone(), edge.clone());
        (*seen, *edge) = self
            .on_builder(move |inner| {
                let range = inner.range_at(&cut, same)?;
                inner.cut(&mut now, &mut cut, range, hash)?;
                Ok((now, cut))
            })
            .await?;
        tracing::warn!(chain = %edge.chain, from = size, to = same, "cut the tree of a chain, whose later events are lost; the loss was accepted");
        Ok(())
    }

    /// An event of the chain, or why the tree cannot be compared with it.
    async fn event(&self, edge: &Edge, seq: u64) -> Result<Result<Box<StoredEvent>, Stopped>, StoreError> {
        let range = Range { from: seq, to: seq, bytes_max: READ_BYTES };
        let stopped = |problem: &str| Ok(Err(Stopped { at: seq, problem: problem.to_owned() }));
        match self.store.range(edge.chain, range).await {
            Ok(chunk) => match chunk.items.into_iter().next() {
                Some(Item::Event(event)) => Ok(Ok(event)),
                Some(Item::Damaged { .. }) => stopped("its record is damaged"),
                None => stopped("it is missing"),
            },
            Err(error) => unread(edge, error).map(|stopped| Err(Stopped { at: seq, ..stopped })),
        }
    }

    async fn is_leaf(&self, edge: &Edge, keys: &RootKeys, event: &StoredEvent) -> Result<bool, StoreError> {
        let seq = event.sealed.chain_seq;
        let made = keys.at(seq).and_then(|(keys, _)| leaf_of(event, &mut Walk::new(keys)).ok());
        let (chain, size) = (edge.chain, edge.size());
        let kept = self
            .on_builder(move |inner| {
                inner.nodes(chain, size, &[Node { level: 0, index: seq - 1 }]).map_err(StoreError::from)
            })
            .await?;
        Ok(made.is_some() && made == kept.first().copied())
    }
}

impl Inner {
    /// The right edge of the first leaves of a tree.
    fn range_at(&self, edge: &Edge, size: u64) -> Result<CompactRange, StoreError> {
        let plan = Plan::root(size).map_err(|error| StoreError::Control(error.to_string()))?;
        let peaks = self.nodes(edge.chain, edge.size(), plan.nodes())?;
        CompactRange::from_peaks(size, peaks)
            .ok_or_else(|| StoreError::Control("a tree has other nodes than its size needs".into()))
    }
}
