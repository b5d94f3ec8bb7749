//! Formats of other programs, in and out.

mod input;
mod output;
