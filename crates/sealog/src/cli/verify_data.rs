//! `sealog verify --data`: every chain of a store, on all cores, without a service.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealog_core::id::ChainId;
use sealog_core::verify::Verdict;
use sealog_store::world::SystemWorld;
use serde_json::{Value, json};

use super::exit::{Exit, Failure};
use super::output::{self, Form};
use super::progress;
use crate::store::{OpenOptions, Opened, Place};

/// What was found in a store.
pub(super) struct Outcome {
    chains: Vec<(ChainId, Verdict)>,
    /// In words for the operator.
    faults: Vec<String>,
    took: Duration,
}

/// Opens a store that no server has open, and looks at all of it. Nothing is appended.
pub(super) fn run(place: &str, is_quiet: bool) -> Result<Outcome, Failure> {
    let parsed = match Place::parse(place) {
        Some(url @ Place::Postgres(_)) => url,
        _ => Place::Embedded,
    };
    let is_embedded = parsed == Place::Embedded;
    let dir = Path::new(place);
    // To open a directory makes it a store; a misspelt one must not become one.
    if is_embedded && !dir.join("FORMAT").is_file() {
        return Err(Failure::usage(format!(
            "there is no store in {place}: --data takes the data directory of a server (its setting data_dir)"
        )));
    }
    // A copy may be anywhere: nothing that counts is written to it.
    let options = OpenOptions { allow_unsafe_storage: true, clock_strict: false };
    let opened = if is_embedded {
        Opened::open(&parsed, dir, options, Arc::new(SystemWorld))
    } else {
        Opened::open_unmarked(&parsed, Path::new("."))
    };
    let opened = opened.map_err(|unopened| {
        let hint = if unopened.locked {
            "\n  what now: stop the server, or let it verify (`sealog verify` with a key, and every night by itself), or verify a copy of the directory"
        } else {
            ""
        };
        Failure::new(Exit::Failure, format!("{unopened}{hint}"))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
    let outcome = runtime.block_on(audit(&opened, is_quiet));
    opened.close();
    outcome.map_err(|error| Failure::new(Exit::Failure, format!("the store cannot be read: {error}")))
}

async fn audit(opened: &Opened, is_quiet: bool) -> Result<Outcome, sealog_store::StoreError> {
    let store = opened.store();
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
    let chains = chains.into_iter().zip(verdicts).collect();
    Ok(Outcome { chains, faults: store.faults(), took: begun.elapsed() })
}

impl Outcome {
    pub(super) fn is_valid(&self) -> bool {
        self.chains.iter().all(|(_, verdict)| verdict.valid())
    }

    pub(super) fn report(&self, form: Form) -> String {
        let Outcome { chains, faults, took } = self;
        let events: u64 = chains.iter().map(|(_, verdict)| verdict.checked).sum();
        let seconds = took.as_secs_f64();
        let rate = progress::rate(events, *took);
        if form == Form::Json {
            let report = json!({
                "valid": self.is_valid(), "checked": events, "seconds": (seconds * 1000.0).round() / 1000.0, "events_per_second": rate,
                "chains": chains.iter().map(|(chain, verdict)| described(*chain, verdict)).collect::<Vec<_>>(),
                "findings": faults,
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
        text.push_str(&match broken {
            0 => format!("{events} of {events} events valid in {} chains, {seconds:.1} s, {rate} events/s\n", chains.len()),
            _ => format!(
                "{broken} of {} chains are broken; {events} events were looked at, {seconds:.1} s\n  what now: keep the store as it is, and look for another copy of the events (docs/operating.md)\n",
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
