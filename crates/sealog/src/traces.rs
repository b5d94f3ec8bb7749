//! Traces of requests, where the variables of OpenTelemetry ask for them (`otlp/`).

use sealog_server::config::Config;

use crate::otlp::{self, Exporter, Settings};

fn settings() -> Result<Option<Settings>, String> {
    Settings::from_variables(|name| std::env::var(name).ok())
}

/// Returns the receiver to which [`begin`] would send traces, if any, or why it would fail.
pub(crate) fn receiver() -> Result<Option<String>, String> {
    let Some(settings) = settings()? else { return Ok(None) };
    let endpoint = settings.endpoint.clone();
    otlp::open(settings)?;
    Ok(Some(endpoint))
}

/// Turns on tracing if the variables ask for it; returns what sends the traces.
pub(crate) fn begin(config: &mut Config) -> Result<Option<Exporter>, String> {
    let Some(settings) = settings()? else { return Ok(None) };
    tracing::info!(endpoint = settings.endpoint, "sending request traces over OTLP");
    let (traces, exporter) = otlp::open(settings)?;
    config.traces = Some(traces);
    Ok(Some(exporter))
}
