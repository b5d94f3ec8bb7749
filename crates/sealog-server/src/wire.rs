//! The socket under hyper: hyper's own answers are taken out, clients that stop reading are cut off, and a
//! close lets the answer arrive.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::connections::Usage;

/// Most that is read and thrown away after the answer, and for how long: a client that is still sending would
/// otherwise see its connection reset before it has read why.
const LINGER_BYTES: usize = 4 << 20;
const LINGER: Duration = Duration::from_secs(2);

/// Whether what hyper writes belongs to a request that a handler has. What it writes otherwise is its own:
/// the bare answer to a request that it cannot parse. Written bytes are never looked at, so content may look
/// like anything.
///
/// t0: hyper hands a request over; from here on it may write `100 Continue`. t1: the handler has answered.
/// t2: the answer's body has ended; hyper may still have bytes of it. t3: hyper has written everything and
/// flushes. From then on a write is hyper's own, until the next request.
///
/// hyper parses the next request after t3. Only where a request is answered before its body has arrived can
/// it do so earlier, and put its own answer behind bytes that the client has not taken yet; then they go out
/// together, and nothing is added. `http.rs` does not let that happen: when it answers, the body has arrived,
/// or the connection ends with the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicU8>);

const NOTHING: u8 = 0;
const HANDLING: u8 = 1;
const BODY_ENDED: u8 = 2;

impl InFlight {
    /// A request is handed over.
    pub(crate) fn begin(&self) {
        self.0.store(HANDLING, Ordering::Relaxed);
    }

    /// The body of the answer to the request that was handed over last.
    pub(crate) fn track<B>(self, body: B) -> Tracked<B> {
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

/// Over a TCP socket, or over TLS on top of one.
#[derive(Debug)]
pub(crate) struct Wire<S = TcpStream> {
    stream: S,
    in_flight: InFlight,
    /// hyper has answered a request itself, and nobody has seen it.
    withheld: bool,
    write_deadline: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// It is a flush that waits: TLS takes bytes before the socket does.
    flushing: bool,
    usage: Arc<Usage>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(
        stream: S,
        usage: Arc<Usage>,
        in_flight: InFlight,
        write_deadline: Duration,
    ) -> Wire<S> {
        Wire { stream, in_flight, withheld: false, write_deadline, stalled: None, flushing: false, usage }
    }

    /// Whether an answer of hyper's own was withheld, so that the client still waits for one.
    pub(crate) fn has_withheld(&self) -> bool {
        self.withheld
    }

    /// Ends the connection, with these bytes as the last. With `unread`, what the client still sends is taken
    /// in first, within bounds.
    pub(crate) async fn close(mut self, last: Option<Vec<u8>>, unread: bool) -> io::Result<()> {
        let unread = unread || last.is_some();
        if let Some(last) = last {
            self.send(&last).await?;
        }
        // TLS says goodbye first, and the client may not listen.
        tokio::time::timeout(self.write_deadline, self.stream.shutdown()).await??;
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

    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = poll_fn(|context| {
                let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
                self.within_deadline(context, poll)
            });
            bytes = &bytes[sent.await?..];
        }
        Ok(())
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
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.in_flight.is_nothing() {
            self.withheld = true;
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
        if let [only] = slices {
            return self.poll_write(context, only);
        }
        if self.in_flight.is_nothing() {
            self.withheld = true;
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.within_deadline(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => flushed?,
            Poll::Pending => {
                self.flushing = true;
                return self.within_deadline(context, Poll::Pending);
            }
        }
        if std::mem::take(&mut self.flushing) && self.stalled.take().is_some() {
            self.usage.stalled.store(false, Ordering::Relaxed);
        }
        self.in_flight.flushed();
        Poll::Ready(Ok(()))
    }

    /// hyper has written all it had. The socket is left open for what [`Wire::close`] sends.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Body, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    /// What hyper says of a request that it cannot parse.
    const BARE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n";
    const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const NONSENSE: &str = "nonsense\r\n\r\n";

    /// The client's end of a connection that hyper serves over a wire. Where an answer of hyper's own was
    /// withheld, the last word is `ENVELOPE`.
    async fn served<F, B>(answer: impl Fn(Request<Incoming>) -> F + Send + 'static) -> TcpStream
    where
        F: Future<Output = B> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let in_flight = InFlight::default();
        let wire = Wire::new(stream, Arc::default(), in_flight.clone(), Duration::from_secs(60));
        let service = service_fn(move |request| {
            in_flight.begin();
            let (in_flight, answer) = (in_flight.clone(), answer(request));
            Box::pin(async move { Ok::<_, Infallible>(Response::new(in_flight.track(answer.await))) })
        });
        tokio::spawn(async move {
            let mut connection =
                http1::Builder::new().half_close(true).serve_connection(TokioIo::new(wire), service);
            let ended = (&mut connection).await;
            let wire = connection.into_parts().io.into_inner();
            let last = (ended.is_err() && wire.has_withheld()).then(|| b"ENVELOPE".to_vec());
            let _ = wire.close(last, false).await;
        });
        client
    }

    /// All that arrives, with the lines that change left out.
    async fn all_that_arrives(mut client: TcpStream) -> String {
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        received.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
    }

    /// Comes piece by piece, and lets hyper write each before the next.
    struct Pieces(VecDeque<Bytes>, bool);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.1 = !self.1;
            if self.1 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_no_request_gets_one_envelope_first_and_between_and_after_answers() {
        for before in 0..3 {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            for at_once in [true, false] {
                let mut client = served(async |_| Full::new(Bytes::from("ok"))).await;
                let mut sent = String::new();
                for request in std::iter::repeat_n(GET, before).chain([NONSENSE, GET]) {
                    if at_once {
                        sent.push_str(request);
                    } else {
                        let _ = client.write_all(request.as_bytes()).await;
                        tokio::task::yield_now().await;
                    }
                }
                client.write_all(sent.as_bytes()).await.unwrap();
                let received = all_that_arrives(client).await;
                assert_eq!(received, [&answer.repeat(before), "ENVELOPE"].concat(), "{before} {at_once}");
            }
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn content_that_looks_like_hypers_own_answer_is_sent_as_it_is_however_it_is_cut() {
        let content = [BARE, "\r\n", BARE, "\r\n"].concat();
        for cut in 0..content.len() {
            let pieces =
                [&content[..cut], &content[cut..]].map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
            let mut client = served(move |_| std::future::ready(Pieces(pieces.clone().into(), false))).await;
            let last = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            client.write_all([GET, last].concat().as_bytes()).await.unwrap();
            let received = all_that_arrives(client).await;
            let chunks: String = [&content[..cut], &content[cut..]]
                .iter()
                .filter(|piece| !piece.is_empty())
                .map(|piece| format!("{:X}\r\n{piece}\r\n", piece.len()))
                .collect();
            let answer = |closing: &str| {
                format!("HTTP/1.1 200 OK\r\n{closing}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
            };
            assert_eq!(received, [answer(""), answer("connection: close\r\n")].concat(), "{cut}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_written_while_a_body_is_awaited_is_sent() {
        let mut client = served(async |request: Request<Incoming>| {
            Full::new(request.into_body().collect().await.unwrap().to_bytes())
        })
        .await;
        let head = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut first = [0; 25];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all([b"hi", NONSENSE.as_bytes()].concat().as_slice()).await.unwrap();
        let received = all_that_arrives(client).await;
        assert!(received.ends_with("\r\n\r\nhiENVELOPE"), "{received}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nonsense_behind_an_answer_that_is_not_taken_yet_costs_no_byte_of_it() {
        let content = Bytes::from("HTTP/1.1 400 Bad Request\r\n\r\n".repeat(1 << 19));
        let body = content.clone();
        let mut client = served(move |_| std::future::ready(Full::new(body.clone()))).await;
        client.write_all([GET, NONSENSE].concat().as_bytes()).await.unwrap();
        // It has begun to answer, and has more to say than the sockets hold.
        client.readable().await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let received = all_that_arrives(client).await;
        let (_, received) = received.split_once("\r\n\r\n").unwrap();
        assert!(received.as_bytes().starts_with(&content));
        assert_eq!(&received[content.len()..], "ENVELOPE");
    }
}
