//! Rules, properties and vectors.

mod example;
mod salts;
mod trees;
