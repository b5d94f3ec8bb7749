//! `GET /metrics`: what an operator watches, as Prometheus text. No tenant, project, actor or action is ever
//! a label.
//!
//! Written by hand: the store counts with the same few atomics and knows of no metrics library, and what is
//! left for one to do is printing.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::id::{Mode, RequestId};
use sealog_core::reject::{CODES, Code, Reject};
use sealog_engine::Trust;
use sealog_engine::trees::Lag;
use sealog_engine::trust_log::State;
use sealog_service::records::heads::ahead;
use sealog_store::StoreError;
use sealog_store::stats::HistogramView;

use crate::app::App;
use crate::client_address::is_local;
use crate::respond::{Body, Failure, with_type};
use crate::tls::Tls;

/// Lets whoever sits on this machine or has the operator's token through. For the main listener; one that is
/// for metrics alone is in the operator's network.
pub(crate) fn admit(app: &App, headers: &HeaderMap, peer: IpAddr) -> Result<(), Reject> {
    if is_local(peer, headers, &app.config.trusted_proxies) { Ok(()) } else { app.auth.operator(headers) }
}

pub(crate) async fn get(app: &App, request_id: RequestId) -> Result<Response<Body>, Failure> {
    let text = render(app).await.map_err(|error| Failure::internal(&error, request_id))?;
    Ok(with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
}

async fn render(app: &App) -> Result<String, StoreError> {
    let store = app.service.store.stats().await?;
    // A disk that cannot be read must not silence what tells of it.
    let heads = app.service.store.heads().await.unwrap_or_default();
    // Nor must control data that is away: what it would count is left out.
    let outbox = app.service.control.pending_notices().await.ok();
    let given_up = app.service.control.count_given_up().await.ok();
    let records = app.service.control.count_records().await.ok();
    let metrics = &app.metrics;
    let mut text = Text::default();
    text.family("sealog_build_info", "gauge", "The running version.");
    text.sample("sealog_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    text.family("sealog_ready", "gauge", "1 while events are accepted.");
    text.sample("sealog_ready", "", u64::from(app.service.store.ready().is_ok() && app.keys.ready().is_ok()));
    // Without samples on the embedded store, where the alert on it has nothing to find.
    text.family(
        "sealog_database_part_up",
        "gauge",
        "Whether this part of the database answered when it was last asked: control data, and events or each worker of a cluster.",
    );
    for (part, is_up) in &store.parts {
        text.sample("sealog_database_part_up", &format!("part=\"{part}\""), u64::from(*is_up));
    }

    text.family("sealog_connections", "gauge", "Open connections.");
    text.sample("sealog_connections", "", app.connections.count() as u64);
    text.family(
        "sealog_connections_refused_total",
        "counter",
        "Connections closed immediately because their address had too many, all in use.",
    );
    text.sample("sealog_connections_refused_total", "", metrics.connections_refused.load(Ordering::Relaxed));
    if let Some(tls) = &app.config.tls {
        certificate(&mut text, tls);
    }
    text.family("sealog_memory_held_bytes", "gauge", "Memory that large requests use, and its limit.");
    for (what, budget) in [("answers", &app.reads), ("bodies", &app.bodies)] {
        text.sample("sealog_memory_held_bytes", &format!("what=\"{what}\""), budget.held() as u64);
    }
    text.family("sealog_http_requests_total", "counter", "Answered requests.");
    for (place, status, count) in metrics.requests() {
        let status = if status == 0 { "other".to_owned() } else { status.to_string() };
        let labels = format!("{},status=\"{status}\"", place.labels());
        text.sample("sealog_http_requests_total", &labels, count);
    }
    text.family(
        "sealog_http_request_duration_seconds",
        "histogram",
        "Time from the headers of a request to the headers of its response.",
    );
    for (place, histogram) in metrics.durations() {
        let view = histogram.view();
        if view.counts.iter().any(|count| *count > 0) {
            text.histogram("sealog_http_request_duration_seconds", &place.labels(), &view, MICROS);
        }
    }
    text.family("sealog_rejections_total", "counter", "Error responses by code.");
    let rejected = |code: Code| metrics.rejections(code);
    for row in CODES {
        text.sample("sealog_rejections_total", &format!("code=\"{}\"", row.text), rejected(row.code));
    }
    text.family(
        "sealog_adapter_rejections_total",
        "counter",
        "Items and requests rejected by a shipper adapter, by adapter and code.",
    );
    for (adapter, code, count) in metrics.adapter_rejections() {
        let labels = format!("adapter=\"{adapter}\",code=\"{}\"", code.as_str());
        text.sample("sealog_adapter_rejections_total", &labels, count);
    }
    text.family("sealog_rate_limited_total", "counter", "Requests over a rate limit, by tier.");
    for (tier, code) in [
        ("ip", Code::RateIpLimitExceeded),
        ("plan", Code::RateLimitExceeded),
        ("test", Code::RateTestLimitExceeded),
    ] {
        text.sample("sealog_rate_limited_total", &format!("tier=\"{tier}\""), rejected(code));
    }
    text.family("sealog_idempotency_hits_total", "counter", "Requests with a known Idempotency-Key.");
    for (kind, count) in [
        ("replay", metrics.replays.load(Ordering::Relaxed)),
        ("conflict", rejected(Code::EventIdempotencyKeyConflict)),
        ("in_flight", rejected(Code::EventIdempotencyKeyInFlight)),
    ] {
        text.sample("sealog_idempotency_hits_total", &format!("kind=\"{kind}\""), count);
    }
    text.family("sealog_events_ingested_total", "counter", "Events sealed and acknowledged since the start.");
    for (mode, count) in [Mode::Live, Mode::Test].into_iter().zip(&metrics.events) {
        text.sample("sealog_events_ingested_total", &by_mode(mode), count.load(Ordering::Relaxed));
    }
    text.family("sealog_ingest_batch_size", "histogram", "Events per request.");
    text.histogram("sealog_ingest_batch_size", "", &metrics.batch_size.view(), 1);
    text.family("sealog_verify_events_total", "counter", "Events verified by request.");
    text.sample("sealog_verify_events_total", "", metrics.verified.load(Ordering::Relaxed));
    text.family(
        "sealog_verify_broken_total",
        "counter",
        "Verifications that found a broken chain. Should always be 0.",
    );
    text.sample("sealog_verify_broken_total", "", metrics.broken.load(Ordering::Relaxed));

    text.family("sealog_verification_scheduled", "gauge", "1 if the nightly verification is on.");
    text.sample("sealog_verification_scheduled", "", u64::from(app.service.settings.verification.is_some()));
    let scheduled = &app.service.scheduler.figures;
    for (name, figure, help) in [
        (
            "sealog_verification_last_success_timestamp_seconds",
            scheduled.last_success_ms.load(Ordering::Relaxed) / 1000,
            "Time of the last scheduled verification without a fault; 0 for never.",
        ),
        (
            "sealog_verification_chains_broken",
            scheduled.broken.load(Ordering::Relaxed),
            "Chains found broken by their last scheduled verification.",
        ),
        (
            "sealog_verification_chains_failed",
            scheduled.failed.load(Ordering::Relaxed),
            "Chains whose last scheduled verification failed to run.",
        ),
        (
            "sealog_verification_chains_stale",
            scheduled.stale.load(Ordering::Relaxed),
            "Chains without a completed scheduled verification in two nights.",
        ),
        (
            "sealog_comparison_differences",
            scheduled.differences.load(Ordering::Relaxed),
            "Differences found by the last nightly comparison of indexes, counts, drops and control data.",
        ),
        (
            "sealog_verification_jobs_open",
            scheduled.open.load(Ordering::Relaxed),
            "Scheduled verifications that are not finished.",
        ),
    ] {
        text.family(name, "gauge", help);
        text.sample(name, "", figure);
    }

    text.family(
        "sealog_append_duration_seconds",
        "histogram",
        "Time from handing an event to the store to its acknowledgement.",
    );
    for log in &store.logs {
        text.histogram("sealog_append_duration_seconds", &by_mode(log.mode), &log.append, MICROS);
    }
    text.family(
        "sealog_fsync_duration_seconds",
        "histogram",
        "Time of one write and sync of the log, which many events share.",
    );
    for log in &store.logs {
        text.histogram("sealog_fsync_duration_seconds", &by_mode(log.mode), &log.sync, MICROS);
    }
    text.family("sealog_append_queue_requests", "gauge", "Requests waiting to be written.");
    for log in &store.logs {
        text.sample("sealog_append_queue_requests", &by_mode(log.mode), log.queue_requests);
    }
    text.family("sealog_append_queue_bytes", "gauge", "Bytes waiting to be written.");
    for log in &store.logs {
        text.sample("sealog_append_queue_bytes", &by_mode(log.mode), log.queue_bytes);
    }
    text.family("sealog_reads_waiting", "gauge", "Reads waiting in the queue.");
    text.sample("sealog_reads_waiting", "", store.reads_waiting);
    text.family("sealog_storage_bytes", "gauge", "Disk space of the log and its indexes.");
    text.sample("sealog_storage_bytes", "", store.storage_bytes);
    if let Some(dir) = &app.config.data_dir {
        disk(&mut text, dir);
    }
    text.family(
        "sealog_store_findings",
        "gauge",
        "Known faults of stored events, found at the start or since.",
    );
    text.sample("sealog_store_findings", "", store.findings);
    text.family("sealog_store_read_errors_total", "counter", "Failed disk reads.");
    text.sample("sealog_store_read_errors_total", "", store.read_errors);

    let of = |mode: Mode| heads.iter().filter(move |(chain, _)| chain.mode == mode && !chain.is_system());
    text.family("sealog_chains", "gauge", "Project chains with events; without system chains.");
    for mode in [Mode::Live, Mode::Test] {
        text.sample("sealog_chains", &by_mode(mode), of(mode).count() as u64);
    }
    text.family(
        "sealog_chain_events",
        "gauge",
        "Number of events in these chains: the sum of the chain_seq of their heads.",
    );
    for mode in [Mode::Live, Mode::Test] {
        text.sample("sealog_chain_events", &by_mode(mode), of(mode).map(|(_, head)| head.chain_seq).sum());
    }
    text.family(
        "sealog_chain_heads_ahead",
        "gauge",
        "Chains whose last event is more than five minutes ahead of the clock.",
    );
    text.sample("sealog_chain_heads_ahead", "", ahead(&heads, app.service.world.now_ms()).count() as u64);
    text.family(
        "sealog_clock_leapt",
        "gauge",
        "1 while the clock is more than an hour ahead of the boot clock and is not used.",
    );
    text.sample("sealog_clock_leapt", "", u64::from(store.clock.leapt));
    text.family("sealog_clock_leaps_total", "counter", "Jumps of the clock by more than an hour.");
    text.sample("sealog_clock_leaps_total", "", store.clock.leaps);
    for (name, count, help) in [
        ("sealog_mail_outbox_pending", outbox, "Undelivered mails."),
        (
            "sealog_mail_outbox_given_up",
            given_up,
            "Mails of the last 90 days that are not retried: rejected by the mail server, or cancelled by an operator.",
        ),
        ("sealog_system_records_pending", records, "Records of changes waiting for their system chains."),
    ] {
        let Some(count) = count else { continue };
        text.family(name, "gauge", help);
        text.sample(name, "", count);
    }
    text.family(
        "sealog_background_restarts_total",
        "counter",
        "Panics of background loops, which were restarted. Should always be 0.",
    );
    for (name, count) in app.service.supervision.restarts().into_iter().chain(store.loop_restarts.clone()) {
        text.sample("sealog_background_restarts_total", &format!("loop=\"{name}\""), count);
    }
    if let Some(trust) = app.service.trust() {
        trees_of_chains(&mut text, &trust.trees.lag());
        signed_log(&mut text, trust);
    }
    if app.replication.is_some() {
        text.family(
            "sealog_replication_last_contact_timestamp_seconds",
            "gauge",
            "When a replica last asked; 0 if none has since the start.",
        );
        let seen_s = metrics.replica_seen_ms.load(Ordering::Relaxed) / 1000;
        text.sample("sealog_replication_last_contact_timestamp_seconds", "", seen_s);
    }
    if let Some(peer) = &app.config.peer {
        text.family(
            "sealog_replication_peer_up",
            "gauge",
            "Whether replication.peer told its epoch when it was last asked.",
        );
        text.sample("sealog_replication_peer_up", "", u64::from(peer.is_up()));
    }
    text.family(
        "sealog_replication_superseded",
        "gauge",
        "Whether a copy of this store was promoted, so that this server rejects events.",
    );
    let is_superseded = matches!(app.service.store.ready(), Err(StoreError::Superseded { .. }));
    text.sample("sealog_replication_superseded", "", u64::from(is_superseded));
    text.family("sealog_sign_ins_failed_total", "counter", "Failed dashboard sign-ins by cause.");
    for (cause, count) in app.service.admin.sign_ins().by_cause() {
        text.sample("sealog_sign_ins_failed_total", &format!("cause=\"{cause}\""), count);
    }
    process(&mut text, app);
    Ok(text.0)
}

fn by_mode(mode: Mode) -> String {
    format!("mode=\"{}\"", mode.as_str())
}

/// How far the trees are behind the events.
fn trees_of_chains(text: &mut Text, lag: &Lag) {
    text.family("sealog_tree_lag_events", "gauge", "Live events that were in no tree at the last count.");
    text.sample("sealog_tree_lag_events", "", lag.events);
    if let Some(ms) = lag.ms {
        text.family(
            "sealog_tree_lag_seconds",
            "gauge",
            "Time since everything that was acknowledged was in a tree; missing before this node has built.",
        );
        text.sample("sealog_tree_lag_seconds", "", ms / 1000);
    }
    text.family(
        "sealog_tree_chains_stopped",
        "gauge",
        "Chains whose tree stopped growing at a damaged, missing or different event. Should always be 0.",
    );
    text.sample("sealog_tree_chains_stopped", "", lag.stopped);
    text.family("sealog_tree_leaves_total", "counter", "Events that this node took into trees.");
    text.sample("sealog_tree_leaves_total", "", lag.leaves);
    text.family("sealog_tree_failures_total", "counter", "Failed passes of the tree builder.");
    text.sample("sealog_tree_failures_total", "", lag.failures);
}

/// Whether the heads of the trees are published and signed.
fn signed_log(text: &mut Text, trust: &Trust) {
    let figures = trust.figures();
    text.family(
        "sealog_trust_state",
        "gauge",
        "1 for the state that the signed log is in here, 0 for the others.",
    );
    for name in State::NAMES {
        let is_it = figures.state.name() == name;
        text.sample("sealog_trust_state", &format!("state=\"{name}\""), u64::from(is_it));
    }
    text.family(
        "sealog_trust_signed_timestamp_seconds",
        "gauge",
        "Time of the newest published heads that this server signed or found signed; 0 if there are none.",
    );
    text.sample("sealog_trust_signed_timestamp_seconds", "", figures.signed_ms / 1000);
    text.family(
        "sealog_trust_interval_seconds",
        "gauge",
        "How often the heads of all live chains are published.",
    );
    text.sample("sealog_trust_interval_seconds", "", figures.interval_s);
    text.family(
        "sealog_trust_chains_misfit",
        "gauge",
        "Chains that do not continue what was published of them. Should always be 0.",
    );
    text.sample("sealog_trust_chains_misfit", "", trust.misfits() as u64);
}

/// Of a server with TLS.
fn certificate(text: &mut Text, tls: &Tls) {
    let figures = &tls.figures;
    text.family(
        "sealog_tls_certificate_not_after_timestamp_seconds",
        "gauge",
        "Expiry time of the certificate in use.",
    );
    text.sample("sealog_tls_certificate_not_after_timestamp_seconds", "", tls.not_after_s());
    text.family(
        "sealog_tls_certificate_refused",
        "gauge",
        "1 while the certificate or key on disk is unusable and the previous one stays in use.",
    );
    text.sample("sealog_tls_certificate_refused", "", u64::from(tls.refused().is_some()));
    text.family("sealog_tls_certificate_reloads_total", "counter", "Reloads of the certificate by result.");
    for (result, count) in [("taken", &figures.taken), ("refused", &figures.refused)] {
        let count = count.load(Ordering::Relaxed);
        text.sample("sealog_tls_certificate_reloads_total", &format!("result=\"{result}\""), count);
    }
    text.family("sealog_tls_handshakes_failed_total", "counter", "Failed TLS handshakes.");
    text.sample("sealog_tls_handshakes_failed_total", "", figures.handshakes_failed.load(Ordering::Relaxed));
}

/// What is left where the data directory is, for whoever may fill it.
fn disk(text: &mut Text, dir: &Path) {
    let Ok(disk) = rustix::fs::statvfs(dir) else { return };
    text.family("sealog_disk_free_bytes", "gauge", "Free space on the disk of the data directory.");
    text.sample("sealog_disk_free_bytes", "", disk.f_bavail.saturating_mul(disk.f_frsize));
    text.family("sealog_disk_size_bytes", "gauge", "Size of the disk of the data directory.");
    text.sample("sealog_disk_size_bytes", "", disk.f_blocks.saturating_mul(disk.f_frsize));
}

/// The customary figures of a process, where the system tells them.
fn process(text: &mut Text, app: &App) {
    text.family("process_start_time_seconds", "gauge", "Start time of the process.");
    text.sample("process_start_time_seconds", "", app.started_ms / 1000);
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    if let Some(pages) = pages.and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok()) {
        text.family("process_resident_memory_bytes", "gauge", "Memory of the process.");
        text.sample("process_resident_memory_bytes", "", pages * 4096);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", "gauge", "Open files and sockets.");
        text.sample("process_open_fds", "", open.count() as u64);
    }
}

/// Units of a histogram in one second.
const MICROS: u64 = 1_000_000;

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    fn histogram(&mut self, name: &str, labels: &str, view: &HistogramView, unit: u64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let scaled = |value: u64| if unit == 1 { value.to_string() } else { decimal(value, unit) };
        let mut below = 0;
        for (at, count) in view.counts.iter().enumerate() {
            below += count;
            let bound = view.bounds.get(at).map_or("+Inf".to_owned(), |bound| scaled(*bound));
            self.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), below);
        }
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        let _ = writeln!(self.0, "{name}_sum{open}{labels}{close} {}", scaled(view.sum));
        self.sample(&format!("{name}_count"), labels, below);
    }
}

/// Exact, where a float would print `0.00025000000000000001`.
fn decimal(value: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_exactly() {
        assert_eq!(
            [50, 250, 1_000_000, 2_500_000, 0].map(|value| decimal(value, MICROS)),
            ["0.00005", "0.00025", "1", "2.5", "0"]
        );
    }
}
