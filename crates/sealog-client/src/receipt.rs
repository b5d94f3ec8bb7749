//! What the service confirms.

use serde::{Deserialize, Serialize};

/// The service's confirmation that an event is sealed and on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    pub log_id: String,
    /// `None` where a proxy removes the headers of receipts.
    pub chain_seq: Option<u64>,
    /// `None` for all but the last event of a batch, whose hash covers the others.
    pub hash: Option<String>,
    #[serde(default)]
    pub request_id: String,
    /// The service had the event already, from an earlier attempt.
    #[serde(skip)]
    pub replayed: bool,
}
