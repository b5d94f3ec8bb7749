//! A server, and the commands that talk to it as a person or a script runs them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::*;

/// A server without limits by address, and a home of its own for profiles and the spool.
pub struct Stage {
    _dir: tempfile::TempDir,
    pub data: std::path::PathBuf,
    pub home: std::path::PathBuf,
    pub server: Option<Running>,
    pub address: String,
    pub key: String,
}

/// Opens the operator's interface of every stage.
pub const OPERATOR_TOKEN: &str = "operator-token-of-the-tests";

pub fn start_server(data: &Path, listen: &str) -> Running {
    let mut command = sealog();
    command.args(["serve", "--listen", listen, "--data-dir"]).arg(data);
    command.env("SEALOG_LIMITS_PER_IP_RPS", "0").env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN);
    start(command)
}

impl Stage {
    pub fn new() -> Stage {
        let (dir, data) = data_dir();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let server = start_server(&data, "127.0.0.1:0");
        let (address, key) = (server.address.clone(), first_key(&data));
        Stage { _dir: dir, data, home, server: Some(server), address, key }
    }

    pub fn server(&self) -> &Running {
        self.server.as_ref().expect("it runs")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = sealog();
        command
            .args(args)
            .stdin(Stdio::null())
            .env("HOME", &self.home)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME");
        command.env("SEALOG_URL", format!("http://{}", self.address)).env("SEALOG_API_KEY", &self.key);
        command
    }

    pub fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        ended(self.command(args).output().unwrap())
    }

    /// As whoever runs the instance.
    pub fn operate(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.command(args);
        ended(
            command
                .env_remove("SEALOG_API_KEY")
                .env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN)
                .output()
                .unwrap(),
        )
    }

    /// The same server seen through another key.
    pub fn test_key(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("first-run.txt")).unwrap();
        text.split_whitespace().find(|word| word.starts_with("at_test_")).unwrap().to_owned()
    }

    /// A path in a directory that is this stage's own.
    pub fn path(&self, name: &str) -> String {
        self.home.join(name).to_str().unwrap().to_owned()
    }

    /// With this on standard input.
    pub fn piped(&self, args: &[&str], input: &str) -> (Option<i32>, String, String) {
        self.piped_bytes(args, input.as_bytes())
    }

    pub fn piped_bytes(&self, args: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // While its output is read: it waits for that before it reads on.
            scope.spawn(move || stdin.write_all(input).unwrap());
            ended(child.wait_with_output().unwrap())
        })
    }

    /// As a user who has no right that the modes of files do not give. Nothing where nobody can be made one.
    pub fn unprivileged(&self, args: &[&str]) -> Option<(Option<i32>, String, String)> {
        unprivileged(&self.command(args))
    }

    /// What the API has, newest first, page by page.
    pub fn events(&self) -> Vec<Value> {
        let (mut events, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, body) = self.server().get(&self.key, &format!("/v1/events?limit=100{cursor}"));
            assert_eq!(status, 200, "{body}");
            let page: Value = serde_json::from_str(&body).unwrap();
            events.extend(page["events"].as_array().unwrap().iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return events,
            }
        }
    }

    pub fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    pub fn restart(&mut self) {
        self.server = Some(start_server(&self.data, &self.address));
    }
}

/// The same command by a user who has no right that the modes of files do not give: in a namespace of its own
/// even root is one. Nothing where there is none to be had.
pub fn unprivileged(command: &Command) -> Option<(Option<i32>, String, String)> {
    let apart = |program: &std::ffi::OsStr| {
        let mut apart = Command::new("unshare");
        apart.arg("--user").arg(program);
        apart
    };
    if !apart("true".as_ref()).output().is_ok_and(|output| output.status.success()) {
        println!("left out: there are no user namespaces here");
        return None;
    }
    let mut same = apart(command.get_program());
    same.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => same.env(name, value),
            None => same.env_remove(name),
        };
    }
    Some(ended(same.output().unwrap()))
}

pub fn lines(count: usize) -> String {
    (0..count)
        .map(|n| {
            format!("{{\"action\":\"user.login\",\"actor_id\":\"u{n}\",\"metadata\":{{\"n\":{n}.0}}}}\n")
        })
        .collect()
}

/// The actors of all events, oldest first.
pub fn actors(stage: &Stage) -> Vec<String> {
    stage.events().iter().rev().map(|event| event["actor_id"].as_str().unwrap_or("").to_owned()).collect()
}

pub fn expected(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("u{n}")).collect()
}
