//! Searching a chain: what a person types becomes terms ([`parse`]), a plan of what indexes answer and what
//! is left to look at ([`plan`]), and a run within a budget ([`run`]).
//!
//! Nothing here is part of the API: its filters are those of the specification.

mod freeze;
mod number;
pub mod parse;
pub mod plan;
pub mod run;
pub mod term;

pub use freeze::freeze;
pub use parse::{ParseError, Query};
pub use plan::Plan;
pub use run::{Budget, Found, Work, run};
