//! Work on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Does `act` for each item, and hands the results to `take` in the order of the items. As many items as
/// there are cores are in work at a time, because each may be a whole segment in memory.
pub(super) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(&T, R),
) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for some in items.chunks(cores) {
        let done: Vec<Mutex<Option<R>>> = some.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let worker = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = some.get(at) else { return };
                *done[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(act(item));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..some.len() {
                scope.spawn(worker);
            }
            worker();
        });
        for (item, result) in some.iter().zip(done) {
            let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
            take(item, result.expect("the scope has ended, so every item was worked on"));
        }
    }
}
