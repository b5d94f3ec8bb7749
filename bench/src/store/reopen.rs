//! Size on disk, memory, and how long it takes to open a store, after a clean stop and after none.
//!
//! Opening is measured in a process of its own: only there is the resident memory that of the store.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;
use sealog_core::id::Ulid;
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Options};
use serde_json::{Value, json};

use super::filled::{self, Filled};
use super::reads;
use crate::driver::wait;
use crate::machine::{cpu_time, resident_bytes};
use crate::outcome::Outcome;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, doubt};
use crate::stats::{Spread, median};
use crate::workload;

/// Section 6 of the design: 25 bytes an event and 300 MB.
pub const MEMORY_PER_EVENT: f64 = 25.0;
pub const MEMORY_FIXED: f64 = 300e6;
pub const KILLED_OPEN_MS: f64 = 2000.0;

#[derive(Args, Debug)]
pub struct ProbeArgs {
    dir: PathBuf,
    #[arg(long)]
    quick: bool,
    /// Ids to read, for the memory that reads take
    #[arg(long, value_delimiter = ',')]
    ids: Vec<String>,
}

/// Opens a store, reads from it, and prints what that took.
pub fn probe(args: &ProbeArgs) -> Outcome<()> {
    let before = resident_bytes();
    let start = Instant::now();
    let options = Options { allow_unsafe_storage: args.quick, ..Options::default() };
    let store = EmbeddedStore::open(&args.dir, &options)?;
    let open = start.elapsed();
    let head = wait(store.head(workload::chain()))?.durable;
    let opened = resident_bytes();
    for id in &args.ids {
        let log_id = Ulid::parse(id).ok_or("a malformed id")?;
        wait(store.get(workload::chain(), log_id))?.ok_or("an event is not found")?;
    }
    for _ in 0..3 {
        filled::page(&store, workload::chain(), reads::slowest())?;
    }
    let read = resident_bytes();
    let findings: Vec<String> = store.findings().iter().map(|(_, finding)| finding.to_string()).collect();
    drop(store);
    println!(
        "{}",
        json!({
            "open_ms": open.as_secs_f64() * 1e3, "chain_seq": head.chain_seq, "resident_before": before,
            "resident_opened": opened, "resident_read": read, "findings": findings, "cpu_s": cpu_time().as_secs_f64(),
        })
    );
    Ok(())
}

pub fn measure(setting: &Setting, filled: Filled) -> Outcome<Section> {
    let Filled { dir, store, events, log_ids, .. } = filled;
    let step = (log_ids.len() / 500).max(1);
    let ids = log_ids.iter().step_by(step).map(Ulid::to_string).collect::<Vec<_>>().join(",");
    let probe = |dir: &Path| -> Outcome<Value> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("probe").arg(dir).args(["--ids", &ids]);
        if setting.quick {
            command.arg("--quick");
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(
                format!("the probe failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into()
            );
        }
        let found: Value = serde_json::from_slice(&output.stdout)?;
        if found["chain_seq"] != events || found["findings"] != json!([]) {
            return Err(format!("a store of {events} events opens as {found}").into());
        }
        Ok(found)
    };
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    let active_bytes = active_bytes(&dir)?;
    let watched = |what: &str, dir: &Path| -> Outcome<Value> {
        let slice = setting.quietly(what, || probe(dir))?;
        let mut found = slice.value;
        found["others"] = json!(slice.others);
        Ok(found)
    };
    for repeat in 1..=setting.repeats {
        let copy = setting.dir.join("killed");
        copy_open_store(&dir, &copy)?;
        killed.push(watched(&format!("repeat {repeat}: opening a copy of the open store"), &copy)?);
        fs::remove_dir_all(&copy)?;
    }
    let resident_read = resident_bytes();
    let stop = Instant::now();
    drop(store);
    let stop = stop.elapsed();
    let disk = disk_bytes(&dir)?;
    for repeat in 1..=setting.repeats {
        clean.push(watched(&format!("repeat {repeat}: opening the closed store"), &dir)?);
    }

    let of = |found: &[Value], name: &str| median(found.iter().map(|found| number_of(found, name)));
    let text_bytes: f64 = {
        let sample = events.min(100_000);
        let bytes: usize = (0..sample).map(|n| workload::text(n).as_str().len()).sum();
        bytes as f64 / sample as f64
    };
    let per_event = (disk.log + disk.index) as f64 / events as f64;
    let memory_max = MEMORY_PER_EVENT * events as f64 + MEMORY_FIXED;
    let mb = |bytes: f64| format!("{} MB", number(bytes / 1e6));
    let opening = |what: &str, found: &[Value], limit: Option<f64>, more: String| Row {
        what: what.to_owned(),
        ratio: Spread::of(found.iter().map(|found| number_of(found, "open_ms") / of(&clean, "open_ms"))),
        target: limit.map(|limit| (Target::AtMost(limit, " ms"), of(found, "open_ms"))),
        // A probe lasts a few ticks of the kernel's clock, so its share is coarse: only plain disturbance
        // counts.
        doubt: doubt(found.iter().chain(&clean).map(|found| number_of(found, "others") - 0.15)),
        sealog: format!("{} ms{more}", number(of(found, "open_ms"))),
        beside: format!("{} ms", number(of(&clean, "open_ms"))),
        json: json!({ "repeats": found }),
    };
    let memory = |what: &str, name: &str| Row {
        what: what.to_owned(),
        ratio: Spread::of(clean.iter().map(|found| number_of(found, name) / memory_max)),
        target: Some((Target::AtMost(memory_max / 1e6, " MB"), of(&clean, name) / 1e6)),
        doubt: None,
        sealog: mb(of(&clean, name)),
        beside: mb(memory_max),
        json: json!({ "bytes": of(&clean, name) }),
    };
    let rows = vec![
        Row {
            what: "bytes on disk an event, after a clean stop (beside: its canonical text)".into(),
            ratio: Spread::of([per_event / text_bytes]),
            target: None,
            doubt: None,
            sealog: format!(
                "{} bytes: log {}, index {}; and {} that do not grow with events (prepared segments, marks)",
                number(per_event),
                number(disk.log as f64 / events as f64),
                number(disk.index as f64 / events as f64),
                mb(disk.other as f64)
            ),
            beside: format!("{} bytes", number(text_bytes)),
            json: json!({ "log": disk.log, "index": disk.index, "other": disk.other, "text_bytes_per_event": text_bytes }),
        },
        Row {
            what: "ingest of the last tenth of the events (beside: the first tenth)".into(),
            ratio: Spread::of([filled.last_tenth / filled.first_tenth]),
            target: Some((Target::AtLeast(0.7, "x"), filled.last_tenth / filled.first_tenth)),
            doubt: doubt([filled.others]),
            sealog: format!("{} ev/s", number(filled.last_tenth)),
            beside: format!("{} ev/s", number(filled.first_tenth)),
            json: json!({ "first_tenth": filled.first_tenth, "last_tenth": filled.last_tenth }),
        },
        memory("resident memory after opening (beside: 25 B an event + 300 MB)", "resident_opened"),
        memory("resident memory after reads all over the chain", "resident_read"),
        Row {
            what: "resident memory that filling it added, in the benchmark's process".into(),
            ratio: None,
            target: None,
            doubt: None,
            sealog: mb(filled.resident_filled.saturating_sub(filled.resident_before) as f64),
            beside: String::new(),
            json: json!({
                "before": filled.resident_before, "filled": filled.resident_filled, "after_reads": resident_read,
            }),
        },
        opening(
            "opening after a clean stop",
            &clean,
            None,
            format!(" (stopping took {} ms)", number(stop.as_secs_f64() * 1e3)),
        ),
        opening(
            "opening after a kill (beside: after a clean stop)",
            &killed,
            Some(KILLED_OPEN_MS),
            format!(", with {} in the last segment", mb(active_bytes as f64)),
        ),
    ];
    Ok(Section { name: "Size, memory and opening", ratio_of: "Sealog over what each row names", rows })
}

fn number_of(found: &Value, name: &str) -> f64 {
    found[name].as_f64().unwrap_or(0.0)
}

#[derive(Clone, Copy, Debug)]
pub struct DiskBytes {
    pub log: u64,
    pub index: u64,
    pub other: u64,
}

/// What the files take on disk, which is not always their length.
pub fn disk_bytes(dir: &Path) -> Outcome<DiskBytes> {
    let mut bytes = DiskBytes { log: 0, index: 0, other: 0 };
    for path in files(dir)? {
        let on_disk = fs::metadata(&path)?.blocks() * 512;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("log") => bytes.log += on_disk,
            Some("idx") => bytes.index += on_disk,
            _ => bytes.other += on_disk,
        }
    }
    Ok(bytes)
}

fn files(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(self::files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The segment that is being written to.
fn active_segment(dir: &Path) -> Outcome<Option<PathBuf>> {
    let logs = files(&dir.join("live"))?;
    Ok(logs.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")).max())
}

fn active_bytes(dir: &Path) -> Outcome<u64> {
    Ok(active_segment(dir)?.map_or(Ok(0), |path| fs::metadata(path).map(|of| of.len()))?)
}

/// Makes what a killed process would leave behind. Full segments and index files are linked, since nothing
/// ever changes them; the rest is copied.
fn copy_open_store(from: &Path, to: &Path) -> Outcome<()> {
    let active = active_segment(from)?;
    for path in files(from)? {
        let target = to.join(path.strip_prefix(from)?);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        let full = path.extension().is_some_and(|extension| extension == "log" || extension == "idx")
            && active.as_ref() != Some(&path)
            && path.parent() == Some(&from.join("live"));
        if !full || fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
