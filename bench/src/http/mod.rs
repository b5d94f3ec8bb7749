//! `sealog-bench http`: the real service over real connections, beside what a user could take instead.

mod answer;
pub mod case;
pub mod client;
pub mod database;
pub mod load;
mod plan;
mod rows;
pub mod sealog;
pub mod source;
pub mod stream;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::outcome::Outcome;
use crate::peers::Peers;
use crate::plot;
use crate::report::number;
use crate::setting::{Setting, SettingArgs};
use case::{Bench, Measured};
use database::Database;
use plan::Beside;
use sealog::Sealog;
use stream::Certificate;

#[derive(Args, Debug)]
pub struct HttpArgs {
    /// Workload files, see bench/workloads [default: quick.toml, with --quick too]
    #[arg(long, value_name = "FILE")]
    workload: Vec<PathBuf>,
    #[command(flatten)]
    programs: Programs,
    /// Any nodes of a Citus cluster on this machine, with an empty database that all its nodes know: servers
    /// connect there for cases on PostgreSQL, and rows have the CPU time of each of its nodes
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
    /// Another build of the server: measured in turn with the first one, on every case of the embedded store
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Writes the plots to this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    setting: SettingArgs,
}

/// What is started.
#[derive(Args, Debug)]
pub struct Programs {
    /// The server [default: beside this program]
    #[arg(long, value_name = "FILE")]
    sealog: Option<PathBuf>,
    /// quipu-server, if there is one
    #[arg(long, value_name = "FILE")]
    quipu: Option<PathBuf>,
}

impl Programs {
    pub fn sealog(&self) -> PathBuf {
        self.sealog.clone().unwrap_or_else(sealog::default_program)
    }
}

pub fn run(args: &HttpArgs) -> Outcome<()> {
    let quick = [PathBuf::from("bench/workloads/quick.toml")];
    let mut cases = plan::read(if args.workload.is_empty() { &quick } else { &args.workload })?;
    if args.compare.is_some() {
        for case in cases.iter_mut().filter(|case| case.store == plan::Store::Embedded) {
            case.beside.push(Beside::Other);
        }
    }
    let setting = Setting::new(&args.setting, "http")?;
    let mut bench = Bench {
        setting: &setting,
        program: args.programs.sealog(),
        peers: Peers::new(&setting, args.programs.quipu.clone()),
        sync: None,
    };
    let (mut measured, mut memory) = (Vec::new(), Vec::new());
    let mut server = None;
    for case in &cases {
        if server.as_ref().is_none_or(|(own, _, _)| *own != case.server()) {
            if let Some((_, sealog, other)) = server.take() {
                retire(&bench, sealog, other, &mut memory)?;
            }
            setting.progress.say("starting a server");
            let certificate =
                if case.tls { Some(Certificate::make(&setting.dir.join("certificate"))?) } else { None };
            let mut sealog = match case.store {
                plan::Store::Embedded => {
                    Sealog::create(&setting, &bench.program, "sealog", case.chains, certificate)?
                }
                plan::Store::Postgres => {
                    let database = match &args.cluster {
                        Some(url) => Database::of_cluster(&bench.program, url)?,
                        None => Database::own(&setting)?,
                    };
                    Sealog::create_on_postgres(&setting, &bench.program, database, case.nodes, case.chains)?
                }
            };
            let mut other = match &args.compare {
                Some(program) if case.store == plan::Store::Embedded => {
                    Some(Sealog::create(&setting, program, "other", case.chains, None)?)
                }
                None if case.tls => {
                    Some(Sealog::create(&setting, &bench.program, "other", case.chains, None)?)
                }
                _ => None,
            };
            if case.fill > 0 {
                sealog.fill(&setting, case.fill)?;
                if let Some(other) = &mut other {
                    other.fill(&setting, case.fill)?;
                }
            }
            server = Some((case.server(), sealog, other));
        }
        if let Some((_, sealog, other)) = &mut server {
            measured.push(bench.measure(sealog, other.as_mut(), case)?);
        }
    }
    if let Some((_, sealog, other)) = server.take() {
        retire(&bench, sealog, other, &mut memory)?;
    }
    let peers = bench.peers.describe();
    drop(bench);
    if let Some(dir) = &args.plots {
        write_plots(dir, &measured)?;
    }
    let requests: u64 =
        measured.iter().flat_map(|case| &case.repeats).map(|repeat| repeat.sealog.requests).sum();
    let settings = format!(
        "the real server with its rates raised by settings, the generator in a process of its own; {} requests were measured, and every acknowledged event was found afterwards; {peers}",
        number(requests as f64)
    );
    let sections = rows::sections(&measured, &memory);
    setting.report("Sealog: the service", &settings, &json!({ "peers": peers }), sections)
}

/// Checks and stops the servers of some cases. The other build's memory is no row of its own.
fn retire(
    bench: &Bench<'_>,
    sealog: Sealog,
    other: Option<Sealog>,
    memory: &mut Vec<case::Memory>,
) -> Outcome<()> {
    memory.extend(bench.retire(sealog)?);
    if let Some(other) = other {
        bench.retire(other)?;
    }
    Ok(())
}

/// Requests/s by connections, of what was sent in a closed loop beside the bare server.
fn write_plots(dir: &std::path::Path, measured: &[Measured]) -> Outcome<()> {
    let plain = |case: &&Measured| {
        case.case.send == source::Send::Single
            && case.case.chains == 1
            && !case.case.idempotency
            && case.case.pace == plan::PlannedPace::Closed
            && case.case.beside.contains(&Beside::Bare)
    };
    let points = |of: &dyn Fn(&Measured) -> f64| {
        let mut points: Vec<(f64, f64)> =
            measured.iter().filter(plain).map(|case| (case.case.connections as f64, of(case))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let lines = [
        ("Sealog", points(&|case| case.median(|repeat| Some(repeat.sealog.requests_per_s)))),
        (
            "bare hyper server",
            points(&|case| case.median(|repeat| Some(repeat.beside(Beside::Bare)?.requests_per_s))),
        ),
    ];
    let svg = plot::lines("Single POST: requests/s by connections", "connections", "requests/s", &lines);
    plot::write(dir, "throughput.svg", &svg)
}
