//! A real server, for the examples that need one.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

pub type Any<T> = Result<T, Box<dyn Error>>;

/// Ends with its value.
pub struct Process(pub Child);

impl Process {
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the server that `SEALOG_BIN` names, without limits, on the same port again if it has had one.
pub async fn serve(folder: &Path, port: &mut String) -> Any<Process> {
    let program = std::env::var("SEALOG_BIN").map_err(|_| "set SEALOG_BIN to a Sealog server")?;
    let log = File::create(folder.join("sealog.log"))?;
    let listen = format!("127.0.0.1:{port}");
    let mut command = Command::new(std::fs::canonicalize(program)?);
    command
        .args(["serve", "--listen", &listen, "--limits-per-ip-rps", "0", "--limits-live-rps", "0"])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .current_dir(folder)
        .env_clear()
        .envs(std::env::var("PATH").map(|path| ("PATH", path)))
        .stdout(log.try_clone()?)
        .stderr(log);
    let process = Process(command.spawn()?);
    for _ in 0..3000 {
        let text = std::fs::read_to_string(folder.join("sealog.log"))?;
        let found = text
            .split("127.0.0.1:")
            .skip(1)
            .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        if let Some(found) = found.into_iter().find(|found| !found.is_empty() && found != "0") {
            *port = found;
            return Ok(process);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("the server did not start: {}", std::fs::read_to_string(folder.join("sealog.log"))?).into())
}

/// The live key of its first start.
pub fn live_key(folder: &Path) -> Any<String> {
    let first_run = std::fs::read_to_string(folder.join("data/first-run.txt"))?;
    let key = first_run.split("live key").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(key.ok_or("there is no live key")?.to_owned())
}
