//! Formats of other programs, in and out.

mod ecs;
mod input;
mod ocsf;
mod output;
mod shapes;
