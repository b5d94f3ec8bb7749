//! What the store publishes about its chains, so that an outsider need not trust it.
//!
//! [`trees`] builds a Merkle tree for each live chain from what the store has on disk, behind the commit
//! path. [`log`] puts the heads of all trees into one append-only log, once in an interval, and signs it. The
//! formats and the arithmetic are those of `sealog-trust`; this crate adds storage, time and keys.
//!
//! Two databases, each over the seam of control data. `trees` is derived: it may be deleted, and is rebuilt.
//! `log` is the store's identity: what was signed, and the root keys of the salts, which no rebuild brings
//! back.

mod heads;
pub mod log;
pub mod trees;

pub use heads::BuiltHeads;
