//! A moment of a running store, as its server tells it.

use serde::Deserialize;

use super::head_text::HeadText;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Moment {
    pub(super) store_id: String,
    pub(super) logs: Vec<LogMoment>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LogMoment {
    pub mode: String,
    pub commit: u64,
    pub segments: Vec<SegmentMoment>,
    pub dropped_through: u64,
    /// The file, in hex digits.
    pub dropped: Option<String>,
    pub lost: Vec<HeadText>,
    pub unproven_to: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct SegmentMoment {
    pub number: u64,
    pub salt: String,
    pub bytes: u64,
}
