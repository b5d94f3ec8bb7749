//! Connections, and the order in which every request is dealt with: request id, per-address window, route.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use sealog_core::id::{RequestId, Ulid};
use sealog_core::reject::Reject;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::App;
use crate::api;
use crate::ingest::Endpoint;
use crate::limits::{counted_address, share};
use crate::metrics::{self, Place};
use crate::openapi;
use crate::operator;
use crate::respond::{Body, Failure, full};
use crate::routes::{self, Found, Operation};
use crate::wire::Wire;

/// How long a stop waits for requests under way.
const STOP_WAIT: Duration = Duration::from_secs(9);

/// Most that a request line and headers may have.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A server that can be told to stop.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
}

impl Server {
    pub fn new() -> Server {
        Server { stop: watch::Sender::new(false) }
    }

    /// No more connections are accepted; those that are idle are closed, and requests under way are finished.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns when the server has been told to stop.
    pub(crate) async fn stopped(&self) {
        // The sender is held by `self`, so the wait ends in no other way.
        let _ = self.stop.subscribe().wait_for(|stopped| *stopped).await;
    }
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Serves connections until the server is stopped and what was under way is done.
pub async fn serve(app: Arc<App>, listener: TcpListener, server: &Server) {
    let mut stop = server.stop.subscribe();
    let connections = Arc::new(Semaphore::new(app.config.connections_max));
    let all = u32::try_from(app.config.connections_max).unwrap_or(u32::MAX);
    loop {
        // A place first: a connection that cannot be served waits in the kernel.
        let place = Arc::clone(&connections).acquire_owned();
        let (place, accepted) = tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        match (place, accepted) {
            (Ok(place), Ok((stream, peer))) => {
                let (app, stop) = (Arc::clone(&app), stop.clone());
                tokio::spawn(async move {
                    connection(app, stream, peer, stop).await;
                    drop(place);
                });
            }
            (_, Err(error)) => {
                // Most likely out of file descriptors: give those that are open a moment to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(STOP_WAIT, connections.acquire_many(all)).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
}

async fn connection(app: Arc<App>, stream: TcpStream, peer: SocketAddr, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    // A connection that says nothing holds a place; hyper's own deadline begins with the first byte.
    let mut first = [0];
    let spoke = tokio::select! {
        // Peeked at, since a socket may be called readable before it is.
        first = tokio::time::timeout(app.config.deadlines.first_byte, stream.peek(&mut first)) => {
            matches!(first, Ok(Ok(1)))
        }
        _ = stop.wait_for(|stopped| *stopped) => false,
    };
    if !spoke {
        return;
    }
    let peer = Client::new(peer.ip());
    let deadlines = app.config.deadlines;
    let unparsable = Arc::clone(&app);
    let wire = Wire::new(stream, deadlines.write, move |status| answer_unparsable(&unparsable, status));
    // Set when an answer was given without reading the whole request.
    let unread = Arc::new(AtomicBool::new(false));
    let closing = Arc::clone(&unread);
    let service = service_fn(move |request| {
        let (app, closing, peer) = (Arc::clone(&app), Arc::clone(&closing), peer.clone());
        Box::pin(async move {
            let response = handle(&app, request, peer).await;
            closing.fetch_or(response.headers().contains_key(CONNECTION), Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.headers)
        .max_buf_size(HEAD_BYTES_MAX)
        // A client that has said all it had to say still wants its answer.
        .half_close(true)
        .serve_connection(TokioIo::new(wire), service);
    let ended = tokio::select! {
        // Drawing lots each time has a price, and whoever stops the server can wait for the answer that is ready.
        biased;
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => Some(ended),
        _ = stop.wait_for(|stopped| *stopped) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
    let wire = connection.into_parts().io.into_inner();
    // The client may be gone, and then there is nobody to close for.
    let _ = wire.close(unread.load(Ordering::Relaxed)).await;
}

/// A request that hyper cannot parse never reaches a handler, but is answered like any other.
fn answer_unparsable(app: &App, status: StatusCode) -> Vec<u8> {
    let request_id = new_request_id(app);
    let reject = if status == StatusCode::BAD_REQUEST { Reject::Malformed } else { Reject::HeadersTooLarge };
    tracing::debug!(%request_id, status = status.as_u16(), "answered a request that cannot be parsed");
    let failure = Failure::from(reject);
    app.metrics.rejected(failure.code());
    failure.to_bytes(request_id, &app.config)
}

fn new_request_id(app: &App) -> RequestId {
    RequestId(Ulid::new(app.world.now_ms(), app.world.random80()))
}

/// Answers a request. Every answer has its id, whatever happens on the way.
async fn handle(app: &Arc<App>, request: Request<Incoming>, peer: Client) -> Response<Body> {
    let request_id = new_request_id(app);
    let begun = Instant::now();
    let head_only = request.method() == Method::HEAD;
    let place = Place::of(request.method(), request.uri().path());
    let answer = std::pin::pin!(route(app, request, peer, request_id));
    let answer =
        CatchPanic(answer).await.unwrap_or_else(|cause| Err(Failure::internal(&cause, request_id).closing()));
    let mut response = answer.unwrap_or_else(|failure| {
        app.metrics.rejected(failure.code());
        failure.into_response(request_id, &app.config)
    });
    if head_only {
        *response.body_mut() = full("");
    }
    let id = HeaderValue::from_bytes(&request_id.to_text()).expect("letters, digits and an underscore");
    response.headers_mut().insert(X_REQUEST_ID, id);
    app.metrics.answered(place, response.status(), begun.elapsed());
    let (route, method) = (place.route(), place.method());
    tracing::debug!(%request_id, method, route, status = response.status().as_u16(), "answered");
    response
}

async fn route(
    app: &Arc<App>,
    request: Request<Incoming>,
    peer: Client,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let path = request.uri().path();
    let found = routes::find(&routes::PATHS, path, request.method());
    let client = client(app, request.headers(), &peer);
    if !routes::NOT_COUNTED.contains(&path) {
        let per_ip = share(app.config.limits.per_ip_rps, app.config.limits.nodes);
        if !app.limits.admit(counted_address(client.address), per_ip, request_id.received_ms()) {
            return Err(Failure::from(Reject::IpRateLimit).closing());
        }
    }
    // Who has no token does not learn which of the operator's paths exist.
    if let Some(rest) = path.strip_prefix(operator::BEGINNING) {
        let rest = rest.to_owned();
        return Box::pin(operator::handle(app, &rest, request, request_id)).await;
    }
    let Found { operation, parameter } = found?;
    let query = request.uri().query().unwrap_or("");
    // The future of a request has room for the largest of these, and is moved: those that are rare are kept apart, so that an event does not pay for them.
    match operation {
        Operation::LogEvent => api::events::post(app, request, Endpoint::Single, client, request_id).await,
        Operation::LogBatch => api::events::post(app, request, Endpoint::Batch, client, request_id).await,
        Operation::ListEvents => Box::pin(api::list::get(app, query, request.headers(), request_id)).await,
        Operation::VerifyChain => Box::pin(api::verify::get(app, query, request.headers(), request_id)).await,
        Operation::ReadEvent => Box::pin(api::read::get(app, parameter, request.headers(), request_id)).await,
        Operation::ListActions => Box::pin(api::actions::get(app, request.headers(), request_id)).await,
        Operation::Health => Ok(text(StatusCode::OK, "ok\n")),
        Operation::Ready => ready(app),
        Operation::Metrics => Box::pin(metrics::get(app, request.headers(), peer.address, request_id)).await,
        Operation::OpenApi => Ok(openapi::get(app, request.headers())),
        Operation::Docs => crate::docs::page(parameter),
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Body> {
    crate::respond::with_type(status, "text/plain; charset=utf-8", body)
}

fn ready(app: &App) -> Result<Response<Body>, Failure> {
    Ok(match app.store.ready() {
        Ok(()) => crate::respond::json(StatusCode::OK, "{\"ready\":true}"),
        Err(error) => {
            let body = serde_json::json!({ "ready": false, "reason": error.to_string() }).to_string();
            crate::respond::json(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    })
}

/// Who sends a request, by address.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub address: IpAddr,
    /// As it stands in events. A connection has it made once.
    pub text: Arc<str>,
}

impl Client {
    fn new(address: IpAddr) -> Client {
        let address = address.to_canonical();
        Client { address, text: address.to_string().into() }
    }
}

/// The peer; behind trusted proxies, the right-most address in `X-Forwarded-For` that is not a proxy's. What stands further left is what a client claims.
fn client(app: &App, headers: &HeaderMap, peer: &Client) -> Client {
    let trusted = |address: IpAddr| app.config.trusted_proxies.iter().any(|range| range.contains(&address));
    if !trusted(peer.address) {
        return peer.clone();
    }
    let mut client = peer.address;
    let hops: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    for hop in hops.into_iter().rev() {
        // A hop that is no address was not written by a proxy that is trusted: nothing left of it can be believed.
        let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !trusted(client) {
            break;
        }
    }
    Client::new(client)
}

/// Turns a panic while a request is answered into an error for that request alone.
struct CatchPanic<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for CatchPanic<'_, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(format!("panic: {}", text.unwrap_or_default())))
            }
        }
    }
}
