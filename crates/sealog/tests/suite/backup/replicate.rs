//! `sealog replicate`: a copy on another machine, kept by the server's own words.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sealog_testing::*;
use serde_json::Value;

use super::{Ended, Stage, ended, heads};
use crate::support::{LOGIN, Running, first_key, sealog, serving, signal, start};

const TOKEN: &str = "the-operators-token";

fn serve(data: &Path) -> Running {
    let mut command = serving(sealog(), data);
    command
        .args(["--limits-per-ip-rps", "0", "--replication-enabled", "true"])
        .env("SEALOG_OPERATOR_TOKEN", TOKEN);
    start(command)
}

fn following(server: &Running, stage: &Stage, token: &str) -> Command {
    let mut command = sealog();
    command.args(["replicate", "--from", &format!("http://{}", server.address), "--to"]).arg(stage.backups());
    command.env("SEALOG_OPERATOR_TOKEN", token);
    command
}

fn once(server: &Running, stage: &Stage) -> Ended {
    ended(following(server, stage, TOKEN).arg("--once").output().unwrap())
}

/// A command that goes on until it is killed, at the latest when a test has failed.
pub struct Follower(Child);

impl Follower {
    pub fn start(mut command: Command) -> Follower {
        Follower(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Its exit code, if it has ended by itself.
    pub fn ended(&mut self) -> Option<i32> {
        self.0.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends events until it is told that it is enough, each with a key of its own.
pub struct Load {
    enough: Arc<AtomicBool>,
    acked: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    pub fn start(server: &Running, key: &str) -> Load {
        let (enough, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (address, authorization) = (server.address.clone(), format!("Bearer {key}"));
        let (stop, count) = (Arc::clone(&enough), Arc::clone(&acked));
        let thread = std::thread::spawn(move || {
            for n in 0u64.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let name = format!("load-{n}");
                let headers = [("Authorization", authorization.as_str()), ("Idempotency-Key", name.as_str())];
                let (status, _) = http::request(&address, "POST", "/v1/events", &headers, LOGIN);
                count.fetch_add(u64::from(status == 202), Ordering::SeqCst);
            }
        });
        Load { enough, acked, thread }
    }

    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::SeqCst)
    }

    pub fn stop(self) {
        self.enough.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// How far a copy is, by its own words.
pub fn read_status(path: &Path) -> Value {
    std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// A copy gets what is sent, and says so.
pub fn assert_follows(status: &Path, load: &Load) {
    for _ in 0..2 {
        let sent = load.acked();
        eventually("the copy has what was sent", || {
            read_status(status)["events"].as_u64().is_some_and(|events| events > sent)
        });
    }
    let status = read_status(status);
    assert!(status["behind_ms"].as_u64().is_some_and(|behind| behind < 10_000), "{status}");
}

#[test]
fn a_replica_follows_says_how_far_behind_it_is_and_is_restored_with_the_same_heads() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    let load = Load::start(&server, &key);
    let status = stage.path("status.json");
    let mut follower = following(&server, &stage, TOKEN);
    follower.arg("--status").arg(&status).stderr(Stdio::null());
    let follower = Follower::start(follower);
    assert_follows(&status, &load);
    load.stop();
    server.await_drained();
    // A server that was killed writes its last group again, into another segment: the same events.
    signal(server.pid(), "-KILL");
    drop(server);
    drop(follower);
    let server = serve(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    server.await_drained();
    let (code, _, error) = once(&server, &stage);
    assert_eq!(code, Some(0), "{error}");
    // As the operating guide has it, but for the names.
    let guide = super::made::documented("operating.md", "### A replica on another machine");
    let address = format!("http://{}", server.address);
    let command = guide.replace('…', TOKEN).replace("https://log.example.org", &address);
    super::made::shell(&stage, &format!("{command} --once"));
    assert!(stage.path("replica/backups").is_dir() && stage.path("replica.status").is_file(), "{command}");
    server.stop();
    assert_eq!(stage.verify().0, Some(0));
    assert_eq!(stage.files("backups").len(), 1, "one backup that grows");
    let (code, _, error) = stage.restore("restored", &[]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
}

#[test]
fn kill_9_of_a_replica_at_random_moments_loses_nothing_and_doubles_nothing() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    let load = Load::start(&server, &key);
    let mut dice = Dice::new(seed("kill_9_of_a_replica"));
    let (mut kills, mut whole) = (0, 0);
    for _ in 0..rounds(8) {
        let sent = load.acked();
        eventually("events come", || load.acked() > sent);
        let command = following(&server, &stage, TOKEN);
        if super::kill::killed_after(command, Duration::from_micros(dice.below(400_000))) {
            panic!("it goes on until it is stopped");
        }
        kills += 1;
        if !stage.backups().join("FORMAT").exists() || stage.files("backups").is_empty() {
            continue;
        }
        whole += 1;
        let (code, said, error) = stage.verify();
        assert_eq!(code, Some(0), "{said}{error}");
    }
    load.stop();
    server.await_drained();
    let (code, _, error) = once(&server, &stage);
    assert_eq!(code, Some(0), "{error}");
    server.stop();
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
    println!("replicate: kills={kills} copies_checked={whole} lost=0 dup=0");
}

#[test]
fn nobody_but_the_operator_replicates_and_only_where_it_is_on() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    for path in ["moment", "salt", "segments/live/1?from=0&to=10", "control/00?from=0&to=10"] {
        let path = format!("/operator/v1/replication/{path}");
        assert_eq!(server.get(&key, &path).0, 401, "{path}");
        assert_eq!(server.request("GET", &path, &[], "").0, 401, "{path}");
    }
    let (code, _, error) = ended(following(&server, &stage, &key).arg("--once").output().unwrap());
    assert_eq!(code, Some(3), "{error}");
    // Nor is it tried again and again.
    let (code, _, error) = ended(following(&server, &stage, &key).output().unwrap());
    assert_eq!(code, Some(3), "{error}");
    // One answer is bounded, whatever is asked for, and what is not there is not found.
    assert_eq!(server.get(TOKEN, "/operator/v1/replication/segments/live/99?from=0&to=1").0, 404);
    assert_eq!(server.get(TOKEN, "/operator/v1/replication/segments/other/1?from=0&to=1").0, 404);
    server.stop();
    let mut off = serving(sealog(), &stage.data());
    off.env("SEALOG_OPERATOR_TOKEN", TOKEN);
    let server = start(off);
    let (code, _, error) = once(&server, &stage);
    assert!(code == Some(4) && error.contains("replication.enabled"), "{error}");
    server.stop();
}

#[test]
fn a_replica_that_cannot_begin_says_why_by_its_exit_code() {
    let stage = Stage::new();
    let of = |from: &str, token: Option<&str>| {
        let mut command = sealog();
        command.args(["replicate", "--once", "--timeout", "1", "--from", from, "--to"]).arg(stage.backups());
        command.envs(token.map(|token| ("SEALOG_OPERATOR_TOKEN", token)));
        ended(command.output().unwrap())
    };
    // A service that says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let (code, _, error) = of(&silent, Some(TOKEN));
    assert!(code == Some(5) && error.contains("did not respond"), "{error}");
    let (code, _, error) = of(&silent, None);
    assert!(code == Some(3) && error.contains("SEALOG_OPERATOR_TOKEN"), "{error}");
    let (code, _, error) = of("nowhere", Some(TOKEN));
    assert!(code == Some(2) && error.contains("--from"), "{error}");
}

#[test]
fn a_replica_tells_programs_how_far_it_is() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    server.await_drained();
    assert_eq!(server.post(&key).0, 202);
    let status = stage.path("status.json");
    let told = || -> Value {
        let mut command = following(&server, &stage, TOKEN);
        let (code, said, error) =
            ended(command.args(["--once", "--json", "--status"]).arg(&status).output().unwrap());
        assert_eq!((code, error.as_str()), (Some(0), ""));
        serde_json::from_str(&said).unwrap()
    };
    let first = told();
    let count = |report: &Value, name: &str| report[name].as_u64().unwrap();
    assert!(count(&first, "copied_bytes") > 0 && count(&first, "new_events") == count(&first, "events"));
    for name in ["behind_ms", "chains"] {
        assert!(first[name].is_u64(), "{name}: {first}");
    }
    assert!(first["as_of"].as_str().unwrap() <= first["at"].as_str().unwrap(), "{first}");
    assert_eq!(
        serde_json::from_slice::<Value>(&std::fs::read(&status).unwrap()).unwrap()["head"],
        first["head"]
    );
    let again = told();
    assert_eq!((count(&again, "copied_bytes"), count(&again, "new_events")), (0, 0));
    assert_eq!(server.post(&key).0, 202);
    let third = told();
    assert_eq!(count(&third, "new_events"), 1);
    assert!(third["head"]["live"].as_u64() > again["head"]["live"].as_u64(), "{again} {third}");
    assert_eq!(third["head"]["test"], again["head"]["test"]);
    server.stop();
}

#[test]
fn a_replica_and_backups_do_not_share_a_directory_and_no_backup_is_removed_by_one() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    for _ in 0..2 {
        stage.create();
    }
    let made = stage.files("backups");
    let (code, _, error) = once(&server, &stage);
    assert!(code == Some(2) && error.contains("a directory of its own"), "{error}");
    assert_eq!((stage.files("backups"), stage.verify().0), (made, Some(0)));
    std::fs::remove_dir_all(stage.backups()).unwrap();
    assert_eq!(once(&server, &stage).0, Some(0));
    let (code, _, error) = stage.backup(&["create"], true);
    assert!(code == Some(2) && error.contains("a directory of their own"), "{error}");
    assert_eq!(once(&server, &stage).0, Some(0));
    assert_eq!(stage.verify().0, Some(0));
    server.stop();
}

#[test]
fn a_replica_removes_nothing_while_somebody_reads_it() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    server.await_drained();
    assert_eq!(once(&server, &stage).0, Some(0));
    let read = (stage.files("backups"), stage.files("files"));
    // As `sealog restore` and `sealog backup verify` do.
    let reader = std::fs::File::open(stage.backups().join("FORMAT")).unwrap();
    reader.lock_shared().unwrap();
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(once(&server, &stage).0, Some(0));
    let both = stage.files("backups");
    assert_eq!(both.len(), 2);
    assert_eq!(both[0], read.0[0]);
    assert!(read.1.iter().all(|file| file.is_file()));
    assert_eq!(stage.verify().0, Some(0), "others may read, too");
    drop(reader);
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(once(&server, &stage).0, Some(0));
    assert_eq!(stage.files("backups").len(), 1);
    server.stop();
    assert_eq!(stage.verify().0, Some(0));
}

#[test]
fn a_server_that_was_taken_back_is_not_followed_and_the_copy_stays() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    server.await_drained();
    server.stop();
    let earlier = stage.path("earlier");
    let copied = Command::new("cp").arg("-r").arg(stage.data()).arg(&earlier).status().unwrap();
    assert!(copied.success());
    let server = serve(&stage.data());
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(once(&server, &stage).0, Some(0));
    server.stop();
    let server = serve(&earlier);
    assert_eq!(server.post(&key).0, 202);
    let (code, _, error) = once(&server, &stage);
    assert!(code == Some(1) && error.contains("keep it"), "{error}");
    server.stop();
    assert_eq!(stage.verify().0, Some(0));
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
}
