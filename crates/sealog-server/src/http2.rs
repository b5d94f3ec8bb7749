//! HTTP/2, for clients that choose it in the TLS handshake: the same requests to the same handlers, several
//! at a time on one connection.
//!
//! What hyper and the wire do for HTTP/1.1 is bounded here: requests at a time, bytes that wait to be read,
//! headers, and answers that a client asks for and does not take.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};

use crate::config::Deadlines;
use crate::connections::{Place, StreamsGrant};
use crate::respond::{self, Body};
use crate::wire::{InFlight, Wire};

/// Bytes of request bodies that may have arrived and not been read: of one request, and of all of a
/// connection for each request that it may have under way. HTTP/2 begins with 64 KiB, so none has less.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW_OF_REQUEST: u32 = 4 << 10;
/// Bytes of one answer that wait for the socket, and of those that are handed over at a time.
const SEND_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Bytes of an answer that the memory for answers does not count: its last piece, which a client may leave
/// untaken for as long as the connection lasts.
const LAST_PIECE_BYTES_MAX: usize = 1 << 10;
/// Frames that are neither requests nor their bodies: what a client may send of them at once, what each
/// request adds, and for how many bytes that were sent to it another one. Clients acknowledge what they have
/// read, and h2 works on each frame before it reads the next, so a client without a bound would have an event
/// loop for itself. One a second is for those who keep an idle connection alive.
const CONTROL_FRAMES: u32 = 1024;
const CONTROL_FRAMES_OF_REQUEST: u32 = 8;
const BYTES_OF_CONTROL_FRAME: usize = 256;
/// What is saved up for what is still on its way: 64 windows of 4 MiB, acknowledged every 4 KiB for the
/// stream and for the connection.
const CONTROL_FRAMES_MAX: u32 = 128 << 10;
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// A client that is gone without a word is noticed.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);
/// How long a connection that was told to end and has nothing under way may take to do so. h2 waits for the
/// answer to a ping of its own, and a client may answer every other one.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Serves a connection until it ends, is told to, or its client takes nothing for too long.
pub(crate) async fn serve<S, F>(
    stream: S,
    (place, granted): (Arc<Place>, StreamsGrant),
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
    let too_many = Arc::new(Notify::new());
    let counted = Counted::new(stream, Arc::clone(&too_many));
    let wire = Wire::new(counted, Arc::clone(&place.usage), in_flight, deadlines.write);
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
            .max_concurrent_streams(granted.count)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW.max(granted.count * WINDOW_OF_REQUEST))
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
        () = too_many.notified() => {
            tracing::debug!("a client sent too many control frames; closing its connection");
        }
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

/// A connection whose control frames are counted. Once there are too many, nothing more is read of it.
struct Counted<S> {
    stream: S,
    frames: Frames,
    /// Up to when time has allowed frames.
    since: Instant,
    is_over: bool,
    too_many: Arc<Notify>,
}

impl<S> Counted<S> {
    fn new(stream: S, too_many: Arc<Notify>) -> Counted<S> {
        Counted { stream, frames: Frames::default(), since: Instant::now(), is_over: false, too_many }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_over {
            // Nobody wakes it: what the connection still has to send wakes it by itself.
            return Poll::Pending;
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let seconds = self.since.elapsed().as_secs();
        if seconds > 0 {
            self.since += Duration::from_secs(seconds);
            self.frames.wait(seconds);
        }
        if !self.frames.take(&into.filled()[before..]) {
            self.is_over = true;
            self.too_many.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.frames.sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        self.frames.sent(sent);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Which frames a client sends, by their heads: nothing else of them is looked at.
#[derive(Debug)]
struct Frames {
    /// Control frames that the client may still send.
    left: u32,
    /// Bytes sent to it that no frame was allowed for yet.
    sent: usize,
    /// Bytes to pass over: the preface, then the payload of a frame.
    to_skip: usize,
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
}

/// Of each frame: three of length, kind, flags, four of the stream.
const HEAD_BYTES: usize = 9;
const PREFACE_BYTES: usize = 24;
const KIND_DATA: u8 = 0;
const KIND_HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

impl Default for Frames {
    fn default() -> Frames {
        Frames { left: CONTROL_FRAMES, sent: 0, to_skip: PREFACE_BYTES, head: [0; HEAD_BYTES], head_bytes: 0 }
    }
}

impl Frames {
    /// Returns false if these bytes have a control frame too many.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let skipped = self.to_skip.min(bytes.len());
            self.to_skip -= skipped;
            bytes = &bytes[skipped..];
            let of_head = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..][..of_head].copy_from_slice(&bytes[..of_head]);
            self.head_bytes += of_head;
            bytes = &bytes[of_head..];
            if self.head_bytes == HEAD_BYTES && !self.begin_frame() {
                return false;
            }
        }
        true
    }

    fn begin_frame(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.head_bytes = 0;
        self.to_skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            KIND_HEADERS => self.allow(CONTROL_FRAMES_OF_REQUEST),
            KIND_DATA if self.to_skip > 0 || flags & END_STREAM != 0 => {}
            _ if self.left == 0 => return false,
            _ => self.left -= 1,
        }
        true
    }

    fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        let frames = self.sent / BYTES_OF_CONTROL_FRAME;
        self.sent %= BYTES_OF_CONTROL_FRAME;
        self.allow(u32::try_from(frames).unwrap_or(u32::MAX));
    }

    /// So much time has gone by. It brings no more than a client has at first.
    fn wait(&mut self, seconds: u64) {
        let saved = self.left.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX));
        self.left = self.left.max(saved.min(CONTROL_FRAMES));
    }

    fn allow(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(CONTROL_FRAMES_MAX);
    }
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
        loop {
            let due = self.due(Instant::now(), deadlines);
            tokio::time::sleep_until(due.into()).await;
            if self.is_late(Instant::now(), deadlines) {
                return;
            }
        }
    }

    /// When something can be late first: the first request, an answer that is offered, or one that will be
    /// from now on.
    fn due(&self, now: Instant, deadlines: Deadlines) -> Instant {
        let table = lock(&self.table);
        let first_request = (table.next_id == 0).then(|| self.opened_at + deadlines.headers);
        let answers = table.offered.values().map(|since| *since + deadlines.write);
        answers.chain(first_request).fold(now + deadlines.write, Instant::min)
    }

    /// Returns when a connection that was told to end so long ago has nothing left to do. What its client
    /// begins after that is not waited for: it could go on so for ever.
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
        let nothing_came = table.next_id == 0 && now - self.opened_at >= deadlines.headers;
        nothing_came || table.offered.values().any(|since| now - *since >= deadlines.write)
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

/// An answer. hyper asks for its next piece when the client has room for some of it; while there is nothing
/// to be had, the client is not the one who is waited for.
///
/// Pieces are small, since hyper takes a piece whole and keeps it until the client has taken it, after this
/// is dropped if it was the last. So the last one is a copy: what it was a part of, and its share of the
/// memory for answers, are free with this. The last one is smaller than the others, since nothing counts it
/// and it has no deadline.
struct Sent {
    body: Body,
    rest: Bytes,
    opened: Opened,
}

impl Sent {
    /// The next piece of what the body has given.
    fn piece(&mut self) -> Option<Bytes> {
        let is_end = self.body.is_end_stream();
        let kept_for_last =
            if is_end && self.rest.len() > LAST_PIECE_BYTES_MAX { LAST_PIECE_BYTES_MAX } else { 0 };
        let piece = self.rest.split_to((self.rest.len() - kept_for_last).min(PIECE_BYTES_MAX));
        let is_last = self.rest.is_empty() && is_end;
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

    /// The client's end of a connection whose every answer has this many bytes, the server's task, and its
    /// place among the connections.
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
        let granted = place.streams().expect("it is the first");
        let task = tokio::spawn(serve(ours, (Arc::new(place), granted), deadlines, stopped, handle));
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

    /// A client that answers every ping but the one after which its connection would end. Takes frames to
    /// send, and tells kind and stream of those that come.
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

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_sends_control_frames_without_end_is_sent_away() {
        const PRIORITY: u8 = 2;
        const WINDOW_UPDATE: u8 = 8;
        const UNKNOWN: u8 = 0x42;
        let one = [0, 0, 0, 1];
        for flood in [
            frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
            frame(WINDOW_UPDATE, 0, 0, &one),
            frame(PING, 0, 0, &[7; 8]),
            frame(SETTINGS, 0, 0, &[]),
            frame(UNKNOWN, 0, 0, &[]),
        ] {
            let (theirs, task, connections, _stop) = served(deadlines(LONG, LONG), 0);
            let (send, mut frames) = clinging(theirs);
            for _ in 0..10_000 {
                send.send(flood.clone()).unwrap();
            }
            comes(&mut frames, (GOAWAY, 0)).await;
            ends(task).await;
            assert_eq!(connections.count(), 0, "its place is free");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_client_that_acknowledges_little_by_little_what_it_reads_is_served() {
        let (theirs, _task, _connections, _stop) = served(deadlines(LONG, LONG), 4 << 20);
        let (response, _sender) = ask(theirs, Method::GET).await;
        let read = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        assert_eq!(read.len(), 4 << 20);
    }

    #[test]
    fn control_frames_are_counted_however_their_bytes_are_cut_and_requests_allow_more() {
        let ping = frame(PING, 0, 0, &[0; 8]);
        for cut in 1..40 {
            let mut frames = Frames::default();
            let bytes = [vec![0; PREFACE_BYTES], ping.repeat(CONTROL_FRAMES as usize)].concat();
            assert!(bytes.chunks(cut).all(|piece| frames.take(piece)), "{cut}");
            assert_eq!(frames.left, 0);
            // Bodies cost nothing, unless they are empty frames that end nothing.
            let data = [frame(KIND_DATA, 0, 1, &[1, 2]), frame(KIND_DATA, END_STREAM, 1, &[])].concat();
            assert!(data.chunks(cut).all(|piece| frames.take(piece)));
            assert!(!frames.take(&frame(KIND_DATA, 0, 1, &[])));
            let request = frame(KIND_HEADERS, WHOLE, 1, &GET);
            assert!(frames.take(&request) && frames.left == CONTROL_FRAMES_OF_REQUEST);
            frames.sent(2 * BYTES_OF_CONTROL_FRAME - 1);
            frames.sent(1);
            assert_eq!(frames.left, CONTROL_FRAMES_OF_REQUEST + 2);
            frames.wait(7);
            assert_eq!(frames.left, CONTROL_FRAMES_OF_REQUEST + 2 + 7);
            frames.wait(u64::MAX);
            assert_eq!(frames.left, CONTROL_FRAMES);
            frames.sent(1 << 40);
            frames.wait(1);
            assert_eq!(frames.left, CONTROL_FRAMES_MAX);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_more_than_a_kilobyte_of_an_answer_outlives_its_share_of_the_memory() {
        let streams = || {
            let Admitted::Yes(place) = Connections::new(1, 0).admit(IpAddr::from([127, 0, 0, 1]), false)
            else {
                panic!("no place")
            };
            Arc::new(Streams::new(Arc::new(place)))
        };
        for length in [0, 1, 1023, 1024, 1025, 16 << 10, (16 << 10) + 1, (17 << 10) + 1, 1 << 20] {
            let content = Bytes::from(vec![b'x'; length]);
            let within = content.as_ptr_range();
            let mut sent = streams().begin().send(respond::full(content.clone()));
            let mut sizes = Vec::new();
            while let Some(frame) = http_body_util::BodyExt::frame(&mut sent).await {
                let piece = frame.unwrap().into_data().unwrap();
                let is_copy = !within.contains(&piece.as_ptr());
                assert!(!is_copy || piece.len() <= LAST_PIECE_BYTES_MAX, "{length}: {}", piece.len());
                sizes.push(piece.len());
            }
            assert_eq!(sizes.iter().sum::<usize>(), length);
            assert!(sizes.iter().all(|size| (1..=PIECE_BYTES_MAX).contains(size)), "{length}: {sizes:?}");
        }
    }

    #[test]
    fn a_connection_without_a_request_is_late_at_its_deadline_and_not_at_the_next_look() {
        let Admitted::Yes(place) = Connections::new(1, 0).admit(IpAddr::from([127, 0, 0, 1]), false) else {
            panic!("no place")
        };
        let streams = Arc::new(Streams::new(Arc::new(place)));
        let (headers, write) = (Duration::from_secs(10), Duration::from_secs(30));
        let limits = deadlines(headers, write);
        let due = streams.opened_at + headers;
        assert_eq!(streams.due(streams.opened_at, limits), due);
        assert!(!streams.is_late(due - Duration::from_nanos(1), limits) && streams.is_late(due, limits));
        // With a request, the next that can be late is its answer.
        let opened = streams.begin();
        assert_eq!(streams.due(due, limits), due + write);
        opened.offer(true);
        let offered_at = lock(&streams.table).offered[&opened.id];
        assert_eq!(streams.due(offered_at + headers, limits), offered_at + write);
    }
}
