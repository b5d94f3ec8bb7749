//! What a request knows and every event of it should have: fields that a task carries, and the client's
//! address behind proxies.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::error::Error;
use crate::event::Event;

/// Entries of `X-Forwarded-For` that are looked at, and the longest of them in bytes.
const ENTRIES_MAX: usize = 32;
const ENTRY_BYTES_MAX: usize = 64;

/// The fields of the tasks that run with them. Public, because it is part of the future of a layer; it has no
/// name outside.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    pub(crate) event: Event,
    pub(crate) traceparent: Option<String>,
}

tokio::task_local! {
    static FIELDS: Fields;
}

pub type Scoped<F> = tokio::task::futures::TaskLocalFuture<Fields, F>;

impl Fields {
    /// Those of the current task.
    pub(crate) fn current() -> Option<Fields> {
        FIELDS.try_with(Clone::clone).ok()
    }

    pub(crate) fn scope<F: Future>(self, future: F) -> Scoped<F> {
        FIELDS.scope(self, future)
    }

    /// With what the task has around them.
    pub(crate) fn inside(mut self) -> Fields {
        if let Some(outer) = Fields::current() {
            self.event.fill(&outer.event);
            self.traceparent = self.traceparent.or(outer.traceparent);
        }
        self
    }
}

/// Runs a future whose events get these fields, where they do not set them. Members of the metadata are
/// merged. A task that is spawned inside has them only if it is run with them again.
///
/// ```
/// # async fn handle(client: sealog_client::Client) -> Result<(), sealog_client::Error> {
/// use sealog_client::{Event, with};
/// with(Event::default().actor_id("u-17"), async {
///     client.log(Event::new("user.login")).await
/// }).await?;
/// # Ok(())
/// # }
/// ```
pub fn with<F: Future>(event: Event, future: F) -> impl Future<Output = F::Output> {
    Fields { event, traceparent: None }.inside().scope(future)
}

/// Runs a future whose calls of `log` send this W3C traceparent.
pub fn with_traceparent<F: Future>(
    traceparent: impl Into<String>,
    future: F,
) -> impl Future<Output = F::Output> {
    Fields { event: Event::default(), traceparent: Some(traceparent.into()) }.inside().scope(future)
}

/// The version, the trace and the span of a traceparent; none if it has not the form of one.
pub(crate) fn trace(traceparent: &str) -> Option<(&str, &str)> {
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = traceparent.splitn(4, '-');
    let (version, trace, span, rest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_rest = (2..=200).contains(&rest.len())
        && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    (is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_rest).then_some((trace, span))
}

/// The proxies whose `X-Forwarded-For` is read.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Reads addresses and CIDR ranges.
    pub fn parse<T: AsRef<str>>(ranges: impl IntoIterator<Item = T>) -> Result<TrustedProxies, Error> {
        let one = |text: &str| {
            let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address.to_canonical()));
            text.parse().ok().or_else(address).ok_or_else(|| {
                let shown: String = text.chars().take(100).collect();
                let problem = format!("{shown:?} is neither an address nor a CIDR range");
                Error::option("trusted_proxies", &problem)
            })
        };
        ranges.into_iter().map(|text| one(text.as_ref())).collect::<Result<_, _>>().map(TrustedProxies)
    }

    /// The client's address by docs/spec.md, section 8.2: from the right, the first one that is no trusted
    /// proxy. `forwarded` are the values of `X-Forwarded-For`.
    pub fn client_address<'f>(&self, peer: IpAddr, forwarded: impl IntoIterator<Item = &'f str>) -> IpAddr {
        let mut client = peer.to_canonical();
        let values: Vec<&str> = forwarded.into_iter().collect();
        let entries = values.iter().rev().flat_map(|value| value.rsplit(',')).map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()).take(ENTRIES_MAX) {
            if entry.len() > ENTRY_BYTES_MAX || !self.0.iter().any(|range| range.contains(&client)) {
                break;
            }
            let Ok(found) = without_port(entry).parse::<IpAddr>() else { break };
            client = found.to_canonical();
        }
        client
    }
}

fn without_port(entry: &str) -> &str {
    match entry.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or(bracketed),
        None if entry.matches(':').count() == 1 => entry.split(':').next().unwrap_or(entry),
        None => entry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_has_its_form_or_is_none() {
        let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace_id}-00f067aa0ba902b7-01");
        assert_eq!(trace(&good), Some((trace_id, "00f067aa0ba902b7")));
        for bad in ["", "nonsense", &good[1..], &good.replace("4b", "4G"), &good[..52], "00-a-b-01"] {
            assert_eq!(trace(bad), None, "{bad}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn fields_reach_inner_scopes_and_end_with_their_own() {
        let known = || Fields::current().map(|fields| (fields.event.actor_id, fields.event.session_id));
        let text = |text: &str| Some(text.to_owned());
        with(Event::default().actor_id("u-1").session_id("s-1"), async {
            with(Event::default().actor_id("u-2"), async {
                assert_eq!(known(), Some((text("u-2"), text("s-1"))));
            })
            .await;
            assert_eq!(known(), Some((text("u-1"), text("s-1"))));
            with_traceparent("t", async {
                let fields = Fields::current().unwrap();
                assert_eq!((fields.traceparent, fields.event.actor_id), (text("t"), text("u-1")));
            })
            .await;
        })
        .await;
        assert!(Fields::current().is_none());
    }

    #[test]
    fn what_a_client_writes_into_the_header_costs_a_bounded_look() {
        let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
        let peer = "10.0.0.1".parse().unwrap();
        let hops = |count: usize| format!("192.0.2.1{}", ",10.0.0.2".repeat(count));
        let address = |header: &str| proxies.client_address(peer, [header]).to_string();
        assert_eq!(address(&hops(ENTRIES_MAX - 1)), "192.0.2.1");
        assert_eq!(address(&hops(ENTRIES_MAX)), "10.0.0.2");
        assert_eq!(address(&format!("192.0.2.1,{}", "1".repeat(65))), "10.0.0.1");
        assert!(TrustedProxies::parse(["10.0.0.0/33"]).is_err());
    }
}
