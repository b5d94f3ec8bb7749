//! Connections, and the order in which every request is dealt with: request id, per-address window, route.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
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
use crate::operator;
use crate::respond::{Body, Failure, full};

/// How long a stop waits for requests under way.
const STOP_WAIT: Duration = Duration::from_secs(9);

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
    let headers_deadline = app.config.deadlines.headers;
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(handle(&app, request, peer.ip()).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(headers_deadline)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return trace_end(ended),
        _ = stop.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    trace_end(connection.await);
}

fn trace_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Answers a request. Every answer has its id, whatever happens on the way.
async fn handle(app: &Arc<App>, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
    let request_id = RequestId(Ulid::new(app.world.now_ms(), app.world.random80()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = AssertUnwindSafe(route(app, request, peer, request_id));
    let mut response = match CatchPanic(Box::pin(answer.0)).await {
        Ok(Ok(response)) => response,
        Ok(Err(failure)) => failure.into_response(request_id, &app.config),
        Err(cause) => Failure::internal(&cause, request_id).closing().into_response(request_id, &app.config),
    };
    if method == Method::HEAD {
        *response.body_mut() = full("");
    }
    let id = HeaderValue::try_from(request_id.to_string()).expect("letters, digits and an underscore");
    response.headers_mut().insert("x-request-id", id);
    tracing::debug!(%request_id, %method, path, status = response.status().as_u16(), "answered");
    response
}

async fn route(
    app: &Arc<App>,
    request: Request<Incoming>,
    peer: IpAddr,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let path = request.uri().path();
    match path {
        "/healthz" => return only_get(&request, || Ok(text(StatusCode::OK, "ok\n"))),
        "/readyz" => return only_get(&request, || ready(app)),
        _ => {}
    }
    let client = client_address(app, request.headers(), peer);
    let per_ip = share(app.config.limits.per_ip_rps, app.config.limits.nodes);
    if !app.limits.admit(counted_address(client), per_ip, app.world.now_ms()) {
        return Err(Failure::from(Reject::IpRateLimit).closing());
    }
    let (is_get, is_post) = (request.method() == Method::GET, request.method() == Method::POST);
    match path {
        "/v1/events" if is_post => {
            api::events::post(app, request, Endpoint::Single, client, request_id).await
        }
        "/v1/events/batch" if is_post => {
            api::events::post(app, request, Endpoint::Batch, client, request_id).await
        }
        "/v1/events" if is_get => {
            api::list::get(app, request.uri().query().unwrap_or(""), request.headers(), request_id).await
        }
        "/v1/events/verify" if is_get => {
            api::verify::get(app, request.uri().query().unwrap_or(""), request.headers(), request_id).await
        }
        "/v1/actions" if is_get => api::actions::get(app, request.headers(), request_id).await,
        "/v1/events" => Err(Failure::method_not_allowed("GET, POST")),
        "/v1/events/batch" => Err(Failure::method_not_allowed("POST")),
        "/v1/events/verify" | "/v1/actions" => Err(Failure::method_not_allowed("GET")),
        _ if path == "/docs" || path.starts_with("/docs/") => {
            only_get(&request, || crate::docs::page(&path["/docs".len()..]))
        }
        _ if path.starts_with("/operator/v1/") => {
            let rest = path["/operator/v1/".len()..].to_owned();
            operator::handle(app, &rest, request, request_id).await
        }
        _ => match path.strip_prefix("/v1/events/") {
            Some(log_id) if !log_id.is_empty() && !log_id.contains('/') && is_get => {
                api::read::get(app, log_id, request.headers(), request_id).await
            }
            Some(log_id) if !log_id.is_empty() && !log_id.contains('/') => {
                Err(Failure::method_not_allowed("GET"))
            }
            _ => Err(Reject::PathNotFound.into()),
        },
    }
}

fn only_get(
    request: &Request<Incoming>,
    answer: impl FnOnce() -> Result<Response<Body>, Failure>,
) -> Result<Response<Body>, Failure> {
    if request.method() == Method::GET { answer() } else { Err(Failure::method_not_allowed("GET")) }
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

/// The peer's address; behind trusted proxies, the right-most one in `X-Forwarded-For` that is not a proxy's. What stands further left is what a client claims.
fn client_address(app: &App, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let trusted = |address: IpAddr| app.config.trusted_proxies.iter().any(|range| range.contains(&address));
    let peer = peer.to_canonical();
    if !trusted(peer) {
        return peer;
    }
    let mut client = peer;
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
    client
}

/// Turns a panic while a request is answered into an error for that request alone.
struct CatchPanic<F>(std::pin::Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        use std::task::Poll;
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
