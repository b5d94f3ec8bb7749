//! HTTP/2, for clients that choose it in the TLS handshake: the same requests to the same handlers, several at a time on one connection.
//!
//! What hyper and the wire do for HTTP/1.1 is bounded here: requests at a time, bytes that wait to be read, headers, and answers that a client asks for and does not take.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sealog_store::sync::lock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::config::Deadlines;
use crate::connections::Place;
use crate::respond::{self, Body};
use crate::wire::{InFlight, Wire};

/// Requests of one connection at a time.
const STREAMS_MAX: u32 = 64;
/// Bytes of request bodies that may have arrived and not been read: of one request, and of all of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of one answer that wait for the socket, and of those that are handed over at a time.
const SEND_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES_MAX: usize = 16 << 10;
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// A client that is gone without a word is noticed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);
/// How long a connection that was told to end and has nothing under way may take to do so. h2 waits for the answer to a ping of its own, and a client may answer every
/// other one.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Serves a connection until it ends, is told to, or its client takes nothing for too long.
pub(crate) async fn serve<S, F>(
    stream: S,
    place: Arc<Place>,
    deadlines: Deadlines,
    mut stop: watch::Receiver<bool>,
    handle: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let in_flight = InFlight::default();
    // Nothing that is written here is hyper's own word to a request that it cannot parse.
    in_flight.begin();
    let wire = Wire::new(stream, Arc::clone(&place.usage), in_flight, deadlines.write);
    let streams = Arc::new(Streams::new(Arc::clone(&place)));
    let opened = Arc::clone(&streams);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let opened = opened.begin();
        as_http_1(&mut request);
        let is_head = request.method() == Method::HEAD;
        let answer = handle(request);
        Box::pin(async move {
            let response = answer.await;
            Ok::<_, Infallible>(
                if is_head { without_body(response) } else { response }.map(|body| opened.send(body)),
            )
        })
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN)
            .serve_connection(TokioIo::new(wire), service)
    );
    let late = streams.late(deadlines);
    tokio::select! {
        biased;
        ended = &mut connection => return said(ended),
        // Dropped: what it holds is held for others no longer.
        () = late => return,
        _ = stop.wait_for(|stopped| *stopped) => {}
        () = place.usage.ended() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = &mut connection => said(ended),
        () = streams.late(deadlines) => {}
        () = streams.quiet(GOODBYE_MAX) => {}
    }
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The host is in the address here; handlers look for it among the headers.
fn as_http_1(request: &mut Request<Incoming>) {
    let authority = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(authority) = authority {
        request.headers_mut().insert(HOST, authority);
    }
}

/// `HEAD` is answered with the length of what `GET` would bring.
fn without_body(response: Response<Body>) -> Response<Body> {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|_| respond::full(""));
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    response
}

/// Requests under way on one connection.
struct Streams {
    place: Arc<Place>,
    table: Mutex<Table>,
    opened_at: Instant,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    open: BTreeSet<u64>,
    /// Answers of which the client is to take something, and since when.
    offered: HashMap<u64, Instant>,
}

impl Streams {
    fn new(place: Arc<Place>) -> Streams {
        Streams { place, table: Mutex::default(), opened_at: Instant::now() }
    }

    fn begin(self: &Arc<Self>) -> Opened {
        let mut table = lock(&self.table);
        table.next_id += 1;
        let id = table.next_id;
        table.open.insert(id);
        self.place.usage.begin_request();
        Opened { id, streams: Arc::clone(self) }
    }

    /// Returns when an answer was offered for too long, or no request has come in time.
    async fn late(&self, deadlines: Deadlines) {
        let every = (deadlines.write / 4).max(Duration::from_millis(10));
        loop {
            tokio::time::sleep(every).await;
            if self.is_late(Instant::now(), deadlines) {
                return;
            }
        }
    }

    /// Returns when a connection that was told to end so long ago has nothing left to do. What its client begins after that is not waited for: it could go on so for ever.
    async fn quiet(&self, long: Duration) {
        tokio::time::sleep(long).await;
        let newest = lock(&self.table).next_id;
        let mut was_busy = false;
        while self.is_busy(newest) {
            was_busy = true;
            tokio::time::sleep(long / 8).await;
        }
        if was_busy {
            // The end of the last answer is still on its way.
            tokio::time::sleep(long).await;
        }
    }

    fn is_busy(&self, newest: u64) -> bool {
        // A client that does not take what was written has the deadline of the wire.
        let is_stalled = self.place.usage.stalled.load(Ordering::Relaxed);
        is_stalled || lock(&self.table).open.first().is_some_and(|oldest| *oldest <= newest)
    }

    fn is_late(&self, now: Instant, deadlines: Deadlines) -> bool {
        let table = lock(&self.table);
        let nothing_came = table.next_id == 0 && now - self.opened_at > deadlines.headers;
        nothing_came || table.offered.values().any(|since| now - *since > deadlines.write)
    }
}

/// A request that was begun; ended when dropped.
struct Opened {
    id: u64,
    streams: Arc<Streams>,
}

impl Opened {
    fn offer(&self, is_offered: bool) {
        let mut table = lock(&self.streams.table);
        if is_offered {
            table.offered.insert(self.id, Instant::now());
        } else {
            table.offered.remove(&self.id);
        }
    }

    fn send(self, body: Body) -> Sent {
        self.offer(true);
        Sent { body, rest: Bytes::new(), opened: self }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut table = lock(&self.streams.table);
        table.offered.remove(&self.id);
        table.open.remove(&self.id);
        // Handlers say of a connection with one request that it is idle; here others may still be under way.
        if table.open.is_empty() {
            self.streams.place.end_request()
        } else {
            self.streams.place.usage.begin_request()
        }
    }
}

/// An answer. hyper asks for its next piece when the client has room for some of it; while there is nothing to be had, the client is not the one who is waited for.
///
/// Pieces are small, since hyper takes a piece whole and keeps it until the client has taken it, after this is dropped if it was the last. So the last one is a copy: what it was a part of,
/// and its share of the memory for answers, are free with this.
struct Sent {
    body: Body,
    rest: Bytes,
    opened: Opened,
}

impl Sent {
    /// The next piece of what the body has given.
    fn piece(&mut self) -> Option<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        let is_last = self.rest.is_empty() && self.body.is_end_stream();
        (!piece.is_empty()).then(|| if is_last { Bytes::copy_from_slice(&piece) } else { piece })
    }
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            let poll = Pin::new(&mut this.body).poll_frame(context);
            this.opened.offer(poll.is_ready());
            match ready!(poll) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.opened.offer(true);
        Poll::Ready(Some(Ok(Frame::data(this.piece().unwrap_or_default()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(exact) => hint.set_exact(exact + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::atomic::AtomicUsize;

    use http_body_util::Empty;
    use hyper::client::conn::http2 as client;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;
    use crate::connections::{Admitted, Connections};

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(600);

    fn deadlines(headers: Duration, write: Duration) -> Deadlines {
        Deadlines { first_byte: LONG, headers, body: LONG, write }
    }

    type Served = (DuplexStream, tokio::task::JoinHandle<()>, Arc<Connections>, watch::Sender<bool>);

    /// The client's end of a connection whose every answer has this many bytes, the server's task, and its place among the connections.
    fn served(deadlines: Deadlines, bytes: usize) -> Served {
        served_by(deadlines, move |_| std::future::ready(Response::new(respond::full(vec![b'x'; bytes]))))
    }

    fn served_by<F: Future<Output = Response<Body>> + Send + 'static>(
        deadlines: Deadlines,
        handle: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> Served {
        let (theirs, ours) = tokio::io::duplex(1 << 10);
        let connections = Connections::new(1, 0);
        let Admitted::Yes(place) = connections.admit(IpAddr::from([127, 0, 0, 1]), false) else {
            panic!("no place")
        };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(ours, Arc::new(place), deadlines, stopped, handle));
        (theirs, task, connections, stop)
    }

    async fn ask(
        theirs: DuplexStream,
        method: Method,
    ) -> (Response<Incoming>, client::SendRequest<Empty<Bytes>>) {
        let (mut sender, connection) = client::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 10)
            .handshake(TokioIo::new(theirs))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri("https://x/").body(Empty::new()).unwrap();
        (sender.send_request(request).await.unwrap(), sender)
    }

    async fn ends(task: tokio::task::JoinHandle<()>) {
        tokio::time::timeout(sealog_testing::PATIENCE, task).await.expect("it ends").unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_that_is_asked_for_and_not_taken_ends_its_connection() {
        let (theirs, task, connections, _stop) = served(deadlines(LONG, SHORT), 1 << 20);
        let (response, _sender) = ask(theirs, Method::GET).await;
        ends(task).await;
        drop(response);
        assert_eq!(connections.count(), 0, "its place is free");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_chooses_http_2_and_asks_nothing_is_let_go() {
        let (_theirs, task, _connections, _stop) = served(deadlines(SHORT, SHORT), 0);
        ends(task).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stop_ends_an_idle_connection_and_head_has_the_length_without_the_body() {
        let (theirs, task, _connections, stop) = served(deadlines(LONG, LONG), 7);
        let (response, _sender) = ask(theirs, Method::HEAD).await;
        assert_eq!(response.headers()[CONTENT_LENGTH], "7");
        assert!(response.body().is_end_stream());
        stop.send(true).unwrap();
        ends(task).await;
    }

    /// The payload of the ping after which h2 ends a connection that was told to.
    const SHUTDOWN_PING: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const ACK: u8 = 1;
    /// The request has no body, and no more headers.
    const WHOLE: u8 = 5;
    /// GET, /, https: numbers of the static table.
    const GET: [u8; 3] = [0x82, 0x84, 0x87];

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
    }

    /// A client that answers every ping but the one after which its connection would end. Takes frames to send, and tells kind and stream of those that come.
    fn clinging(theirs: DuplexStream) -> (UnboundedSender<Vec<u8>>, UnboundedReceiver<(u8, u8)>) {
        let (mut reader, mut writer) = tokio::io::split(theirs);
        let ((send, mut to_send), (seen, frames)) = (unbounded_channel::<Vec<u8>>(), unbounded_channel());
        tokio::spawn(async move {
            while let Some(bytes) = to_send.recv().await {
                let _ = writer.write_all(&bytes).await;
            }
        });
        send.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()).unwrap();
        send.send(frame(SETTINGS, 0, 0, &[])).unwrap();
        let answers = send.clone();
        tokio::spawn(async move {
            let mut head = [0; 9];
            while reader.read_exact(&mut head).await.is_ok() {
                let mut payload = vec![0; (usize::from(head[1]) << 8) | usize::from(head[2])];
                reader.read_exact(&mut payload).await.unwrap();
                match (head[3], head[4]) {
                    (SETTINGS, 0) => answers.send(frame(SETTINGS, ACK, 0, &[])).unwrap(),
                    (PING, 0) if payload != SHUTDOWN_PING => {
                        answers.send(frame(PING, ACK, 0, &payload)).unwrap();
                    }
                    _ => {}
                }
                let _ = seen.send((head[3], head[8]));
            }
        });
        (send, frames)
    }

    async fn comes(frames: &mut UnboundedReceiver<(u8, u8)>, expected: (u8, u8)) {
        let comes = async { while frames.recv().await.expect("it comes") != expected {} };
        tokio::time::timeout(sealog_testing::PATIENCE, comes).await.expect("it comes in time");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_has_64_requests_under_way_at_most() {
        const RST_STREAM: u8 = 3;
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let (theirs, _task, _connections, _stop) = served_by(deadlines(LONG, LONG), move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        });
        let (send, mut frames) = clinging(theirs);
        for request in 0..70 {
            send.send(frame(HEADERS, WHOLE, 2 * request + 1, &GET)).unwrap();
        }
        // The first that is too many is refused, and so is the last.
        for stream in [2 * 64 + 1, 2 * 69 + 1] {
            comes(&mut frames, (RST_STREAM, stream)).await;
        }
        assert_eq!(begun.load(Ordering::SeqCst), 64);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_keeps_its_connection_alive_and_does_not_let_it_end_is_let_go() {
        for makes_room in [false, true] {
            let (theirs, task, connections, stop) = served(deadlines(LONG, LONG), 0);
            let (_send, mut frames) = clinging(theirs);
            comes(&mut frames, (SETTINGS, 0)).await;
            if makes_room {
                // The only place of this server, for another address.
                let newcomer = connections.admit(IpAddr::from([127, 0, 0, 2]), false);
                assert!(matches!(newcomer, Admitted::Yes(_)));
            } else {
                stop.send(true).unwrap();
            }
            comes(&mut frames, (GOAWAY, 0)).await;
            ends(task).await;
            assert_eq!(connections.count(), 0, "its place is free");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stop_waits_for_a_request_that_is_under_way_and_not_for_one_that_comes_long_after() {
        let (go_on, held) = watch::channel(false);
        let (begun, mut under_way) = unbounded_channel();
        let (theirs, task, _connections, stop) = served_by(deadlines(LONG, LONG), move |_| {
            let mut held = held.clone();
            begun.send(()).unwrap();
            async move {
                let is_first = !*held.borrow_and_update();
                if !is_first {
                    std::future::pending::<()>().await;
                }
                held.wait_for(|is_over| *is_over).await.unwrap();
                Response::new(respond::full("done"))
            }
        });
        let (send, mut frames) = clinging(theirs);
        send.send(frame(HEADERS, WHOLE, 1, &GET)).unwrap();
        under_way.recv().await.unwrap();
        stop.send(true).unwrap();
        comes(&mut frames, (GOAWAY, 0)).await;
        // Longer than an idle connection may take. A shorter pause tests less and fails nothing.
        tokio::time::sleep(2 * GOODBYE_MAX).await;
        assert!(!task.is_finished());
        go_on.send(true).unwrap();
        send.send(frame(HEADERS, WHOLE, 3, &GET)).unwrap();
        under_way.recv().await.unwrap();
        comes(&mut frames, (HEADERS, 1)).await;
        ends(task).await;
    }
}
