//! 10.1 What a server publishes is what programs that are not the server accept: `sealog-verify`, the tools
//! in Python and JavaScript, and torchwood and Tessera's `fsck`, which other people wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealog_core::event::StoredEvent;
use sealog_testing::examples;
use sealog_trust::proof::{EventProof, TlogProof};
use serde_json::Value;

use crate::harness::*;

/// What an auditor has in a directory: events, what the server has answered, and a kept checkpoint.
struct Evidence {
    directory: tempfile::TempDir,
    vkey: String,
    events: Vec<Value>,
}

impl Evidence {
    fn of(service: &Service) -> Evidence {
        let directory = tempfile::tempdir().unwrap();
        let get = |path: &str| {
            let answer = service.get(path, &service.live);
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            answer
        };
        let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let kept = get("/tlog/v1/store/checkpoint").body;
        let log_ids = service.fill(&service.live, 7);
        service.publish();
        let size = |note: &str| note.lines().nth(1).unwrap().to_owned();
        let today = get("/tlog/v1/store/checkpoint").body;
        let grown = format!("/tlog/v1/store/consistency?from={}&to={}", size(&kept), size(&today));
        put("kept", &kept);
        put("grown.json", &get(&grown).body);
        put("head.tlog-proof", &get("/tlog/v1/chain/head?format=tlog-proof").body);
        put("7.tlog-proof", &get("/tlog/v1/chain/proof?seq=7&format=tlog-proof").body);
        let vkey = text(&get("/tlog/v1/store/keys").json["keys"][0]["vkey"]);
        let events = log_ids.iter().map(|log_id| service.read(&service.live, log_id)).collect();
        Evidence { directory, vkey, events }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put_events(&self) {
        let lines: String = self.events.iter().map(|event| format!("{event}\n")).collect();
        fs::write(self.path("events.ndjson"), lines).unwrap();
    }

    fn verify(&self, mut program: Command) -> Output {
        self.put_events();
        program.args(["--key", &self.vkey, "--checkpoint", "kept", "--consistency", "grown.json"]);
        program.args(["--proof", "head.tlog-proof", "--proof", "7.tlog-proof", "events.ndjson"]);
        program.current_dir(self.directory.path()).output().unwrap()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The three programs of an auditor.
fn programs() -> [Command; 3] {
    let ours = Command::new(examples::program("sealog-verify"));
    let (mut python, mut node) = (Command::new("python3"), Command::new("node"));
    python.arg(root().join("tools/sealog_verify.py"));
    node.arg(root().join("tools/sealog_verify.mjs"));
    [ours, python, node]
}

#[test]
fn three_programs_accept_what_is_served_and_say_so_in_the_same_words() {
    let service = Service::publishing();
    let evidence = Evidence::of(&service);
    let said = programs().map(|program| {
        let output = evidence.verify(program);
        let (said, errors) = (String::from_utf8(output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = said.unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}{errors}");
        assert!(said.starts_with("VALID\n"), "{said}");
        said
    });
    assert_eq!((&said[0], &said[0]), (&said[1], &said[2]));
    assert!(said[0].contains("Event #7 is, with all its fields, in entry"), "{}", said[0]);
}

#[test]
fn three_programs_refuse_a_changed_annotation() {
    let service = Service::publishing();
    let mut evidence = Evidence::of(&service);
    // No hash covers it.
    evidence.events[6]["ip_address"] = "203.0.113.99".into();
    for program in programs() {
        let output = evidence.verify(program);
        assert_eq!(output.status.code(), Some(10), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Go in a folder whose modules are there.
struct Go {
    folder: PathBuf,
}

impl Go {
    /// Nothing, and a line of what was not done, where Go or a module cannot be had.
    fn with(folder: &str, not_done: &str) -> Option<Go> {
        let go = Go { folder: root().join(folder) };
        let modules = go.run(&["mod", "download"]);
        if !modules.status.success() {
            eprintln!("SKIPPED: {not_done}: {}", String::from_utf8_lossy(&modules.stderr).trim());
        }
        modules.status.success().then_some(go)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap());
        let mut go = Command::new("sh");
        // sh looks for it in that PATH.
        go.args(["-c", "exec go \"$@\"", "go"]).args(arguments).current_dir(&self.folder);
        go.env("PATH", path).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=readonly -buildvcs=false");
        go.output().unwrap()
    }
}

#[test]
fn torchwood_accepts_the_file_that_is_served_and_refuses_another_entry() {
    let Some(go) = Go::with("tools/go-proof", "torchwood did NOT check what is served") else { return };
    let service = Service::publishing();
    let evidence = Evidence::of(&service);
    let file = TlogProof::parse(&fs::read(evidence.path("7.tlog-proof")).unwrap()).unwrap();
    let proof = EventProof::parse(&file.extra.unwrap()).unwrap();
    let event = StoredEvent::parse_json(&evidence.events[6].to_string()).unwrap();
    let entry = proof.entry(&event).unwrap();
    fs::write(evidence.path("policy"), format!("log {}\nquorum none\n", evidence.vkey)).unwrap();
    for (entry, accepted) in [(entry.clone(), true), (entry.replacen('1', "2", 1), false)] {
        fs::write(evidence.path("entry"), entry).unwrap();
        let files = ["policy", "entry", "7.tlog-proof"].map(|name| evidence.path(name).display().to_string());
        let done = go.run(&["run", ".", &files[0], &files[1], &files[2]]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.success(), accepted, "{said}");
        assert!(accepted || said.contains("refused"), "{said}");
    }
}

#[test]
fn fsck_of_tessera_accepts_both_logs_that_are_served_and_refuses_another_key() {
    let Some(go) = Go::with("tools/go-fsck", "Tessera's fsck did NOT check what is served") else { return };
    let service = Service::publishing();
    // A full tile and a part of one.
    service.fill(&service.live, 300);
    service.publish();
    service.publish();
    let chain = service.get("/tlog/v1/chain", &service.live).json;
    let keys = service.get("/tlog/v1/store/keys", "").json["keys"].clone();
    let key_of = |role: &str| {
        let of_role = keys.as_array().unwrap().iter().find(|key| key["role"] == role);
        text(&of_role.unwrap()["vkey"])
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vkey");
    let check = |log: &str, vkey: &str, token: &str| {
        fs::write(&file, vkey).unwrap();
        let url = format!("--storage_url=http://{}/tlog/v1/{log}/", service.address());
        let (key, token) = (format!("--public_key={}", file.display()), format!("--bearer_token={token}"));
        let done = go.run(&["tool", "fsck", "--ui=false", &url, &key, &token]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        // Its exit status is 0 in any case.
        let size = said.split_once("Successfully fsck'd log with size ").map(|(_, rest)| rest);
        let size = size.and_then(|rest| rest.split(' ').next()).map(|size| size.parse::<u64>().unwrap());
        (size, said)
    };
    let (store, of_chain) = (key_of("log"), text(&chain["vkey"]));
    let checkpoint = service.get("/tlog/v1/store/checkpoint", "").body;
    let entries = checkpoint.lines().nth(1).unwrap().parse().ok();
    for (log, vkey, token, size) in
        [("store", &store, "", entries), ("chain", &of_chain, service.live.as_str(), Some(300))]
    {
        let (checked, said) = check(log, vkey, token);
        assert!(checked.is_some() && checked == size, "{log}: {said}");
    }
    // The tree of the one log under the key of the other; and without a key, nothing of a chain.
    for (log, vkey, token) in
        [("store", &of_chain, ""), ("chain", &store, service.live.as_str()), ("chain", &of_chain, "")]
    {
        let (checked, said) = check(log, vkey, token);
        assert!(checked.is_none() && said.contains("fsck failed"), "{log}: {said}");
    }
}
