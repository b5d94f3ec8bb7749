//! What is stored, how much room is left, and what recovery has found.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_store::pool::{Lane, Payer};

use super::console::{Console, OpsAsked, Room};
use super::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::html;
use crate::text::{number, visible};

/// What a look at the disk counts in the thread pool, in bytes.
const LOOK_COST: usize = 4 << 10;
/// Findings that are shown. The log has them all.
const FINDINGS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "ops/storage.html")]
struct Page<'a> {
    shell: Shell<'a>,
    store: &'a str,
    /// Why no events are accepted.
    unready: Option<String>,
    notices: Vec<&'static str>,
    storage: String,
    read_errors: String,
    reads_waiting: String,
    queued: Vec<(&'static str, String)>,
    room: Result<Disk, String>,
    findings: Vec<String>,
    left_out: usize,
}

struct Disk {
    dir: String,
    free: String,
    total: String,
    used: u64,
    most: u64,
    reserve: Option<String>,
    control: Option<String>,
    is_low: bool,
}

impl Disk {
    fn new(room: Room) -> Disk {
        let Room { dir, free_bytes, total_bytes, reserve_bytes, control_bytes } = room;
        Disk {
            dir: visible(&dir),
            free: size(free_bytes),
            total: size(total_bytes),
            used: total_bytes.saturating_sub(free_bytes),
            most: total_bytes.max(1),
            reserve: reserve_bytes.map(size),
            control: control_bytes.map(size),
            // As much again as is kept is little.
            is_low: reserve_bytes.is_some_and(|reserve| free_bytes < reserve.saturating_mul(10)),
        }
    }
}

/// `1.5 GiB`
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1024, unit + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let stats = console.service.store.stats().await?;
    let look = Arc::clone(&console.instance.room);
    let room = console.service.store.pool().run(Lane::Compute, Payer::Operator, LOOK_COST, move || look());
    let room = room.await.unwrap_or_else(|_| Err("the server is stopping".into()));
    let faults = console.service.store.faults();
    let queued = stats.logs.iter().map(|log| {
        let text = format!("{} requests, {}", number(log.queue_requests), size(log.queue_bytes));
        (log.mode.as_str(), text)
    });
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::Storage),
        store: &console.instance.store,
        unready: console.service.store.ready().err().map(|error| visible(&error.to_string())),
        notices: console.service.store.notices(),
        storage: size(stats.storage_bytes),
        read_errors: number(stats.read_errors),
        reads_waiting: number(stats.reads_waiting),
        queued: queued.collect(),
        room: room.map(Disk::new),
        left_out: faults.len().saturating_sub(FINDINGS_MAX),
        findings: faults.iter().take(FINDINGS_MAX).map(|fault| visible(fault)).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_said_in_the_unit_that_it_fills() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
