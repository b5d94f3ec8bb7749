//! A chain and its last event, as manifests and receipts have them.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeadText {
    pub tenant_id: String,
    pub project_id: String,
    pub mode: String,
    pub chain_seq: u64,
    pub log_id: String,
    pub hash: String,
}

impl HeadText {
    pub(super) fn new(chain: ChainId, head: Head) -> HeadText {
        HeadText {
            tenant_id: chain.tenant_id.to_string(),
            project_id: chain.project_id.to_string(),
            mode: chain.mode.as_str().to_owned(),
            chain_seq: head.chain_seq,
            log_id: head.log_id.to_string(),
            hash: head.hash.to_string(),
        }
    }

    pub(super) fn parse(&self) -> Result<(ChainId, Head), String> {
        let read = || {
            let chain = ChainId {
                tenant_id: TenantId(Uuid::parse(&self.tenant_id)?),
                project_id: ProjectId(Uuid::parse(&self.project_id)?),
                mode: mode(&self.mode)?,
            };
            let (log_id, hash) = (Ulid::parse(&self.log_id)?, Hash::parse(&self.hash)?);
            Some((chain, Head { chain_seq: self.chain_seq, log_id, hash }))
        };
        read().ok_or_else(|| format!("not a valid head of a chain: {self:?}"))
    }
}

pub(super) fn mode(text: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.as_str() == text)
}

pub(super) fn texts(heads: &BTreeMap<ChainId, Head>) -> Vec<HeadText> {
    heads.iter().map(|(chain, head)| HeadText::new(*chain, *head)).collect()
}

pub(super) fn parse_all(heads: &[HeadText]) -> Result<BTreeMap<ChainId, Head>, String> {
    heads.iter().map(HeadText::parse).collect()
}
