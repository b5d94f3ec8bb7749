//! Rules, properties and vectors.

mod trees;
