//! What a server knows of its store, for support: what it has found wrong, and how large things are. Nothing that an event holds.

use serde::{Deserialize, Serialize};

use super::host::Host;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub store: String,
    /// Why no event is accepted.
    pub not_ready: Option<String>,
    /// In words for the operator: files and chains are named.
    pub findings: Vec<String>,
    pub notices: Vec<String>,
    pub losses: Vec<String>,
    pub chains: usize,
    pub events: u64,
    pub storage_bytes: u64,
}

pub(super) async fn state(host: &Host) -> Result<State, String> {
    let store = host.opened.store();
    let text = |error: sealog_store::StoreError| error.to_string();
    let heads = store.heads().await.map_err(text)?;
    let losses = store.losses().await.map_err(text)?;
    Ok(State {
        store: host.opened.describe(),
        not_ready: store.ready().err().map(|error| error.to_string()),
        findings: store.faults(),
        notices: store.notices().into_iter().map(str::to_owned).collect(),
        losses: losses.iter().map(|(chain, _)| chain.to_string()).collect(),
        chains: heads.len(),
        events: heads.iter().map(|(_, head)| head.chain_seq).sum(),
        storage_bytes: store.stats().await.map_err(text)?.storage_bytes,
    })
}
