//! Events by members of their `metadata`: what such a list costs, what collisions do to it, and stores that
//! have no such index yet.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::postgres::PostgresStore;
use sealog_store::{List, Store};
use sealog_testing::sim::{DIR, Op, Plan, SimDisk};
use sealog_testing::*;
use siphasher::sip::SipHasher13;

/// The names of the constants in `embedded/read/reader.rs`.
const LIST_MISSES_MAX: usize = 256;
/// Kinds of sections in `embedded/index/sidecar.rs`.
const FIELD_KINDS: std::ops::Range<u16> = 16..19;

struct Stage {
    disk: SimDisk,
    world: Arc<StillWorld>,
}

impl Stage {
    fn new() -> Stage {
        Stage { disk: SimDisk::new(), world: StillWorld::new() }
    }

    fn open(&self) -> EmbeddedStore {
        let options = Options {
            disk: Arc::new(self.disk.clone()),
            tick: Duration::from_secs(3600),
            ..small(&self.world)
        };
        EmbeddedStore::open(Path::new(DIR), &options).unwrap()
    }

    fn indexes(&self) -> Vec<PathBuf> {
        let dir = Path::new(DIR).join("live");
        let names = self.disk.file_names(&dir);
        names.into_iter().filter(|name| name.ends_with(".idx")).map(|name| dir.join(name)).collect()
    }

    fn change_indexes(&self, change: impl Fn(&[u8]) -> Vec<u8>) {
        for path in self.indexes() {
            self.disk.put(&path, &change(&self.disk.content(&path).unwrap()));
        }
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.indexes().iter().map(|path| self.disk.content(path).unwrap()).collect()
    }
}

/// From now on the disk has so much room.
fn leave_free(disk: &SimDisk, bytes: usize) {
    const LARGE: usize = 1 << 40;
    disk.plan(Plan { capacity: Some(LARGE), ..Plan::default() });
    let free = usize::try_from(disk.free_bytes(Path::new(DIR)).unwrap()).unwrap();
    disk.plan(Plan { capacity: Some(LARGE - free + bytes), ..Plan::default() });
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The sections of an index file by kind, as `docs/format.md` describes them: where the entry and the section
/// stand.
fn directory(bytes: &[u8]) -> BTreeMap<u16, (std::ops::Range<usize>, std::ops::Range<usize>)> {
    let number =
        |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap();
    let mut at = 64;
    (0..u32_at(bytes, 40))
        .map(|_| {
            let length = usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
            let kind = u16::from_le_bytes(bytes[at + 2..at + 4].try_into().unwrap());
            let (offset, section_len) = (number(at + 8), number(at + 16));
            let entry = at..at + length;
            at += length;
            (kind, (entry, offset..offset + section_len))
        })
        .collect()
}

/// An index file without the sections of members: their kinds are unknown ones.
fn without_fields(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for (kind, (entry, _)) in directory(bytes) {
        if FIELD_KINDS.contains(&kind) {
            out[entry.start + 2..entry.start + 4].copy_from_slice(&(kind + 100).to_le_bytes());
        }
    }
    let directory_end = 64 + u32_at(bytes, 44) as usize;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&out[..60]), &out[64..directory_end]);
    out[60..64].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn of_ticket(value: &str) -> Filter {
    Filter { fields: vec![FieldIs::new("ticket", value)], ..Filter::default() }
}

/// Batches of 100 events, each with the ticket that is said.
fn fill(store: &dyn Store, batches: u64, ticket: impl Fn(u64) -> String) {
    for batch in 0..batches {
        let one = |seq: u64| {
            draft(&format!(r#"{{"action":"a.b","metadata":{{"n":{seq},"ticket":"{}"}}}}"#, ticket(seq)))
        };
        append(store, live(), (batch * 100 + 1..=batch * 100 + 100).map(one).collect());
    }
}

/// Seqs of a whole list, and for each call how many items and reads it had.
fn walk(
    store: &dyn Store,
    filter: &Filter,
    limit: usize,
    reads: &AtomicUsize,
) -> (Vec<u64>, Vec<(usize, usize)>) {
    let (mut seqs, mut calls, mut before_seq) = (Vec::new(), Vec::new(), None);
    loop {
        let before = reads.load(Ordering::SeqCst);
        let list = List { filter: filter.clone(), before_seq, limit, bytes_max: 1 << 20 };
        let chunk = wait(store.list(live(), list)).unwrap();
        seqs.extend(chunk.items.iter().map(|event| event.sealed.chain_seq));
        calls.push((chunk.items.len(), reads.load(Ordering::SeqCst) - before));
        assert!(chunk.resume.is_none_or(|resume| before_seq.is_none_or(|before| resume < before)));
        match chunk.resume {
            Some(resume) => before_seq = Some(resume),
            None => return (seqs, calls),
        }
    }
}

#[test]
fn a_rare_member_costs_its_own_record_and_no_other() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, 60, |seq| format!("OPS-{seq}"));
    drop(store);
    assert!(stage.indexes().len() > 10);
    // Two members for each event: a byte, and for each member 4 in the column and at most 3 in the filter.
    let length = |path: &PathBuf| {
        let sections = directory(&stage.disk.content(path).unwrap());
        [17, 18].iter().map(|kind| sections[kind].1.len()).sum::<usize>()
    };
    let bytes: usize = stage.indexes().iter().map(length).sum();
    assert!(bytes < 6000 * (1 + 2 * (4 + 3)), "{bytes} bytes for 6000 events");
    let store = stage.open();
    let reads = stage.disk.count_reads(".log");
    for seq in [1, 2999, 6000] {
        assert_eq!(walk(&store, &of_ticket(&format!("OPS-{seq}")), 50, &reads).0, [seq]);
    }
    assert!(walk(&store, &of_ticket("absent"), 50, &reads).0.is_empty());
    // A filter and a column may let through a few that do not match.
    assert!(reads.load(Ordering::SeqCst) <= 5, "{reads:?} records");
}

/// Two tickets with the same hash under the salt of these tests, whose randomness is always the same.
fn tickets_that_collide() -> (String, String) {
    let salted = SipHasher13::new_with_key(&[7; 16]);
    let mut known: HashMap<u64, u32> = HashMap::new();
    for number in 0.. {
        let hash = salted.hash(format!("\"ticket\"OPS-{number}").as_bytes()) & 0xffff_ffff;
        if let Some(earlier) = known.insert(hash, number) {
            return (format!("OPS-{earlier}"), format!("OPS-{number}"));
        }
    }
    unreachable!()
}

#[test]
fn members_that_collide_cost_a_bounded_number_of_records_a_call_and_hide_no_event() {
    const RARE: [u64; 3] = [1, 700, 1999];
    let (common, rare) = tickets_that_collide();
    let stage = Stage::new();
    let mut store = stage.open();
    fill(&store, 20, |seq| if RARE.contains(&seq) { rare.clone() } else { common.clone() });
    for restarted in [false, true] {
        if restarted {
            drop(store);
            store = stage.open();
        }
        let reads = stage.disk.count_reads(".log");
        // One event at a time, each record is a read; a page of them takes in neighbours with one.
        for (limit, fewest) in [(1, LIST_MISSES_MAX), (50, 1)] {
            let (seqs, calls) = walk(&store, &of_ticket(&rare), limit, &reads);
            assert_eq!(seqs, [1999, 700, 1]);
            let most = calls.iter().map(|(_, reads)| *reads).max().unwrap();
            assert!((fewest..=LIST_MISSES_MAX + limit).contains(&most), "{calls:?}");
            assert!(calls.len() * (LIST_MISSES_MAX + limit) >= 2000, "{calls:?}");
        }
        stage.disk.unwatch();
    }
}

#[test]
fn index_files_without_members_are_built_again_from_their_segments() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, 20, |seq| format!("OPS-{}", seq % 500));
    drop(store);
    let whole = stage.contents();
    stage.change_indexes(without_fields);
    assert!(stage.contents() != whole);
    let store = stage.open();
    assert!(stage.contents()[..whole.len()] == whole[..]);
    assert_eq!(walk(&store, &of_ticket("OPS-7"), 50, &AtomicUsize::new(0)).0, [1507, 1007, 507, 7]);
}

#[test]
fn index_files_are_not_made_anew_in_the_reserve_and_are_once_there_is_room() {
    let stage = Stage::new();
    let store = stage.open();
    fill(&store, 20, |seq| format!("OPS-{}", seq % 500));
    drop(store);
    stage.disk.replace_index_salt();
    let before = stage.contents();
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    stage.disk.watch(move |call| {
        if call.op == Op::Write && call.path.to_string_lossy().ends_with(".idx.tmp") {
            counted.fetch_add(1, Ordering::SeqCst);
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let options = Options {
        disk: Arc::new(stage.disk.clone()),
        tick: Duration::from_millis(1),
        reserve_bytes: 1 << 20,
        ..small(&stage.world)
    };
    let store = EmbeddedStore::open(Path::new(DIR), &options).unwrap();
    eventually("it was tried again", || refused.load(Ordering::SeqCst) > 2);
    // Now they would fit, but into the reserve.
    leave_free(&stage.disk, 512 << 10);
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    stage.disk.watch(move |call| {
        counted.fetch_add(usize::from(call.op == Op::FreeBytes), Ordering::SeqCst);
        Ok(())
    });
    eventually("room was looked for", || looks.load(Ordering::SeqCst) > 20);
    assert!(stage.contents()[..before.len()] == before[..], "an index file was made anew");
    stage.disk.unwatch();
    stage.disk.plan(Plan::default());
    eventually("all index files are made anew", || stage.contents().iter().zip(&before).all(|(a, b)| a != b));
    drop(store);
}

#[test]
fn a_flipped_bit_among_the_members_of_an_index_hides_no_event_and_the_index_is_built_again() {
    for kind in FIELD_KINDS {
        let stage = Stage::new();
        let store = stage.open();
        // One of them is in every segment.
        fill(&store, 20, |seq| format!("OPS-{}", seq % 5));
        drop(store);
        let whole = stage.contents();
        stage.change_indexes(|bytes| {
            let mut out = bytes.to_vec();
            let (_, section) = directory(bytes).remove(&kind).unwrap();
            out[section].iter_mut().for_each(|byte| *byte ^= 1);
            out
        });
        let store = stage.open();
        let expected: Vec<u64> = (1..=2000).rev().filter(|seq| seq % 5 == 2).collect();
        assert_eq!(walk(&store, &of_ticket("OPS-2"), 50, &AtomicUsize::new(0)).0, expected);
        drop(store);
        assert!(stage.contents()[..whole.len()] == whole[..], "kind {kind} was not built again");
    }
}

fn postgres_store(database: &postgres::Database) -> PostgresStore {
    PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap()
}

fn wait_for_index(database: &postgres::Database, events: u64) {
    eventually("the chain is indexed", || {
        database.sql("SELECT coalesce(max(chain_seq), 0) FROM sealog.fields_indexed") == events.to_string()
    });
}

#[test]
fn in_postgresql_events_are_found_before_and_after_they_are_indexed_and_while_they_are_indexed_again() {
    let database = postgres::cluster().database();
    let store = postgres_store(&database);
    let none = AtomicUsize::new(0);
    fill(&store, 20, |seq| format!("OPS-{}", seq % 500));
    let right = || assert_eq!(walk(&store, &of_ticket("OPS-7"), 50, &none).0, [1507, 1007, 507, 7]);
    right();
    wait_for_index(&database, 2000);
    right();
    assert_eq!(walk(&store, &of_ticket("OPS-7"), 50, &none).1.len(), 1, "the index leads there at once");
    database.sql("BEGIN; DELETE FROM sealog.event_fields; DELETE FROM sealog.fields_indexed; COMMIT");
    right();
    wait_for_index(&database, 2000);
    right();
    // Another event stands in the place of the last one that was indexed: everything is indexed again.
    database.sql("BEGIN; DELETE FROM sealog.event_fields; UPDATE sealog.fields_indexed SET log_id = gen_random_uuid(); COMMIT");
    right();
    fill(&store, 1, |_| "OPS-x".to_owned());
    wait_for_index(&database, 2100);
    right();
}

#[test]
fn in_postgresql_keys_that_collide_cost_a_bounded_number_of_rows_a_call_and_hide_no_event() {
    let database = postgres::cluster().database();
    let store = postgres_store(&database);
    fill(&store, 20, |seq| if [1, 700, 1999].contains(&seq) { "rare".into() } else { "common".into() });
    wait_for_index(&database, 2000);
    // The rare one's key is the only one with three events.
    database.sql(
        "INSERT INTO sealog.event_fields SELECT chain_id, key, seq FROM (SELECT chain_id, key FROM sealog.event_fields GROUP BY chain_id, key HAVING count(*) = 3) AS rare,
         generate_series(1, 2000) AS seq ON CONFLICT DO NOTHING",
    );
    let (seqs, calls) = walk(&store, &of_ticket("rare"), 50, &AtomicUsize::new(0));
    assert_eq!(seqs, [1999, 700, 1]);
    assert!((40..=41).contains(&calls.len()), "50 candidates a call: {calls:?}");
    // Keys of events that are gone count as well.
    database.sql("INSERT INTO sealog.event_fields SELECT chain_id, key, seq FROM (SELECT DISTINCT chain_id, key FROM sealog.event_fields WHERE key = 0 OR chain_seq = 1) AS of, generate_series(2001, 2100) AS seq ON CONFLICT DO NOTHING");
    assert_eq!(walk(&store, &of_ticket("rare"), 50, &AtomicUsize::new(0)).0, [1999, 700, 1]);
}
