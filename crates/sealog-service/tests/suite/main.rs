//! Rules of the service, on both stores. One program, because each is linked on its own.

mod admin;
mod both;
mod drain;
mod exports;
mod jobs;
mod retention;
mod schedule;
mod sealed_state;
mod search;
mod verification;
