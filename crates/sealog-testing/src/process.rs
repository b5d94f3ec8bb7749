//! The program `sealog` as a process: started, heard, asked, stopped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};

use serde_json::Value;

use crate::http;
use crate::waiting::{PATIENCE, eventually};

pub const LOGIN: &str = r#"{"action":"user.login","actor_id":"u1"}"#;

/// A server; killed when dropped, if it has not ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Where it listens; empty until it has said so.
    pub address: String,
    /// What it logged until it listened.
    pub begun: String,
    log: Log,
}

/// Without the settings of whoever runs the tests.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEALOG_")) {
        command.env_remove(name);
    }
    command
}

/// Starts a server and waits until it says where it listens.
pub fn start(command: Command) -> Running {
    let mut running = spawn(command);
    while running.address.is_empty() {
        let line = running.log.next_line();
        let line = line.unwrap_or_else(|| panic!("it ended before it listened: {}", running.begun));
        let entry = parsed(&line);
        if entry["fields"]["message"] == "listening" {
            running.address = entry["fields"]["address"].as_str().unwrap().to_owned();
        }
        running.begun.push_str(&line);
    }
    running
}

/// Starts a server that may be far from listening.
pub fn spawn(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = Log::of(child.stderr.take().unwrap());
    Running { child, address: String::new(), begun: String::new(), log }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line)
        .unwrap_or_else(|error| panic!("logs are JSON when nobody watches: {error}: {line}"))
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The fields of the next line of its log with this in its message.
    #[track_caller]
    pub fn says(&self, message: &str) -> Value {
        loop {
            let line = self.log.next_line();
            let mut entry = parsed(&line.unwrap_or_else(|| panic!("it ended before it said {message:?}")));
            if entry["fields"]["message"].as_str().is_some_and(|said| said.contains(message)) {
                return entry["fields"].take();
            }
        }
    }

    /// Bytes as they are, and the whole answer.
    pub fn raw(&self, request: &str) -> String {
        http::raw(&self.address, request)
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        http::request(&self.address, method, path, headers, body)
    }

    /// Sends a login.
    pub fn post(&self, key: &str) -> (u16, String) {
        self.send(key, LOGIN)
    }

    /// Sends an event.
    pub fn send(&self, key: &str, body: &str) -> (u16, String) {
        self.request("POST", "/v1/events", &[("Authorization", &format!("Bearer {key}"))], body)
    }

    pub fn get(&self, key: &str, path: &str) -> (u16, String) {
        self.request("GET", path, &[("Authorization", &format!("Bearer {key}"))], "")
    }

    /// Waits until every change is in its system chain; those of the first run, too.
    #[track_caller]
    pub fn await_drained(&self) {
        let none = "\nsealog_system_records_pending 0\n";
        eventually("no record waits", || self.get("-", "/metrics").1.contains(none));
    }

    /// Waits until the server says that it is not ready.
    #[track_caller]
    pub fn await_red(&self) {
        eventually("it is not ready", || self.get("-", "/readyz").0 == 503);
    }

    /// Asks it to stop as a supervisor would, and does not wait.
    pub fn terminate(&self) {
        signal(self.pid(), "-TERM");
    }

    /// Asks it to stop, and returns what else it logged.
    #[track_caller]
    pub fn stop(self) -> String {
        self.terminate();
        let (code, log) = self.ended();
        assert_eq!(code, Some(0), "{log}");
        log
    }

    /// Waits for the end of a server that ends by itself or was asked to: its exit code, and what else it
    /// logged.
    #[track_caller]
    pub fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        while let Some(line) = self.log.next_line() {
            rest.push_str(&line);
        }
        (wait_for_end(&mut self.child).code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // A server under `strace` is its child, and would outlive it.
        let children = children(self.pid());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for child in children {
            let _ = Command::new("kill").args(["-KILL", &child.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// What a process logs, line by line, as it comes: whoever does not read what a process says may stop it.
#[derive(Debug)]
struct Log(Mutex<mpsc::Receiver<String>>);

impl Log {
    fn of(stderr: ChildStderr) -> Log {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.map(|line| line + "\n").try_for_each(|line| sender.send(line))
        });
        Log(Mutex::new(receiver))
    }

    /// The next line that nobody has taken; none when the process has ended.
    #[track_caller]
    fn next_line(&self) -> Option<String> {
        match self.0.lock().unwrap().recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("it neither says anything nor ends"),
        }
    }
}

/// `signal` as `kill` knows it: `-TERM`, `-STOP`.
pub fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "{signal} {pid}");
}

/// Processes that this one has started.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

#[track_caller]
fn wait_for_end(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.expect("it has ended")
}

/// The live key that a first run leaves in its data directory.
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
