//! What was read or opened lately, up to a bound.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// Pieces by key, at most so many bytes, or whatever else their sizes count.
#[derive(Debug)]
pub(super) struct Cache<K, T> {
    size_max: usize,
    inner: Mutex<Inner<K, T>>,
}

#[derive(Debug)]
struct Inner<K, T> {
    pieces: HashMap<K, Cached<T>>,
    /// In the order in which they will be looked at when room is needed.
    order: VecDeque<K>,
    size: usize,
}

#[derive(Debug)]
struct Cached<T> {
    value: Arc<T>,
    size: usize,
    /// Since it was last looked at.
    used: bool,
}

impl<K: Clone + Eq + Hash, T> Cache<K, T> {
    pub(super) fn new(size_max: usize) -> Cache<K, T> {
        let inner = Inner { pieces: HashMap::new(), order: VecDeque::new(), size: 0 };
        Cache { size_max, inner: Mutex::new(inner) }
    }

    pub(super) fn get_or_load(
        &self,
        key: &K,
        size: usize,
        load: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Arc<T>> {
        if let Some(cached) = lock(&self.inner).pieces.get_mut(key) {
            cached.used = true;
            return Ok(Arc::clone(&cached.value));
        }
        // Outside of the lock; two readers may load the same piece, which is harmless.
        let value = Arc::new(load()?);
        let mut inner = lock(&self.inner);
        let cached = Cached { value: Arc::clone(&value), size, used: false };
        if inner.pieces.insert(key.clone(), cached).is_none() {
            inner.size += size;
            inner.order.push_back(key.clone());
            inner.make_room(self.size_max);
        }
        Ok(value)
    }

    /// What this key stands for is another thing from now on.
    pub(super) fn forget(&self, key: &K) {
        let mut inner = lock(&self.inner);
        if let Some(cached) = inner.pieces.remove(key) {
            inner.size -= cached.size;
            inner.order.retain(|other| other != key);
        }
    }
}

impl<K: Clone + Eq + Hash, T> Inner<K, T> {
    /// Drops what has not been used since it was last looked at, as little as is needed: whoever comes pays
    /// for their own room only.
    fn make_room(&mut self, size_max: usize) {
        while self.size > size_max {
            let Some(key) = self.order.pop_front() else { return };
            let Some(cached) = self.pieces.get_mut(&key) else { continue };
            if std::mem::replace(&mut cached.used, false) {
                self.order.push_back(key);
            } else {
                self.size -= cached.size;
                self.pieces.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Asks for keys, each of size 10, and says which had to be loaded.
    fn loads(cache: &Cache<u32, u32>, keys: &[u32]) -> Vec<u32> {
        let asked = |key: &&u32| {
            let loaded = Cell::new(false);
            let load = || {
                loaded.set(true);
                Ok(**key * 2)
            };
            assert_eq!(*cache.get_or_load(key, 10, load).unwrap(), **key * 2);
            loaded.get()
        };
        keys.iter().filter(asked).copied().collect()
    }

    #[test]
    fn what_was_used_stays_and_what_was_not_makes_room() {
        let cache = Cache::new(30);
        assert_eq!(loads(&cache, &[1, 2, 3, 1, 3]), [1, 2, 3]);
        assert_eq!(loads(&cache, &[4]), [4], "2 goes: it is the only one that was not used again");
        assert!(loads(&cache, &[1, 3, 4]).is_empty());
        assert_eq!(loads(&cache, &[2]), [2]);
        assert_eq!(lock(&cache.inner).pieces.len(), 3);
    }

    #[test]
    fn it_never_holds_more_than_it_may_and_forgets_what_it_is_told_to() {
        let cache = Cache::new(45);
        for key in 0..1000 {
            loads(&cache, &[key, key / 2, key]);
            let inner = lock(&cache.inner);
            assert!(inner.size <= 45 && inner.pieces.len() == inner.order.len());
        }
        loads(&cache, &[5000]);
        cache.forget(&5000);
        cache.forget(&6000);
        assert_eq!(loads(&cache, &[5000]), [5000]);
    }

    #[test]
    fn a_failed_load_leaves_nothing_behind() {
        let cache: Cache<u32, u32> = Cache::new(30);
        assert!(cache.get_or_load(&1, 10, || Err(io::Error::other("on purpose"))).is_err());
        assert_eq!(loads(&cache, &[1]), [1]);
    }
}
