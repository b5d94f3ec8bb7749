//! Writes to a store as fast as it can and says on standard output what it sent and what was acknowledged, until it is killed. `tests/kill.rs` reads that and does the killing.
//!
//! `hammer DIR CYCLE`: lines `ready`, `sent NONCE COUNT KEYED`, `acked NONCE FIRST_SEQ HASH LOG_ID...`.

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use sealog_core::event::parse_single;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{Append, Appended, IdempotencyKey, Reserved, Store};

const THREADS: usize = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(dir), Some(cycle)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: hammer DIR CYCLE");
        std::process::exit(2);
    };
    // Small segments, so that rolling over is hit by kills as well.
    let options =
        Options { segment_bytes_first: 256 << 10, segment_bytes_max: 1 << 20, ..Options::default() };
    let store = EmbeddedStore::open(Path::new(&dir), &options).expect("the store opens");
    say("ready".to_owned());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, cycle) = (&store, &cycle);
            scope.spawn(move || hammer(store, thread, cycle));
        }
    });
}

fn hammer(store: &EmbeddedStore, thread: usize, cycle: &str) {
    let chain = ChainId {
        tenant_id: TenantId(Uuid([1; 16])),
        project_id: ProjectId(Uuid([u8::try_from(thread % 3).unwrap_or(0) + 1; 16])),
        mode: if thread % 4 == 3 { Mode::Test } else { Mode::Live },
    };
    for n in 0.. {
        let nonce = format!("c{cycle}t{thread}n{n}");
        let count = if n % 7 == 0 { 20 } else { 1 };
        let keyed = n % 2 == 0;
        let drafts = (0..count)
            .map(|i| {
                let body = format!(
                    r#"{{"action":"a.b","actor_id":"{nonce}","resource":"r/{i}","metadata":{{"pad":"{}"}}}}"#,
                    "x".repeat(n % 400)
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
}

/// The key of a nonce; the test knows the same rule.
fn key(nonce: &str) -> IdempotencyKey {
    let mut bytes = [0; 32];
    bytes[..nonce.len()].copy_from_slice(nonce.as_bytes());
    IdempotencyKey { key_hash: Hash(bytes), fingerprint: Hash(bytes) }
}

/// One write for a line, so that the reader gets whole lines from all threads, and a line that was written is not lost with the process.
fn say(mut line: String) {
    line.push('\n');
    std::io::stdout().lock().write_all(line.as_bytes()).expect("the reader is there");
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
