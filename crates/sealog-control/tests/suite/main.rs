//! Rules of control data. One program, because each is linked on its own.

mod conformance;
mod files;
mod fixtures;
mod full_disk;
mod migrations;
mod postgres;
