//! One attempt: a request goes out, its whole answer comes back. Connections are kept for the next one.

use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use tokio_rustls::rustls;

use crate::http::address::Address;
use crate::http::connection::{Connector, SPEAKS_TLS, Sender};

/// The longest answer that is read, unless a client says less: a page of 100 events of 2 MB each fits.
const BODY_MAX: usize = 256 << 20;
/// Connections that are kept for the next request.
const IDLE_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct Wire {
    pub address: Address,
    connector: Connector,
    idle: Mutex<Vec<Sender>>,
    pub body_max: usize,
}

/// A request, without what the address adds.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
    /// A service that hears it twice does it once.
    pub may_repeat: bool,
}

/// A whole answer, of any status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The request could not be written down.
    Request(String),
    /// TLS failed: a certificate, or the other side does not speak it.
    Tls(String),
    /// An answer that is not HTTP.
    NotHttp(String),
    /// An answer that is longer than any of the service's.
    TooLong,
    /// No connection, or it ended too early.
    Connection(String),
}

impl Cut {
    pub fn why(self) -> String {
        match self {
            Cut::Request(why) | Cut::Tls(why) | Cut::NotHttp(why) | Cut::Connection(why) => why,
            Cut::TooLong => "length limit exceeded".into(),
        }
    }
}

impl Wire {
    /// Connects at the first request.
    pub fn new(address: Address, connector: Connector) -> Wire {
        Wire { address, connector, idle: Mutex::new(Vec::new()), body_max: BODY_MAX }
    }

    pub async fn exchange(&self, outgoing: &Outgoing) -> Result<Answer, Cut> {
        let request = || {
            let mut request = Request::builder()
                .method(&outgoing.method)
                .uri(format!("{}{}", self.address.prefix, outgoing.path))
                .header(HOST, &self.address.authority);
            for (name, value) in &outgoing.headers {
                request = request.header(name, value);
            }
            request.body(Full::new(outgoing.body.clone())).map_err(|error| Cut::Request(error.to_string()))
        };
        // A connection that was kept may have been closed by the other side meanwhile: then one more attempt
        // at once, on a new one. Not for a change that could be done twice: whether the other side has heard
        // it before it closed is not known.
        let kept = self.kept().await;
        let is_kept = kept.is_some();
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answered = match sender.send_request(request()?).await {
            Err(_) if is_kept && outgoing.may_repeat => {
                sender = self.connect().await?;
                sender.send_request(request()?).await
            }
            answered => answered,
        };
        let (head, body) = answered
            .map_err(|error| {
                let why = reason(&error);
                match error.is_parse() {
                    _ if why == SPEAKS_TLS => Cut::Tls(why),
                    true => Cut::NotHttp(why),
                    false => Cut::Connection(why),
                }
            })?
            .into_parts();
        let body = Limited::new(body, self.body_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { Cut::TooLong } else { Cut::Connection(reason(&*error)) }
        })?;
        self.keep(sender);
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
    }

    async fn connect(&self) -> Result<Sender, Cut> {
        self.connector.connect(&self.address).await.map_err(|error| {
            let is_tls =
                error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
            let why = reason(&error);
            if is_tls { Cut::Tls(why) } else { Cut::Connection(why) }
        })
    }

    async fn kept(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().expect("no holder panics").pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().expect("no holder panics");
        if !sender.is_closed() && idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }
}

/// The innermost cause says what has happened; those around it say only that something has.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
