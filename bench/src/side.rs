//! What one side of a comparison did: Sealog, or what stands beside it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::driver::Run;
use crate::http::load::Loaded;
use crate::outcome::Outcome;
use crate::stats::Percentiles;

/// What was measured of one side in one repeat.
#[derive(Clone, Debug)]
pub struct Side {
    pub requests: u64,
    pub requests_per_s: f64,
    pub events_per_s: f64,
    pub us: Percentiles,
    /// CPU time of the server, in microseconds a request.
    pub cpu_us: f64,
    /// The same of each part, in microseconds an event, where a server has a database.
    pub parts_us: Vec<(String, f64)>,
    /// Share of one core that the generator took.
    pub generator: f64,
    /// Towards the device, an event.
    pub device_bytes: f64,
    /// Wrong answers make everything else worthless.
    pub errors: Option<String>,
}

impl Side {
    pub fn of_load(loaded: &Loaded, cpu: Duration, device_bytes: u64) -> Outcome<Side> {
        let us = Percentiles::of_ns(&mut loaded.latencies_ns.clone()).ok_or_else(|| {
            match loaded.errors.len() {
                0 => "a run without a single answer".to_owned(),
                _ => format!("a run without a single good answer: {}", loaded.first_error),
            }
        })?;
        let wrong: u64 = loaded.errors.values().sum();
        Ok(Side {
            requests: loaded.requests,
            requests_per_s: loaded.requests_per_s(),
            events_per_s: loaded.events_per_s(),
            us,
            cpu_us: cpu.as_secs_f64() * 1e6 / loaded.requests as f64,
            parts_us: Vec::new(),
            generator: loaded.own_cpu.as_secs_f64() / loaded.elapsed.as_secs_f64(),
            device_bytes: if loaded.events > 0 { device_bytes as f64 / loaded.events as f64 } else { 0.0 },
            errors: (wrong > 0).then(|| format!("{wrong} wrong answers, the first: {}", loaded.first_error)),
        })
    }

    pub fn of_run(run: &Run) -> Outcome<Side> {
        Ok(Side {
            requests: run.requests,
            requests_per_s: run.requests as f64 / run.elapsed.as_secs_f64(),
            events_per_s: run.events_per_s(),
            us: Percentiles::of_ns(&mut run.latencies_ns.clone()).ok_or("a run without a single answer")?,
            cpu_us: run.cpu.as_secs_f64() * 1e6 / run.requests as f64,
            parts_us: Vec::new(),
            generator: 0.0,
            device_bytes: 0.0,
            errors: None,
        })
    }

    pub fn json(&self) -> Value {
        let us = &self.us;
        json!({
            "requests": self.requests, "requests_per_s": self.requests_per_s, "events_per_s": self.events_per_s,
            "p50_us": us.p50, "p90_us": us.p90, "p99_us": us.p99, "p999_us": us.p999, "max_us": us.max,
            "server_cpu_us_per_request": self.cpu_us, "generator_cores": self.generator,
            "device_bytes_per_event": self.device_bytes,
            "cpu_us_per_event_by_part": self.parts_us.iter().map(|(part, us)| (part.clone(), json!(us))).collect::<serde_json::Map<_, _>>(), "errors": self.errors,
        })
    }
}
