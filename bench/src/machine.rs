//! What a number was measured on, and how busy that was with other things.

use std::fs;
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
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
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

/// CPU time by who used it, to tell how much of the machine others took. On a machine with few cores that decides everything: with its cores busy, the same
/// `fdatasync` was seen to take 50 microseconds or 4 milliseconds, and ratios of it came out between 0.03 and 30.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Hundredths of a second, the unit that the kernel counts in.
    all: f64,
    processes: f64,
    stolen: f64,
    kernel_threads: f64,
    own: f64,
}

impl Usage {
    /// Nothing where the kernel does not say.
    pub fn now() -> Option<Usage> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<f64> =
            stat.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        Some(Usage {
            all: ticks.iter().take(8).sum(),
            processes: ticks.iter().take(3).sum(),
            stolen: *ticks.get(7)?,
            kernel_threads: kernel_threads(),
            own: cpu_time().as_secs_f64() * 100.0,
        })
    }

    /// The share of all cores that other processes, or the hypervisor, took since. The kernel's own threads are not others: they write what we sync.
    pub fn others_since(&self, before: &Usage, own_children: Duration) -> f64 {
        let all = self.all - before.all;
        if all <= 0.0 {
            return 0.0;
        }
        let ours = self.own - before.own + self.kernel_threads - before.kernel_threads;
        let others = self.processes - before.processes - ours - own_children.as_secs_f64() * 100.0;
        (others.max(0.0) + self.stolen - before.stolen) / all
    }
}

/// CPU time of all children of the kernel's thread parent, process 2. They live long, so none is missed between two looks, as a compiler would be.
fn kernel_threads() -> f64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0.0 };
    let ticks = entries.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: state, parent, ..., with user and system time as 12th and 13th.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let time = |at: usize| fields.get(at)?.parse::<f64>().ok();
        if *fields.get(1)? == "2" { Some(time(11)? + time(12)?) } else { None }
    });
    ticks.sum()
}
