//! Traces of requests, where the variables of OpenTelemetry ask for them and this build has them (`otlp/`).

use sealog_server::config::Config;

/// What the variables ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// They name a receiver, and this program cannot send.
    #[cfg_attr(feature = "otlp", expect(dead_code, reason = "of a build without them"))]
    Unbuilt,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "of a build with them"))]
    To(String),
}

#[cfg(feature = "otlp")]
fn settings() -> Result<Option<crate::otlp::Settings>, String> {
    crate::otlp::Settings::from_variables(|name| std::env::var(name).ok())
}

/// What [`begin`] would do, or why it would fail.
#[cfg(feature = "otlp")]
pub(crate) fn asked() -> Result<Asked, String> {
    let Some(settings) = settings()? else { return Ok(Asked::Nothing) };
    let endpoint = settings.endpoint.clone();
    crate::otlp::open(settings)?;
    Ok(Asked::To(endpoint))
}

#[cfg(not(feature = "otlp"))]
#[allow(clippy::unnecessary_wraps, reason = "as a build that has them")]
pub(crate) fn asked() -> Result<Asked, String> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_asked = is_set("OTEL_EXPORTER_OTLP_ENDPOINT") || is_set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    Ok(if is_asked { Asked::Unbuilt } else { Asked::Nothing })
}

/// Has requests traced where that is asked for; returns what sends them.
#[cfg(feature = "otlp")]
pub(crate) fn begin(config: &mut Config) -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let mut sending = None;
    if let Some(settings) = settings()? {
        tracing::info!(endpoint = settings.endpoint, "traces of requests are sent by OTLP");
        let (traces, exporter) = crate::otlp::open(settings)?;
        (config.traces, sending) = (Some(traces), Some(exporter));
    }
    Ok(async {
        if let Some(exporter) = sending {
            exporter.run().await;
        }
    })
}

/// Who asks for traces is told that this build has none.
#[cfg(not(feature = "otlp"))]
pub(crate) fn begin(_: &mut Config) -> Result<impl Future<Output = ()> + Send + 'static, String> {
    if asked()? == Asked::Unbuilt {
        tracing::warn!(
            "no traces are sent: this program was built without them (cargo build --features otlp)"
        );
    }
    Ok(std::future::ready(()))
}
