//! What tests of the running program share.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const LOGIN: &str = r#"{"action":"user.login","actor_id":"u1"}"#;

/// What the first run puts into the system chain.
pub const FIRST_RUN_REQUESTS: usize = 5;

/// A server; killed when dropped, if it was not stopped.
pub struct Running {
    child: Child,
    address: String,
    /// What it logged before it listened.
    pub begun: String,
    log: BufReader<ChildStderr>,
}

pub fn sealog() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_sealog")))
}

/// Without the settings of whoever runs the tests.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEALOG_")) {
        command.env_remove(name);
    }
    command
}

pub fn serve(data: &Path) -> Running {
    let mut command = sealog();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    start(command)
}

/// Starts a server and waits until it says where it listens.
pub fn start(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, address: String::new(), begun: String::new(), log };
    while running.address.is_empty() {
        let mut line = String::new();
        let read = running.log.read_line(&mut line).unwrap();
        assert!(read > 0, "it ended before it listened: {}", running.begun);
        let entry: serde_json::Value = serde_json::from_str(&line).expect("logs are JSON");
        if entry["fields"]["message"] == "listening" {
            running.address = entry["fields"]["address"].as_str().unwrap().to_owned();
        } else {
            running.begun.push_str(&line);
        }
    }
    running
}

impl Running {
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it logs next, up to a line with this message.
    pub fn log_until(&mut self, message: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.log.read_line(&mut line).unwrap() > 0,
                "it ended before it said {message:?}: {said}"
            );
            said.push_str(&line);
            if line.contains(message) {
                return said;
            }
        }
    }

    /// Asks it to stop and does not wait.
    pub fn terminate(&self) {
        assert!(Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().unwrap().success());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn request(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer[9..12].parse().unwrap(), answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    pub fn post(&self, key: &str) -> (u16, String) {
        let length = LOGIN.len();
        self.request(&format!("POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n{LOGIN}"))
    }

    pub fn get(&self, key: &str, path: &str) -> (u16, String) {
        self.request(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
        ))
    }

    /// Waits until every change is in its system chain; those of the first run, too.
    #[track_caller]
    pub fn await_drained(&self) {
        let begun = Instant::now();
        while !self.get("-", "/metrics").1.contains("\nsealog_system_records_pending 0\n") {
            assert!(begun.elapsed() < Duration::from_secs(60), "records are left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the server says that it is not ready.
    #[track_caller]
    pub fn await_red(&self) -> String {
        let begun = Instant::now();
        loop {
            let (status, body) = self.get("-", "/readyz");
            if status == 503 {
                return body;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "it stays green: {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to stop and waits for its end.
    pub fn stop(mut self) {
        self.terminate();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn first_key(data: &Path) -> String {
    let text = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    text.split_whitespace().find(|word| word.starts_with("at_live_")).unwrap().to_owned()
}

/// A directory whose parent is the test's own.
pub fn data_dir() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    (dir, data)
}

pub fn accept(data: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = sealog().args(["accept-loss", "--data-dir"]).arg(data).args(args).output().unwrap();
    ended(output)
}

/// Exit code and what was said.
pub fn ended(Output { status, stdout, stderr }: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A stopped store whose chain has lost its last three of eight events; the key and the project.
pub fn with_a_loss(data: &Path) -> (String, String, Vec<serde_json::Value>) {
    let server = serve(data);
    let key = first_key(data);
    // The log begins with the first run: tenant, project, two keys and the owner, a request each.
    server.await_drained();
    for _ in 0..8 {
        assert_eq!(server.post(&key).0, 202);
    }
    let (_, body) = server.get(&key, "/v1/events");
    server.stop();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let events = body["events"].as_array().unwrap().clone();
    cut_log(data, 1, FIRST_RUN_REQUESTS + 5);
    (key, events[0]["project_id"].as_str().unwrap().to_owned(), events)
}

/// Leaves so many requests in a segment of the live log.
pub fn cut_log(data: &Path, segment: u32, requests: usize) {
    let path = data.join(format!("live/{segment:08}.log"));
    let bytes = std::fs::read(&path).unwrap();
    let mut at = 128;
    for _ in 0..requests {
        assert_eq!(&bytes[at..at + 4], b"SLFR");
        at += u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    std::fs::write(&path, &bytes[..at]).unwrap();
}
