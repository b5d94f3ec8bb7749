//! Idempotency keys, which go with the events of their requests.

use std::collections::VecDeque;

use sealog_core::event::{BATCH_EVENTS_MAX, StoredEvent};
use sealog_core::id::ChainId;
use sealog_store::{KeptKey, Store, StoreError, WantedKeys};

use super::trouble::Trouble;

/// Idempotency keys that are read at a time. A store may look at all keys of a chain for each piece.
const PIECE_KEYS: usize = 20_000;

/// The idempotency keys of a chain, read piece by piece.
pub(super) struct Keys<'a> {
    store: &'a dyn Store,
    /// What it means if the store cannot be read.
    unread: fn(StoreError) -> Trouble,
    chain: ChainId,
    wanted: WantedKeys,
    read: VecDeque<KeptKey>,
    /// The store has no more than were read.
    whole: bool,
}

impl<'a> Keys<'a> {
    pub(super) fn of_source(
        store: &'a dyn Store,
        chain: ChainId,
        from: u64,
        received_after_ms: u64,
    ) -> Keys<'a> {
        let wanted = WantedKeys { from, received_after_ms, limit: PIECE_KEYS };
        Keys { store, unread: Trouble::source, chain, wanted, read: VecDeque::new(), whole: false }
    }

    pub(super) fn of_target(store: &'a dyn Store, chain: ChainId, received_after_ms: u64) -> Keys<'a> {
        Keys { unread: Trouble::target, ..Keys::of_source(store, chain, 1, received_after_ms) }
    }

    async fn peek(&mut self) -> Result<Option<KeptKey>, Trouble> {
        if self.read.is_empty() && !self.whole {
            self.read = self.store.kept_keys(self.chain, self.wanted).await.map_err(self.unread)?.into();
            self.whole = self.read.len() < self.wanted.limit;
            self.wanted.from = self.read.back().map_or(self.wanted.from, |last| last.first_seq + 1);
        }
        Ok(self.read.front().copied())
    }

    pub(super) async fn next(&mut self) -> Result<Option<KeptKey>, Trouble> {
        self.peek().await?;
        Ok(self.read.pop_front())
    }

    /// Takes what is to be imported next off the front: a request with its key, or events before the next one
    /// that has a key. Nothing when there is nothing, or only a part of a request.
    pub(super) async fn cut(
        &mut self,
        events: &mut VecDeque<StoredEvent>,
    ) -> Result<Option<(Vec<StoredEvent>, Option<KeptKey>)>, Trouble> {
        let Some(first) = events.front() else { return Ok(None) };
        let key = self.peek().await?;
        let Some(key) = key else {
            let count = events.len().min(BATCH_EVENTS_MAX);
            return Ok(Some((events.drain(..count).collect(), None)));
        };
        match key.first_seq.checked_sub(first.sealed.chain_seq) {
            None => Err(Trouble::broken(format!(
                "two idempotency keys of the source claim event {}",
                key.first_seq
            ))),
            Some(0) if events.len() < key.events => Ok(None),
            Some(0) => {
                self.read.pop_front();
                Ok(Some((events.drain(..key.events).collect(), Some(key))))
            }
            Some(before) => {
                let before = usize::try_from(before).unwrap_or(usize::MAX);
                let count = events.len().min(BATCH_EVENTS_MAX).min(before);
                Ok(Some((events.drain(..count).collect(), None)))
            }
        }
    }
}
