//! Integers, ids and texts from the front of a slice.

use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};

/// Each takes what it reads; nothing where there is too little.
pub(crate) struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn ulid(&mut self) -> Option<Ulid> {
        self.array().map(Ulid::from_bytes)
    }

    pub(crate) fn hash(&mut self) -> Option<Hash> {
        self.array().map(Hash)
    }

    /// Tenant and project; the mode is the log's.
    pub(crate) fn chain(&mut self, mode: Mode) -> Option<ChainId> {
        Some(ChainId {
            tenant_id: TenantId(Uuid(self.array()?)),
            project_id: ProjectId(Uuid(self.array()?)),
            mode,
        })
    }
}

/// Lengths that are bounded where they come from.
pub(crate) fn u16_len(length: usize) -> u16 {
    u16::try_from(length).expect("what is counted is bounded")
}
