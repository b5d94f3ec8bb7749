//! Rules of the store log and its signer, on both stores.

mod equivocation;
mod history;
mod keys;
mod rollback;
mod snapshots;
mod stage;
