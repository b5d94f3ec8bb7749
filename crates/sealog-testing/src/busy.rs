//! Threads of a pool that are kept busy: what does not wait for them was done elsewhere.

use std::sync::{Arc, Mutex, mpsc};

use sealog_store::pool::{FairPool, Lane, Payer};

/// Keeps every thread that computes busy until it is dropped.
#[derive(Debug)]
pub struct Blocked {
    _release: mpsc::Sender<()>,
}

impl Blocked {
    pub fn compute(pool: &FairPool) -> Blocked {
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (began, begun) = mpsc::channel();
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            let (released, began) = (Arc::clone(&released), began.clone());
            let answer = pool.run(Lane::Compute, Payer::Operator, 1, move || {
                began.send(()).unwrap();
                let _ = released.lock().map(|released| released.recv());
            });
            std::thread::spawn(move || answer.blocking_recv());
            begun.recv().unwrap();
        }
        Blocked { _release: release }
    }
}
