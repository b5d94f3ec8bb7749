//! A layer for axum and other services of tower: events that a handler logs have what its request knows.
//!
//! ```
//! # use std::net::{IpAddr, Ipv4Addr};
//! use sealog_client::{TrustedProxies, tower::ContextLayer};
//! // With axum, the peer is in `parts.extensions.get::<ConnectInfo<SocketAddr>>()`.
//! let layer = ContextLayer::new(|_parts| Some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
//!     .trusted_proxies(TrustedProxies::parse(["10.0.0.0/8"])?)
//!     .actor(|parts| parts.headers.get("x-user")?.to_str().ok().map(str::to_owned));
//! # Ok::<(), sealog_client::Error>(())
//! ```

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::http::request::Parts;
use hyper::{Request, header::HeaderMap};
use tower_layer::Layer;
use tower_service::Service;

use crate::context::{Fields, Scoped, TrustedProxies};
use crate::event::Event;

/// The longest text that is taken from a header, in bytes.
const HEADER_MAX: usize = 255;

type Peer = Arc<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;
type Of = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Puts the client's address, the request id, the trace, the actor and the session into the context of each
/// request. Place it behind the authentication.
#[derive(Clone)]
pub struct ContextLayer {
    peer: Peer,
    trusted: TrustedProxies,
    actor: Option<Of>,
    session: Option<Of>,
}

impl fmt::Debug for ContextLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextLayer").field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

impl ContextLayer {
    /// `peer` finds the address of the other end of the connection.
    pub fn new(peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> ContextLayer {
        ContextLayer { peer: Arc::new(peer), trusted: TrustedProxies::default(), actor: None, session: None }
    }

    /// `X-Forwarded-For` is read only behind these.
    #[must_use]
    pub fn trusted_proxies(mut self, trusted: TrustedProxies) -> ContextLayer {
        self.trusted = trusted;
        self
    }

    /// The id of the signed-in user.
    #[must_use]
    pub fn actor(mut self, actor: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> ContextLayer {
        self.actor = Some(Arc::new(actor));
        self
    }

    /// An id of the session. The cookie itself would let a reader of the log take the session over:
    /// [`crate::pseudonymize`] it.
    #[must_use]
    pub fn session(
        mut self,
        session: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> ContextLayer {
        self.session = Some(Arc::new(session));
        self
    }

    fn fields(&self, parts: &Parts) -> Fields {
        let mut event = Event::default();
        if let Some(peer) = (self.peer)(parts) {
            let forwarded = parts.headers.get_all("x-forwarded-for");
            let forwarded: Vec<&str> = forwarded.iter().map(|value| value.to_str().unwrap_or("?")).collect();
            event = event.with("ip_address", self.trusted.client_address(peer, forwarded));
        }
        if let Some(id) = text(&parts.headers, "x-request-id") {
            event = event.with("request_id", id);
        }
        event.actor_id = self.actor.as_ref().and_then(|actor| actor(parts));
        event.session_id = self.session.as_ref().and_then(|session| session(parts));
        Fields { event, traceparent: text(&parts.headers, "traceparent") }
    }
}

/// A header of the client's choice: bounded, and always a valid text, so that no client can make the
/// application's events invalid.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.as_bytes();
    let text = String::from_utf8_lossy(&value[..value.len().min(HEADER_MAX)]).into_owned();
    Some(text).filter(|text| !text.is_empty())
}

impl<S> Layer<S> for ContextLayer {
    type Service = ContextService<S>;

    fn layer(&self, inner: S) -> ContextService<S> {
        ContextService { inner, layer: self.clone() }
    }
}

/// A service whose events have what its requests know.
#[derive(Clone, Debug)]
pub struct ContextService<S> {
    inner: S,
    layer: ContextLayer,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for ContextService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Scoped<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let fields = self.layer.fields(&parts).inside();
        fields.scope(self.inner.call(Request::from_parts(parts, body)))
    }
}
