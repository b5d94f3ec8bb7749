//! What ends at a time, found by it: keys, trials, memberships of auditors. Pages of a list in the order of
//! the ends, for whoever tells people of them.

use sealog_core::id::{TenantId, Uuid};

use crate::control::{Answer, Control};
use crate::db::params;
use crate::key::ApiKey;
use crate::membership::Member;
use crate::tenant::Tenant;
use crate::{key, membership, tenant};

/// A piece of a list: what ends behind this place, and not after `until_ms`, at most so many.
#[derive(Clone, Copy, Debug)]
pub struct EndPage {
    pub after: EndPlace,
    pub until_ms: u64,
    pub limit: usize,
}

/// A place in a list: a time, and among those of one time an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPlace {
    pub at_ms: u64,
    pub id: Uuid,
}

impl EndPlace {
    /// Before everything that ends at this time.
    pub fn before(at_ms: u64) -> EndPlace {
        EndPlace { at_ms, id: Uuid([0; 16]) }
    }
}

impl Control {
    /// Keys that nobody has revoked, each with its tenant and the name of its project; by their own ids.
    pub fn keys_ending(&self, page: EndPage) -> Answer<'_, Vec<(TenantId, ApiKey, String)>> {
        self.read(move |db| {
            let EndPage { after, until_ms, limit } = page;
            key::ending(db, params![after.at_ms, after.id, until_ms, limit])
        })
    }

    /// Tenants without billing, by when their trial ends.
    pub fn trials_ending(&self, page: EndPage) -> Answer<'_, Vec<Tenant>> {
        self.read(move |db| {
            let EndPage { after, until_ms, limit } = page;
            tenant::trials_ending(db, params![after.at_ms, after.id, until_ms, limit])
        })
    }

    /// Auditors by when their membership ends, by the ids of their persons; those at the place itself
    /// included, since one person's membership of several tenants can end at one time.
    pub fn auditors_ending(&self, page: EndPage) -> Answer<'_, Vec<Member>> {
        self.read(move |db| {
            let EndPage { after, until_ms, limit } = page;
            membership::auditors_ending(db, params![after.at_ms, after.id, until_ms, limit])
        })
    }
}
