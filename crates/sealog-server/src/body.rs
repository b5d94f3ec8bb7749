//! Request bodies: bounded in size before they are buffered, and in time. What no handler has read is
//! dropped, if it is small, so that the connection can be used again.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_ENCODING, EXPECT};
use sealog_core::id::{RequestId, TenantId};
use sealog_core::reject::Reject;
use sealog_store::sync::lock;
use tokio::time::Sleep;

use crate::app::App;
use crate::budget::Share;
use crate::respond::Failure;

/// As much as every connection may hold without asking.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// What is read before others have their turn.
const TURN_BYTES: usize = 64 << 10;

/// Most of a body that is read for nothing. Closing would cost a client more than sending these, and a proxy
/// a new TLS handshake for every refusal.
const DROPPED_BYTES_MAX: usize = 64 << 10;

/// The body of a request, and how far it has been read.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// Nothing while it is lent.
    incoming: Option<Incoming>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client asks before it sends the body. hyper tells it to go on when the body is first polled.
    Announced,
    Arriving,
    Ended,
    /// Where it ends cannot be told any more.
    Broken,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, headers: &HeaderMap) -> RequestBody {
        let state = if incoming.is_end_stream() {
            State::Ended
        } else if awaits_continue(headers) {
            State::Announced
        } else {
            State::Arriving
        };
        RequestBody { incoming: Some(incoming), state }
    }

    /// Nothing of it is left, so the next request can follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Hands it to the router, until it is taken back. If it never is, as after a panic, where it ends cannot
    /// be told.
    pub(crate) fn lend(&mut self) -> Loan {
        let state = std::mem::replace(&mut self.state, State::Broken);
        Loan(Arc::new(Mutex::new(Some(RequestBody { incoming: self.incoming.take(), state }))))
    }

    /// What the router has left of it. Whoever still holds it reads an error from now on.
    pub(crate) fn take_back(&mut self, loan: &Loan) {
        if let Some(rest) = lock(&loan.0).take() {
            *self = rest;
        }
    }

    /// Reads the rest and drops it, piece by piece, so that the connection can be used again. False if it
    /// cannot be: the rest is too long, broken or late, or the client has not begun to send it and should not
    /// have to.
    pub(crate) async fn drop_rest(&mut self, give_up: impl Future<Output = ()>) -> bool {
        if self.state == State::Arriving {
            tokio::select! {
                biased;
                () = self.drop_small() => {}
                () = give_up => {}
            }
            if self.state == State::Arriving {
                self.state = State::Broken;
            }
        }
        self.has_ended()
    }

    /// Reads until the end, or until there is too much.
    async fn drop_small(&mut self) {
        let mut left = DROPPED_BYTES_MAX as u64;
        while self.state == State::Arriving && self.size_hint().lower() <= left {
            let data = self.frame().await.and_then(Result::ok).and_then(|frame| frame.into_data().ok());
            match left.checked_sub(data.map_or(0, |data| data.len() as u64)) {
                Some(less) => left = less,
                None => return,
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let Some(incoming) = this.incoming.as_mut() else { return Poll::Ready(None) };
        if matches!(this.state, State::Ended | State::Broken) {
            return Poll::Ready(None);
        }
        this.state = State::Arriving;
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(context));
        match &frame {
            Some(Ok(_)) if !incoming.is_end_stream() => {}
            Some(Ok(_)) | None => this.state = State::Ended,
            Some(Err(_)) => this.state = State::Broken,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// A body that was handed to the router.
#[derive(Debug)]
pub(crate) struct Loan(Arc<Mutex<Option<RequestBody>>>);

impl Loan {
    /// The body for a handler that reads it with [`read`], which has a deadline.
    pub(crate) fn body(&self) -> Lent {
        Lent { body: Arc::clone(&self.0), within: None, late: None }
    }

    /// The body for a handler that just reads it: an error comes when it does not arrive in time.
    pub(crate) fn body_within(&self, within: Duration) -> Lent {
        Lent { within: Some(within), ..self.body() }
    }
}

/// The body as the router's handlers see it.
#[derive(Debug)]
pub(crate) struct Lent {
    body: Arc<Mutex<Option<RequestBody>>>,
    within: Option<Duration>,
    /// From the first look on.
    late: Option<Pin<Box<Sleep>>>,
}

impl Body for Lent {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Lent { body, within, late } = &mut *self;
        let mut body = lock(body);
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err("the request was answered already".into())));
        };
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(within) = *within else { return Poll::Pending };
        let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(late.as_mut().poll(context));
        body.state = State::Broken;
        Poll::Ready(Some(Err("the body did not arrive in time".into())))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.body).as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.body).as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// The whole body, if it has at most this many bytes and is not compressed.
pub(crate) async fn read<B>(
    app: &App,
    headers: &HeaderMap,
    body: &mut B,
    bytes_max: usize,
    whose: Option<TenantId>,
    request_id: RequestId,
) -> Result<(Bytes, Option<Share>), Failure>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let read = read_as_sent(app, body, bytes_max, whose, request_id).await?;
    // Never decompressed: a few kilobytes could become gigabytes.
    if headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        let detail = "compressed bodies are not accepted; send the body without Content-Encoding".into();
        return Err(Reject::InvalidJson { detail }.into());
    }
    Ok(read)
}

/// Whether the body is a gzip. Any other coding, and a second layer, is refused.
pub(crate) fn is_gzip(headers: &HeaderMap) -> Result<bool, Reject> {
    let mut layers = 0;
    for value in headers.get_all(CONTENT_ENCODING) {
        for coding in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match coding {
                b"" => {}
                coding if coding.eq_ignore_ascii_case(b"identity") => {}
                coding if coding.eq_ignore_ascii_case(b"gzip") => layers += 1,
                _ => return Err(Reject::UnsupportedEncoding),
            }
        }
    }
    if layers > 1 { Err(Reject::UnsupportedEncoding) } else { Ok(layers == 1) }
}

/// The whole body, however it is encoded, if it has at most this many bytes. Reading stops at the first byte
/// too many.
///
/// A small one is simply read. What is larger needs a share of the memory for bodies first: a client may
/// declare two megabytes and then send them over half a minute.
pub(crate) async fn read_as_sent<B>(
    app: &App,
    body: &mut B,
    bytes_max: usize,
    whose: Option<TenantId>,
    request_id: RequestId,
) -> Result<(Bytes, Option<Share>), Failure>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let too_large = || Failure::from(Reject::BodyTooLarge { bytes_max }).closing();
    let length = body.size_hint().lower();
    if length > bytes_max as u64 {
        return Err(too_large());
    }
    let mut content = Content::default();
    let mut share = None;
    if length > SMALL_BYTES_MAX as u64 {
        let length = usize::try_from(length).unwrap_or(bytes_max);
        share = large(app, whose, length, request_id).await?;
        // Only now: a length is a claim until there is memory for it.
        content.all.reserve(length);
    }
    let collect = async {
        let mut arrived = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| Reject::InvalidJson { detail: format!("cannot read the body: {error}") })?;
            if let Ok(data) = frame.into_data() {
                if content.len() + data.len() > bytes_max {
                    return Err(too_large());
                }
                if share.is_none() && content.len() + data.len() > SMALL_BYTES_MAX {
                    share = large(app, whose, bytes_max, request_id).await?;
                    // Once and for all: to grow by doubling could take twice as much as was asked for.
                    content.all.reserve(bytes_max);
                }
                arrived += data.len();
                content.push(data);
                // Copying megabytes in one go would keep everyone else on this event loop waiting.
                if arrived >= TURN_BYTES {
                    arrived = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    };
    match tokio::time::timeout(app.config.deadlines.body, collect).await {
        Ok(result) => result?,
        Err(_) => {
            return Err(Failure::from(Reject::InvalidJson {
                detail: "the body did not arrive in time".into(),
            })
            .closing());
        }
    }
    Ok((content.freeze(), share))
}

/// What has arrived. Most bodies are small and come in one piece, which is then not copied.
#[derive(Default)]
struct Content {
    first: Bytes,
    all: BytesMut,
}

impl Content {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 && self.all.capacity() == 0 {
            self.first = piece;
            return;
        }
        // Joined as soon as there are two, so that at most one piece keeps a buffer of the connection.
        let first = std::mem::take(&mut self.first);
        self.all.extend_from_slice(&first);
        self.all.extend_from_slice(&piece);
    }

    fn freeze(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

/// Memory for a large body, of the tenant's share.
pub(crate) async fn large(
    app: &App,
    whose: Option<TenantId>,
    bytes: usize,
    request_id: RequestId,
) -> Result<Option<Share>, Failure> {
    let Some(tenant_id) = whose else { return Ok(None) };
    let share = app.bodies.take(tenant_id, bytes).await;
    share.map(Some).map_err(|exhausted| Failure::write(&exhausted, request_id).closing())
}

fn awaits_continue(headers: &HeaderMap) -> bool {
    headers.get_all(EXPECT).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
