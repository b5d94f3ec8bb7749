//! `sealog-bench backup`: what a backup beside full ingest costs it, how fast one is made and verified, and
//! how long a server is away whose disk is lost.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::beside::beside_ingest;
use crate::http::Programs;
use crate::http::sealog::{Sealog, TOKEN};
use crate::http::source::Send;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::report::{Row, Section, number};
use crate::setting::{Setting, SettingArgs};
use crate::workload;

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
    let data = sealog.dir().to_owned();
    let backups = |_, over: &AtomicBool, done: &AtomicU64| keep_backing_up(&program, &data, &to, over, done);
    for send in [Send::Single, Send::Batch] {
        rows.push(beside_ingest(&setting, &mut sealog, (0, send), "backups", 1, &backups)?.row());
    }
    let alone = alone(&program, sealog.dir(), &to)?;
    let restored = restored(&program, &mut sealog, &to)?;
    remove(&to)?;
    sealog.retire()?;
    let settings = format!(
        "a store of {} events; one backup after the other, each into a new directory, beside ingest on 64 connections",
        number(events as f64)
    );
    let sections = vec![
        Section { name: "Ingest beside backups", ratio_of: "requests/s over those without them", rows },
        Section { name: "Backups alone", ratio_of: "none", rows: alone },
        Section { name: "After the loss of the disk", ratio_of: "none", rows: restored },
    ];
    setting.report("Sealog: backups", &settings, &json!({ "events": events }), sections)
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

/// A whole one, the next one, and its verification.
fn alone(program: &Path, data: &Path, to: &Path) -> Outcome<Vec<Row>> {
    remove(to)?;
    let mut verify = Command::new(program);
    verify.args(["backup", "verify", "--quiet"]).arg(to);
    let seconds = [
        ("a whole backup, gently", timed(create(program, data, to, &[]))?),
        ("the next one, with nothing new", timed(create(program, data, to, &[]))?),
        ("its verification on all cores", timed(verify)?),
    ];
    let bytes = segment_bytes(to)?;
    Ok(seconds.into_iter().map(|(what, seconds)| row(what, seconds, bytes)).collect())
}

/// From a backup, then from a replica.
fn restored(program: &Path, sealog: &mut Sealog, backups: &Path) -> Outcome<Vec<Row>> {
    let mut restore = Command::new(program);
    restore.args(["restore", "--quiet", "--from"]).arg(backups).arg("--to").arg(sealog.dir());
    let mut rows = away("restore into an empty directory", restore, sealog, backups)?;

    let replica = sealog.dir().with_file_name("replica-of-bench");
    remove(&replica)?;
    let mut replicate = Command::new(program);
    replicate
        .args(["replicate", "--once", "--quiet", "--from"])
        .arg(format!("http://{}", sealog.addresses()[0]));
    replicate.arg("--to").arg(&replica).env("SEALOG_OPERATOR_TOKEN", TOKEN);
    let copied = timed(replicate)?;
    rows.push(row("a whole copy by replicate --once", copied, segment_bytes(&replica)?));
    let mut promote = Command::new(program);
    promote.args(["replicate", "--quiet", "--promote"]).arg(sealog.dir()).arg("--to").arg(&replica);
    rows.extend(away("replicate --promote into an empty directory", promote, sealog, &replica)?);
    remove(&replica)?;
    Ok(rows)
}

/// The server is killed and its directory removed. The clock runs from the first command of the operator to
/// the receipt of the first event; every event that was acknowledged before is there.
fn away(what: &str, command: Command, sealog: &mut Sealog, from: &Path) -> Outcome<Vec<Row>> {
    let (mut start, mut restore) = (Instant::now(), 0.0);
    sealog.while_stopped(Process::kill, |sealog| {
        remove(sealog.dir())?;
        start = Instant::now();
        restore = timed(command)?;
        Ok(())
    })?;
    let key = sealog.accounts[0].key.clone();
    sealog.client()?.with_token(&key).ask("POST", "/v1/events", &workload::body(0), 202)?;
    let total = start.elapsed().as_secs_f64();
    sealog.check(1)?;
    let bytes = segment_bytes(from)?;
    Ok(vec![row(what, restore, bytes), row("the same, a start and the first event", total, bytes)])
}

fn timed(mut command: Command) -> Outcome<f64> {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() {
        Ok(start.elapsed().as_secs_f64())
    } else {
        Err(format!("it failed: {status}").into())
    }
}

fn segment_bytes(backups: &Path) -> Outcome<u64> {
    let mut bytes = 0u64;
    for dir in ["live", "test"] {
        for entry in std::fs::read_dir(backups.join(dir))? {
            bytes += entry?.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn row(what: &str, seconds: f64, bytes: u64) -> Row {
    Row {
        what: what.to_owned(),
        ratio: None,
        target: None,
        doubt: None,
        sealog: format!("{} s, {} MB/s", number(seconds), number(bytes as f64 / 1e6 / seconds)),
        beside: String::new(),
        json: json!({ "seconds": seconds, "bytes": bytes }),
    }
}
