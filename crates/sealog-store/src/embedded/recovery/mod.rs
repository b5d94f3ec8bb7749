//! How a log is opened, and the high-water mark that it is compared with.
//!
//! `recover` is the path; its steps are `segments`, `last_segment` and `chains`, which hand on `state`.
//! `dropped` is what retention has taken from it, `finding` what was wrong.

mod chains;
pub(crate) mod dropped;
pub(crate) mod finding;
pub(crate) mod high_water_mark;
mod last_segment;
pub(crate) mod recover;
mod segments;
pub(crate) mod state;
