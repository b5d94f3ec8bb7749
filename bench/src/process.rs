//! A program that is measured from outside: started, watched through `/proc`, stopped or killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::machine::{cpu_of, cpu_of_all, resident_bytes_of};
use crate::outcome::Outcome;

#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    /// From the start to the line that said that it is ready.
    pub ready_after: Duration,
}

impl Process {
    /// Starts it and reads its standard error until `ready` finds what it looks for in a line.
    pub fn start<T>(
        name: &'static str,
        mut command: Command,
        ready: impl Fn(&str) -> Option<T>,
    ) -> Outcome<(Process, T)> {
        let start = Instant::now();
        let mut process = Process::spawn(name, command.stderr(Stdio::piped()))?;
        let mut lines = BufReader::new(process.child.stderr.take().ok_or("no standard error")?);
        let (mut line, mut said) = (String::new(), String::new());
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                let status = process.child.wait()?;
                return Err(format!("{name} ended before it was ready ({status}): {}", said.trim()).into());
            }
            if let Some(found) = ready(&line) {
                process.ready_after = start.elapsed();
                // What it says later is of no interest, but a full pipe would stop it.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok((process, found));
            }
            said.push_str(&line);
        }
    }

    /// Starts it without waiting for anything.
    pub fn spawn(name: &'static str, command: &mut Command) -> Outcome<Process> {
        // In the same group: who interrupts the benchmark on a terminal stops the servers with it.
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{name} ({}): {error}", command.get_program().display()))?;
        Ok(Process { name, child, ready_after: Duration::ZERO })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of it alone: one read, so that the generator can take it between two requests.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.pid())
    }

    /// CPU time of it and of all that it has started.
    pub fn cpu_of_all(&self) -> Duration {
        cpu_of_all(self.pid())
    }

    pub fn resident_bytes(&self) -> u64 {
        resident_bytes_of(&self.pid().to_string())
    }

    /// As a supervisor would: asks, and waits.
    pub fn stop(self) -> Outcome<()> {
        self.stop_with(Signal::TERM)
    }

    pub fn stop_with(mut self, signal: Signal) -> Outcome<()> {
        self.signal(signal)?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("{} ended with {status}", self.name).into())
                };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("{} does not stop", self.name).into())
    }

    /// `kill -9`.
    pub fn kill(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Outcome<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).ok_or("no process")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already after `stop` and `kill`; then this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of the loopback that nobody listens on, for programs that cannot choose one themselves.
pub fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
