//! One request after the other over one connection, for what is prepared and checked around the measurements.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use tokio_rustls::rustls::ClientConfig;

use super::answer::Answers;
use super::stream::Stream;
use crate::outcome::Outcome;

#[derive(Debug)]
pub struct Client {
    stream: Stream,
    answers: Answers,
    token: String,
}

impl Client {
    pub fn connect(address: SocketAddr, token: &str) -> Outcome<Client> {
        Client::connect_with(address, token, None)
    }

    /// As [`Client::connect`], with TLS where there is a configuration for it.
    pub fn connect_with(
        address: SocketAddr,
        token: &str,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Outcome<Client> {
        let stream = Stream::connect(address, tls)?;
        stream.tcp().set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream, answers: Answers::default(), token: token.to_owned() })
    }

    pub fn with_token(&mut self, token: &str) -> &mut Client {
        token.clone_into(&mut self.token);
        self
    }

    /// The body of an answer that must have this status.
    pub fn ask(&mut self, method: &str, path: &str, body: &str, expected: u16) -> Outcome<Value> {
        let request = request(method, path, &self.token, body);
        let answer = self.raw(request.as_bytes())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a head")?;
        if !head.starts_with(&format!("HTTP/1.1 {expected} ")) {
            // In one line, since it may become part of a table.
            return Err(format!(
                "{method} {path}: {}",
                answer.split_whitespace().collect::<Vec<_>>().join(" ")
            )
            .into());
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_str(&unchunked(head, body))?)
    }

    /// A whole answer as it came.
    pub fn raw(&mut self, request: &[u8]) -> Outcome<String> {
        self.stream.write_all(request)?;
        let (mut whole, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let length = self.stream.read(&mut buffer)?;
            if length == 0 {
                return Err("the server closed the connection".into());
            }
            whole.extend_from_slice(&buffer[..length]);
            if self.answers.feed(&buffer[..length])?.is_some() {
                return Ok(String::from_utf8(whole)?);
            }
        }
    }
}

impl Client {
    /// Reads an answer of any length and keeps nothing of it. How many bytes it had, or nothing if it was
    /// stopped before its end.
    pub fn drain(&mut self, request: &[u8], stop: &dyn Fn() -> bool) -> Outcome<Option<u64>> {
        self.stream.write_all(request)?;
        let (mut bytes, mut buffer) = (0, vec![0; 256 << 10]);
        while !stop() {
            let length = self.stream.read(&mut buffer)?;
            if length == 0 {
                return Err("the server closed the connection".into());
            }
            bytes += length as u64;
            match self.answers.feed(&buffer[..length])? {
                Some(200) => return Ok(Some(bytes)),
                Some(status) => return Err(format!("answered with {status}").into()),
                None => {}
            }
        }
        Ok(None)
    }
}

pub fn request(method: &str, path: &str, token: &str, body: &str) -> String {
    let length = body.len();
    let body = match method {
        "GET" => "\r\n".to_owned(),
        _ => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"),
    };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{body}")
}

/// The body without the sizes of its chunks, if it has any.
pub fn unchunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = after.get(..size) else { break };
        whole.push_str(chunk);
        rest = after.get(size + 2..).unwrap_or("");
    }
    whole
}
