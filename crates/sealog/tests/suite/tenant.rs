//! `sealog tenant`: everything of a tenant as one archive, and the end of its contract.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sealog_testing::mounted::Mounted;
use sealog_testing::postgres;
use serde_json::{Value, json};

use crate::support::stage::OPERATOR_TOKEN;
use crate::support::*;

const PASSWORD: &str = "correct horse battery";
/// Of a tenant and a reason.
const HOSTILE: &str = "Acme <b>\u{202e}\"&\u{1b}[31m";

/// A server on one of the stores, and the directory of what commands write.
struct House {
    dir: tempfile::TempDir,
    data: PathBuf,
    url: Option<String>,
    server: Option<Running>,
}

/// A tenant with a project, a live and a test key, and an owner.
struct Tenant {
    id: String,
    project: String,
    keys: [String; 2],
    email: String,
}

impl House {
    fn new(url: Option<String>) -> House {
        let (dir, data) = data_dir();
        let mut house = House { dir, data, url, server: None };
        house.start();
        house
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = sealog();
        command.args(args).arg("--data-dir").arg(&self.data).stdin(Stdio::null());
        if let Some(url) = &self.url {
            command.env("SEALOG_STORE", url);
        }
        command
    }

    fn start(&mut self) {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--limits-per-ip-rps", "0"]);
        command.env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN);
        self.server = Some(start(command));
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    fn server(&self) -> &Running {
        self.server.as_ref().expect("it runs")
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        ended(self.command(args).output().unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn tenant(&self, name: &str, email: &str) -> Tenant {
        let made = |path: &str, body: Value, field: &str| {
            let (status, answer) = operator(self.server(), OPERATOR_TOKEN, "POST", path, &body);
            assert_eq!(status, 201, "{answer}");
            answer[field].as_str().unwrap().to_owned()
        };
        let id = made("/tenants", json!({ "name": name }), "tenant_id");
        let project = made(&format!("/tenants/{id}/projects"), json!({ "name": name }), "project_id");
        let keys = ["live", "test"].map(|mode| {
            made(&format!("/projects/{project}/keys"), json!({ "name": name, "mode": mode }), "key")
        });
        let user = json!({ "email": email, "password": PASSWORD, "role": "owner" });
        made(&format!("/tenants/{id}/users"), user, "user_id");
        Tenant { id, project, keys, email: email.to_owned() }
    }

    /// The cookie of a session; nothing where the person cannot sign in.
    fn sign_in(&self, tenant: &Tenant) -> Option<String> {
        let form =
            format!("email={}&password={}", tenant.email.replace('@', "%40"), PASSWORD.replace(' ', "+"));
        let answer = submit(self.server(), "/app/sign-in", "", &form);
        answer.starts_with("HTTP/1.1 303").then(|| {
            let cookie = answer.split_once("set-cookie: ").expect("a session").1;
            cookie.split(';').next().unwrap().to_owned()
        })
    }

    fn export(&self, tenant: &str, file: &str, more: &[&str]) -> (Option<i32>, String, String) {
        self.run(&[&["tenant", "export", tenant, "--output", file], more].concat())
    }

    fn close(&self, tenant: &str, name: &str, reason: &str, more: &[&str]) -> (Option<i32>, String, String) {
        self.run(&[&["tenant", "close", tenant, "--name", name, "--reason", reason, "--json"], more].concat())
    }
}

/// The files of an archive, unpacked by tar.
fn unpacked(archive: &str, to: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::create_dir(to).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to).status().unwrap().success());
    let listed = Command::new("tar").arg("-tf").arg(archive).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().map(|name| (name.to_owned(), std::fs::read(to.join(name)).unwrap())).collect()
}

fn rows(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Vec<Value> {
    let text = std::str::from_utf8(&files[name]).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn system_events(files: &BTreeMap<String, Vec<u8>>) -> Vec<Value> {
    let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    let system = manifest["chains"].as_array().unwrap().iter().find(|chain| chain["is_system"] == true);
    let project = system.expect("a system chain")["project_id"].as_str().unwrap().to_owned();
    rows(files, &format!("events/{project}-live.000001.ndjson"))
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

fn exports(mut house: House) {
    let leaving = house.tenant(HOSTILE, "leaving@example.com");
    let other = house.tenant("Secret Neighbour", "neighbour@example.com");
    let send = |key: &str, actor: &str| {
        let body = json!({ "action": "user.login", "actor_id": actor, "metadata": { "t": HOSTILE } });
        assert_eq!(house.server().send(key, &body.to_string()).0, 202);
    };
    for n in 0..3 {
        send(&leaving.keys[0], &format!("live-{n}"));
    }
    send(&leaving.keys[1], "test-0");
    send(&other.keys[0], "actor-of-the-neighbour");
    let cookie = house.sign_in(&leaving).expect("an owner");
    let case = "regime=gdpr&request_type=access&received=2026-11-02&channel=email&requester=Ada+Subject\
                &contact=ada%40subject.example&wrote=Give+me+everything&note=It+came+in.";
    let opened = submit(house.server(), &format!("/app/o/{}/cases/create", leaving.id), &cookie, case);
    assert!(opened.starts_with("HTTP/1.1 303"), "{opened}");
    house.server().await_drained();

    let archive = house.file("leaving.tar");
    let (code, said, noted) = house.export(&leaving.id, &archive, &["--json"]);
    assert_eq!(code, Some(0), "{noted}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&report["tenant_id"], report["chains"].as_array().unwrap().len()), (&json!(leaving.id), 3));
    let files = unpacked(&archive, &house.dir.path().join("unpacked"));
    let actors = |mode: &str| -> Vec<String> {
        let events = rows(&files, &format!("events/{}-{mode}.000001.ndjson", leaving.project));
        events.iter().map(|event| event["actor_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (actors("live"), actors("test")),
        (["live-0", "live-1", "live-2"].map(str::to_owned).to_vec(), vec!["test-0".to_owned()])
    );
    assert_eq!(rows(&files, "projects.ndjson")[0]["name"], HOSTILE);
    assert_eq!((rows(&files, "keys.ndjson").len(), rows(&files, "members.ndjson").len()), (2, 1));
    assert_eq!(rows(&files, "members.ndjson")[0]["role"], "owner");
    let cases = rows(&files, "cases.ndjson");
    assert_eq!((&cases[0]["kind"], &cases[0]["requester"]), (&json!("case"), &json!("Ada Subject")));
    assert_eq!((&cases[1]["kind"], &cases[1]["note"]), (&json!("entry"), &json!("It came in.")));
    // Nothing that opens anything, and nothing of another organisation.
    let everything = std::fs::read(&archive).unwrap();
    let has = |text: &str| everything.windows(text.len()).any(|window| window == text.as_bytes());
    for secret in [&leaving.keys[0], &leaving.keys[1], "argon2", PASSWORD, cookie.split_once('=').unwrap().1]
    {
        assert!(!has(secret), "{secret}");
    }
    for foreign in [&other.id, &other.project, "Neighbour", "neighbour@example.com", "actor-of-the-neighbour"]
    {
        assert!(!has(foreign), "{foreign}");
    }
    // A reader can check it: with this program, and with the one that shares no code with it.
    assert_eq!(ended(sealog().args(["tenant", "verify", &archive]).output().unwrap()).0, Some(0));
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/sealog_verify.py");
    for (name, _) in files.iter().filter(|(name, _)| name.starts_with("events/")) {
        let file = house.dir.path().join("unpacked").join(name);
        let checked = Command::new("python3").arg(tool).arg(file).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
    }
    assert!(!system_events(&files).iter().any(|event| event["action"] == "sealog.tenant_exported"));
    // A stopped store gives the same, and the record of the first export with it; no other tenant has one.
    house.server().await_drained();
    house.stop();
    let again = house.file("again.tar");
    let (code, _, noted) = house.export(&leaving.id, &again, &[]);
    assert_eq!(code, Some(0), "{noted}");
    let second = unpacked(&again, &house.dir.path().join("again"));
    for (name, content) in files.iter().filter(|(name, _)| name.contains(&*leaving.project)) {
        assert!(second[name] == *content, "{name}");
    }
    let exported = system_events(&second);
    let exported: Vec<_> =
        exported.iter().filter(|event| event["action"] == "sealog.tenant_exported").collect();
    assert_eq!((exported.len(), &exported[0]["actor_type"]), (1, &json!("host")));
    let others = house.file("other.tar");
    assert_eq!(house.export(&other.id, &others, &["--quiet"]), (Some(0), String::new(), String::new()));
    let others = unpacked(&others, &house.dir.path().join("other"));
    assert!(!system_events(&others).iter().any(|event| event["action"] == "sealog.tenant_exported"));
}

#[test]
fn everything_of_a_tenant_is_in_one_archive_that_verifies_and_nothing_of_another() {
    exports(House::new(None));
}

#[test]
fn everything_of_a_tenant_is_in_one_archive_on_postgresql() {
    let database = postgres::cluster().database();
    exports(House::new(Some(database.url())));
}

/// Issue 23: each with its bytes, and verified by two programs that share no code.
fn exports_the_worst(house: &House) {
    let tenant = house.tenant("Acme", "a@example.com");
    let worst = sealog_testing::worst::worst_events("usr_1");
    for (name, body) in &worst {
        let (status, answer) = house.server().send(&tenant.keys[0], body);
        assert_eq!(status, 202, "{name}: {answer}");
    }
    let archive = house.file("worst.tar");
    let (code, _, noted) = house.export(&tenant.id, &archive, &[]);
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(ended(sealog().args(["tenant", "verify", &archive]).output().unwrap()).0, Some(0));
    let files = unpacked(&archive, &house.dir.path().join("unpacked"));
    let beginning = format!("events/{}-live.", tenant.project);
    let mut lines = Vec::new();
    for (name, content) in files.iter().filter(|(name, _)| name.starts_with(&beginning)) {
        lines.extend(std::str::from_utf8(content).unwrap().lines());
        let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/sealog_verify.py");
        let file = house.dir.path().join("unpacked").join(name);
        let checked = Command::new("python3").arg(tool).arg(file).output().unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
    }
    assert_eq!(lines.len(), worst.len());
    for (line, (name, body)) in lines.iter().zip(&worst) {
        let metadata = body.split_once("\"metadata\":").unwrap().1;
        let is_there = line.contains(metadata.strip_suffix('}').unwrap());
        assert!(is_there || *name == "one name many times", "{name}");
    }
}

#[test]
fn the_worst_events_of_a_tenant_are_in_its_archive() {
    exports_the_worst(&House::new(None));
}

#[test]
fn the_worst_events_of_a_tenant_are_in_its_archive_on_postgresql() {
    let database = postgres::cluster().database();
    exports_the_worst(&House::new(Some(database.url())));
}

#[test]
fn an_archive_that_was_changed_or_cut_is_refused() {
    let house = House::new(None);
    let tenant = house.tenant("Acme", "a@example.com");
    for _ in 0..20 {
        assert_eq!(house.server().post(&tenant.keys[0]).0, 202);
    }
    let archive = house.file("a.tar");
    assert_eq!(house.export(&tenant.id, &archive, &[]).0, Some(0));
    let whole = std::fs::read(&archive).unwrap();
    let changed = house.file("changed.tar");
    let verified = |bytes: &[u8]| {
        std::fs::write(&changed, bytes).unwrap();
        let (code, _, noted) = ended(sealog().args(["tenant", "verify", &changed]).output().unwrap());
        assert!(code == Some(0) || noted.starts_with("sealog: "), "{noted}");
        code
    };
    assert_eq!(verified(&whole), Some(0));
    for end in [0, 100, whole.len() / 2, whole.len() - 1024] {
        assert_eq!(verified(&whole[..end]), Some(10), "{end}");
    }
    // A letter of each file.
    let mut at = 0;
    while whole[at] != 0 {
        let size = std::str::from_utf8(&whole[at + 124..at + 135]).unwrap();
        let size = usize::from_str_radix(size, 8).unwrap();
        let mut other = whole.clone();
        if size > 0 {
            other[at + 512 + size / 2] ^= 1;
            assert_eq!(verified(&other), Some(10), "{}", String::from_utf8_lossy(&whole[at..at + 40]));
        }
        at += 512 + size.next_multiple_of(512);
    }
    // A file that only looks like one, and one that is not there.
    assert_eq!(verified(b"not an archive"), Some(10));
    assert_eq!(ended(sealog().args(["tenant", "verify", "/nowhere.tar"]).output().unwrap()).0, Some(2));
}

#[test]
fn an_export_replaces_nothing_and_names_what_is_wrong() {
    let house = House::new(None);
    let tenant = house.tenant("Acme", "a@example.com");
    let there = house.file("there.tar");
    std::fs::write(&there, "kept").unwrap();
    let none = "00000000-0000-4000-8000-000000000000";
    for (id, file, code, said) in [
        (&*tenant.id, &*there, 2, "already exists"),
        (none, &house.file("new.tar"), 4, "there is no tenant"),
        ("../x", &house.file("new.tar"), 2, "is not the id of a tenant"),
        (&tenant.id, "/nowhere/new.tar", 2, "cannot write"),
    ] {
        let (found, _, noted) = house.export(id, file, &[]);
        assert!(found == Some(code) && noted.contains(said), "{id} {file}: {found:?} {noted}");
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "kept");
    assert!(!names_in(house.dir.path()).iter().any(|name| name.contains("new.tar")));
}

#[test]
fn an_export_onto_a_full_disk_leaves_nothing() {
    let Some(disk) = Mounted::new(8) else { return };
    let house = House::new(None);
    let tenant = house.tenant("Acme", "a@example.com");
    let body = json!({ "action": "user.login", "actor_id": "a", "metadata": { "t": "x".repeat(60_000) } });
    for _ in 0..20 {
        assert_eq!(house.server().send(&tenant.keys[0], &body.to_string()).0, 202);
    }
    disk.fill("other", 256 << 10);
    let before = names_in(&disk.at);
    let file = disk.at.join("a.tar");
    let (code, said, noted) = house.export(&tenant.id, file.to_str().unwrap(), &["--json"]);
    assert!(code == Some(1) && noted.contains("No space left on device"), "{code:?} {noted}");
    assert!(noted.contains("no file was left") && said.is_empty(), "{said} {noted}");
    assert_eq!(names_in(&disk.at), before);
    std::fs::remove_file(disk.at.join("other")).unwrap();
    assert_eq!(house.export(&tenant.id, file.to_str().unwrap(), &[]).0, Some(0));
}

#[test]
fn a_chain_that_has_lost_its_end_is_exported_as_far_as_it_goes_and_named() {
    let (dir, data) = data_dir();
    let (_, project, events) = with_a_loss(&data);
    let house = House { dir, data, url: None, server: None };
    let tenant = events[0]["tenant_id"].as_str().unwrap();
    let file = house.file("a.tar");
    let (code, _, noted) = house.export(tenant, &file, &[]);
    assert!(code == Some(10) && noted.contains(&format!("{project}/live is broken at #6 (tail)")), "{noted}");
    let files = unpacked(&file, &house.dir.path().join("unpacked"));
    assert_eq!(rows(&files, &format!("events/{project}-live.000001.ndjson")).len(), 5);
    assert_eq!(ended(sealog().args(["tenant", "verify", &file]).output().unwrap()).0, Some(10));
}

fn closes(mut house: House) {
    let leaving = house.tenant(HOSTILE, "leaving@example.com");
    let other = house.tenant("Other", "other@example.com");
    for key in leaving.keys.iter().chain(&other.keys) {
        assert_eq!(house.server().post(key).0, 202);
    }
    let (cookie, others) = (house.sign_in(&leaving).unwrap(), house.sign_in(&other).unwrap());
    let page = |house: &House, tenant: &Tenant, cookie: &str| {
        open_page(house.server(), &format!("/app/o/{}/members", tenant.id), cookie)
    };
    assert!(page(&house, &leaving, &cookie).starts_with("HTTP/1.1 200"));
    // Another name, a reason that says nothing, and a tenant that is not there close nothing.
    let none = "00000000-0000-4000-8000-000000000000";
    for (id, name, reason, code, said) in [
        (&*leaving.id, "Other", "r", 2, "--name must be the name"),
        (&leaving.id, HOSTILE, " ", 2, "--reason must not be empty"),
        (none, HOSTILE, "r", 4, "there is no tenant"),
        ("x", HOSTILE, "r", 2, "is not the id of a tenant"),
    ] {
        let (found, _, noted) = house.close(id, name, reason, &[]);
        assert!(found == Some(code) && noted.contains(said), "{found:?} {noted}");
    }
    // Neither does an open case, which is named.
    let case = "regime=gdpr&request_type=access&received=2026-11-02&channel=email&requester=Ada\
                &contact=ada%40subject.example&wrote=Give+me+everything&note=It+came+in.";
    let opened = submit(house.server(), &format!("/app/o/{}/cases/create", leaving.id), &cookie, case);
    assert!(opened.starts_with("HTTP/1.1 303"), "{opened}");
    let (code, _, noted) = house.close(&leaving.id, HOSTILE, "contract ended", &[]);
    assert!(code == Some(2) && noted.contains("must be closed first: #1."), "{code:?} {noted}");
    assert_eq!(house.server().post(&leaving.keys[0]).0, 202);

    let closed = house.close(&leaving.id, HOSTILE, HOSTILE, &["--even-with-open-cases"]);
    assert_eq!(closed.0, Some(0), "{}", closed.2);
    let closed: Value = serde_json::from_str(&closed.1).unwrap();
    assert_eq!((&closed["keys_revoked"], &closed["members_ended"]), (&json!(2), &json!(1)));
    for key in &leaving.keys {
        for (status, body) in [house.server().post(key), house.server().get(key, "/v1/events")] {
            assert!(status == 401 && body.contains("auth/key_revoked"), "{status} {body}");
        }
    }
    assert!(!page(&house, &leaving, &cookie).starts_with("HTTP/1.1 200"), "the session has ended");
    let signed_in = house.sign_in(&leaving);
    assert!(signed_in.is_none_or(|cookie| !page(&house, &leaving, &cookie).starts_with("HTTP/1.1 200")));
    // The next organisation notices nothing.
    assert!(page(&house, &other, &others).starts_with("HTTP/1.1 200"));
    for key in &other.keys {
        assert_eq!((house.server().post(key).0, house.server().get(key, "/v1/events/verify").0), (202, 200));
    }
    // Nothing opens it again, and closing it again changes nothing.
    for (path, body) in [
        (format!("/projects/{}/keys", leaving.project), json!({ "name": "k", "mode": "live" })),
        (
            format!("/tenants/{}/users", leaving.id),
            json!({ "email": "new@example.com", "password": PASSWORD, "role": "owner" }),
        ),
    ] {
        let (status, answer) = operator(house.server(), OPERATOR_TOKEN, "POST", &path, &body);
        assert!(status == 422 && answer.to_string().contains("was closed on"), "{status} {answer}");
    }
    let again: Value = serde_json::from_str(&house.close(&leaving.id, HOSTILE, "again", &[]).1).unwrap();
    assert_eq!((&again["closed_at"], &again["keys_revoked"]), (&closed["closed_at"], &json!(0)));
    house.server().await_drained();
    // Its events are still there, and its system chain has all of it, once.
    let archive = house.file("closed.tar");
    assert_eq!(house.export(&leaving.id, &archive, &[]).0, Some(0));
    let files = unpacked(&archive, &house.dir.path().join("closed"));
    assert_eq!(rows(&files, &format!("events/{}-live.000001.ndjson", leaving.project)).len(), 2);
    assert!(rows(&files, "tenant.json")[0]["closed_at"].is_string());
    let events = system_events(&files);
    let told = |action: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["action"] == action && event["actor_type"] == "host").collect()
    };
    let [close] = told("sealog.tenant_closed")[..] else { panic!("{events:#?}") };
    assert_eq!(
        (
            &close["metadata"]["name"],
            &close["metadata"]["reason"],
            &close["metadata"]["even_with_open_cases"]
        ),
        (&json!(HOSTILE), &json!(HOSTILE), &json!(true))
    );
    assert_eq!((told("sealog.key_revoked").len(), told("sealog.member_changed").len()), (2, 1));
    house.stop();
    if house.url.is_none() {
        let (code, said, noted) =
            ended(sealog().args(["verify", "--data"]).arg(&house.data).output().unwrap());
        assert_eq!(code, Some(0), "{said}{noted}");
    }
}

#[test]
fn a_closed_tenant_has_no_key_and_no_people_its_events_stay_and_others_are_untouched() {
    closes(House::new(None));
}

#[test]
fn a_tenant_is_closed_on_postgresql() {
    let database = postgres::cluster().database();
    closes(House::new(Some(database.url())));
}

/// Closing is many changes. Killed at any of them and run again, it makes each once.
#[test]
fn kill_9_at_any_step_of_closing_leaves_it_to_be_continued_and_doubles_nothing() {
    let mut house = House::new(None);
    let leaving = house.tenant("Acme", "a@example.com");
    for n in 0..30 {
        let path = format!("/projects/{}/keys", leaving.project);
        let body = json!({ "name": format!("k{n}"), "mode": "live" });
        assert_eq!(operator(house.server(), OPERATOR_TOKEN, "POST", &path, &body).0, 201);
    }
    house.server().await_drained();
    house.stop();
    let started = || -> Child {
        let mut command =
            house.command(&["tenant", "close", &leaving.id, "--name", "Acme", "--reason", "contract ended"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut kills = 0;
    // Each time a little later, until one is not killed before its end.
    for wait_ms in (0..).step_by(15) {
        let mut child = started();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let _ = child.kill();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
    }
    assert!(kills > 2, "{kills} kills");
    house.start();
    assert_eq!(house.server().post(&leaving.keys[0]).0, 401);
    house.server().await_drained();
    let archive = house.file("closed.tar");
    assert_eq!(house.export(&leaving.id, &archive, &[]).0, Some(0));
    let events = system_events(&unpacked(&archive, &house.dir.path().join("closed")));
    let count = |action: &str| events.iter().filter(|event| event["action"] == action).count();
    let counted = ["sealog.tenant_closed", "sealog.key_revoked", "sealog.member_changed"].map(count);
    assert_eq!(counted, [1, 32, 1], "after {kills} kills");
}
