//! What a copy of a store needs of it: a cut of its logs, what their segments hold, and the high-water mark
//! of what was copied. `docs/adr/0025-backups-of-shared-segments.md` has the reasons.
//!
//! Segments only grow, and only behind what is durable. So whoever knows the end of what is durable copies
//! files that nobody changes any more, without a lock, from another process.

mod cut;
mod mark;
mod segment;
mod walk;

pub use mark::{CopyEnd, Marked, read_dropped, read_mark, write_mark};
pub use segment::{Header, SegmentContents, Wanted, segment_file_name, segment_number};
pub use walk::{Ended, Walk};
