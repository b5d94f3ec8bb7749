//! Faults that are easy to put back: chains that could be forked after damage that no mark spoke for, starts that hid events or forgot damage, and ways to hang. Each is a rule
//! here. Most run on a disk in memory, whose files can be damaged while nobody looks and whose calls can fail or hang.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{Draft, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, Random80, Ulid, Uuid};
use sealog_core::query::Filter;
use sealog_core::time::{Month, TIMESTAMP_MS_MAX};
use sealog_core::verify::{Reason, Verdict};
use sealog_store::embedded::{EmbeddedStore, Finding, OpenError, Options};
use sealog_store::world::World;
use sealog_store::{Append, List, Receipt, Reserved, Store, StoreError};
use support::sim::{self, Gate, Op, Opener, SimDisk};
use support::*;

/// Not a path of any real file system.
const DIR: &str = "/sealog-simulated-disk";

const SEGMENT_HEADER: usize = 128;
const FRAME_HEADER: usize = 88;
/// Inside a frame's header: behind its lengths, before its checksum.
const IN_HEADER: usize = 30;
/// Inside the text of a frame's first record.
const IN_TEXT: usize = FRAME_HEADER + 100;

/// A disk, and a clock that stands still. No mark is written but at a start, for a full segment and at a stop, unless a test asks for ticks.
struct Stage {
    disk: SimDisk,
    world: Arc<StillWorld>,
}

/// A frame in a segment.
#[derive(Clone, Copy, Debug)]
struct FrameAt {
    at: usize,
    length: usize,
    commit: u64,
    chain: [u8; 32],
    last_seq: u64,
}

/// A record of the mark.
#[derive(Debug)]
struct MarkRecord {
    commit: u64,
    segment: u64,
    offset: usize,
    heads: Vec<([u8; 32], u64)>,
}

impl Stage {
    fn new() -> Stage {
        Stage { disk: SimDisk::new(), world: StillWorld::new() }
    }

    fn options(&self) -> Options {
        Options { disk: Arc::new(self.disk.clone()), tick: Duration::from_secs(3600), ..small(&self.world) }
    }

    fn open(&self) -> EmbeddedStore {
        self.try_open(&self.options()).unwrap()
    }

    fn open_ticking(&self, ms: u64) -> EmbeddedStore {
        self.try_open(&Options { tick: Duration::from_millis(ms), ..self.options() }).unwrap()
    }

    fn try_open(&self, options: &Options) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::open(Path::new(DIR), options)
    }

    /// What a killed process leaves, durable or not.
    fn killed(&self) -> Stage {
        Stage { disk: self.disk.after_kill(), world: Arc::clone(&self.world) }
    }

    fn segments(&self) -> Vec<u64> {
        let names = self.disk.file_names(&Path::new(DIR).join("live"));
        names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
    }

    fn read(&self, path: &Path) -> Vec<u8> {
        self.disk.content(path).unwrap()
    }

    fn flip(&self, path: &Path, at: usize) {
        let mut bytes = self.read(path);
        bytes[at] ^= 0x40;
        self.disk.put(path, &bytes);
    }

    fn frames(&self, segment: u64) -> Vec<FrameAt> {
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

    fn marks(&self) -> Vec<MarkRecord> {
        mark_records(&self.read(&live_file("mark")))
    }
}

/// A log that a kill has ended, with a mark that speaks for all of it.
fn killed_when_marked<T>(fill: impl Fn(&EmbeddedStore) -> T) -> (Stage, T) {
    for _ in 0..100 {
        let stage = Stage::new();
        let store = stage.open_ticking(5);
        let filled = fill(&store);
        let commit = stage.frames(1).last().unwrap().commit;
        let begun = Instant::now();
        // A mark that comes between a group's heads and its end has the heads only, until there is another event. Then this begins anew.
        while begun.elapsed() < Duration::from_millis(500) {
            if stage.marks().last().is_some_and(|mark| mark.commit >= commit) {
                return (stage.killed(), filled);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!("no mark speaks for the whole log")
}

fn mark_records(bytes: &[u8]) -> Vec<MarkRecord> {
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

fn live_file(name: &str) -> PathBuf {
    Path::new(DIR).join("live").join(name)
}

fn log(segment: u64) -> PathBuf {
    live_file(&format!("{segment:08}.log"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Chains of other tenants than that of [`live`].
fn other(number: u8) -> ChainId {
    chain(number, number, Mode::Live)
}

/// An event with this many bytes of payload.
fn big(bytes: usize) -> Draft {
    draft(&format!(r#"{{"action":"user.login","metadata":{{"x":"{}"}}}}"#, "x".repeat(bytes)))
}

fn everything(store: &dyn Store, chain: ChainId) -> Vec<StoredEvent> {
    list(store, chain, &Filter::default(), None, 10_000)
}

/// Newest first.
fn seqs(store: &dyn Store, chain: ChainId) -> Vec<u64> {
    everything(store, chain).iter().map(|event| event.sealed.chain_seq).collect()
}

fn findings(store: &EmbeddedStore) -> Vec<Finding> {
    store.findings().into_iter().map(|(_, finding)| finding).collect()
}

fn broken(verdict: Verdict) -> (u64, Hash, Reason) {
    let broken = verdict.broken.unwrap();
    (broken.at, broken.hash, broken.reason)
}

/// An answer that may come late, but must come.
#[track_caller]
fn soon<T>(answer: impl Future<Output = T>) -> T {
    wait_until(answer, Some(Instant::now() + Duration::from_secs(5))).expect("an answer")
}

#[track_caller]
fn assert_refused(store: &EmbeddedStore, chain: ChainId) {
    let refused = try_append(store, chain, vec![login("fork")]);
    assert_eq!(refused, Err(StoreError::HeadUnproven { chain }), "{:?}", store.findings());
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(5)
}

// Marks and heads: nothing is sealed on an end that is not proven.

/// Fills most of a segment, then has a group begin the next one and refuse its only request. The mark speaks for all of it when this returns.
fn refuse_a_group_that_begins_a_segment(stage: &Stage, store: &EmbeddedStore) {
    // Marks fail at first, so that the one that succeeds is written after the refused group.
    let begun = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&begun);
    stage.disk.watch(move |call| {
        if call.is(Op::Sync, "live/00000002.log") {
            seen.store(true, SeqCst);
        }
        let mark = call.is(Op::Write, "live/mark") || call.is(Op::Write, "live/mark.tmp");
        if mark { Err(unreadable()) } else { Ok(()) }
    });
    append(store, live(), vec![big(40_000)]);
    let stray = Head { chain_seq: 7, log_id: Ulid(5), hash: Hash([1; 32]) };
    let large = big(30_000);
    let sealed = stray.seal(other(2).tenant_id, &large.text, MORNING_MS, Random80([1; 10]));
    let refused = wait(store.import(other(2), vec![StoredEvent::new(other(2), sealed, large)], None));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    eventually("the next segment has begun", || begun.load(SeqCst));
    // The writer is one step from where it takes the group for durable, and no call of the disk shows that step.
    std::thread::sleep(Duration::from_millis(30));
    stage.disk.unwatch();
    eventually("the mark is written", || stage.marks().last().is_some_and(|mark| mark.commit >= 1));
}

#[test]
fn a_group_whose_requests_were_all_refused_and_that_begins_a_segment_leaves_no_commit_behind() {
    let stage = Stage::new();
    let store = stage.open_ticking(5);
    refuse_a_group_that_begins_a_segment(&stage, &store);
    let killed = stage.killed();
    drop(store);
    for stage in [killed, stage] {
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("two")]);
        append(&store, other(9), vec![login("new")]);
        assert_valid(&store, live(), 2);
    }
}

#[test]
fn a_group_that_was_not_synced_is_never_taken_for_durable_because_a_refused_one_stood_before_it() {
    for dice in 0..20 {
        let stage = Stage::new();
        let store = stage.open_ticking(5);
        refuse_a_group_that_begins_a_segment(&stage, &store);
        stage.disk.fail_sync_of(&log(2));
        let failed = try_append(&store, live(), vec![login("two")]);
        assert!(matches!(failed, Err(StoreError::Poisoned(_))), "{failed:?}");
        // The next process sees the group in the page cache and builds on it, which is fine if it makes it durable first.
        let restarted = stage.killed();
        let store = restarted.open();
        assert_eq!(findings(&store), []);
        let acknowledged = append(&store, live(), vec![login("three")]);
        let cut = Stage {
            disk: restarted.disk.after_power_cut(&mut Dice::new(dice)),
            world: Arc::clone(&restarted.world),
        };
        let store = cut.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), acknowledged.first_seq);
        assert!(get(&store, live(), acknowledged.log_ids[0]).is_some());
    }
}

#[test]
fn a_chain_whose_unmarked_last_event_is_damaged_is_refused_although_it_has_earlier_ones_in_the_segment() {
    for place in [IN_HEADER, IN_TEXT] {
        let stage = Stage::new();
        let store = stage.open();
        append(&store, live(), vec![login("x1")]);
        append(&store, live(), vec![login("x2")]);
        append(&store, other(2), vec![login("y1")]);
        let stage = stage.killed();
        let lost = stage.frames(1)[1];
        stage.flip(&log(1), lost.at + place);
        let store = stage.open();
        let (from, to) = (lost.at as u64, (lost.at + lost.length) as u64);
        let found = findings(&store);
        assert!(found.contains(&Finding::Damaged { segment: 1, from, to }), "{found:?}");
        assert_refused(&store, live());
        // It may have been anyone's: a chain that nobody has heard of may have begun there.
        assert_refused(&store, other(9));
        // What stands behind the damage proves its own end.
        append(&store, other(2), vec![login("y2")]);
        assert_valid(&store, other(2), 2);
    }
}

#[test]
fn what_is_unproven_stays_refused_at_every_later_start() {
    for killed in [false, true] {
        let stage = Stage::new();
        append(&stage.open(), live(), vec![login("x1")]);
        let store = stage.open();
        append(&store, live(), vec![login("x2")]);
        append(&store, other(2), vec![login("y1")]);
        let mut stage = stage.killed();
        stage.flip(&log(2), stage.frames(2)[0].at + IN_HEADER);
        for start in 1..=4 {
            let store = stage.open();
            let found = findings(&store);
            assert!(found.contains(&Finding::HeadUnproven { chain: live() }), "start {start}: {found:?}");
            assert_refused(&store, live());
            assert_refused(&store, other(9));
            append(&store, other(2), vec![login("y")]);
            assert_valid(&store, other(2), start + 1);
            if killed {
                stage = stage.killed();
            }
        }
    }
}

#[test]
fn chains_of_a_log_that_was_shorter_than_its_mark_stay_refused_at_every_later_start() {
    for killed in [false, true] {
        let (mut stage, ()) = killed_when_marked(|store| {
            append(store, other(2), vec![login("y1")]);
            for n in 1..=5 {
                append(store, live(), vec![login(&format!("x{n}"))]);
            }
        });
        let cut = stage.frames(1)[3].at;
        stage.disk.put(&log(1), &stage.read(&log(1))[..cut]);
        for start in 1..=4 {
            let store = stage.open();
            let found = findings(&store);
            let short = Finding::ShorterThanMark { commit: 3, marked: 6 };
            assert_eq!(found.contains(&short), start == 1, "start {start}: {found:?}");
            let lost = Finding::HeadLost { chain: live(), durable: 2, recorded: 5 };
            assert!(found.contains(&lost), "start {start}: {found:?}");
            // Nothing of it is missing that the mark knew of. But behind the mark there may have been more.
            let unproven = Finding::HeadUnproven { chain: other(2) };
            assert!(found.contains(&unproven), "start {start}: {found:?}");
            for chain in [live(), other(2), other(9)] {
                assert_refused(&store, chain);
            }
            let (at, _, reason) = broken(verify(&store, live()));
            assert_eq!((at, reason), (3, Reason::Tail), "start {start}");
            if killed {
                stage = stage.killed();
            }
        }
    }
}

#[test]
fn a_damaged_last_record_is_never_sealed_on() {
    let fill = |store: &EmbeddedStore| {
        let one = append(store, live(), vec![login("x1")]);
        let two = append(store, live(), vec![login("x2")]);
        append(store, other(2), vec![login("y1")]);
        (one, two)
    };
    let unmarked = Stage::new();
    let store = unmarked.open();
    let filled = fill(&store);
    for (stage, (one, two)) in [(unmarked.killed(), filled), killed_when_marked(fill)] {
        stage.flip(&log(1), stage.frames(1)[1].at + IN_TEXT);
        for start in 1..=3 {
            let store = stage.open();
            let found = findings(&store);
            let lost = Finding::HeadLost { chain: live(), durable: 1, recorded: 2 };
            assert!(found.contains(&lost), "start {start}: {found:?}");
            let head = wait(store.head(live())).unwrap();
            let intact = Head { chain_seq: 1, log_id: one.log_ids[0], hash: one.hash };
            assert_eq!((head.durable, head.recorded.chain_seq), (intact, 2));
            assert_eq!(wait(store.heads()).unwrap()[0], (live(), intact));
            assert_eq!(broken(verify(&store, live())), (2, two.hash, Reason::Damaged));
            let damaged = wait(store.get(live(), two.log_ids[0]));
            assert_eq!(damaged, Err(StoreError::Damaged { chain_seq: 2 }));
            assert_refused(&store, live());
        }
    }
}

/// Damages an acknowledged event, and has the group behind it torn; what is acknowledged of the chain must not be replaced.
#[track_caller]
fn assert_damage_before_a_torn_group_is_damage(place: usize) {
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("x1")]);
    append(&store, live(), vec![login("x2")]);
    append(&store, other(2), vec![login("y1")]);
    let stage = stage.killed();
    let frames = stage.frames(1);
    // The third group was being written, or its header would not be there; so the second one had been synced, and was acknowledged.
    stage.flip(&log(1), frames[1].at + place);
    stage.flip(&log(1), frames[2].at + IN_TEXT);
    let (from, torn) = (frames[1].at as u64, frames[2].at as u64);
    for start in 1..=3 {
        let store = stage.open();
        let found = findings(&store);
        let tail = Finding::TornTail { segment: 1, offset: torn };
        assert_eq!(found.contains(&tail), start == 1, "start {start}: {found:?}");
        assert!(found.contains(&Finding::Damaged { segment: 1, from, to: torn }), "start {start}: {found:?}");
        assert_refused(&store, live());
    }
}

#[test]
fn damage_before_the_header_of_a_torn_group_is_damage() {
    assert_damage_before_a_torn_group_is_damage(IN_TEXT);
}

#[test]
fn a_damaged_header_of_a_segment_that_the_mark_only_begins_to_cover_refuses_its_chains() {
    let stage = Stage::new();
    append(&stage.open(), live(), vec![login("x1")]);
    let store = stage.open();
    append(&store, live(), vec![login("x2")]);
    let stage = stage.killed();
    stage.flip(&log(2), 50);
    for _ in 0..3 {
        let store = stage.open();
        let found = findings(&store);
        assert!(found.contains(&Finding::DamagedHeader { segment: 2 }), "{found:?}");
        assert!(found.contains(&Finding::HeadUnproven { chain: live() }), "{found:?}");
        assert_refused(&store, live());
        assert_refused(&store, other(9));
    }
}

#[test]
fn a_mark_never_claims_more_of_the_log_than_it_has_heads_for() {
    let stage = Stage::new();
    let options = Options {
        tick: Duration::from_micros(200),
        segment_bytes_first: 1 << 20,
        segment_bytes_max: 1 << 20,
        group_bytes_max: 1 << 20,
        ..stage.options()
    };
    let store = stage.try_open(&options).unwrap();
    // A mark that has grown long is replaced by a short one; each is kept.
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let (disk, keep) = (stage.disk.clone(), Arc::clone(&replaced));
    stage.disk.watch(move |call| {
        if call.is(Op::Rename, "live/mark") {
            keep.lock().unwrap().push(disk.content(call.path).unwrap());
        }
        Ok(())
    });
    let begun = Instant::now();
    let mut events = 0u32;
    while begun.elapsed() < Duration::from_millis(1200) {
        // Many chains in a group, so that publishing it takes a while.
        let waiting: Vec<_> = (0..1000u16)
            .map(|number| {
                let mut project = [0; 16];
                project[..2].copy_from_slice(&(number % 400).to_be_bytes());
                let chain = ChainId { project_id: ProjectId(Uuid(project)), ..live() };
                store.append(Append { chain, drafts: vec![login("a")], idempotency: None })
            })
            .collect();
        for answer in waiting {
            wait(answer).unwrap();
            events += 1;
        }
    }
    let frames: BTreeMap<(u64, usize), FrameAt> = stage
        .segments()
        .into_iter()
        .flat_map(|segment| stage.frames(segment).into_iter().map(move |frame| ((segment, frame.at), frame)))
        .collect();
    let mut frames = frames.into_iter().peekable();
    let (mut in_log, mut in_mark) = (HashMap::new(), HashMap::new());
    stage.disk.unwatch();
    replaced.lock().unwrap().push(stage.read(&live_file("mark")));
    let marks: Vec<MarkRecord> =
        replaced.lock().unwrap().iter().flat_map(|bytes| mark_records(bytes)).collect();
    for mark in &marks {
        in_mark.extend(mark.heads.iter().copied());
        while let Some((_, frame)) = frames.next_if(|(place, _)| *place < (mark.segment, mark.offset)) {
            assert!(frame.commit <= mark.commit, "{frame:?} lies before the end that {mark:?} claims");
            in_log.insert(frame.chain, frame.last_seq);
        }
        let behind = in_log.iter().filter(|(chain, seq)| in_mark.get(*chain).is_none_or(|head| head < *seq));
        assert_eq!(behind.count(), 0, "of {} chains, after {events} events", in_log.len());
    }
    assert!(marks.len() > 20, "{} marks for {events} events", marks.len());
}

// Starts: every event is shown once, damage is found each time.

/// What a store showed before it was stopped.
struct Shown {
    events: Vec<StoredEvent>,
    heads: Vec<(ChainId, Head)>,
    /// Under the keys k0, k1, ...
    receipts: Vec<Receipt>,
}

/// Appends events of one chain, each under a key.
fn append_with_keys(stage: &Stage, store: &EmbeddedStore, events: u32) -> Shown {
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
fn assert_read_only(store: &EmbeddedStore, shown: &Shown) {
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

#[test]
fn a_start_without_room_for_a_segment_still_shows_every_event() {
    for (events, killed) in [(50, false), (50, true), (400, true)] {
        let stage = Stage::new();
        let store = stage.open();
        let shown = append_with_keys(&stage, &store, events);
        let stage = if killed { stage.killed() } else { stage };
        drop(store);
        stage.disk.watch(|call| if call.is(Op::Create, "live/next.seg") { Err(full()) } else { Ok(()) });
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            assert!(matches!(found[..], [Finding::NoRoom { .. }]), "{found:?}");
            assert_read_only(&store, &shown);
        }
        stage.disk.unwatch();
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("next")]);
        assert_valid(&store, live(), u64::from(events) + 1);
    }
}

#[test]
fn an_index_file_that_cannot_be_written_hides_no_event() {
    let stage = Stage::new();
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    stage.disk.watch(move |call| {
        if !call.is(Op::Create, "live/00000002.idx.tmp") {
            return Ok(());
        }
        count.fetch_add(1, SeqCst);
        Err(full())
    });
    let store = stage.open_ticking(5);
    let check = |sealed: &[Ulid]| {
        assert_valid(&store, live(), sealed.len() as u64);
        assert_eq!(everything(&store, live()).len(), sealed.len());
        for log_id in sealed {
            assert!(get(&store, live(), *log_id).is_some());
        }
    };
    let mut sealed = Vec::new();
    for n in 0..1000 {
        stage.world.advance(1);
        sealed.extend(append(&store, live(), vec![login(&format!("u{n}"))]).log_ids);
    }
    assert!(stage.segments().len() > 3, "{:?}", stage.segments());
    let so_far = failures.load(SeqCst);
    eventually("it was tried again with others waiting behind it", || failures.load(SeqCst) > so_far + 2);
    check(&sealed);
    stage.disk.unwatch();
    eventually("all of them are written", || {
        let written = |number: &u64| stage.disk.content(&log(*number).with_extension("idx")).is_some();
        stage.segments().iter().rev().skip(1).all(written)
    });
    check(&sealed);
}

/// Damages the fifth of ten events, looks at it at three starts, and puts the segment back as it was. The store after that, and what it showed at first.
fn damage_and_restore(place: usize) -> (Stage, Vec<StoredEvent>) {
    let stage = Stage::new();
    let store = stage.open();
    let receipts: Vec<_> = (0..10).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
    let shown = everything(&store, live());
    drop(store);
    let whole = stage.read(&log(1));
    let frame = stage.frames(1)[4];
    stage.flip(&log(1), frame.at + place);
    let (from, to) = (frame.at as u64, (frame.at + frame.length) as u64);
    for start in 1..=3 {
        let store = stage.open();
        assert_eq!(findings(&store), [Finding::Damaged { segment: 1, from, to }], "start {start}");
        let damaged = wait(store.get(live(), receipts[4].log_ids[0]));
        assert_eq!(damaged, Err(StoreError::Damaged { chain_seq: 5 }), "start {start}");
        assert_eq!(broken(verify(&store, live())), (5, receipts[4].hash, Reason::Damaged));
        assert_eq!(seqs(&store, live()), [10, 9, 8, 7, 6, 4, 3, 2, 1]);
    }
    stage.disk.put(&log(1), &whole);
    (stage, shown)
}

#[test]
fn damage_is_found_again_at_every_start_until_the_segment_is_restored() {
    for place in [IN_HEADER, IN_TEXT] {
        let (stage, shown) = damage_and_restore(place);
        for events in 10..12 {
            let store = stage.open();
            assert_valid(&store, live(), events);
            for event in &shown {
                assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event));
            }
            append(&store, live(), vec![login("next")]);
            assert_valid(&store, live(), events + 1);
        }
    }
}

#[test]
fn an_index_that_is_built_again_shows_each_event_once() {
    let stage = Stage::new();
    let store = stage.open();
    let (mut of_live, mut of_other) = (Vec::new(), Vec::new());
    for n in 0..40 {
        of_live.push(append(&store, live(), vec![login(&format!("a{n}"))]));
        stage.world.advance(1);
        of_other.push(append(&store, other(2), vec![login(&format!("b{n}"))]));
        stage.world.advance(1);
    }
    drop(store);
    let store = stage.open();
    // Pieces of the old index are in the cache from here on.
    assert_valid(&store, live(), 40);
    assert_eq!(everything(&store, live()).len(), 40);
    stage.flip(&log(1), stage.frames(1)[20].at + IN_HEADER);
    let index = live_file("00000001.idx");
    let id = of_other[20].log_ids[0].to_bytes();
    let at = stage.read(&index).windows(16).position(|window| window == id).unwrap();
    stage.flip(&index, at);
    // This read finds the index damaged.
    assert_eq!(everything(&store, other(2)).len(), 40);
    assert_valid(&store, other(2), 40);
    assert_eq!(seqs(&store, live()), (1..=40).rev().filter(|seq| *seq != 11).collect::<Vec<_>>());
    assert_eq!(broken(verify(&store, live())), (11, of_live[10].hash, Reason::Damaged));
    for (seq, receipt) in (1..).zip(&of_live) {
        match wait(store.get(live(), receipt.log_ids[0])) {
            Ok(Some(event)) => assert_eq!(event.sealed.chain_seq, seq),
            other => assert_eq!((seq, other), (11, Err(StoreError::Damaged { chain_seq: 11 }))),
        }
    }
}

/// A chain of `before` + 2 events, the last but one of which was moved twice, without the segment that it was moved to first.
fn move_a_group_twice(before: u64) -> (Stage, Vec<StoredEvent>) {
    // t0: a group is written. t1: a start moves it, and ends before its mark. t2: the next start moves it again. t3: the segment of t1 is deleted, and with it the word that the
    // first copy does not count.
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..=before {
        append(&store, live(), vec![login(&format!("x{n}"))]);
    }
    let stage = stage.killed();
    stage.disk.watch(|call| if call.is(Op::Create, "live/mark.tmp") { Err(unreadable()) } else { Ok(()) });
    drop(stage.open());
    stage.disk.unwatch();
    let store = stage.open();
    append(&store, live(), vec![login("y")]);
    assert_valid(&store, live(), before + 2);
    let shown = everything(&store, live());
    drop(store);
    assert_eq!(stage.segments(), [1, 2, 3]);
    stage.disk.delete(&log(2));
    (stage, shown)
}

#[test]
fn a_moved_group_is_shown_once_even_when_the_segment_that_moved_it_is_gone() {
    for before in [0, 3] {
        let (stage, shown) = move_a_group_twice(before);
        for _ in 0..2 {
            let store = stage.open();
            assert_eq!(findings(&store), [Finding::MissingSegments { first: 2, last: 2 }]);
            assert_valid(&store, live(), before + 2);
            assert_eq!(everything(&store, live()), shown);
            for event in &shown {
                assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event));
            }
        }
        append(&stage.open(), live(), vec![login("next")]);
        assert_valid(&stage.open(), live(), before + 3);
    }
}

#[test]
fn a_damaged_record_in_the_middle_of_the_mark_is_a_finding_and_the_records_behind_it_count() {
    let stage = Stage::new();
    let store = stage.open_ticking(1);
    for n in 1..=10 {
        append(&store, live(), vec![login(&format!("a{n}"))]);
        let has_head = |mark: &MarkRecord| mark.heads.iter().any(|(_, head)| *head >= n);
        eventually("the mark has the head", || stage.marks().iter().any(has_head));
    }
    drop(store);
    let mark = live_file("mark");
    let second = 16 + u32_at(&stage.read(&mark), 16) as usize;
    stage.flip(&mark, second + 12);
    let cut = stage.frames(1)[4].at;
    stage.disk.put(&log(1), &stage.read(&log(1))[..cut]);
    let store = stage.open();
    let found = findings(&store);
    assert!(found.contains(&Finding::MarkDamaged), "{found:?}");
    assert!(found.contains(&Finding::HeadLost { chain: live(), durable: 4, recorded: 10 }), "{found:?}");
    assert_refused(&store, live());
}

/// Damages the frame of one chain, whose head the mark knows, and has all others go on.
#[track_caller]
fn assert_a_damaged_marked_frame_stops_its_own_chain_only(place: usize, is_last: bool) {
    let (stage, one) = killed_when_marked(|store| {
        let one = append(store, live(), vec![login("x")]);
        append(store, other(2), vec![login("y")]);
        if !is_last {
            append(store, other(3), vec![login("z")]);
        }
        one
    });
    stage.flip(&log(1), stage.frames(1)[1].at + place);
    for start in 1..=3 {
        let store = stage.open();
        let found = findings(&store);
        let lost = Finding::HeadLost { chain: other(2), durable: 0, recorded: 1 };
        assert!(found.contains(&lost), "start {start}: {found:?}");
        assert_refused(&store, other(2));
        let heads = wait(store.heads()).unwrap();
        assert!(heads.iter().all(|(chain, _)| *chain != other(2)), "start {start}: {heads:?}");
        assert!(start > 1 || heads[0].1.hash == one.hash, "{heads:?}");
        for chain in [live(), other(3), other(4)] {
            let appended = try_append(&store, chain, vec![login("goes on")]);
            assert!(appended.is_ok(), "start {start}: {appended:?} {found:?}");
            assert!(verify(&store, chain).valid(), "start {start}");
        }
    }
}

#[test]
fn one_damaged_marked_frame_stops_its_own_chain_only() {
    for (place, is_last) in [(IN_TEXT, true), (IN_TEXT, false), (IN_HEADER, false)] {
        assert_a_damaged_marked_frame_stops_its_own_chain_only(place, is_last);
    }
}

// Hangs, full disks, unreadable ones.

/// Runs once, when a writer says that there is no room: after it has looked, before it says so to others.
static AT_NO_ROOM: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

struct Listener;

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct NoRoom(bool);
        impl tracing::field::Visit for NoRoom {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}").starts_with("no room");
            }
        }
        let mut no_room = NoRoom(false);
        event.record(&mut no_room);
        if no_room.0
            && let Some(act) = AT_NO_ROOM.lock().unwrap().take()
        {
            act();
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn room_that_comes_between_the_look_and_the_verdict_is_seen() {
    tracing::subscriber::set_global_default(Listener).unwrap();
    let stage = Stage::new();
    let (is_full, made, failed, synced) =
        (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default(), Arc::default());
    let counts: [Arc<AtomicUsize>; 3] = [Arc::clone(&made), Arc::clone(&failed), Arc::clone(&synced)];
    let filling = Arc::clone(&is_full);
    stage.disk.watch(move |call| {
        let [made, failed, synced] = &counts;
        if call.is(Op::Create, "live/next.seg") {
            if filling.load(SeqCst) {
                failed.fetch_add(1, SeqCst);
                return Err(full());
            }
            made.fetch_add(1, SeqCst);
        }
        if call.is(Op::SyncDir, "live") {
            synced.fetch_add(1, SeqCst);
        }
        Ok(())
    });
    let store = stage.open_ticking(20);
    append(&store, live(), vec![big(40_000)]);
    eventually("the second segment is prepared", || made.load(SeqCst) == 2);
    is_full.store(true, SeqCst);
    append(&store, live(), vec![big(40_000)]);
    eventually("the third one cannot be", || failed.load(SeqCst) > 0);
    *AT_NO_ROOM.lock().unwrap() = Some(Box::new(move || {
        let before = synced.load(SeqCst);
        is_full.store(false, SeqCst);
        eventually("there is room again", || synced.load(SeqCst) > before);
        // And the preparer has told everyone, which no call of the disk shows.
        std::thread::sleep(Duration::from_millis(50));
    }));
    assert_eq!(try_append(&store, live(), vec![big(40_000)]), Err(StoreError::NoRoom));
    assert!(AT_NO_ROOM.lock().unwrap().is_none());
    let begun = Instant::now();
    while store.ready().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(2), "a hundred ticks, and {:?}", store.ready());
        std::thread::sleep(Duration::from_millis(1));
    }
    append(&store, live(), vec![big(40_000)]);
    assert_valid(&store, live(), 3);
}

/// The first event of a chain, at a time of its own.
fn first_event(chain: ChainId, log_id: Ulid) -> StoredEvent {
    let draft = login("imported");
    let hash = sealog_core::canonical::hash(
        Hash::ZERO,
        log_id,
        chain.tenant_id,
        draft.text.as_str(),
        log_id.timestamp_ms(),
    );
    StoredEvent::new(chain, Sealed { chain_seq: 1, log_id, prev_hash: Hash::ZERO, hash }, draft)
}

#[test]
fn an_import_past_the_end_of_time_is_refused() {
    let stage = Stage::new();
    let store = stage.open();
    let random = Random80([1; 10]);
    for log_id in [Ulid(u128::MAX), Ulid::new(TIMESTAMP_MS_MAX + 1, random)] {
        let refused = wait(store.import(live(), vec![first_event(live(), log_id)], None));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 1);
    let last = first_event(other(2), Ulid::new(TIMESTAMP_MS_MAX, random));
    wait(store.import(other(2), vec![last], None)).unwrap();
    append(&store, other(2), vec![login("after it")]);
    assert_valid(&store, other(2), 2);
}

/// A world whose clock panics for threads with certain names.
#[derive(Debug)]
struct PanickyWorld {
    still: Arc<StillWorld>,
    victims: Mutex<Option<&'static str>>,
}

impl World for PanickyWorld {
    fn now_ms(&self) -> u64 {
        let victims = *self.victims.lock().unwrap();
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        assert!(!victims.is_some_and(|victims| name.starts_with(victims)), "the clock panics, as planned");
        self.still.now_ms()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.still.fill_random(bytes);
    }
}

#[test]
fn a_panic_in_a_writer_stops_the_log_and_leaves_nobody_waiting() {
    for place in ["sealing", "writing"] {
        let stage = Stage::new();
        let world = Arc::new(PanickyWorld { still: Arc::clone(&stage.world), victims: Mutex::default() });
        let options = Options { world: Arc::clone(&world) as Arc<dyn World>, ..stage.options() };
        let store = Arc::new(stage.try_open(&options).unwrap());
        // Never dropped: a store that cannot be closed must fail this test, not hang it.
        std::mem::forget(Arc::clone(&store));
        let kept = append(&*store, live(), vec![login("kept")]);
        if place == "sealing" {
            *world.victims.lock().unwrap() = Some("sealog-live-write");
        } else {
            stage.disk.watch(|call| {
                assert!(!call.is(Op::Write, "live/00000001.log"), "the disk panics, as planned");
                Ok(())
            });
        }
        for chain in [live(), other(2)] {
            let request = Append { chain, drafts: vec![login("lost")], idempotency: None };
            let answer = soon(store.append(request));
            assert!(answer.is_err(), "{place}: {answer:?}");
        }
        eventually("the log says that it has stopped", || store.ready().is_err());
        assert!(matches!(store.ready(), Err(StoreError::Poisoned(_))), "{place}: {:?}", store.ready());
        let refused = try_append(&*store, other(3), vec![login("refused")]);
        assert!(matches!(refused, Err(StoreError::Poisoned(_))), "{place}: {refused:?}");
        assert!(get(&*store, live(), kept.log_ids[0]).is_some(), "{place}: reads go on");
        let (done, closed) = mpsc::channel();
        let closing = Arc::clone(&store);
        std::thread::spawn(move || {
            closing.close();
            done.send(()).unwrap();
        });
        assert_eq!(closed.recv_timeout(Duration::from_secs(5)), Ok(()), "{place}: close() hangs");
        let restarted = stage.killed();
        let store = restarted.open();
        assert_valid(&store, live(), 1);
        append(&store, live(), vec![login("next")]);
    }
}

#[test]
fn a_read_that_panics_fails_for_its_caller_only() {
    let stage = Stage::new();
    let world = Arc::new(PanickyWorld { still: Arc::clone(&stage.world), victims: Mutex::default() });
    let options = Options { world: Arc::clone(&world) as Arc<dyn World>, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let sealed = append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(5));
    let Outcome::Sealed(receipt) = sealed else { panic!("{sealed:?}") };
    // More reads than there are threads to make them.
    *world.victims.lock().unwrap() = Some("sealog-read");
    for _ in 0..12 {
        let reserved = soon(store.reserve(live(), key("k", "b")));
        assert!(reserved.is_err(), "{reserved:?}");
    }
    *world.victims.lock().unwrap() = None;
    assert!(soon(store.get(live(), receipt.log_ids[0])).unwrap().is_some());
    match wait(store.reserve(live(), key("k", "b"))).unwrap() {
        Reserved::Replay(replayed) => assert_eq!(replayed, receipt),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_fail_by_their_deadline_while_the_disk_hangs() {
    let stage = Stage::new();
    let (segments, marks) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let gates = (Arc::clone(&segments), Arc::clone(&marks));
    stage.disk.watch(move |call| {
        if call.is(Op::Sync, "live/00000001.log") {
            gates.0.pass();
        } else if call.is(Op::Sync, "live/mark") {
            gates.1.pass();
        }
        Ok(())
    });
    let deadline = Duration::from_millis(200);
    let options = Options { tick: Duration::from_millis(20), queue_deadline: deadline, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let openers = (Opener(&segments), Opener(&marks));
    let request = || store.append(Append { chain: live(), drafts: vec![big(10_000)], idempotency: None });
    marks.close();
    wait(request()).unwrap();
    eventually("the thread that writes marks hangs", || marks.waiting() == 1);
    segments.close();
    let written = request();
    eventually("a writer hangs", || segments.waiting() == 1);
    // Enough that the other thread seals meanwhile. A group of 16 KiB has room for the first of these, which has to wait for what it was sealed on. The others wait for their turn.
    let begun = Instant::now();
    let sealed = request();
    let waiting: Vec<_> = (0..8).map(|_| request()).collect();
    for answer in waiting {
        assert_eq!(soon(answer), Err(StoreError::Deadline));
        assert!(begun.elapsed() >= deadline);
    }
    drop(openers);
    wait(written).unwrap();
    wait(sealed).unwrap();
    assert_valid(&store, live(), 3);
}

#[test]
fn a_store_whose_disk_has_stalled_is_not_ready_until_it_goes_on() {
    let stage = Stage::new();
    let segments = Arc::new(Gate::default());
    let gate = Arc::clone(&segments);
    stage.disk.watch(move |call| {
        if call.is(Op::Sync, "live/00000001.log") {
            gate.pass();
        }
        Ok(())
    });
    let deadline = Duration::from_millis(200);
    let options = Options { tick: Duration::from_millis(10), queue_deadline: deadline, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let opener = Opener(&segments);
    let request = || store.append(Append { chain: live(), drafts: vec![login("a")], idempotency: None });
    wait(request()).unwrap();
    assert_eq!(store.ready(), Ok(()));
    segments.close();
    let written = request();
    eventually("a writer hangs", || segments.waiting() == 1);
    // Nobody else sends anything: a balancer that asks whether it is ready must not need a victim.
    eventually("it is not ready", || store.ready() == Err(StoreError::Stalled));
    let behind = request();
    assert_eq!(soon(behind), Err(StoreError::Deadline));
    assert_eq!(store.ready(), Err(StoreError::Stalled));
    drop(opener);
    wait(written).unwrap();
    eventually("it is ready by itself", || store.ready() == Ok(()));
    wait(request()).unwrap();
    assert_valid(&store, live(), 3);
}

/// Every read that touches these bytes of the first segment fails.
fn make_unreadable(stage: &Stage, sector: std::ops::Range<usize>) {
    let sector = sector.start as u64..sector.end as u64;
    stage.disk.watch(move |call| {
        let hit = call.bytes.start < sector.end && call.bytes.end > sector.start;
        if hit && call.is(Op::Read, "live/00000001.log") { Err(unreadable()) } else { Ok(()) }
    });
}

fn make_readable(stage: &Stage) {
    stage.disk.watch(|_| Ok(()));
}

/// Everything that needs event `hidden` fails, and says nothing of it; everything else is answered as ever.
#[track_caller]
fn assert_one_cannot_be_read(store: &EmbeddedStore, receipts: &[Receipt], hidden: u64) {
    let events = receipts.len() as u64;
    let failed = |what: &str, outcome: Result<(), StoreError>| {
        assert!(matches!(outcome, Err(StoreError::Read(_))), "{what}: {outcome:?}");
    };
    let page = |before_seq, limit| {
        let list = List { filter: Filter::default(), before_seq, limit, bytes_max: 64 << 20 };
        wait(store.list(live(), list))
    };
    failed("a list", page(None, 10_000).map(drop));
    let filtered = Filter { action: Some("\"user.login\"".into()), ..Filter::default() };
    let list = List { filter: filtered, before_seq: None, limit: 10_000, bytes_max: 64 << 20 };
    failed("a list with a filter", wait(store.list(live(), list)).map(drop));
    let above = usize::try_from(events - hidden).unwrap();
    assert_eq!(page(None, above).unwrap().items.len(), above, "a page that ends above it");
    let below = page(Some(hidden), 10_000).unwrap();
    assert_eq!(below.items.len() as u64, hidden - 1, "a page that begins below it");

    assert!(verify_window(store, live(), 1, hidden - 1).valid());
    assert!(verify_window(store, live(), hidden + 2, events).valid());
    failed("verification", wait(sealog_store::verify::whole(store, live())).map(drop));
    failed("an audit", wait(store.audit(vec![live()], Arc::default())).map(drop));
    let range = sealog_store::Range { from: 1, to: events, bytes_max: 64 << 20 };
    failed("a range", wait(store.range(live(), range)).map(drop));
    for (seq, receipt) in (1..).zip(receipts) {
        match wait(store.get(live(), receipt.log_ids[0])) {
            Ok(Some(event)) => assert_eq!(event.sealed.chain_seq, seq),
            other => {
                assert_eq!(seq, hidden);
                failed("a single read", other.map(drop));
            }
        }
    }
    assert!(!store.notices().is_empty(), "whoever watches is told");
    assert!(wait(store.stats()).unwrap().read_errors >= 4);
}

#[test]
fn a_disk_that_cannot_be_read_is_never_damage() {
    // Once under the header of a frame and the first bytes of its record, once under the text.
    for begin in [0, IN_TEXT] {
        let stage = Stage::new();
        let store = stage.open();
        let receipts: Vec<_> =
            (0..50).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
        drop(store);
        drop(stage.open());
        let bad = stage.frames(1)[40].at + begin;
        make_unreadable(&stage, bad..bad + 100);
        let store = stage.open();
        assert_eq!(findings(&store), []);
        assert_eq!(store.notices(), Vec::<&str>::new());
        assert_one_cannot_be_read(&store, &receipts, 41);
        append(&store, live(), vec![login("goes on")]);
        // It was never gone.
        make_readable(&stage);
        assert_valid(&store, live(), 51);
        assert_eq!(everything(&store, live()).len(), 51);
    }
}

#[test]
fn a_start_that_cannot_read_a_sector_finds_no_damage_and_hides_nothing() {
    const PAGE: usize = 4096;
    let stage = Stage::new();
    let size = 1 << 20;
    let options = Options { segment_bytes_first: size, segment_bytes_max: size, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    append(&store, other(2), vec![login("before")]);
    let receipts: Vec<_> = (0..20).map(|_| append(&store, live(), vec![big(3 * PAGE)])).collect();
    drop(store);
    let frame = stage.frames(1)[13];
    let bad = (frame.at + FRAME_HEADER).next_multiple_of(PAGE);
    make_unreadable(&stage, bad..bad + PAGE);
    let segments = stage.segments();
    let mark = stage.read(&live_file("mark"));
    for _ in 0..3 {
        let store = stage.try_open(&options).unwrap();
        assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
        assert_one_cannot_be_read(&store, &receipts, 13);
        // The mark knows that the other chain has nothing in that place.
        assert_valid(&store, other(2), 1);
        // An error of the disk says nothing about what is on it, so nothing is built on it.
        assert!(matches!(try_append(&store, live(), vec![login("x")]), Err(StoreError::Poisoned(_))));
        drop(store);
        assert_eq!(stage.segments(), segments);
        assert_eq!(stage.read(&live_file("mark")), mark);
    }
    // The disk gives everything again: the starts in between have left no trace.
    make_readable(&stage);
    let store = stage.try_open(&options).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 20);
    append(&store, live(), vec![login("goes on")]);
    append(&store, other(2), vec![login("goes on")]);
}

#[test]
fn a_read_error_at_start_is_neither_damage_nor_a_torn_tail() {
    // The header of the last segment, and events in it that no mark speaks for.
    for sector in [0..128, 1000..100_000] {
        let stage = Stage::new();
        let store = stage.open();
        for n in 0..10 {
            append(&store, live(), vec![login(&format!("u{n}"))]);
        }
        let killed = stage.killed();
        drop(store);
        make_unreadable(&killed, sector);
        let store = killed.open();
        assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
        assert!(try_append(&store, live(), vec![login("x")]).is_err());
        // How the chain ends is not known, nor which other chains there are.
        let list = List { filter: Filter::default(), before_seq: None, limit: 10, bytes_max: 1 << 20 };
        for chain in [live(), other(9)] {
            assert!(matches!(wait(store.list(chain, list.clone())), Err(StoreError::Read(_))));
            assert!(matches!(wait(store.head(chain)), Err(StoreError::Read(_))));
            assert!(matches!(wait(store.get(chain, Ulid(1))), Err(StoreError::Read(_))));
            let verified = wait(sealog_store::verify::whole(&store, chain));
            assert!(matches!(verified, Err(StoreError::Read(_))), "{verified:?}");
            let audited = wait(store.audit(vec![chain], Arc::default()));
            assert!(matches!(audited, Err(StoreError::Read(_))), "{audited:?}");
        }
        assert!(matches!(wait(store.heads()), Err(StoreError::Read(_))));
        let usage = wait(store.usage(live().tenant_id, Month::of(MORNING_MS)));
        assert!(matches!(usage, Err(StoreError::Read(_))));
        drop(store);
        make_readable(&killed);
        let store = killed.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), 10);
        append(&store, live(), vec![login("goes on")]);
    }
}

#[test]
fn an_index_that_cannot_be_rebuilt_because_the_segment_cannot_be_read_hides_nothing() {
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..50 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    drop(store);
    drop(stage.open());
    let store = stage.open();
    assert_eq!(findings(&store), []);
    stage.disk.watch(|call| {
        let first = call.is(Op::Read, "live/00000001.log") || call.is(Op::Read, "live/00000001.idx");
        if first { Err(unreadable()) } else { Ok(()) }
    });
    let list = List { filter: Filter::default(), before_seq: None, limit: 100, bytes_max: 1 << 20 };
    assert!(matches!(wait(store.list(live(), list)), Err(StoreError::Read(_))));
    make_readable(&stage);
    assert_eq!(everything(&store, live()).len(), 50);
    assert_valid(&store, live(), 50);
}

// ---- A log that was rewritten, losses that are accepted -------------------------------------------------------------

/// A killed log of `marked` events that its mark speaks for, whose segment was then replaced by one of another history: the same up to `same`, other events from there on.
fn rewritten(marked: u64, same: u64, events: u64) -> (Stage, Hash) {
    let (stage, receipts) = killed_when_marked(|store| {
        (1..=marked).map(|n| append(store, live(), vec![login(&format!("u{n}"))])).collect::<Vec<_>>()
    });
    let forged = Stage::new();
    let store = forged.open();
    for n in 1..=events {
        let actor = if n <= same { format!("u{n}") } else { format!("forged{n}") };
        append(&store, live(), vec![login(&actor)]);
    }
    stage.disk.put(&log(1), &forged.killed().read(&log(1)));
    (stage, receipts.last().unwrap().hash)
}

#[test]
fn a_rewritten_log_that_is_longer_than_its_mark_is_found_at_the_recorded_event() {
    // Rewritten from the first event on, and only from the last that is on record; longer by one, and by many.
    for (same, events) in [(0, 6), (4, 6), (2, 40)] {
        let (mut stage, hash) = rewritten(5, same, events);
        for restart in 0..4 {
            let store = stage.open();
            assert_eq!(findings(&store), [Finding::Rewritten { chain: live(), chain_seq: 5 }]);
            assert_refused(&store, live());
            let verdict = verify(&store, live());
            let (at, stored, reason) = broken(verdict);
            assert_eq!((at, reason, verdict.checked), (5, Reason::Head, 5));
            assert_ne!(stored, hash);
            // Nobody else pays for it, and the evidence is what it was.
            append(&store, other(2), vec![login("a")]);
            if restart % 2 == 0 {
                stage = stage.killed();
            }
            drop(store);
        }
        let store = stage.open();
        let receipt = wait(store.accept_loss(live(), "restored the wrong backup".into())).unwrap();
        assert_eq!(receipt.first_seq, events + 1, "nothing that exists is hidden");
        let event = get(&store, live(), receipt.log_ids[0]).unwrap();
        let says = format!(r#"{{"lost_from":5,"lost_to":5,"recorded_hash":"{hash}","#);
        assert!(event.text.as_str().contains(&says), "{}", event.text.as_str());
        assert_valid(&store, live(), events + 1);
        append(&store, live(), vec![login("goes on")]);
        drop(store);
        let store = stage.open();
        assert_eq!(findings(&store), []);
        assert_valid(&store, live(), events + 2);
    }
}

#[test]
fn a_log_that_has_grown_since_its_mark_is_no_finding() {
    let (stage, _) = killed_when_marked(|store| append(store, live(), vec![login("marked")]));
    let store = stage.open();
    for n in 0..10 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let stage = stage.killed();
    drop(store);
    let store = stage.open();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 11);
    append(&store, live(), vec![login("goes on")]);
}

#[test]
fn a_recorded_event_that_cannot_be_read_is_neither_right_nor_wrong() {
    let (stage, _) = rewritten(5, 0, 9);
    let frame = stage.frames(1)[4];
    let mark = stage.read(&live_file("mark"));
    // Only the look at this one event fails: the walk over the whole segment comes before.
    stage.disk.watch(move |call| {
        let look = call.is(Op::Read, "live/00000001.log") && call.bytes.start > 0;
        let hit = call.bytes.contains(&(frame.at as u64 + 100));
        if look && hit { Err(unreadable()) } else { Ok(()) }
    });
    let store = stage.open();
    assert!(matches!(findings(&store)[..], [Finding::ReadOnly { .. }]), "{:?}", findings(&store));
    assert!(try_append(&store, live(), vec![login("x")]).is_err());
    drop(store);
    assert_eq!(stage.read(&live_file("mark")), mark, "the evidence is kept");
    make_readable(&stage);
    assert_eq!(findings(&stage.open()), [Finding::Rewritten { chain: live(), chain_seq: 5 }]);
}

#[test]
fn a_start_looks_at_one_event_of_each_chain_that_has_grown_since_the_mark_and_at_none_of_the_others() {
    let reads = |chains: u8, grown: u8| {
        let (stage, ()) = killed_when_marked(|store| {
            for number in 1..=chains {
                append(store, other(number), vec![login("marked")]);
            }
        });
        let store = stage.open();
        for number in 1..=grown {
            append(&store, other(number), vec![login("grown")]);
        }
        let stage = stage.killed();
        drop(store);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        stage.disk.watch(move |call| {
            if call.op == Op::Read && call.path.starts_with(Path::new(DIR).join("live")) {
                counted.fetch_add(1, SeqCst);
            }
            Ok(())
        });
        let store = stage.open();
        assert_eq!(findings(&store), []);
        let count = reads.load(SeqCst);
        for number in 1..=chains {
            assert_valid(&store, other(number), if number <= grown { 2 } else { 1 });
        }
        count
    };
    // The log that they are in is longer, which is a read or two; none of them costs one.
    let (few, many) = (reads(20, 2), reads(200, 2));
    assert!(many <= few + 2, "chains that have not grown cost nothing: {few} {many}");
    // Its place in the index, and the record.
    let (one, ten) = (reads(20, 1), reads(20, 11));
    assert!(ten - one <= 10 * 3, "{one} {ten}");
}

/// A log whose mark knows ten events of the chain and that has seven.
fn cut_short() -> (Stage, Vec<Receipt>) {
    let (stage, receipts) = killed_when_marked(|store| {
        (1..=10).map(|n| append(store, live(), vec![login(&format!("u{n}"))])).collect::<Vec<_>>()
    });
    let frames = stage.frames(1);
    let bytes = stage.read(&log(1));
    stage.disk.put(&log(1), &bytes[..frames[7].at]);
    (stage, receipts)
}

#[test]
fn a_crash_at_any_call_of_an_acceptance_leaves_the_loss_or_the_acceptance() {
    let accept = |store: &EmbeddedStore| wait(store.accept_loss(live(), "cut short".into()));
    // How many calls it takes.
    let calls = {
        let (stage, _) = cut_short();
        let store = stage.open();
        stage.disk.plan(sim::Plan::default());
        accept(&store).unwrap();
        stage.disk.calls()
    };
    assert!(calls >= 4, "an event and a mark, each written and synced: {calls}");
    let mut dice = Dice::new(13);
    let (mut lost, mut accepted) = (0, 0);
    for cut_at in 1..=calls + 1 {
        for power in [false, true] {
            let (stage, receipts) = cut_short();
            let store = stage.open();
            assert_refused(&store, live());
            stage.disk.plan(sim::Plan { power_cut_at: Some(cut_at), ..sim::Plan::default() });
            let acknowledged = accept(&store).is_ok();
            let disk = if power { stage.disk.after_power_cut(&mut dice) } else { stage.disk.after_kill() };
            drop(store);
            let stage = Stage { disk, world: Arc::clone(&stage.world) };
            let store = stage.open();
            let head = wait(store.head(live())).unwrap();
            if head.recorded.chain_seq == 10 {
                assert!(!acknowledged, "cut at {cut_at}: it was acknowledged, and is gone");
                assert_eq!((head.durable.chain_seq, head.recorded.hash), (7, receipts[9].hash));
                assert_refused(&store, live());
                assert_eq!(accept(&store).unwrap().first_seq, 8);
                lost += 1;
            } else {
                accepted += 1;
            }
            // Once, whatever came before.
            assert!(matches!(accept(&store), Err(StoreError::Refused(_))));
            assert_valid(&store, live(), 8);
            let event = &everything(&store, live())[0];
            assert!(event.text.as_str().contains(&format!(r#""recorded_hash":"{}""#, receipts[9].hash)));
            append(&store, live(), vec![login("goes on")]);
            drop(store);
            let store = stage.open();
            assert_eq!(findings(&store), [], "cut at {cut_at}");
            assert_valid(&store, live(), 9);
        }
    }
    assert!(lost > 0 && accepted > 0, "both were met: {lost} {accepted}");
}

#[test]
fn nothing_follows_an_acceptance_that_the_mark_does_not_know() {
    let (stage, _) = cut_short();
    let store = stage.open();
    stage.disk.watch(|call| {
        let mark = call.path.ends_with("live/mark") || call.path.ends_with("live/mark.tmp");
        if mark { Err(full()) } else { Ok(()) }
    });
    let failed = wait(store.accept_loss(live(), "a".into()));
    assert!(matches!(failed, Err(StoreError::Control(_))), "{failed:?}");
    assert_refused(&store, live());
    // Accepting again writes the mark and seals nothing more.
    make_readable(&stage);
    let receipt = wait(store.accept_loss(live(), "b".into())).unwrap();
    assert_eq!(receipt.first_seq, 8);
    assert!(get(&store, live(), receipt.log_ids[0]).unwrap().text.as_str().contains(r#""reason":"a""#));
    append(&store, live(), vec![login("goes on")]);
    assert_valid(&store, live(), 9);
}

#[test]
fn the_acceptance_takes_the_place_of_damaged_last_records() {
    // Of the last frame alone, and of a batch of which the first record is still good. Whatever is replaced was counted, but for
    // a system chain.
    for (chain, batch) in [(live(), false), (live(), true), (system_chain(1), false), (system_chain(1), true)]
    {
        let (stage, other) = (Stage::new(), other(2));
        let store = stage.open();
        append(&store, chain, vec![login("a"), login("b")]);
        let drafts = if batch { vec![login("c"), login("d"), login("e")] } else { vec![login("c")] };
        let Outcome::Sealed(receipt) = append_once(&store, chain, drafts.clone(), key("k", "body"), Ulid(1))
        else {
            panic!("the key is free")
        };
        append(&store, other, vec![login("later")]);
        drop(store);
        let frame = stage.frames(1)[1];
        // In the text of the last record, before the idempotency record.
        stage.flip(&log(1), frame.at + frame.length - 84 - 40);
        let store = stage.open();
        assert_refused(&store, chain);
        let month = Month::of(MORNING_MS);
        let counted = |store: &EmbeddedStore| wait(store.usage(chain.tenant_id, month)).unwrap();
        let last = receipt.last_seq();
        let accepted = wait(store.accept_loss(chain, "bad sector".into())).unwrap();
        assert_eq!(accepted.first_seq, last);
        let after = counted(&store);
        for _ in 0..2 {
            assert_valid(&store, chain, last);
            assert_eq!(seqs(&store, chain), (1..=last).rev().collect::<Vec<_>>());
        }
        append(&store, chain, vec![login("goes on")]);
        drop(store);
        for _ in 0..2 {
            let store = stage.open();
            assert_valid(&store, chain, last + 1);
            assert_eq!(seqs(&store, chain), (1..=last + 1).rev().collect::<Vec<_>>());
            let expected = if chain.is_system() { (0, 0) } else { (last, last + 1) };
            assert_eq!((after, counted(&store)), expected);
            assert_valid(&store, other, 1);
        }
        // The client that was told of the lost event sends it again.
        let store = stage.open();
        let again = append_once(&store, chain, drafts, key("k", "body"), Ulid(2));
        assert!(matches!(again, Outcome::Sealed(_)), "{again:?}");
    }
}

#[test]
fn a_chain_that_may_have_ended_in_a_damaged_place_can_be_accepted_without_knowing_how_much_is_lost() {
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    append(&store, other(2), vec![login("b")]);
    append(&store, other(2), vec![login("c")]);
    let stage = {
        let killed = stage.killed();
        drop(store);
        killed
    };
    // No mark speaks for it, and a later group proves that it was on disk.
    let frames = stage.frames(1);
    stage.flip(&log(1), frames[1].at + IN_HEADER);
    let store = stage.open();
    assert!(findings(&store).contains(&Finding::HeadUnproven { chain: live() }), "{:?}", findings(&store));
    assert_refused(&store, live());
    assert_refused(&store, other(7));
    for (chain, from) in [(live(), 2), (other(7), 1)] {
        let receipt = wait(store.accept_loss(chain, "looked at all clients".into())).unwrap();
        assert_eq!(receipt.first_seq, from);
        let event = get(&store, chain, receipt.log_ids[0]).unwrap();
        let says =
            format!(r#"{{"lost_from":{from},"lost_to":null,"recorded_hash":"{}","#, event.sealed.prev_hash);
        assert!(event.text.as_str().contains(&says), "{}", event.text.as_str());
        append(&store, chain, vec![login("goes on")]);
    }
    drop(store);
    let store = stage.open();
    for (chain, events) in [(live(), 3), (other(7), 2)] {
        assert_valid(&store, chain, events);
        append(&store, chain, vec![login("goes on")]);
    }
}

#[test]
fn clients_cannot_be_taken_for_an_acceptance() {
    // The text of an acceptance that names the recorded head, in an event that does not have its action.
    let (stage, receipts) = cut_short();
    let store = stage.open();
    let metadata =
        format!(r#"{{"lost_from":8,"lost_to":10,"recorded_hash":"{}","reason":"x"}}"#, receipts[9].hash);
    drop(store);
    let forged = Stage::new();
    let store = forged.open();
    for n in 1..=7 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    append(&store, live(), vec![draft(&format!(r#"{{"action":"user.login","metadata":{metadata}}}"#))]);
    let (stage, _) = cut_short();
    stage.disk.put(&log(1), &forged.killed().read(&log(1)));
    drop(store);
    let store = stage.open();
    assert_refused(&store, live());
}

// ---- Numbers that cannot be -------------------------------------------------------------------------------------------

/// Changes bytes of a frame, and makes the checksums of its header and of its only record right.
fn tamper(stage: &Stage, segment: u64, frame: FrameAt, change: impl FnOnce(&mut [u8])) {
    let mut bytes = stage.read(&log(segment));
    let salt = bytes[24..40].to_vec();
    change(&mut bytes[frame.at..frame.at + frame.length]);
    let header = &mut bytes[frame.at..frame.at + FRAME_HEADER];
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&salt), &header[..FRAME_HEADER - 4]);
    header[FRAME_HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
    let record = frame.at + FRAME_HEADER;
    let end = record + u32_at(&bytes, record) as usize - 4;
    let mut seed = salt;
    seed.extend_from_slice(&frame.chain);
    seed.extend_from_slice(&bytes[frame.at + 64..frame.at + 72]);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&seed), &bytes[record..end]);
    bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    stage.disk.put(&log(segment), &bytes);
}

fn killed_with_three() -> Stage {
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..3 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let killed = stage.killed();
    drop(store);
    killed
}

#[test]
fn an_id_that_no_event_can_have_is_a_finding() {
    const LOG_ID: usize = FRAME_HEADER + 8;
    for id in [u128::MAX, u128::MAX - 1, u128::from(TIMESTAMP_MS_MAX + 1) << 80] {
        let stage = killed_with_three();
        tamper(&stage, 1, stage.frames(1)[2], |frame| {
            frame[LOG_ID..LOG_ID + 16].copy_from_slice(&Ulid(id).to_bytes());
        });
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            assert_eq!(found, [Finding::ImpossibleId { chain: live(), chain_seq: 3 }], "{id:x}");
            assert_refused(&store, live());
            assert_eq!(broken(verify(&store, live())).0, 3);
            let refused = wait(store.accept_loss(live(), "x".into()));
            assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
            append(&store, other(2), vec![login("goes on")]);
        }
    }
    // Behind such an id stands a damaged record, which has the lowest id that it can have had.
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    append(&store, live(), vec![login("b")]);
    append(&store, other(2), vec![login("c")]);
    let stage = {
        let killed = stage.killed();
        drop(store);
        killed
    };
    let frames = stage.frames(1);
    tamper(&stage, 1, frames[0], |frame| frame[LOG_ID..LOG_ID + 16].fill(0xFF));
    stage.flip(&log(1), frames[1].at + IN_TEXT);
    let store = stage.open();
    assert_refused(&store, live());
    assert!(!verify(&store, live()).valid());
}

#[test]
fn numbers_near_the_end_of_64_bits_are_findings() {
    // First seq and commit of a frame.
    for (at, what) in [(64, "seq"), (16, "commit")] {
        for value in [u64::MAX, u64::MAX - 1, (u64::MAX >> 1) + 1] {
            let stage = killed_with_three();
            tamper(&stage, 1, stage.frames(1)[1], |frame| {
                frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
            });
            let store = stage.open();
            let damaged = |finding: &Finding| matches!(finding, Finding::Damaged { segment: 1, .. });
            assert!(findings(&store).iter().any(damaged), "{what} {value}: {:?}", findings(&store));
            assert!(!verify(&store, live()).valid());
            append(&store, live(), vec![login("goes on")]);
        }
    }
}

#[test]
fn a_mark_with_numbers_that_cannot_be_is_a_finding() {
    // Commit and segment of its last record, then seq and id of a head in it.
    for (at, length) in [(8, 8), (16, 8), (64 + 32, 8), (64 + 40, 16)] {
        let stage = Stage::new();
        let store = stage.open();
        append(&store, live(), vec![login("a")]);
        drop(store);
        let mut bytes = stage.read(&live_file("mark"));
        // The last record, or the last one with a head.
        let (mut next, mut record) = (16, 0);
        while next < bytes.len() {
            if at < 64 || u32_at(&bytes, next + 44) > 0 {
                record = next;
            }
            next += u32_at(&bytes, next) as usize;
        }
        bytes[record + at..record + at + length].fill(0xFF);
        let end = record + u32_at(&bytes, record) as usize;
        let checksum = crc32c::crc32c(&bytes[record + 8..end]);
        bytes[record + 4..record + 8].copy_from_slice(&checksum.to_le_bytes());
        stage.disk.put(&live_file("mark"), &bytes);
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            match at {
                8 | 16 => assert!(found.contains(&Finding::MarkDamaged), "{at}: {found:?}"),
                96 => {
                    let lost = Finding::HeadLost { chain: live(), durable: 1, recorded: u64::MAX };
                    assert!(found.contains(&lost), "{found:?}");
                    assert_refused(&store, live());
                    assert_eq!(broken(verify(&store, live())).0, 2);
                }
                _ => {}
            }
            append(&store, other(2), vec![login("goes on")]);
            if at < 64 {
                break;
            }
        }
        if at == 96 {
            let store = stage.open();
            let receipt = wait(store.accept_loss(live(), "tampered".into())).unwrap();
            assert_eq!(receipt.first_seq, 2);
            assert_valid(&store, live(), 2);
        }
    }
}

#[test]
fn starting_again_and_again_leaves_few_segments() {
    for killed in [false, true] {
        let mut stage = Stage::new();
        append(&stage.open(), live(), vec![login("a")]);
        for _ in 0..150 {
            let store = stage.open();
            if killed {
                stage = stage.killed();
            }
            drop(store);
        }
        assert!(stage.segments().len() <= 3, "{:?}", stage.segments());
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("b")]);
        assert_valid(&store, live(), 2);
    }
}

#[test]
fn a_store_of_a_thousand_segments_has_few_files_open() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options {
        segment_bytes_first: 4 << 10,
        segment_bytes_max: 4 << 10,
        open_files_max: 200,
        allow_unsafe_storage: true,
        ..small(&StillWorld::new())
    };
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        links
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| target.starts_with(dir.path()))
            .count()
    };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    for _ in 0..1000 {
        append(&store, live(), vec![big(2_000)]);
    }
    let segments = || {
        let names = std::fs::read_dir(dir.path().join("live")).unwrap();
        names.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|x| x == "log")).count()
    };
    assert!(segments() >= 1000, "{}", segments());
    // For each log at most 200 that are only read, and those that are written.
    assert!(open_files() < 250, "while writing: {}", open_files());
    drop(store);
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 1000);
    assert_eq!(everything(&store, live()).len(), 1000);
    assert!(open_files() < 250, "after a start: {}", open_files());
}

#[test]
fn a_mark_that_cannot_be_written_makes_a_store_that_can_be_read() {
    let stage = Stage::new();
    let receipt = append(&stage.open(), live(), vec![login("a")]);
    for no_room in [false, true, false] {
        stage.disk.watch(move |call| match call.is(Op::Create, "live/mark.tmp") {
            true if no_room => Err(full()),
            true => Err(unreadable()),
            false => Ok(()),
        });
        let store = stage.open();
        let found = findings(&store);
        let refused = try_append(&store, live(), vec![login("x")]).unwrap_err();
        assert_eq!(store.ready(), Err(refused.clone()));
        match (no_room, &found[..], refused) {
            (true, [Finding::NoRoom { .. }], StoreError::NoRoom) => {}
            (false, [Finding::ReadOnly { .. }], StoreError::Poisoned(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(get(&store, live(), receipt.log_ids[0]).is_some());
        assert_valid(&store, live(), 1);
    }
    assert!(stage.segments().len() <= 2, "{:?}", stage.segments());
    stage.disk.unwatch();
    let store = stage.open();
    assert_eq!(findings(&store), []);
    append(&store, live(), vec![login("b")]);
    assert_valid(&store, live(), 2);
}

#[test]
fn a_failed_open_leaves_no_thread_behind_that_writes() {
    let stage = Stage::new();
    let made = Arc::new(AtomicUsize::new(0));
    stage.disk.watch(move |call| {
        if call.is(Op::List, "test") {
            eventually("a segment is being prepared", || made.load(SeqCst) == 2);
            return Err(unreadable());
        }
        if call.is(Op::Create, "live/next.seg") {
            made.fetch_add(1, SeqCst);
        }
        // The thread that prepares segments is slow, so that it is at it when the open fails.
        if call.path.ends_with("live/next.seg") && made.load(SeqCst) == 2 {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    let failed = stage.try_open(&stage.options());
    assert!(matches!(failed, Err(OpenError::Io { .. })), "{failed:?}");
    let calls = stage.disk.calls();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(stage.disk.calls(), calls, "someone is still at work");
    stage.disk.unwatch();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 1);
}

/// Makes the annotations of a record what a later version may write, and its checksum right.
fn annotate_as_a_later_version(stage: &Stage, segment: u64, frame: FrameAt) {
    let mut bytes = stage.read(&log(segment));
    let record = frame.at + FRAME_HEADER;
    let end = record + u32_at(&bytes, record) as usize - 4;
    assert!(u32_at(&bytes, record + 4) > 0, "it has annotations");
    bytes[record + 88] = 2;
    let mut seed = bytes[24..40].to_vec();
    seed.extend_from_slice(&frame.chain);
    seed.extend_from_slice(&frame.last_seq.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&seed), &bytes[record..end]);
    bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    stage.disk.put(&log(segment), &bytes);
}

/// Leaves an event that a later version may have written at the end of a log, behind an event in the same segment, in the one before, or none.
fn end_with_unknown_annotations(before: &str) -> Stage {
    let stage = Stage::new();
    let mut store = stage.open();
    if before != "nothing" {
        append(&store, live(), vec![login("known")]);
    }
    if before == "an event in the segment before" {
        drop(store);
        store = stage.open();
    }
    append(&store, live(), vec![login("unknown")]);
    let stage = stage.killed();
    let segment = *stage.segments().last().unwrap();
    annotate_as_a_later_version(&stage, segment, *stage.frames(segment).last().unwrap());
    stage
}

#[test]
fn unknown_annotations_in_an_unmarked_last_group_do_not_stop_a_start() {
    for before in ["nothing", "an event in the segment", "an event in the segment before"] {
        let stage = end_with_unknown_annotations(before);
        for _ in 0..2 {
            let store = stage.open();
            assert_eq!(store.ready(), Ok(()), "{before}");
            assert_eq!(everything(&store, live()).len(), usize::from(before != "nothing"), "{before}");
        }
    }
}

#[test]
fn a_stray_file_with_a_large_number_is_left_alone() {
    let stage = Stage::new();
    drop(stage.open());
    let stray = live_file("20261115.log");
    stage.disk.put(&stray, b"hello\n");
    for start in 1..=3 {
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("a")]);
        assert_valid(&store, live(), start);
    }
    assert_eq!(stage.read(&stray), b"hello\n");
    assert_eq!(stage.segments(), [1, 2, 3, 20_261_115]);
}

// Sizes, and what a verdict names.

#[test]
fn a_request_larger_than_a_frame_can_be_is_refused() {
    const FRAME_MAX: usize = 16 << 20;
    /// What a request takes besides the text of its only event.
    const OVERHEAD: usize = 88 + 84 + 92;
    let stage = Stage::new();
    let options = Options { segment_bytes_first: 17 << 20, segment_bytes_max: 17 << 20, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let around = big(0).text.as_str().len();
    let largest = FRAME_MAX - OVERHEAD - around;
    let refused = try_append(&store, live(), vec![big(largest + 1)]);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    append(&store, live(), vec![big(largest)]);
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 2);
    let stage = stage.killed();
    let store = stage.try_open(&Options { disk: Arc::new(stage.disk.clone()), ..options }).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 2);
}

#[test]
fn of_two_damaged_events_in_a_row_the_hash_that_is_named_is_the_recorded_heads() {
    let stage = Stage::new();
    let store = stage.open();
    let receipts: Vec<_> = (0..10).map(|n| append(&store, live(), vec![login(&format!("u{n}"))])).collect();
    drop(store);
    drop(stage.open());
    let frames = stage.frames(1);
    stage.flip(&log(1), frames[4].at + IN_TEXT);
    stage.flip(&log(1), frames[5].at + IN_TEXT);
    let store = stage.open();
    let verdict = verify(&store, live());
    assert_eq!(broken(verdict), (5, receipts[9].hash, Reason::Damaged));
    // Where the next event is whole, it names the hash.
    assert_eq!(broken(verify_window(&store, live(), 6, 10)), (6, receipts[5].hash, Reason::Damaged));
}

// What follows fails without the fixes that come with it.

#[test]
fn a_start_on_a_full_disk_shows_every_event_although_the_last_segment_is_empty() {
    for started_once_more in [false, true] {
        let stage = Stage::new();
        let store = stage.open();
        // The other log never had an event, and after one more start the last segment of this one has none either.
        let shown = append_with_keys(&stage, &store, 50);
        drop(store);
        if started_once_more {
            drop(stage.open());
        }
        stage.disk.watch(|call| if call.is(Op::Create, "next.seg") { Err(full()) } else { Ok(()) });
        for _ in 0..2 {
            let store = stage.try_open(&stage.options()).expect("a store that can be read");
            let found = store.findings();
            let modes: Vec<Mode> = found.iter().map(|(mode, _)| *mode).collect();
            assert_eq!(modes, [Mode::Live, Mode::Test], "{found:?}");
            let no_room = |(_, finding): &(Mode, Finding)| matches!(finding, Finding::NoRoom { .. });
            assert!(found.iter().all(no_room), "{found:?}");
            assert_read_only(&store, &shown);
        }
        stage.disk.unwatch();
        let store = stage.open();
        assert_eq!(findings(&store), []);
        append(&store, live(), vec![login("next")]);
        assert_valid(&store, live(), 51);
    }
}

#[test]
fn an_index_that_is_built_again_in_a_store_that_can_only_be_read_hides_no_event() {
    let stage = Stage::new();
    let store = stage.open();
    let shown = append_with_keys(&stage, &store, 10);
    let stage = stage.killed();
    stage.disk.watch(|call| if call.is(Op::Create, "live/next.seg") { Err(full()) } else { Ok(()) });
    let store = stage.open();
    // The columns of its first block.
    stage.flip(&live_file("00000001.idx"), 200);
    assert_read_only(&store, &shown);
}

#[test]
fn damage_without_a_readable_header_before_a_torn_group_is_damage() {
    assert_damage_before_a_torn_group_is_damage(IN_HEADER);
}

#[test]
fn the_last_marked_frame_stops_its_own_chain_only_even_if_its_header_is_damaged() {
    assert_a_damaged_marked_frame_stops_its_own_chain_only(IN_HEADER, true);
}

#[test]
fn an_event_with_unknown_annotations_is_never_replaced() {
    for before in ["nothing", "an event in the segment", "an event in the segment before"] {
        let stage = end_with_unknown_annotations(before);
        for start in 1..=3 {
            let store = stage.open();
            let found = findings(&store);
            let damaged = |finding: &Finding| matches!(finding, Finding::Damaged { .. });
            assert!(found.iter().any(damaged), "{before}, start {start}: {found:?}");
            assert_refused(&store, live());
        }
    }
}

#[test]
fn a_restored_segment_is_no_finding() {
    for place in [IN_HEADER, IN_TEXT] {
        let (stage, _) = damage_and_restore(place);
        for _ in 0..2 {
            assert_eq!(findings(&stage.open()), []);
        }
    }
}

#[test]
fn a_moved_group_counts_once_for_usage_even_when_the_segment_that_moved_it_is_gone() {
    for before in [0, 3] {
        let (stage, _) = move_a_group_twice(before);
        let usage = wait(stage.open().usage(live().tenant_id, Month::of(MORNING_MS))).unwrap();
        assert_eq!(usage, before + 2);
    }
}

#[test]
fn the_mark_catches_up_with_the_log_when_nothing_more_is_written() {
    let stage = Stage::new();
    let options = Options { tick: Duration::from_micros(50), ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let begun = Instant::now();
    let mut commit = 0;
    while begun.elapsed() < Duration::from_millis(1500) {
        // Many chains, so that a mark has time to come between the heads of a group and its end.
        let waiting: Vec<_> = (0..100)
            .map(|n| store.append(Append { chain: other(n), drafts: vec![login("a")], idempotency: None }))
            .collect();
        waiting.into_iter().for_each(|answer| drop(wait(answer).unwrap()));
        let segment = *stage.segments().last().unwrap();
        commit = stage.frames(segment).last().map_or(commit, |frame| frame.commit);
        eventually("the mark speaks for it", || stage.marks().last().unwrap().commit >= commit);
    }
}

#[test]
fn without_descriptors_a_read_fails_and_neither_leaves_out_events_nor_calls_them_damaged() {
    let disk = SimDisk::new();
    let options = Options { disk: Arc::new(disk.clone()), open_files_max: 1, ..small(&StillWorld::new()) };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let mut receipts = Vec::new();
    for number in 0..1000 {
        receipts.push(append(&store, live(), vec![login(&format!("actor {number}"))]));
    }
    let names = || disk.file_names(&Path::new(DIR).join("live"));
    let indexed = |number: u32| names().contains(&format!("{number:08}.idx"));
    eventually("two segments are full and have their index", || indexed(1) && indexed(2));
    assert_valid(&store, live(), 1000);
    disk.watch(|call| {
        let segment = call.op == Op::Open && call.path.extension().is_some_and(|ending| ending == "log");
        // Too many open files.
        if segment { Err(io::Error::from_raw_os_error(24)) } else { Ok(()) }
    });
    let list = List { filter: Filter::default(), before_seq: None, limit: 2000, bytes_max: 64 << 20 };
    let failed = |outcome: Result<(), StoreError>| {
        assert!(matches!(outcome, Err(StoreError::Read(_))), "{outcome:?}");
    };
    failed(wait(store.list(live(), list.clone())).map(drop));
    failed(wait(sealog_store::verify::whole(&store, live())).map(drop));
    failed(wait(store.audit(vec![live()], Arc::default())).map(drop));
    // One of the two first segments may be the file that is open.
    let firsts = [&receipts[0], &receipts[receipts.len() / 3]].map(|receipt| receipt.log_ids[0]);
    let read = firsts.map(|log_id| wait(store.get(live(), log_id)));
    assert!(read.iter().any(Result::is_err) && !read.iter().any(|read| matches!(read, Ok(None))), "{read:?}");
    assert!(!read.iter().any(|read| matches!(read, Err(StoreError::Damaged { .. }))), "{read:?}");
    disk.unwatch();
    assert_eq!(wait(store.list(live(), list)).unwrap().items.len(), 1000);
    assert_valid(&store, live(), 1000);
}
