//! What a store is after it was closed and opened again, and what it says of files that are not as it left
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_core::verify::{Item, Reason, Verdict};
use sealog_store::embedded::{EmbeddedStore, Finding, OpenError, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::*;

struct Stage {
    dir: tempfile::TempDir,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { dir: tempfile::tempdir().unwrap(), world: StillWorld::new() }
    }

    fn open(&self) -> EmbeddedStore {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::open(self.dir.path(), &small(&self.world))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("live").join(name)
    }

    /// Numbers of the live log's segments.
    fn segments(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = fs::read_dir(self.dir.path().join("live"))
            .unwrap()
            .filter_map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .strip_suffix(".log")
                    .map(|digits| digits.parse().unwrap())
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// A copy of the files as they are now, as a killed process would leave them.
    fn killed(&self) -> Stage {
        let copy = tempfile::tempdir().unwrap();
        for mode in ["live", "test"] {
            fs::create_dir(copy.path().join(mode)).unwrap();
            for entry in fs::read_dir(self.dir.path().join(mode)).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), copy.path().join(mode).join(entry.file_name())).unwrap();
            }
        }
        fs::copy(self.dir.path().join("FORMAT"), copy.path().join("FORMAT")).unwrap();
        Stage { dir: copy, world: Arc::clone(&self.world) }
    }
}

/// Fills several segments with events of two chains; actors u0, u1, ...
fn fill(store: &dyn Store, world: &StillWorld, events: usize) {
    for n in 0..events {
        append(store, live(), vec![login(&format!("u{n}"))]);
        if n % 3 == 0 {
            append(store, other(), vec![login(&format!("o{n}"))]);
        }
        world.advance(1);
    }
}

fn other() -> ChainId {
    chain(2, 2, Mode::Live)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

/// Where an actor's name stands in a segment.
fn find(path: &Path, text: &str) -> Option<usize> {
    let bytes = fs::read(path).unwrap();
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

fn broken(verdict: Verdict) -> (u64, Hash, Reason) {
    let broken = verdict.broken.unwrap();
    (broken.at, broken.hash, broken.reason)
}

#[test]
fn everything_is_there_after_a_clean_stop_and_after_a_kill() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, &stage.world, 700);
    let Outcome::Sealed(receipt) = append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(5))
    else {
        panic!()
    };
    let events = list(&store, live(), &Filter::default(), None, 1000);
    let heads = wait(store.heads()).unwrap();
    assert!(stage.segments().len() > 3, "{:?}", stage.segments());
    let killed = stage.killed();
    drop(store);
    for stage in [&stage, &killed] {
        for _ in 0..3 {
            let store = stage.open();
            assert_eq!(store.findings(), []);
            assert_eq!(list(&store, live(), &Filter::default(), None, 1000), events);
            assert_eq!(wait(store.heads()).unwrap(), heads);
            assert_eq!(wait(store.usage(live().tenant_id, Month::of(MORNING_MS))).unwrap(), 701);
            assert_eq!(
                append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(6)),
                Outcome::Replayed(receipt.clone())
            );
            for event in &events {
                assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event));
            }
        }
        let store = stage.open();
        append(&store, live(), vec![login("next")]);
        assert_valid(&store, live(), 702);
    }
}

#[test]
fn ids_and_times_go_on_after_a_restart_with_an_earlier_clock() {
    let stage = Stage::new();
    let first = append(&stage.open(), live(), vec![login("a")]);
    stage.world.set(MORNING_MS - 86_400_000);
    let store = stage.open();
    let second = append(&store, live(), vec![login("b")]);
    assert!(second.log_ids[0] > first.log_ids[0]);
    assert_eq!(get(&store, live(), second.log_ids[0]).unwrap().timestamp_ms, MORNING_MS);
    assert_valid(&store, live(), 2);
}

#[test]
fn a_key_of_a_sealed_segment_counts_for_24_hours_and_then_is_free() {
    let stage = Stage::new();
    let store = stage.open();
    append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(5));
    fill(&store, &stage.world, 700);
    drop(store);
    let store = stage.open();
    stage.world.set(MORNING_MS + sealog_store::IDEMPOTENCY_RETENTION_MS - 1);
    assert!(matches!(
        append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(6)),
        Outcome::Replayed(_)
    ));
    stage.world.advance(1);
    assert!(matches!(
        append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(7)),
        Outcome::Sealed(_)
    ));
    drop(store);
    let store = stage.open();
    assert!(matches!(
        append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(8)),
        Outcome::Replayed(_)
    ));
}

#[test]
fn a_second_process_is_refused_with_the_holders_pid() {
    let stage = Stage::new();
    let _store = stage.open();
    match stage.try_open() {
        Err(OpenError::Locked { holder }) => assert_eq!(holder, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stale_lock_file_is_no_obstacle() {
    let stage = Stage::new();
    drop(stage.open());
    fs::write(stage.dir.path().join("LOCK"), "4194304\n").unwrap();
    append(&stage.open(), live(), vec![login("a")]);
}

#[test]
fn unknown_format_versions_are_refused() {
    let stage = Stage::new();
    drop(stage.open());
    fs::write(stage.dir.path().join("FORMAT"), "sealog embedded 2\n").unwrap();
    assert!(
        matches!(stage.try_open(), Err(OpenError::UnknownFormat { found }) if found == "sealog embedded 2")
    );

    let stage = Stage::new();
    drop(stage.open());
    let path = stage.file("00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    let checksum = crc32c::crc32c(&bytes[..124]).to_le_bytes();
    bytes[124..128].copy_from_slice(&checksum);
    fs::write(&path, bytes).unwrap();
    assert!(
        matches!(stage.try_open(), Err(OpenError::UnknownFormat { found }) if found == "segment version 9")
    );
}

#[test]
fn memory_is_no_place_for_a_store_unless_it_is_allowed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let refused = EmbeddedStore::open(dir.path(), &Options::default());
    assert!(
        matches!(&refused, Err(OpenError::UnsafeStorage { file_system }) if file_system.contains("tmpfs")),
        "{refused:?}"
    );
    assert!(refused.unwrap_err().to_string().contains("SEALOG_ALLOW_UNSAFE_STORAGE"));
    let store =
        EmbeddedStore::open(dir.path(), &Options { allow_unsafe_storage: true, ..Options::default() })
            .unwrap();
    append(&store, live(), vec![login("a")]);
}

#[test]
fn a_torn_tail_is_cut_and_said() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, &stage.world, 20);
    let events = list(&store, live(), &Filter::default(), None, 100);
    // What a crash in the middle of the next group would leave: half a frame behind the last good one.
    let stage = stage.killed();
    let last = stage.file(&format!("{:08}.log", stage.segments().last().unwrap()));
    let mut bytes = fs::read(&last).unwrap();
    let frame = bytes.windows(4).rposition(|window| window == b"SLFR").unwrap();
    let length = u32::from_le_bytes(bytes[frame + 4..frame + 8].try_into().unwrap());
    let end = frame + length as usize;
    let half = b"SLFR\x40\x01\x00\x00half a frame";
    bytes[end..end + half.len()].copy_from_slice(half);
    fs::write(&last, bytes).unwrap();
    let store = stage.open();
    assert_eq!(
        store.findings(),
        [(
            Mode::Live,
            Finding::TornTail { segment: *stage.segments().iter().rev().nth(1).unwrap(), offset: end as u64 }
        )]
    );
    assert_eq!(list(&store, live(), &Filter::default(), None, 100), events);
    append(&store, live(), vec![login("next")]);
    assert_valid(&store, live(), 21);
}

#[test]
fn damage_in_a_sealed_segment_is_broken_at_its_seq_and_nothing_else_is() {
    for rebuild in [false, true] {
        let stage = Stage::new();
        let store = stage.open();
        fill(&store, &stage.world, 700);
        let events = list(&store, live(), &Filter::default(), None, 1000);
        drop(store);
        let path = stage.file("00000002.log");
        let victim = events
            .iter()
            .rev()
            .find(|event| find(&path, event.text.fields().actor_id.unwrap()).is_some_and(|at| at > 20_000))
            .unwrap();
        let (seq, actor) =
            (victim.sealed.chain_seq, victim.text.fields().actor_id.unwrap().trim_matches('"'));
        flip(&path, find(&path, &format!("\"{actor}\"")).unwrap());
        if rebuild {
            fs::remove_file(stage.file("00000002.idx")).unwrap();
        }
        let store = stage.open();
        let next = events.iter().find(|event| event.sealed.chain_seq == seq + 1).unwrap();
        let verdict = verify(&store, live());
        assert_eq!(broken(verdict), (seq, next.sealed.prev_hash, Reason::Damaged), "rebuild {rebuild}");
        assert_eq!((verdict.checked, verdict.last_seq), (seq, seq));
        assert_eq!(
            wait(store.get(live(), victim.sealed.log_id)),
            Err(StoreError::Damaged { chain_seq: seq })
        );
        let without: Vec<_> = events.iter().filter(|event| event.sealed.chain_seq != seq).cloned().collect();
        assert_eq!(list(&store, live(), &Filter::default(), None, 1000), without);
        let window = verify_window(&store, live(), seq + 1, seq + 50);
        assert!(window.valid(), "{window:?}");
        // The heads are elsewhere, so both chains go on.
        append(&store, live(), vec![login("next")]);
        append(&store, other(), vec![login("next")]);
        assert!(verify(&store, other()).valid());
    }
}

#[test]
fn an_unreadable_frame_leaves_its_neighbours_readable() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, &stage.world, 700);
    let batch = append(&store, live(), vec![login("batch"); 5]);
    fill(&store, &stage.world, 300);
    let events = list(&store, live(), &Filter::default(), None, 2000);
    drop(store);
    let segments = stage.segments();
    let path = segments
        .iter()
        .map(|number| stage.file(&format!("{number:08}.log")))
        .find(|path| find(path, "session/batch").is_some())
        .unwrap();
    // The frame's header: 88 bytes before its first record, whose text is 88 bytes and the annotations
    // further on.
    let text = find(&path, "\"action\":\"user.login\",\"actor_id\":\"batch\"").unwrap();
    let bytes = fs::read(&path).unwrap();
    let header = (0..text).rev().find(|at| &bytes[*at..at + 4] == b"SLFR").unwrap();
    flip(&path, header + 10);
    fs::remove_file(path.with_extension("idx")).unwrap();
    let store = stage.open();
    assert!(
        store.findings().iter().any(|(_, finding)| matches!(finding, Finding::Damaged { .. })),
        "{:?}",
        store.findings()
    );
    let verdict = verify(&store, live());
    assert_eq!(
        (verdict.broken.unwrap().at, verdict.broken.unwrap().reason),
        (batch.first_seq, Reason::Damaged)
    );
    assert!(matches!(wait(store.get(live(), batch.log_ids[2])), Err(StoreError::Damaged { .. })));
    let without: Vec<_> =
        events.iter().filter(|event| !batch.log_ids.contains(&event.sealed.log_id)).cloned().collect();
    assert_eq!(list(&store, live(), &Filter::default(), None, 2000), without);
    let damaged: Vec<_> = range(&store, live(), batch.first_seq, batch.last_seq() + 1, 1 << 20);
    assert_eq!(damaged.iter().filter(|item| matches!(item, Item::Damaged { .. })).count(), 5);
    append(&store, live(), vec![login("next")]);
}

#[test]
fn a_deleted_middle_segment_is_named_and_its_events_are_missing_at_the_next_that_exists() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, &stage.world, 900);
    let events = list(&store, live(), &Filter::default(), None, 1000);
    drop(store);
    fs::remove_file(stage.file("00000002.log")).unwrap();
    fs::remove_file(stage.file("00000002.idx")).unwrap();
    let store = stage.open();
    assert!(
        store.findings().contains(&(Mode::Live, Finding::MissingSegments { first: 2, last: 2 })),
        "{:?}",
        store.findings()
    );
    let left = list(&store, live(), &Filter::default(), None, 1000);
    let hole = left.windows(2).find(|pair| pair[0].sealed.chain_seq != pair[1].sealed.chain_seq + 1).unwrap();
    let (after, before) = (&hole[0].sealed, &hole[1].sealed);
    let verdict = verify(&store, live());
    assert_eq!(broken(verdict), (after.chain_seq, after.hash, Reason::Gap));
    assert_eq!((verdict.checked, verdict.last_seq), (before.chain_seq + 1, after.chain_seq));
    // A window that ends inside the hole reports it just past its end, and one that begins inside it too.
    let window = verify_window(&store, live(), before.chain_seq, before.chain_seq + 1);
    assert_eq!((broken(window).0, window.checked), (after.chain_seq, 2));
    assert_eq!(
        broken(verify_window(&store, live(), after.chain_seq - 1, after.chain_seq + 5)).0,
        after.chain_seq
    );
    assert_eq!(
        broken(verify_window(&store, live(), after.chain_seq, after.chain_seq + 5)).0,
        after.chain_seq
    );
    assert!(verify_window(&store, live(), after.chain_seq + 1, after.chain_seq + 5).valid());
    assert_eq!(
        left,
        events
            .iter()
            .filter(|event| left.iter().any(|l| l.sealed.log_id == event.sealed.log_id))
            .cloned()
            .collect::<Vec<_>>()
    );
    // Both heads are in later segments.
    append(&store, live(), vec![login("next")]);
}

#[test]
fn a_log_shorter_than_its_mark_is_named_and_only_the_chains_that_lost_events_are_refused() {
    let stage = Stage::new();
    let store = stage.open();
    append(&store, other(), vec![login("early")]);
    drop(store);
    let store = stage.open();
    fill_one(&store, 40);
    let head = wait(store.head(live())).unwrap().durable;
    drop(store);
    let last = *stage.segments().last().unwrap();
    fs::remove_file(stage.file(&format!("{last:08}.log"))).unwrap();
    for _ in 0..2 {
        let store = stage.open();
        let findings: Vec<_> = store.findings().into_iter().map(|(_, finding)| finding).collect();
        assert!(findings.contains(&Finding::MissingSegments { first: last, last }), "{findings:?}");
        assert!(
            findings.contains(&Finding::HeadLost { chain: live(), durable: 0, recorded: 40 }),
            "{findings:?}"
        );
        assert!(
            findings.iter().any(|finding| matches!(finding, Finding::ShorterThanMark { .. }))
                || last < *stage.segments().last().unwrap()
        );
        assert_eq!(broken(verify(&store, live())), (1, head.hash, Reason::Tail));
        assert_eq!(verify(&store, live()).checked, 0);
        let inside = verify_window(&store, live(), 17, 30);
        assert_eq!((broken(inside), inside.checked, inside.last_seq), ((17, head.hash, Reason::Tail), 0, 17));
        assert_eq!(
            try_append(&store, live(), vec![login("x")]),
            Err(StoreError::HeadUnproven { chain: live() })
        );
        append(&store, other(), vec![login("goes on")]);
        assert!(verify(&store, other()).valid());
    }
}

fn fill_one(store: &dyn Store, events: usize) {
    for n in 0..events {
        append(store, live(), vec![login(&format!("u{n}"))]);
    }
}

#[test]
fn a_log_that_is_cut_below_its_mark_is_not_mistaken_for_a_torn_tail() {
    let stage = Stage::new();
    let store = stage.open();
    fill_one(&store, 40);
    let events = list(&store, live(), &Filter::default(), None, 100);
    let head = events[0].sealed.hash;
    drop(store);
    let path = stage.file(&format!("{:08}.log", stage.segments().last().unwrap()));
    let cut = find(&path, "\"u30\"").unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..cut]).unwrap();
    let store = stage.open();
    let findings: Vec<_> = store.findings().into_iter().map(|(_, finding)| finding).collect();
    assert!(
        findings.iter().any(|finding| matches!(finding, Finding::ShorterThanMark { .. })),
        "{findings:?}"
    );
    assert!(!findings.iter().any(|finding| matches!(finding, Finding::TornTail { .. })), "{findings:?}");
    assert_eq!(broken(verify(&store, live())), (31, head, Reason::Tail));
    assert_eq!(list(&store, live(), &Filter::default(), None, 100), events[10..]);
    assert_eq!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { chain: live() }));
}

#[test]
fn damage_at_the_head_of_a_chain_stops_that_chain_only() {
    let stage = Stage::new();
    let store = stage.open();
    fill_one(&store, 40);
    append(&store, other(), vec![login("other")]);
    drop(store);
    let path = stage.file(&format!("{:08}.log", stage.segments().last().unwrap()));
    flip(&path, find(&path, "\"u39\"").unwrap());
    let store = stage.open();
    assert!(
        matches!(try_append(&store, live(), vec![login("x")]), Err(StoreError::HeadUnproven { .. })),
        "{:?}",
        store.findings()
    );
    assert_eq!(broken(verify(&store, live())).0, 40);
    append(&store, other(), vec![login("goes on")]);
}

#[test]
fn damaged_and_missing_index_files_are_built_again() {
    for damage in ["missing", "header", "runs", "block", "swapped"] {
        let stage = Stage::new();
        let store = stage.open();
        fill(&store, &stage.world, 900);
        append_once(&store, live(), vec![login("k")], key("k", "b"), Ulid(5));
        let events = list(&store, live(), &Filter::default(), None, 2000);
        drop(store);
        let path = stage.file("00000002.idx");
        let length = fs::metadata(&path).unwrap().len();
        match damage {
            "missing" => fs::remove_file(&path).unwrap(),
            "header" => flip(&path, 20),
            // The runs stand near the end of the file, the blocks at its beginning.
            "runs" => flip(&path, usize::try_from(length).unwrap() - 100),
            "block" => flip(&path, 200),
            _ => drop(fs::copy(stage.file("00000003.idx"), &path).unwrap()),
        }
        let store = stage.open();
        assert_eq!(list(&store, live(), &Filter::default(), None, 2000), events, "{damage}");
        let filter = Filter { actor_id: Some("\"u300\"".into()), ..Filter::default() };
        assert_eq!(list(&store, live(), &filter, None, 10).len(), 1, "{damage}");
        for event in events.iter().step_by(7) {
            assert_eq!(get(&store, live(), event.sealed.log_id).as_ref(), Some(event), "{damage}");
        }
        assert_valid(&store, live(), 901);
        assert!(store.findings().is_empty(), "{damage}: an index is derived, so this is no finding");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_or_harmless_but_never_served() {
    let seed = seed("a_flipped_bit_anywhere");
    let mut dice = Dice::new(seed);
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, &stage.world, 500);
    let events: Vec<_> =
        [live(), other()].map(|chain| list(&store, chain, &Filter::default(), None, 1000)).to_vec();
    drop(store);
    let files: Vec<PathBuf> =
        fs::read_dir(stage.dir.path().join("live")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let (mut noticed, mut harmless) = (0, 0);
    for _ in 0..150 {
        let copy = stage.killed();
        let victim = copy.dir.path().join("live").join(dice.pick(&files).file_name().unwrap());
        let length = usize::try_from(fs::metadata(&victim).unwrap().len()).unwrap();
        let at = usize::try_from(dice.below(length as u64)).unwrap();
        flip(&victim, at);
        let context = format!("byte {at} of {}", victim.file_name().unwrap().to_string_lossy());
        let Ok(store) = copy.try_open() else {
            noticed += 1;
            continue;
        };
        let mut valid = true;
        for (chain, events) in [live(), other()].into_iter().zip(&events) {
            let shown = list(&store, chain, &Filter::default(), None, 1000);
            assert!(
                shown.iter().all(|event| events.contains(event)),
                "{context}: a changed event was served"
            );
            valid &= verify(&store, chain).valid();
            assert!(
                !verify(&store, chain).valid() || shown.len() == events.len(),
                "{context}: an event is missing and nobody says so"
            );
        }
        if valid { harmless += 1 } else { noticed += 1 }
    }
    println!("flips 150: noticed {noticed}, harmless {harmless}, silent 0");
    assert!(noticed > 20);
}
