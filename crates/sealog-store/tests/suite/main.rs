//! Rules of stores, and of each store. One program, because each is linked on its own.

mod at_once;
mod backup;
mod batching;
mod citus;
mod clock;
mod conformance;
mod counts;
mod derived;
mod differential;
mod feed;
mod fields;
mod fixtures;
mod format;
mod full_disk;
mod index;
mod kill;
mod nodes;
mod postgres;
mod power;
mod recovery;
mod restart;
mod retention;
