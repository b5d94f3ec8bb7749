//! The steps that make the tables of the store log.

use sealog_control::db::Schema;

/// The store's identity: a backup has it, and no rebuild brings it back.
pub const LOG: Schema = Schema {
    name: "log",
    sqlite: &[include_str!("migrations/sqlite/0001.sql")],
    postgres: &[include_str!("migrations/postgres/0001.sql")],
};
