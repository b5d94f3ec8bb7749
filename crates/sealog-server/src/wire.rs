//! The socket under hyper: an envelope for requests that hyper cannot parse, an end to clients that stop reading, and a close that lets the answer arrive.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::connections::Usage;

/// Most that is read and thrown away after the answer, and for how long: a client that is still sending would otherwise see its connection reset before it has read why.
const LINGER_BYTES: usize = 4 << 20;
const LINGER: Duration = Duration::from_secs(2);

/// The longest head that hyper writes by itself.
const BARE_LEN_MAX: usize = 256;

/// Whether what hyper writes is a handler's answer. Only when it is not can it be one of hyper's own: content of events, pages and exports is never looked at.
///
/// t0: a handler has answered. t1: its body has ended; hyper may still have bytes of it. t2: hyper has written everything and flushes. From then on a write is hyper's own, until the next
/// answer. hyper reads no further request before t2, so none of its own answers comes between.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicU8>);

const NOTHING: u8 = 0;
const ANSWERING: u8 = 1;
const BODY_ENDED: u8 = 2;

impl InFlight {
    /// From here on writes belong to the answer that has this body.
    pub(crate) fn begin<B>(self, body: B) -> Tracked<B> {
        self.0.store(ANSWERING, Ordering::Relaxed);
        Tracked { body, in_flight: self }
    }

    fn flushed(&self) {
        let _ = self.0.compare_exchange(BODY_ENDED, NOTHING, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_nothing(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NOTHING
    }
}

/// A handler's body, which tells when hyper is done with it.
#[derive(Debug)]
pub(crate) struct Tracked<B> {
    body: B,
    in_flight: InFlight,
}

impl<B> Drop for Tracked<B> {
    fn drop(&mut self) {
        self.in_flight.0.store(BODY_ENDED, Ordering::Relaxed);
    }
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub(crate) struct Wire<F> {
    stream: TcpStream,
    in_flight: InFlight,
    /// Writes an answer for a request that has no handler, since hyper could not make sense of it.
    answer: F,
    /// What stands in place of hyper's own answer and is not sent yet.
    replaced: Vec<u8>,
    sent: usize,
    write_deadline: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    usage: Arc<Usage>,
}

impl<F: FnMut(StatusCode) -> Vec<u8> + Unpin> Wire<F> {
    pub(crate) fn new(
        stream: TcpStream,
        usage: Arc<Usage>,
        in_flight: InFlight,
        write_deadline: Duration,
        answer: F,
    ) -> Wire<F> {
        Wire {
            stream,
            in_flight,
            answer,
            replaced: Vec::new(),
            sent: 0,
            write_deadline,
            stalled: None,
            usage,
        }
    }

    /// What is sent before the connection is closed. For requests that hyper ends without an answer.
    pub(crate) fn answer_last(&mut self, answer: Vec<u8>) {
        self.replaced = answer;
        self.sent = 0;
    }

    /// Ends the connection. With `unread`, what the client still sends is taken in first, within bounds.
    pub(crate) async fn close(mut self, unread: bool) -> io::Result<()> {
        let unread = unread || !self.replaced.is_empty();
        self.shutdown().await?;
        if !unread {
            return Ok(());
        }
        let stream = &mut self.stream;
        let linger = async {
            let mut scrap = vec![0; 16 << 10];
            let mut taken = 0;
            while taken < LINGER_BYTES {
                match stream.read(&mut scrap).await? {
                    0 => break,
                    some => taken += some,
                }
            }
            Ok(())
        };
        tokio::time::timeout(LINGER, linger).await.unwrap_or(Ok(()))
    }

    /// A client that takes nothing for this long holds memory that others need.
    fn within_deadline<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            if self.stalled.take().is_some() {
                self.usage.stalled.store(false, Ordering::Relaxed);
            }
            return poll;
        }
        self.usage.stalled.store(true, Ordering::Relaxed);
        let write_deadline = self.write_deadline;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_deadline)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }

    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.replaced.len() {
            let poll = Pin::new(&mut self.stream).poll_write(context, &self.replaced[self.sent..]);
            self.sent += ready!(self.within_deadline(context, poll))?;
        }
        Poll::Ready(Ok(()))
    }
}

/// Where in a write that is no handler's hyper's own answer begins, and its status.
fn bare_answer(written: &[u8]) -> Option<(usize, StatusCode)> {
    if !written.ends_with(b"\r\n\r\n") {
        return None;
    }
    const START: &[u8] = b"HTTP/1.1 4";
    let from = written.len().saturating_sub(BARE_LEN_MAX);
    let at = from + written[from..].windows(START.len()).rposition(|window| window == START)?;
    let head = &written[at..];
    let named = head.windows(15).any(|window| window.eq_ignore_ascii_case(b"\r\nx-request-id:"));
    if named {
        return None;
    }
    Some((at, StatusCode::from_bytes(&head[9..12]).ok()?))
}

impl<F: Unpin> AsyncRead for Wire<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<F: FnMut(StatusCode) -> Vec<u8> + Unpin> AsyncWrite for Wire<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_replaced(context))?;
        if self.in_flight.is_nothing()
            && let Some((at, status)) = bare_answer(bytes)
        {
            // Taken over whole, so that a short write cannot cut hyper's answer in two; the flush that follows sends it.
            let answer = (self.answer)(status);
            self.replaced = [&bytes[..at], &answer].concat();
            self.sent = 0;
            return Poll::Ready(Ok(bytes.len()));
        }
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within_deadline(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // hyper's own answer has no body, so it comes alone.
        if let [only] = slices {
            return self.poll_write(context, only);
        }
        ready!(self.poll_replaced(context))?;
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within_deadline(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replaced(context))?;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.in_flight.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replaced(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_without_a_request_id_is_hypers_own() {
        let bare =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(bare_answer(bare), Some((0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)));
        let ours = b"HTTP/1.1 404 Not Found\r\nX-Request-Id: req_1\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(bare_answer(ours), None);
        let behind = [ours.as_slice(), bare].concat();
        assert_eq!(bare_answer(&behind).map(|(at, _)| at), Some(ours.len()));
        assert_eq!(bare_answer(b"{\"metadata\":\"HTTP/1.1 400 Bad Request\"}"), None);
        assert_eq!(bare_answer(b"\r\n\r\n"), None);
    }

    const BARE: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

    /// A wire, what was handed over to it, and the client's end.
    async fn connected() -> (Wire<impl FnMut(StatusCode) -> Vec<u8> + Unpin>, InFlight, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let in_flight = InFlight::default();
        let wire = Wire::new(stream, Arc::default(), in_flight.clone(), Duration::from_secs(60), |_| {
            b"ENVELOPE".to_vec()
        });
        (wire, in_flight, client)
    }

    async fn all_that_arrives(mut client: TcpStream) -> String {
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        received
    }

    #[tokio::test(flavor = "current_thread")]
    async fn content_that_looks_like_hypers_own_answer_is_sent_as_it_is() {
        let (mut wire, in_flight, client) = connected().await;
        let body = in_flight.clone().begin(());
        wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        wire.flush().await.unwrap();
        // A piece while the body goes on, and its last one, which hyper writes when it has let go of the body.
        wire.write_all(BARE).await.unwrap();
        wire.flush().await.unwrap();
        drop(body);
        wire.write_all(BARE).await.unwrap();
        wire.flush().await.unwrap();
        drop(wire);
        let content = [b"HTTP/1.1 200 OK\r\n\r\n", BARE, BARE].concat();
        assert_eq!(all_that_arrives(client).await.as_bytes(), content);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn hypers_own_answer_is_replaced_before_the_first_answer_and_between_answers() {
        let (mut wire, in_flight, client) = connected().await;
        wire.write_all(BARE).await.unwrap();
        wire.flush().await.unwrap();
        drop(in_flight.clone().begin(()));
        wire.write_all(b"first;").await.unwrap();
        wire.flush().await.unwrap();
        wire.write_all(BARE).await.unwrap();
        wire.flush().await.unwrap();
        drop(wire);
        assert_eq!(all_that_arrives(client).await, "ENVELOPEfirst;ENVELOPE");
    }
}
