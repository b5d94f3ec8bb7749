//! The write path: from a request to its acknowledgement. In the order of a request:
//!
//! | Part | Owns |
//! |---|---|
//! | `submit` | the checks of a request, and its size |
//! | `batching` | the appends of one event-loop tick, enqueued as one |
//! | `queue`, `admission` | what waits, fair by bytes and bounded; whether requests are admitted |
//! | `ahead` | large requests, which are sealed before they have a place in a group |
//! | `group` | which requests are written together, and their bytes |
//! | `seal` | the critical section: every decision about a request |
//! | `commit` | the active segment, its write and sync, the roll to the next one |
//! | `publish` | visibility, the feed, completions |
//! | `threads` | the threads, the lock that they share, states and events, the lock order |
//!
//! `request`, `outcome` and `completions` are what is passed between them.

pub(crate) mod admission;
pub(crate) mod ahead;
pub(crate) mod batching;
pub(crate) mod commit;
pub(crate) mod completions;
pub(crate) mod group;
pub(crate) mod outcome;
pub(crate) mod publish;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod seal;
pub(crate) mod submit;
pub(crate) mod threads;
