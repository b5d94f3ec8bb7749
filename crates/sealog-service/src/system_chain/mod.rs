//! The system chain of a tenant: what operators and people have changed, sealed like any other event.
//!
//! A change and the record of it commit in one transaction of control data ([`Recorder`] makes the record, the
//! functions of [`crate::admin`] hand it over). The drain then appends the records to the chain, in order.

pub mod actions;
mod record;
mod wake;

pub use record::{Actor, Recorder, change};
pub use wake::Wake;
