//! Failover of the embedded store: a copy is promoted, and the old primary is fenced off. Every event that
//! any server acknowledged is in the new primary's chain or in the file of `--divergence`, and in one of
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sealog_control::Control;
use sealog_core::event::StoredEvent;
use sealog_testing::mounted::Mounted;
use sealog_testing::worst::worst_events;
use sealog_testing::*;
use serde_json::{Value, json};

use super::kill::{at_each_call, killed_after, killed_at};
use super::replicate::Follower;
use super::{Ended, Stage, chains, ended, heads};
use crate::support::{
    LOGIN, Running, SEALOG, clean, first_key, first_tenant, operator, restoring_is_refused, sealog, serving,
    signal, start,
};

const TOKEN: &str = "the-operators-token";
/// How often a promotion is begun and killed; docs/reliability.md says so, too.
const ROUNDS: u64 = 8;

/// Two machines: the old primary in `data`, its copy in `backups`, and the new primary in `new`.
struct Pair {
    stage: Stage,
    /// Where the new primary listens, which the old one asks.
    peer: String,
    key: String,
    acked: BTreeSet<String>,
}

impl Pair {
    /// A copy that has some events; the old primary runs.
    fn begin() -> (Pair, Running) {
        let stage = Stage::new();
        // A port that nobody has: the system gives out others first.
        let peer = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let old = start(Pair::serving(sealog(), &stage.data(), "127.0.0.1:0", Some(&peer)));
        let key = first_key(&stage.data());
        let mut pair = Pair { stage, peer, key, acked: BTreeSet::new() };
        old.await_drained();
        pair.send(&old, 5);
        pair.copy(&old);
        (pair, old)
    }

    fn serving(mut command: Command, data: &Path, listen: &str, peer: Option<&str>) -> Command {
        command.args([
            "serve",
            "--listen",
            listen,
            "--limits-per-ip-rps",
            "0",
            "--replication-enabled",
            "true",
        ]);
        command.arg("--data-dir").arg(data).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        if let Some(peer) = peer {
            command.args(["--replication-peer", &format!("http://{peer}")]);
        }
        command
    }

    fn start_old(&self) -> Running {
        start(Pair::serving(sealog(), &self.stage.data(), "127.0.0.1:0", Some(&self.peer)))
    }

    fn start_new(&self) -> Running {
        start(Pair::serving(sealog(), &self.stage.path("new"), &self.peer, None))
    }

    fn copy(&self, old: &Running) {
        let mut command = sealog();
        command.args(["replicate", "--once", "--from", &format!("http://{}", old.address), "--to"]);
        command.arg(self.stage.backups()).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        let (code, _, error) = ended(command.output().unwrap());
        assert_eq!(code, Some(0), "{error}");
    }

    fn promote(&self, args: &[&str]) -> Ended {
        ended(promoting(&self.stage, &self.stage.path("new")).args(args).output().unwrap())
    }

    fn promoted(&self, args: &[&str]) -> Value {
        let (code, said, error) = self.promote(&[args, &["--json"]].concat());
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str(&said).unwrap()
    }

    /// Sends events, each of which is acknowledged.
    fn send(&mut self, server: &Running, count: usize) {
        for _ in 0..count {
            let (status, body) = server.post(&self.key);
            assert_eq!(status, 202, "{body}");
            self.acked.insert(log_id(&body));
        }
    }

    fn diverge(&self, args: &[&str]) -> Ended {
        self.diverge_from(&self.stage.path("new"), args)
    }

    fn diverge_from(&self, data: &Path, args: &[&str]) -> Ended {
        let mut command = sealog();
        command.arg("replicate").arg("--divergence").arg(self.file()).arg("--to").arg(self.stage.backups());
        command.arg("--old-data").arg(self.stage.data()).arg("--data").arg(data).args(args);
        ended(command.output().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.stage.path("only-old.ndjson")
    }

    /// Every acknowledged event is in the chain of the new primary or in the file, and none in both.
    fn assert_ledger(&self, new: &Running) {
        let kept = events(new, &self.key);
        let only_old: Vec<String> = lines(&self.file()).iter().map(|event| text(event, "log_id")).collect();
        let all: BTreeSet<&String> = kept.iter().chain(&only_old).collect();
        let lost = self.acked.iter().filter(|id| !all.contains(id)).count();
        let doubled = kept.len() + only_old.len() - all.len();
        println!(
            "failover: acknowledged={} new={} only_old={} lost={lost} doubled={doubled}",
            self.acked.len(),
            kept.len(),
            only_old.len()
        );
        assert_eq!((lost, doubled, all.len()), (0, 0, self.acked.len()));
    }
}

fn promoting(stage: &Stage, to: &Path) -> Command {
    promoting_from(&stage.backups(), to)
}

fn promoting_from(copy: &Path, to: &Path) -> Command {
    let mut command = sealog();
    command.arg("replicate").arg("--promote").arg(to).arg("--to").arg(copy);
    command
}

fn text(event: &Value, field: &str) -> String {
    event[field].as_str().unwrap().to_owned()
}

fn log_id(body: &str) -> String {
    text(&serde_json::from_str(body).unwrap(), "log_id")
}

fn lines(path: &Path) -> Vec<Value> {
    let all = fs::read_to_string(path).unwrap_or_default();
    all.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids of all events of the key's chain, oldest first; it verifies.
fn events(server: &Running, key: &str) -> Vec<String> {
    let verified: Value = serde_json::from_str(&server.get(key, "/v1/events/verify").1).unwrap();
    assert_eq!(verified["valid"], true, "{verified}");
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page: Value =
            serde_json::from_str(&server.get(key, &format!("/v1/events?limit=100{cursor}")).1).unwrap();
        ids.extend(page["events"].as_array().unwrap().iter().map(|event| text(event, "log_id")));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    ids.reverse();
    ids
}

fn ready(server: &Running) -> (u16, Value) {
    let (status, body) = server.get("-", "/readyz");
    (status, serde_json::from_str(&body).unwrap())
}

fn has_metric(server: &Running, line: &str) -> bool {
    server.get("-", "/metrics").1.contains(&format!("\n{line}\n"))
}

fn epoch(server: &Running) -> Value {
    operator(server, TOKEN, "GET", "/replication/epoch", &Value::Null).1["epoch"].take()
}

/// Events are refused with their own code, and everything else goes on.
fn assert_superseded(old: &Running, key: &str) {
    let (status, body) = old.post(key);
    let error: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &error["error"]["code"]), (503, &json!("event/superseded")), "{body}");
    let (status, body) = old.request(
        "POST",
        "/v1/events/batch",
        &[("Authorization", &format!("Bearer {key}"))],
        &format!("{{\"events\":[{LOGIN}]}}"),
    );
    assert!(status == 503 && body.contains("event/superseded"), "{body}");
    assert_eq!(old.get(key, "/v1/events").0, 200);
    assert_eq!(old.get(key, "/v1/events/verify").0, 200);
    let (status, body) = ready(old);
    assert_eq!((status, &body["reason"]), (503, &json!("superseded")));
    assert!(text(&body, "detail").contains("no longer the primary"), "{body}");
    assert!(has_metric(old, "sealog_replication_superseded 1"));
}

#[test]
fn an_old_primary_that_comes_back_after_the_promotion_takes_no_event_and_its_own_are_named() {
    let (mut pair, old) = Pair::begin();
    // The peer is not there yet: the old primary accepts events, and says what it does not know.
    assert!(text(&ready(&old).1, "detail").contains("cannot ask replication.peer"));
    assert!(has_metric(&old, "sealog_replication_peer_up 0"));
    pair.send(&old, 3);
    signal(old.pid(), "-KILL");
    drop(old);
    let promoted = pair.promoted(&[]);
    assert_eq!(promoted["epoch"], 1, "{promoted}");
    let new = pair.start_new();
    assert_eq!(epoch(&new), 1);
    pair.send(&new, 4);

    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    assert!(has_metric(&old, "sealog_replication_peer_up 1"));
    assert_eq!(epoch(&old), 0, "its own");
    old.stop();
    // Nor when it is started while the peer is away: it has kept what it was told.
    new.stop();
    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    old.stop();

    let new = pair.start_new();
    let (code, said, error) = pair.diverge(&["--json"]);
    assert_eq!(code, Some(0), "{error}");
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&done["events"], &done["chains"], &done["tenants"]), (&json!(3), &json!(1), &json!(1)));
    pair.assert_ledger(&new);
    // They follow each other as the old primary sealed them, and each is its own receipt.
    let only_old: Vec<StoredEvent> = fs::read_to_string(pair.file())
        .unwrap()
        .lines()
        .map(|line| StoredEvent::parse_json(line).unwrap())
        .collect();
    assert_eq!(only_old.iter().map(|event| event.sealed.chain_seq).collect::<Vec<_>>(), [6, 7, 8]);
    assert!(only_old.windows(2).all(|pair| pair[0].sealed.hash == pair[1].sealed.prev_hash));
    // Again: the same file, and no second record.
    let again: Value = serde_json::from_str(&pair.diverge(&["--json"]).1).unwrap();
    assert_eq!(again, done);
    new.await_drained();
    let (tenant, project) = first_tenant(&new, TOKEN);
    new.stop();
    let recorded = system_events(&pair.stage.path("new"), &tenant, "sealog.store_diverged");
    let [record] = &recorded[..] else { panic!("{recorded:?}") };
    let chain = &record["chains"][0];
    assert_eq!((&record["sha256"], &record["events"]), (&done["sha256"], &json!(3)));
    assert_eq!(
        (&chain["project_id"], &chain["lost_from"], &chain["lost_to"]),
        (&json!(project), &json!(6), &json!(8))
    );
    assert_eq!(chain["recorded_hash"], json!(only_old[2].sealed.hash.to_string()));
    let restored = system_events(&pair.stage.path("new"), &tenant, "sealog.store_restored");
    assert_eq!(restored[0]["promoted_to_epoch"], 1);
    // A file that is something else stays.
    fs::write(pair.file(), "mine").unwrap();
    let (code, _, error) = pair.diverge(&[]);
    assert!(code == Some(2) && error.contains("is something else"), "{error}");
    assert_eq!(fs::read_to_string(pair.file()).unwrap(), "mine");
}

/// A field of what an operator makes.
fn made(server: &Running, path: &str, body: &Value, field: &str) -> String {
    let (status, answer) = operator(server, TOKEN, "POST", path, body);
    assert_eq!(status, 201, "{answer}");
    text(&answer, field)
}

fn project(server: &Running, tenant: &str, name: &str) -> String {
    made(server, &format!("/tenants/{tenant}/projects"), &json!({ "name": name }), "project_id")
}

fn key(server: &Running, project: &str, mode: &str) -> String {
    let body = json!({ "name": mode, "mode": mode });
    made(server, &format!("/projects/{project}/keys"), &body, "key")
}

/// A tenant with a project and a live key; its id, the project's and the key.
fn tenant(server: &Running, name: &str) -> [String; 3] {
    let id = made(server, "/tenants", &json!({ "name": name }), "tenant_id");
    let project = project(server, &id, name);
    let key = key(server, &project, "live");
    [id, project, key]
}

#[test]
fn the_worst_events_and_more_chains_than_a_record_names_are_in_the_file_as_they_were_acknowledged() {
    /// As many as a record names, and one more.
    const CHAINS: usize = 101;
    let (pair, old) = Pair::begin();
    let [wide, _, first_key] = tenant(&old, "wide");
    let mut keys = vec![first_key];
    for at in 0..CHAINS / 2 {
        let project = project(&old, &wide, &format!("project {at}"));
        keys.extend(["live", "test"].map(|mode| key(&old, &project, mode)));
    }
    old.await_drained();
    pair.copy(&old);
    let worst = worst_events("usr_1");
    let send = |key: &str, body: &str| {
        let (status, answer) = old.send(key, body);
        assert_eq!(status, 202, "{answer}");
        log_id(&answer)
    };
    let of_worst: Vec<String> = worst.iter().map(|(_, body)| send(&pair.key, body)).collect();
    let of_wide: BTreeSet<String> = keys.iter().map(|key| send(key, LOGIN)).collect();
    signal(old.pid(), "-KILL");
    drop(old);
    pair.promoted(&[]);
    let (code, said, error) = pair.diverge(&["--json"]);
    assert_eq!(code, Some(0), "{error}");
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&done["events"], &done["chains"]), (&json!(CHAINS + worst.len()), &json!(CHAINS + 1)));
    // No reader of JSON opens the deepest one.
    let file = fs::read_to_string(pair.file()).unwrap();
    let only_old: Vec<StoredEvent> =
        file.lines().map(|line| StoredEvent::parse_json(line).unwrap()).collect();
    let ids: Vec<String> = only_old.iter().map(|event| event.sealed.log_id.to_string()).collect();
    let (of_first, of_others): (Vec<&String>, Vec<&String>) =
        ids.iter().partition(|id| of_worst.contains(id));
    assert_eq!(of_first, of_worst.iter().collect::<Vec<_>>());
    assert_eq!(of_others.into_iter().collect::<BTreeSet<_>>(), of_wide.iter().collect());
    for (name, body) in worst {
        let metadata = body.split_once("\"metadata\":").unwrap().1;
        let is_there = file.contains(metadata.strip_suffix('}').unwrap());
        assert!(is_there || name == "one name many times", "{name}");
    }
    // The same file is known again, however large it is.
    assert_eq!(serde_json::from_str::<Value>(&pair.diverge(&["--json"]).1).unwrap(), done);
    let new = pair.start_new();
    new.await_drained();
    new.stop();
    let records = system_events(&pair.stage.path("new"), &wide, "sealog.store_diverged");
    let [record] = &records[..] else { panic!("{records:?}") };
    let named = record["chains"].as_array().unwrap();
    assert_eq!((named.len(), &record["chain_count"]), (CHAINS - 1, &json!(CHAINS)));
    assert_eq!((&record["events"], &record["sha256"]), (&json!(CHAINS), &done["sha256"]));
}

#[test]
fn each_tenant_reads_of_its_own_chains_alone_and_one_that_is_not_in_the_new_primary_is_named() {
    let (mut pair, old) = Pair::begin();
    let (first, of_first) = first_tenant(&old, TOKEN);
    let [second, of_second, second_key] = tenant(&old, "second");
    old.await_drained();
    pair.copy(&old);
    let [third, of_third, third_key] = tenant(&old, "third");
    old.await_drained();
    pair.send(&old, 2);
    for (key, count) in [(&second_key, 3), (&third_key, 4)] {
        (0..count).for_each(|_| assert_eq!(old.post(key).0, 202));
    }
    signal(old.pid(), "-KILL");
    drop(old);
    pair.promoted(&[]);
    let (code, said, error) = pair.diverge(&["--json"]);
    assert_eq!(code, Some(0), "{error}");
    let done: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&done["tenants"], &done["unknown_tenants"]), (&json!(3), &json!([third])), "{done}");
    let (_, said, _) = pair.diverge(&[]);
    assert!(said.contains(&format!("tenant {third} is not in the new primary")), "{said}");
    // The file has all of them.
    let only_old = lines(&pair.file());
    let of_project = |project: &str| only_old.iter().filter(|event| event["project_id"] == project).count();
    assert_eq!([&of_first, &of_second, &of_third].map(|project| of_project(project)), [2, 3, 4]);
    let new = pair.start_new();
    new.await_drained();
    new.stop();
    let recorded = |tenant: &str| system_events(&pair.stage.path("new"), tenant, "sealog.store_diverged");
    for (tenant, project, from, to) in [(&first, &of_first, 6, 7), (&second, &of_second, 1, 3)] {
        let records = recorded(tenant);
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!(
            (&record["events"], &record["chain_count"]),
            (&json!(to - from + 1), &json!(1)),
            "{record}"
        );
        let [chain] = &record["chains"].as_array().unwrap()[..] else { panic!("{record}") };
        assert_eq!(
            (&chain["project_id"], &chain["lost_from"], &chain["lost_to"]),
            (&json!(project), &json!(from), &json!(to))
        );
        assert_eq!(record["sha256"], done["sha256"]);
    }
    assert_eq!(recorded(&third), Vec::<Value>::new());
}

/// `metadata` of events in a stopped store's system chain.
fn system_events(data: &Path, tenant: &str, action: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data.join("live")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "log") {
            let bytes = fs::read(path).unwrap();
            for (_, event) in sealog_store::embedded::backup::SegmentContents::events(&bytes, 0) {
                let mut text = Vec::new();
                event.put_json(&mut text);
                let mut event: Value = serde_json::from_slice(&text).unwrap();
                if event["tenant_id"] == tenant && event["action"] == action {
                    found.push(event["metadata"].take());
                }
            }
        }
    }
    found
}

#[test]
fn an_old_primary_that_runs_on_during_the_promotion_stops_within_seconds_and_nothing_is_lost() {
    let (mut pair, old) = Pair::begin();
    // Before: it was killed and came back, and there is no new primary that could say anything.
    signal(old.pid(), "-KILL");
    drop(old);
    let old = pair.start_old();
    pair.send(&old, 2);
    // During: it runs while its copy is promoted.
    assert_eq!(pair.promoted(&[])["epoch"], 1);
    pair.send(&old, 2);
    let new = pair.start_new();
    pair.send(&new, 2);
    let begun = Instant::now();
    eventually("the old primary refuses events", || {
        let (status, body) = old.post(&pair.key);
        if status == 202 {
            pair.acked.insert(log_id(&body));
            std::thread::sleep(Duration::from_millis(200));
        }
        status == 503
    });
    println!("fenced after {:?}", begun.elapsed());
    old.says("a copy of this store was promoted");
    assert_superseded(&old, &pair.key);
    let (code, _, error) = pair.diverge(&[]);
    assert!(code == Some(5) && error.contains("stop it first"), "{error}");
    old.stop();
    let (code, said, error) = pair.diverge(&[]);
    assert!(code == Some(0) && said.contains("only the old primary acknowledged"), "{error}");
    pair.assert_ledger(&new);
    new.stop();
}

#[test]
fn an_old_primary_that_comes_back_while_its_peer_is_away_goes_on_and_says_so() {
    let (mut pair, old) = Pair::begin();
    old.stop();
    assert_eq!(pair.promoted(&[])["epoch"], 1);
    let old = pair.start_old();
    old.says("cannot ask replication.peer");
    pair.send(&old, 2);
    let (status, body) = ready(&old);
    assert_eq!((status, &body["ready"]), (200, &json!(true)));
    assert!(text(&body, "detail").contains("without knowing whether the peer was promoted"), "{body}");
    old.stop();
    // A store that was not made of this copy would be told that it has lost everything.
    let other = Stage::new();
    other.fill(&chains(), 1);
    let (code, _, error) = pair.diverge_from(&other.data(), &[]);
    assert!(code == Some(2) && error.contains("not promoted from this copy"), "{error}");
    assert!(!pair.file().exists());
    // Two histories: what the old one acknowledged is found, also where no server runs.
    let (code, _, error) = pair.diverge(&[]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(lines(&pair.file()).len(), 2);
    let new = pair.start_new();
    new.await_drained();
    pair.send(&new, 1);
    pair.assert_ledger(&new);
    new.stop();
}

/// As after a disk that took no write of the control data: the file beside it was made while there was room.
#[test]
fn an_epoch_that_the_control_data_could_not_keep_is_in_a_file_beside_it() {
    let (pair, old) = Pair::begin();
    old.stop();
    let (data, file) = (pair.stage.data(), pair.stage.data().join("PEER-EPOCH"));
    let before = fs::read(data.join("control.db")).unwrap();
    assert!(fs::read_to_string(&file).unwrap().starts_with("sealog peer epoch 00000000000000000000 "));
    pair.promoted(&[]);
    let new = pair.start_new();
    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    old.stop();
    new.stop();
    let forget = || fs::write(data.join("control.db"), &before).unwrap();
    forget();
    let old = pair.start_old();
    old.says("cannot ask replication.peer");
    assert_superseded(&old, &pair.key);
    old.stop();
    // That start has written it to the control data again.
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    old.stop();
    // Damaged, it may have said so: this server does not start beside a new primary.
    forget();
    fs::write(&file, &kept[1..]).unwrap();
    let refused = Pair::serving(sealog(), &data, "127.0.0.1:0", Some(&pair.peer));
    let (code, said) = crate::support::spawn(refused).ended();
    assert!(code == Some(1) && said.contains("PEER-EPOCH is damaged"), "{code:?} {said}");
}

#[test]
fn with_the_old_log_at_hand_a_promotion_takes_its_events_over_and_nothing_diverges() {
    let (mut pair, old) = Pair::begin();
    pair.send(&old, 4);
    signal(old.pid(), "-KILL");
    drop(old);
    let data = pair.stage.data();
    let (code, _, error) = pair.promote(&["--old-data", data.to_str().unwrap()]);
    assert!(code == Some(1) && error.contains("--recover-tail"), "{error}");
    let promoted = pair.promoted(&["--old-data", data.to_str().unwrap(), "--recover-tail"]);
    assert_eq!((&promoted["epoch"], &promoted["recovered"]["events"]), (&json!(1), &json!(4)));
    let new = pair.start_new();
    pair.send(&new, 1);
    let (code, said, error) = pair.diverge(&[]);
    assert!(code == Some(0) && said.contains("has every event"), "{said}{error}");
    assert!(!pair.file().exists());
    pair.assert_ledger(&new);
    // The old one is behind all the same.
    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    old.stop();
    new.stop();
}

#[test]
fn a_peer_with_the_same_epoch_stops_nobody() {
    let (mut pair, old) = Pair::begin();
    old.stop();
    // Its store is another one: what counts is its epoch.
    let peer = start(Pair::serving(sealog(), &pair.stage.path("other"), &pair.peer, None));
    let old = pair.start_old();
    assert!(has_metric(&old, "sealog_replication_peer_up 1"));
    assert_eq!((epoch(&peer), epoch(&old)), (json!(0), json!(0)));
    pair.send(&old, 2);
    assert_eq!(ready(&old).0, 200);
    old.stop();
    peer.stop();
}

#[test]
fn back_again_the_next_promotion_has_a_higher_epoch() {
    let (mut pair, old) = Pair::begin();
    old.stop();
    pair.promoted(&[]);
    let new = pair.start_new();
    // The old machine becomes the replica of the new one, and is promoted in its turn.
    let second = pair.stage.path("second");
    let mut command = sealog();
    command.args(["replicate", "--once", "--from", &format!("http://{}", new.address), "--to"]).arg(&second);
    let (code, _, error) = ended(command.env("SEALOG_OPERATOR_TOKEN", TOKEN).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    new.stop();
    let mut command = sealog();
    command.arg("replicate").arg("--promote").arg(pair.stage.path("back")).arg("--to").arg(&second);
    let (code, said, error) = ended(command.output().unwrap());
    assert!(code == Some(0) && said.contains("promoted to epoch 2"), "{said}{error}");
    let back = start(Pair::serving(sealog(), &pair.stage.path("back"), &pair.peer, None));
    assert_eq!(epoch(&back), 2);
    pair.send(&back, 1);
    assert_eq!(events(&back, &pair.key).len(), pair.acked.len());
    back.stop();
}

#[test]
fn a_wrong_clock_on_the_new_primary_changes_neither_its_epoch_nor_the_order_of_its_chains() {
    let (mut pair, old) = Pair::begin();
    old.stop();
    let behind = |mut command: Command| {
        command.args(["-f", "-2h", SEALOG]).env("TZ", "UTC");
        command
    };
    let faketime = || behind(clean(Command::new("faketime")));
    let mut command = faketime();
    command
        .arg("replicate")
        .arg("--promote")
        .arg(pair.stage.path("new"))
        .arg("--to")
        .arg(pair.stage.backups());
    let (code, said, error) = ended(command.output().unwrap());
    assert!(code == Some(0) && said.contains("promoted to epoch 1"), "{said}{error}");
    let new = start(Pair::serving(faketime(), &pair.stage.path("new"), &pair.peer, None));
    pair.send(&new, 2);
    let ids = events(&new, &pair.key);
    assert!(ids.is_sorted() && ids.len() == pair.acked.len(), "{ids:?}");
    let old = pair.start_old();
    assert_superseded(&old, &pair.key);
    old.stop();
}

#[test]
fn kill_9_of_a_promotion_leaves_no_store_or_one_with_the_next_epoch() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    let wanted = heads(&stage.data());
    let begun = Instant::now();
    assert_eq!(ended(promoting(&stage, &stage.path("whole")).output().unwrap()).0, Some(0));
    let whole = u64::try_from(begun.elapsed().as_micros()).unwrap();
    let mut dice = Dice::new(seed("kill_9_of_a_promotion"));
    let (mut kills, mut completed, mut refused) = (0, 0, 0);
    for round in 0..rounds(ROUNDS) {
        let to = stage.path(&format!("new-{round}"));
        if killed_after(promoting(&stage, &to), Duration::from_micros(dice.below(whole))) {
            completed += 1;
        } else {
            kills += 1;
            if to.join("RESTORING").exists() {
                refused += 1;
                assert!(restoring_is_refused(&to));
            }
            let (code, _, error) = ended(promoting(&stage, &to).output().unwrap());
            assert!(code == Some(0) || error.contains("not empty"), "{error}");
        }
        assert_eq!((heads(&to), own_epoch(&to)), (wanted.clone(), 1));
    }
    println!("promote: kills={kills} completed={completed} refused_meanwhile={refused} lost=0 epochs=1");
    assert!(kills > 0);
}

#[test]
fn kill_9_of_a_promotion_at_its_calls_leaves_no_store_or_one_with_the_next_epoch() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    stage.create();
    let wanted = heads(&stage.data());
    // All of those that make and remove names, and some of the many that write and sync.
    let calls = [
        ("mkdir", 1),
        ("rename", 1),
        ("unlink", 1),
        ("ftruncate", 2),
        ("fsync", 6),
        ("fdatasync", 6),
        ("pwrite64", 100),
    ];
    // Each kind has a copy of its own: two promotions of one would wait for each other.
    let copy = |call: &str| stage.path(&format!("copy-{call}"));
    for (call, _) in calls {
        let copied = Command::new("cp").arg("-r").arg(stage.backups()).arg(copy(call)).status().unwrap();
        assert!(copied.success());
    }
    let kills = at_each_call(&calls, |call, nth| {
        let to = stage.path(&format!("new-{call}-{nth}"));
        let promoting = || promoting_from(&copy(call), &to);
        let has_ended = killed_at(&promoting(), call, nth);
        if to.join("RESTORING").exists() {
            assert!(restoring_is_refused(&to), "{call} {nth}");
        }
        let (code, _, error) = ended(promoting().output().unwrap());
        assert!(code == Some(0) || error.contains("not empty"), "{call} {nth}: {error}");
        assert_eq!((heads(&to), own_epoch(&to)), (wanted.clone(), 1), "{call} {nth}");
        has_ended
    });
    println!("promote at calls: kills={kills} lost=0 epochs=1");
}

fn own_epoch(data: &Path) -> u64 {
    let store =
        sealog_store::embedded::EmbeddedStore::open(data, &sealog_store::embedded::Options::default())
            .unwrap();
    wait(Control::embedded(&store).unwrap().epochs()).unwrap().own
}

#[test]
fn a_promotion_onto_a_full_disk_is_no_store_and_is_made_when_there_is_room() {
    let Some(disk) = Mounted::new(96) else { return };
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    let to = disk.at.join("new");
    // Too little from the beginning.
    disk.fill("ballast", 4 << 20);
    let (code, _, error) = ended(promoting(&stage, &to).output().unwrap());
    assert!(code == Some(1) && error.contains("free"), "{error}");
    // It fills up while it is at it: a limit of the size of files refuses a write as a full disk does.
    fs::remove_file(disk.at.join("ballast")).unwrap();
    let mut command = clean(Command::new("bash"));
    command.args(["-c", "ulimit -f 64; exec \"$@\"", "bash", SEALOG, "replicate", "--promote"]);
    let (code, _, error) = ended(command.arg(&to).arg("--to").arg(stage.backups()).output().unwrap());
    assert_eq!(code, Some(1), "{error}");
    assert!(to.join("RESTORING").exists() && restoring_is_refused(&to), "{error}");
    let (code, _, error) = ended(promoting(&stage, &to).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    assert_eq!((heads(&to), own_epoch(&to)), (heads(&stage.data()), 1));
}

#[test]
fn a_server_that_starts_on_a_copy_says_what_to_do_and_a_copy_that_is_written_to_is_not_promoted() {
    let (pair, old) = Pair::begin();
    let copy = pair.stage.backups();
    let before = pair.stage.files("backups");
    let (code, _, error) = ended(serving(sealog(), &copy).output().unwrap());
    let told = format!("sealog replicate --promote DATA --to {}", copy.display());
    assert!(code == Some(1) && error.contains(&told), "{error}");
    assert_eq!((pair.stage.files("backups"), pair.stage.verify().0), (before, Some(0)));
    let mut command = sealog();
    command.args(["replicate", "--from", &format!("http://{}", old.address), "--to"]).arg(&copy);
    let status = pair.stage.path("status.json");
    command.arg("--status").arg(&status).env("SEALOG_OPERATOR_TOKEN", TOKEN);
    let follower = Follower::start(command);
    eventually("it follows", || status.exists());
    let (code, _, error) = pair.promote(&[]);
    assert!(code == Some(5) && error.contains("stop it first"), "{error}");
    drop(follower);
    assert_eq!(pair.promote(&[]).0, Some(0));
    let (code, _, error) = pair.promote(&[]);
    assert!(code == Some(2) && error.contains("not empty"), "{error}");
    old.stop();
    // A directory of backups, too.
    let plain = Stage::new();
    plain.fill(&chains(), 1);
    plain.create();
    let (code, _, error) = ended(serving(sealog(), &plain.backups()).output().unwrap());
    assert!(code == Some(1) && error.contains("sealog restore --from"), "{error}");
}

/// A peer that answers something else is a peer that cannot be asked, and its redirects lead nowhere.
#[test]
fn a_peer_that_redirects_or_says_nothing_is_one_that_cannot_be_asked() {
    let stage = Stage::new();
    for (answer, said) in [
        (Some("302 Found\r\nLocation: http://127.0.0.1:1/"), "redirects are not followed"),
        (Some("401 Unauthorized"), "401"),
        (Some("200 OK"), ""),
        (None, "did not respond within 3 s"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap().to_string();
        let heard = std::thread::spawn(move || match answer {
            Some(status) => Some(http::receive(&listener, status).0),
            None => {
                // Open until the question has been given up.
                let _stream = listener.accept().unwrap();
                std::thread::sleep(Duration::from_secs(4));
                None
            }
        });
        let server = start(Pair::serving(sealog(), &stage.data(), "127.0.0.1:0", Some(&peer)));
        let fields = server.says("cannot ask replication.peer");
        assert!(text(&fields, "problem").contains(said), "{fields}");
        assert_eq!(server.post(&first_key(&stage.data())).0, 202);
        server.stop();
        if let Some(head) = heard.join().unwrap() {
            assert!(head.starts_with("GET /operator/v1/replication/epoch "), "{head}");
            assert!(head.to_lowercase().contains(&format!("authorization: bearer {TOKEN}")), "{head}");
        }
    }
}

#[test]
fn of_a_peer_that_answers_without_end_a_few_kilobytes_are_read() {
    // What the system holds of a connection that nobody reads, on both sides, and much less than any client
    // would take of another answer.
    const HELD_MAX: u64 = 64 << 20;
    let stage = Stage::new();
    for head in ["", "Content-Length: 9000000000000000000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            // What comes before the question is no answer to it.
            let mut question = Vec::new();
            while !question.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                question.push(byte[0]);
            }
            write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n").unwrap();
            // Also right as chunks, each of which has 64 KiB.
            let piece = format!("10000\r\n{}\r\n", " ".repeat(64 << 10));
            let mut sent = 0;
            while stream.write_all(piece.as_bytes()).is_ok() {
                sent += piece.len() as u64;
            }
            sent
        });
        let server = start(Pair::serving(sealog(), &stage.data(), "127.0.0.1:0", Some(&peer)));
        let fields = server.says("cannot ask replication.peer");
        assert!(text(&fields, "problem").contains("length limit exceeded"), "{head}: {fields}");
        let sent = answering.join().unwrap();
        assert!(sent < HELD_MAX, "{head}: it has read of {sent} bytes");
        assert_eq!(server.post(&first_key(&stage.data())).0, 202);
        server.stop();
    }
}

#[test]
fn a_peer_needs_the_embedded_store_and_an_operator_token() {
    let (_dir, data) = crate::support::data_dir();
    let with = |args: &[&str], token: Option<&str>| {
        let mut command = serving(sealog(), &data);
        command.args(args).envs(token.map(|token| ("SEALOG_OPERATOR_TOKEN", token)));
        ended(command.output().unwrap())
    };
    let peer = ["--replication-peer", "http://127.0.0.1:1"];
    let (code, _, error) = with(&peer, None);
    assert!(code == Some(2) && error.contains("needs operator_token"), "{error}");
    let (code, _, error) = with(&[&peer[..], &["--store", "postgres://127.0.0.1:1/x"]].concat(), Some(TOKEN));
    assert!(code == Some(2) && error.contains("embedded store"), "{error}");
    for wrong in ["standby", "ftp://x", "http://", "http://user:secret@x"] {
        let (code, _, error) = with(&["--replication-peer", wrong], Some(TOKEN));
        assert!(
            code == Some(2) && error.contains("replication.peer") && !error.contains("secret"),
            "{error}"
        );
    }
}

#[test]
fn the_runbook_does_what_it_says() {
    let (mut pair, old) = Pair::begin();
    pair.send(&old, 1);
    old.stop();
    let steps = super::made::documented("operating.md", "### Failover to a replica");
    let (promote, diverge) = steps.split_once('\n').unwrap();
    // The names of the runbook: each machine has its own `data`.
    fs::rename(pair.stage.data(), pair.stage.path("old-data")).unwrap();
    fs::rename(pair.stage.backups(), pair.stage.path("replica")).unwrap();
    let said = super::made::shell(&pair.stage, promote);
    assert!(said.contains("promoted to epoch 1"), "{said}");
    let said = super::made::shell(&pair.stage, diverge);
    assert!(said.contains("wrote 1 events"), "{said}");
    let new = start(Pair::serving(sealog(), &pair.stage.data(), &pair.peer, None));
    pair.assert_ledger(&new);
    new.stop();
}

#[test]
fn the_page_about_reliability_names_as_many_rounds() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");
    let rounds = format!("`sealog replicate --promote`, {ROUNDS} times");
    assert!(fs::read_to_string(page).unwrap().contains(&rounds), "{rounds}");
}
