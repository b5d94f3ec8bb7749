//! The feed: which chains have become longer, from any position on. `docs/adr/0015-a-feed-of-positions.md`
//! has the reasons.
//!
//! A follower is told that a chain is durable up to a head, and reads the events from the store. So what it
//! uses is what is on disk, a follower that is slow costs the writer nothing, and many changes of a chain are
//! one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, TenantId};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::error::StoreError;
use crate::sync::lock;
use crate::types::{BoxFuture, IdMap};

/// Most changes in one batch, however many were asked for.
pub const BATCH_CHANGES_MAX: usize = 1000;

/// The chains to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Tenant(TenantId),
    Chain(ChainId),
}

impl Scope {
    pub fn contains(&self, chain: ChainId) -> bool {
        match self {
            Scope::Everything => true,
            Scope::Tenant(tenant_id) => chain.tenant_id == *tenant_id,
            Scope::Chain(of) => chain == *of,
        }
    }

    /// A position of one scope says nothing about another: what it leaves out was never announced.
    fn digest(&self) -> [u8; 8] {
        let mut hasher = Sha256::new();
        hasher.update(b"sealog feed scope");
        match self {
            Scope::Everything => {}
            Scope::Tenant(tenant_id) => hasher.update(tenant_id.0.0),
            Scope::Chain(chain) => {
                hasher.update(chain.tenant_id.0.0);
                hasher.update(chain.project_id.0.0);
                hasher.update(chain.mode.as_str());
            }
        }
        let digest: [u8; 32] = hasher.finalize().into();
        std::array::from_fn(|at| digest[at])
    }
}

/// The start of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Every chain that has events is announced.
    Beginning,
    /// Only events that become durable from now on.
    Now,
    /// Behind what was announced with this position.
    After(Position),
}

/// A chain is durable up to this head. A reader that has read up to the same head has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub chain: ChainId,
    pub head: Head,
}

/// Changes, and where to go on once they are dealt with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// At least one change; each chain once.
    pub changes: Vec<Change>,
    pub position: Position,
}

/// A reader of the feed, made by [`crate::Store::follow`]. It keeps nothing of the store open and may outlive
/// it.
///
/// **What is announced.** Each chain in the scope whose head differs from the one that was announced before
/// the position. Only durable, readable events count: `range` and `get` return every event up to the head.
/// The next call announces each chain that has changed since, once for any number of changes. Changes of
/// different chains have no order.
///
/// **What may come twice.** After a restart of the store, and for a position in the middle of many changes, a
/// head may be announced again. No change is lost, not even after a crash at any moment or a failover.
///
/// **After an accepted loss** the head is the acceptance or a later event. It may be below, at or above the
/// previously announced head, so a reader keeps the whole head of what it has read. If it gets a lower
/// `chain_seq`, or if the next event's `prev_hash` differs from its own hash, events that it has read are
/// lost, and `sealog.loss_accepted` in the chain names them.
#[derive(Debug)]
pub struct Follower {
    source: Box<dyn Source>,
}

impl Follower {
    pub(crate) fn new(source: impl Source + 'static) -> Follower {
        Follower { source: Box::new(source) }
    }

    /// Returns the next changes, at least one and at most `limit`, and waits while there are none. It is
    /// cancel safe: a caller that drops the future and calls again misses nothing. Returns
    /// [`StoreError::Closing`] when the store closes. After another error, call it again.
    pub async fn next(&mut self, limit: usize) -> Result<Batch, StoreError> {
        let changes = self.source.next(limit.clamp(1, BATCH_CHANGES_MAX)).await?;
        Ok(Batch { changes, position: self.source.position() })
    }

    /// Begins to catch up with what is durable now: a barrier. [`CatchUp::next`] announces it and then says
    /// that there is no more, however much becomes durable meanwhile. What follows comes with
    /// [`Follower::next`] or the next barrier.
    pub fn catch_up(&mut self) -> CatchUp<'_> {
        self.source.set_barrier();
        CatchUp { follower: self }
    }

    /// The position of this follower: after the last batch.
    pub fn position(&self) -> Position {
        self.source.position()
    }
}

/// A follower on its way to a barrier ([`Follower::catch_up`]).
#[derive(Debug)]
pub struct CatchUp<'f> {
    follower: &'f mut Follower,
}

impl CatchUp<'_> {
    /// Returns the next changes, as [`Follower::next`] does and with heads as they are by now. Never waits
    /// for events: nothing means that every event that was durable at the barrier has been announced, by
    /// this follower or before its position.
    pub async fn next(&mut self, limit: usize) -> Result<Option<Batch>, StoreError> {
        let source = &mut self.follower.source;
        let changes = source.next_before_barrier(limit.clamp(1, BATCH_CHANGES_MAX)).await?;
        Ok(changes.map(|changes| Batch { changes, position: source.position() }))
    }
}

/// What each store does for its followers. A `next` that is dropped has changed nothing.
pub(crate) trait Source: Send + fmt::Debug {
    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Change>, StoreError>>;
    fn set_barrier(&mut self);
    fn next_before_barrier(&mut self, limit: usize)
    -> BoxFuture<'_, Result<Option<Vec<Change>>, StoreError>>;
    fn position(&self) -> Position;
}

/// The position of a follower, valid for the store that made it and for the same scope. Its content is
/// private to the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Position(Box<[u8]>);

const POSITION_VERSION: u8 = 1;

/// Whose positions have which inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reference = 0,
    Embedded = 1,
    Postgres = 2,
}

impl Position {
    /// Version, kind, scope, what the store has put there, checksum.
    pub(crate) fn new(kind: Kind, scope: &Scope, content: &[u8]) -> Position {
        let mut bytes = vec![POSITION_VERSION, kind as u8];
        bytes.extend_from_slice(&scope.digest());
        bytes.extend_from_slice(content);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        Position(bytes.into())
    }

    /// What the store has put there.
    pub(crate) fn content(&self, kind: Kind, scope: &Scope) -> Result<&[u8], StoreError> {
        let content = &self.0[2..self.0.len() - 4];
        let (of_scope, content) = content.split_at_checked(8).ok_or_else(malformed)?;
        if self.0[1] != kind as u8 {
            return Err(foreign());
        }
        if of_scope != scope.digest() {
            return Err(StoreError::Refused("the feed position belongs to another scope".into()));
        }
        Ok(content)
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Position, StoreError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        let bytes = bytes.filter(|bytes| bytes.len() >= 6).ok_or_else(malformed)?;
        let (content, checksum) = bytes.split_at(bytes.len() - 4);
        if checksum != crc32c::crc32c(content).to_le_bytes() {
            return Err(malformed());
        }
        if content[0] != POSITION_VERSION {
            let version = content[0];
            return Err(StoreError::Refused(format!("the feed position has the unknown version {version}")));
        }
        Ok(Position(bytes.into()))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({self})")
    }
}

pub(crate) fn malformed() -> StoreError {
    StoreError::Refused("not a valid feed position: a part of it is missing or changed".into())
}

pub(crate) fn foreign() -> StoreError {
    StoreError::Refused("the feed position belongs to another store".into())
}

/// The waiting followers and their chains, and the state that a store keeps while it has followers.
#[derive(Debug, Default)]
pub(crate) struct Hub<T> {
    /// Number of registered followers. Read without the lock, so a store without followers pays for one load
    /// only.
    followers: AtomicUsize,
    registry: Mutex<Registry<T>>,
}

#[derive(Debug, Default)]
pub(crate) struct Registry<T> {
    everything: Vec<Arc<Notify>>,
    tenants: IdMap<TenantId, Vec<Arc<Notify>>>,
    chains: IdMap<ChainId, Vec<Arc<Notify>>>,
    count: usize,
    closed: bool,
    /// Emptied when the last follower goes.
    pub kept: T,
}

impl<T> Registry<T> {
    pub(crate) fn is_followed(&self) -> bool {
        self.count > 0
    }

    /// Wakes those who follow one of these chains. Frames of one chain often follow each other, and then it
    /// is looked up once.
    pub(crate) fn wake(&self, chains: impl Iterator<Item = ChainId>) {
        let mut last = None;
        for chain in chains {
            if last.replace(chain) == Some(chain) {
                continue;
            }
            let of_tenant = self.tenants.get(&chain.tenant_id);
            let of_chain = self.chains.get(&chain);
            for waiting in of_tenant.into_iter().chain(of_chain).flatten() {
                waiting.notify_one();
            }
        }
        if last.is_some() {
            self.everything.iter().for_each(|waiting| waiting.notify_one());
        }
    }

    pub(crate) fn wake_all(&self) {
        let scoped = self.tenants.values().chain(self.chains.values()).flatten();
        self.everything.iter().chain(scoped).for_each(|waiting| waiting.notify_one());
    }

    fn list(&mut self, scope: Scope) -> &mut Vec<Arc<Notify>> {
        match scope {
            Scope::Everything => &mut self.everything,
            Scope::Tenant(tenant_id) => self.tenants.entry(tenant_id).or_default(),
            Scope::Chain(chain) => self.chains.entry(chain).or_default(),
        }
    }
}

impl<T: Default> Hub<T> {
    pub(crate) fn is_followed(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry<T>> {
        lock(&self.registry)
    }

    /// Followers that wait hear that the store closes; so do those that will.
    pub(crate) fn close(&self) {
        let mut registry = self.registry();
        registry.closed = true;
        registry.wake_all();
    }

    pub(crate) fn register(self: &Arc<Hub<T>>, scope: Scope) -> Registration<T> {
        let wake = Arc::new(Notify::new());
        let mut registry = self.registry();
        registry.list(scope).push(Arc::clone(&wake));
        registry.count += 1;
        self.followers.store(registry.count, Ordering::SeqCst);
        drop(registry);
        Registration { hub: Arc::clone(self), scope, wake }
    }
}

/// A follower's place in the [`Hub`].
#[derive(Debug)]
pub(crate) struct Registration<T: Default> {
    pub hub: Arc<Hub<T>>,
    scope: Scope,
    wake: Arc<Notify>,
}

impl<T: Default> Registration<T> {
    /// Until one of the chains has changed since the last call. What changed before this call, and since the
    /// follower last looked, ends it at once.
    pub(crate) async fn wait(&self) -> Result<(), StoreError> {
        if self.hub.registry().closed {
            return Err(StoreError::Closing);
        }
        self.wake.notified().await;
        Ok(())
    }
}

impl<T: Default> Drop for Registration<T> {
    fn drop(&mut self) {
        let mut registry = self.hub.registry();
        let list = registry.list(self.scope);
        list.retain(|wake| !Arc::ptr_eq(wake, &self.wake));
        if list.is_empty() {
            match self.scope {
                Scope::Everything => {}
                Scope::Tenant(tenant_id) => drop(registry.tenants.remove(&tenant_id)),
                Scope::Chain(chain) => drop(registry.chains.remove(&chain)),
            }
        }
        registry.count -= 1;
        if registry.count == 0 {
            registry.kept = T::default();
        }
        self.hub.followers.store(registry.count, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_any_change_of_its_text_is_noticed() {
        let position = Position::new(Kind::Embedded, &Scope::Everything, b"content");
        let text = position.to_string();
        assert_eq!(Position::parse(&text), Ok(position.clone()));
        assert_eq!(position.content(Kind::Embedded, &Scope::Everything), Ok(b"content".as_slice()));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(matches!(Position::parse(&changed), Err(StoreError::Refused(_))), "{changed}");
            assert_eq!(Position::parse(&text[..at]), Err(malformed()));
        }
        for garbage in ["", "0", "zz", "éé", &text.to_uppercase(), &format!("{text} ")] {
            assert_eq!(Position::parse(garbage), Err(malformed()), "{garbage}");
        }
        let mut later = position.0[..position.0.len() - 4].to_vec();
        later[0] = 2;
        let checksum = crc32c::crc32c(&later);
        later.extend_from_slice(&checksum.to_le_bytes());
        let later = Position(later.into()).to_string();
        let Err(StoreError::Refused(why)) = Position::parse(&later) else { panic!("it was read") };
        assert!(why.contains("version 2"), "{why}");
    }

    #[test]
    fn who_is_gone_is_woken_no_more_and_the_last_one_leaves_nothing_behind() {
        let hub: Arc<Hub<Vec<u8>>> = Arc::default();
        let one = hub.register(Scope::Everything);
        let two = hub.register(Scope::Everything);
        hub.registry().kept.push(1);
        drop(one);
        let left = |hub: &Hub<Vec<u8>>| {
            let registry = hub.registry();
            (hub.is_followed(), registry.everything.len(), registry.kept.len())
        };
        assert_eq!(left(&hub), (true, 1, 1));
        drop(two);
        assert_eq!(left(&hub), (false, 0, 0));
    }
}
