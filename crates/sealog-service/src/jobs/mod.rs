//! Work that takes longer than a request: queued in control data, done in pieces by one node at a time.
//!
//! [`Work`] is a kind of job, and knows how to do the next piece of it; the [`Runner`] decides whose turn it
//! is, keeps the position, and gives up what has been taken from it. [`supervise`] keeps every loop of the
//! background alive, and [`give_way`] lets requests pass a job.

pub mod give_way;
mod runner;
pub(crate) mod stop;
pub mod supervise;
mod work;

pub use runner::{DEATHS_MAX, LEASE_MS, Pace, Runner, Turns};
pub use work::{Step, Work};
