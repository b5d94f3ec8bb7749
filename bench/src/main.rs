//! Measures Sealog beside the bare machine, in one run, and says the ratio first. `bench/README.md` has the
//! questions and how to read the answers.
//!
//! One subcommand for each seam that is measured; they share the workload, the driver and the report.

mod backup;
mod bare;
mod bare_http;
mod beside;
mod cli;
mod driver;
mod growth;
mod http;
mod machine;
mod meter;
mod outcome;
mod pages;
mod peers;
mod plot;
mod process;
mod progress;
mod report;
mod setting;
mod side;
mod stats;
mod store;
mod trust;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures Sealog beside the bare machine.
#[derive(Parser, Debug)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// The embedded store: appends beside pwrite+fdatasync, verification beside SHA-256, reads, size, memory,
    /// opening
    Store(store::StoreArgs),
    /// The service over HTTP, driven by workload files, beside a bare hyper server, PostgreSQL and
    /// quipu-server
    Http(http::HttpArgs),
    /// What becomes of ingest, reads, verification, start-up, memory and disk as a store grows to 20 million
    /// events
    Growth(growth::GrowthArgs),
    /// How long every page of the dashboard takes over 1 and 20 million events, and what people cost ingest
    Pages(pages::PagesArgs),
    /// `sealog log` from standard input and `sealog follow` into a file, beside the service's rate of batches
    Cli(cli::CliArgs),
    /// What a backup beside full ingest costs it
    Backup(backup::BackupArgs),
    /// What the signed log costs: ingest with it beside ingest without, a proof beside a point read, a
    /// snapshot of 10,000 chains, disk, memory and start
    Trust(trust::TrustArgs),
    /// A hyper server that always gives the same answer. Run by `http`, in a process of its own
    #[command(hide = true)]
    BareHttp(bare_http::BareHttpArgs),
    /// Opens a store that a benchmark has filled and prints what that took. Run by `store`, in a process of
    /// its own
    #[command(hide = true)]
    Probe(store::reopen::ProbeArgs),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().what {
        What::Store(args) => store::run(&args),
        What::Http(args) => http::run(&args),
        What::Growth(args) => growth::run(&args),
        What::Pages(args) => pages::run(&args),
        What::Cli(args) => cli::run(&args),
        What::Backup(args) => backup::run(&args),
        What::Trust(args) => trust::run(&args),
        What::BareHttp(args) => bare_http::run(&args),
        What::Probe(args) => store::reopen::probe(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sealog-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
