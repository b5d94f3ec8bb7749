//! The feed of the embedded store. A change of a chain has a place, that of its last record; a follower's
//! position is a place in each log: every chain whose last record is behind it is still to be announced.
//!
//! While anybody follows, the writer notes the places of what it publishes in a list that is bounded. A
//! follower that is behind its beginning looks at what is known of every chain instead, as one that comes
//! back after a restart does. Nothing is written for a feed, so there is nothing to recover.
//!
//! ```text
//! t0  a group is synced, then published: its chains' heads have moved a follower that looks at every chain
//!     sees it
//! t1  the writer looks whether anybody follows                            nobody: nothing more happens
//! t2  it notes the changes and wakes who follows a follower that looked before t0 sees it in the list
//! ```
//! Whoever registers before t1 is found at t1; whoever registers after t1 looks after t0.

pub(crate) mod follow;
pub(crate) mod recent;
