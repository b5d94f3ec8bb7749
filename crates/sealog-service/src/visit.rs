//! What the server knows of a request to a page, beside what the client sent.

use std::net::IpAddr;

use sealog_core::id::RequestId;

/// Handed on as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub request_id: RequestId,
    /// Of the client, behind the trusted proxies.
    pub address: IpAddr,
}
