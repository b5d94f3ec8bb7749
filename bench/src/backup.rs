//! `sealog-bench backup`: what a backup beside full ingest costs it, and how fast one is made and verified.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::Outcome;
use crate::http::Programs;
use crate::http::case::{Side, load};
use crate::http::load::Pace;
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::process::Process;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, SettingArgs, doubt};
use crate::stats::{Spread, median};

#[derive(Args, Debug)]
pub struct BackupArgs {
    /// Events in the store before anything is measured [default: 2000000; with --quick 20000]
    #[arg(long)]
    events: Option<u64>,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    setting: SettingArgs,
}

/// What ingest keeps beside a backup.
const KEPT: f64 = 0.9;

/// Ingest without and with backups beside it.
struct Beside {
    send: Send,
    pairs: Vec<(Side, Side)>,
    others: f64,
    backups: u64,
}

pub fn run(args: &BackupArgs) -> Outcome<()> {
    let events = args.events.unwrap_or(if args.setting.quick { 20_000 } else { 2_000_000 });
    let setting = Setting::new(&args.setting, "backup")?;
    let program = args.programs.sealog();
    let mut sealog = Sealog::create(&setting, &program, "backup", 1, None)?;
    sealog.while_stopped(Process::stop, |sealog| {
        sealog.fill_stopped(&setting, 0..events, events).map(|(store, _)| store.close())
    })?;
    let to = sealog.dir().with_file_name("backups-of-bench");
    let mut rows = Vec::new();
    for send in [Send::Single, Send::Batch] {
        rows.push(row(&beside(&setting, &mut sealog, send, &program, &to)?));
    }
    let alone = alone(&program, sealog.dir(), &to)?;
    remove(&to)?;
    sealog.check(0)?;
    sealog.stop()?;
    let settings = format!(
        "a store of {} events; one backup after the other, each into a new directory, beside ingest on 64 connections",
        number(events as f64)
    );
    let sections = vec![
        Section { name: "Ingest beside backups", ratio_of: "requests/s over those without them", rows },
        Section { name: "Backups alone", ratio_of: "none", rows: alone },
    ];
    setting.report("Sealog: backups", &settings, &json!({ "events": events }), sections)
}

fn beside(setting: &Setting, sealog: &mut Sealog, send: Send, program: &Path, to: &Path) -> Outcome<Beside> {
    let (mut pairs, mut others, done) = (Vec::new(), 0f64, AtomicU64::new(0));
    let data = sealog.dir().to_owned();
    for repeat in 1..=setting.repeats {
        let name = format!("repeat {repeat} of {}: {} beside backups", setting.repeats, send.name());
        let slice = setting.quietly(&name, || {
            let without = ingest(setting, sealog, &send)?;
            let over = AtomicBool::new(false);
            let with = std::thread::scope(|scope| {
                let (over, done, data) = (&over, &done, &data);
                let backing_up = scope.spawn(move || {
                    keep_backing_up(program, data, to, over, done).map_err(|error| error.to_string())
                });
                let with = ingest(setting, sealog, &send);
                over.store(true, Ordering::Relaxed);
                backing_up.join().map_err(|_| "the backups have panicked")??;
                with
            })?;
            Ok((without, with))
        })?;
        others = others.max(slice.others);
        pairs.push(slice.value);
    }
    Ok(Beside { send, pairs, others, backups: done.into_inner() })
}

/// One after the other. The last one is killed, which does it no harm.
fn keep_backing_up(
    program: &Path,
    data: &Path,
    to: &Path,
    over: &AtomicBool,
    done: &AtomicU64,
) -> Outcome<()> {
    while !over.load(Ordering::Relaxed) {
        remove(to)?;
        let mut child = create(program, data, to, &[]).spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    return Err(format!("a backup has failed: {status}").into());
                }
                done.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if over.load(Ordering::Relaxed) {
                child.kill()?;
                child.wait()?;
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    Ok(())
}

fn create(program: &Path, data: &Path, to: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["backup", "create", "--quiet", "--data-dir"]).arg(data).args(args).arg(to);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn remove(dir: &Path) -> Outcome<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn ingest(setting: &Setting, sealog: &mut Sealog, send: &Send) -> Outcome<Side> {
    let mut requests = Requests::new(sealog, send, 0, 1, false)?;
    let counters = || sealog.counters();
    let (loaded, cpu, bytes) = load(
        (sealog.addresses(), None),
        64,
        Pace::Closed,
        setting.slice,
        &mut requests,
        &counters,
        None,
        &|_| {},
    )?;
    sealog.acknowledge(&loaded);
    Side::of_load(&loaded, cpu, bytes)
}

/// A whole one, the next one, and its verification.
fn alone(program: &Path, data: &Path, to: &Path) -> Outcome<Vec<Row>> {
    remove(to)?;
    let timed = |mut command: Command| -> Outcome<f64> {
        let start = Instant::now();
        let status = command.status()?;
        if status.success() {
            Ok(start.elapsed().as_secs_f64())
        } else {
            Err(format!("it failed: {status}").into())
        }
    };
    let mut verify = Command::new(program);
    verify.args(["backup", "verify", "--quiet"]).arg(to).stdout(Stdio::null());
    let seconds = [
        ("a whole backup, gently", timed(create(program, data, to, &[]))?),
        ("the next one, with nothing new", timed(create(program, data, to, &[]))?),
        ("its verification on all cores", timed(verify)?),
    ];
    let mut bytes = 0u64;
    for dir in ["live", "test"] {
        for entry in std::fs::read_dir(to.join(dir))? {
            bytes += entry?.metadata()?.len();
        }
    }
    let row = |(what, seconds): (&str, f64)| Row {
        what: what.to_owned(),
        ratio: None,
        target: None,
        doubt: None,
        sealog: format!("{} s, {} MB/s", number(seconds), number(bytes as f64 / 1e6 / seconds)),
        beside: String::new(),
        json: json!({ "seconds": seconds, "bytes": bytes }),
    };
    Ok(seconds.into_iter().map(row).collect())
}

fn row(beside: &Beside) -> Row {
    let ratio =
        Spread::of(beside.pairs.iter().map(|(without, with)| with.requests_per_s / without.requests_per_s));
    let wrong = beside
        .pairs
        .iter()
        .find_map(|(without, with)| without.errors.clone().or_else(|| with.errors.clone()));
    let rate = |of: &dyn Fn(&(Side, Side)) -> f64| number(median(beside.pairs.iter().map(of)));
    Row {
        what: format!("{} beside backups ({} ended)", beside.send.name(), beside.backups),
        ratio,
        target: ratio.map(|ratio| (Target::AtLeast(KEPT, "x"), ratio.median)),
        doubt: wrong.or_else(|| doubt([beside.others])),
        sealog: format!("{} requests/s", rate(&|(_, with)| with.requests_per_s)),
        beside: format!("{} requests/s alone", rate(&|(without, _)| without.requests_per_s)),
        json: json!({
            "repeats": beside.pairs.iter().map(|(without, with)| json!({ "alone": without.json(), "beside": with.json() })).collect::<Vec<_>>(),
        }),
    }
}
