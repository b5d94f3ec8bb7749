//! What an outsider needs to check a store that he does not trust.
//!
//! Each chain has a Merkle tree ([`merkle`]) whose leaves ([`leaf`]) commit to whole events. The heads of all
//! chains form a trie ([`heads`]), the trie's root is an entry ([`entry`]) of the store log, and that log's
//! checkpoints ([`checkpoint`]) are signed notes ([`note`]) which a policy ([`policy`]) accepts or not.
//! A proof ([`proof`]) leads from one event to a checkpoint, and [`verdict`] judges events, proofs and
//! checkpoints together. The formats are those of C2SP, so that other people's programs read them;
//! `docs/adr/0031-trust-crate-and-ed25519-dalek.md` gives the reasons.
//!
//! Pure: no I/O, no async, no clock, no randomness. Nothing here panics on any input, and no input makes it
//! use memory or time that its own length does not justify.

pub mod checkpoint;
mod digest;
pub mod entry;
pub mod heads;
pub mod leaf;
pub mod merkle;
pub mod note;
pub mod policy;
pub mod proof;
pub mod salt;
pub mod text;
pub mod tile;
pub mod verdict;
