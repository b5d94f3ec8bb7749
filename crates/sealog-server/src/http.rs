//! Connections, and the order in which every request is dealt with: request id, framing, per-address window,
//! route.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use sealog_core::id::{RequestId, Ulid};
use sealog_core::reject::Reject;
use sealog_service::ingest::{Client, Endpoint};
use sealog_service::{Stop, Visit};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower_service::Service;

use crate::api;
use crate::app::App;
use crate::body::RequestBody;
use crate::catch_panic::CatchPanic;
use crate::client_address::{self, is_local, is_proxy};
use crate::connections::{Connections, Place};
use crate::framing;
use crate::http2;
use crate::limits::{counted_address, share};
use crate::metrics;
use crate::operator_routes;
use crate::redirect;
use crate::respond::{self, Answer, Body, Failure};
use crate::router::{self, Origin};
use crate::routes;
use crate::tlog_routes;
use crate::tls::{self, Tls};
use crate::traces::Answered;
use crate::wire::{InFlight, Wire};

/// How long a stop waits for requests under way.
const STOP_WAIT: Duration = Duration::from_secs(9);

/// How often an event loop looks at its sockets before it ends a connection that seems idle. One look reports
/// 1,024 of them, and there are 10,000 connections at most (`limits.connections`).
const LOOKS: usize = 10;
/// Connections that a stop still takes from the kernel: no listener has more of them waiting.
const BACKLOG_MAX: usize = 4096;

/// Connections of whoever collects the metrics.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// Connections of those who run the instance.
const CONSOLE_CONNECTIONS_MAX: usize = 64;
/// Where the operator's console is, and what its paths begin with.
const CONSOLE: &str = "/ops";
const CONSOLE_BEGINNING: &str = "/ops/";

/// Most that a request line and headers may have.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A server that can be told to stop.
#[derive(Debug)]
pub struct Server {
    pub(crate) stop: Stop,
}

impl Server {
    pub fn new() -> Server {
        Server { stop: Stop::new() }
    }

    /// What ends with this server waits for it.
    pub fn stopping(&self) -> &Stop {
        &self.stop
    }

    /// No more connections are accepted; those that are idle are closed, and requests under way are finished.
    pub fn stop(&self) {
        self.stop.stop();
    }
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Main,
    /// The one that has `/metrics` and nothing else.
    Metrics,
    /// The one that has the operator's console and nothing else.
    Console,
    /// Plain HTTP beside TLS, which leads there and nowhere else.
    Plain,
}

/// What answers the requests of a listener.
struct Front {
    app: Arc<App>,
    listener: Listener,
    router: Router,
    secure: Option<Secure>,
}

/// What a listener with TLS has more.
struct Secure {
    tls: Arc<Tls>,
    /// Tells browsers to come with TLS from now on.
    hsts: Option<HeaderValue>,
    /// For those who speak plain HTTP to it.
    plain: Arc<Front>,
}

/// Serves connections until the server is stopped and what was under way is done.
pub async fn serve(app: Arc<App>, listener: TcpListener, server: &Server) {
    serve_with_pages(app, Router::new(), listener, server).await;
}

/// As [`serve`], with pages for paths that the API does not have. They pass the same checks as any request
/// before they are asked, and their answers get an `X-Request-Id`.
///
/// # Panics
///
/// If the pages take a path of the API's, or have a fallback: a path that nobody has is answered with the
/// API's envelope.
pub async fn serve_with_pages(app: Arc<App>, pages: Router, listener: TcpListener, server: &Server) {
    let connections = Arc::clone(&app.connections);
    accept(Front::new(app, Listener::Main, pages), listener, connections, server).await;
}

/// As [`serve`], for a listener that answers `GET /metrics` to whoever reaches it, and nothing else.
pub async fn serve_metrics(app: Arc<App>, listener: TcpListener, server: &Server) {
    let connections = Connections::new(METRICS_CONNECTIONS_MAX, 0);
    accept(Front::new(app, Listener::Metrics, Router::new()), listener, connections, server).await;
}

/// As [`serve`], for a listener that answers the paths of the operator's console, and nothing else.
pub async fn serve_console(app: Arc<App>, pages: Router, listener: TcpListener, server: &Server) {
    let connections = Connections::new(CONSOLE_CONNECTIONS_MAX, 0);
    accept(Front::new(app, Listener::Console, pages), listener, connections, server).await;
}

/// As [`serve`], for a listener that leads whoever comes with plain HTTP to TLS.
pub async fn serve_plain(app: Arc<App>, listener: TcpListener, server: &Server) {
    let connections = Arc::clone(&app.connections);
    accept(Front::new(app, Listener::Plain, Router::new()), listener, connections, server).await;
}

impl Front {
    fn new(app: Arc<App>, listener: Listener, pages: Router) -> Arc<Front> {
        let router = router::new(Arc::clone(&app), pages);
        let has_tls = matches!(listener, Listener::Main | Listener::Console);
        let secure = app.config.tls.clone().filter(|_| has_tls).map(|tls| {
            let seconds = app.config.hsts_seconds;
            let hsts = HeaderValue::try_from(format!("max-age={seconds}")).ok().filter(|_| seconds > 0);
            Secure { tls, hsts, plain: Front::new(Arc::clone(&app), Listener::Plain, Router::new()) }
        });
        Arc::new(Front { app, listener, router, secure })
    }
}

async fn accept(front: Arc<Front>, listener: TcpListener, connections: Arc<Connections>, server: &Server) {
    let app = &front.app;
    let stop = server.stop.subscribe();
    let mut waiting = Waiting { stop: stop.clone(), stopped_at: None };
    let mut from_backlog = 0;
    loop {
        let accepted = if waiting.stopped_at.is_some() {
            // What the kernel has accepted may have sent its request: closing the listener would reset it.
            from_backlog += 1;
            match look_again(pin!(listener.accept())).await {
                Some(accepted) if from_backlog <= BACKLOG_MAX => accepted,
                _ => break,
            }
        } else {
            tokio::select! {
                () = waiting.stopped() => continue,
                accepted = listener.accept() => accepted,
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let is_proxy = is_proxy(peer.ip(), &app.config.trusted_proxies);
                // Until there is a place, whoever comes next waits in the kernel. A stop makes places: those
                // that are idle end, and the others with their answers.
                let place = tokio::select! {
                    biased;
                    place = connections.place(peer.ip(), is_proxy) => place,
                    () = waiting.given_up() => break,
                };
                let Some(place) = place else {
                    app.metrics.connection_refused();
                    continue;
                };
                tokio::spawn(connection(Arc::clone(&front), stream, peer, Arc::new(place), stop.clone()));
            }
            Err(error) => {
                // Most likely out of file descriptors: give those that are open a moment to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                    () = waiting.given_up() => break,
                }
            }
        }
    }
    drop(listener);
    tokio::select! {
        biased;
        () = connections.none_left() => {}
        () = waiting.given_up() => {
            tracing::warn!("some requests did not finish in time; closed their connections");
        }
    }
}

/// For how long a listener goes on after a stop.
struct Waiting {
    stop: watch::Receiver<bool>,
    stopped_at: Option<Instant>,
}

impl Waiting {
    async fn stopped(&mut self) {
        let _ = self.stop.wait_for(|stopped| *stopped).await;
        self.stopped_at.get_or_insert_with(Instant::now);
    }

    async fn given_up(&mut self) {
        self.stopped().await;
        if let Some(stopped_at) = self.stopped_at {
            tokio::time::sleep_until((stopped_at + STOP_WAIT).into()).await;
        }
    }
}

/// Polls what is about to be given up once more, after the event loop has looked at its sockets.
///
/// t0: a request arrives in the kernel. t1: the connection is told to end (a stop, or another connection
/// needs its place). t2: its task runs; the event loop has not looked at the socket since t0, so the
/// connection seems idle. Closing it now would reset it, and the client would not know whether its request
/// was taken. A request that arrives after the last look is lost with its connection, as HTTP/1.1 allows
/// between two requests; nothing of it was read.
async fn look_again<F: Future>(mut given_up: Pin<&mut F>) -> Option<F::Output> {
    for _ in 0..LOOKS {
        // The runtime polls the sockets before it resumes a task that has yielded.
        tokio::task::yield_now().await;
        let polled = std::future::poll_fn(|context| Poll::Ready(given_up.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
    }
    None
}

/// Waits for the beginning of a connection; `None` if it is told to end before, and nothing has arrived by
/// then.
async fn unless_ended<F: Future>(
    beginning: F,
    place: &Place,
    stop: &mut watch::Receiver<bool>,
) -> Option<F::Output> {
    let mut beginning = pin!(beginning);
    tokio::select! {
        biased;
        begun = &mut beginning => return Some(begun),
        () = place.usage.ended() => {}
        _ = stop.wait_for(|stopped| *stopped) => {}
    }
    look_again(beginning).await
}

async fn connection(
    front: Arc<Front>,
    stream: TcpStream,
    peer: SocketAddr,
    place: Arc<Place>,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    // A connection that says nothing holds a place; hyper's own deadline begins with the first byte.
    let mut first = [0];
    // Peeked at, since a socket may be called readable before it is.
    let spoke = tokio::time::timeout(front.app.config.deadlines.first_byte, stream.peek(&mut first));
    let spoke = unless_ended(spoke, &place, &mut stop).await;
    if !matches!(spoke, Some(Ok(Ok(1)))) {
        return;
    }
    match &front.secure {
        None => exchange(front, stream, peer, place, stop).await,
        Some(secure) if first != [tls::HANDSHAKE] => {
            exchange(Arc::clone(&secure.plain), stream, peer, place, stop).await;
        }
        // Kept apart, so that a connection without TLS does not pay for its memory.
        Some(_) => Box::pin(connection_with_tls(front, stream, peer, place, stop)).await,
    }
}

/// Agrees on keys, and on HTTP/1.1 or HTTP/2. A client has as long for it as for headers, and then as long
/// for its first byte as any other.
async fn connection_with_tls(
    front: Arc<Front>,
    stream: TcpStream,
    peer: SocketAddr,
    place: Arc<Place>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(secure) = &front.secure else { return };
    let deadlines = front.app.config.deadlines;
    let streams = place.streams();
    let begun = async {
        let handshake = secure.tls.handshake(stream, streams.is_some());
        let handshake = tokio::time::timeout(deadlines.headers, handshake);
        let mut stream = match handshake.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return None;
            }
            Err(_) => return None,
        };
        let first = tokio::time::timeout(deadlines.first_byte, stream.fill_buf()).await;
        matches!(first, Ok(Ok(bytes)) if !bytes.is_empty()).then_some(stream)
    };
    let begun = unless_ended(begun, &place, &mut stop).await;
    let Some(Some(stream)) = begun else { return };
    let streams = match streams.filter(|_| tls::speaks_http_2(&stream)) {
        Some(streams) => streams,
        None => return exchange(front, stream, peer, place, stop).await,
    };
    let peer = Client::new(peer.ip());
    let used = Arc::clone(&place);
    let handle = move |request| {
        let (front, peer, place) = (Arc::clone(&front), peer.clone(), Arc::clone(&used));
        async move { handle(&front, request, peer, &place).await }
    };
    http2::serve(stream, (place, streams), deadlines, stop, handle).await;
}

/// Speaks HTTP/1.1, over TCP or over TLS.
async fn exchange(
    front: Arc<Front>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    place: Arc<Place>,
    mut stop: watch::Receiver<bool>,
) {
    let peer = Client::new(peer.ip());
    let deadlines = front.app.config.deadlines;
    let usage = Arc::clone(&place.usage);
    let in_flight = InFlight::default();
    let wire = Wire::new(stream, usage, in_flight.clone(), deadlines.write);
    // Set when an answer was given without reading the whole request.
    let unread = Arc::new(AtomicBool::new(false));
    let closing = Arc::clone(&unread);
    let (used, handling) = (Arc::clone(&place), Arc::clone(&front));
    let service = service_fn(move |request| {
        let (front, closing, peer) = (Arc::clone(&handling), Arc::clone(&closing), peer.clone());
        let (place, in_flight) = (Arc::clone(&used), in_flight.clone());
        in_flight.begin();
        Box::pin(async move {
            place.usage.begin_request();
            let response = handle(&front, request, peer, &place).await;
            closing.fetch_or(response.headers().contains_key(CONNECTION), Ordering::Relaxed);
            Ok::<_, Infallible>(respond::until_sent(response, place).map(|body| in_flight.track(body)))
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
        // Drawing lots each time has a price, and whoever stops the server can wait for the answer that is
        // ready.
        biased;
        ended = &mut connection => Some(ended),
        _ = stop.wait_for(|stopped| *stopped) => None,
        () = place.usage.ended() => None,
    };
    let ended = match ended {
        Some(ended) => Some(ended),
        None => look_again(Pin::new(&mut connection)).await,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            // A request whose body is only read to be dropped need not be waited for.
            place.usage.end();
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    let parts = connection.into_parts();
    let (wire, unparsed) = (parts.io.into_inner(), parts.read_buf);
    let last = ended.err().and_then(|error| {
        tracing::debug!(%error, "a connection ended");
        unparsable(&error, &unparsed, &wire).map(|failure| answer_unparsable(&front.app, &failure))
    });
    // The client may be gone, and then there is nobody to close for.
    let _ = wire.close(last, unread.load(Ordering::Relaxed)).await;
}

/// A request that hyper cannot parse never reaches a handler, but is answered like any other: unless hyper's
/// own answer went out behind another one, which the client had not taken yet.
fn unparsable<S: AsyncRead + AsyncWrite + Unpin>(
    error: &hyper::Error,
    unparsed: &[u8],
    wire: &Wire<S>,
) -> Option<Failure> {
    // hyper knows the preface of HTTP/2 and ends the connection without a word.
    if error.is_parse_version_h2() {
        return Some(Failure::malformed(framing::HTTP_2));
    }
    let reject = match error.is_parse_too_large() {
        // hyper says the same of a length that it cannot count to, and has taken the head by then.
        true if !begins_with_request(unparsed) => {
            Reject::BodyTooLarge { bytes_max: Endpoint::Batch.body_bytes_max() }
        }
        true => Reject::HeadersTooLarge,
        false => Reject::Malformed,
    };
    wire.has_withheld().then(|| reject.into())
}

/// Whether these bytes are a head, or as much of one as is read.
fn begins_with_request(unparsed: &[u8]) -> bool {
    let line = unparsed.split(|byte| *byte == b'\n').next().unwrap_or_default();
    unparsed.len() >= HEAD_BYTES_MAX || line.trim_ascii_end().windows(6).any(|version| version == b"HTTP/1")
}

fn answer_unparsable(app: &App, failure: &Failure) -> Vec<u8> {
    let request_id = new_request_id(app);
    let status = failure.code().status();
    tracing::debug!(%request_id, status, "answered a request that cannot be parsed");
    app.metrics.rejected(failure.code());
    failure.to_bytes(request_id, &app.config)
}

fn new_request_id(app: &App) -> RequestId {
    RequestId(Ulid::new(app.service.world.now_ms(), app.service.world.random80()))
}

/// Answers a request. Every answer has its id, whatever happens on the way.
async fn handle(
    front: &Front,
    request: Request<Incoming>,
    peer: Client,
    connection: &Place,
) -> Response<Body> {
    let app = &front.app;
    let request_id = new_request_id(app);
    let begun = Instant::now();
    let (mut parts, body) = request.into_parts();
    let mut body = RequestBody::new(body, &parts.headers);
    let place = metrics::Place::of(&parts.method, parts.uri.path());
    let traces = app.config.traces.as_deref();
    let traceparent = traces.and_then(|_| parts.headers.get(TRACEPARENT).cloned());
    // Kept apart, since they are rare and the future of a request is moved.
    if !body.has_ended() && matches!(parts.method, Method::GET | Method::HEAD) {
        // Before it is answered: pages hold memory that others wait for.
        Box::pin(drop_rest(app, &mut body, connection)).await;
    }
    let answer = {
        let answer = std::pin::pin!(answer(front, &mut parts, &mut body, peer, request_id));
        CatchPanic(answer).await.unwrap_or_else(|cause| Err(Failure::internal(&cause, request_id).closing()))
    };
    let mut response = answer.unwrap_or_else(|failure| {
        app.metrics.rejected(failure.code());
        failure.render(request_id, &app.config)
    });
    if !body.has_ended()
        && !response.headers().contains_key(CONNECTION)
        && !Box::pin(drop_rest(app, &mut body, connection)).await
    {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let id = HeaderValue::from_bytes(&request_id.to_text()).expect("letters, digits and an underscore");
    response.headers_mut().insert(X_REQUEST_ID, id);
    if let Some(hsts) = front.secure.as_ref().and_then(|secure| secure.hsts.clone()) {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts);
    }
    app.metrics.answered(place, response.status(), begun.elapsed());
    let (route, method) = (place.route(), place.method());
    if let Some(traces) = traces {
        let (status, took) = (response.status().as_u16(), begun.elapsed());
        let traceparent = traceparent.as_ref().map(HeaderValue::as_bytes);
        let route = place.pattern();
        traces.answered(&Answered { route, method, status, request_id, took, traceparent });
    }
    tracing::debug!(%request_id, method, route, status = response.status().as_u16(), "answered");
    response
}

/// Drops the rest of a body that nobody reads. Meanwhile the connection is not in use: a client that takes
/// its time over it makes room for others.
async fn drop_rest(app: &App, body: &mut RequestBody, connection: &Place) -> bool {
    connection.end_request();
    let give_up = async {
        tokio::select! {
            () = tokio::time::sleep(app.config.deadlines.body) => {}
            () = connection.usage.ended() => {}
        }
    };
    let dropped = body.drop_rest(give_up).await;
    connection.usage.begin_request();
    dropped
}

async fn answer(
    front: &Front,
    parts: &mut Parts,
    body: &mut RequestBody,
    peer: Client,
    request_id: RequestId,
) -> Answer {
    let app = &front.app;
    framing::check(parts)?;
    let (path, headers) = (parts.uri.path(), &parts.headers);
    let client = client_address::behind(&peer, headers, &app.config.trusted_proxies);
    app.untrusted_forwarders.look(
        peer.address,
        headers,
        &app.config.trusted_proxies,
        request_id.received_ms(),
    );
    if !routes::NOT_COUNTED.contains(&path) {
        let per_ip = share(app.config.limits.per_ip_rps, app.config.limits.nodes);
        if !app.limits.admit(counted_address(client.address), per_ip, request_id.received_ms()) {
            return Err(Reject::IpRateLimit.into());
        }
    }
    let is_here = match front.listener {
        Listener::Plain => {
            let is_probe = redirect::PROBES.contains(&path);
            if !is_probe || !is_local(peer.address, headers, &app.config.trusted_proxies) {
                return redirect::to_https(parts, &app.service.settings.app_url)
                    .ok_or_else(|| Reject::PathNotFound.into());
            }
            true
        }
        Listener::Main => path != routes::METRICS || !app.config.metrics_apart,
        Listener::Metrics => path == routes::METRICS,
        Listener::Console => path == CONSOLE || path.starts_with(CONSOLE_BEGINNING),
    };
    if !is_here {
        return Err(Reject::PathNotFound.into());
    }
    if let Some(endpoint) = routes::endpoint(&parts.method, path) {
        return api::events::post(app, headers, body, endpoint, client, request_id).await;
    }
    // Who has no token does not learn which of the operator's paths exist.
    if path.starts_with(operator_routes::BEGINNING) {
        app.auth.operator(headers)?;
    }
    let for_metrics = front.listener == Listener::Metrics;
    let origin = Origin { request_id, peer: peer.address, client: client.address, for_metrics };
    let visit = Visit { request_id, address: client.address };
    // The future of a request is moved: those that are rare are kept apart, so that an event does not pay for
    // them.
    Box::pin(route(front, parts, body, origin, visit)).await
}

/// Asks the router. It gets the body on loan, so that what its handlers leave can be dropped.
async fn route(
    front: &Front,
    parts: &mut Parts,
    body: &mut RequestBody,
    origin: Origin,
    visit: Visit,
) -> Answer {
    let mut parts = std::mem::replace(parts, Request::new(()).into_parts().0);
    let path = parts.uri.path();
    let is_page = routes::position(&routes::PATHS, path).is_none()
        && ![operator_routes::BEGINNING, tlog_routes::BEGINNING]
            .iter()
            .any(|beginning| path.starts_with(beginning));
    // `HEAD` asks for what `GET` does. hyper leaves out the body, and writes what it knows of its length.
    if parts.method == Method::HEAD {
        parts.method = Method::GET;
    }
    parts.extensions.insert(origin);
    if is_page {
        parts.extensions.insert(visit);
    }
    let loan = body.lend();
    let lent = if is_page { loan.body_within(front.app.config.deadlines.body) } else { loan.body() };
    let response = front.router.clone().call(Request::from_parts(parts, lent)).await;
    body.take_back(&loan);
    respond::from_router(response.unwrap_or_else(|never| match never {}))
}
