//! The operator's console, for those who run the instance and belong to no tenant of it. It has a table of
//! routes, a gate and a cookie of its own, and shares with the dashboard what is the same for both: headers,
//! assets, the look.
//!
//! Nothing here shows an event or the text of a mail.

mod console;
mod cookies;
mod enrol;
mod gate;
mod jobs;
mod layout;
mod losses;
mod outbox;
mod request;
mod routes;
mod sign_in;
mod start;
mod storage;
mod system;
mod tenant;
mod tenants;

pub use console::{Console, Instance, Room};
pub use gate::OpsNeeds;
pub use routes::{OpsRoute, ops_table};
