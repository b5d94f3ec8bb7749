//! What all store tests share: a clock that stands still, drafts, and short names for the operations.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use sealog_core::event::{Draft, StoredEvent, parse_single};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::query::{Filter, SeqRange};
use sealog_core::verify::{Item, Verdict};
use sealog_store::embedded::Options;
use sealog_store::postgres::Time;
use sealog_store::world::World;
use sealog_store::{Append, Appended, IdempotencyKey, List, Range, Receipt, Reserved, Store, StoreError};

pub mod postgres;
pub mod sim;

pub const MORNING_MS: u64 = 1_794_700_800_000;

/// A clock that moves when it is told to, and randomness that is always the same.
#[derive(Debug)]
pub struct StillWorld {
    now_ms: AtomicU64,
    /// By how much the wall clock was set, without any time going by.
    leapt_ms: AtomicI64,
}

impl StillWorld {
    pub fn new() -> Arc<StillWorld> {
        Arc::new(StillWorld { now_ms: AtomicU64::new(MORNING_MS), leapt_ms: AtomicI64::new(0) })
    }

    /// Another one whose clock stands where this one's does.
    pub fn new_at(world: &StillWorld) -> Arc<StillWorld> {
        let other = StillWorld::new();
        other.set(world.now_ms());
        other
    }

    pub fn set(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    pub fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock; the boot clock goes on as before.
    pub fn leap(&self, ms: i64) {
        self.leapt_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl World for StillWorld {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst).saturating_add_signed(self.leapt_ms.load(Ordering::SeqCst))
    }

    fn boot_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// Runs a future to its end on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    wait_until(future, None).unwrap()
}

/// Runs a future on this thread, to its end or to a moment.
pub fn wait_until<T>(future: impl Future<Output = T>, until: Option<Instant>) -> Option<T> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return None,
                Some(left) => std::thread::park_timeout(left),
            },
        }
    }
}

/// Waits until something has happened that must happen soon.
#[track_caller]
pub fn eventually(what: &str, happened: impl Fn() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A small pseudo-random generator: tests print its seed, so that a failure can be repeated.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// A seed from the environment, to repeat a failure, or a new one; printed either way.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("SEALOG_SEED") {
        Ok(text) => text.parse().expect("SEALOG_SEED is a number"),
        Err(_) => {
            let mut bytes = [0; 8];
            sealog_store::world::SystemWorld.fill_random(&mut bytes);
            u64::from_le_bytes(bytes) >> 1
        }
    };
    println!("{test}: seed {seed} (repeat with SEALOG_SEED={seed})");
    seed
}

pub fn chain(tenant: u8, project: u8, mode: Mode) -> ChainId {
    ChainId { tenant_id: TenantId(Uuid([tenant; 16])), project_id: ProjectId(Uuid([project; 16])), mode }
}

pub fn live() -> ChainId {
    chain(1, 1, Mode::Live)
}

/// The chain that is reserved for what is changed of a tenant.
pub fn system_chain(tenant: u8) -> ChainId {
    ChainId { project_id: ProjectId::system_from_random([9; 16]), ..chain(tenant, 9, Mode::Live) }
}

pub fn draft(body: &str) -> Draft {
    parse_single(body.as_bytes()).unwrap().unwrap()
}

pub fn login(actor: &str) -> Draft {
    draft(&format!(
        r#"{{"action":"user.login","actor_id":"{actor}","resource":"session/{actor}","metadata":{{"n":1.0}}}}"#
    ))
}

pub fn key(name: &str, body: &str) -> IdempotencyKey {
    let hash = |text: &str| {
        let mut bytes = [0; 32];
        for (at, byte) in text.bytes().enumerate() {
            bytes[at % 32] ^= byte.wrapping_add(u8::try_from(at).unwrap_or(0));
        }
        Hash(bytes)
    };
    IdempotencyKey { key_hash: hash(name), fingerprint: hash(body) }
}

pub fn append(store: &dyn Store, chain: ChainId, drafts: Vec<Draft>) -> Receipt {
    try_append(store, chain, drafts).unwrap()
}

pub fn try_append(store: &dyn Store, chain: ChainId, drafts: Vec<Draft>) -> Result<Receipt, StoreError> {
    match wait(store.append(Append { chain, drafts, idempotency: None }))? {
        Appended::Sealed(receipt) => Ok(receipt),
        other => panic!("{other:?}"),
    }
}

/// Reserves the key and, if it is free, appends one event under it.
pub fn append_once(
    store: &dyn Store,
    chain: ChainId,
    drafts: Vec<Draft>,
    key: IdempotencyKey,
    request_id: Ulid,
) -> Outcome {
    match wait(store.reserve(chain, key)).unwrap() {
        Reserved::Fresh(reservation) => {
            match wait(store.append(Append { chain, drafts, idempotency: Some((reservation, request_id)) }))
                .unwrap()
            {
                Appended::Sealed(receipt) => Outcome::Sealed(receipt),
                Appended::Replayed(receipt) => Outcome::Replayed(receipt),
                Appended::Conflict => Outcome::Conflict,
            }
        }
        Reserved::Replay(receipt) => Outcome::Replayed(receipt),
        Reserved::Conflict => Outcome::Conflict,
        Reserved::InFlight => Outcome::InFlight,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sealed(Receipt),
    Replayed(Receipt),
    Conflict,
    InFlight,
}

pub fn get(store: &dyn Store, chain: ChainId, log_id: Ulid) -> Option<StoredEvent> {
    wait(store.get(chain, log_id)).unwrap()
}

/// A whole page, however many pieces it comes in.
pub fn list(
    store: &dyn Store,
    chain: ChainId,
    filter: &Filter,
    before_seq: Option<u64>,
    limit: usize,
) -> Vec<StoredEvent> {
    list_in_pieces(store, chain, filter, before_seq, limit, 1 << 20)
}

pub fn list_in_pieces(
    store: &dyn Store,
    chain: ChainId,
    filter: &Filter,
    before_seq: Option<u64>,
    limit: usize,
    bytes_max: usize,
) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    let mut before_seq = before_seq;
    loop {
        let list = List { filter: filter.clone(), before_seq, limit: limit - events.len(), bytes_max };
        let chunk = wait(store.list(chain, list)).unwrap();
        let goes_down = chunk.resume.is_none_or(|resume| before_seq.is_none_or(|before| resume < before));
        assert!(goes_down, "a piece that begins at {before_seq:?} goes on at {:?}", chunk.resume);
        events.extend(chunk.items);
        match chunk.resume {
            Some(resume) if events.len() < limit => before_seq = Some(resume),
            _ => return events,
        }
    }
}

pub fn range(store: &dyn Store, chain: ChainId, from: u64, to: u64, bytes_max: usize) -> Vec<Item> {
    let mut items = Vec::new();
    let mut from = from;
    loop {
        let chunk = wait(store.range(chain, Range { from, to, bytes_max })).unwrap();
        items.extend(chunk.items);
        match chunk.resume {
            Some(resume) if resume <= to => from = resume,
            _ => return items,
        }
    }
}

pub fn verify(store: &dyn Store, chain: ChainId) -> Verdict {
    let verdict = wait(sealog_store::verify::whole(store, chain)).unwrap();
    // The fast way must say the same of every chain that any test looks at.
    let audited = wait(store.audit(vec![chain], Arc::default())).unwrap();
    assert_eq!(audited, [verdict]);
    verdict
}

pub fn verify_window(store: &dyn Store, chain: ChainId, from: u64, to: u64) -> Verdict {
    wait(sealog_store::verify::window(store, chain, SeqRange { from, to })).unwrap()
}

#[track_caller]
pub fn assert_valid(store: &dyn Store, chain: ChainId, events: u64) {
    let verdict = verify(store, chain);
    assert_eq!(verdict, Verdict { checked: events, first_seq: 1, last_seq: events, broken: None });
}

/// Small segments, so that a few hundred events cross many of them.
pub fn small(world: &Arc<StillWorld>) -> Options {
    Options {
        segment_bytes_first: 64 << 10,
        segment_bytes_max: 64 << 10,
        segment_bytes_min: 32 << 10,
        reserve_bytes: 32 << 10,
        group_bytes_max: 16 << 10,
        large_bytes: 4 << 10,
        cache_bytes: 256 << 10,
        world: Arc::clone(world) as Arc<dyn World>,
        ..Options::default()
    }
}

/// A PostgreSQL store whose clock is the test's.
pub fn on_postgres(world: &Arc<StillWorld>) -> sealog_store::postgres::Options {
    sealog_store::postgres::Options {
        connections: 8,
        time: Time::OfWorld,
        world: Arc::clone(world) as Arc<dyn World>,
        ..sealog_store::postgres::Options::default()
    }
}
