//! Rules, properties and vectors.

mod salts;
mod trees;
