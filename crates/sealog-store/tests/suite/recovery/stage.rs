//! The stage of these tests: a store on a disk in memory, whose files can be damaged while nobody looks and
//! whose calls can fail or hang.
//!
//! The layout of segments and marks is written down here a second time, from `docs/format.md`: a test that
//! asked the store where its bytes are could not find it wrong.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealog_core::chain::Head;
use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_core::verify::{Reason, Verdict};
use sealog_store::embedded::{EmbeddedStore, Finding, OpenError, Options};
use sealog_store::{Receipt, Reserved, Store, StoreError};
use sealog_testing::sim::{DIR, Op, SimDisk};
use sealog_testing::*;

pub const SEGMENT_HEADER: usize = 128;
pub const FRAME_HEADER: usize = 88;
/// Inside a frame's header: behind its lengths, before its checksum.
pub const IN_HEADER: usize = 30;
/// Inside the text of a frame's first record.
pub const IN_TEXT: usize = FRAME_HEADER + 100;

/// A disk, and a clock that stands still. No mark is written but at a start, for a full segment and at a
/// stop, unless a test asks for ticks.
pub struct Stage {
    pub disk: SimDisk,
    pub world: Arc<StillWorld>,
}

/// A frame in a segment.
#[derive(Clone, Copy, Debug)]
pub struct FrameAt {
    pub at: usize,
    pub length: usize,
    pub commit: u64,
    pub chain: [u8; 32],
    pub last_seq: u64,
}

/// A record of the mark.
#[derive(Debug)]
pub struct MarkRecord {
    pub commit: u64,
    pub segment: u64,
    pub offset: usize,
    pub heads: Vec<([u8; 32], u64)>,
}

impl Stage {
    pub fn new() -> Stage {
        Stage { disk: SimDisk::new(), world: StillWorld::new() }
    }

    pub fn options(&self) -> Options {
        Options { disk: Arc::new(self.disk.clone()), tick: Duration::from_secs(3600), ..small(&self.world) }
    }

    pub fn open(&self) -> EmbeddedStore {
        self.try_open(&self.options()).unwrap()
    }

    pub fn open_ticking(&self, ms: u64) -> EmbeddedStore {
        self.try_open(&Options { tick: Duration::from_millis(ms), ..self.options() }).unwrap()
    }

    pub fn try_open(&self, options: &Options) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::open(Path::new(DIR), options)
    }

    /// What a killed process leaves, durable or not.
    pub fn killed(&self) -> Stage {
        Stage { disk: self.disk.after_kill(), world: Arc::clone(&self.world) }
    }

    pub fn segments(&self) -> Vec<u64> {
        let names = self.disk.file_names(&Path::new(DIR).join("live"));
        names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
    }

    pub fn read(&self, path: &Path) -> Vec<u8> {
        self.disk.content(path).unwrap()
    }

    pub fn flip(&self, path: &Path, at: usize) {
        let mut bytes = self.read(path);
        bytes[at] ^= 0x40;
        self.disk.put(path, &bytes);
    }

    pub fn frames(&self, segment: u64) -> Vec<FrameAt> {
        let bytes = self.read(&log(segment));
        let mut frames = Vec::new();
        let mut at = SEGMENT_HEADER;
        while bytes.get(at..at + 4) == Some(b"SLFR") {
            let length = u32_at(&bytes, at + 4) as usize;
            let count = u64::from(u32_at(&bytes, at + 8) >> 16);
            frames.push(FrameAt {
                at,
                length,
                commit: u64_at(&bytes, at + 16),
                chain: bytes[at + 32..at + 64].try_into().unwrap(),
                last_seq: u64_at(&bytes, at + 64) + count - 1,
            });
            at += length;
        }
        frames
    }

    pub fn marks(&self) -> Vec<MarkRecord> {
        mark_records(&self.read(&live_file("mark")))
    }
}

/// A log that a kill has ended, with a mark that speaks for all of it.
pub fn killed_when_marked<T>(fill: impl Fn(&EmbeddedStore) -> T) -> (Stage, T) {
    let stage = Stage::new();
    let store = stage.open_ticking(5);
    let filled = fill(&store);
    let commit = stage.frames(1).last().unwrap().commit;
    eventually("the mark speaks for the whole log", || {
        stage.marks().last().is_some_and(|mark| mark.commit >= commit)
    });
    (stage.killed(), filled)
}

pub fn mark_records(bytes: &[u8]) -> Vec<MarkRecord> {
    const HEADER: usize = 16;
    const RECORD: usize = 64;
    const HEAD: usize = 88;
    let mut marks = Vec::new();
    let mut at = HEADER;
    while at < bytes.len() {
        let head = |number: usize| {
            let at = at + RECORD + number * HEAD;
            (bytes[at..at + 32].try_into().unwrap(), u64_at(bytes, at + 32))
        };
        marks.push(MarkRecord {
            commit: u64_at(bytes, at + 8),
            segment: u64_at(bytes, at + 16),
            offset: usize::try_from(u64_at(bytes, at + 24)).unwrap(),
            heads: (0..u32_at(bytes, at + 44) as usize).map(head).collect(),
        });
        at += u32_at(bytes, at) as usize;
    }
    marks
}

pub fn live_file(name: &str) -> PathBuf {
    Path::new(DIR).join("live").join(name)
}

pub fn log(segment: u64) -> PathBuf {
    live_file(&format!("{segment:08}.log"))
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Chains of other tenants than that of [`live`].
pub fn other(number: u8) -> ChainId {
    chain(number, number, Mode::Live)
}

/// An event with this many bytes of payload.
pub fn big(bytes: usize) -> Draft {
    draft(&format!(r#"{{"action":"user.login","metadata":{{"x":"{}"}}}}"#, "x".repeat(bytes)))
}

pub fn everything(store: &dyn Store, chain: ChainId) -> Vec<StoredEvent> {
    list(store, chain, &Filter::default(), None, 10_000)
}

/// Newest first.
pub fn seqs(store: &dyn Store, chain: ChainId) -> Vec<u64> {
    everything(store, chain).iter().map(|event| event.sealed.chain_seq).collect()
}

pub fn findings(store: &EmbeddedStore) -> Vec<Finding> {
    store.findings().into_iter().map(|(_, finding)| finding).collect()
}

pub fn broken(verdict: Verdict) -> (u64, Hash, Reason) {
    let broken = verdict.broken.unwrap();
    (broken.at, broken.hash, broken.reason)
}

#[track_caller]
pub fn assert_refused(store: &EmbeddedStore, chain: ChainId) {
    let refused = try_append(store, chain, vec![login("fork")]);
    assert_eq!(refused, Err(StoreError::HeadUnproven { chain }), "{:?}", store.findings());
}

pub fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

pub fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(5)
}

/// Every read that touches these bytes of the first segment fails.
pub fn make_unreadable(stage: &Stage, sector: std::ops::Range<usize>) {
    let sector = sector.start as u64..sector.end as u64;
    stage.disk.watch(move |call| {
        let hit = call.bytes.start < sector.end && call.bytes.end > sector.start;
        if hit && call.is(Op::Read, "live/00000001.log") { Err(unreadable()) } else { Ok(()) }
    });
}

pub fn make_readable(stage: &Stage) {
    stage.disk.watch(|_| Ok(()));
}

/// What a store showed before it was stopped.
pub struct Shown {
    pub events: Vec<StoredEvent>,
    pub heads: Vec<(ChainId, Head)>,
    /// Under the keys k0, k1, ...
    pub receipts: Vec<Receipt>,
}

/// Appends events of one chain, each under a key.
pub fn append_with_keys(stage: &Stage, store: &EmbeddedStore, events: u32) -> Shown {
    let mut receipts = Vec::new();
    for n in 0..events {
        stage.world.advance(1);
        let outcome =
            append_once(store, live(), vec![login(&format!("u{n}"))], key(&format!("k{n}"), "b"), Ulid(9));
        let Outcome::Sealed(receipt) = outcome else { panic!("{outcome:?}") };
        receipts.push(receipt);
    }
    Shown { events: everything(store, live()), heads: wait(store.heads()).unwrap(), receipts }
}

/// The store can only be read, and shows everything.
#[track_caller]
pub fn assert_read_only(store: &EmbeddedStore, shown: &Shown) {
    let refused = try_append(store, live(), vec![login("x")]);
    assert!(matches!(refused, Err(StoreError::Poisoned(_) | StoreError::NoRoom)), "{refused:?}");
    assert_eq!(store.ready(), Err(refused.unwrap_err()));
    assert_eq!(everything(store, live()), shown.events);
    assert_eq!(wait(store.heads()).unwrap(), shown.heads);
    let count = shown.events.len() as u64;
    assert_valid(store, live(), count);
    assert_eq!(wait(store.usage(live().tenant_id, Month::of(MORNING_MS))).unwrap(), count);
    for event in &shown.events {
        assert_eq!(get(store, live(), event.sealed.log_id).as_ref(), Some(event));
    }
    for (n, receipt) in shown.receipts.iter().enumerate() {
        match wait(store.reserve(live(), key(&format!("k{n}"), "b"))).unwrap() {
            Reserved::Replay(replayed) => assert_eq!(replayed, *receipt),
            other => panic!("key {n}: {other:?}"),
        }
    }
}
