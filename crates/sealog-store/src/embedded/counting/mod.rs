//! Counts of a log: [`crate::counts`] says what is counted. They follow the log behind its durable end and
//! are kept beside the index of each full segment.
//!
//! No append waits for them: a thread of its own reads what was written, from memory in most cases, since it
//! was written a moment ago. `docs/format.md`, section 6.

pub(crate) mod answer;
pub(crate) mod file;
pub(crate) mod follow;
pub(crate) mod old;
pub(crate) mod state;
