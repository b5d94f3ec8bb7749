//! The end of the log, and what is known of the segment that it is in.

use super::format::Salt;

/// Where the next frame goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub segment: u64,
    pub salt: Salt,
    pub end: u64,
    pub capacity: u64,
    /// Running checksum up to `end`.
    pub running: u32,
}
