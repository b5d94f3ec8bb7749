//! The store log: one public, append-only list of entries in which every interval publishes the heads of all
//! chains, and whose tree is signed.
//!
//! [`StoreLog`] has the tables, and all reads that routes serve. [`Signer`] has the keys and makes
//! snapshots; [`Signer::step`] is a round of the supervised loop. [`TreeHead`]s come from a [`HeadSource`],
//! the builder of the trees. `docs/adr/0039-one-signed-log.md` gives the reasons.

mod carry;
mod copied;
pub mod keys;
mod reads;
pub mod salt_keys;
mod schema;
mod signer;
mod state_copy;
mod store_log;
mod thin;

pub use carry::{CarryError, Outline};
pub use copied::Copied;
pub use keys::is_origin;
pub use reads::{AtSnapshot, Found, HeadProof, PublishedHead, Signed, TRIES_MAX};
pub use schema::LOG;
pub use sealog_trust::entry::Role;
pub use signer::{
    Figures, HeadSource, Moment, Probe, ROTATION_MS, Settings, Signer, SignerError, State, Turn, key_name,
};
pub use state_copy::{CopyError, StateCopy};
pub use store_log::{
    Finding, Genesis, LogKey, Place, Problem, Published, Snapshot, StoreLog, Tree, TreeHead, role_name,
};
