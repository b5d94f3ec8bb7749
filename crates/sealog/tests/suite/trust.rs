//! The signed log as an operator meets it: key files, settings, commands, and what a server says when it
//! does not sign.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sealog_testing::{eventually, postgres};
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::merkle;
use sealog_trust::note::{Note, VerifierKey};
use serde_json::{Value, json};

use crate::support::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The vkey in the file of the first run, below the words that say whom to give it to.
fn shown_vkey(data: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    let line = text.split_once("Give this line to your auditor")?.1;
    line.lines().find_map(|line| line.strip_prefix("  vkey       ")).map(str::to_owned)
}

#[test]
fn the_first_start_makes_key_files_for_their_owner_alone_and_shows_the_vkey() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log = serve(&data).stop();
    let keys = ["log.key", "service.key"].map(|name| data.join("trust").join(name));
    let texts = keys.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(keys.each_ref().map(|path| mode(path)), [0o600, 0o600]);
    let vkey = shown_vkey(&data).expect("the first run shows it");
    // The name and the id of the key; the private part is nowhere but in its file.
    let mut parts = vkey.split('+');
    let (name, id) = (parts.next().unwrap(), parts.next().unwrap());
    assert!(name.starts_with("sealog/"), "{vkey}");
    assert!(texts[0].starts_with(&format!("PRIVATE+KEY+{name}+{id}+")), "{vkey}");
    assert!(texts[1].starts_with(&format!("PRIVATE+KEY+{name}/service+")));
    let first_run = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    assert!(!first_run.contains("PRIVATE+KEY") && !log.contains("PRIVATE+KEY"), "{log}");
    // The next start has the same keys.
    serve(&data).stop();
    assert_eq!(keys.each_ref().map(|path| std::fs::read_to_string(path).unwrap()), texts);
}

#[test]
fn the_origin_is_that_of_the_setting_or_of_the_base_url_and_stays() {
    let with = |data: &Path, environment: &[(&str, &str)]| {
        let mut command = serving(sealog(), data);
        command.envs(environment.iter().copied());
        start(command)
    };
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named");
    with(&named, &[("SEALOG_TRUST_ORIGIN", "log.example"), ("SEALOG_BASE_URL", "https://x.example")]).stop();
    assert!(shown_vkey(&named).unwrap().starts_with("log.example+"));
    let server = with(&named, &[("SEALOG_TRUST_ORIGIN", "other.example")]);
    let log = server.begun.clone() + &server.stop();
    assert!(log.contains("trust.origin has no effect"), "{log}");
    let of_url = dir.path().join("of-url");
    with(&of_url, &[("SEALOG_BASE_URL", "https://x.example")]).stop();
    assert!(shown_vkey(&of_url).unwrap().starts_with("x.example/tlog/v1/store+"));
    let off = dir.path().join("off");
    with(&off, &[("SEALOG_TRUST_ENABLED", "false")]).stop();
    assert_eq!(shown_vkey(&off), None);
}

#[test]
fn a_key_file_that_others_can_read_is_refused_at_start_with_the_command_that_repairs_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    serve(&data).stop();
    for name in ["log.key", "service.key"] {
        let path = data.join("trust").join(name);
        for wrong in [0o640, 0o604, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(wrong)).unwrap();
            let (code, said, error) = ended(serving(sealog(), &data).output().unwrap());
            assert_eq!((code, said.as_str()), (Some(1), ""), "{error}");
            assert!(
                error.contains("cannot open the signed log: other users can read the signing key"),
                "{error}"
            );
            // The command as it is told is what repairs it.
            let command = error.trim_end().split_once("; run: ").expect("it says what to run").1;
            assert_eq!(command, format!("chmod 600 {}", path.display()));
            assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success());
            assert_eq!(mode(&path), 0o600);
        }
    }
    serve(&data).stop();
}

#[test]
fn a_named_key_file_may_be_readable_for_its_group_and_signs_only_once_a_log_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (made, data) = (dir.path().join("made"), dir.path().join("data"));
    serve(&made).stop();
    let key = dir.path().join("given.key");
    std::fs::copy(made.join("trust/log.key"), &key).unwrap();
    let given = || {
        let mut command = serving(sealog(), &data);
        command.args(["--trust-log-key-file", key.to_str().unwrap()]);
        command
    };
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (code, _, error) = ended(given().output().unwrap());
    assert!(code == Some(1) && error.contains(&format!("chmod 600 {}", key.display())), "{error}");
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let server = start(given());
    let log = server.begun.clone() + &server.stop();
    assert!(log.contains("no store log was begun"), "{log}");
    assert_eq!(shown_vkey(&data), None);
    assert!(!data.join("trust/log.key").exists(), "none is made beside the one that is named");
}

/// What a command prints, and what it says about it.
pub(crate) fn trust(
    data: &Path,
    args: &[&str],
    environment: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let mut command = sealog();
    command.arg("trust").args(args).arg("--data-dir").arg(data).envs(environment.iter().copied());
    ended(command.output().unwrap())
}

pub(crate) fn status(data: &Path, environment: &[(&str, &str)]) -> Value {
    let (code, said, error) = trust(data, &["status", "--json"], environment);
    assert!(matches!(code, Some(0 | 10)), "{said}{error}");
    let status: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code == Some(10), status["is_trouble"] == true, "{said}");
    status
}

#[test]
fn the_command_shows_the_same_log_of_a_running_and_of_a_stopped_server() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let copy = dir.path().join("state-copy");
    let server = start({
        let mut command = serving(sealog(), &data);
        command.args(["--trust-interval-s", "1", "--trust-state-copy", copy.to_str().unwrap()]);
        command
    });
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    let published = || status(&data, &[]);
    // The project's chain and the system chain.
    eventually("both chains are published", || published()["chains"] == 2);
    let (code, line, _) = trust(&data, &["vkey"], &[]);
    assert_eq!((code, line.trim_end()), (Some(0), &*shown_vkey(&data).unwrap()));
    let (code, said, _) = trust(&data, &["status"], &[]);
    assert_eq!(code, Some(0), "{said}");
    for line in ["state         signing", "log key       sealog/", "service key   sealog/", ", 2 live chains"]
    {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains(&format!("state copy    {}", copy.display())), "{said}");
    let while_running = published();
    assert!(while_running["published_at"].is_string() && while_running["vkey"] == line.trim_end());
    server.stop();
    let stopped = status(&data, &[("SEALOG_TRUST_STATE_COPY", copy.to_str().unwrap())]);
    assert_eq!(stopped["state"], "signing");
    assert_eq!(stopped["size"], stopped["signed_size"], "{stopped}");
    assert!(stopped["size"].as_u64() >= while_running["size"].as_u64(), "{stopped}");
    for same in ["origin", "vkey", "keys", "chains", "state_copy"] {
        assert_eq!(stopped[same], while_running[same], "{same}");
    }
    let (_, json, _) = trust(&data, &["vkey", "--json"], &[]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["vkey"], &json["origin"]), (&stopped["vkey"], &stopped["origin"]));
    // A log that is there is not begun again, and one that is off has no status.
    let (code, said, error) = trust(&data, &["init"], &[]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(error.contains("this store has a log already"), "{error}");
    let (code, _, error) = trust(&data, &["status"], &[("SEALOG_TRUST_ENABLED", "false")]);
    assert!(code == Some(2) && error.contains("trust.enabled is false"), "{error}");
    let (code, _, error) = trust(&dir.path().join("nowhere"), &["status"], &[]);
    assert!(code == Some(2) && error.contains("there is no store in"), "{error}");
}

#[test]
fn a_look_at_a_stopped_store_begins_no_log_and_the_command_that_does_begins_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    start({
        let mut command = serving(sealog(), &data);
        command.env("SEALOG_TRUST_ENABLED", "false");
        command
    })
    .stop();
    let looked = status(&data, &[]);
    assert_eq!((&looked["state"], &looked["vkey"]), (&json!("not_begun"), &Value::Null));
    let (code, said, error) = trust(&data, &["vkey"], &[]);
    assert_eq!((code, said.as_str()), (Some(4), ""), "{error}");
    assert!(error.contains("run `sealog trust init`") && !data.join("trust/log.key").exists(), "{error}");
    let (code, vkey, error) = trust(&data, &["init"], &[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("Give this line to your auditor"), "{error}");
    assert_eq!(mode(&data.join("trust/log.key")), 0o600);
    assert_eq!(trust(&data, &["vkey"], &[]).1, vkey);
}

#[test]
fn on_postgresql_a_log_begins_once_by_a_command_and_only_nodes_with_the_key_sign() {
    let database = postgres::cluster().database();
    let roles = include_str!("../../../../deploy/postgresql/roles.sql");
    database.sql(roles);
    let owner = database.url().replace("owner@", "sealog_owner@");
    let (code, _, error) = ended(sealog().args(["migrate", "--store", &owner]).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    database.sql(roles);
    // Whoever serves can change no table, and that is enough to begin and to sign.
    let url = database.url().replace("owner@", "sealog_node@");
    let dir = tempfile::tempdir().unwrap();
    let keys = ["log.key", "service.key"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let with_keys = [
        ("SEALOG_STORE", &*url),
        ("SEALOG_TRUST_LOG_KEY_FILE", &*keys[0]),
        ("SEALOG_TRUST_SERVICE_KEY_FILE", &*keys[1]),
        ("SEALOG_TRUST_INTERVAL_S", "1"),
    ];
    let without_keys = [with_keys[0], with_keys[3]];
    let node = |name: &str, environment: &[(&str, &str)]| {
        let data = dir.path().join(name);
        let mut command = serving(sealog(), &data);
        command.envs(environment.iter().copied());
        (start(command), data)
    };
    let (first, first_data) = node("first", &without_keys);
    assert_eq!(status(&first_data, &without_keys)["state"], "not_begun");
    let (code, _, error) = trust(&dir.path().join("c"), &["init"], &without_keys);
    assert!(code == Some(1) && error.contains("trust.log_key_file"), "{error}");
    let (code, vkey, error) = trust(&dir.path().join("c"), &["init"], &with_keys);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(keys.each_ref().map(|path| mode(Path::new(path))), [0o600, 0o600]);
    let (code, _, error) = trust(&dir.path().join("c"), &["init"], &with_keys);
    assert!(code == Some(1) && error.contains("has a log already"), "{error}");
    // The node without the key finds the log, serves it and does not sign.
    eventually("the first node finds the log", || status(&first_data, &without_keys)["state"] == "no_key");
    assert_eq!(trust(&first_data, &["vkey"], &without_keys).1, vkey);
    // Two nodes with the key make one snapshot in an interval, not two.
    let signing = [node("second", &with_keys), node("third", &with_keys)];
    let key = [&first_data, &signing[0].1, &signing[1].1]
        .into_iter()
        .find(|data| data.join("first-run.txt").exists())
        .map(|data| first_key(data))
        .expect("one node has made the first keys");
    assert_eq!(first.post(&key).0, 202);
    let seen = || status(&first_data, &without_keys);
    eventually("both chains are published", || seen()["chains"] == 2);
    let size = seen()["signed_size"].as_u64().unwrap();
    eventually("more snapshots are signed", || seen()["signed_size"].as_u64().unwrap() >= size + 4);
    for (_, data) in &signing {
        assert_eq!(status(data, &with_keys)["state"], "signing");
    }
    let too_close = "SELECT count(*) FROM sealog_log.snapshots a JOIN sealog_log.snapshots b ON b.idx > a.idx
                     WHERE b.time_ms - a.time_ms < 1000";
    assert_eq!(database.sql(too_close).trim(), "0");
    let unsigned = "SELECT count(*) FROM sealog_log.snapshots s WHERE s.idx + 1 < (SELECT size FROM sealog_log.state)
                    AND NOT EXISTS (SELECT FROM sealog_log.checkpoints c WHERE c.log = s.log AND c.size = s.idx + 1)";
    assert_eq!(database.sql(unsigned).trim(), "0");
    for forbidden in [
        "UPDATE sealog_log.entries SET entry = ''",
        "DELETE FROM sealog_log.entries",
        "UPDATE sealog_log.checkpoints SET note = ''",
    ] {
        assert!(!database.try_sql("sealog_node", forbidden).status.success(), "{forbidden}");
    }
    for server in [first].into_iter().chain(signing.map(|(server, _)| server)) {
        server.stop();
    }
}

/// A server that publishes every second, with a state copy where one is named.
pub(crate) fn quick(data: &Path, copy: Option<&Path>) -> Running {
    let mut command = serving(sealog(), data);
    // A test that waits asks more often than clients may.
    command.args(["--trust-interval-s", "1", "--limits-per-ip-rps", "0"]);
    if let Some(copy) = copy {
        command.arg("--trust-state-copy").arg(copy);
    }
    start(command)
}

/// A directory with all that is in it.
pub fn copy_of(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn metric(server: &Running, key: &str, series: &str) -> Option<f64> {
    let (_, text) = server.get(key, "/metrics");
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn state_metric(server: &Running, key: &str, state: &str) -> Option<f64> {
    metric(server, key, &format!("sealog_trust_state{{state=\"{state}\"}}"))
}

/// Waits until the signed log covers all that was acknowledged before.
pub(crate) fn publish(data: &Path) {
    let size = || status(data, &[])["signed_size"].as_u64().unwrap();
    let before = size();
    // One may have been under way.
    eventually("two more snapshots are signed", || size() >= before + 2);
}

#[test]
fn a_store_that_is_older_than_its_state_copy_rejects_events_and_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, old, copy) = (dir.path().join("data"), dir.path().join("old"), dir.path().join("copy"));
    let server = quick(&data, Some(&copy));
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    assert_eq!(state_metric(&server, &key, "signing"), Some(1.0));
    assert!(metric(&server, &key, "sealog_trust_signed_timestamp_seconds") > Some(1e9));
    assert!(!server.begun.contains("could not be excluded"), "{}", server.begun);
    server.stop();
    copy_of(&data, &old);
    let server = quick(&data, Some(&copy));
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    server.stop();
    let signed = std::fs::read_to_string(&copy).unwrap();

    std::fs::remove_dir_all(&data).unwrap();
    copy_of(&old, &data);
    let server = quick(&data, Some(&copy));
    let (code, body) = server.post(&key);
    assert!(code == 500 && body.contains("event/write_failed"), "{code} {body}");
    let (code, body) = server.get(&key, "/readyz");
    let ready: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &ready["reason"]), (503, &json!("rolled_back")));
    let detail = ready["detail"].as_str().unwrap();
    assert!(detail.contains("rolled back") && detail.contains("sealog trust recover"), "{detail}");
    assert_eq!(server.get(&key, "/v1/events").0, 200, "reads go on");
    assert_eq!(state_metric(&server, &key, "rolled_back"), Some(1.0));
    let said = status(&data, &[]);
    assert_eq!(said["state"], "rolled_back");
    assert!(said["detail"].as_str().unwrap().contains("the state copy says that"), "{said}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let log = server.begun.clone() + &server.stop();
    assert!(log.contains("signing stopped; events are rejected"), "{log}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), signed, "nothing more is signed");

    // Without the copy nobody can know, and the start says so.
    let server = quick(&data, None);
    let said = "a rollback of the store could not be excluded: set trust.state_copy";
    assert!(server.begun.contains(said), "{}", server.begun);
    assert_eq!(server.post(&key).0, 202);
    server.stop();
}

#[test]
fn a_log_that_is_gone_is_lost_and_events_go_on_without_a_signature() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = quick(&data, None);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    server.stop();
    for file in ["log.db", "log.db-wal", "log.db-shm"] {
        let _ = std::fs::remove_file(data.join("trust").join(file));
    }
    let server = quick(&data, None);
    assert_eq!(server.post(&key).0, 202);
    let (code, body) = server.get(&key, "/readyz");
    assert!(code == 200 && body.contains("the store log is lost"), "{body}");
    assert_eq!(state_metric(&server, &key, "lost"), Some(1.0));
    assert_eq!(state_metric(&server, &key, "signing"), Some(0.0));
    let said = status(&data, &[]);
    assert_eq!((&said["state"], &said["size"], &said["vkey"]), (&json!("lost"), &json!(0), &Value::Null));
    server.stop();
}

#[test]
fn a_store_without_its_folder_of_the_log_begins_no_other_history() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = quick(&data, None);
    let (key, vkey) = (first_key(&data), shown_vkey(&data).unwrap());
    assert_eq!(server.post(&key).0, 202);
    server.stop();
    // Keys, log and trees: nothing of it says that there was a log.
    std::fs::remove_dir_all(data.join("trust")).unwrap();
    let server = quick(&data, None);
    let said = status(&data, &[]);
    assert_eq!(said["state"], "lost");
    let origin = vkey.split('+').next().unwrap();
    let expected = format!("the control data knows the log {origin}");
    assert!(said["detail"].as_str().unwrap().contains(&expected), "{said}");
    assert!(!data.join("trust/log.key").exists(), "no key is made");
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(trust(&data, &["new-log", "--yes"], &[]).0, Some(0));
    assert_eq!(status(&data, &[])["state"], "signing");
    server.stop();
}

/// The name of a chain's own log.
fn chain_origin(server: &Running, key: &str) -> (String, Value) {
    let (_, overview) = server.get(key, "/tlog/v1/chain");
    let overview: Value = serde_json::from_str(&overview).unwrap();
    (overview["origin"].as_str().unwrap().to_owned(), overview)
}

/// The same, which is that of the key that its checkpoints are signed with.
fn chain_log(server: &Running, key: &str) -> String {
    let (origin, overview) = chain_origin(server, key);
    assert!(overview["vkey"].as_str().unwrap().starts_with(&format!("{origin}+")), "{overview}");
    let (code, note) = server.get(key, "/tlog/v1/chain/checkpoint");
    assert!(code != 200 || note.starts_with(&format!("{origin}\n")), "{note}");
    origin
}

/// What a chain whose published end is gone has to go through. `serve` starts the server on what is left.
fn goes_on_once_the_loss_is_accepted(
    data: &Path,
    key: &str,
    project: &str,
    environment: &[(&str, &str)],
    serve: &dyn Fn() -> Running,
) {
    let server = serve();
    let first = chain_log(&server, key);
    let (code, body) = server.post(key);
    assert!(code == 500 && body.contains("event/write_failed"), "{code} {body}");
    let (code, body) = server.get(key, "/readyz");
    assert!(code == 200 && body.contains("does not have event 5, which was published"), "{body}");
    assert_eq!(metric(&server, key, "sealog_trust_chains_misfit"), Some(1.0));
    let (_, verdict) = server.get(key, "/v1/events/verify");
    assert!(verdict.contains("\"valid\":false") && verdict.contains("\"broken_at\":4"), "{verdict}");
    let said = status(data, environment);
    assert!(said["is_trouble"] == true && said["findings_total"] == 1, "{said}");
    let mut command = sealog();
    command.args([
        "accept-loss",
        "--chain",
        &format!("{project}:live"),
        "--reason",
        "restored",
        "--data-dir",
    ]);
    let (code, _, error) = ended(command.arg(data).envs(environment.iter().copied()).output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    let (code, body) = server.post(key);
    assert_eq!(code, 202, "{body}");
    eventually("the shorter chain is published", || {
        let said = status(data, environment);
        said["findings_total"] == 0 && metric(&server, key, "sealog_trust_chains_misfit") == Some(0.0)
    });
    let (_, verdict) = server.get(key, "/v1/events/verify");
    assert!(verdict.contains("\"valid\":true"), "{verdict}");
    // It had a larger tree before. The builder cuts that after the findings are gone.
    let second = format!("{first}/2");
    eventually("the chain's own log goes on as another one", || chain_origin(&server, key).0 == second);
    server.stop();
    // It stays so.
    let server = serve();
    assert_eq!(server.post(key).0, 202);
    assert_eq!(metric(&server, key, "sealog_trust_chains_misfit"), Some(0.0));
    assert_eq!(chain_log(&server, key), second);
    server.stop();
}

fn project_of(server: &Running, key: &str) -> String {
    let (_, body) = server.get(key, "/v1/events");
    let body: Value = serde_json::from_str(&body).unwrap();
    body["events"][0]["project_id"].as_str().unwrap().to_owned()
}

#[test]
fn the_page_of_an_event_gives_a_proof_that_the_verifier_accepts_with_the_key_of_the_page_about_the_chain() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = quick(&data, None);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    let (_, body) = server.get(&key, "/v1/events");
    let body: Value = serde_json::from_str(&body).unwrap();
    let event = &body["events"][0];
    let project = event["project_id"].as_str().unwrap();
    publish(&data);
    let cookie = signed_in_owner(&server, &data);
    let path = format!("/app/p/{project}/live/events/{}", event["log_id"].as_str().unwrap());
    let page = open_page(&server, &path, &cookie);
    let proof = page.split('"').find(|part| part.ends_with("/proof.txt")).expect("it is published");
    let (head, proof) = {
        let answer = open_page(&server, proof, &cookie);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    };
    assert!(head.starts_with("http/1.1 200") && head.contains(".tlog-proof\""), "{head}");
    let page = open_page(&server, &format!("/app/p/{project}/live/verify"), &cookie);
    let vkey = page.split(['<', '>']).find(|part| part.starts_with("sealog/")).expect("the key is shown");
    let vkey = vkey.replace("&#43;", "+").replace("&#47;", "/").replace("&#61;", "=");
    let (code, checkpoint) = server.get(&key, "/tlog/v1/store/checkpoint");
    assert!(code == 200 && page.contains("/tlog/v1/store/checkpoint\""), "{checkpoint}");
    for (name, text) in [("event", event.to_string()), ("proof", proof)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let mut verifier = std::process::Command::new(sealog_testing::examples::program("sealog-verify"));
    verifier.args(["--key", &vkey, "--proof", "proof", "event"]).current_dir(dir.path());
    let (code, said, noted) = ended(verifier.output().unwrap());
    assert_eq!(code, Some(0), "{said}{noted}");
    server.stop();
}

#[test]
fn a_chain_that_ends_before_what_was_published_takes_no_events_though_all_else_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let (data, old) = (dir.path().join("data"), dir.path().join("old"));
    let server = quick(&data, None);
    let key = first_key(&data);
    (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    let project = project_of(&server, &key);
    server.await_drained();
    server.stop();
    copy_of(&data, &old);
    let server = quick(&data, None);
    (0..2).for_each(|_| assert_eq!(server.post(&key).0, 202));
    publish(&data);
    server.stop();
    // Events, marks and control data of before, and the log that was signed.
    let trust = dir.path().join("trust");
    std::fs::rename(data.join("trust"), &trust).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    copy_of(&old, &data);
    std::fs::remove_dir_all(data.join("trust")).unwrap();
    std::fs::rename(&trust, data.join("trust")).unwrap();
    goes_on_once_the_loss_is_accepted(&data, &key, &project, &[], &|| quick(&data, None));
    let declared = || entries(&data).iter().filter(|entry| entry.starts_with("sealog/restore/v1\n")).count();
    // First the builder cuts the tree, for which a busy machine needs longer than the server ran above.
    let server = quick(&data, None);
    eventually("the log declares it", || declared() > 0);
    server.stop();
    assert_eq!(declared(), 1);
    assert!(!entries(&data).concat().contains(&project), "and names nobody");
}

#[test]
fn on_postgresql_a_chain_that_ends_before_what_was_published_takes_no_events_either() {
    let database = postgres::cluster().database();
    let dir = tempfile::tempdir().unwrap();
    let keys = ["log.key", "service.key"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let url = database.url();
    let environment = [
        ("SEALOG_STORE", &*url),
        ("SEALOG_TRUST_LOG_KEY_FILE", &*keys[0]),
        ("SEALOG_TRUST_SERVICE_KEY_FILE", &*keys[1]),
        ("SEALOG_TRUST_INTERVAL_S", "1"),
    ];
    let node = |data: &Path| {
        let mut command = serving(sealog(), data);
        command.envs(environment);
        start(command)
    };
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let server = node(&first);
    assert_eq!(trust(&first, &["init"], &environment).0, Some(0));
    let key = first_key(&first);
    (0..5).for_each(|_| assert_eq!(server.post(&key).0, 202));
    let project = project_of(&server, &key);
    server.await_drained();
    let signed = || status(&first, &environment);
    eventually("both chains are published", || signed()["chains"] == 2);
    let size = signed()["signed_size"].as_u64().unwrap();
    eventually("all of them are", || signed()["signed_size"].as_u64().unwrap() >= size + 2);
    server.stop();
    // Its owner removes the tail and puts the head back; no node's mark is left to tell.
    database.sql(&format!(
        "DELETE FROM sealog.events e USING sealog.chains c
             WHERE c.project_id = '{project}' AND e.chain_id = c.chain_id AND e.chain_seq > 3;
         UPDATE sealog.chains c SET chain_seq = e.chain_seq, log_id = e.log_id, hash = e.hash
             FROM sealog.events e
             WHERE c.project_id = '{project}' AND e.chain_id = c.chain_id AND e.chain_seq = 3"
    ));
    std::fs::create_dir(&second).unwrap();
    goes_on_once_the_loss_is_accepted(&second, &key, &project, &environment, &|| node(&second));
}

/// What the log of a stopped or running server has, entry by entry.
pub(crate) fn entries(data: &Path) -> Vec<String> {
    let script = "import sqlite3, sys, json\nrows = sqlite3.connect(sys.argv[1]).execute('SELECT entry FROM entries WHERE log = (SELECT log FROM state) ORDER BY idx')\nprint(json.dumps([row[0].decode() for row in rows]))";
    let log = data.join("trust/log.db");
    let output = std::process::Command::new("python3").args(["-c", script]).arg(log).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Keeps a log as others do: the newest checkpoint, and its entries in bundles of 256.
pub(crate) fn keep_log(data: &Path, to: &Path) {
    let script = "import sqlite3, sys\nprint(sqlite3.connect(sys.argv[1]).execute('SELECT note FROM checkpoints WHERE log = (SELECT log FROM state) ORDER BY size DESC LIMIT 1').fetchone()[0], end='')";
    let log = data.join("trust/log.db");
    let output = std::process::Command::new("python3").args(["-c", script]).arg(log).output().unwrap();
    let note = String::from_utf8(output.stdout).unwrap();
    let size: usize = note.lines().nth(1).unwrap().parse().unwrap();
    std::fs::create_dir_all(to.join("tile/entries")).unwrap();
    std::fs::write(to.join("checkpoint"), &note).unwrap();
    let entries = entries(data);
    assert!(size <= entries.len() && size < 256, "one bundle: {size}");
    let mut bundle = Vec::new();
    for entry in &entries[..size] {
        bundle.extend(u16::try_from(entry.len()).unwrap().to_be_bytes());
        bundle.extend(entry.as_bytes());
    }
    std::fs::create_dir_all(to.join("tile/entries/000.p")).unwrap();
    std::fs::write(to.join(format!("tile/entries/000.p/{size}")), bundle).unwrap();
}

/// Serves the files of a directory by HTTP, on loopback, for as long as the process runs.
pub fn serve_files(dir: &Path) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, dir) = (listener.local_addr().unwrap(), dir.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    read => request.extend(&buffer[..read]),
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
            let (status, body) = match std::fs::read(dir.join(path)) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    format!("http://{address}/")
}

/// A store that was restored from an older state than it has signed, with a copy of the log that it had.
pub fn rolled_back(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf, std::path::PathBuf, String) {
    let (data, old) = (dir.join("data"), dir.join("old"));
    let (copy, kept) = (dir.join("state-copy"), dir.join("kept"));
    let server = quick(&data, Some(&copy));
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    server.stop();
    copy_of(&data, &old);
    keep_log(&data, &dir.join("kept-too-little"));
    let server = quick(&data, Some(&copy));
    publish(&data);
    server.stop();
    keep_log(&data, &kept);
    std::fs::remove_dir_all(&data).unwrap();
    copy_of(&old, &data);
    (data, copy, kept, key)
}

#[test]
fn the_log_key_is_replaced_beside_the_old_one_and_the_service_key_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = quick(&data, None);
    let old = shown_vkey(&data).unwrap();
    let (code, new, error) = trust(&data, &["rotate-key"], &[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("for 90 days") && new.trim_end() != old, "{error}{new}");
    assert_eq!(trust(&data, &["vkey"], &[]).1, new);
    let active = |role: &str| -> Vec<String> {
        let said = status(&data, &[]);
        let keys = said["keys"].as_array().unwrap().iter();
        let of_role = keys.filter(|key| key["role"] == role && key["retired_at"].is_null());
        of_role.map(|key| key["vkey"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(active("log"), [old.as_str(), new.trim_end()]);
    let file = data.join("trust/log.key");
    assert_eq!((mode(&file), std::fs::read_to_string(&file).unwrap().lines().count()), (0o600, 2));
    let (code, _, error) = trust(&data, &["rotate-key"], &[]);
    assert!(code == Some(1) && error.contains("a rotation of the log key is under way"), "{error}");
    let service = active("service");
    let (code, replaced, _) = trust(&data, &["rotate-key", "--role", "service", "--json"], &[]);
    let replaced: Value = serde_json::from_str(&replaced).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(active("service"), [replaced["vkey"].as_str().unwrap()]);
    assert_ne!(active("service"), service);
    publish(&data);
    server.stop();
    // Both sign on after a start.
    let server = quick(&data, None);
    publish(&data);
    assert_eq!(status(&data, &[])["state"], "signing");
    server.stop();
    keep_log(&data, &dir.path().join("kept"));
    let note = std::fs::read_to_string(dir.path().join("kept/checkpoint")).unwrap();
    assert_eq!(note.lines().filter(|line| line.starts_with("\u{2014} ")).count(), 2, "{note}");
    assert_eq!(trust(&data, &["rotate-key", "--role", "root"], &[]).0, Some(2));
}

#[test]
fn a_rolled_back_log_goes_on_from_a_copy_and_declares_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy, kept, key) = rolled_back(dir.path());
    let server = quick(&data, Some(&copy));
    assert_eq!(server.post(&key).0, 500);
    let before = entries(&data).len();
    let recover = |from: &str| trust(&data, &["recover", "--from", from, "--reason", "disk a7 failed"], &[]);
    // A copy with less, one that is none, and one whose entries are others.
    let forged = dir.path().join("forged");
    copy_of(&kept, &forged);
    for bundle in std::fs::read_dir(forged.join("tile/entries/000.p")).unwrap() {
        let path = bundle.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    for (from, expected) in [("forged", 1), ("nothing", 2), ("state-copy", 2)] {
        let (code, said, error) = recover(dir.path().join(from).to_str().unwrap());
        assert_eq!((code, said.as_str()), (Some(expected), ""), "{from}: {error}");
        assert_eq!(entries(&data).len(), before, "{from}: nothing is changed");
    }
    let (code, _, error) = recover(dir.path().join("kept-too-little").to_str().unwrap());
    assert!(code == Some(1) && error.contains("does not have the same"), "{error}");
    assert_eq!(entries(&data).len(), before, "less than the state copy knows is not appended to");
    assert_eq!(server.post(&key).0, 500, "it is still behind its state copy");
    let (code, said, error) = recover(&serve_files(&kept));
    assert_eq!(code, Some(0), "{said}{error}");
    assert!(said.contains("signing"), "{said}");
    assert!(!data.join("trust-recover").exists(), "what was fetched is removed");
    let (code, body) = server.post(&key);
    assert_eq!(code, 202, "{body}");
    publish(&data);
    server.stop();
    let all = entries(&data);
    let size: usize =
        std::fs::read_to_string(kept.join("checkpoint")).unwrap().lines().nth(1).unwrap().parse().unwrap();
    assert!(
        all[size].starts_with("sealog/restore/v1\n") && all[size].ends_with("\ndisk a7 failed\n"),
        "{all:?}"
    );
    // The state copy fits again.
    let server = quick(&data, Some(&copy));
    assert_eq!((server.post(&key).0, status(&data, &[])["state"].as_str()), (202, Some("signing")));
    server.stop();
}

#[test]
fn a_new_log_begins_on_request_names_the_previous_one_and_accepts_events_again() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy, _, key) = rolled_back(dir.path());
    let server = quick(&data, Some(&copy));
    let old = status(&data, &[]);
    let (code, _, error) = trust(&data, &["new-log"], &[]);
    assert!(code == Some(2) && error.contains("--yes"), "{error}");
    assert_eq!(server.post(&key).0, 500);
    let (code, vkey, error) = trust(&data, &["new-log", "--yes"], &[]);
    assert!(code == Some(0) && error.contains("Give this line to your auditor"), "{error}");
    assert_ne!(vkey.trim_end(), old["vkey"]);
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    let new = status(&data, &[]);
    assert_eq!((&new["state"], new["chains"].as_u64()), (&json!("signing"), Some(2)));
    assert_ne!(new["origin"], old["origin"]);
    server.stop();
    let genesis = &entries(&data)[0];
    assert!(genesis.contains(&format!("previous {}", old["origin"].as_str().unwrap())), "{genesis}");
    let server = quick(&data, Some(&copy));
    assert_eq!(server.post(&key).0, 202);
    server.stop();

    // Of a log that is gone nothing is left to name.
    for file in ["log.db", "log.db-wal", "log.db-shm"] {
        let _ = std::fs::remove_file(data.join("trust").join(file));
    }
    std::fs::remove_file(&copy).unwrap();
    let server = quick(&data, None);
    assert_eq!(status(&data, &[])["state"], "lost");
    let (code, _, error) = trust(&data, &["rotate-key"], &[]);
    assert!(code == Some(1) && error.contains("the store log is lost"), "{error}");
    assert_eq!(trust(&data, &["new-log", "--yes"], &[]).0, Some(0));
    assert_eq!(status(&data, &[])["state"], "signing");
    server.stop();
}

/// The newest checkpoint, as anyone gets it.
fn served(server: &Running) -> String {
    let (code, note) = server.get("-", "/tlog/v1/store/checkpoint");
    assert_eq!(code, 200, "{note}");
    note
}

fn size_of(text: &str) -> u64 {
    text.lines().nth(1).unwrap().parse().unwrap()
}

/// What a process has left: entries of the log, and of its newest signed checkpoint. From a copy, because a
/// look repairs what a crash has left.
fn sizes_left(data: &Path, looked_at: &Path) -> (u64, u64) {
    let _ = std::fs::remove_dir_all(looked_at);
    copy_of(&data.join("trust"), looked_at);
    let script = "import sqlite3, sys\nprint(*sqlite3.connect(sys.argv[1]).execute('SELECT size, (SELECT max(size) FROM checkpoints c WHERE c.log = s.log) FROM state s').fetchone())";
    let mut command = std::process::Command::new("python3");
    let output = command.args(["-c", script]).arg(looked_at.join("log.db")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (size, signed) = text.trim().split_once(' ').unwrap();
    (size.parse().unwrap(), signed.parse().unwrap())
}

/// The log of a stopped server has every tree that was served or that the state copy ever had, and every
/// signature is its own.
fn assert_continues(data: &Path, notes: &[String], copies: &[String]) {
    let entries = entries(data);
    let leaves: Vec<_> = entries.iter().map(|entry| merkle::leaf_hash(entry.as_bytes())).collect();
    let key = VerifierKey::parse(trust(data, &["vkey"], &[]).1.trim_end()).unwrap();
    for note in notes {
        let signed = Note::parse(note.as_bytes()).unwrap().verify(&[&key]);
        assert!(signed.is_ok_and(|signed| signed.len() == 1), "{note}");
    }
    let texts = notes.iter().map(|note| note.split_once("\n\n").unwrap().0.to_owned() + "\n");
    for text in texts.chain(copies.iter().cloned()) {
        let Checkpoint { size, root, .. } = Checkpoint::parse(&text).unwrap();
        let begin = leaves.get(..usize::try_from(size).unwrap());
        assert_eq!(begin.map(merkle::root_of), Some(root), "{text} is no beginning of {}", leaves.len());
    }
}

/// How often a server is killed, each time before a later system call that makes something durable or gives
/// it its name: a snapshot has fewer.
const CALLS: u64 = 9;

#[test]
fn kill_9_before_each_sync_of_a_snapshot_contradicts_nothing_that_was_served() {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        left_out("kill -9 before each sync of a snapshot", "strace is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("state-copy"));
    let mut server = quick(&data, Some(&copy));
    let key = first_key(&data);
    server.await_drained();
    let (mut notes, mut copies) = (Vec::new(), Vec::new());
    let (mut unsigned, mut copied) = (0, 0);
    for call in 1..=CALLS {
        assert_eq!(server.post(&key).0, 202, "it is not held for a rollback");
        notes.push(served(&server));
        let calls = "fsync,fdatasync,rename,renameat,renameat2";
        let mut strace = std::process::Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            &format!("inject={calls}:signal=KILL:when={call}"),
        ]);
        let mut strace = strace.args(["-p", &server.pid().to_string()]).spawn().unwrap();
        let (code, log) = server.ended();
        assert_eq!(code, None, "{log}");
        strace.wait().unwrap();
        copies.push(std::fs::read_to_string(&copy).unwrap());
        let (size, signed) = sizes_left(&data, &dir.path().join("left"));
        let in_copy = size_of(copies.last().unwrap());
        assert!(signed <= in_copy && in_copy <= size, "{signed} {in_copy} {size}");
        unsigned += u64::from(in_copy < size);
        copied += u64::from(signed < in_copy);
        server = quick(&data, Some(&copy));
        assert_eq!(status(&data, &[])["state"], "signing");
        eventually("the log goes on", || size_of(&served(&server)) > size);
        notes.push(served(&server));
    }
    println!("trust: kills={CALLS} tree_before_its_copy={unsigned} copy_before_its_checkpoint={copied}");
    assert!(unsigned > 0 && copied > 0, "no kill came in the middle: {unsigned} {copied}");
    server.stop();
    assert_continues(&data, &notes, &copies);
}

#[test]
fn a_write_that_the_disk_refuses_stops_the_log_and_the_next_start_continues_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("state-copy"));
    let server = quick(&data, Some(&copy));
    let key = first_key(&data);
    server.await_drained();
    assert_eq!(server.post(&key).0, 202);
    publish(&data);
    let mut limit = std::process::Command::new("prlimit");
    limit.args(["--fsize=100:100", "--pid", &server.pid().to_string()]);
    assert!(limit.status().unwrap().success());
    server.says("cannot sign the store log; retrying");
    let mut notes = vec![served(&server)];
    let copies = [std::fs::read_to_string(&copy).unwrap()];
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(served(&server), notes[0], "what was served stays, and nothing else is");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), copies[0]);
    server.terminate();
    let (code, log) = server.ended();
    // What it could not write at the end, such as when a key was used, is an exit code of its own.
    assert!(matches!(code, Some(0 | 74)), "{code:?} {log}");
    let server = quick(&data, Some(&copy));
    assert_eq!((server.post(&key).0, status(&data, &[])["state"].as_str()), (202, Some("signing")));
    eventually("the log goes on", || size_of(&served(&server)) > size_of(&notes[0]));
    notes.push(served(&server));
    server.stop();
    assert_continues(&data, &notes, &copies);
}
