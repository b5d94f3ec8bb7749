//! What a server knows of its store, for support: what it has found wrong, and how large things are. Nothing
//! that an event holds.

use serde::{Deserialize, Serialize};

use super::host::Host;

/// Of an answer, what each of its lists may take: all three and the rest fit into a line of the socket
/// (`protocol.rs: LINE_BYTES_MAX`).
const LIST_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub store: String,
    /// Why no event is accepted.
    pub not_ready: Option<String>,
    /// In words for the operator: files and chains are named.
    pub findings: Vec<String>,
    pub notices: Vec<String>,
    pub losses: Vec<String>,
    /// What is not in these lists because there is no room for it in an answer.
    #[serde(default)]
    pub left_out: LeftOut,
    pub chains: usize,
    pub events: u64,
    pub storage_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub findings: usize,
    pub notices: usize,
    pub losses: usize,
}

impl State {
    /// With as much of each list as fits into an answer.
    pub(super) fn fitted(mut self) -> State {
        self.left_out = LeftOut {
            findings: shorten(&mut self.findings),
            notices: shorten(&mut self.notices),
            losses: shorten(&mut self.losses),
        };
        self
    }
}

/// How many texts were taken away.
fn shorten(texts: &mut Vec<String>) -> usize {
    let (before, mut bytes) = (texts.len(), 0);
    texts.retain(|text| {
        // As it stands in the answer, with a comma.
        let length = serde_json::to_string(text).map_or(usize::MAX, |text| text.len() + 1);
        let fits = length <= LIST_BYTES_MAX - bytes;
        bytes += if fits { length } else { 0 };
        fits
    });
    before - texts.len()
}

pub(super) async fn state(host: &Host) -> Result<State, String> {
    let store = host.opened.store();
    let text = |error: sealog_store::StoreError| error.to_string();
    let heads = store.heads().await.map_err(text)?;
    let losses = store.losses().await.map_err(text)?;
    let state = State {
        store: host.opened.describe(),
        not_ready: store.ready().err().map(|error| error.to_string()),
        findings: store.faults(),
        notices: store.notices().into_iter().map(str::to_owned).collect(),
        losses: losses.iter().map(|(chain, _)| chain.to_string()).collect(),
        left_out: LeftOut::default(),
        chains: heads.len(),
        events: heads.iter().map(|(_, head)| head.chain_seq).sum(),
        storage_bytes: store.stats().await.map_err(text)?.storage_bytes,
    };
    Ok(state.fitted())
}
