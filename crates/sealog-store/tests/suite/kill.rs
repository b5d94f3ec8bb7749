//! A process that writes is killed with `kill -9` at random moments, again and again, on the same directory.
//! The ledger of acknowledgements is kept here, outside it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::verify::Item;
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use sealog_store::{IdempotencyKey, Store};
use sealog_testing::examples::example;
use sealog_testing::*;

const KILLS: u64 = 60;

#[derive(Default)]
struct Ledger {
    /// Events of a request and whether it had a key.
    sent: HashMap<String, (usize, bool)>,
    acked: HashMap<String, (u64, Hash, Vec<Ulid>)>,
}

impl Ledger {
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["sent", nonce, count, keyed] => {
                self.sent.insert(nonce.to_owned(), (count.parse().unwrap(), keyed == "true"));
            }
            ["acked", nonce, first_seq, hash, ..] => {
                let ids = words[4..].iter().map(|id| Ulid::parse(id).unwrap()).collect();
                self.acked
                    .insert(nonce.to_owned(), (first_seq.parse().unwrap(), Hash::parse(hash).unwrap(), ids));
            }
            _ => panic!("{line}"),
        }
    }
}

fn chain_of(nonce: &str) -> ChainId {
    let thread: u8 = nonce[nonce.find('t').unwrap() + 1..nonce.find('n').unwrap()].parse().unwrap();
    chain(1, thread % 3 + 1, if thread % 4 == 3 { Mode::Test } else { Mode::Live })
}

fn key_of(nonce: &str) -> IdempotencyKey {
    let mut bytes = [0; 32];
    bytes[..nonce.len()].copy_from_slice(nonce.as_bytes());
    IdempotencyKey { key_hash: Hash(bytes), fingerprint: Hash(bytes) }
}

/// Starts the writer, kills it after a while, and returns the lines that it got out.
fn run_and_kill(hammer: &Path, dir: &Path, cycle: u64, dice: &mut Dice) -> Vec<String> {
    let mut child =
        Command::new(hammer).arg(dir).arg(cycle.to_string()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let during_start = dice.chance(5);
    let pause =
        Duration::from_micros(if during_start { dice.below(20_000) } else { 5_000 + dice.below(200_000) });
    let (ready, is_ready) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        // The last line may be cut off by the kill.
        for line in output.lines().map_while(Result::ok) {
            if line == "ready" {
                let _ = ready.send(());
            } else {
                lines.push(line);
            }
        }
        lines
    });
    if !during_start {
        is_ready.recv_timeout(PATIENCE).expect("the writer starts");
    }
    std::thread::sleep(pause);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "it ended by itself: {status}"
    );
    reader.join().unwrap()
}

#[test]
fn acknowledged_events_survive_kill_9_at_any_moment() {
    let seed = seed("acknowledged_events_survive_kill_9_at_any_moment");
    let mut dice = Dice::new(seed);
    let hammer = example("hammer");
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    let mut restarts = Vec::new();
    let mut resolved = 0;
    for cycle in 0..KILLS {
        let mut fresh = Ledger::default();
        for line in run_and_kill(&hammer, dir.path(), cycle, &mut dice) {
            fresh.read(&line);
        }
        let started = Instant::now();
        let store = EmbeddedStore::open(dir.path(), &Options::default()).unwrap();
        restarts.push(started.elapsed());
        let findings = store.findings();
        assert!(
            findings.iter().all(|(_, finding)| matches!(finding, Finding::TornTail { .. })),
            "{findings:?}"
        );
        let lost = fresh.acked.iter().filter(|(nonce, acked)| !is_there(&store, nonce, acked)).count();
        assert_eq!(lost, 0, "acknowledged lost after kill {cycle}");
        // The outcome of a request without an answer is unknown; sending it again with its key resolves it.
        let unknown: Vec<_> = fresh
            .sent
            .iter()
            .filter(|(nonce, (_, keyed))| *keyed && !fresh.acked.contains_key(*nonce))
            .collect();
        for (nonce, (count, _)) in unknown {
            let drafts = (0..*count)
                .map(|i| draft(&format!(r#"{{"action":"a.b","actor_id":"{nonce}","resource":"r/{i}"}}"#)))
                .collect();
            match append_once(&store, chain_of(nonce), drafts, key_of(nonce), Ulid(1)) {
                Outcome::Sealed(_) | Outcome::Replayed(_) => resolved += 1,
                other => panic!("{other:?}"),
            }
        }
        ledger.sent.extend(fresh.sent);
        ledger.acked.extend(fresh.acked);
    }
    let store = EmbeddedStore::open(dir.path(), &Options::default()).unwrap();
    check_all(&store, &ledger);
    restarts.sort_unstable();
    println!(
        "kills={KILLS} acked={} lost=0 dup=0 unknown_resolved={resolved} restart_ms_median={} restart_ms_max={}",
        ledger.acked.len(),
        restarts[restarts.len() / 2].as_millis(),
        restarts[restarts.len() - 1].as_millis()
    );
    assert!(ledger.acked.len() > 1000, "the writer must get somewhere: {}", ledger.acked.len());
}

/// Blocks of the files in a directory that are allocated, in bytes.
fn allocated(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    files.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
}

#[test]
fn crashes_leave_no_room_behind_that_nobody_uses() {
    const CYCLES: u64 = 20;
    let hammer = example("hammer");
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    let mut taken = Vec::new();
    for cycle in 0..CYCLES {
        let mut child = Command::new(&hammer)
            .arg(dir.path())
            .args([&cycle.to_string(), "few"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut acked = 0;
        while acked < 8 {
            let line = lines.next().expect("the writer goes on until it is killed");
            if line != "ready" {
                acked += u32::from(line.starts_with("acked"));
                ledger.read(&line);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        taken.push(["live", "test"].map(|log| allocated(&dir.path().join(log))).iter().sum::<u64>());
    }
    println!("allocated after each of {CYCLES} kills: {taken:?}");
    // The active segment and the next one of both logs, and for each kill what 8 requests with 20 events each
    // take with their index: far less than the segment of 256 KiB that they were written to.
    let (first, last) = (taken[0], taken[taken.len() - 1]);
    assert!(last - first.min(last) < CYCLES * (128 << 10), "{taken:?}");
    let options =
        Options { segment_bytes_first: 256 << 10, segment_bytes_max: 1 << 20, ..Options::default() };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    check_all(&store, &ledger);
}

fn is_there(store: &dyn Store, nonce: &str, (first_seq, hash, ids): &(u64, Hash, Vec<Ulid>)) -> bool {
    let event = |id: &Ulid| get(store, chain_of(nonce), *id);
    let in_order = (*first_seq..).zip(ids).all(|(seq, id)| {
        event(id).is_some_and(|event| {
            event.sealed.chain_seq == seq && event.text.fields().actor_id == Some(&format!("\"{nonce}\""))
        })
    });
    in_order && event(&ids[ids.len() - 1]).is_some_and(|event| event.sealed.hash == *hash)
}

/// Every event that is there was sent, whole and once; every one that was acknowledged or sent again is
/// there; all chains are valid.
fn check_all(store: &dyn Store, ledger: &Ledger) {
    let mut found: HashMap<String, usize> = HashMap::new();
    for (chain, head) in wait(store.heads()).unwrap() {
        assert_valid(store, chain, head.chain_seq);
        let mut last = None;
        for item in range(store, chain, 1, head.chain_seq, 1 << 20) {
            let Item::Event(event) = item else { panic!("damaged") };
            assert!(last.replace(event.sealed.log_id) < Some(event.sealed.log_id));
            *found.entry(event.text.fields().actor_id.unwrap().trim_matches('"').to_owned()).or_default() +=
                1;
        }
    }
    for (nonce, (count, keyed)) in &ledger.sent {
        let present = found.remove(nonce).unwrap_or(0);
        let expected: &[usize] =
            if *keyed || ledger.acked.contains_key(nonce) { &[*count] } else { &[0, *count] };
        assert!(expected.contains(&present), "{nonce}: {present} of {count} events");
    }
    // The line that announces a request may be lost with the process, but then it was never acknowledged.
    for nonce in found.keys() {
        assert!(!ledger.acked.contains_key(nonce), "{nonce}");
    }
}
