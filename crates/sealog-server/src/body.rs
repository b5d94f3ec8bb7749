//! Request bodies: bounded in size before they are buffered, and in time.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;
use hyper::{HeaderMap, Request};
use sealog_core::id::{RequestId, TenantId};
use sealog_core::reject::Reject;

use crate::App;
use crate::budget::Share;
use crate::respond::Failure;

/// As much as every connection may hold without asking.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// What is read before others have their turn.
const TURN_BYTES: usize = 64 << 10;

/// The whole body, if it has at most this many bytes. Reading stops at the first byte too many.
///
/// A small one is simply read. What is larger needs a share of the memory for bodies first: a client may declare two megabytes and then send them over half a minute.
pub(crate) async fn read(
    app: &App,
    request: Request<Incoming>,
    bytes_max: usize,
    whose: Option<TenantId>,
    request_id: RequestId,
) -> Result<(Bytes, Option<Share>), Failure> {
    let too_large = || Failure::from(Reject::BodyTooLarge { bytes_max }).closing();
    let encoded = is_encoded(request.headers());
    let mut body = request.into_body();
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut content = Content::default();
    let mut share = None;
    if body.size_hint().lower() > SMALL_BYTES_MAX as u64 {
        let length = usize::try_from(body.size_hint().lower()).unwrap_or(bytes_max);
        share = large(app, whose, length, request_id).await?;
        // Only now: a length is a claim until there is memory for it.
        content.all.reserve(length);
    }
    let collect = async {
        let mut arrived = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Reject::InvalidJson {
                detail: format!("the body could not be read: {error}"),
            })?;
            if let Ok(data) = frame.into_data() {
                if content.len() + data.len() > bytes_max {
                    return Err(too_large());
                }
                if share.is_none() && content.len() + data.len() > SMALL_BYTES_MAX {
                    share = large(app, whose, bytes_max, request_id).await?;
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
    // Never decompressed: a few kilobytes could become gigabytes.
    if encoded {
        return Err(Reject::InvalidJson {
            detail: "compressed bodies are not accepted; send it without Content-Encoding".into(),
        }
        .into());
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

async fn large(
    app: &App,
    whose: Option<TenantId>,
    bytes: usize,
    request_id: RequestId,
) -> Result<Option<Share>, Failure> {
    let Some(tenant_id) = whose else { return Ok(None) };
    let share = app.bodies.take(tenant_id, bytes).await;
    share.map(Some).map_err(|exhausted| Failure::write(&exhausted, request_id).closing())
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
