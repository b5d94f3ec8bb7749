//! What a start would find in a database, for `sealog check`. Every rule here is the one that a start goes
//! by.

use super::error::OpenError;
use super::migrate::{self, Schema, SchemaState, with_session};
use super::store::unsafe_settings;

/// A database, as a server that starts would find it.
#[derive(Clone, Debug)]
pub struct Look {
    /// As PostgreSQL says itself.
    pub server: String,
    /// That of the events first.
    pub schemas: Vec<SchemaState>,
    /// Settings that are off and without which a database cannot keep what it acknowledges.
    unsafe_off: Vec<String>,
    pub now_ms: i64,
}

impl Look {
    /// Why no server starts on it, in the order in which a start finds out.
    pub fn refusal(&self, allow_unsafe_storage: bool) -> Option<OpenError> {
        if !self.unsafe_off.is_empty() && !allow_unsafe_storage {
            return Some(OpenError::UnsafeSettings(self.unsafe_off.clone()));
        }
        self.schemas.iter().find_map(SchemaState::refusal)
    }
}

/// Looks at a database without a change to it: the tables of events, and those of other parts of the program.
pub fn look(url: &str, others: &[Schema]) -> Result<Look, OpenError> {
    with_session(url, async |session| {
        let failed = |error: tokio_postgres::Error| OpenError::of(&error);
        let row = "SELECT current_setting('server_version'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let rows = session.client.query_typed(row, &[]).await.map_err(failed)?;
        let unsafe_off = unsafe_settings(session).await.map_err(failed)?;
        let mut schemas = vec![migrate::state(session, &Schema::of_events()).await?];
        for schema in others {
            schemas.push(migrate::state(session, schema).await?);
        }
        Ok(Look { server: rows[0].get(0), schemas, unsafe_off, now_ms: rows[0].get(1) })
    })
}
