//! Deficit round-robin queue: fair by bytes between keys (chains, tenants), so that a noisy neighbour cannot starve
//! the others.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::types::IdMap;

/// What one key may pop before the next key has its turn. Quanta count bytes: a key with large items gets as much as a
/// key with many small ones.
const QUANTUM_BYTES: usize = 16 << 10;

/// Memory for more items than this is not kept.
const SPARE_ITEMS_MAX: usize = 1024;

/// Items by key. Those of one key keep their order.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    waiting: IdMap<K, Waiting<T>>,
    order: VecDeque<K>,
    /// Memory of a key that has nothing left in the queue, for the next one that comes.
    spare: VecDeque<(usize, T)>,
    /// Keys that are skipped at present. Seldom more than one.
    paused: Vec<K>,
    items: usize,
    bytes: usize,
}

/// What a key has in the queue, and how many bytes of it may still go in this round.
#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<(usize, T)>,
    credit: usize,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> FairQueue<K, T> {
        FairQueue {
            waiting: IdMap::default(),
            order: VecDeque::new(),
            spare: VecDeque::new(),
            paused: Vec::new(),
            items: 0,
            bytes: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    pub fn push(&mut self, key: K, bytes: usize, item: T) {
        let spare = &mut self.spare;
        let new = || Waiting { items: std::mem::take(spare), credit: 0 };
        let waiting = self.waiting.entry(key).or_insert_with(new);
        if waiting.items.is_empty() {
            self.order.push_back(key);
        }
        waiting.items.push_back((bytes, item));
        self.items += 1;
        self.bytes += bytes;
    }

    /// Skips a key until it is resumed: its items stay in the queue.
    pub fn pause(&mut self, key: K) {
        self.paused.push(key);
    }

    pub fn resume(&mut self, key: K) {
        self.paused.retain(|paused| *paused != key);
    }

    /// Resumes a key and gives it the next turn: it has waited while others went.
    pub fn resume_first(&mut self, key: K) {
        self.resume(key);
        if let Some(at) = self.order.iter().position(|one| *one == key) {
            self.order.remove(at);
            self.order.push_front(key);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    pub fn len(&self) -> usize {
        self.items
    }

    /// Of all items together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next item and its bytes. An item that is larger than a quantum waits for as many quanta as it is large.
    pub fn peek(&mut self) -> Option<(usize, &T)> {
        // How many keys in a row are paused.
        let mut paused = 0;
        loop {
            let key = *self.order.front()?;
            if self.paused.contains(&key) {
                paused += 1;
                if paused == self.order.len() {
                    return None;
                }
                self.order.rotate_left(1);
                continue;
            }
            paused = 0;
            let waiting = self.waiting.get_mut(&key)?;
            let (bytes, _) = waiting.items.front()?;
            if waiting.credit >= *bytes {
                break;
            }
            waiting.credit += QUANTUM_BYTES;
            self.order.rotate_left(1);
        }
        let (bytes, item) = self.waiting.get(self.order.front()?)?.items.front()?;
        Some((*bytes, item))
    }

    pub fn pop(&mut self) -> Option<T> {
        self.peek()?;
        let key = *self.order.front()?;
        let waiting = self.waiting.get_mut(&key)?;
        let (bytes, item) = waiting.items.pop_front()?;
        waiting.credit -= bytes;
        if waiting.items.is_empty() {
            let left = std::mem::take(&mut waiting.items);
            // The memory of a burst is given back.
            if left.capacity() <= SPARE_ITEMS_MAX {
                self.spare = left;
            }
            self.waiting.remove(&key);
            self.order.pop_front();
        }
        self.items -= 1;
        self.bytes -= bytes;
        Some(item)
    }

    /// The oldest item of each key.
    pub fn oldest(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().filter_map(|waiting| waiting.items.front()).map(|(_, item)| item)
    }

    /// Takes the oldest items of each key for as long as they meet the condition.
    pub fn take_oldest(&mut self, condition: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for waiting in self.waiting.values_mut() {
            while waiting.items.front().is_some_and(|(_, item)| condition(item)) {
                let (bytes, item) = waiting.items.pop_front().expect("there is a front");
                self.items -= 1;
                self.bytes -= bytes;
                taken.push(item);
            }
        }
        self.waiting.retain(|_, waiting| !waiting.items.is_empty());
        self.order.retain(|key| self.waiting.contains_key(key));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut FairQueue<u8, (u8, usize)>, key: u8, bytes: usize) {
        queue.push(key, bytes, (key, bytes));
    }

    fn order(queue: &mut FairQueue<u8, (u8, usize)>) -> Vec<(u8, usize)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn a_small_item_does_not_wait_for_all_that_a_neighbour_has_queued() {
        let mut queue = FairQueue::default();
        for _ in 0..32 {
            push(&mut queue, 1, 2 << 20);
        }
        for _ in 0..1000 {
            push(&mut queue, 2, 500);
        }
        push(&mut queue, 3, 500);
        let place = order(&mut queue).iter().position(|(key, _)| *key == 3).unwrap();
        assert!(place <= QUANTUM_BYTES / 500, "{place}");
    }

    #[test]
    fn everyone_gets_as_many_bytes_whatever_the_size_of_their_items() {
        let mut queue = FairQueue::default();
        for _ in 0..10 {
            push(&mut queue, 1, 100 << 10);
        }
        for _ in 0..1000 {
            push(&mut queue, 2, 1 << 10);
        }
        let order = order(&mut queue);
        let first_half = &order[..order.len() / 2];
        let bytes = |key: u8| -> usize {
            first_half.iter().filter(|(of, _)| *of == key).map(|(_, bytes)| bytes).sum()
        };
        assert!(bytes(1).abs_diff(bytes(2)) <= (100 << 10) + QUANTUM_BYTES, "{} {}", bytes(1), bytes(2));
    }

    #[test]
    fn items_of_one_keep_their_order_and_none_is_left() {
        let mut queue = FairQueue::default();
        let sizes = [40 << 10, 10, 2 << 20, 3, QUANTUM_BYTES, QUANTUM_BYTES + 1, 0];
        for bytes in sizes {
            push(&mut queue, 1, bytes);
            push(&mut queue, 2, bytes);
        }
        assert_eq!((queue.len(), queue.bytes()), (14, 2 * sizes.iter().sum::<usize>()));
        let order = order(&mut queue);
        for key in [1, 2] {
            let of_one: Vec<usize> =
                order.iter().filter(|(of, _)| *of == key).map(|(_, bytes)| *bytes).collect();
            assert_eq!(of_one, sizes);
        }
        assert!(queue.is_empty() && queue.bytes() == 0 && queue.waiting.is_empty() && queue.order.is_empty());
    }

    #[test]
    fn a_paused_key_has_no_turn_until_it_is_resumed() {
        let mut queue = FairQueue::default();
        for (key, bytes) in [(1, 2 << 20), (1, 10), (2, 20), (2, 21)] {
            push(&mut queue, key, bytes);
        }
        let mut first = queue.pop().unwrap();
        while first.0 != 1 {
            first = queue.pop().unwrap();
        }
        assert_eq!(first, (1, 2 << 20));
        queue.pause(1);
        push(&mut queue, 3, 30);
        assert_eq!(order(&mut queue), [(3, 30)], "the others' were popped before");
        assert_eq!(queue.peek(), None);
        assert_eq!((queue.is_empty(), queue.bytes()), (false, 10));
        queue.resume(1);
        assert_eq!(order(&mut queue), [(1, 10)]);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn the_oldest_are_taken_up_to_the_first_that_does_not_meet_the_condition() {
        let mut queue = FairQueue::default();
        for (key, bytes) in [(1, 5), (1, 50), (1, 6), (2, 7), (3, 70)] {
            push(&mut queue, key, bytes);
        }
        let mut taken = queue.take_oldest(|(_, bytes)| *bytes < 10);
        taken.sort_unstable();
        assert_eq!(taken, [(1, 5), (2, 7)]);
        assert_eq!((queue.len(), queue.bytes()), (3, 126));
        let mut left = order(&mut queue);
        left.sort_unstable();
        assert_eq!(left, [(1, 6), (1, 50), (3, 70)]);
    }

    #[test]
    fn a_key_that_was_skipped_goes_first_when_it_is_resumed() {
        let mut queue = FairQueue::default();
        for key in [1, 2, 3] {
            push(&mut queue, key, 10);
            push(&mut queue, key, 10);
        }
        // Every key has had a quantum by then, and 1 still has the rest of its own.
        assert_eq!(queue.pop(), Some((1, 10)));
        queue.pause(2);
        queue.resume_first(2);
        assert_eq!(order(&mut queue)[..2], [(2, 10), (2, 10)]);
        // A key that has nothing left has no turn.
        queue.pause(2);
        push(&mut queue, 1, 10);
        queue.resume_first(2);
        assert_eq!(order(&mut queue), [(1, 10)]);
    }
}
