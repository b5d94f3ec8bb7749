//! A moment of a running store, as its server tells it.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_store::embedded::backup::read_dropped;
use serde::Deserialize;

use super::head_text::HeadText;
use super::unhex::unhex;

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
    /// The file that says what was dropped, if anything was. Of a live log nothing ever is: one that says so
    /// hides a loss.
    pub(super) fn dropped_file(&self) -> Result<Option<Vec<u8>>, String> {
        if self.mode != Mode::Test.as_str() && (self.dropped_through > 0 || self.dropped.is_some()) {
            return Err(format!(
                "the record says that events of the {} log were deleted, but these never are",
                self.mode
            ));
        }
        let Some(text) = &self.dropped else { return Ok(None) };
        unhex(text).map(Some).ok_or_else(|| "the record of deleted events is not hexadecimal".into())
    }

    /// The last event of each chain that was dropped: where a walk of the log begins.
    pub(super) fn anchors(&self) -> Result<BTreeMap<ChainId, Head>, String> {
        let Some(file) = self.dropped_file()? else { return Ok(BTreeMap::new()) };
        let (_, anchors) = read_dropped(&file).ok_or("cannot read the record of deleted events")?;
        Ok(anchors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_live_log_nothing_is_dropped_whatever_a_server_says() {
        let log = |mode: &str, dropped_through, dropped: Option<&str>| LogMoment {
            mode: mode.into(),
            commit: 1,
            segments: Vec::new(),
            dropped_through,
            dropped: dropped.map(str::to_owned),
            lost: Vec::new(),
            unproven_to: None,
        };
        assert_eq!(log("live", 0, None).dropped_file(), Ok(None));
        assert_eq!(log("test", 1, Some("ab")).dropped_file(), Ok(Some(vec![0xab])));
        for live in [log("live", 1, None), log("live", 0, Some("ab"))] {
            assert!(live.dropped_file().is_err_and(|why| why.contains("these never are")));
        }
    }
}
