//! The log as bytes and files: the seam to the disk, the format, segment files.

pub mod disk;
pub(crate) mod format;
pub(crate) mod plan;
pub(crate) mod read_only;
pub(crate) mod segment;
