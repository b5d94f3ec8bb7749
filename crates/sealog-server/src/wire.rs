//! The socket under hyper: an envelope for requests that hyper cannot parse, an end to clients that stop reading, and a close that lets the answer arrive.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Most that is read and thrown away after the answer, and for how long: a client that is still sending would otherwise see its connection reset before it has read why.
const LINGER_BYTES: usize = 4 << 20;
const LINGER: Duration = Duration::from_secs(2);

/// The longest head that hyper writes by itself.
const BARE_LEN_MAX: usize = 256;

pub(crate) struct Wire<F> {
    stream: TcpStream,
    /// Writes an answer for a request that has no handler, since hyper could not make sense of it.
    answer: F,
    /// What stands in place of hyper's own answer and is not sent yet.
    replaced: Vec<u8>,
    sent: usize,
    write_deadline: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<F: FnMut(StatusCode) -> Vec<u8> + Unpin> Wire<F> {
    pub(crate) fn new(stream: TcpStream, write_deadline: Duration, answer: F) -> Wire<F> {
        Wire { stream, answer, replaced: Vec::new(), sent: 0, write_deadline, stalled: None }
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
            self.stalled = None;
            return poll;
        }
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

/// Where in a write hyper's own answer begins, and its status. Everything that a handler answers has a request id, and JSON has no line ends of its own.
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
        if let Some((at, status)) = bare_answer(bytes) {
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
        Pin::new(&mut self.stream).poll_flush(context)
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
}
