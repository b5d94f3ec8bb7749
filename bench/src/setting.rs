//! What all benchmarks share: their options, a machine that is waited for, and the top of the report.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::machine::{Machine, Usage};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::report::{Report, Section, number};
use crate::workload;

#[derive(Args, Debug)]
pub struct SettingArgs {
    /// Length of one measurement; reads of the store take a third of it for each kind [default: 3; with
    /// --quick 0.3]
    #[arg(long)]
    seconds: Option<f64>,
    /// How often everything is measured; the median is reported [default: 3; with --quick 1]
    #[arg(long)]
    repeats: Option<usize>,
    /// Where the stores are made, and removed at the end. Its disk is what is measured
    #[arg(long, default_value = "bench/data")]
    dir: PathBuf,
    /// Writes everything that was measured to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How long to wait, over the whole run, for other processes to leave the machine alone [default: 300;
    /// with --quick 0]
    #[arg(long, value_name = "SECONDS")]
    wait_idle: Option<u64>,
    /// A short run, to see that it works: its numbers mean little. Allows a directory in memory
    #[arg(long)]
    pub quick: bool,
}

/// What all parts of a run share.
#[derive(Debug)]
pub struct Setting {
    pub slice: Duration,
    pub repeats: usize,
    pub dir: PathBuf,
    pub quick: bool,
    pub progress: Progress,
    json: Option<PathBuf>,
    machine: Machine,
    start: Instant,
    before: Option<Usage>,
    /// What is left of the time to wait for others. One budget for all: on a machine that is never idle a run
    /// must still end.
    wait_left: Cell<Duration>,
    /// Measurements that others disturbed and that were made again; kept for the report.
    disturbed: RefCell<Vec<(String, f64)>>,
}

/// Above this share of all cores for others a measurement is made again, and in the end not judged.
const OTHERS_MAX: f64 = 0.05;

/// A measurement, and the share of all cores that others took meanwhile.
#[derive(Debug)]
pub struct Slice<T> {
    pub value: T,
    pub others: f64,
}

/// Why numbers from slices with these shares must not be judged.
pub fn doubt(others: impl IntoIterator<Item = f64>) -> Option<String> {
    let most = others.into_iter().fold(0.0, f64::max);
    (most > OTHERS_MAX).then(|| format!("others took up to {} % of the machine", number(most * 100.0)))
}

impl Setting {
    /// The name becomes part of the directory's.
    pub fn new(args: &SettingArgs, name: &str) -> Outcome<Setting> {
        let (seconds, repeats) = if args.quick { (0.3, 1) } else { (3.0, 3) };
        let seconds = args.seconds.unwrap_or(seconds);
        let slice = Duration::try_from_secs_f64(seconds).map_err(|error| format!("--seconds: {error}"))?;
        let repeats = args.repeats.unwrap_or(repeats);
        if repeats == 0 || slice.is_zero() {
            return Err("--seconds and --repeats must be above 0".into());
        }
        // A name of its own, so that nothing that was there before is touched.
        let dir = args.dir.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let wait_idle = Duration::from_secs(args.wait_idle.unwrap_or(if args.quick { 0 } else { 300 }));
        Ok(Setting {
            slice,
            repeats,
            machine: Machine::look(&dir),
            dir,
            quick: args.quick,
            progress: Progress::new(),
            json: args.json.clone(),
            start: Instant::now(),
            before: Usage::now(),
            wait_left: Cell::new(wait_idle),
            disturbed: RefCell::default(),
        })
    }

    /// Measures while the machine is otherwise idle, if it gets so in time; once more, up to twice, when
    /// others came in between.
    pub fn quietly<T>(&self, what: &str, mut act: impl FnMut() -> Outcome<T>) -> Outcome<Slice<T>> {
        const TRIES: usize = 3;
        let mut tries = 0;
        loop {
            self.wait_until_idle(what);
            self.progress.say(what);
            let before = Usage::now();
            let value = act()?;
            let others = match (before, Usage::now()) {
                (Some(before), Some(after)) => after.others_since(&before),
                _ => 0.0,
            };
            tries += 1;
            if others <= OTHERS_MAX || tries == TRIES || self.wait_left.get().is_zero() {
                return Ok(Slice { value, others });
            }
            self.disturbed.borrow_mut().push((what.to_owned(), others));
        }
    }

    fn wait_until_idle(&self, what: &str) {
        const LOOK: Duration = Duration::from_millis(500);
        while !self.wait_left.get().is_zero() {
            let before = Usage::now();
            std::thread::sleep(LOOK);
            let (Some(before), Some(after)) = (before, Usage::now()) else { return };
            if after.others_since(&before) <= OTHERS_MAX {
                return;
            }
            // Only a look that found others counts: an idle machine uses nothing up.
            self.wait_left.set(self.wait_left.get().saturating_sub(LOOK));
            self.progress.say(&format!("{what}: waiting for other processes to leave the machine alone"));
        }
    }

    /// Prints the report, and writes it where it was asked for. The data goes before the report comes, and
    /// the progress line with it.
    pub fn report(
        self,
        title: &'static str,
        settings: &str,
        details: &Value,
        sections: Vec<Section>,
    ) -> Outcome<()> {
        let others = match (self.before, Usage::now()) {
            (Some(before), Some(after)) => after.others_since(&before),
            _ => 0.0,
        };
        let (machine, disturbed) = (&self.machine, self.disturbed.take());
        let texts = (0..1000).map(|n| workload::text(n).as_str().len()).sum::<usize>() as f64 / 1000.0;
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let header = vec![
            ("machine", format!("{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel)),
            ("file system", machine.file_system.clone()),
            ("build", format!("commit {}, {}", machine.commit, machine.profile)),
            ("command", format!("`sealog-bench {command}`")),
            (
                "settings",
                format!(
                    "slices of {} s, {} interleaved repeats, medians; {settings}",
                    self.slice.as_secs_f64(),
                    self.repeats
                ),
            ),
            (
                "workload",
                format!(
                    "seed {}; {} bytes of canonical text an event, {} actors, 20 actions",
                    workload::SEED,
                    number(texts),
                    number(workload::ACTORS as f64)
                ),
            ),
            (
                "neighbours",
                format!(
                    "others took {} % of all cores over the whole run, waiting included; {} measurements were disturbed and made again",
                    number(others * 100.0),
                    disturbed.len()
                ),
            ),
            ("took", format!("{} s", number(self.start.elapsed().as_secs_f64()))),
        ];
        let report = Report {
            title,
            header_json: json!({
                "machine": machine.json(), "command": command, "details": details,
                "seconds": self.slice.as_secs_f64(), "repeats": self.repeats, "quick": self.quick,
                "seed": workload::SEED, "text_bytes": texts, "others_share": others,
                "disturbed": disturbed.iter().map(|(what, others)| json!({ "what": what, "others": others })).collect::<Vec<_>>(),
                "took_s": self.start.elapsed().as_secs_f64(),
            }),
            header,
            sections,
        };
        let json = self.json.clone();
        drop(self);
        print!("{}", report.markdown());
        match &json {
            Some(path) => report.write_json(path),
            None => Ok(()),
        }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
