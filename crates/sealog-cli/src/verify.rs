//! `sealog verify`: has the service check its chain, window by window.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::ProgressBar;
use sealog_client::http::Client;
use serde::Deserialize;
use serde_json::json;

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::listing::Filters;
use super::output::{self, Form};
use super::seq_range::{SeqRange, with_range};
use super::{file_flags, progress, walk};

/// The API's longest window.
const WINDOW: u64 = 1000;

pub(super) fn command() -> Command {
    connect::with_flags(with_range(
        Command::new("verify")
            .about("Verify the chain of the key's project")
            .long_about(
                "Verify the chain of the key's project: the service recomputes the hash of every event and \
                 compares it with its neighbours, 1,000 events per request.\n\n\
                 With --data the command opens a stopped store itself and verifies every chain in it. It \
                 changes nothing in the directory, so the directory may be a snapshot, mounted read-only, or \
                 evidence. A crash can leave an unfinished write at the end of the log (a torn tail), which \
                 was never acknowledged: the command reports it, and it breaks no chain.\n\n\
                 Without --data you rely on the service. To rely on no service, export the events and check \
                 them with `sealog-verify`, which needs neither a service nor a key.\n\n\
                 The command exits with 10 if the chain is broken, and prints the first broken event.",
            )
            .arg(
                Arg::new("data")
                    .long("data")
                    .value_name("DIR")
                    .conflicts_with_all(["all", "from", "to"])
                    .help("Verify all chains of this data directory, or of this postgres:// database, without a service"),
            )
            .arg(file_flags::flag("report", "Also write the result to this file as JSON"))
            .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).conflicts_with_all(["from", "to"]).help("Verify the whole chain (the default without --from and --to)")),
    ))
}

/// What the service says of a window.
#[derive(Deserialize)]
struct Window {
    valid: bool,
    checked: u64,
    first_seq: u64,
    last_seq: u64,
    broken_at: Option<u64>,
    broken_hash: Option<String>,
}

/// Of all windows.
#[derive(Debug)]
struct Outcome {
    first: u64,
    last: u64,
    checked: u64,
    windows: u64,
    broken: Option<(u64, String)>,
    took: Duration,
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let report_file = Report::asked(matches)?;
    let SeqRange { from, to } = SeqRange::asked(matches)?;
    let client = connect::client(matches, Key::Needed)?;
    let is_quiet = matches.get_flag("quiet");
    let outcome = connect::block_on(async {
        // How much there is to do; what comes meanwhile is verified, too.
        let newest = walk::newest(&client, &Filters::default()).await?.map_or(0, |newest| newest.seq);
        let end = to.map_or(newest, |to| to.min(newest));
        let bar = progress::bar(is_quiet, "Verifying", Some((end + 1).saturating_sub(from)));
        let outcome = verify(&client, from, to, &bar).await;
        bar.finish_and_clear();
        outcome
    })?;
    finish(matches, report_file, outcome.broken.is_none(), |form| report(&outcome, form))
}

async fn verify(client: &Client, from: u64, to: Option<u64>, bar: &ProgressBar) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let mut outcome =
        Outcome { first: from, last: from - 1, checked: 0, windows: 0, broken: None, took: Duration::ZERO };
    let mut at = from;
    loop {
        let end = at.saturating_add(WINDOW - 1).min(to.unwrap_or(u64::MAX));
        let (first, last) = (at.to_string(), end.to_string());
        let window: Window =
            client.get("/v1/events/verify", &[("from_seq", &first), ("to_seq", &last)]).await?.json()?;
        // The oldest events of a test chain are dropped, and the service moves a window that begins in them
        // to the first one that is kept. It is asked again from there, so that windows end where they should
        // and nothing counts twice.
        if window.first_seq > at {
            at = window.first_seq;
            if outcome.windows == 0 {
                (outcome.first, outcome.last) = (at, at - 1);
            }
            if to.is_some_and(|to| at > to) {
                break;
            }
            continue;
        }
        outcome.windows += 1;
        outcome.checked += window.checked;
        outcome.last = window.last_seq;
        bar.set_position(window.last_seq.saturating_sub(from) + 1);
        if !window.valid {
            outcome.broken =
                Some((window.broken_at.unwrap_or(window.last_seq), window.broken_hash.unwrap_or_default()));
            break;
        }
        let is_cut = window.last_seq < end;
        if is_cut || to == Some(end) {
            break;
        }
        at = window.last_seq + 1;
    }
    outcome.took = begun.elapsed();
    Ok(outcome)
}

fn report(outcome: &Outcome, form: Form) -> String {
    let Outcome { first, last, checked, windows, broken, took } = outcome;
    let seconds = took.as_secs_f64();
    if form == Form::Json {
        let mut report = json!({
            "valid": broken.is_none(), "checked": checked, "first_seq": first, "last_seq": last,
            "windows": windows, "seconds": (seconds * 1000.0).round() / 1000.0, "events_per_second": progress::rate(*checked, *took),
        });
        if let Some((at, hash)) = broken {
            report["broken_at"] = json!(at);
            report["broken_hash"] = json!(hash);
        }
        return format!("{report}\n");
    }
    match broken {
        _ if *checked == 0 && broken.is_none() => "No events to verify.\n".into(),
        None => format!(
            "{checked} of {checked} events valid, #{first} to #{last}, {windows} windows, {seconds:.1} s, {} events/s\n",
            progress::rate(*checked, *took)
        ),
        Some((at, hash)) => format!(
            "BROKEN at #{at}: {} events before it are valid\n  stored hash: {}\n  what now: keep the store unchanged, and compare the event with its neighbours on the Verification page of the dashboard\n",
            checked.saturating_sub(1),
            output::plain(hash),
        ),
    }
}

/// Prints what was found, and writes it to the file that was asked for.
pub fn finish(
    matches: &ArgMatches,
    file: Option<Report>,
    is_valid: bool,
    report: impl Fn(Form) -> String,
) -> Result<ExitCode, Failure> {
    if let Some(file) = file {
        file.put(&report(Form::Json))?;
    }
    output::put(&report(Form::of(matches)))?;
    Ok(if is_valid { ExitCode::SUCCESS } else { Exit::Broken.into() })
}

/// A file for what was found.
pub struct Report {
    path: PathBuf,
    file: std::fs::File,
}

impl Report {
    /// Opened before hours of work, not after them. None if nobody asked for one.
    pub fn asked(matches: &ArgMatches) -> Result<Option<Report>, Failure> {
        let Some(path) = file_flags::path(matches, "report") else { return Ok(None) };
        let file = std::fs::File::create(&path).map_err(|error| file_flags::unwritable(&path, &error))?;
        Ok(Some(Report { path, file }))
    }

    fn put(mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            Failure::new(Exit::Failure, format!("--report: cannot write {}: {error}", self.path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use sealog_client::http::{Retries, Settings};

    use super::*;

    /// Windows that were asked for: from and to.
    type Asked = Arc<Mutex<Vec<(u64, u64)>>>;

    /// A service whose chain has only these events left; it moves windows as the store does. Every window
    /// that was verified is noted.
    fn service(kept: std::ops::RangeInclusive<u64>) -> (Client, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let verified = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&verified);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                while let Some(line) = lines.next() {
                    lines.by_ref().find(String::is_empty);
                    let asked = |name: &str| -> u64 {
                        let text = line.split(name).nth(1).unwrap().trim_start_matches('=');
                        text.split(['&', ' ']).next().unwrap().parse().unwrap()
                    };
                    let (from, to) = (asked("from_seq"), asked("to_seq"));
                    let by = kept.start().saturating_sub(from);
                    let (first, last) = (from + by, (to + by).min(*kept.end()).max(from + by - 1));
                    noted.lock().unwrap().push((first, last));
                    let body = json!({ "valid": true, "checked": last + 1 - first, "first_seq": first, "last_seq": last });
                    let body = body.to_string();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                }
            }
        });
        let settings =
            Settings { url, key: None, timeout: Duration::from_secs(30), retries: Retries::default() };
        (Client::new(settings).unwrap(), verified)
    }

    #[test]
    fn a_chain_whose_oldest_events_were_dropped_is_verified_once_and_no_further_than_asked() {
        for (kept, from, to, expected) in [
            (5001..=7500, 1, None, (5001, 7500, 2500, 3)),
            (5001..=7500, 4500, Some(5600), (5001, 5600, 600, 1)),
            (5001..=7500, 1, Some(5000), (5001, 5000, 0, 0)),
            (5001..=6000, 1, None, (5001, 6000, 1000, 2)),
            (1..=2500, 1, None, (1, 2500, 2500, 3)),
            (1..=2500, 2, Some(1500), (2, 1500, 1499, 2)),
        ] {
            let (client, verified) = service(kept.clone());
            let verified_all = async { verify(&client, from, to, &ProgressBar::hidden()).await };
            let outcome = connect::block_on(verified_all).unwrap();
            let found = (outcome.first, outcome.last, outcome.checked, outcome.windows);
            assert_eq!(found, expected, "{kept:?} from {from} to {to:?}: {:?}", verified.lock().unwrap());
        }
    }
}
