//! What the instance records of itself: the system chains, which events it drops, and who holds copies.

pub mod copies;
pub mod heads;
pub mod replication;
pub mod retention;
pub mod system_chain;
