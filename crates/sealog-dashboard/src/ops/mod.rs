//! The operator's console, for those who run the instance and belong to no tenant of it. It has a table of
//! routes, cookies and accounts of its own, and shares with the dashboard how they work ([`crate::front`]).
//!
//! Nothing here shows an event or the text of a mail.

mod console;
mod enrol;
mod jobs;
mod layout;
mod losses;
mod outbox;
mod routes;
mod start;
mod storage;
mod system;
mod tenant;
mod tenants;

pub use console::{Console, Instance, Room};
pub use routes::ops_table;
