//! SHA-256 with a first byte that says what is hashed, so that no value can be passed off as another kind.

use sealog_core::id::Hash;
use sha2::{Digest, Sha256};

/// The first byte. `06` is reserved for the key that encrypts an event's private fields.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Leaf = 0x00,
    Node = 0x01,
    TrieLeaf = 0x02,
    TrieNode = 0x03,
    Commitment = 0x04,
    SaltKeys = 0x05,
    HiddenHead = 0x07,
}

pub(crate) fn digest(kind: Kind, parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new_with_prefix([kind as u8]);
    for part in parts {
        hasher.update(part);
    }
    Hash(hasher.finalize().into())
}
