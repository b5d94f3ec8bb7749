//! `sealog tenant export`: everything of a tenant as one archive, for the end of a contract.
//!
//! ```text
//! t0  the chains and where they end; the tenant's system chain records the export
//! t1  control data, packages of cases and events into FILE.XXXXXXXX.part, each member with its SHA-256
//! t2  the manifest, which has them all
//! t3  the part is read back: every digest compared, every chain computed again
//! t4  the part gets its name
//! ```
//! A command that fails before t4 leaves no file. [`pages`] is what the process with the store reads.

mod check;
mod manifest;
mod pages;
mod write;

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::Part as PartFile;
use sealog_cli::{file_flags, output, progress};
use sealog_core::time::iso_ms;
use serde_json::{Value, json};

pub use pages::{Page, Part, read_page};

use super::shared::{EXIT_CODES, json_flag, quiet_flag};
use check::{Checked, check};
use manifest::{FORMAT, Manifest, other_page};
use write::Writer;

pub fn export_command() -> Command {
    Command::new("export")
        .about("Export everything of a tenant to one archive, and verify it")
        .long_about(
            "Export everything of a tenant to one archive, and verify it.\n\n\
             The archive is a tar file: the events of every chain (live, test and the system chain) as \
             NDJSON, projects, keys and monitor tokens without their secrets, actions, settings, members \
             without their passwords, and cases with their packages. Its last file, manifest.json, has the SHA-256 of \
             every other file and the end of every chain. `sealog-verify` checks the files in events/ \
             without a server.\n\n\
             The server may run or be stopped: the command connects to the server of the data directory, or \
             opens the store itself if none runs. Events that arrive after its start are not exported. The \
             tenant's system chain records the export.\n\n\
             The command reads the archive back before it gets its name: it compares every SHA-256 and \
             recomputes every chain. If it fails, it leaves no file; if it is killed, it leaves the partial \
             file FILE.XXXXXXXX.part. It never replaces a file. If a chain in the store is broken, the \
             archive has every event that can be read, and the command exits with 10.",
        )
        .after_help(EXIT_CODES)
        .arg(tenant_argument())
        .arg(file_flags::output("Write the archive to this file").required(true))
        .arg(json_flag())
        .arg(quiet_flag())
}

pub fn verify_command() -> Command {
    Command::new("verify")
        .about("Verify an archive that `sealog tenant export` wrote")
        .long_about(
            "Verify an archive that `sealog tenant export` wrote: compare every SHA-256 with the manifest and \
             recompute every chain. It needs no server and no store.",
        )
        .after_help(EXIT_CODES)
        .arg(Arg::new("file").value_name("FILE").required(true).help("The archive"))
        .arg(json_flag())
        .arg(quiet_flag())
}

pub fn tenant_argument() -> Arg {
    Arg::new("tenant_id")
        .value_name("TENANT_ID")
        .required(true)
        .help("The tenant; `sealog admin tenant list` shows the ids")
}

/// `ask` reads one page of the tenant.
pub fn export(
    matches: &ArgMatches,
    now_ms: u64,
    ask: &mut dyn FnMut(Part) -> Result<Page, Failure>,
) -> Result<ExitCode, Failure> {
    let path = file_flags::path(matches, "output").expect("clap asks for it");
    // Known before the work and not only when the file gets its name.
    if path.symlink_metadata().is_ok() {
        return Err(Failure::usage(format!("{} already exists: give another file", path.display())));
    }
    let Page::Chains { tenant, chains } = ask(Part::Chains)? else { return Err(other_page()) };
    let is_quiet = matches.get_flag("quiet");
    let events: u64 = chains.iter().map(|chain| (chain.last_seq + 1).saturating_sub(chain.first_seq)).sum();
    let mut writer = Writer::new(PartFile::create(&path)?);
    writer.put_all(&tenant, &chains, &progress::bar(is_quiet, "Exporting", Some(events)), ask)?;
    let manifest = Manifest {
        format: FORMAT.into(),
        sealog: env!("CARGO_PKG_VERSION").into(),
        exported_at: iso_ms(now_ms),
        tenant,
        chains,
        files: writer.files().to_vec(),
    };
    let part = writer.finish(&manifest)?;
    let checked = check(part.path(), is_quiet)?;
    part.finish(false)?;
    checked.report(&path, matches)
}

pub fn verify(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let path = Path::new(matches.get_one::<String>("file").expect("clap asks for it"));
    check(path, matches.get_flag("quiet"))?.report(path, matches)
}

impl Checked {
    fn report(&self, path: &Path, matches: &ArgMatches) -> Result<ExitCode, Failure> {
        let events: u64 = self.chains.iter().map(|chain| chain.events).sum();
        let name = self.tenant["name"].as_str().unwrap_or_default();
        if matches.get_flag("json") {
            let chains: Value = self.chains.iter().map(check::CheckedChain::to_json).collect();
            let report = json!({
                "file": path, "bytes": self.bytes, "sha256": self.sha256, "tenant_id": self.tenant["tenant_id"],
                "files": self.files, "events": events, "chains": chains,
            });
            println!("{report}");
        } else if !matches.get_flag("quiet") {
            println!(
                "{}: {events} events of {} chains of {}, {} files, {} bytes, SHA-256 {}",
                path.display(),
                self.chains.len(),
                output::plain(name),
                self.files,
                self.bytes,
                self.sha256
            );
        }
        let broken: Vec<String> = self.chains.iter().filter_map(check::CheckedChain::fault).collect();
        if broken.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(
            Exit::Broken,
            format!("{}; the archive has every event that could be read", broken.join("; ")),
        ))
    }
}
