//! What a sealed event is.
//!
//! Pure: no I/O, no async, no clock, no randomness. Time and random bytes are arguments, so that every rule
//! here can be tested by calling it. The words are the specification's; `docs/format.md` says what is hashed.
//!
//! A value changes its name when it changes its nature: a request body becomes a [`event::Draft`], sealing
//! makes it a [`chain::Sealed`], and with its annotations it is a [`event::StoredEvent`].

pub mod audit;
pub mod canonical;
pub mod catalog;
pub mod chain;
pub mod event;
pub mod hex;
pub mod id;
pub mod json;
pub mod key;
pub mod metadata;
pub mod plan;
pub mod query;
pub mod reject;
mod steps;
pub mod time;
pub mod verify;
