//! A moment of a running store, as its server tells it.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_store::embedded::backup::read_dropped;
use serde::Deserialize;

use super::head_text::HeadText;
use super::hex::unhex;

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

impl LogMoment {
    /// The file that says what was dropped, if anything was.
    pub(super) fn dropped_file(&self) -> Result<Option<Vec<u8>>, String> {
        let Some(text) = &self.dropped else { return Ok(None) };
        unhex(text).map(Some).ok_or_else(|| "what was dropped is no hex digits".into())
    }

    /// The last event of each chain that was dropped: where a walk of the log begins.
    pub(super) fn anchors(&self) -> Result<BTreeMap<ChainId, Head>, String> {
        let Some(file) = self.dropped_file()? else { return Ok(BTreeMap::new()) };
        let (_, anchors) = read_dropped(&file).ok_or("what was dropped cannot be read")?;
        Ok(anchors)
    }
}
