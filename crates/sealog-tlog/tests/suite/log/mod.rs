//! Rules of the store log and its signer, on both stores.

mod carried;
mod equivocation;
mod full_disk;
mod history;
mod keys;
mod live_copies;
mod rollback;
mod snapshots;
mod stage;
