//! The administrative socket of a running server, and commands that meet a server which is there, is not, or
//! is coming or going. `accept_loss.rs` has what the one command does.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use sealog_testing::eventually;

fn socket(data: &Path) -> PathBuf {
    data.join("admin.sock")
}

/// A client that has been greeted.
fn connect(data: &Path) -> BufReader<UnixStream> {
    let mut stream = None;
    eventually("a server listens", || {
        stream = UnixStream::connect(socket(data)).ok();
        stream.is_some()
    });
    let mut lines = BufReader::new(stream.unwrap());
    let mut greeting = String::new();
    lines.read_line(&mut greeting).unwrap();
    assert_eq!(greeting, "{\"sealog_admin\":3}\n");
    lines
}

/// What the server answers to these bytes.
fn answer(mut client: BufReader<UnixStream>, request: &[u8]) -> String {
    // A server that has heard enough may end the connection before the rest is written.
    let _ = client.get_mut().write_all(request);
    let mut answer = String::new();
    client.read_line(&mut answer).unwrap();
    // Nothing more. Whoever has sent too much is told so by the kernel, too.
    let rest = client.read(&mut [0; 1]);
    assert!(
        rest.as_ref().is_ok_and(|read| *read == 0)
            || rest.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    );
    answer
}

/// Starts a command and does not wait for it.
fn accepting(data: &Path, chain: &str) -> Child {
    let mut command = sealog();
    command.args(["accept-loss", "--chain", chain, "--reason", "disk replaced", "--data-dir"]).arg(data);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(command: Child) -> (Option<i32>, String, String) {
    ended(command.wait_with_output().unwrap())
}

#[track_caller]
fn assert_accepted((code, said, error): (Option<i32>, String, String)) {
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(said.contains("events 6 to 8 are lost") && said.contains("accepted as event 6"), "{said}");
}

#[test]
fn a_running_server_accepts_a_loss_and_its_chain_goes_on_at_once() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 500);
    let chain = format!("{project}:live");
    assert_accepted(accept(&data, &["--chain", &chain, "--reason", "disk replaced"]));
    assert_eq!(server.post(&key).0, 202);
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true,"checked":7"#), "{body}");
    server.says("received an administrative command");

    // The same refusals and exit codes as without a server.
    let unknown = "22222222-2222-4222-8222-222222222222:live";
    for (args, wanted, with) in [
        (["--chain", &chain, "--reason", "again"], 1, "no proven loss"),
        (["--chain", unknown, "--reason", "x"], 4, "there is no project"),
    ] {
        let (code, said, error) = accept(&data, &args);
        assert!(code == Some(wanted) && said.is_empty() && error.contains(with), "{error}");
    }
    let (code, said, _) = accept(&data, &["--json", "--chain", &chain, "--reason", "again"]);
    assert_eq!((code, &*said), (Some(1), ""));
    server.stop();
    assert!(!socket(&data).exists(), "a server that stops takes its socket away");
}

#[test]
fn only_the_owner_can_write_to_the_socket_whatever_the_umask_is() {
    let (_dir, data) = data_dir();
    let mut command = clean(Command::new("sh"));
    let program = env!("CARGO_BIN_EXE_sealog");
    command
        .args(["-c", "umask 0; exec \"$0\" serve --listen 127.0.0.1:0 --data-dir \"$1\"", program])
        .arg(&data);
    let server = start(command);
    drop(connect(&data));
    let metadata = fs::symlink_metadata(socket(&data)).unwrap();
    assert_eq!((metadata.file_type().is_socket(), metadata.mode() & 0o777), (true, 0o600));
    assert_eq!(metadata.uid(), fs::metadata(&data).unwrap().uid());
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
    server.stop();
}

#[test]
fn the_socket_of_a_killed_server_is_in_nobodys_way() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let server = serve(&data);
    drop(connect(&data));
    // Dropped, it is killed.
    drop(server);
    assert!(socket(&data).exists());
    let chain = format!("{project}:live");
    assert_accepted(accept(&data, &["--chain", &chain, "--reason", "disk replaced"]));
    // And the next server puts its own in the place.
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 202);
    assert!(answer(connect(&data), b"?\n").contains("failed"));
    let (code, _, error) = accept(&data, &["--chain", &chain, "--reason", "again"]);
    assert!(code == Some(1) && error.contains("no proven loss"), "{error}");
    server.stop();
}

#[test]
fn a_command_finds_a_server_that_is_starting() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let mut command = sealog();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let log = fs::File::create(data.join("../log")).unwrap();
    let mut server = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    // From here on the directory is the server's, whether it listens or not.
    eventually("the server locks its directory", || {
        fs::read_to_string(data.join("LOCK")).is_ok_and(|holder| holder.trim() == server.id().to_string())
    });
    let accepted = finish(accepting(&data, &format!("{project}:live")));
    server.kill().unwrap();
    server.wait().unwrap();
    assert_accepted(accepted);
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 202);
    server.stop();
}

#[test]
fn a_command_that_meets_a_stopping_server_is_done_by_one_of_the_two() {
    for _ in 0..3 {
        let (_dir, data) = data_dir();
        let (key, project, _) = with_a_loss(&data);
        let server = serve(&data);
        let command = accepting(&data, &format!("{project}:live"));
        server.stop();
        assert_accepted(finish(command));
        let server = serve(&data);
        assert_eq!(server.post(&key).0, 202);
        server.stop();
    }
}

#[test]
fn of_two_commands_at_once_one_accepts_and_the_other_finds_nothing_lost() {
    for running in [true, false] {
        let (_dir, data) = data_dir();
        let (_, project, _) = with_a_loss(&data);
        let server = running.then(|| serve(&data));
        let chain = format!("{project}:live");
        let commands = [accepting(&data, &chain), accepting(&data, &chain)];
        let mut outcomes = commands.map(finish);
        outcomes.sort();
        let [accepted, refused] = outcomes;
        assert_accepted(accepted);
        assert!(refused.0 == Some(1) && refused.2.contains("no proven loss"), "{refused:?}");
        if let Some(server) = server {
            server.stop();
        }
    }
}

#[test]
fn a_store_that_another_process_keeps_without_listening_is_not_waited_for_for_ever() {
    let (_dir, data) = data_dir();
    let (_, project, _) = with_a_loss(&data);
    let held = fs::File::open(&data).unwrap();
    held.lock().unwrap();
    let (code, said, error) = accept(&data, &["--chain", &format!("{project}:live"), "--reason", "x"]);
    assert_eq!((code, &*said), (Some(5), ""));
    assert!(error.contains("another process has the store open") && error.contains("admin.sock"), "{error}");
}

#[test]
fn a_socket_that_the_server_cannot_have_made_is_not_talked_to() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let server = serve(&data);
    drop(connect(&data));
    let chain = format!("{project}:live");
    let refused = |with: &str| {
        let (code, said, error) = accept(&data, &["--chain", &chain, "--reason", "x"]);
        assert_eq!((code, &*said), (Some(1), ""));
        assert!(error.contains(with) && error.contains("admin.sock"), "{error}");
    };
    fs::set_permissions(socket(&data), fs::Permissions::from_mode(0o666)).unwrap();
    refused("has the mode 0666");
    fs::set_permissions(socket(&data), fs::Permissions::from_mode(0o600)).unwrap();
    // Only root can give a file away.
    if std::os::unix::fs::chown(socket(&data), Some(65534), None).is_ok() {
        refused("belongs to user 65534");
    }
    assert_eq!(server.post(&key).0, 500);
    server.stop();

    // And a server does not take away what it has not made.
    fs::write(socket(&data), "mine").unwrap();
    let server = serve(&data);
    server.says("cannot open the administrative socket");
    refused("is not a socket");
    assert_eq!(server.get(&key, "/v1/events").0, 200);
    server.stop();
    assert_eq!(fs::read_to_string(socket(&data)).unwrap(), "mine");
}

#[test]
fn what_is_no_request_is_refused_with_a_reason() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let server = serve(&data);
    let chain = format!("{project}:live");
    for (request, with) in [
        ("\n".to_owned(), "not a valid request"),
        ("GET / HTTP/1.1\r\n\r\n".into(), "not a valid request"),
        ("{\"drop_everything\":{}}\n".into(), "unknown variant"),
        ("{\"accept_loss\":{\"chain\":\"x\",\"reason\":\"x\"}}\n".into(), "is not a chain"),
        (format!("{{\"accept_loss\":{{\"chain\":\"{chain}\"}}}}\n"), "missing field `reason`"),
        (
            format!("{{\"accept_loss\":{{\"chain\":\"{chain}\",\"reason\":\"x\",\"force\":true}}}}\n"),
            "unknown field `force`",
        ),
        (format!("{{\"accept_loss\":{{\"chain\":\"{chain}\",\"reason\":\" \"}}}}\n"), "needs a reason"),
        ("x".repeat(1 << 20), "more than 65536 bytes"),
    ] {
        let answered = answer(connect(&data), request.as_bytes());
        // What the request itself cannot mean is told apart from what has failed.
        let kind = if with == "needs a reason" { "wrong" } else { "failed" };
        assert!(
            answered.starts_with(&format!("{{\"{kind}\":\"")) && answered.ends_with("\"}\n"),
            "{answered}"
        );
        assert!(answered.contains(with), "{answered}");
    }
    let bytes: Vec<u8> = (0..=255).rev().cycle().take(5000).collect();
    assert!(answer(connect(&data), &bytes).contains("not a valid request"));
    // A client that leaves in the middle of its request has asked for nothing.
    let mut client = connect(&data);
    client.get_mut().write_all(b"{\"accept_loss\":").unwrap();
    client.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!((&*rest, server.post(&key).0), ("", 500));
    // And a reason that is too long for a request is refused by the store's rule, or by size, and nothing is
    // sealed.
    let (code, _, error) = accept(&data, &["--chain", &chain, "--reason", &"x".repeat(1001)]);
    assert!(code == Some(2) && error.contains("the limit is 1000"), "{error}");
    let (code, _, error) = accept(&data, &["--chain", &chain, "--reason", &"x".repeat(100_000)]);
    assert!(code == Some(1) && error.contains("more than 65536 bytes"), "{error}");
    server.stop();
}

#[test]
fn clients_that_say_nothing_are_cut_off_and_keep_nobody_out() {
    let (_dir, data) = data_dir();
    let (_, project, _) = with_a_loss(&data);
    let server = serve(&data);
    // As many as are served at a time.
    let silent: Vec<_> = (0..8).map(|_| connect(&data)).collect();
    assert_accepted(accept(&data, &["--chain", &format!("{project}:live"), "--reason", "disk replaced"]));
    for mut client in silent {
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("no request within 5 s"), "{rest}");
    }
    // Nor does one keep the server from stopping.
    let _silent = connect(&data);
    server.stop();
}

#[test]
fn a_data_directory_with_a_long_path_has_a_socket_too() {
    let (_dir, data) = data_dir();
    let data = data.join("d".repeat(120));
    fs::create_dir_all(&data).unwrap();
    let (key, project, _) = with_a_loss(&data);
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 500);
    eventually("a server listens", || socket(&data).exists());
    assert_accepted(accept(&data, &["--chain", &format!("{project}:live"), "--reason", "disk replaced"]));
    assert_eq!(server.post(&key).0, 202);
    server.stop();
    assert!(!socket(&data).exists());
}

#[test]
fn beside_a_database_a_command_goes_to_the_server_of_its_data_directory_or_to_the_database() {
    let (_dir, data) = data_dir();
    let database = sealog_testing::postgres::cluster().database();
    let serve = || {
        let mut command = sealog();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.env("SEALOG_STORE", database.url());
        start(command)
    };
    let server = serve();
    let key = first_key(&data);
    for _ in 0..8 {
        assert_eq!(server.post(&key).0, 202);
    }
    let (_, body) = server.get(&key, "/v1/events");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let chain = format!("{}:live", body["events"][0]["project_id"].as_str().unwrap());
    drop(connect(&data));
    let lose_from = |seq: u64| database.sql(&format!("DELETE FROM sealog.events WHERE chain_seq >= {seq}"));

    lose_from(6);
    assert_eq!(server.post(&key).0, 500);
    // No command can open this store, so it is the server that does it.
    let nowhere = "postgres://nobody@127.0.0.1:1/nowhere";
    assert_accepted(accept(&data, &["--chain", &chain, "--reason", "failover", "--store", nowhere]));
    assert_eq!(server.post(&key).0, 202);
    server.stop();

    lose_from(7);
    let server = serve();
    assert_eq!(server.post(&key).0, 500);
    server.stop();
    let (code, said, error) =
        accept(&data, &["--chain", &chain, "--reason", "failover", "--store", &database.url()]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(said.contains("event 7 is lost") && said.contains("accepted as event 7"), "{said}");
    let server = serve();
    assert_eq!(server.post(&key).0, 202);
    server.stop();
}
