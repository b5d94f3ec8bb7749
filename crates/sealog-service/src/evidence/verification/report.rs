//! What a verification has found, to be kept: JSON for programs, text for people. Nothing in it is signed;
//! whoever wants to be sure checks the events themselves, which both say how to do.

use sealog_core::time::iso_ms;
use serde_json::{Value, json};

use super::found::Neighbour;
use super::run::{Run, RunEnd};

const ALGORITHM: &str = "sha256(prev_hash + canonical payload + timestamp in ms)";

/// Of a run that has ended.
pub fn to_json(run: &Run) -> Value {
    let progress = &run.progress;
    let (valid, broken) = match &run.end {
        Some(RunEnd::Valid) => (Some(true), None),
        Some(RunEnd::Broken(broken)) => (Some(false), Some(broken)),
        _ => (None, None),
    };
    json!({
        "type": "sealog.verification.v1",
        "verification_id": run.id.to_string(),
        "tenant_id": run.chain.tenant_id.to_string(),
        "project_id": run.chain.project_id.to_string(),
        "mode": run.chain.mode.as_str(),
        "algorithm": ALGORITHM,
        "result": result(run),
        "valid": valid,
        "from_seq": run.from,
        "to_seq": run.to,
        "checked": progress.checked,
        "genesis_checked": run.from == 1 && progress.checked > 0,
        "first": progress.first.map(event),
        "last": progress.last.map(event),
        "broken_at": broken.map(|broken| broken.at),
        "broken_hash": broken.and_then(|broken| broken.hash).map(|hash| hash.to_string()),
        "reason": broken.map(|broken| broken.reason.clone()),
        "explanation": broken.map(|broken| broken.explain()),
        "event_before": broken.and_then(|broken| broken.before).map(event),
        "failing_event": broken.and_then(|broken| broken.failing).map(event),
        "withheld": broken.map(|broken| broken.before_is_withheld || broken.failing_is_withheld),
        "expected_hash": broken.and_then(|broken| broken.expected).map(|hash| hash.to_string()),
        "found_hash": broken.and_then(|broken| broken.found).map(|hash| hash.to_string()),
        "started_at": iso_ms(run.created_at_ms),
        "finished_at": run.ended_at_ms.map(iso_ms),
        "requested_by": run.person_id.map(|id| id.0.to_string()),
        "verifier": format!("sealog {}", env!("CARGO_PKG_VERSION")),
    })
}

pub fn to_text(run: &Run) -> String {
    let mut lines = vec![
        "SEALOG VERIFICATION".to_owned(),
        String::new(),
        format!("verification  {}", run.id),
        format!("organisation  {}", run.chain.tenant_id),
        format!("project       {} ({})", run.chain.project_id, run.chain.mode.as_str()),
        format!("events        #{} to #{}", run.from, run.to),
        format!("checked       {}", run.progress.checked),
        format!("started       {}", iso_ms(run.created_at_ms)),
    ];
    lines.extend(run.ended_at_ms.map(|at| format!("finished      {}", iso_ms(at))));
    lines.push(format!("result        {}", result(run)));
    for (name, event) in [("first", run.progress.first), ("last", run.progress.last)] {
        lines.extend(event.map(|event| format!("{name:<13} #{} hash {}", event.chain_seq, event.hash)));
    }
    if let Some(RunEnd::Broken(broken)) = &run.end {
        lines.push(String::new());
        lines.push(format!("BROKEN AT #{}: {}", broken.at, broken.explain()));
        lines.extend(broken.hash.map(|hash| format!("broken_hash   {hash}")));
        lines.extend(broken.expected.map(|hash| format!("expected      {hash}")));
        lines.extend(broken.found.map(|hash| format!("found         {hash}")));
        for (name, event) in [("event before", broken.before), ("failing event", broken.failing)] {
            let Some(event) = event else { continue };
            lines.push(format!(
                "{name}: #{} {} {}",
                event.chain_seq,
                event.log_id,
                iso_ms(event.timestamp_ms)
            ));
            lines.push(format!("  prev_hash   {}", event.prev_hash));
            lines.push(format!("  hash        {}", event.hash));
            lines.push(format!("  recomputed  {}", event.recomputed));
        }
        if broken.before_is_withheld || broken.failing_is_withheld {
            lines.push("Neighbouring events that you cannot see are withheld.".to_owned());
        }
    }
    lines.push(String::new());
    lines.push(format!("algorithm     {ALGORITHM}"));
    lines.push("To check this without Sealog, export the events as NDJSON and run".to_owned());
    lines.push("  python3 sealog_verify.py EXPORT.ndjson".to_owned());
    lines.push(String::new());
    lines.join("\n")
}

fn result(run: &Run) -> &'static str {
    match &run.end {
        None => "unfinished",
        Some(RunEnd::Valid) => "valid",
        Some(RunEnd::Broken(_)) => "broken",
        Some(RunEnd::Failed(_)) => "failed",
        Some(RunEnd::Cancelled) => "cancelled",
    }
}

fn event(event: Neighbour) -> Value {
    json!({
        "chain_seq": event.chain_seq,
        "log_id": event.log_id.to_string(),
        "timestamp": iso_ms(event.timestamp_ms),
        "prev_hash": event.prev_hash.to_string(),
        "hash": event.hash.to_string(),
        "recomputed_hash": event.recomputed.to_string(),
    })
}
