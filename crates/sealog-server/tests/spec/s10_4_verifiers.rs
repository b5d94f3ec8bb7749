//! 10.1 What a server publishes is what programs that are not the server accept: `sealog-verify`, the tools
//! in Python and JavaScript, and torchwood, which other people wrote.

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

#[test]
fn torchwood_accepts_the_file_that_is_served_and_refuses_another_entry() {
    let folder = root().join("tools/go-proof");
    let go = |arguments: &[&str]| {
        let path = format!("{}:/usr/local/go/bin", std::env::var("PATH").unwrap());
        let mut go = Command::new("sh");
        // sh looks for it in that PATH.
        go.args(["-c", "exec go \"$@\"", "go"]).args(arguments).current_dir(&folder);
        go.env("PATH", path).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=readonly -buildvcs=false");
        go.output().unwrap()
    };
    let modules = go(&["mod", "download"]);
    if !modules.status.success() {
        let problem = String::from_utf8_lossy(&modules.stderr);
        eprintln!("SKIPPED: torchwood did NOT check what is served: {}", problem.trim());
        return;
    }
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
        let done = go(&["run", ".", &files[0], &files[1], &files[2]]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.success(), accepted, "{said}");
        assert!(accepted || said.contains("refused"), "{said}");
    }
}
