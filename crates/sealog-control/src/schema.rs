//! The steps that make the tables of control data.

use crate::db::Schema;

/// The tables of control data.
pub const SCHEMA: Schema = Schema {
    name: "control",
    sqlite: &[
        include_str!("migrations/sqlite/0001.sql"),
        include_str!("migrations/sqlite/0002.sql"),
        include_str!("migrations/sqlite/0003.sql"),
        include_str!("migrations/sqlite/0004.sql"),
        include_str!("migrations/sqlite/0005.sql"),
    ],
    postgres: &[
        include_str!("migrations/postgres/0001.sql"),
        include_str!("migrations/postgres/0002.sql"),
        include_str!("migrations/postgres/0003.sql"),
        include_str!("migrations/postgres/0004.sql"),
        include_str!("migrations/postgres/0005.sql"),
    ],
};
