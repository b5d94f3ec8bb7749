//! What a number was measured on, and how busy that was with other things.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// CPU time of this process, all threads.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    resident_bytes_of("self")
}

/// The same of any process.
pub fn resident_bytes_of(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[derive(Debug)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    pub file_system: String,
    pub commit: String,
    pub profile: &'static str,
}

impl Machine {
    /// As seen from the directory that the benchmark writes to.
    pub fn look(dir: &Path) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let sha = if cpuinfo.contains(" sha_ni") { ", SHA instructions" } else { "" };
        Machine {
            cpu: format!("{}{sha}", model.map_or("unknown CPU", |(_, model)| model.trim())),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            file_system: file_system(dir),
            commit: commit(),
            profile: if cfg!(debug_assertions) { "debug (the numbers mean nothing)" } else { "release" },
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "cpu": self.cpu, "cores": self.cores, "kernel": self.kernel, "file_system": self.file_system,
            "commit": self.commit, "profile": self.profile,
        })
    }
}

/// Type and options of the mount that a directory is on.
fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_dir = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (_, point, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
            dir.starts_with(point).then_some((point.len(), kind, options))
        })
        // The longest one is the nearest; of two on the same point the later one covers the other.
        .max_by_key(|(length, ..)| *length);
    of_dir.map_or("unknown".to_owned(), |(_, kind, options)| format!("{kind} ({options})"))
}

/// Bytes that were written to the device that a directory is on, by whomever, since the machine was started;
/// nothing if the kernel does not count them there. What the kernel counts for a process is no measure of it:
/// a byte that is changed in a large piece of its cache counts as the whole piece.
pub fn device_bytes_written(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let counts = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    // Sectors have 512 bytes here, whatever the device has.
    Some(counts.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed =
        git(&["--no-optional-locks", "status", "--porcelain"]).is_some_and(|files| !files.is_empty());
    if changed { format!("{commit} with changes") } else { commit }
}

/// CPU time by who used it, to tell how much of the machine others took. On a machine with few cores that
/// decides everything: with its cores busy, the same `fdatasync` was seen to take 50 microseconds or 4
/// milliseconds, and ratios of it came out between 0.03 and 30.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Hundredths of a second, the unit that the kernel counts in.
    all: f64,
    processes: f64,
    stolen: f64,
    kernel_threads: f64,
    /// This process and all that it has started, and those in turn.
    own: f64,
}

impl Usage {
    /// Nothing where the kernel does not say.
    pub fn now() -> Option<Usage> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<f64> =
            stat.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let (kernel_threads, descendants) = kernel_threads_and_descendants();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        Some(Usage {
            all: ticks.iter().take(8).sum(),
            processes: ticks.iter().take(3).sum(),
            stolen: *ticks.get(7)?,
            kernel_threads,
            own: cpu_time().as_secs_f64() * 100.0 + descendants,
        })
    }

    /// The share of all cores that other processes, or the hypervisor, took since. The kernel's own threads
    /// are not others: they write what we sync.
    pub fn others_since(&self, before: &Usage) -> f64 {
        let all = self.all - before.all;
        if all <= 0.0 {
            return 0.0;
        }
        let ours = self.own - before.own + self.kernel_threads - before.kernel_threads;
        let others = self.processes - before.processes - ours;
        (others.max(0.0) + self.stolen - before.stolen) / all
    }
}

/// One process as `/proc` shows it.
struct Process {
    pid: u32,
    parent: u32,
    /// Hundredths of a second.
    own: f64,
    /// Of children that have ended and were waited for, and of theirs.
    ended_children: f64,
}

fn process(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent, ..., with user and system time as 12th and
    // 13th, those of ended children behind them.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let time = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        own: time(11)? + time(12)?,
        ended_children: time(13)? + time(14)?,
    })
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// CPU time of a process.
pub fn cpu_of(pid: u32) -> Duration {
    Duration::from_secs_f64(process(pid).map_or(0.0, |process| process.own) / 100.0)
}

/// CPU time of a process and of all that it has started.
pub fn cpu_of_all(root: u32) -> Duration {
    let processes = processes();
    let ticks: f64 = processes
        .iter()
        .filter(|process| process.pid == root || descends(&processes, process.pid, root))
        .map(|process| process.own + process.ended_children)
        .sum();
    Duration::from_secs_f64(ticks / 100.0)
}

fn descends(processes: &[Process], pid: u32, from: u32) -> bool {
    let parent =
        |pid: &u32| processes.iter().find(|process| process.pid == *pid).map(|process| process.parent);
    // A number can be used again between two reads, so that a line need not end.
    std::iter::successors(Some(pid), parent).skip(1).take(64).any(|pid| pid == from)
}

/// CPU time of all children of the kernel's thread parent, process 2, and of all that this process has
/// started. The former live long, so none is missed between two looks, as a compiler would be.
fn kernel_threads_and_descendants() -> (f64, f64) {
    let processes = processes();
    let me = std::process::id();
    let (mut kernel_threads, mut descendants) = (0.0, 0.0);
    for process in &processes {
        if process.parent == 2 {
            kernel_threads += process.own;
        } else if process.pid == me {
            descendants += process.ended_children;
        } else if descends(&processes, process.pid, me) {
            descendants += process.own + process.ended_children;
        }
    }
    (kernel_threads, descendants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_synced_to_a_disk_is_counted() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        // In a container there may be no device to count for.
        let Some(before) = device_bytes_written(dir.path()) else { return };
        let file = fs::File::create(dir.path().join("x")).unwrap();
        std::io::Write::write_all(&mut &file, &vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert!(device_bytes_written(dir.path()).unwrap() >= before + (1 << 20));
    }
}
