//! `GET /v1/events`. Spec 4.3.
//!
//! A page is read, rendered and sent in pieces. A connection holds what it has not sent of one piece, whose
//! memory is accounted for until the last byte has left (`budget.rs`), and the next piece is read only when
//! the connection wants it: a client that reads slowly keeps one piece, however large its page is.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::{HeaderMap, Response};
use sealog_core::event::{EVENT_BYTES_MAX, StoredEvent};
use sealog_core::id::{ChainId, RequestId};
use sealog_core::query::{self, ListQuery};
use sealog_store::pool::Lane;
use sealog_store::{BoxFuture, List, StoreError};

use crate::app::App;
use crate::respond::{Body, Failure, in_pieces};

/// Bytes of events after which a piece ends. Its last event may be as large as a body.
const PIECE_BYTES: usize = 256 << 10;
/// A page up to this size is put together before it is sent, so that a failure can still become an error; a
/// larger one is sent as it is read.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// What JSON adds to the text of an event, all in all: names, ids, times, hashes. Annotations come on top.
pub(super) const RENDERED_BYTES: usize = 1 << 10;
/// Most that a piece takes while it is made: events and their records, then events and their JSON.
const HELD_BYTES_MAX: usize = 2 * (PIECE_BYTES + EVENT_BYTES_MAX);
/// Fewer bytes than this are rendered where they are: the way to the thread pool and back would take longer.
const RENDERED_AT_ONCE_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn get(
    app: &Arc<App>,
    query: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = app.auth.authenticate(&app.limits, headers, request_id).await?;
    let query = ListQuery::parse(query, caller.chain())?;
    let mut page = Page {
        chain: caller.chain(),
        query,
        written: 0,
        last_seq: 0,
        short_chunks: 0,
        begun: false,
        complete: false,
    };
    let share = app.reads.take(caller.chain().tenant_id, WHOLE_BYTES_MAX + HELD_BYTES_MAX).await;
    let mut share = share.map_err(|exhausted| Failure::read(&exhausted, request_id))?;
    let mut pieces = VecDeque::new();
    let mut bytes = 0;
    while !page.complete && bytes < WHOLE_BYTES_MAX {
        let piece = page.next_piece(app).await.map_err(|error| Failure::read(&error, request_id))?;
        bytes += piece.len();
        pieces.push_back(share.hold(piece));
    }
    drop(share);
    Ok(in_pieces(Pieces { app: Arc::clone(app), request_id, ready: pieces, rest: Rest::of(page) }))
}

/// Most pieces of a page for which the store has looked at as much as one call may and found less than was
/// asked for. The page then ends with what it has: its cursor goes on from there, and the next request waits
/// for its turn like everyone's.
const SHORT_CHUNKS_MAX: usize = 4;

/// A page under way.
struct Page {
    chain: ChainId,
    query: ListQuery,
    written: usize,
    last_seq: u64,
    short_chunks: usize,
    begun: bool,
    complete: bool,
}

impl Page {
    /// The JSON of the next events.
    async fn next_piece(&mut self, app: &App) -> Result<Vec<u8>, StoreError> {
        // One more than the page has room for tells whether there is another page.
        let left = self.query.limit.get() - self.written;
        let list = List {
            filter: self.query.filter.clone(),
            before_seq: self.query.before_seq,
            limit: left + 1,
            bytes_max: PIECE_BYTES,
        };
        let chunk = app.service.store.list(self.chain, list).await?;
        let (mut events, resume) = (chunk.items, chunk.resume);
        let bytes: usize = events.iter().map(|event| event.text.as_str().len()).sum();
        let more = events.len() > left;
        events.truncate(left);
        let found = events.len();
        if let Some(last) = events.last() {
            self.last_seq = last.sealed.chain_seq;
        }
        self.written += found;
        self.query.before_seq = resume;
        // Stores count bytes in ways of their own, so a piece that was cut for its bytes is told by having
        // about as many.
        self.short_chunks += usize::from(resume.is_some() && !more && bytes < PIECE_BYTES / 2);
        // Where the page before this one, or the work that one page may cause, ends: the next page goes on
        // from there.
        let cursor = match resume {
            _ if more => Some(self.last_seq),
            Some(resume) if self.short_chunks == SHORT_CHUNKS_MAX => Some(resume),
            _ => None,
        };
        self.complete = cursor.is_some() || resume.is_none();
        let begins = !std::mem::replace(&mut self.begun, true);
        let follows = self.written > found;
        let end = match (self.complete, cursor) {
            (true, Some(cursor)) => {
                let cursor = query::encode_cursor(cursor, self.chain);
                format!("],\"next_cursor\":\"{cursor}\",\"has_more\":true}}")
            }
            (true, None) => "],\"has_more\":false}".to_owned(),
            (false, _) => String::new(),
        };
        let put = move |events: &[StoredEvent], out: &mut Vec<u8>| {
            if begins {
                out.extend_from_slice(b"{\"events\":[");
            }
            for (at, event) in events.iter().enumerate() {
                if at > 0 || follows {
                    out.push(b',');
                }
                event.put_json(out);
            }
            out.extend_from_slice(end.as_bytes());
        };
        render(app, self.chain, events, put).await.ok_or(StoreError::Closing)
    }
}

/// Writes the JSON of events, many bytes of them in the thread pool and in their tenant's turn. The events
/// are gone when it is done; nothing if the store is closing.
pub(super) async fn render(
    app: &App,
    chain: ChainId,
    events: Vec<StoredEvent>,
    put: impl FnOnce(&[StoredEvent], &mut Vec<u8>) + Send + 'static,
) -> Option<Vec<u8>> {
    let length = |event: &StoredEvent| {
        let annotations = event.annotations.values();
        RENDERED_BYTES
            + event.text.as_str().len()
            + annotations.into_iter().flatten().map(str::len).sum::<usize>()
    };
    let bytes = RENDERED_BYTES + events.iter().map(length).sum::<usize>();
    let write = move || {
        let mut out = Vec::with_capacity(bytes);
        put(&events, &mut out);
        // It is kept until the client has read it.
        out.shrink_to_fit();
        out
    };
    if bytes <= RENDERED_AT_ONCE_BYTES_MAX {
        return Some(write());
    }
    app.service.store.pool().run(Lane::Compute, chain, bytes, write).await.ok()
}

/// The body of a page. If reading fails after the first bytes were sent, the connection ends in the middle of
/// the JSON, which no client can take for a page.
struct Pieces {
    app: Arc<App>,
    request_id: RequestId,
    ready: VecDeque<Bytes>,
    rest: Rest,
}

enum Rest {
    Nothing,
    Unread(Box<Page>),
    Reading(BoxFuture<'static, Result<(Box<Page>, Bytes), String>>),
}

impl Rest {
    fn of(page: Page) -> Rest {
        if page.complete { Rest::Nothing } else { Rest::Unread(Box::new(page)) }
    }
}

async fn read_on(app: Arc<App>, mut page: Box<Page>) -> Result<(Box<Page>, Bytes), String> {
    let share = app.reads.take(page.chain.tenant_id, HELD_BYTES_MAX).await;
    let mut share = share.map_err(|exhausted| exhausted.to_string())?;
    let piece = page.next_piece(&app).await.map_err(|error| error.to_string())?;
    let piece = share.hold(piece);
    Ok((page, piece))
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(piece) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Rest::Unread(_) = self.rest
            && let Rest::Unread(page) = std::mem::replace(&mut self.rest, Rest::Nothing)
        {
            self.rest = Rest::Reading(Box::pin(read_on(Arc::clone(&self.app), page)));
        }
        let Rest::Reading(reading) = &mut self.rest else { return Poll::Ready(None) };
        let read = ready!(reading.as_mut().poll(context));
        self.rest = Rest::Nothing;
        Poll::Ready(Some(match read {
            Ok((page, piece)) => {
                self.rest = Rest::of(*page);
                Ok(Frame::data(piece))
            }
            Err(error) => {
                let request_id = self.request_id;
                tracing::error!(%request_id, %error, "a read failed in the middle of a page; the page is cut short");
                Err(std::io::Error::other(error))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && matches!(self.rest, Rest::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.ready.iter().map(|piece| piece.len() as u64).sum();
        match self.rest {
            Rest::Nothing => SizeHint::with_exact(bytes),
            _ => SizeHint::default(),
        }
    }
}
