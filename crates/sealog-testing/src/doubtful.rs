//! A store whose events were changed behind its back, or that takes no records: what it is told, over any
//! other store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, TenantId, Ulid};
use sealog_core::time::Month;
use sealog_core::verify::Item;
use sealog_store::counts::{Counts, Days};
use sealog_store::feed::{Follower, Scope, Start};
use sealog_store::loss::Loss;
use sealog_store::pool::FairPool;
use sealog_store::stats::StoreStats;
use sealog_store::{
    Append, Appended, BoxFuture, ChainHead, Chunk, DerivedStep, DropPlan, DropStep, IdempotencyKey, KeptKey,
    List, Range, Receipt, Reserved, Store, StoreError, WantedKeys,
};

/// What stands where an event was.
#[derive(Clone, Copy, Debug)]
pub enum Doubt {
    Changed(fn(&mut StoredEvent)),
    Missing,
    Damaged,
}

pub struct DoubtfulStore {
    inner: Arc<dyn Store>,
    doubts: Mutex<Vec<(u64, Doubt)>>,
    system_writes_fail: AtomicBool,
    reads_fail: AtomicBool,
    /// Events that ranges and lists have returned.
    read: AtomicU64,
    /// Questions for counts.
    counts_asked: AtomicU64,
    /// Questions for the head of one chain.
    heads_asked: AtomicU64,
    /// Comes when the next list has been read, before whoever asked for it goes on.
    behind_list: Mutex<Option<Append>>,
}

impl std::fmt::Debug for DoubtfulStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DoubtfulStore").field("doubts", &self.doubts).finish_non_exhaustive()
    }
}

impl DoubtfulStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<DoubtfulStore> {
        Arc::new(DoubtfulStore {
            inner,
            doubts: Mutex::default(),
            system_writes_fail: AtomicBool::new(false),
            reads_fail: AtomicBool::new(false),
            read: AtomicU64::new(0),
            counts_asked: AtomicU64::new(0),
            heads_asked: AtomicU64::new(0),
            behind_list: Mutex::default(),
        })
    }

    /// In every chain but system chains, the event with this `chain_seq`.
    pub fn doubt(&self, chain_seq: u64, doubt: Doubt) {
        self.doubts.lock().unwrap().push((chain_seq, doubt));
    }

    pub fn trust(&self) {
        self.doubts.lock().unwrap().clear();
    }

    pub fn fail_system_writes(&self, fail: bool) {
        self.system_writes_fail.store(fail, Ordering::SeqCst);
    }

    pub fn fail_reads(&self, fail: bool) {
        self.reads_fail.store(fail, Ordering::SeqCst);
    }

    pub fn events_read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    pub fn heads_asked(&self) -> u64 {
        self.heads_asked.load(Ordering::SeqCst)
    }

    pub fn counts_asked(&self) -> u64 {
        self.counts_asked.load(Ordering::SeqCst)
    }

    /// Appends this when the next list has been read: an event that comes in the middle of a request.
    pub fn append_behind_list(&self, append: Append) {
        *self.behind_list.lock().unwrap() = Some(append);
    }

    fn item(&self, chain: ChainId, item: Item) -> Option<Item> {
        let chain_seq = item.chain_seq();
        let doubts = self.doubts.lock().unwrap();
        let doubt = doubts.iter().find(|(at, _)| *at == chain_seq && !chain.is_system());
        match (doubt, item) {
            (None, item) => Some(item),
            (Some((_, Doubt::Changed(change))), Item::Event(mut event)) => {
                change(&mut event);
                Some(Item::Event(event))
            }
            (Some((_, Doubt::Missing)), _) => None,
            (Some(_), _) => Some(Item::Damaged { chain_seq }),
        }
    }

    fn event(&self, chain: ChainId, event: StoredEvent) -> Option<StoredEvent> {
        match self.item(chain, Item::Event(Box::new(event)))? {
            Item::Event(event) => Some(*event),
            Item::Damaged { .. } => None,
        }
    }

    fn readable(&self, chain: ChainId) -> Result<(), StoreError> {
        if self.reads_fail.load(Ordering::SeqCst) && !chain.is_system() {
            return Err(StoreError::Read("asked for by a test".into()));
        }
        Ok(())
    }
}

impl Store for DoubtfulStore {
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        self.inner.reserve(chain, key)
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        if append.chain.is_system() && self.system_writes_fail.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::NoRoom) });
        }
        self.inner.append(append)
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        Box::pin(async move {
            self.readable(chain)?;
            Ok(self.inner.get(chain, log_id).await?.and_then(|event| self.event(chain, event)))
        })
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        Box::pin(async move {
            self.readable(chain)?;
            let Chunk { items, resume } = self.inner.list(chain, list).await?;
            self.read.fetch_add(items.len() as u64, Ordering::SeqCst);
            let append = self.behind_list.lock().unwrap().take();
            if let Some(append) = append {
                self.inner.append(append).await?;
            }
            let items = items.into_iter().filter_map(|event| self.event(chain, event)).collect();
            Ok(Chunk { items, resume })
        })
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        Box::pin(async move {
            self.readable(chain)?;
            let mut range = range;
            loop {
                let Chunk { items, resume } = self.inner.range(chain, range).await?;
                let items: Vec<Item> = items.into_iter().filter_map(|item| self.item(chain, item)).collect();
                self.read.fetch_add(items.len() as u64, Ordering::SeqCst);
                // A range returns something as long as there is anything.
                match resume {
                    Some(from) if items.is_empty() => range.from = from,
                    resume => return Ok(Chunk { items, resume }),
                }
            }
        })
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        self.heads_asked.fetch_add(1, Ordering::SeqCst);
        self.inner.head(chain)
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        self.inner.heads()
    }

    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>> {
        self.inner.follow(scope, start)
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.usage(tenant_id, month)
    }

    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>> {
        self.counts_asked.fetch_add(1, Ordering::SeqCst);
        self.inner.counts(chain, days)
    }

    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>> {
        self.inner.import(chain, events, key)
    }

    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>> {
        self.inner.kept_keys(chain, wanted)
    }

    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        self.inner.plan_drop(before_ms)
    }

    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        self.inner.drop_planned(plan)
    }

    fn check_derived(&self, position: Vec<u8>, heal: bool) -> BoxFuture<'_, Result<DerivedStep, StoreError>> {
        self.inner.check_derived(position, heal)
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        self.inner.stats()
    }

    fn accept_loss(&self, chain: ChainId, reason: String) -> BoxFuture<'_, Result<Receipt, StoreError>> {
        self.inner.accept_loss(chain, reason)
    }

    fn record_loss(&self, chain: ChainId, known: Head) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.record_loss(chain, known)
    }

    fn set_rolled_back(&self, why: Option<String>) {
        self.inner.set_rolled_back(why);
    }

    fn losses(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Loss)>, StoreError>> {
        self.inner.losses()
    }

    fn faults(&self) -> Vec<String> {
        self.inner.faults()
    }

    fn pool(&self) -> &FairPool {
        self.inner.pool()
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready()
    }
}
