//! `GET /v1/events`. Spec 4.3.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, RequestId};
use sealog_core::query::{self, ListQuery};
use sealog_store::{List, StoreError};
use tokio::sync::mpsc;

use crate::App;
use crate::auth;
use crate::budget::Share;
use crate::respond::{Body, Failure, held, large_json};

/// A page up to this size is put together before it is sent, so that a failure can still become an error; a larger one is sent as it is read.
const WHOLE_BYTES_MAX: usize = 1 << 20;

pub(crate) async fn get(
    app: &Arc<App>,
    query: &str,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    let caller = auth::authenticate(app, headers, request_id).await?;
    let query = ListQuery::parse(query, caller.chain)?;
    // While it is sent as it is read, one piece is with the client and the next is being put together.
    let share = app.reads.take(caller.chain.tenant_id, 2 * WHOLE_BYTES_MAX).await;
    let share = share.map_err(|exhausted| Failure::read(&exhausted, request_id))?;
    let mut page = Page::new(caller.chain, query);
    let mut content = b"{\"events\":[".to_vec();
    let whole = page
        .fill(app, &mut content, WHOLE_BYTES_MAX)
        .await
        .map_err(|error| Failure::read(&error, request_id))?;
    if whole {
        return Ok(large_json(StatusCode::OK, content, share));
    }
    Ok(stream(Arc::clone(app), page, content, share, request_id))
}

/// A page under way.
struct Page {
    chain: ChainId,
    query: ListQuery,
    written: usize,
    last_seq: u64,
}

impl Page {
    fn new(chain: ChainId, query: ListQuery) -> Page {
        Page { chain, query, written: 0, last_seq: 0 }
    }

    /// Adds events until there are `bytes_max` bytes. True when the page is complete.
    async fn fill(&mut self, app: &App, content: &mut Vec<u8>, bytes_max: usize) -> Result<bool, StoreError> {
        let limit = self.query.limit.get();
        while content.len() < bytes_max {
            // One more than the page has room for tells whether there is another page.
            let list = List {
                filter: self.query.filter.clone(),
                before_seq: self.query.before_seq,
                limit: limit + 1 - self.written,
                bytes_max: bytes_max - content.len(),
            };
            let chunk = app.store.list(self.chain, list).await?;
            for event in &chunk.items {
                if self.written == limit {
                    let cursor = query::encode_cursor(self.last_seq, self.chain);
                    content.extend_from_slice(
                        format!("],\"next_cursor\":\"{cursor}\",\"has_more\":true}}").as_bytes(),
                    );
                    return Ok(true);
                }
                self.put(event, content);
            }
            match chunk.resume {
                Some(resume) => self.query.before_seq = Some(resume),
                None => {
                    content.extend_from_slice(b"],\"has_more\":false}");
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn put(&mut self, event: &StoredEvent, content: &mut Vec<u8>) {
        if self.written > 0 {
            content.push(b',');
        }
        event.put_json(content);
        self.written += 1;
        self.last_seq = event.sealed.chain_seq;
    }
}

/// Sends the rest of a large page piece by piece, as fast as the client takes it. If reading fails now, the connection ends in the middle of the JSON, which no client can take for a page.
fn stream(
    app: Arc<App>,
    mut page: Page,
    first: Vec<u8>,
    share: Share,
    request_id: RequestId,
) -> Response<Body> {
    let (pieces, taken) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut content = first;
        let mut complete = false;
        loop {
            if pieces.send(Ok(Frame::data(Bytes::from(std::mem::take(&mut content))))).await.is_err()
                || complete
            {
                return;
            }
            match page.fill(&app, &mut content, WHOLE_BYTES_MAX).await {
                Ok(whole) => complete = whole,
                Err(error) => {
                    tracing::error!(%request_id, %error, "a read failed in the middle of a page");
                    let _ = pieces.send(Err(std::io::Error::other(error))).await;
                    return;
                }
            }
        }
    });
    let mut response = Response::new(held(share, Pieces(taken)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A body that another task writes.
struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context)
    }
}
