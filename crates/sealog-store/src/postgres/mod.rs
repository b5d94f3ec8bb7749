//! The PostgreSQL store: any number of nodes on one database.
//!
//! `migrations/` has the tables, `docs/adr/0008-postgresql-store.md` the reasons. From the outside in:
//! `store` is the [`Store`](crate::Store) and owns the thread that everything runs on; `writer` appends;
//! `reader` answers reads; `pool` has the connections; [`sessions`] lends some of them to other parts of the
//! program.

mod chain_row;
mod counts;
mod derived;
mod distribute;
mod error;
mod event_clock;
mod feed;
mod fields;
mod hub;
mod inner;
mod keys;
mod look;
mod loss;
mod mark;
mod migrate;
mod numbers;
mod options;
mod pool;
mod progress;
mod queue;
mod reader;
mod retention;
mod routes;
mod rows;
pub mod sessions;
mod statements;
mod store;
mod tls;
mod transaction;
mod url;
mod writer;

pub use distribute::{DISTRIBUTED_TABLES, Distribution, distribute};
pub use error::OpenError;
pub use event_clock::ClockBehind;
pub use inner::SharedVersion;
pub use look::{Look, look};
pub use loss::{Finding, ForgedDrop};
pub use mark::read_mark;
pub use migrate::{SchemaState, migrate, schema_version};
pub use options::{Options, Time};
pub use store::{PostgresStore, StartupLock};
