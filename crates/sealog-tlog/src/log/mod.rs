//! The store log: entries, signed checkpoints, the history of heads, and the root keys of the salts.

pub mod salt_keys;
mod schema;

pub use schema::LOG;
