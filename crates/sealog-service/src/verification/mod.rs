//! Verifications that people start: a chain, or a part of it, is checked in the background, and what was found stays.
//!
//! [`Verifications`] starts, cancels and shows them; [`Verifier`] is the work that the runner of jobs does;
//! [`Run`] is a job as people see it; [`report`] says it in a form that can be kept.

mod found;
pub mod report;
mod run;
mod start;
mod verifier;

pub use found::{Found, Neighbour, Seen};
pub use run::{KIND, Progress, Run, RunEnd};
pub use start::{StartError, UNENDED_MAX, Verifications};
pub use verifier::{PIECE_EVENTS, Verifier};
