//! `sealog doctor`: what support needs to know of an installation, in one file without secrets and without
//! events. [`archive`] writes it.

mod archive;

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::{connect, file_flags};
use sealog_core::time::iso_ms;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres;
use serde_json::{Value, json};

use super::check::{self, probes};

use super::{config as shown, own_server};
use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::config::{self, Listeners};

/// Of the store, no more files than this are listed.
const FILES_MAX: usize = 20_000;
const ASK_MAX: Duration = Duration::from_secs(10);

pub(super) fn command() -> Command {
    config::with_flags(
        Command::new("doctor")
            .about("Write a support bundle without secrets and events")
            .long_about(
                "Write a support bundle (a tar archive) without secrets and events. It contains versions, \
                 settings without secrets, the findings of `sealog check`, and the names and sizes of the \
                 files of the store. From a running server it adds the findings about the store, readiness \
                 and metrics.\n\n\
                 The bundle has no event, key, password, personal address or tenant name; it has ids of \
                 chains. It is not compressed: read it before you send it (tar -xOf FILE).\n\n\
                 The server may run or be stopped; the command changes nothing. Run it as the user of the \
                 server, in its environment. It connects to the server at the address in the settings, with \
                 TLS if they have a certificate; it does not check the issuer and sends no key.",
            )
            .arg(file_flags::output(
                "Write to this file; - is standard output [default: sealog-doctor-TIME.tar]",
            ))
            .arg(
                Arg::new("json")
                    .long("json")
                    .action(ArgAction::SetTrue)
                    .help("Print one JSON object with the name of the file and its contents"),
            )
            .arg(
                Arg::new("offline")
                    .long("offline")
                    .action(ArgAction::SetTrue)
                    .help("Do not connect to the database or the mail server"),
            ),
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = || format!("sealog-doctor-{}.tar", now.as_secs());
    let path = matches.get_one::<String>("output").cloned().unwrap_or_else(name);
    let parts = gathered(matches);
    let archive = archive::archive(&parts, now.as_secs());
    if path == "-" {
        sealog_cli::output::put_bytes(&archive)?;
        return Ok(ExitCode::SUCCESS);
    }
    let unwritten =
        |error| Failure::usage(format!("cannot write {path}: {error}; give another file with --output"));
    let mut file =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).map_err(unwritten)?;
    file.write_all(&archive).and_then(|()| file.sync_all()).map_err(unwritten)?;
    if matches.get_flag("json") {
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        println!("{}", json!({ "file": path, "contents": names }));
    } else {
        println!("{path}");
        eprintln!("sealog: read the bundle before you send it: tar -xOf {path}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and texts. What cannot be found out says why instead.
fn gathered(matches: &ArgMatches) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, text: String| parts.push((format!("sealog-doctor/{name}"), text));
    put("versions.json", pretty(&versions()));
    let found = probes::all(matches, matches.get_flag("offline"));
    put("check.json", pretty(&check::as_json(&found)));
    match config::effective(matches, std::env::vars(), false) {
        Ok(settings) => put("settings.toml", shown::as_toml(&settings)),
        Err(error) => put("settings.toml", format!("# not available: {error}\n")),
    }
    if let Ok(settings) = config::load(matches, std::env::vars()) {
        put("files.txt", files(&settings.data_dir));
        let state = match client::ask_running(&settings.data_dir, &Request::Inspect) {
            Ok(Some(Answer::Inspect(state))) => pretty(&serde_json::to_value(state).unwrap_or_default()),
            Ok(Some(_)) => format!("{}\n", client::OTHER_ANSWER),
            Ok(None) => {
                "no server runs on the data directory; `sealog verify --data DIR` checks a stopped store\n"
                    .into()
            }
            Err(problem) => format!("{problem}\n"),
        };
        put("state.json", state);
    }
    if let Ok(Listeners { main, is_tls, metrics }) = config::listeners(matches, std::env::vars()) {
        let (address, is_metrics_tls) = metrics.map_or((main, is_tls), |address| (address, false));
        put("metrics.txt", asked(address, is_metrics_tls, "/metrics"));
        put("ready.json", asked(main, is_tls, "/readyz"));
    }
    parts
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn versions() -> Value {
    // Not the name of the machine: that is nobody's business.
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|name| name.trim_matches('"').to_owned());
    json!({
        "sealog": env!("CARGO_PKG_VERSION"),
        "store_format": EmbeddedStore::format(),
        "control_schema": sealog_control::SCHEMA.sqlite.len(),
        "postgres_schema": postgres::schema_version(),
        "kernel": kernel.trim(),
        "system": release,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "made_at": iso_ms(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0))),
    })
}

/// Path, bytes, bytes on disk, mode, owner and time of each file; never what is in it.
fn files(dir: &Path) -> String {
    let mut text =
        String::from("# path below the data directory, bytes, bytes on disk, mode, owner, changed\n");
    let (mut folders, mut listed) = (vec![dir.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                text.push_str(&format!("{}\t{error}\n", below(dir, &folder)));
                continue;
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            listed += 1;
            if listed > FILES_MAX {
                text.push_str("# more files omitted\n");
                return text;
            }
            let changed = u64::try_from(metadata.mtime()).unwrap_or(0).saturating_mul(1000);
            text.push_str(&format!(
                "{}\t{}\t{}\t{:o}\t{}\t{}\n",
                below(dir, &path),
                metadata.len(),
                metadata.blocks() * 512,
                metadata.permissions().mode() & 0o7777,
                metadata.uid(),
                iso_ms(changed)
            ));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    text
}

fn below(dir: &Path, path: &Path) -> String {
    sealog_cli::output::plain(&path.strip_prefix(dir).unwrap_or(path).display().to_string())
}

/// What a server on this machine says of itself to whoever sits on it.
fn asked(address: SocketAddr, is_tls: bool, path: &str) -> String {
    let answered = own_server::client(address, is_tls, ASK_MAX)
        .map_err(|why| Failure::new(Exit::Failure, why))
        .and_then(|client| connect::block_on(async move { Ok(client.probe(path).await?) }));
    match answered {
        Ok(answer) if answer.status < 300 || answer.status == 503 => {
            String::from_utf8_lossy(&answer.body).into_owned()
        }
        Ok(answer) => format!("{path} returned status {}\n", answer.status),
        Err(failure) => format!("{}\n", failure.message),
    }
}
