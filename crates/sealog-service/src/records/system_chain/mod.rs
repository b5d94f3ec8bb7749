//! The system chain of a tenant: what operators and people have changed, sealed like any other event.
//!
//! A change and the record of it commit in one transaction of control data ([`Recorder`] makes the record,
//! the functions of [`crate::people::admin`] hand it over). The [`Drain`] then appends the records to the
//! chain, in order; what must be sealed before something else happens, it seals at once.

pub mod actions;
mod drain;
pub mod drops;
mod record;
mod seal;
mod wake;

pub use drain::{Drain, Turns};
pub use record::{Actor, Recorder, change};
pub use seal::SEAL_MAX;
pub use wake::Wake;
