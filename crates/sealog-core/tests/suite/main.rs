//! Properties, vectors and house rules.

mod properties;
mod tidy;
mod vectors;
