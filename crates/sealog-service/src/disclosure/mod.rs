//! What data subjects get: the events that are by them, about them, or name them, without what belongs to others.
//!
//! [`node`] is an event as a tree, [`masks`] what is not disclosed of it unless a reviewer says otherwise, [`hidden_values`]
//! keeps such values out of every text, and [`package`] is the ZIP.

pub mod hidden_values;
pub mod masks;
pub mod node;
pub mod package;
pub mod subject;
pub mod words;

pub use hidden_values::{HiddenValues, ValueKind};
pub use masks::{Mask, Suggested};
pub use node::{EventView, Node};
pub use subject::Subject;
