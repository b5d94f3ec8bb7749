//! `sealog verify`: has the service check its chain, window by window.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sealog_client::Client;
use serde::Deserialize;
use serde_json::json;

use super::connect::{self, Key};
use super::exit::{Exit, Failure};
use super::output::{self, Form};

/// The API's longest window.
const WINDOW: u64 = 1000;

pub(super) fn command() -> Command {
    connect::with_flags(
        Command::new("verify")
            .about("Verifies the chain of the key's project")
            .long_about(
                "Verifies the chain of the key's project: the service recomputes the hash of every event and compares it with its neighbours, 1,000 at a time.\n\n\
                 This asks the service. To trust nobody, export the events and check them with `sealog-verify`, which needs neither a service nor a key.\n\n\
                 It ends with 10 when the chain is broken, and says at which event.",
            )
            .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).conflicts_with_all(["from", "to"]).help("The whole chain, which is also what happens without --from and --to"))
            .arg(Arg::new("from").long("from").value_name("SEQ").value_parser(value_parser!(u64).range(1..)).help("The first chain_seq"))
            .arg(Arg::new("to").long("to").value_name("SEQ").value_parser(value_parser!(u64).range(1..)).help("The last chain_seq")),
    )
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
    let from = matches.get_one::<u64>("from").copied().unwrap_or(1);
    let to = matches.get_one::<u64>("to").copied();
    if to.is_some_and(|to| to < from) {
        return Err(Failure::usage("--to must not be less than --from"));
    }
    let client = connect::client(matches, Key::Needed)?;
    let bar = progress(matches.get_flag("quiet"), to.map(|to| to - from + 1));
    let outcome = connect::block_on(verify(&client, from, to, &bar))?;
    bar.finish_and_clear();
    output::put(&report(&outcome, Form::of(matches)))?;
    Ok(if outcome.broken.is_some() { Exit::Broken.into() } else { ExitCode::SUCCESS })
}

async fn verify(client: &Client, from: u64, to: Option<u64>, bar: &ProgressBar) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let mut outcome =
        Outcome { first: from, last: from - 1, checked: 0, windows: 0, broken: None, took: Duration::ZERO };
    let mut at = from;
    loop {
        let end = to.map_or(at + (WINDOW - 1), |to| to.min(at + (WINDOW - 1)));
        let (first, last) = (at.to_string(), end.to_string());
        let window: Window =
            client.get("/v1/events/verify", &[("from_seq", &first), ("to_seq", &last)]).await?.json()?;
        outcome.windows += 1;
        outcome.checked += window.checked;
        // A test chain whose oldest events were dropped begins later than it was asked from.
        if outcome.windows == 1 {
            outcome.first = window.first_seq;
        }
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
        at = end + 1;
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
            "windows": windows, "seconds": (seconds * 1000.0).round() / 1000.0,
        });
        if let Some((at, hash)) = broken {
            report["broken_at"] = json!(at);
            report["broken_hash"] = json!(hash);
        }
        return format!("{report}\n");
    }
    match broken {
        _ if *checked == 0 && broken.is_none() => "There are no events to verify.\n".into(),
        None => format!(
            "{checked} of {checked} events valid, #{first} to #{last}, {windows} windows, {seconds:.1} s\n"
        ),
        Some((at, hash)) => format!(
            "BROKEN at #{at}: {} events before it are valid\n  stored hash: {}\n  what now: keep the store as it is, and look at the event and its neighbours on the Verification page of the dashboard\n",
            checked.saturating_sub(1),
            output::plain(hash),
        ),
    }
}

/// Drawn on a terminal only.
fn progress(is_quiet: bool, total: Option<u64>) -> ProgressBar {
    if is_quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = match total {
        Some(_) => "Verifying {wide_bar} {human_pos} of {human_len} events, {per_sec}, {eta} left",
        None => "Verifying {spinner} {human_pos} events, {per_sec}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
