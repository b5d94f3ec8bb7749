//! Requests and their answers.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use zeroize::Zeroizing;

use crate::http::address::Address;
use crate::http::connection::Connector;
use crate::http::error::{ClientError, Problem};
use crate::http::retry::{Retries, Tried};
use crate::http::wire::{Answer, Cut, Outgoing, Wire};

#[derive(Debug)]
pub struct Settings {
    pub url: String,
    pub key: Option<Zeroizing<String>>,
    /// For one attempt.
    pub timeout: Duration,
    pub retries: Retries,
}

#[derive(Debug)]
pub struct Client {
    wire: Wire,
    /// As it was given, for messages.
    url: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    retries: Retries,
}

impl Answer {
    /// What it holds may borrow from the body.
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| ClientError::Foreign { status: self.status, why: error.to_string() })
    }
}

impl Client {
    /// Connects at the first request.
    pub fn new(settings: Settings) -> Result<Client, String> {
        Client::connecting(settings, Connector::new)
    }

    /// A client that believes any certificate, whatever its name: for a server on this machine that is asked
    /// by its address, which its certificate need not name. It has no key that it could give away, and
    /// attempts once.
    pub fn believing_anyone(url: String, timeout: Duration) -> Result<Client, String> {
        let retries = Retries { most: 0, ..Retries::default() };
        Client::connecting(Settings { url, key: None, timeout, retries }, Connector::believing_anyone)
    }

    fn connecting(
        settings: Settings,
        connector: impl FnOnce(&Address) -> Result<Connector, String>,
    ) -> Result<Client, String> {
        let address = Address::parse(&settings.url)?;
        let authorization = match settings.key {
            None => None,
            Some(key) => {
                let header = Zeroizing::new(format!("Bearer {}", key.trim()));
                let mut value = HeaderValue::try_from(header.as_str())
                    .map_err(|_| "the key has invalid characters".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Client {
            wire: Wire::new(address.clone(), connector(&address)?),
            url: settings.url,
            authorization,
            timeout: settings.timeout,
            retries: settings.retries,
        })
    }

    /// Reads no more of an answer than this, and fails where there is more.
    #[must_use]
    pub fn with_body_max(mut self, bytes: usize) -> Client {
        self.wire.body_max = bytes;
        self
    }

    /// Where requests go, as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where requests go and with which key, for telling one from another. Not for printing.
    pub fn fingerprint(&self) -> (&str, &str) {
        (&self.url, self.authorization.as_ref().and_then(|value| value.to_str().ok()).unwrap_or(""))
    }

    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Answer, ClientError> {
        let mut path = path.to_owned();
        if !query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
            path = format!("{path}?{query}");
        }
        self.send(Method::GET, &path, Bytes::new(), None).await
    }

    /// With a key that is the same for every attempt, so that a request that was heard twice counts once.
    pub async fn post(&self, path: &str, body: Bytes, idempotency_key: &str) -> Result<Answer, ClientError> {
        self.send(Method::POST, path, body, Some(idempotency_key)).await
    }

    /// A change that has no idempotency key: sent again only where the service says that it has done nothing,
    /// since a lost answer leaves open whether it has.
    pub async fn change(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let mut tried = Tried::default();
        loop {
            let attempt = self.attempt(&method, path, body.clone(), None);
            let error = match tokio::time::timeout(self.timeout, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    return Err(ClientError::TimedOut { address: self.url.clone(), after: self.timeout });
                }
            };
            let is_untouched = matches!(&error, ClientError::Refused(problem) if problem.status == 429);
            match self.retries.wait(&error, &mut tried, getrandom::u32().unwrap_or(u32::MAX)) {
                Some(wait) if is_untouched => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
        }
    }

    /// One attempt, and the answer whatever its status is.
    pub async fn probe(&self, path: &str) -> Result<Answer, ClientError> {
        let exchange = self.exchange(&Method::GET, path, Bytes::new(), None);
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(answered) => answered,
            Err(_) => Err(ClientError::TimedOut { address: self.url.clone(), after: self.timeout }),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let mut tried = Tried::default();
        loop {
            let attempt = self.attempt(&method, path, body.clone(), idempotency_key);
            let answered = match tokio::time::timeout(self.timeout, attempt).await {
                Ok(answered) => answered,
                Err(_) => Err(ClientError::TimedOut { address: self.url.clone(), after: self.timeout }),
            };
            let error = match answered {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let dice = getrandom::u32().unwrap_or(u32::MAX);
            match self.retries.wait(&error, &mut tried, dice) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let answer = self.exchange(method, path, body, idempotency_key).await?;
        let Answer { status, headers, body } = &answer;
        let status = *status;
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let problem = Problem::parse(status, body, retry_after.map(Duration::from_secs));
        Err(match problem {
            Some(problem) => ClientError::Refused(Box::new(problem)),
            None if (300..400).contains(&status) => {
                let to = headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or("elsewhere");
                ClientError::Foreign {
                    status,
                    why: format!(
                        "it redirects to {to}; redirects are not followed, because the key would be sent along"
                    ),
                }
            }
            None => ClientError::Foreign { status, why: "its body is not a Sealog error".into() },
        })
    }

    async fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        idempotency_key: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let agent = HeaderValue::from_static(concat!("sealog/", env!("CARGO_PKG_VERSION")));
        let mut headers = vec![(USER_AGENT, agent)];
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        if *method == Method::POST || *method == Method::PATCH {
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        let unsendable =
            |why: String| ClientError::Foreign { status: 0, why: format!("cannot send the request: {why}") };
        if let Some(key) = idempotency_key {
            let key = HeaderValue::try_from(key).map_err(|error| unsendable(error.to_string()))?;
            headers.push((HeaderName::from_static("idempotency-key"), key));
        }
        let may_repeat = *method == Method::GET || idempotency_key.is_some();
        let outgoing = Outgoing { method: method.clone(), path: path.to_owned(), headers, body, may_repeat };
        self.wire.exchange(&outgoing).await.map_err(|cut| match cut {
            Cut::Request(why) => unsendable(why),
            cut => ClientError::Unreachable { address: self.url.clone(), why: cut.why() },
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// A service that answers the first request of each connection, takes the second, and closes without a
    /// word. It records every request that it hears.
    async fn forgetful() -> (Client, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                for is_first in [true, false] {
                    // None of them has a body.
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => request.push(byte),
                            Err(_) => break,
                        }
                    }
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let _ = heard.send(text.lines().next().unwrap_or_default().to_owned());
                    if is_first {
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
                    }
                }
            }
        });
        let retries = Retries { most: 0, ..Retries::default() };
        let settings = Settings { url, key: None, timeout: Duration::from_secs(30), retries };
        (Client::new(settings).unwrap(), requests)
    }

    fn told(requests: &mut mpsc::UnboundedReceiver<String>) -> Vec<String> {
        std::iter::from_fn(|| requests.try_recv().ok()).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_change_without_an_idempotency_key_is_sent_once_although_its_connection_was_kept() {
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            let (client, mut requests) = forgetful().await;
            client.get("/a", &[]).await.unwrap();
            let lost = client.change(method.clone(), "/b", Bytes::new()).await.unwrap_err();
            assert!(matches!(lost, ClientError::Unreachable { .. }), "{lost}");
            assert_eq!(told(&mut requests), ["GET /a HTTP/1.1".to_owned(), format!("{method} /b HTTP/1.1")]);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_may_be_repeated_is_sent_again_at_once_on_a_new_connection() {
        let (client, mut requests) = forgetful().await;
        client.get("/a", &[]).await.unwrap();
        client.get("/b", &[]).await.unwrap();
        client.post("/c", Bytes::new(), "key").await.unwrap();
        let heard = ["GET /a", "GET /b", "GET /b", "POST /c", "POST /c"];
        assert_eq!(told(&mut requests), heard.map(|line| format!("{line} HTTP/1.1")));
    }
}
