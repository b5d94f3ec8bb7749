//! Rules, properties and vectors.

mod example;
mod notes;
mod salts;
mod trees;
