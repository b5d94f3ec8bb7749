//! Formats of other programs, in and out.

mod ecs;
mod input;
mod output;
mod shapes;
