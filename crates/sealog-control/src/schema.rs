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
        include_str!("migrations/sqlite/0006.sql"),
        include_str!("migrations/sqlite/0007_inviter.sql"),
        include_str!("migrations/sqlite/0008_views.sql"),
        include_str!("migrations/sqlite/0009_ops.sql"),
        include_str!("migrations/sqlite/0010_notices.sql"),
        include_str!("migrations/sqlite/0011_cases.sql"),
        include_str!("migrations/sqlite/0012_case_search.sql"),
        include_str!("migrations/sqlite/0013_job_trouble.sql"),
        include_str!("migrations/sqlite/0014_ops_devices.sql"),
    ],
    postgres: &[
        include_str!("migrations/postgres/0001.sql"),
        include_str!("migrations/postgres/0002.sql"),
        include_str!("migrations/postgres/0003.sql"),
        include_str!("migrations/postgres/0004.sql"),
        include_str!("migrations/postgres/0005.sql"),
        include_str!("migrations/postgres/0006.sql"),
        include_str!("migrations/postgres/0007_inviter.sql"),
        include_str!("migrations/postgres/0008_views.sql"),
        include_str!("migrations/postgres/0009_ops.sql"),
        include_str!("migrations/postgres/0010_notices.sql"),
        include_str!("migrations/postgres/0011_cases.sql"),
        include_str!("migrations/postgres/0012_case_search.sql"),
        include_str!("migrations/postgres/0013_job_trouble.sql"),
        include_str!("migrations/postgres/0014_ops_devices.sql"),
    ],
};
