//! The one policy for locks whose holder has panicked: they are taken over.
//!
//! Whoever catches the panic puts what was guarded in order, or sees to it that nothing is built on it (a log
//! is poisoned, a transaction rolled back). Everyone else must not die of it: a lock that panics in turn
//! makes one failed request fail all that come after it. State that is only a count, a cache or a set is
//! right after any single change of it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

pub fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_lock_of_a_thread_that_panicked_is_taken_over() {
        let (mutex, shared) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
        let (held, also_held) = (Arc::clone(&mutex), Arc::clone(&shared));
        let panicked = std::thread::spawn(move || {
            let (_held, _also_held) = (lock(&held), write(&also_held));
            panic!("as planned");
        });
        assert!(panicked.join().is_err());
        assert!(mutex.is_poisoned() && shared.is_poisoned());
        *lock(&mutex) += 1;
        *write(&shared) += 1;
        assert_eq!((*lock(&mutex), *read(&shared)), (2, 2));
    }
}
