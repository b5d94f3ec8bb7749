//! Rules of the store log and its signer, on both stores.

mod equivocation;
mod history;
mod keys;
mod live_copies;
mod rollback;
mod snapshots;
mod stage;
