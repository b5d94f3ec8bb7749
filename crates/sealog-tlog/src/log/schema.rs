//! The steps that make the tables of the store log.

use sealog_control::db::Schema;

/// Of a data directory, for the log, the trees and the keys.
pub(super) const FOLDER: &str = "trust";

/// The store's identity: a backup has it, and no rebuild brings it back.
pub const LOG: Schema = Schema {
    name: "log",
    sqlite: &[
        include_str!("migrations/sqlite/0001.sql"),
        include_str!("migrations/sqlite/0002.sql"),
        include_str!("migrations/sqlite/0003.sql"),
    ],
    postgres: &[
        include_str!("migrations/postgres/0001.sql"),
        include_str!("migrations/postgres/0002.sql"),
        include_str!("migrations/postgres/0003.sql"),
    ],
};
