//! Indexes: what a hostile client can make of them, what a damaged or an old one does to answers, and what
//! comes after them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_core::verify::Item;
use sealog_store::counts::{Days, day_of};
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::reference::ReferenceStore;
use sealog_store::{IDEMPOTENCY_RETENTION_MS, IdempotencyKey, List, Receipt, Store, WantedKeys};
use sealog_testing::sim::{DIR, Op, SimDisk};
use sealog_testing::*;
use siphasher::sip::SipHasher13;

/// The names of the constants in `embedded/read/reader.rs`.
const LIST_MISSES_MAX: usize = 256;
const LIST_MISS_BYTES_MAX: usize = 1 << 20;
const LIST_PIECES_MAX: usize = 1024;

struct Stage {
    disk: SimDisk,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { disk: SimDisk::new(), world: StillWorld::new() }
    }

    /// Two chains in five segments, four of which have index files, and 24 requests with keys.
    fn filled() -> Stage {
        let stage = Stage::new();
        for run in 0..5 {
            // Each start begins a segment, and writes the index of the one before.
            let store = stage.open();
            for (of, chain) in [live(), chain(2, 1, Mode::Live)].into_iter().enumerate() {
                for n in 0..3 {
                    let drafts = (0..3).map(|at| {
                        let (action, actor) = (["user.login", "user.logout"][at % 2], (run + n) % 4);
                        let resource = if at == 2 { String::new() } else { format!(r#","resource":"r{n}""#) };
                        draft(&format!(r#"{{"action":"{action}","actor_id":"a{actor}"{resource}}}"#))
                    });
                    let (drafts, name) = (drafts.collect(), format!("{of} {run} {n}"));
                    if run < 4 {
                        append_once(&store, chain, drafts, key(&name, &name), Ulid(1));
                    } else {
                        append(&store, chain, drafts);
                    }
                    stage.world.advance(1000);
                }
            }
        }
        assert_eq!(stage.salt_ids().len(), 4);
        stage
    }

    /// The same, whose index files have hashes that say nothing any more.
    fn with_lost_salt() -> Stage {
        let stage = Stage::filled();
        stage.disk.replace_index_salt();
        stage
    }

    fn options(&self) -> Options {
        Options { disk: Arc::new(self.disk.clone()), tick: Duration::from_secs(3600), ..small(&self.world) }
    }

    fn open(&self) -> EmbeddedStore {
        let store = EmbeddedStore::open(Path::new(DIR), &self.options()).unwrap();
        assert_eq!(store.findings(), []);
        store
    }

    fn flip(&self, path: &Path, at: usize) {
        let mut bytes = self.disk.content(path).unwrap();
        bytes[at] ^= 0x10;
        self.disk.put(path, &bytes);
    }

    /// The id of the salt in each index file of the live log, by the numbers of their segments.
    fn salt_ids(&self) -> BTreeMap<u64, usize> {
        let names = self.disk.file_names(&Path::new(DIR).join("live"));
        let numbers = names.iter().filter_map(|name| name.strip_suffix(".idx")?.parse().ok());
        numbers.map(|number| (number, u64_at(&self.disk.content(&index_path(number)).unwrap(), 32))).collect()
    }

    /// Those of the old salts that are still there.
    fn stale(&self, old: &BTreeMap<u64, usize>) -> usize {
        let ids = self.salt_ids();
        old.iter().filter(|(number, id)| ids.get(number) == Some(id)).count()
    }
}

fn index_path(segment: u64) -> PathBuf {
    Path::new(DIR).join(format!("live/{segment:08}.idx"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

/// The sections of an index file by kind, as `docs/format.md` describes them: where each stands.
fn sections(bytes: &[u8]) -> BTreeMap<u16, std::ops::Range<usize>> {
    let mut at = 64;
    (0..u32_at(bytes, 40))
        .map(|_| {
            let (offset, length) = (u64_at(bytes, at + 8), u64_at(bytes, at + 16));
            let section = (u16_at(bytes, at + 2), offset..offset + length);
            at += usize::from(u16_at(bytes, at));
            section
        })
        .collect()
}

fn quoted(text: &str) -> Option<String> {
    Some(format!("\"{text}\""))
}

fn of_actor(actor: &str) -> Filter {
    Filter { actor_id: quoted(actor), ..Filter::default() }
}

fn by(action: &str, actor: &str) -> sealog_core::event::Draft {
    draft(&format!(r#"{{"action":"{action}","actor_id":"{actor}"}}"#))
}

fn seqs(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|event| event.sealed.chain_seq).collect()
}

/// What a walk along a list has shown.
struct Walk {
    seqs: Vec<u64>,
    /// For each call: how many items it had, and how many reads it made.
    calls: Vec<(usize, usize)>,
}

fn walk(store: &dyn Store, filter: &Filter, limit: usize, reads: &AtomicUsize) -> Walk {
    let mut walk = Walk { seqs: Vec::new(), calls: Vec::new() };
    let mut before_seq = None;
    loop {
        let before = reads.load(Ordering::SeqCst);
        let list = List { filter: filter.clone(), before_seq, limit, bytes_max: 1 << 20 };
        let chunk = wait(store.list(live(), list)).unwrap();
        walk.seqs.extend(seqs(&chunk.items));
        walk.calls.push((chunk.items.len(), reads.load(Ordering::SeqCst) - before));
        match chunk.resume {
            Some(resume) => before_seq = Some(resume),
            None => return walk,
        }
    }
}

/// Texts with the same CRC32C, of letters that any client may send. A CRC is affine in the bits of its input:
/// of 48 choices between two letters, 16 are free.
fn texts_with_one_crc(count: u64) -> Vec<String> {
    let text = |choices: u64| -> String {
        (0..48).map(|bit| if choices >> bit & 1 == 1 { 'b' } else { 'a' }).collect()
    };
    let crc = |choices: u64| crc32c::crc32c(format!("\"{}\"", text(choices)).as_bytes());
    let mut basis: Vec<(u32, u64)> = Vec::new();
    let mut kernel: Vec<u64> = Vec::new();
    for bit in 0..48 {
        let start = (crc(1 << bit) ^ crc(0), 1 << bit);
        let (sum, choices) = basis.iter().fold(start, |(sum, choices), (bits, with)| {
            if sum ^ bits < sum { (sum ^ bits, choices ^ with) } else { (sum, choices) }
        });
        if sum == 0 {
            kernel.push(choices);
        } else {
            basis.push((sum, choices));
            basis.sort_unstable_by_key(|(bits, _)| std::cmp::Reverse(*bits));
        }
    }
    let combined = |number: u64| {
        let chosen = (0..kernel.len()).filter(|at| number >> at & 1 == 1);
        chosen.fold(0, |choices, at| choices ^ kernel[at])
    };
    let texts: Vec<String> = (0..count).map(|number| text(combined(number))).collect();
    assert!(texts.iter().all(|text| crc32c::crc32c(format!("\"{text}\"").as_bytes()) == crc(0)));
    texts
}

#[test]
fn a_client_cannot_choose_values_that_collide_in_an_index() {
    let stage = Stage::new();
    let mut store = stage.open();
    let actors = texts_with_one_crc(400);
    for actors in actors.chunks(20) {
        append(&store, live(), actors.iter().map(|actor| by("user.login", actor)).collect());
    }
    // In memory, then in index files.
    for restarted in [false, true] {
        if restarted {
            drop(store);
            store = stage.open();
        }
        let reads = stage.disk.count_reads(".log");
        for (seq, actor) in (1..).zip(&actors).step_by(37) {
            let walk = walk(&store, &of_actor(actor), 50, &reads);
            assert_eq!(walk.seqs, [seq]);
            assert!(walk.calls.iter().all(|(_, reads)| *reads <= 2), "{actor}: {:?}", walk.calls);
        }
        stage.disk.unwatch();
    }
}

/// Two texts with the same hash under the salt of these tests, whose randomness is always the same.
fn texts_that_collide() -> (String, String) {
    let salted = SipHasher13::new_with_key(&[7; 16]);
    let mut known: HashMap<u64, u32> = HashMap::new();
    for number in 0.. {
        let hash = salted.hash(format!("\"actor {number}\"").as_bytes()) & 0xffff_ffff;
        if let Some(earlier) = known.insert(hash, number) {
            return (format!("actor {earlier}"), format!("actor {number}"));
        }
    }
    unreachable!()
}

/// 2,000 events of one actor, and a few of another that has the same hash.
fn fill_with_collisions(store: &dyn Store, common: &str, rare: &str) -> Vec<u64> {
    const RARE: [u64; 5] = [1, 700, 701, 1500, 2000];
    for batch in 0..20 {
        let drafts = (batch * 100 + 1..=batch * 100 + 100)
            .map(|seq| by("user.login", if RARE.contains(&seq) { rare } else { common }));
        append(store, live(), drafts.collect());
    }
    RARE.into_iter().rev().collect()
}

#[test]
fn a_list_whose_candidates_all_collide_reads_a_bounded_number_of_records_a_call_and_misses_no_event() {
    let (common, rare) = texts_that_collide();
    let stage = Stage::new();
    let mut store = stage.open();
    let expected = fill_with_collisions(&store, &common, &rare);
    for restarted in [false, true] {
        if restarted {
            drop(store);
            store = stage.open();
        }
        let reads = stage.disk.count_reads(".log");
        for limit in [1, 2, 50] {
            let walk = walk(&store, &of_actor(&rare), limit, &reads);
            assert_eq!(walk.seqs, expected, "{limit} at a time");
            let most = walk.calls.iter().map(|(_, reads)| *reads).max().unwrap();
            assert!(most <= LIST_MISSES_MAX + limit, "{most} records in a call");
            // One event at a time, each record is a read; a page of them takes in neighbours with one.
            assert!(limit > 1 || walk.calls.contains(&(0, LIST_MISSES_MAX)), "{:?}", walk.calls);
            let looked_at = walk.calls.len() * (LIST_MISSES_MAX + limit);
            assert!(looked_at >= 2000, "the values do not collide: {:?}", walk.calls);
            assert!(walk.calls.iter().any(|(items, _)| *items == 0), "{:?}", walk.calls);
        }
        stage.disk.unwatch();
    }
    let reference = ReferenceStore::new(Arc::clone(&stage.world) as _);
    fill_with_collisions(&reference, &common, &rare);
    let walk = walk(&reference, &of_actor(&rare), 50, &AtomicUsize::new(0));
    assert_eq!(walk.seqs, expected);
    assert!(walk.calls.iter().any(|(items, _)| *items == 0), "{:?}", walk.calls);
}

#[test]
fn a_page_of_neighbours_is_a_few_reads_and_one_event_is_a_single_small_one() {
    let stage = Stage::new();
    let mut store = stage.open();
    for batch in 0..10 {
        let actor = |n: u64| format!("actor {}", batch * 100 + n);
        append(&store, live(), (0..100).map(|n| by("user.login", &actor(n))).collect());
    }
    for restarted in [false, true] {
        if restarted {
            drop(store);
            store = stage.open();
        }
        let (reads, largest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, longest) = (Arc::clone(&reads), Arc::clone(&largest));
        stage.disk.watch(move |call| {
            if call.op == Op::Read && call.is_asked_for() && call.path.to_string_lossy().ends_with(".log") {
                counted.fetch_add(1, Ordering::SeqCst);
                let length = usize::try_from(call.bytes.end - call.bytes.start).unwrap();
                longest.fetch_max(length, Ordering::SeqCst);
            }
            Ok(())
        });
        let walk = walk(&store, &Filter::default(), 100, &reads);
        assert_eq!(walk.seqs, (1..=1000).rev().collect::<Vec<_>>());
        // A page may lie in several segments and blocks.
        assert!(walk.calls.iter().all(|(_, reads)| *reads <= 8), "{:?}", walk.calls);
        assert!(largest.load(Ordering::SeqCst) <= 66 << 10, "{largest:?}");
        reads.store(0, Ordering::SeqCst);
        largest.store(0, Ordering::SeqCst);
        list(&store, live(), &Filter::default(), None, 1);
        assert_eq!((reads.load(Ordering::SeqCst), largest.load(Ordering::SeqCst)), (1, 1024));
        stage.disk.unwatch();
    }
}

/// Records of other chains lie between those of a page. A sector that cannot be read is an error for whoever
/// wants what is in it, and for nobody else.
#[test]
fn a_bad_sector_in_a_record_between_those_of_a_page_takes_none_of_them_with_it() {
    let stage = Stage::new();
    let store = stage.open();
    let (mine, other) = (live(), chain(1, 2, Mode::Live));
    for n in 0..40 {
        append(&store, mine, vec![by("user.login", &format!("mine {n}"))]);
        append(&store, other, vec![by("user.login", &format!("of another {n}"))]);
    }
    let log =
        stage.disk.file_names(&Path::new(DIR).join("live")).into_iter().filter(|name| name.ends_with(".log"));
    let (file, at) = log
        .filter_map(|name| {
            let path = Path::new(DIR).join("live").join(name);
            let bytes = stage.disk.content(&path)?;
            let at = bytes.windows(13).position(|text| text == b"of another 35")?;
            Some((path, at as u64))
        })
        .next()
        .unwrap();
    stage.disk.watch(move |call| {
        let is_hit = call.bytes.start <= at && at < call.bytes.end;
        if call.op == Op::Read && call.path == file && is_hit {
            Err(io::Error::other("bad sector"))
        } else {
            Ok(())
        }
    });
    let seqs = |events: Vec<StoredEvent>| seqs(&events);
    assert_eq!(seqs(list(&store, mine, &Filter::default(), None, 40)), (1..=40).rev().collect::<Vec<_>>());
    let everything = List { filter: Filter::default(), before_seq: None, limit: 40, bytes_max: 1 << 20 };
    assert!(wait(store.list(other, everything)).is_err());
    stage.disk.unwatch();
}

#[test]
fn a_list_reads_a_bounded_number_of_bytes_of_records_that_do_not_match() {
    let (common, rare) = texts_that_collide();
    let stage = Stage::new();
    let options = Options { segment_bytes_first: 4 << 20, segment_bytes_max: 4 << 20, ..stage.options() };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let large = |actor: &str| {
        let padding = "x".repeat(300 << 10);
        draft(&format!(r#"{{"action":"a.b","actor_id":"{actor}","metadata":{{"x":"{padding}"}}}}"#))
    };
    append(&store, live(), vec![large(&rare)]);
    for _ in 0..20 {
        append(&store, live(), vec![large(&common)]);
    }
    let bytes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&bytes);
    stage.disk.watch(move |call| {
        if call.op == Op::Read && call.is_asked_for() && call.path.to_string_lossy().ends_with(".log") {
            let length = usize::try_from(call.bytes.end - call.bytes.start).unwrap();
            counted.fetch_add(length, Ordering::SeqCst);
        }
        Ok(())
    });
    let walk = walk(&store, &of_actor(&rare), 50, &bytes);
    assert_eq!(walk.seqs, [1]);
    let most = walk.calls.iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(most <= LIST_MISS_BYTES_MAX + (640 << 10), "{most} bytes in a call");
    assert!(walk.calls.len() >= 5, "{:?}", walk.calls);
}

#[test]
fn two_frequent_values_that_never_meet_cost_no_record_and_a_bounded_number_of_index_pieces_a_call() {
    const SEGMENTS: u64 = 1100;
    let stage = Stage::new();
    // One event fits in a segment, and each has its own index file.
    let options = Options { segment_bytes_first: 1500, segment_bytes_max: 1500, ..stage.options() };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    let padding = "x".repeat(600);
    for n in 0..SEGMENTS {
        let (action, actor) = if n % 2 == 0 { ("a.b", "x") } else { ("c.d", "y") };
        let body = format!(r#"{{"action":"{action}","actor_id":"{actor}","metadata":{{"x":"{padding}"}}}}"#);
        append(&store, live(), vec![draft(&body)]);
    }
    // A stop waits until every full segment has its index file.
    drop(store);
    assert!(stage.salt_ids().len() > LIST_PIECES_MAX, "{} segments", stage.salt_ids().len());
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    // What is not counted yet is read in the background.
    let days = Days::new(0, day_of(MORNING_MS) + 1);
    eventually("everything is counted", || wait(store.counts(live(), days)).unwrap().uncounted == 0);
    let filter = Filter { action: quoted("a.b"), ..of_actor("y") };
    let (logs, indexes) = (stage.disk.count_reads(".log"), Arc::new(AtomicUsize::new(0)));
    let (of_logs, of_indexes) = (Arc::clone(&logs), Arc::clone(&indexes));
    stage.disk.watch(move |call| {
        let name = call.path.to_string_lossy();
        if call.op == Op::Read && call.is_asked_for() && name.ends_with(".log") {
            of_logs.fetch_add(1, Ordering::SeqCst);
        } else if call.op == Op::Read && call.is_asked_for() && name.ends_with(".idx") {
            of_indexes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let walked = walk(&store, &filter, 50, &indexes);
    assert!(walked.seqs.is_empty());
    assert_eq!(logs.load(Ordering::SeqCst), 0, "no record has both");
    let most = walked.calls.iter().map(|(_, reads)| *reads).max().unwrap();
    assert!((900..LIST_PIECES_MAX + 5).contains(&most), "{:?}", walked.calls);
    assert!(walked.calls.len() >= 2, "{:?}", walked.calls);
    // The same walk over values that do meet.
    let filter = Filter { action: quoted("a.b"), ..of_actor("x") };
    let expected: Vec<u64> = (1..=SEGMENTS).rev().filter(|seq| seq % 2 == 1).collect();
    assert_eq!(walk(&store, &filter, 50, &indexes).seqs, expected);
}

fn stage_segments(stage: &Stage) -> u64 {
    let names = stage.disk.file_names(&Path::new(DIR).join("live"));
    names.iter().filter(|name| name.ends_with(".log")).count() as u64
}

/// Compares lists by every combination of some values with what a look at every event gives.
#[track_caller]
fn assert_lists_are_right(store: &dyn Store, chain: ChainId) {
    let all: Vec<StoredEvent> = range(store, chain, 1, u64::MAX >> 1, 1 << 20)
        .into_iter()
        .map(|item| match item {
            Item::Event(event) => *event,
            Item::Damaged { chain_seq } => panic!("event {chain_seq} is damaged"),
        })
        .collect();
    assert!(all.len() >= 30);
    let (early_ms, late_ms) = (all[all.len() / 4].timestamp_ms, all[all.len() * 3 / 4].timestamp_ms);
    let values = |of: fn(&StoredEvent) -> Option<&str>| {
        let mut values: Vec<Option<String>> = all.iter().map(|event| of(event).map(str::to_owned)).collect();
        values.push(quoted("absent"));
        values.sort();
        values.dedup();
        values
    };
    let actions = values(|event| Some(event.text.fields().action));
    let mut actors = values(|event| event.text.fields().actor_id);
    let mut resources = values(|event| event.text.fields().resource);
    actors.push(None);
    resources.push(None);
    for action in actions.iter().cloned().chain([None]) {
        for actor_id in &actors {
            for resource in &resources {
                for until_ms in [None, Some(late_ms)] {
                    let filter = Filter {
                        action: action.clone(),
                        actor_id: actor_id.clone(),
                        resource: resource.clone(),
                        from_ms: until_ms.map(|_| early_ms),
                        until_ms,
                        ..Filter::default()
                    };
                    let expected: Vec<StoredEvent> =
                        all.iter().rev().filter(|event| filter.matches(event)).cloned().collect();
                    assert_eq!(list(store, chain, &filter, None, 1000), expected, "{filter:?}");
                }
            }
        }
    }
}

/// The keys that were used are answered as they were, and nothing is written for them.
#[track_caller]
fn assert_keys_are_kept(store: &EmbeddedStore) {
    let mut looked_at = 0;
    for (chain, head) in wait(store.heads()).unwrap() {
        // They stand in the log itself.
        let wanted = WantedKeys { from: 1, received_after_ms: 0, limit: 1000 };
        for kept in wait(store.kept_keys(chain, wanted)).unwrap() {
            let answer = append_once(store, chain, vec![login("never")], kept.key, Ulid(9));
            let Outcome::Replayed(receipt) = answer else { panic!("{kept:?}: {answer:?}") };
            assert_eq!((receipt.request_id, receipt.first_seq), (Some(kept.request_id), kept.first_seq));
            let another_body = IdempotencyKey { fingerprint: Hash([1; 32]), ..kept.key };
            let answer = append_once(store, chain, vec![login("never")], another_body, Ulid(9));
            assert_eq!(answer, Outcome::Conflict);
            looked_at += 1;
        }
        assert_eq!(wait(store.head(chain)).unwrap().durable, head);
    }
    assert_eq!(looked_at, 24);
}

#[track_caller]
fn assert_everything_is_right(store: &EmbeddedStore) {
    let heads = wait(store.heads()).unwrap();
    assert_eq!(heads.len(), 2);
    for (chain, _) in heads {
        assert_lists_are_right(store, chain);
        assert!(verify(store, chain).valid());
    }
    assert_keys_are_kept(store);
}

#[test]
fn index_files_whose_salt_is_lost_answer_at_once_and_are_rebuilt_in_the_background() {
    let stage = Stage::with_lost_salt();
    let old = stage.salt_ids();
    let gate = Arc::new(Gate::default());
    let _opener = Opener(&gate);
    gate.close();
    let held = Arc::clone(&gate);
    let is_old = {
        let old = old.clone();
        move |path: &Path| old.keys().any(|number| path.ends_with(format!("{number:08}.idx.tmp")))
    };
    stage.disk.watch(move |call| {
        if call.op == Op::Create && is_old(call.path) {
            held.pass();
        }
        Ok(())
    });
    let store = stage.open();
    eventually("the rebuild is held at its first file", || gate.waiting() == 1);
    assert_eq!(stage.stale(&old), old.len());
    assert_everything_is_right(&store);
    let (first, _) = wait(store.heads()).unwrap()[0];
    append(&store, first, vec![login("meanwhile")]);
    gate.open();
    eventually("all index files are new", || stage.stale(&old) == 0);
    assert_everything_is_right(&store);
    drop(store);
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    stage.disk.watch(move |call| {
        if call.op == Op::Create && call.path.to_string_lossy().ends_with(".idx.tmp") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let store = stage.open();
    assert_everything_is_right(&store);
    drop(store);
    assert_eq!(written.load(Ordering::SeqCst), 1, "that of the last segment");
}

#[test]
fn a_kill_or_a_power_cut_while_index_files_are_rebuilt_is_harmless() {
    let rebuilt_at_kill = |kill_at: usize, cut: Option<u64>| {
        let stage = Stage::with_lost_salt();
        let old = stage.salt_ids();
        let gate = Arc::new(Gate::default());
        let _opener = Opener(&gate);
        let (held, calls) = (Arc::clone(&gate), AtomicUsize::new(0));
        gate.close();
        stage.disk.watch(move |call| {
            let name = call.path.to_string_lossy();
            let of_index = name.ends_with(".idx.tmp") || (call.op == Op::Rename && name.ends_with(".idx"));
            if of_index && calls.fetch_add(1, Ordering::SeqCst) >= kill_at {
                held.pass();
            }
            Ok(())
        });
        // The start itself writes the index of the last segment.
        let disk = stage.disk.clone();
        let options = stage.options();
        let opening = std::thread::spawn(move || EmbeddedStore::open(Path::new(DIR), &options).unwrap());
        eventually("the rebuild has come so far", || gate.waiting() == 1);
        let disk = match cut {
            None => disk.after_kill(),
            Some(seed) => disk.after_power_cut(&mut Dice::new(seed)),
        };
        gate.open();
        drop(opening.join().unwrap());
        let after = Stage { disk, world: Arc::clone(&stage.world) };
        let left = after.stale(&old);
        let store = EmbeddedStore::open(Path::new(DIR), &after.options()).unwrap();
        let harmless = |finding: &Finding| matches!(finding, Finding::TornTail { .. });
        assert!(store.findings().iter().all(|(_, finding)| harmless(finding)), "{:?}", store.findings());
        assert_everything_is_right(&store);
        eventually("all index files are new", || after.stale(&old) == 0);
        assert_everything_is_right(&store);
        old.len() - left
    };
    // Creating, writing, syncing and renaming of one file after the other.
    let rebuilt: Vec<usize> = (4..16).map(|kill_at| rebuilt_at_kill(kill_at, None)).collect();
    assert!(rebuilt.contains(&0) && rebuilt.contains(&2), "{rebuilt:?}");
    for seed in 0..6 {
        rebuilt_at_kill(7 + usize::try_from(seed).unwrap(), Some(seed));
    }
}

#[test]
fn a_salt_that_is_damaged_or_missing_is_made_anew_and_the_indexes_with_it() {
    let stage = Stage::filled();
    let path = Path::new(DIR).join("index.salt");
    let salt = stage.disk.content(&path).unwrap();
    assert_eq!(salt[12..28], [7; 16]);
    let id = |stage: &Stage| u64_at(&stage.disk.content(&index_path(1)).unwrap(), 32);
    let before = id(&stage);
    stage.disk.replace_index_salt();
    let store = stage.open();
    assert_everything_is_right(&store);
    eventually("the index is made with the other salt", || id(&stage) != before);
    assert_everything_is_right(&store);
    drop(store);
    // Here by the same dice as the first time.
    for lost in [Some(&salt[..20]), None] {
        match lost {
            Some(content) => stage.disk.put(&path, content),
            None => stage.disk.delete(&path),
        }
        let store = stage.open();
        assert_eq!(stage.disk.content(&path).unwrap(), salt);
        assert_everything_is_right(&store);
        eventually("the index is made with the salt", || id(&stage) == before);
        drop(store);
    }
}

#[test]
fn a_salt_that_cannot_be_read_is_not_replaced() {
    let stage = Stage::new();
    drop(stage.open());
    let path = Path::new(DIR).join("index.salt");
    let salt = stage.disk.content(&path);
    stage.disk.watch(|call| {
        if call.is(Op::Read, "index.salt") { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    });
    assert!(EmbeddedStore::open(Path::new(DIR), &stage.options()).is_err());
    stage.disk.unwatch();
    assert_eq!(stage.disk.content(&path), salt);
}

/// Makes the checksum of header and directory right again.
fn put_header_checksum(bytes: &mut [u8]) {
    let directory_end = 64 + u32_at(bytes, 44) as usize;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[64..directory_end]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
}

/// An index file with one more section, of a kind that this version does not know and with a name.
fn with_unknown_column(bytes: &[u8]) -> Vec<u8> {
    let name = b"metadata.region";
    let entry_len = 40 + name.len();
    let directory_end = 64 + u32_at(bytes, 44) as usize;
    let mut out = bytes[..directory_end].to_vec();
    let mut at = 64;
    while at < directory_end {
        let moved = u64_at(bytes, at + 8) + entry_len;
        out[at + 8..at + 16].copy_from_slice(&(moved as u64).to_le_bytes());
        at += usize::from(u16_at(bytes, at));
    }
    let mut entry = u16::try_from(entry_len).unwrap().to_le_bytes().to_vec();
    entry.extend_from_slice(&16u16.to_le_bytes());
    entry.extend_from_slice(&3u32.to_le_bytes());
    entry.extend_from_slice(&((bytes.len() + entry_len) as u64).to_le_bytes());
    entry.extend_from_slice(&12u64.to_le_bytes());
    entry.extend_from_slice(&[0; 16]);
    entry.extend_from_slice(name);
    assert_eq!(entry.len(), entry_len);
    // In front of those that are known, so that it has to be passed over.
    out.splice(64..64, entry);
    let entries = u32_at(bytes, 40) + 1;
    out[40..44].copy_from_slice(&entries.to_le_bytes());
    let directory_len = u32::try_from(out.len() - 64).unwrap();
    out[44..48].copy_from_slice(&directory_len.to_le_bytes());
    put_header_checksum(&mut out);
    out.extend_from_slice(&bytes[directory_end..]);
    out.extend_from_slice(b"twelve bytes");
    out
}

#[test]
fn an_index_file_of_an_unknown_version_is_built_again_from_its_segment() {
    for version in [2u32, 4] {
        let stage = Stage::filled();
        let whole = stage.disk.content(&index_path(1)).unwrap();
        let mut other = whole.clone();
        other[8..12].copy_from_slice(&version.to_le_bytes());
        put_header_checksum(&mut other);
        stage.disk.put(&index_path(1), &other);
        let store = stage.open();
        assert_eq!(stage.disk.content(&index_path(1)).unwrap(), whole);
        assert_everything_is_right(&store);
    }
}

#[test]
fn a_reader_passes_over_a_column_that_it_does_not_know() {
    let stage = Stage::filled();
    for number in stage.salt_ids().into_keys() {
        let path = index_path(number);
        let changed = with_unknown_column(&stage.disk.content(&path).unwrap());
        stage.disk.put(&path, &changed);
    }
    let indexes = |stage: &Stage| -> Vec<Vec<u8>> {
        stage.salt_ids().keys().map(|number| stage.disk.content(&index_path(*number)).unwrap()).collect()
    };
    let before = indexes(&stage);
    let store = stage.open();
    assert_everything_is_right(&store);
    drop(store);
    assert_eq!(indexes(&stage)[..before.len()], before, "none was taken for damaged and built again");
}

/// Events with keys in a sealed segment, and the places of its index file that hold the keys.
fn stage_with_keys() -> (Stage, Vec<Receipt>, Vec<std::ops::Range<usize>>) {
    let stage = Stage::new();
    let store = stage.open();
    let mut receipts = Vec::new();
    // More than one page of keys.
    for n in 0..150u32 {
        let name = format!("key {n}");
        let answer = append_once(&store, live(), vec![login("x")], key(&name, &name), Ulid(u128::from(n)));
        let Outcome::Sealed(receipt) = answer else { panic!("{answer:?}") };
        receipts.push(receipt);
    }
    drop(store);
    drop(stage.open());
    assert_eq!(stage_segments(&stage), 2, "all keys are in one segment");
    let sections = sections(&stage.disk.content(&index_path(1)).unwrap());
    let keys = [4, 5].map(|kind| sections[&kind].clone()).to_vec();
    assert_eq!(keys[0].len(), 150 * 28 + 2 * 4);
    (stage, receipts, keys)
}

#[track_caller]
fn assert_replayed(store: &EmbeddedStore, receipts: &[Receipt], n: usize) {
    let name = format!("key {n}");
    let answer = append_once(store, live(), vec![login("twice")], key(&name, &name), Ulid(9));
    assert_eq!(answer, Outcome::Replayed(receipts[n].clone()), "{name}");
}

#[test]
fn a_flipped_bit_among_the_keys_of_an_index_never_frees_a_key_and_the_index_is_built_again() {
    let (stage, receipts, places) = stage_with_keys();
    let index = stage.disk.content(&index_path(1)).unwrap();
    let store = stage.open();
    for place in places {
        for at in place.step_by(101) {
            // Behind the back of a store that has found it good when it was opened.
            stage.flip(&index_path(1), at);
            for n in (0..150).step_by(13) {
                assert_replayed(&store, &receipts, n);
            }
            assert_eq!(stage.disk.content(&index_path(1)).unwrap(), index, "byte {at}: built again");
        }
    }
    assert_valid(&store, live(), 150);
}

/// Lets no index file be written, and waits until that was tried for each of these.
fn refuse_index_files(stage: &Stage) -> Arc<AtomicUsize> {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    stage.disk.watch(move |call| {
        if call.op == Op::Create && call.path.to_string_lossy().ends_with(".idx.tmp") {
            counted.fetch_add(1, Ordering::SeqCst);
            // Not for want of room, for which it would be tried again.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    });
    refused
}

#[test]
fn a_flipped_bit_among_the_keys_of_an_index_whose_salt_is_lost_never_frees_a_key() {
    for at in [3, 30, 60] {
        let stage = Stage::with_lost_salt();
        let old = stage.salt_ids();
        let refused = refuse_index_files(&stage);
        let store = stage.open();
        eventually("the background has given up", || refused.load(Ordering::SeqCst) > old.len());
        assert_eq!(stage.stale(&old), old.len());
        assert_everything_is_right(&store);
        stage.disk.unwatch();
        for number in old.into_keys() {
            let keys = sections(&stage.disk.content(&index_path(number)).unwrap())[&4].clone();
            assert!(keys.len() > at);
            stage.flip(&index_path(number), keys.start + at);
        }
        assert_keys_are_kept(&store);
        assert_everything_is_right(&store);
    }
}

#[test]
fn an_index_that_cannot_be_written_again_is_kept_in_memory_with_its_keys() {
    let (stage, receipts, places) = stage_with_keys();
    let store = stage.open();
    refuse_index_files(&stage);
    stage.flip(&index_path(1), places[0].start + 5);
    for n in 0..150 {
        assert_replayed(&store, &receipts, n);
    }
    assert_valid(&store, live(), 150);
    assert_eq!(list(&store, live(), &of_actor("x"), None, 1000).len(), 150);
    stage.disk.unwatch();
    drop(store);
    let store = stage.open();
    assert_replayed(&store, &receipts, 7);
}

#[test]
fn a_key_that_was_used_again_is_found_although_its_first_use_is_kept_in_memory() {
    let (stage, receipts, _) = stage_with_keys();
    stage.world.advance(IDEMPOTENCY_RETENTION_MS);
    let store = stage.open();
    let again = append_once(&store, live(), vec![login("x")], key("key 3", "key 3"), Ulid(77));
    let Outcome::Sealed(again) = again else { panic!("{again:?}") };
    assert_ne!(again, receipts[3]);
    drop(store);
    // Damage in the first segment: its index stays in memory, while that of the later one is a file.
    let log = Path::new(DIR).join("live/00000001.log");
    stage.flip(&log, 20_000);
    stage.disk.delete(&index_path(1));
    let store = EmbeddedStore::open(Path::new(DIR), &stage.options()).unwrap();
    assert!(store.findings().iter().any(|(_, finding)| matches!(finding, Finding::Damaged { .. })));
    let answer = append_once(&store, live(), vec![login("x")], key("key 3", "key 3"), Ulid(78));
    assert_eq!(answer, Outcome::Replayed(again));
}

#[test]
fn a_filter_of_keys_cannot_be_filled_by_a_client() {
    // Keys are hashed with the salt before they enter the filter: the bits of a known slot are not those that
    // version 2 would have set.
    let (stage, _, _) = stage_with_keys();
    let bytes = stage.disk.content(&index_path(1)).unwrap();
    let sections = sections(&bytes);
    let (keys, filter) = (&bytes[sections[&4].clone()], &bytes[sections[&6].clone()]);
    let bits = |hash: u32| {
        let step = hash.wrapping_mul(0x9E37_79B1) | 1;
        (0..6u32).map(move |i| hash.wrapping_add(step.wrapping_mul(i)) as usize % (filter.len() * 8))
    };
    let has = |hash: u32| bits(hash).all(|bit| filter[bit / 8] & 1 << (bit % 8) != 0);
    let salted = SipHasher13::new_with_key(&[7; 16]);
    let slots: Vec<&[u8]> = (0..128).map(|n| &keys[n * 28..n * 28 + 16]).collect();
    assert!(slots.iter().all(|slot| has(u32::try_from(salted.hash(slot) & 0xffff_ffff).unwrap())));
    assert!(slots.iter().filter(|slot| has(u32_at(slot, 0))).count() < 20);
}
