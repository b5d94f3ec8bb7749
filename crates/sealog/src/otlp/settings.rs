//! The variables of OpenTelemetry, as its specification has them.

use std::time::Duration;

use sealog_core::query::percent_decode;

use super::span::Parent;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TIMEOUT: Duration = Duration::from_secs(10);
const DELAY: Duration = Duration::from_secs(5);

/// What to send, where to, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) delay: Duration,
    pub(super) resource: Vec<(String, String)>,
    sampler: Sampler,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sampler {
    /// Whether a caller that names its trace has decided already.
    parent_based: bool,
    /// Traces of this share, by their ids.
    ratio: f64,
}

impl Settings {
    /// Nothing where no receiver is named, or traces are turned off.
    pub(crate) fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Settings>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let of_traces = |what: &str| {
            let (own, all) =
                (format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}"));
            variable(&own).map(|value| (own, value)).or_else(|| variable(&all).map(|value| (all, value)))
        };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| variable(ENDPOINT).map(|base| format!("{}/v1/traces", base.trim_end_matches('/'))));
        let Some(endpoint) = endpoint.filter(|_| !is_off) else { return Ok(None) };
        if let Some((name, protocol)) = of_traces("PROTOCOL")
            && protocol == "grpc"
        {
            return Err(format!(
                "{name} is grpc, but sealog sends OTLP over HTTP: set it to http/json, with the receiver's HTTP port (usually 4318)"
            ));
        }
        let headers = match of_traces("HEADERS") {
            None => Vec::new(),
            Some((name, text)) => {
                pairs(&text).ok_or_else(|| format!("{name} must be name=value, separated by commas"))?
            }
        };
        let millis = |found: Option<(String, String)>, otherwise| match found {
            None => Ok(otherwise),
            Some((name, text)) => text
                .parse()
                .map(Duration::from_millis)
                .map_err(|_| format!("{name} must be a number of milliseconds")),
        };
        let named = |name: &str| variable(name).map(|value| (name.to_owned(), value));
        let mut resource = match named("OTEL_RESOURCE_ATTRIBUTES") {
            None => Vec::new(),
            Some((name, text)) => {
                pairs(&text).ok_or_else(|| format!("{name} must be name=value, separated by commas"))?
            }
        };
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".into(), name));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.push(("service.name".into(), "sealog".into()));
        }
        resource.push(("service.version".into(), env!("CARGO_PKG_VERSION").into()));
        Ok(Some(Settings {
            endpoint,
            headers,
            timeout: millis(of_traces("TIMEOUT"), TIMEOUT)?,
            delay: millis(named("OTEL_BSP_SCHEDULE_DELAY"), DELAY)?,
            resource,
            sampler: Sampler::parse(
                variable("OTEL_TRACES_SAMPLER").as_deref().unwrap_or("parentbased_always_on"),
                variable("OTEL_TRACES_SAMPLER_ARG").as_deref(),
            )?,
        }))
    }

    pub(super) fn is_sampled(&self, parent: &Parent) -> bool {
        if self.sampler.parent_based && parent.is_of_caller {
            return parent.is_sampled;
        }
        // The last eight bytes of an id are as good as random.
        let drawn = u64::from_be_bytes(parent.trace_id[8..].try_into().expect("eight bytes")) >> 11;
        (drawn as f64) < self.sampler.ratio * (1u64 << 53) as f64
    }
}

impl Sampler {
    fn parse(name: &str, argument: Option<&str>) -> Result<Sampler, String> {
        let (parent_based, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument
                .map_or(Some(1.0), |text| text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)))
                .ok_or("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")?,
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, optionally with the prefix parentbased_, not {name:?}"
                ));
            }
        };
        Ok(Sampler { parent_based, ratio })
    }
}

/// `a=1,b=2`, with values percent-encoded as in W3C Baggage.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=')?;
            let value = String::from_utf8(percent_decode(value.trim())?).ok()?;
            Some((name.trim().to_owned(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_a_receiver_or_turned_off_there_are_no_traces() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, "")]).unwrap().is_none());
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(read(&[(ENDPOINT, "http://x:4318"), off]).unwrap().is_none(), "{off:?}");
        }
    }

    #[test]
    fn the_address_for_traces_is_under_that_for_everything_unless_it_has_its_own() {
        let endpoint = |variables: &[(&str, &str)]| read(variables).unwrap().unwrap().endpoint;
        assert_eq!(endpoint(&[(ENDPOINT, "http://x:4318/")]), "http://x:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://y/in");
        assert_eq!(endpoint(&[(ENDPOINT, "http://x:4318/"), own]), "https://y/in");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_what_to_do() {
        for (name, value, said) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x", "name=value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x=%zz", "name=value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x=%+f", "name=value"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "milliseconds"),
            ("OTEL_TRACES_SAMPLER", "some", "always_on"),
        ] {
            let error = read(&[(ENDPOINT, "http://x:4318"), (name, value)]).unwrap_err();
            assert!(error.starts_with(name) && error.contains(said), "{error}");
        }
        let ratio = [
            (ENDPOINT, "http://x"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ];
        assert!(read(&ratio).unwrap_err().contains("from 0 to 1"));
        assert!(read(&[(ENDPOINT, "http://x"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).is_ok());
    }

    #[test]
    fn a_callers_decision_stands_and_a_share_is_drawn_by_the_id_of_the_trace() {
        let settings = |sampler: &str, ratio: &str| {
            read(&[
                (ENDPOINT, "http://x"),
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", ratio),
            ])
            .unwrap()
            .unwrap()
        };
        let parent = |byte: u8, is_of_caller, is_sampled| Parent {
            trace_id: [byte; 16],
            span_id: [1; 8],
            is_of_caller,
            is_sampled,
        };
        let based = settings("parentbased_traceidratio", "0.5");
        assert!(based.is_sampled(&parent(0xff, true, true)) && !based.is_sampled(&parent(0, true, false)));
        assert!(
            based.is_sampled(&parent(0x10, false, false)) && !based.is_sampled(&parent(0xf0, false, false))
        );
        assert!(settings("always_on", "").is_sampled(&parent(0xff, true, false)));
        assert!(!settings("always_off", "").is_sampled(&parent(0, true, true)));
    }
}
