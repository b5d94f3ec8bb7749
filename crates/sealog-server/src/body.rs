//! Request bodies: bounded in size before they are buffered, and in time.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;
use hyper::{HeaderMap, Request};
use sealog_core::reject::Reject;

use crate::App;
use crate::respond::Failure;

/// The whole body, if it has at most this many bytes. Reading stops at the first byte too many.
pub(crate) async fn read(app: &App, request: Request<Incoming>, bytes_max: usize) -> Result<Bytes, Failure> {
    let too_large = || Failure::from(Reject::BodyTooLarge { bytes_max }).closing();
    let encoded = is_encoded(request.headers());
    let mut body = request.into_body();
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut content = BytesMut::new();
    let collect = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Reject::InvalidJson {
                detail: format!("the body could not be read: {error}"),
            })?;
            if let Ok(data) = frame.into_data() {
                if content.len() + data.len() > bytes_max {
                    return Err(too_large());
                }
                content.extend_from_slice(&data);
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
    Ok(content.freeze())
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
