//! The service, as the options name it: requests, attempts, and what their answers mean.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT,
};
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Kind};
use crate::hooks::{Hooks, loud};
use crate::http::address::Address;
use crate::http::connection::{Connector, SPEAKS_TLS};
use crate::http::wire::{Answer, Cut, Outgoing, Wire};
use crate::options::Options;
use crate::receipt::Receipt;

pub(crate) const AROUND_A_BATCH: &str = r#"{"events":[]}"#;

/// When to try again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub max_attempts: u32,
    pub base: Duration,
    /// Of all waits of one call.
    pub budget: Duration,
}

impl Policy {
    /// Full jitter: clients that failed together do not come back together. Behind the last attempt that the
    /// application has allowed, which only a spool reaches, the waits grow on.
    pub fn delay(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let longest = self.base * if attempt >= self.max_attempts { 60 } else { 8 };
        let bound = longest.min(self.base.saturating_mul(1 << (attempt - 1).min(16)));
        let dice = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        bound.mul_f64(dice).max(retry_after.unwrap_or_default())
    }
}

/// The body of a batch of these texts.
pub fn batch_body<'e>(events: impl Iterator<Item = &'e [u8]> + Clone) -> Bytes {
    let size: usize = events.clone().map(|event| event.len() + 1).sum();
    let (begin, end) = AROUND_A_BATCH.split_at(AROUND_A_BATCH.len() - 2);
    let mut body = Vec::with_capacity(size + AROUND_A_BATCH.len());
    body.extend_from_slice(begin.as_bytes());
    for (index, event) in events.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event);
    }
    body.extend_from_slice(end.as_bytes());
    body.into()
}

/// An idempotency key of at least 128 random bits.
pub fn new_key() -> String {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the kernel has random bytes");
    format!("sdk_{:032x}", u128::from_be_bytes(random))
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: Method,
    pub path: String,
    /// `Idempotency-Key` of a POST.
    pub key: Option<String>,
    pub traceparent: Option<String>,
    pub body: Bytes,
}

impl Request {
    pub fn one(event: Bytes, key: String) -> Request {
        Request::post("/v1/events", event, key)
    }

    pub fn batch<'e>(events: impl Iterator<Item = &'e Bytes> + Clone, key: String) -> Request {
        Request::post("/v1/events/batch", batch_body(events.map(Bytes::as_ref)), key)
    }

    fn post(path: &str, body: Bytes, key: String) -> Request {
        Request { method: Method::POST, path: path.to_owned(), key: Some(key), traceparent: None, body }
    }

    pub fn get(path: &str, query: &[(&str, String)]) -> Request {
        let mut path = path.to_owned();
        if !query.is_empty() {
            path.push('?');
            path = form_urlencoded::Serializer::for_suffix(path.clone(), path.len())
                .extend_pairs(query)
                .finish();
        }
        Request { method: Method::GET, path, key: None, traceparent: None, body: Bytes::new() }
    }
}

/// Answers in place of a network.
pub(crate) type Stage = Arc<dyn Fn(&Outgoing) -> Answer + Send + Sync>;

pub(crate) enum Transport {
    Wire(Wire),
    Stage(Stage),
}

impl Transport {
    pub fn connect(url: &str, ca_file: Option<&Path>) -> Result<Transport, Error> {
        let address = Address::parse(url).map_err(|problem| Error::option("url", &problem))?;
        let is_here = address.host == "localhost"
            || address.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !address.is_tls && !is_here {
            loud("url is http://: the API key and all events cross the network readable; use https://");
        }
        let connector = match ca_file {
            None => Connector::new(&address).map_err(|problem| Error::option("url", &problem))?,
            Some(file) => {
                Connector::believing(&address, file).map_err(|problem| Error::option("ca_file", &problem))?
            }
        };
        Ok(Transport::Wire(Wire::new(address, connector)))
    }
}

pub(crate) struct Endpoint {
    transport: Transport,
    authorization: HeaderValue,
    timeout: Duration,
    pub policy: Policy,
    hooks: Arc<Hooks>,
    is_incomplete: AtomicBool,
}

impl Endpoint {
    pub fn new(options: &Options, transport: Transport, hooks: Arc<Hooks>) -> Result<Endpoint, Error> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", options.api_key))
            .map_err(|_| Error::option("api_key", "has invalid characters"))?;
        authorization.set_sensitive(true);
        let policy = Policy {
            max_attempts: options.max_attempts,
            base: options.retry_base,
            budget: options.retry_budget,
        };
        let (timeout, is_incomplete) = (options.timeout, AtomicBool::new(false));
        Ok(Endpoint { transport, authorization, timeout, policy, hooks, is_incomplete })
    }

    /// Sends a request until an answer can be read, at most as often and as long as the policy allows.
    pub async fn send<T>(
        &self,
        request: &Request,
        read: impl Fn(&Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut waited = Duration::ZERO;
        for attempt in 1.. {
            let error = match self.attempt(request, &read).await {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            if attempt >= self.policy.max_attempts || !error.is_temporary() {
                return Err(error);
            }
            let delay = self.policy.delay(attempt, error.retry_after);
            waited += delay;
            if waited > self.policy.budget {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
        unreachable!("attempts are bounded")
    }

    /// One attempt, of which every byte comes within the time-out.
    pub async fn attempt<T>(
        &self,
        request: &Request,
        read: impl Fn(&Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outgoing = self.outgoing(request)?;
        let answer = match &self.transport {
            Transport::Stage(stage) => stage(&outgoing),
            Transport::Wire(wire) => {
                let host = &wire.address.authority;
                match tokio::time::timeout(self.timeout, wire.exchange(&outgoing)).await {
                    Ok(answered) => answered.map_err(|cut| explain(host, cut))?,
                    Err(_) => {
                        let message =
                            format!("{host} gave no complete answer in time; see the timeout option");
                        return Err(Error::new(Kind::Transport, "client/timeout", message));
                    }
                }
            }
        };
        match problem_of(&answer) {
            Some(problem) => Err(problem),
            None => read(&answer),
        }
    }

    fn outgoing(&self, request: &Request) -> Result<Outgoing, Error> {
        let agent = HeaderValue::from_static(concat!("sealog-rust/", env!("CARGO_PKG_VERSION")));
        let mut headers = vec![(AUTHORIZATION, self.authorization.clone()), (USER_AGENT, agent)];
        let text = |value: &str| {
            HeaderValue::try_from(value).map_err(|_| Error::option("key", "has invalid characters"))
        };
        if let Some(key) = &request.key {
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
            headers.push((HeaderName::from_static("idempotency-key"), text(key)?));
        }
        if let Some(traceparent) = &request.traceparent {
            headers.push((HeaderName::from_static("traceparent"), text(traceparent)?));
        }
        let Request { method, path, body, .. } = request.clone();
        Ok(Outgoing { method, path, headers, body, may_repeat: true })
    }

    /// The receipts of a batch, or of one event.
    pub fn receipts(&self, answer: &Answer, count: usize) -> Result<Vec<Receipt>, Error> {
        #[derive(Deserialize)]
        struct Body {
            log_id: Option<String>,
            #[serde(default)]
            log_ids: Vec<String>,
            #[serde(default)]
            request_id: String,
        }
        let mut body: Body = object(answer)?;
        body.log_ids.extend(body.log_id);
        if answer.status != 202 || body.log_ids.len() != count {
            let what = format!("the answer with status {} has no receipt", answer.status);
            return Err(Error::bad_answer(answer.status, &what));
        }
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let first: Option<u64> =
            header("Sealog-Chain-Seq").and_then(|numbers| numbers.split('-').next()?.parse().ok());
        let hash = header("Sealog-Hash").filter(|hash| !hash.is_empty());
        if (first.is_none() || hash.is_none()) && !self.is_incomplete.swap(true, Ordering::Relaxed) {
            let message =
                "a receipt lacks chain_seq or hash; let your proxy pass Sealog-Chain-Seq and Sealog-Hash";
            self.hooks.warn("client/incomplete_receipt", message);
        }
        let replayed = header("Idempotency-Replayed") == Some("true");
        let receipts = body.log_ids.into_iter().zip(0..).map(|(log_id, index)| Receipt {
            log_id,
            chain_seq: first.map(|first| first.saturating_add(index)),
            hash: hash.filter(|_| index + 1 == count as u64).map(str::to_owned),
            request_id: body.request_id.clone(),
            replayed,
        });
        Ok(receipts.collect())
    }
}

/// The JSON of an answer.
pub(crate) fn object<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|_| {
        let what = format!("the answer with status {} is not JSON from Sealog", answer.status);
        Error::bad_answer(answer.status, &what)
    })
}

fn explain(host: &str, cut: Cut) -> Error {
    let error = |code: &str, message: String| Error::new(Kind::Transport, code, message);
    match cut {
        Cut::Tls(why) if why == SPEAKS_TLS => {
            error("client/tls", format!("{host}: {why}; use an https:// url"))
        }
        Cut::Tls(why) => error(
            "client/tls",
            format!(
                "TLS with {host} failed ({why}); for a certificate see the ca_file option; if the port does not speak TLS, use an http:// url"
            ),
        ),
        Cut::NotHttp(why) => Error::bad_answer(0, &format!("{host} does not speak HTTP ({why})")),
        Cut::TooLong => Error::bad_answer(0, "the answer is too long"),
        Cut::Request(why) | Cut::Connection(why) => {
            error("client/connection", format!("no complete answer from {host}: {why}"))
        }
    }
}

/// The error in an answer; none in a success.
fn problem_of(answer: &Answer) -> Option<Error> {
    let status = answer.status;
    if (200..300).contains(&status) {
        return None;
    }
    if status < 400 {
        let to = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let to: String = to.chars().take(200).collect();
        let message =
            format!("refused a redirect to {to:?}, because the API key would leak; correct the url option");
        let error = Error::new(Kind::Transport, "client/redirect", message);
        return Some(error.with(|error| error.status = Some(status)));
    }
    let retry_after = retry_after(answer);
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if let Some(error) = Error::of_service(status, &body["error"], retry_after) {
        return Some(error);
    }
    if status != 429 && status < 500 {
        let what = format!("the answer with status {status} does not come from Sealog");
        return Some(Error::bad_answer(status, &what));
    }
    // A proxy's page; its status is enough.
    let (kind, code) = match status {
        429 => (Kind::RateLimited, "rate/limit_exceeded"),
        _ => (Kind::Server, "server/unavailable"),
    };
    let error = Error::new(kind, code, format!("the server answered {status}"));
    Some(error.with(|error| {
        error.status = Some(status);
        error.retry_after = retry_after;
    }))
}

/// A date is compared with the answer's own: the clock of this machine may be wrong.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let text = |name| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let value = text(RETRY_AFTER)?;
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> Answer {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        Answer { status, headers, body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn waits_grow_up_to_eight_times_the_base_and_beyond_the_last_attempt_up_to_sixty_times() {
        let policy = Policy { max_attempts: 5, base: Duration::from_secs(1), budget: Duration::MAX };
        for (attempt, bound) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (40, 60)] {
            let waits: Vec<Duration> = (0..2000).map(|_| policy.delay(attempt, None)).collect();
            let (shortest, longest) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
            let bound = Duration::from_secs(bound);
            assert!(longest <= bound && longest > bound.mul_f64(0.9), "{attempt}: {longest:?}");
            assert!(shortest < bound.mul_f64(0.1), "{attempt}: {shortest:?}");
        }
        let policy = Policy { max_attempts: 9, ..policy };
        assert!((0..2000).all(|_| policy.delay(8, None) <= Duration::from_secs(8)));
        assert_eq!(policy.delay(1, Some(Duration::from_secs(90))), Duration::from_secs(90));
    }

    #[test]
    fn a_retry_date_is_measured_by_the_answers_own_date() {
        let later = ("retry-after", "Wed, 18 Nov 2026 10:00:07 GMT");
        let date = ("date", "Wed, 18 Nov 2026 10:00:00 GMT");
        let seconds = |headers: &[_]| retry_after(&answer(503, headers, "")).map(|wait| wait.as_secs());
        assert_eq!(seconds(&[later, date]), Some(7));
        assert_eq!(seconds(&[later]), None);
        assert_eq!(seconds(&[("retry-after", "3")]), Some(3));
        assert_eq!(seconds(&[("retry-after", "soon"), date]), None);
    }

    #[test]
    fn a_batch_is_its_events_joined_and_nothing_else() {
        let events = [Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"{}")];
        assert_eq!(Request::batch(events.iter(), "k".into()).body, r#"{"events":[{"a":1},{}]}"#);
        assert_eq!(Request::batch([].iter(), "k".into()).body, AROUND_A_BATCH);
    }

    #[test]
    fn keys_have_128_random_bits() {
        let (one, other) = (new_key(), new_key());
        assert_eq!(one.len(), 36);
        assert_ne!(one, other);
    }
}
