//! What is known of a request when it has been answered, for whoever collects traces. Nothing that a client
//! has written but the trace that it belongs to.

use std::fmt::Debug;
use std::time::Duration;

use sealog_core::id::RequestId;

/// A request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The pattern of its path, if that has one.
    pub route: Option<&'static str>,
    /// Its name, or `other`.
    pub method: &'static str,
    pub status: u16,
    pub request_id: RequestId,
    /// From its headers to those of its answer.
    pub took: Duration,
    /// As the client has sent it (W3C Trace Context).
    pub traceparent: Option<&'a [u8]>,
}

/// Is told of every request, on its event loop: it must not wait for anything.
pub trait Traces: Debug + Send + Sync {
    fn answered(&self, answered: &Answered<'_>);
}
