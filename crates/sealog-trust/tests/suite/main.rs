//! Rules, properties and vectors.

mod example;
mod notes;
mod properties;
mod salts;
mod trees;
mod vectors;
mod verdicts;
