//! The public interface: one file for each section of the specification.

pub(crate) mod actions;
pub(crate) mod events;
pub(crate) mod ingest;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod verify;
