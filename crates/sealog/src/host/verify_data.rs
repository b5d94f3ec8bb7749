//! `sealog verify --data`: every chain of a store, on all cores, without a service; then what is derived from
//! it.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealog_control::Control;
use sealog_core::id::ChainId;
use sealog_core::verify::Verdict;
use sealog_service::evidence::verification::compare_all;
use sealog_service::records::system_chain::drops::{self, Drops};
use sealog_store::embedded::{EmbeddedStore, OpenError, Options};
use sealog_store::world::SystemWorld;
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};

use clap::ArgMatches;
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output::{self, Form};
use sealog_cli::verify::{Report, finish};
use sealog_cli::{connect, progress};
use sealog_engine::{Opened, Place, restoring_mark};

use super::control_copy::ControlCopy;

/// What was found in a store.
struct Outcome {
    chains: Vec<(ChainId, Verdict)>,
    /// In words for the operator.
    faults: Vec<String>,
    /// What of the indexes and counts does not match the events: it hides events, and breaks no chain.
    derived: Vec<String>,
    /// What was dropped of test chains, and which of it has no record.
    drops: Drops,
    /// What control data has otherwise than the system chains.
    control: Vec<String>,
    took: Duration,
}

/// Opens a store that no server has open, and looks at all of it. Nothing is appended, and nothing in a data
/// directory is changed.
pub(super) fn run(place: &str, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let report = Report::asked(matches)?;
    let outcome = looked_into(place, matches.get_flag("quiet"))?;
    finish(matches, report, outcome.is_valid(), |form| outcome.report(form))
}

fn looked_into(place: &str, is_quiet: bool) -> Result<Outcome, Failure> {
    match Place::parse(place) {
        Some(url @ Place::Postgres(_)) => {
            let opened = Opened::open_unmarked(&url, Path::new("."))
                .map_err(|unopened| Failure::new(Exit::Failure, unopened.to_string()))?;
            let control = Arc::clone(opened.control());
            let outcome = looked_at(&*opened.store(), Some(&control), is_quiet);
            opened.close();
            outcome
        }
        _ => {
            let store = open_to_read(place)?;
            let control = ControlCopy::make(Path::new(place))?;
            looked_at(&store, control.as_ref().map(|copy| &copy.control), is_quiet)
        }
    }
}

/// The store in a data directory. To recover it would cut a torn tail, begin a segment and write indexes:
/// that is for a server, and evidence stays as it was found.
fn open_to_read(place: &str) -> Result<EmbeddedStore, Failure> {
    let dir = Path::new(place);
    // The format says what stands in a directory, and whether it can be looked into at all.
    match std::fs::metadata(dir.join("FORMAT")) {
        Ok(format) if format.is_file() => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Failure::usage(format!(
                "cannot read {place}: {error}; run this as the user of the server"
            )));
        }
        _ => {
            return Err(Failure::usage(format!(
                "there is no store in {place}: give --data the data directory of a server (its setting data_dir)"
            )));
        }
    }
    let failed = |why: String| Failure::new(Exit::Failure, format!("cannot open the store: {why}"));
    restoring_mark::refuse(dir).map_err(failed)?;
    let options = Options { read_only: true, world: Arc::new(SystemWorld), ..Options::default() };
    EmbeddedStore::open(dir, &options).map_err(|error| {
        let what_now = match &error {
            OpenError::Locked { .. } => {
                "\n  what now: stop the server; or let it verify itself with `sealog verify` and a key; or verify a copy with `sealog backup create DIR` and `sealog backup verify DIR`"
            }
            OpenError::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "\n  what now: run this as the user of the server"
            }
            _ => "",
        };
        failed(format!("{error}{what_now}"))
    })
}

fn looked_at(store: &dyn Store, control: Option<&Arc<Control>>, is_quiet: bool) -> Result<Outcome, Failure> {
    let outcome = connect::block_on(async { Ok(audit(store, control, is_quiet).await) })?;
    outcome.map_err(|error| Failure::new(Exit::Failure, format!("cannot read the store: {error}")))
}

async fn audit(
    store: &dyn Store,
    control: Option<&Arc<Control>>,
    is_quiet: bool,
) -> Result<Outcome, StoreError> {
    let begun = Instant::now();
    let heads = store.heads().await?;
    let total = heads.iter().map(|(_, head)| head.chain_seq).sum();
    let mut chains: Vec<ChainId> = heads.iter().map(|(chain, _)| *chain).collect();
    // Of one that has lost everything there is no head, and that is worse than a broken one.
    for (chain, _) in store.losses().await? {
        if !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    let progress = Arc::new(AtomicU64::new(0));
    let bar = progress::bar(is_quiet, "Verifying", Some(total));
    let audit = store.audit(chains.clone(), Arc::clone(&progress));
    tokio::pin!(audit);
    let verdicts = loop {
        tokio::select! {
            verdicts = &mut audit => break verdicts?,
            () = tokio::time::sleep(Duration::from_millis(200)) => bar.set_position(progress.load(Ordering::Relaxed)),
        }
    };
    bar.finish_and_clear();
    let faults = store.faults();
    let derived = compared(store, is_quiet, total).await?;
    let chains = chains.into_iter().zip(verdicts).collect();
    let mut drops = drops::check(store).await?;
    let compared = match control {
        Some(control) => compare_all(store, control).await?,
        None => Some(Vec::new()),
    };
    let control = compared.unwrap_or_else(|| {
        drops
            .unproven
            .push("control data not compared: the store was restored; start its server once".into());
        Vec::new()
    });
    Ok(Outcome { chains, faults, derived, drops, control, took: begun.elapsed() })
}

/// What does not match of what is derived from the events, a segment at a time.
async fn compared(store: &dyn Store, is_quiet: bool, total: u64) -> Result<Vec<String>, StoreError> {
    let bar = progress::bar(is_quiet, "Comparing indexes", Some(total));
    let (mut position, mut derived) = (Vec::new(), Vec::new());
    loop {
        let step = store.check_derived(position, false).await?;
        derived.extend(step.faults);
        bar.inc(step.events);
        match step.next {
            Some(next) => position = next,
            None => break,
        }
    }
    bar.finish_and_clear();
    Ok(derived)
}

impl Outcome {
    fn is_valid(&self) -> bool {
        let is_recorded = self.drops.unrecorded.is_empty() && self.control.is_empty();
        is_recorded && self.derived.is_empty() && self.chains.iter().all(|(_, verdict)| verdict.valid())
    }

    fn report(&self, form: Form) -> String {
        let Outcome { chains, faults, derived, drops, control, took } = self;
        let events: u64 = chains.iter().map(|(_, verdict)| verdict.checked).sum();
        let seconds = took.as_secs_f64();
        let rate = progress::rate(events, *took);
        if form == Form::Json {
            let report = json!({
                "valid": self.is_valid(), "checked": events, "seconds": (seconds * 1000.0).round() / 1000.0, "events_per_second": rate,
                "chains": chains.iter().map(|(chain, verdict)| described(*chain, verdict)).collect::<Vec<_>>(),
                "findings": faults, "derived": derived, "unrecorded_drops": drops.unrecorded, "notes": drops.unproven,
                "control": control,
            });
            return format!("{report}\n");
        }
        let mut text = String::new();
        let broken = chains.iter().filter(|(_, verdict)| !verdict.valid()).count();
        for (chain, verdict) in chains {
            if let Some(broken) = &verdict.broken {
                text.push_str(&format!(
                    "BROKEN at #{} of chain {chain}: {} ({} events before it are valid)\n  stored hash: {}\n",
                    broken.at,
                    broken.reason.as_str(),
                    verdict.checked.saturating_sub(1),
                    broken.hash
                ));
            }
        }
        for fault in faults {
            text.push_str(&format!("finding: {}\n", output::plain(fault)));
        }
        for fault in &drops.unrecorded {
            text.push_str(&format!("UNRECORDED: {}\n", output::plain(fault)));
        }
        if !drops.unrecorded.is_empty() {
            text.push_str(
                "  what now: compare with a backup, because events may have been removed without a record\n",
            );
        }
        for difference in control {
            text.push_str(&format!("CONTROL DATA: {}\n", output::plain(difference)));
        }
        for note in &drops.unproven {
            text.push_str(&format!("note: {}\n", output::plain(note)));
        }
        for fault in derived {
            text.push_str(&format!("DERIVED DATA: {}\n", output::plain(fault)));
        }
        if !derived.is_empty() {
            text.push_str("  what now: keep a copy of the directory as evidence. Events are not affected, but lists, reads by id and idempotency keys may be wrong. To repair it, remove the .idx and .cnt files named above and start the server, which rebuilds them\n");
        }
        text.push_str(&match broken {
            0 => format!("{events} of {events} events valid in {} chains, {seconds:.1} s, {rate} events/s\n", chains.len()),
            _ => format!(
                "{broken} of {} chains are broken; checked {events} events, {seconds:.1} s\n  what now: keep the store unchanged, and find another copy of the events (docs/operating.md)\n",
                chains.len()
            ),
        });
        text
    }
}

fn described(chain: ChainId, verdict: &Verdict) -> Value {
    let mut row = json!({
        "tenant_id": chain.tenant_id.to_string(), "project_id": chain.project_id.to_string(), "mode": chain.mode.as_str(),
        "valid": verdict.valid(), "checked": verdict.checked, "first_seq": verdict.first_seq, "last_seq": verdict.last_seq,
    });
    if let Some(broken) = &verdict.broken {
        row["broken_at"] = json!(broken.at);
        row["broken_hash"] = json!(broken.hash.to_string());
        row["reason"] = json!(broken.reason.as_str());
    }
    row
}
