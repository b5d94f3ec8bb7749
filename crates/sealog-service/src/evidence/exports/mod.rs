//! Exports: events of a chain as a file. An export is a frozen query and a frozen range of `chain_seq`;
//! nothing of it is kept on the server. Each download reads the events again, and since events never change,
//! has the same bytes: the first one that was complete says how many, and their SHA-256, and one that would
//! differ is not completed.
//!
//! [`Exporter`] makes and finds them, [`Download`] is one on its way, [`Format`] what the file looks like,
//! and [`manifest`] says what it is.

mod csv;
mod download;
mod exporter;
mod format;
mod frozen;
mod kept;
pub mod manifest;
mod seek;

pub use csv::put_safe_cell;
pub use download::{Download, PIECE_BYTES};
pub use exporter::{CreateError, Exporter, KEPT_MAX};
pub use format::Format;
pub use frozen::{Frozen, NotFrozen, SEARCH};
pub use kept::dropped_of;
