//! Starts the PostgreSQL that all test programs of a run share, prints where it is, and keeps it until
//! standard input ends. `scripts/rust-tests` runs it.

use std::io::Read;

fn main() {
    let cluster = sealog_testing::postgres::Cluster::start("");
    println!("{}", cluster.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
