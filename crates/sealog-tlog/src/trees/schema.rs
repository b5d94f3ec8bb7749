//! The steps that make the tables of the trees.

use sealog_control::db::Schema;

/// Derived: it may be deleted, and is made again from the events and the root keys of the salts.
pub const TREES: Schema = Schema {
    name: "trees",
    sqlite: &[include_str!("migrations/sqlite/0001.sql")],
    postgres: &[include_str!("migrations/postgres/0001.sql")],
};
