//! Chains, events and keys in few words.

use sealog_core::event::{Draft, parse_single};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_store::IdempotencyKey;

pub fn chain(tenant: u8, project: u8, mode: Mode) -> ChainId {
    ChainId { tenant_id: TenantId(Uuid([tenant; 16])), project_id: ProjectId(Uuid([project; 16])), mode }
}

pub fn live() -> ChainId {
    chain(1, 1, Mode::Live)
}

/// The chain that is reserved for what is changed of a tenant.
pub fn system_chain(tenant: u8) -> ChainId {
    ChainId { project_id: ProjectId::system_from_random([9; 16]), ..chain(tenant, 9, Mode::Live) }
}

pub fn draft(body: &str) -> Draft {
    parse_single(body.as_bytes()).unwrap().unwrap()
}

pub fn login(actor: &str) -> Draft {
    draft(&format!(
        r#"{{"action":"user.login","actor_id":"{actor}","resource":"session/{actor}","metadata":{{"n":1.0}}}}"#
    ))
}

pub fn key(name: &str, body: &str) -> IdempotencyKey {
    let hash = |text: &str| {
        let mut bytes = [0; 32];
        for (at, byte) in text.bytes().enumerate() {
            bytes[at % 32] ^= byte.wrapping_add(u8::try_from(at).unwrap_or(0));
        }
        Hash(bytes)
    };
    IdempotencyKey { key_hash: hash(name), fingerprint: hash(body) }
}
