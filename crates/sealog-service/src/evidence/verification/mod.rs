//! Verifications: a chain, or a part of it, is checked in the background, and what was found stays.
//!
//! [`Verifications`] starts those of people, cancels and shows them; the [`Scheduler`] starts those of a
//! night; [`Verifier`] is the work that the runner of jobs does, and [`DerivedCheck`] that of the store as a
//! whole; [`Run`] is a job as people see it; [`report`] says it in a form that can be kept.

mod baseline;
mod baseline_job;
mod derived;
mod found;
mod mails;
mod noted;
pub mod report;
mod run;
mod schedule;
mod scheduler;
mod sealed_state;
mod start;
mod verifier;

pub use baseline::Baseline;
pub use baseline_job::queue_baseline;
pub use derived::{DERIVED_KIND, DerivedCheck};
pub use found::{Found, Neighbour, Seen};
pub(crate) use mails::{FAILED, REPORT, failed_text, report_text};
pub use run::{KIND, Progress, Run, RunEnd};
pub use schedule::{Schedule, WHOLE_MAX};
pub use scheduler::{Figures, LOOKS_MAX, OPEN_MAX, Scheduler, Sweep};
pub use sealed_state::compare_all;
pub use start::{ALL_MAX, StartError, UNENDED_MAX, Verifications};
pub use verifier::{PIECE_EVENTS, Verifier};
