//! The embedded store: an append-only, checksummed log in a directory, one for live and one for test chains,
//! and indexes derived from it.
//!
//! `docs/format.md` has every byte, `docs/architecture.md` the path of a write. From the outside in: `store`
//! owns the directory and is the [`Store`](crate::Store); `open_log` is one log and its threads; `contents`
//! is what is known of it in memory; `write`, `read`, `recovery`, `retention`, `upkeep` and `feed` are what
//! happens to it; `index`, `counting` and `log` are its files.
//!
//! This file only names what others import. Inside the folder an item is imported from the file that defines
//! it.

pub mod backup;
mod cache;
mod contents;
mod counting;
mod data_dir;
mod derived;
mod feed;
mod index;
mod log;
mod mutants;
mod open_log;
mod options;
mod read;
mod recovery;
mod retention;
mod store;
mod upkeep;
mod watch;
mod write;

pub use data_dir::Directory;
pub use log::disk::{self, FILE_MODE};
pub use options::{OpenError, Options};
pub use recovery::finding::Finding;
pub use store::EmbeddedStore;
pub use write::batching::batch_by_tick;
