//! `sealog-bench cli`: how fast `sealog log` reads standard input and `sealog follow` writes a file, beside
//! the rate at which the service takes batches, in one run; and whether `sealog follow` and `sealog
//! replicate` keep up with half of that rate ([`beside`]). With `--database` the same of `sealog replicate`
//! and a server on PostgreSQL.

mod beside;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::http::Programs;
use crate::http::case::load;
use crate::http::database::Database;
use crate::http::load::{Loaded, Pace};
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::outcome::Outcome;
use crate::report::{Row, Section, Target, number};
use crate::setting::{Setting, SettingArgs, Slice, doubt};
use crate::stats::{Spread, median};
use crate::workload;
use beside::{Beside, FOLLOWERS, Follower, client};

#[derive(Args, Debug)]
pub struct CliArgs {
    /// Connections on which batches are sent for the comparison
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Measures the copy of a database instead, beside a server on PostgreSQL
    #[arg(long)]
    database: bool,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    setting: SettingArgs,
}

/// Batches that `sealog log` has under way: one keeps the order of lines.
const IN_FLIGHT: [usize; 2] = [1, 8];
/// Events that `sealog log` gets to read, at least and at most.
const EVENTS: (u64, u64) = (20_000, 2_000_000);

/// Events/s of one repeat.
#[derive(Debug)]
struct Repeat {
    batches: f64,
    logged: [f64; 2],
    followed: f64,
    others: f64,
    /// In the order of [`FOLLOWERS`], with the share that others took.
    beside: Vec<(Beside, f64)>,
}

pub fn run(args: &CliArgs) -> Outcome<()> {
    if args.database {
        return run_on_postgres(args);
    }
    let setting = Setting::new(&args.setting, "cli")?;
    let program = args.programs.sealog();
    let mut sealog = Sealog::create(&setting, &program, "one", 1, None)?;
    // Where commands follow ingest: they find a store without a past.
    let mut growing = Sealog::create(&setting, &program, "growing", 1, None)?;
    let input = setting.dir.join("events.ndjson");
    let mut repeats = Vec::new();
    for repeat in 1..=setting.repeats {
        let of = |what: &str| format!("repeat {repeat} of {}: {what}", setting.repeats);
        let slice = batches(&setting, &of("batches"), &mut sealog, args.connections)?;
        let (batches, mut others) = (slice.value.events_per_s(), slice.others);
        // As many as the service has taken in a slice.
        let count = slice.value.events.clamp(EVENTS.0, EVENTS.1);
        write_events(&input, count)?;
        let (address, key) = (sealog.addresses()[0], sealog.accounts[0].key.clone());
        let mut logged = [0.0; 2];
        for (at, in_flight) in IN_FLIGHT.iter().enumerate() {
            let slice = setting.quietly(&of(&format!("log, {in_flight} in flight")), || {
                log(&program, address, &key, &input, *in_flight, count)
            })?;
            logged[at] = slice.value;
            others = others.max(slice.others);
        }
        // Measurements that others disturbed were made again.
        sealog.check(count * 16)?;
        let followed = setting.quietly(&of("follow"), || follow(&program, address, &key, &setting.dir))?;
        others = others.max(followed.others);
        let mut beside = Vec::new();
        for follower in FOLLOWERS {
            let slice = setting.quietly(&of(&format!("{} beside ingest", follower.name())), || {
                follower.measure(&setting, &program, &mut growing, args.connections, batches)
            })?;
            beside.push((slice.value, slice.others));
        }
        growing.check(0)?;
        repeats.push(Repeat { batches, logged, followed: followed.value, others, beside });
    }
    sealog.stop()?;
    growing.stop()?;
    let settings = format!(
        "batches of 100 on {} connections; `sealog log --file -`, `sealog follow --output` and `sealog replicate` as programs of their own on the same machine",
        args.connections
    );
    let details = json!({ "connections": args.connections });
    let alone = section(&repeats);
    let mut measured: Vec<_> = FOLLOWERS.iter().map(|follower| (*follower, Vec::new())).collect();
    for (at, beside) in repeats.into_iter().flat_map(|repeat| repeat.beside.into_iter().enumerate()) {
        measured[at].1.push(beside);
    }
    let sections = vec![alone, beside::section(&measured)];
    setting.report("Sealog: command line", &settings, &details, sections)
}

/// A server on PostgreSQL by itself, and then at half of that rate beside a copy of its database.
fn run_on_postgres(args: &CliArgs) -> Outcome<()> {
    let setting = Setting::new(&args.setting, "cli-database")?;
    let program = args.programs.sealog();
    let mut sealog = Sealog::create_on_postgres(&setting, &program, Database::own(&setting)?, 1, 1)?;
    let mut measured = Vec::new();
    for repeat in 1..=setting.repeats {
        let of = |what: &str| format!("repeat {repeat} of {}: {what}", setting.repeats);
        let alone = batches(&setting, &of("batches"), &mut sealog, args.connections)?.value;
        // Measurements that others disturbed were made again.
        sealog.check(alone.events * 16)?;
        let rate = alone.events_per_s();
        let follower = Follower::ReplicateDatabase;
        let slice = setting.quietly(&of(&format!("{} beside ingest", follower.name())), || {
            follower.measure(&setting, &program, &mut sealog, args.connections, rate)
        })?;
        measured.push((slice.value, slice.others));
        sealog.check(0)?;
    }
    sealog.stop()?;
    let settings = format!("batches of 100 on {} connections, a server on PostgreSQL", args.connections);
    let details = json!({ "connections": args.connections });
    let sections = vec![beside::section(&[(Follower::ReplicateDatabase, measured)])];
    setting.report("Sealog: a copy of a database", &settings, &details, sections)
}

/// What the service takes by itself.
fn batches(setting: &Setting, what: &str, sealog: &mut Sealog, connections: usize) -> Outcome<Slice<Loaded>> {
    let mut requests = Requests::new(sealog, &Send::Batch, 0, 1, true)?;
    let slice = setting.quietly(what, || {
        let counters = || sealog.counters();
        let tick = |text: &str| setting.progress.say(text);
        let (addresses, limit) = (sealog.addresses(), setting.slice);
        let loaded =
            load((addresses, None), connections, Pace::Closed, limit, &mut requests, &counters, None, &tick)?;
        Ok(loaded.0)
    })?;
    sealog.acknowledge(&slice.value);
    Ok(slice)
}

fn write_events(path: &Path, count: u64) -> Outcome<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for n in 0..count {
        writeln!(file, "{}", workload::body(n))?;
    }
    Ok(file.flush()?)
}

/// Events/s from the first byte that is read to the end of the program.
fn log(
    program: &Path,
    address: SocketAddr,
    key: &str,
    input: &Path,
    in_flight: usize,
    count: u64,
) -> Outcome<f64> {
    let mut command = client(program, address, key);
    command.args(["log", "--file", "-", "--no-spool", "--quiet", "--in-flight", &in_flight.to_string()]);
    let start = Instant::now();
    let status = command.stdin(File::open(input)?).status()?;
    if !status.success() {
        return Err(format!("sealog log ended with {status}").into());
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Events/s of a follower that has the whole chain before it.
fn follow(program: &Path, address: SocketAddr, key: &str, dir: &Path) -> Outcome<f64> {
    let output = dir.join("followed.ndjson");
    let _ = std::fs::remove_file(&output);
    let _ = std::fs::remove_file(dir.join("followed.ndjson.cursor"));
    let mut command = client(program, address, key);
    command.args(["follow", "--once", "--quiet", "--output"]).arg(&output);
    let start = Instant::now();
    let status = command.stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("sealog follow ended with {status}").into());
    }
    let took = start.elapsed().as_secs_f64();
    let text = std::fs::read(&output)?;
    let events = text.iter().filter(|byte| **byte == b'\n').count();
    std::fs::remove_file(&output)?;
    Ok(events as f64 / took)
}

fn section(repeats: &[Repeat]) -> Section {
    let row = |what: String, of: &dyn Fn(&Repeat) -> f64, least: Option<f64>| {
        let ratio = Spread::of(repeats.iter().map(|repeat| of(repeat) / repeat.batches));
        let (own, beside) =
            (median(repeats.iter().map(of)), median(repeats.iter().map(|repeat| repeat.batches)));
        Row {
            what,
            ratio,
            target: least.zip(ratio).map(|(least, ratio)| (Target::AtLeast(least, ""), ratio.median)),
            doubt: doubt(repeats.iter().map(|repeat| repeat.others)),
            sealog: format!("{} events/s", number(own)),
            beside: format!("{} events/s in batches", number(beside)),
            json: json!({ "events_per_s": own, "batch_events_per_s": beside }),
        }
    };
    Section {
        name: "Command line",
        ratio_of: "events/s of the command to those of the service with batches of 100",
        rows: vec![
            row("`sealog log` from standard input, in order".into(), &|repeat| repeat.logged[0], None),
            row(
                format!("`sealog log --in-flight {}` from standard input", IN_FLIGHT[1]),
                &|repeat| repeat.logged[1],
                Some(0.6),
            ),
            row("`sealog follow` into a file".into(), &|repeat| repeat.followed, Some(0.5)),
        ],
    }
}
