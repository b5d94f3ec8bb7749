//! Events: their fields ([`field`]), what clients send ([`input`]), and what is kept ([`stored`]).

mod field;
mod input;
mod stored;

pub use field::{Annotations, CSV_COLUMNS, FIELDS, Field, FieldId, Part, Shown, csv_header};
pub use input::{
    BATCH_EVENTS_MAX, Batch, Draft, EVENT_BYTES_MAX, FIELD_SCALARS_MAX, INPUTS, parse_batch, parse_single,
};
pub(crate) use stored::parse_schema_version;
pub use stored::{SCHEMA_VERSION, StoredEvent, Value};
