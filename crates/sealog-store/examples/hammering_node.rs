//! A node on a PostgreSQL database as a process of its own: four threads that append to one chain, each event
//! under a key, and say on standard output what was acknowledged, until it is killed. What fails is tried
//! again under the same key. `tests/suite/nodes.rs` reads that and does the stopping and killing.
//!
//! `hammering_node URL NAME SKEW_MS`: lines `acked NONCE CHAIN_SEQ HASH`; a nonce begins with the name, and
//! is the event's actor.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sealog_store::postgres::{Options, PostgresStore};
use sealog_testing::{Skewed, live, until_acknowledged};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, name, skew_ms] = &arguments[..] else {
        eprintln!("usage: hammering_node URL NAME SKEW_MS");
        std::process::exit(2);
    };
    let world = Arc::new(Skewed(skew_ms.parse().expect("milliseconds")));
    let options = Options { connections: 8, world, ..Options::default() };
    let store = PostgresStore::open(url, &options).expect("the database is there");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in 0.. {
                    let nonce = format!("{name}t{thread}n{n}");
                    let receipt = until_acknowledged(store, live(), &nonce, &AtomicBool::new(false));
                    let receipt = receipt.expect("it is never enough");
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "acked {nonce} {} {}", receipt.first_seq, receipt.hash)
                        .and_then(|()| out.flush())
                        .expect("the reader is there");
                }
            });
        }
    });
}
