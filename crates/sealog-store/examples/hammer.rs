//! Writes to a store as fast as it can and says on standard output what it sent and what was acknowledged,
//! until it is killed. `tests/suite/kill.rs` and `scripts/torture` read that and do the killing.
//!
//! `hammer DIR CYCLE [large|few]`: lines `ready`, `sent NONCE COUNT KEYED`, `acked NONCE FIRST_SEQ HASH
//! LOG_ID...`. A nonce says everything about its request (`Shape`), so that the reader knows what must be
//! there. With `few` each thread sends one request and waits for the kill.

use std::io::Write;
use std::path::Path;

use sealog_core::event::parse_single;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{Append, Appended, IdempotencyKey, Reserved, Store};
use sealog_testing::wait;

const THREADS: usize = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(dir), Some(cycle)) = (arguments.next(), arguments.next()) else {
        return usage();
    };
    let (shape, requests) = match arguments.next().as_deref() {
        None => (Shape::Small, usize::MAX),
        Some("large") => (Shape::Large, usize::MAX),
        Some("few") => (Shape::Small, 1),
        Some(_) => return usage(),
    };
    // Small segments, so that rolling over is hit by kills as well.
    let segment_bytes_first = shape.segment_bytes();
    let options =
        Options { segment_bytes_first, segment_bytes_max: segment_bytes_first * 4, ..Options::default() };
    let store = EmbeddedStore::open(Path::new(&dir), &options).expect("the store opens");
    say("ready".to_owned());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, cycle) = (&store, &cycle);
            scope.spawn(move || hammer(store, shape, thread, cycle, requests));
        }
    });
}

fn usage() {
    eprintln!("usage: hammer DIR CYCLE [large|few]");
    std::process::exit(2);
}

/// What the requests are like. The first letter of a nonce is that of its shape; `tools/torture/oracle.py`
/// knows the same rules.
#[derive(Clone, Copy)]
enum Shape {
    /// Single events, and batches of 20 that are far smaller than a segment.
    Small,
    /// Also batches of 100, and requests of 128 KiB and more, which are sealed ahead by a thread of their
    /// own. Every few requests fill a segment.
    Large,
}

impl Shape {
    fn letter(self) -> char {
        match self {
            Shape::Small => 'c',
            Shape::Large => 'l',
        }
    }

    fn segment_bytes(self) -> u64 {
        match self {
            Shape::Small => 256 << 10,
            Shape::Large => 1 << 20,
        }
    }

    /// How many events the n-th request of a thread has, and how long the metadata of each is.
    fn request(self, n: usize) -> (usize, usize) {
        match (self, n % 8) {
            (Shape::Small, _) => (if n.is_multiple_of(7) { 20 } else { 1 }, n % 400),
            (Shape::Large, 0) => (100, 1_500 + n * 37 % 4_000),
            (Shape::Large, 2) => (100, n % 100),
            (Shape::Large, 5) => (1, (128 << 10) + n * 101 % 100_000),
            (Shape::Large, _) => (1, n % 400),
        }
    }
}

fn hammer(store: &EmbeddedStore, shape: Shape, thread: usize, cycle: &str, requests: usize) {
    let chain = ChainId {
        tenant_id: TenantId(Uuid([1; 16])),
        project_id: ProjectId(Uuid([u8::try_from(thread % 3).unwrap_or(0) + 1; 16])),
        mode: if thread % 4 == 3 { Mode::Test } else { Mode::Live },
    };
    for n in 0..requests {
        let nonce = format!("{}{cycle}t{thread}n{n}", shape.letter());
        let (count, pad) = shape.request(n);
        let keyed = n % 2 == 0;
        let drafts = (0..count)
            .map(|i| {
                let body = format!(
                    r#"{{"action":"a.b","actor_id":"{nonce}","resource":"r/{i}","metadata":{{"pad":"{}"}}}}"#,
                    "x".repeat(pad)
                );
                parse_single(body.as_bytes()).expect("JSON").expect("an event")
            })
            .collect();
        say(format!("sent {nonce} {count} {keyed}"));
        let idempotency =
            keyed.then(|| match wait(store.reserve(chain, key(&nonce))).expect("a key can be looked up") {
                Reserved::Fresh(reservation) => (reservation, Ulid(n as u128)),
                other => panic!("a new key is {other:?}"),
            });
        match wait(store.append(Append { chain, drafts, idempotency })).expect("the disk works") {
            Appended::Sealed(receipt) => {
                let ids: Vec<_> = receipt.log_ids.iter().map(ToString::to_string).collect();
                say(format!("acked {nonce} {} {} {}", receipt.first_seq, receipt.hash, ids.join(" ")));
            }
            other => panic!("{other:?}"),
        }
    }
    // No clean stop.
    loop {
        std::thread::park();
    }
}

/// The key of a nonce; the test knows the same rule.
fn key(nonce: &str) -> IdempotencyKey {
    let mut bytes = [0; 32];
    bytes[..nonce.len()].copy_from_slice(nonce.as_bytes());
    IdempotencyKey { key_hash: Hash(bytes), fingerprint: Hash(bytes) }
}

/// One write for a line, so that the reader gets whole lines from all threads, and a line that was written is
/// not lost with the process.
fn say(mut line: String) {
    line.push('\n');
    std::io::stdout().lock().write_all(line.as_bytes()).expect("the reader is there");
}
