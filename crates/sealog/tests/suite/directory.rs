//! The data directory: who may use it, who can read it, and what happens when it is taken away from a running
//! server or its disk cannot be read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use sealog_testing::eventually;

fn refused(data: &Path, with: &str) {
    let (code, said) = spawn(serving(sealog(), data)).ended();
    assert!(code != Some(0) && said.contains(with), "{said}");
}

#[test]
fn removing_the_lock_file_lets_no_second_server_in() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let key = first_key(&data);
    let wait_for_lock_file = || eventually("the lock file is made again", || data.join("LOCK").exists());
    for _ in 0..2 {
        // The server looks twice a second, which can take longer than a second server needs to be refused.
        wait_for_lock_file();
        fs::remove_file(data.join("LOCK")).unwrap();
        refused(&data, "another process has the store open");
        assert_eq!(server.post(&key).0, 202);
    }
    // It was made again, and is held: where directories cannot be locked, it is the only lock.
    wait_for_lock_file();
    let lock = fs::File::open(data.join("LOCK")).unwrap();
    eventually("the lock file is locked", || {
        let is_held = lock.try_lock().is_err();
        if !is_held {
            lock.unlock().unwrap();
        }
        is_held
    });
    assert_eq!(server.get(&key, "/readyz").0, 200);
    server.stop();
    serve(&data).stop();
}

/// Stops a server that accepts no events, or waits for its end if it has begun to end by itself.
#[track_caller]
fn stop_red(server: Running) {
    signal(server.pid(), "-TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(74), "{log}");
}

/// Takes the directory away in some way. The server must turn red, and acknowledge nothing from then on.
fn taken_away(act: impl FnOnce(&Path)) -> (tempfile::TempDir, PathBuf, Running) {
    let (dir, data) = data_dir();
    let server = serve(&data);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(server.get(&key, "/readyz").0, 200);
    act(&data);
    server.await_red();
    for _ in 0..3 {
        let (status, body) = server.post(&key);
        assert_eq!(status, 500, "{body}");
        assert!(body.contains("event/write_failed"), "{body}");
    }
    (dir, data, server)
}

#[test]
fn a_deleted_data_directory_is_noticed_and_nothing_more_is_acknowledged() {
    taken_away(|data| fs::remove_dir_all(data).unwrap());
}

#[test]
fn deleted_segments_are_noticed_and_nothing_more_is_acknowledged() {
    taken_away(|data| {
        for entry in fs::read_dir(data.join("live")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    });
    taken_away(|data| fs::rename(data.join("live"), data.join("elsewhere")).unwrap());
}

#[test]
fn a_data_directory_that_is_renamed_and_replaced_is_noticed_and_stays_locked() {
    let (dir, data, server) = taken_away(|data| {
        fs::rename(data, data.with_file_name("moved")).unwrap();
        fs::create_dir(data).unwrap();
    });
    // Wherever it is now, it is still in use; what took its place is another one, and free.
    refused(&dir.path().join("moved"), "another process has the store open");
    serve(&data).stop();
    stop_red(server);
    let moved = serve(&dir.path().join("moved"));
    let (status, body) = moved.get(&first_key(&dir.path().join("moved")), "/v1/events/verify");
    assert_eq!(status, 200);
    assert!(body.contains(r#""valid":true"#), "{body}");
    moved.stop();
}

fn all_paths(dir: &Path) -> Vec<PathBuf> {
    let mut paths = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { paths.extend(all_paths(&path)) } else { paths.push(path) }
    }
    paths
}

fn under_umask(umask: &str, data: &Path) -> Running {
    let mut command = clean(Command::new("sh"));
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", SEALOG]);
    start(serving(command, data))
}

#[test]
fn only_the_owner_can_read_the_data_directory_whatever_the_umask() {
    for umask in ["022", "000"] {
        let (_dir, data) = data_dir();
        for _ in 0..2 {
            let server = under_umask(umask, &data);
            assert_eq!(server.post(&first_key(&data)).0, 202);
            let paths = all_paths(&data);
            for name in
                ["control.db", "control.db-wal", "control.db-shm", "LOCK", "FORMAT", "mark", "next.seg"]
            {
                assert!(paths.iter().any(|path| path.ends_with(name)), "{name} is among {paths:?}");
            }
            for path in paths {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                let wanted = if path.is_dir() { 0o700 } else { 0o600 };
                assert_eq!(mode, wanted, "umask {umask}: {} has {mode:o}", path.display());
            }
            assert!(!server.begun.contains("chmod"), "{}", server.begun);
            server.stop();
        }
        assert!(all_paths(&data).iter().any(|path| path.extension().is_some_and(|ending| ending == "idx")));
    }
}

#[test]
fn a_directory_or_file_that_others_can_read_is_warned_about_with_the_command_that_ends_it() {
    for wide in ["", "control.db", "live/00000001.log"] {
        let (_dir, data) = data_dir();
        let server = serve(&data);
        assert_eq!(server.post(&first_key(&data)).0, 202);
        server.stop();
        let path = data.join(wide);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o044)).unwrap();
        let server = serve(&data);
        let command = format!("chmod -R go-rwx {}", data.display());
        let line = server.begun.lines().find(|line| line.contains(&command));
        let line = line.unwrap_or_else(|| panic!("no warning of {wide:?} in {}", server.begun));
        assert!(
            line.contains("WARN") && line.contains(path.to_str().unwrap().trim_end_matches('/')),
            "{line}"
        );
        server.stop();
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
        let server = serve(&data);
        assert!(!server.begun.contains("chmod"), "{}", server.begun);
        server.stop();
    }
}

/// A server with ten events in a segment that is not written to any more.
fn with_a_full_segment(data: &Path) -> String {
    let server = serve(data);
    let key = first_key(data);
    for _ in 0..10 {
        assert_eq!(server.post(&key).0, 202);
    }
    server.stop();
    serve(data).stop();
    key
}

const READS: [&str; 2] = ["/v1/events", "/v1/events/verify"];

#[test]
fn a_segment_that_gives_eio_at_start_hides_no_event_and_is_no_damage() {
    let (dir, data) = data_dir();
    let key = with_a_full_segment(&data);
    let segment = data.join("live/00000001.log");
    let kept = dir.path().join("kept");
    fs::rename(&segment, &kept).unwrap();
    // A file of the kernel whose first bytes nobody can read: pread answers EIO.
    symlink("/proc/self/mem", &segment).unwrap();
    let server = serve(&data);
    assert!(!server.begun.contains("damaged"), "{}", server.begun);
    server.await_red();
    for path in READS {
        let (status, body) = server.get(&key, path);
        assert_eq!(status, 500, "{path}: {body}");
        assert!(body.contains("read/query_failed"), "{body}");
    }
    stop_red(server);
    fs::remove_file(&segment).unwrap();
    fs::rename(&kept, &segment).unwrap();
    assert_all_there(&data, &key);
}

fn assert_all_there(data: &Path, key: &str) {
    let server = serve(data);
    let (status, body) = server.get(key, "/v1/events");
    assert_eq!((status, body.matches("\"log_id\"").count()), (200, 10), "{body}");
    let (_, body) = server.get(key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true"#), "{body}");
    assert_eq!(server.post(key).0, 202);
    server.stop();
}

#[test]
fn a_write_beyond_the_limit_of_file_size_is_a_failed_write_with_a_line_and_no_signal() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    let limit =
        Command::new("prlimit").args(["--fsize=100:100", "--pid", &server.pid().to_string()]).status();
    assert!(limit.unwrap().success());
    let (status, body) = server.post(&key);
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("event/write_failed"), "{body}");
    signal(server.pid(), "-TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(74), "{log}");
    assert!(log.contains("File too large"), "{log}");
}

/// Ends what it holds, however the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Whether calls of a server can be made to fail.
fn can_inject() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("strace is not installed: this test was not run");
    }
    found
}

/// `strace` that makes a call on these files fail. Its own words go nowhere.
fn injecting<'a>(fault: &str, files: impl IntoIterator<Item = &'a PathBuf>) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={fault}")]);
    for file in files {
        strace.arg("-P").arg(file);
    }
    strace
}

#[test]
fn a_segment_that_begins_to_give_eio_fails_the_reads_that_need_it_and_no_others() {
    if !can_inject() {
        return;
    }
    let (_dir, data) = data_dir();
    let key = with_a_full_segment(&data);
    let server = serve(&data);
    let segment = data.join("live/00000001.log");
    let strace = Ended(
        injecting("pread64:error=EIO", [&segment]).args(["-p", &server.pid().to_string()]).spawn().unwrap(),
    );
    eventually("strace has begun", || server.get(&key, "/v1/events").0 != 200);
    for path in READS {
        let (status, body) = server.get(&key, path);
        assert_eq!(status, 500, "{path}: {body}");
        assert!(body.contains("read/query_failed"), "{body}");
    }
    // What is new does not need it. A page looks at one event more than it shows.
    for _ in 0..2 {
        assert_eq!(server.post(&key).0, 202);
    }
    assert_eq!(server.get(&key, "/v1/events?limit=1").0, 200);
    // Events are accepted, so the server is ready; whoever watches it is told what fails.
    let (status, ready) = server.get(&key, "/readyz");
    assert_eq!(status, 200, "{ready}");
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let detail = ready["detail"].as_str().unwrap();
    assert!(detail.starts_with("live log: ") && detail.contains("Input/output error"), "{detail}");
    assert_eq!(ready["notices"], serde_json::json!(["reads from the disk failed within the last minute"]));
    let (_, metrics) = server.get(&key, "/metrics");
    let failed = metrics.lines().find(|line| line.starts_with("sealog_store_read_errors_total")).unwrap();
    assert!(!failed.ends_with(" 0"), "{failed}");
    drop(strace);
    let (status, body) = server.get(&key, "/v1/events");
    assert_eq!((status, body.matches("\"log_id\"").count()), (200, 12), "{body}");
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true"#), "{body}");
    server.stop();
}

const TOKEN: &str = "an-operator-token-of-32-characters";

fn with_operator(data: &Path) -> Command {
    let mut command = serving(sealog(), data);
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN);
    command
}

/// Issue 23.23. `statvfs` says nothing of a quota, and SQLite takes its refusal for a broken disk.
#[test]
fn a_disk_quota_stops_changes_of_control_data_only_while_it_is_used_up() {
    if !can_inject() {
        return;
    }
    let (_dir, data) = data_dir();
    let server = start(with_operator(&data));
    let key = first_key(&data);
    let (tenant, _) = first_tenant(&server, TOKEN);
    let number = std::cell::Cell::new(0);
    let create = || {
        number.set(number.get() + 1);
        let body = serde_json::json!({ "name": format!("p{}", number.get()) });
        operator(&server, TOKEN, "POST", &format!("/tenants/{tenant}/projects"), &body).0
    };
    server.await_drained();
    let files = ["control.db", "control.db-wal", "control.reserve"].map(|name| data.join(name));
    let strace = Ended(
        injecting("pwrite64:error=EDQUOT", &files).args(["-p", &server.pid().to_string()]).spawn().unwrap(),
    );
    eventually("the quota refuses a change", || create() == 500);
    for _ in 0..3 {
        assert_eq!(create(), 500);
        // Events are in other files, and what is not changed is read.
        assert_eq!(server.post(&key).0, 202);
    }
    drop(strace);
    eventually("changes are made again without a restart", || create() == 201);
    let log = server.stop();
    assert!(!log.contains("read-only until the server restarts"), "{log}");
    // The same files, as the next start finds them.
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 202);
    server.stop();
}

#[test]
fn a_server_starts_on_a_disk_quota_that_is_used_up_with_what_is_reserved() {
    if !can_inject() {
        return;
    }
    let (_dir, data) = data_dir();
    serve(&data).stop();
    let key = first_key(&data);
    let reserve = data.join("control.reserve");
    assert!(reserve.exists(), "the first start has reserved some room");
    // The shared memory of SQLite is the first file that a start makes longer. Once the reserve is released,
    // there is room.
    let mut strace = injecting("pwrite64:error=EDQUOT:when=1", [&data.join("control.db-shm")]);
    strace.arg(SEALOG);
    let server = start(serving(strace, &data));
    assert!(
        server.begun.contains("released the space that was reserved for control data"),
        "{}",
        server.begun
    );
    assert_eq!(server.post(&key).0, 202);
    signal(children(server.pid())[0], "-TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
}
