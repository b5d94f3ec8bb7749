//! Deficit round-robin queues: fair by bytes between keys (chains, tenants), or between groups of keys, so
//! that a noisy neighbour cannot starve the others.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::types::{IdMap, IdSet};

/// What one key may pop before the next key has its turn. Quanta count bytes: a key with large items gets as
/// much as a key with many small ones.
const QUANTUM_BYTES: usize = 16 << 10;

/// Memory for more items than this is not kept.
const SPARE_ITEMS_MAX: usize = 1024;

/// Items by key. Those of one key keep their order.
///
/// Every operation but [`FairQueue::take_oldest`] takes a few steps, however many keys there are and however
/// many of them are paused: it runs under the lock that all requests of a store pass.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    waiting: IdMap<K, Waiting<T>>,
    turns: Turns<K>,
    /// Memory of a key that has nothing left in the queue, for the next one that comes.
    spare: VecDeque<(usize, T)>,
    /// Keys that are skipped at present. They lose their place when their turn comes, and get one when they
    /// are resumed.
    paused: IdSet<K>,
    items: usize,
    bytes: usize,
}

/// What a key has in the queue, and how many bytes of it may still go in this round.
#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<(usize, T)>,
    credit: usize,
    place: Place,
}

/// The number of a key's place among the turns; `None` while it has none.
type Place = Option<u64>;

/// Keys in the order of their turns. A key that is moved leaves its old place behind, which nobody has then
/// and which is dropped when its turn comes: no operation has to search for it.
#[derive(Debug)]
struct Turns<K> {
    order: VecDeque<(K, u64)>,
    next: u64,
}

impl<K: Copy> Turns<K> {
    fn new() -> Turns<K> {
        Turns { order: VecDeque::new(), next: 0 }
    }

    fn push_back(&mut self, key: K) -> Place {
        self.next += 1;
        self.order.push_back((key, self.next));
        Some(self.next)
    }

    fn push_front(&mut self, key: K) -> Place {
        self.next += 1;
        self.order.push_front((key, self.next));
        Some(self.next)
    }

    /// The key whose turn it is, of those that have the place in which they stand.
    fn front(&mut self, has_place: impl Fn(&K, u64) -> bool) -> Option<K> {
        loop {
            step();
            let (key, number) = self.order.front()?;
            if has_place(key, *number) {
                return Some(*key);
            }
            self.order.pop_front();
        }
    }

    fn retain(&mut self, has_place: impl Fn(&K, u64) -> bool) {
        self.order.retain(|(key, number)| has_place(key, *number));
    }

    /// The key in front has had its turn.
    fn rotate(&mut self) {
        self.order.rotate_left(1);
    }

    /// The key in front gives up its place.
    fn pop_front(&mut self) {
        self.order.pop_front();
    }
}

/// A look at one key, which tests count.
fn step() {
    #[cfg(test)]
    tests::STEPS.with(|steps| steps.set(steps.get() + 1));
}

impl<K, T> Default for FairQueue<K, T>
where
    K: Copy,
{
    fn default() -> FairQueue<K, T> {
        FairQueue {
            waiting: IdMap::default(),
            turns: Turns::new(),
            spare: VecDeque::new(),
            paused: IdSet::default(),
            items: 0,
            bytes: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    pub fn push(&mut self, key: K, bytes: usize, item: T) {
        let spare = &mut self.spare;
        let new = || Waiting { items: std::mem::take(spare), credit: 0, place: None };
        let waiting = self.waiting.entry(key).or_insert_with(new);
        if waiting.place.is_none() {
            waiting.place = self.turns.push_back(key);
        }
        waiting.items.push_back((bytes, item));
        self.items += 1;
        self.bytes += bytes;
    }

    /// Skips a key until it is resumed: its items stay in the queue.
    pub fn pause(&mut self, key: K) {
        self.paused.insert(key);
    }

    pub fn resume(&mut self, key: K) {
        self.paused.remove(&key);
        if let Some(waiting) = self.waiting.get_mut(&key).filter(|waiting| waiting.place.is_none()) {
            waiting.place = self.turns.push_back(key);
        }
    }

    /// Resumes a key and gives it the next turn: it has waited while others went.
    pub fn resume_first(&mut self, key: K) {
        self.paused.remove(&key);
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.place = self.turns.push_front(key);
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

    /// The next item and its bytes. An item that is larger than a quantum waits for as many quanta as it is
    /// large.
    pub fn peek(&mut self) -> Option<(usize, &T)> {
        let key = self.front()?;
        let (bytes, item) = self.waiting.get(&key)?.items.front()?;
        Some((*bytes, item))
    }

    /// The key of the next item, which then is in front.
    fn front(&mut self) -> Option<K> {
        loop {
            let has_place =
                |key: &K, number| self.waiting.get(key).is_some_and(|waiting| waiting.place == Some(number));
            let key = self.turns.front(has_place)?;
            let waiting = self.waiting.get_mut(&key)?;
            if self.paused.contains(&key) {
                waiting.place = None;
                self.turns.pop_front();
                continue;
            }
            let (bytes, _) = waiting.items.front()?;
            if waiting.credit >= *bytes {
                return Some(key);
            }
            waiting.credit += QUANTUM_BYTES;
            self.turns.rotate();
        }
    }

    pub fn pop(&mut self) -> Option<T> {
        let key = self.front()?;
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
            self.turns.pop_front();
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
        self.forget_empty();
        taken
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// Takes all items that meet the condition, whatever their place.
    pub fn take_all(&mut self, condition: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for waiting in self.waiting.values_mut() {
            for (bytes, item) in std::mem::take(&mut waiting.items) {
                if condition(&item) {
                    self.items -= 1;
                    self.bytes -= bytes;
                    taken.push(item);
                } else {
                    waiting.items.push_back((bytes, item));
                }
            }
        }
        self.forget_empty();
        taken
    }

    /// Places go with their keys: nobody may come to drop them, since a queue whose items expire is one that
    /// is not taken from.
    fn forget_empty(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.items.is_empty());
        let waiting = &self.waiting;
        self.turns.retain(|key, number| waiting.get(key).is_some_and(|known| known.place == Some(number)));
    }

    /// All items, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().flat_map(|waiting| waiting.items.iter().map(|(_, item)| item))
    }
}

/// Items by group and key: fair by bytes between groups (tenants), then between the keys of a group (their
/// chains). A group gets as much as any other, however many keys it has.
#[derive(Debug)]
pub struct GroupedQueue<G, K, T> {
    groups: IdMap<G, Group<K, T>>,
    turns: Turns<G>,
    /// Memory of a group that has nothing left in the queue, for the next one that comes.
    spare: Option<FairQueue<K, T>>,
    items: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Group<K, T> {
    queue: FairQueue<K, T>,
    credit: usize,
    /// `None` also while all keys of the group that have items are paused.
    place: Place,
}

impl<G: Copy, K, T> Default for GroupedQueue<G, K, T> {
    fn default() -> GroupedQueue<G, K, T> {
        GroupedQueue { groups: IdMap::default(), turns: Turns::new(), spare: None, items: 0, bytes: 0 }
    }
}

impl<G: Copy + Eq + Hash, K: Copy + Eq + Hash, T> GroupedQueue<G, K, T> {
    pub fn push(&mut self, group: G, key: K, bytes: usize, item: T) {
        let known = self.known(group);
        known.queue.push(key, bytes, item);
        if known.place.is_none() {
            self.give_place(group);
        }
        self.items += 1;
        self.bytes += bytes;
    }

    /// As [`FairQueue::pause`].
    pub fn pause(&mut self, group: G, key: K) {
        self.known(group).queue.pause(key);
    }

    pub fn resume(&mut self, group: G, key: K) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.queue.resume(key);
        if known.place.is_none() {
            self.give_place(group);
        }
    }

    /// Resumes a key and gives it the next turn, whatever others of its group have taken meanwhile: it was
    /// its turn when it was skipped.
    pub fn resume_first(&mut self, group: G, key: K) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.queue.resume_first(key);
        if let Some((bytes, _)) = known.queue.peek() {
            known.credit = known.credit.max(bytes);
        }
        known.place = self.turns.push_front(group);
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

    /// The next item and its bytes, as [`FairQueue::peek`].
    pub fn peek(&mut self) -> Option<(usize, &T)> {
        let group = self.front()?;
        self.groups.get_mut(&group)?.queue.peek()
    }

    /// The group of the next item, which then is in front.
    fn front(&mut self) -> Option<G> {
        loop {
            let has_place =
                |group: &G, number| self.groups.get(group).is_some_and(|known| known.place == Some(number));
            let group = self.turns.front(has_place)?;
            let known = self.groups.get_mut(&group)?;
            let bytes = known.queue.peek().map(|(bytes, _)| bytes);
            match bytes {
                Some(bytes) if known.credit >= bytes => return Some(group),
                Some(_) => {
                    known.credit += QUANTUM_BYTES;
                    self.turns.rotate();
                }
                // All that it has is paused, or it has nothing.
                None => {
                    known.place = None;
                    self.turns.pop_front();
                    self.forget_if_unused(group);
                }
            }
        }
    }

    pub fn pop(&mut self) -> Option<T> {
        let group = self.front()?;
        let known = self.groups.get_mut(&group)?;
        let before = known.queue.bytes();
        let item = known.queue.pop()?;
        let bytes = before - known.queue.bytes();
        known.credit -= bytes;
        self.items -= 1;
        self.bytes -= bytes;
        if known.queue.is_empty() {
            // What it has not used is not kept: a group that comes back gets no more than one that is new.
            known.credit = 0;
            known.place = None;
            self.turns.pop_front();
            self.forget_if_unused(group);
        }
        Some(item)
    }

    fn known(&mut self, group: G) -> &mut Group<K, T> {
        let spare = &mut self.spare;
        let new = || Group { queue: spare.take().unwrap_or_default(), credit: 0, place: None };
        self.groups.entry(group).or_insert_with(new)
    }

    fn give_place(&mut self, group: G) {
        if let Some(known) = self.groups.get_mut(&group) {
            known.place = self.turns.push_back(group);
        }
    }

    /// A group is known for as long as it has items, or keys that are paused.
    fn forget_if_unused(&mut self, group: G) {
        let is_unused = |known: &Group<K, T>| known.queue.is_empty() && known.queue.paused.is_empty();
        if self.groups.get(&group).is_some_and(is_unused) {
            self.spare = self.groups.remove(&group).map(|known| known.queue);
        }
    }

    /// The oldest item of each key.
    pub fn oldest(&self) -> impl Iterator<Item = &T> {
        self.groups.values().flat_map(|known| known.queue.oldest())
    }

    /// As [`FairQueue::take_oldest`].
    pub fn take_oldest(&mut self, condition: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for known in self.groups.values_mut() {
            taken.append(&mut known.queue.take_oldest(&condition));
        }
        self.items -= taken.len();
        self.bytes = self.groups.values().map(|known| known.queue.bytes()).sum();
        self.groups.retain(|_, known| !known.queue.is_empty() || !known.queue.paused.is_empty());
        let groups = &self.groups;
        self.turns.retain(|group, number| groups.get(group).is_some_and(|known| known.place == Some(number)));
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

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
        assert!(
            queue.is_empty()
                && queue.bytes() == 0
                && queue.waiting.is_empty()
                && queue.turns.order.is_empty()
        );
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

    #[test]
    fn a_thousand_chains_that_are_paused_and_resumed_cost_a_few_steps_each() {
        const CHAINS: usize = 1000;
        let mut queue = GroupedQueue::default();
        for chain in 0..CHAINS {
            queue.push(chain % 10, chain, 10, chain);
            queue.push(chain % 10, chain, 10, chain);
        }
        STEPS.set(0);
        let mut skipped = Vec::new();
        // Each is skipped when its turn comes, as a group does it.
        while let Some((_, chain)) = queue.peek() {
            let chain = *chain;
            queue.pause(chain % 10, chain);
            skipped.push(chain);
        }
        assert_eq!(skipped.len(), CHAINS);
        for chain in skipped.iter().rev() {
            queue.resume_first(chain % 10, *chain);
        }
        assert_eq!(queue.peek(), Some((10, &skipped[0])), "they keep their order");
        for chain in &skipped {
            queue.pause(chain % 10, *chain);
            queue.peek();
            queue.resume(chain % 10, *chain);
        }
        while queue.pop().is_some() {}
        assert!(STEPS.get() <= 40 * CHAINS, "{}", STEPS.get());
        assert!(queue.groups.is_empty() && queue.bytes() == 0, "nothing is remembered");
    }

    #[test]
    fn a_tenant_with_a_thousand_chains_gets_as_much_as_one_with_a_single_chain() {
        let mut queue = GroupedQueue::default();
        for chain in 0..1000 {
            for _ in 0..4 {
                queue.push(1, chain, 10 << 10, 1);
            }
        }
        for _ in 0..100 {
            queue.push(2, 5000, 10 << 10, 2);
        }
        let first: Vec<i32> = (0..100).filter_map(|_| queue.pop()).collect();
        let of_second = first.iter().filter(|tenant| **tenant == 2).count();
        assert!((49..=51).contains(&of_second), "{of_second}");
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 4000);
    }

    #[test]
    fn a_group_whose_keys_are_all_paused_lets_the_others_go_and_goes_on_when_one_is_resumed() {
        let mut queue = GroupedQueue::default();
        queue.push(1, 10, 5, "paused");
        queue.push(2, 20, 5, "other");
        queue.pause(1, 10);
        assert_eq!((queue.pop(), queue.pop(), queue.len()), (Some("other"), None, 1));
        queue.push(1, 10, 5, "behind it");
        queue.push(1, 11, 5, "of another key");
        assert_eq!((queue.pop(), queue.pop()), (Some("of another key"), None));
        queue.resume(1, 10);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some("paused"), Some("behind it"), None));
        queue.pause(3, 30);
        queue.push(3, 30, 5, "paused before it came");
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.take_oldest(|_| true), ["paused before it came"]);
        assert_eq!((queue.len(), queue.bytes(), queue.peek()), (0, 0, None));
    }

    #[test]
    fn a_queue_whose_items_expire_and_are_never_taken_does_not_grow() {
        let mut queue = GroupedQueue::default();
        for round in 0..100 {
            for key in 0..10 {
                queue.push(key % 3, key, 5, round);
            }
            assert_eq!(queue.take_oldest(|_| true).len(), 10);
        }
        assert!(queue.groups.is_empty() && queue.turns.order.is_empty());
        let mut queue = FairQueue::default();
        for round in 0..100 {
            queue.push(1, 5, round);
            assert_eq!(queue.take_all(|_| true), [round]);
        }
        assert!(queue.turns.order.is_empty() && queue.waiting.is_empty());
    }
}
