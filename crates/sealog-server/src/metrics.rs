//! What the server counts of itself, with a few atomics; `exposition.rs` prints it. No tenant, project, actor
//! or action is ever a label.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::{Method, StatusCode};
use sealog_core::id::Mode;
use sealog_core::reject::{CODES, Code};
use sealog_core::verify::Verdict;
use sealog_formats::input::Adapter;
use sealog_store::stats::Histogram;

use crate::operator_routes;
use crate::routes::{self, PATHS};
use crate::tlog_routes;

/// Requests are told apart by the patterns of the table of paths, and these two.
const OPERATOR: usize = PATHS.len();
const OTHER: usize = PATHS.len() + 1;
/// Those of what is published come behind [`OTHER`].
const ROUTES: usize = PATHS.len() + 2 + tlog_routes::PATHS.len();
const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PATCH", "other"];
const STATUSES: [u16; 21] =
    [200, 201, 202, 304, 308, 400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 429, 431, 500, 503, 0];
/// What adapters are called in metrics, and their paths.
const ADAPTERS: [(&str, &str); 3] =
    [("json", "/ingest/json"), ("cloudevents", "/ingest/cloudevents"), ("otlp", "/ingest/otlp/v1/logs")];
const BATCH_BOUNDS: &[u64] = &[1, 2, 5, 10, 25, 50, 100];

#[derive(Debug)]
pub(crate) struct Metrics {
    /// By route, method and status.
    requests: Vec<AtomicU64>,
    /// By route and method.
    durations: Vec<Histogram>,
    /// In the order of the table of codes.
    rejections: Vec<AtomicU64>,
    /// By adapter, likewise.
    adapter_rejections: [Vec<AtomicU64>; ADAPTERS.len()],
    /// Live and test.
    pub(crate) events: [AtomicU64; 2],
    pub(crate) batch_size: Histogram,
    pub(crate) replays: AtomicU64,
    /// Events that were verified, and windows that were found broken.
    pub(crate) verified: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    /// When `sealog replicate` last asked for a moment; 0 for never.
    pub(crate) replica_seen_ms: AtomicU64,
}

/// One request, as far as metrics tell requests apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

impl Place {
    pub(crate) fn of(method: &Method, path: &str) -> Place {
        let route = match routes::position(&PATHS, path) {
            Some(known) => known,
            None if path.starts_with(tlog_routes::BEGINNING) => {
                routes::position(&tlog_routes::PATHS, path).map_or(OTHER, |known| OTHER + 1 + known)
            }
            None if path.starts_with(operator_routes::BEGINNING) => OPERATOR,
            None => OTHER,
        };
        let known = METHODS.iter().position(|known| *known == method.as_str());
        Place(route * METHODS.len() + known.unwrap_or(METHODS.len() - 1))
    }

    /// The pattern of the path, not what a client wrote: some paste a key where an id belongs. Nothing for a
    /// path without one.
    pub(crate) fn pattern(self) -> Option<&'static str> {
        match self.0 / METHODS.len() {
            OPERATOR => Some(operator_routes::BEGINNING),
            OTHER => None,
            known if known > OTHER => Some(tlog_routes::PATHS[known - OTHER - 1].pattern),
            known => Some(PATHS[known].pattern),
        }
    }

    pub(crate) fn route(self) -> &'static str {
        self.pattern().unwrap_or("other")
    }

    pub(crate) fn method(self) -> &'static str {
        METHODS[self.0 % METHODS.len()]
    }

    pub(crate) fn labels(self) -> String {
        format!("route=\"{}\",method=\"{}\"", self.route(), self.method())
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let places = ROUTES * METHODS.len();
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Metrics {
            requests: zeros(places * STATUSES.len()),
            durations: (0..places).map(|_| Histogram::durations()).collect(),
            rejections: zeros(CODES.len()),
            adapter_rejections: std::array::from_fn(|_| zeros(CODES.len())),
            events: Default::default(),
            batch_size: Histogram::new(BATCH_BOUNDS),
            replays: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            replica_seen_ms: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    pub(crate) fn answered(&self, place: Place, status: StatusCode, took: Duration) {
        let status =
            STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len() - 1);
        self.requests[place.0 * STATUSES.len() + status].fetch_add(1, Ordering::Relaxed);
        self.durations[place.0].observe_duration(took);
    }

    pub(crate) fn rejected(&self, code: Code) {
        self.rejections[code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts items that an adapter refused, or a whole request.
    pub(crate) fn adapter_rejected(&self, adapter: Adapter, code: Code, count: u64) {
        let known = ADAPTERS.iter().position(|(_, path)| *path == adapter.path()).unwrap_or_default();
        self.adapter_rejections[known][code as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adapter, code and count, where there were any.
    pub(crate) fn adapter_rejections(&self) -> impl Iterator<Item = (&'static str, Code, u64)> {
        ADAPTERS.iter().zip(&self.adapter_rejections).flat_map(|((name, _), counts)| {
            let counts =
                CODES.iter().zip(counts).map(|(row, count)| (row.code, count.load(Ordering::Relaxed)));
            counts.filter(|(_, count)| *count > 0).map(|(code, count)| (*name, code, count))
        })
    }

    pub(crate) fn sealed(&self, mode: Mode, events: usize) {
        self.events[usize::from(mode == Mode::Test)].fetch_add(events as u64, Ordering::Relaxed);
        self.batch_size.observe(events as u64);
    }

    pub(crate) fn replayed(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests were answered with each status, where there were any; 0 is any other status.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Place, u16, u64)> {
        let counts = self.requests.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(at, count)| (Place(at / STATUSES.len()), STATUSES[at % STATUSES.len()], count))
    }

    pub(crate) fn durations(&self) -> impl Iterator<Item = (Place, &Histogram)> {
        self.durations.iter().enumerate().map(|(at, histogram)| (Place(at), histogram))
    }

    pub(crate) fn rejections(&self, code: Code) -> u64 {
        self.rejections[code as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn verified(&self, verdict: &Verdict) {
        self.verified.fetch_add(verdict.checked, Ordering::Relaxed);
        self.broken.fetch_add(u64::from(!verdict.valid()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_counted_in_the_order_of_their_table() {
        assert!(CODES.iter().enumerate().all(|(at, row)| row.code as usize == at));
    }

    #[test]
    fn a_path_never_becomes_a_label() {
        for path in ["/", "/v1/events/01J/x", "/v1/actions/", "/nothing", "/v1"] {
            assert_eq!(Place::of(&Method::DELETE, path).labels(), "route=\"other\",method=\"other\"");
        }
        assert_eq!(
            Place::of(&Method::GET, "/v1/events/01J").labels(),
            "route=\"/v1/events/{log_id}\",method=\"GET\""
        );
        assert_eq!(
            Place::of(&Method::PATCH, "/operator/v1/tenants/1").labels(),
            "route=\"/operator/v1/\",method=\"PATCH\""
        );
    }
}
