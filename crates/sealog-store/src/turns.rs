//! A queue in which everyone has a turn, so that one tenant's load does not become everyone's wait.

use std::collections::VecDeque;
use std::hash::Hash;

use crate::IdMap;

/// What one may hand over before the next one has its turn. Turns count bytes: whoever sends large requests gets as much as one who sends many small ones.
const TURN_BYTES: usize = 16 << 10;

/// Memory for more items than this is not kept.
const SPARE_ITEMS_MAX: usize = 1024;

/// Items by whose they are. Those of one keep their order.
#[derive(Debug)]
pub struct Turns<K, T> {
    waiting: IdMap<K, Waiting<T>>,
    order: VecDeque<K>,
    /// Memory of one who has nothing left in the queue, for the next who comes.
    spare: VecDeque<(usize, T)>,
    /// Who has no turn at present. Seldom more than one.
    held: Vec<K>,
    items: usize,
    bytes: usize,
}

/// What one has in the queue, and how many bytes of it may still go in this turn.
#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<(usize, T)>,
    credit: usize,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Turns<K, T> {
        Turns {
            waiting: IdMap::default(),
            order: VecDeque::new(),
            spare: VecDeque::new(),
            held: Vec::new(),
            items: 0,
            bytes: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, T> Turns<K, T> {
    pub fn push(&mut self, whose: K, bytes: usize, item: T) {
        let spare = &mut self.spare;
        let new = || Waiting { items: std::mem::take(spare), credit: 0 };
        let waiting = self.waiting.entry(whose).or_insert_with(new);
        if waiting.items.is_empty() {
            self.order.push_back(whose);
        }
        waiting.items.push_back((bytes, item));
        self.items += 1;
        self.bytes += bytes;
    }

    /// Passes over one until they are released: what they have stays in the queue.
    pub fn hold(&mut self, whose: K) {
        self.held.push(whose);
    }

    pub fn release(&mut self, whose: K) {
        self.held.retain(|held| *held != whose);
    }

    /// Releases one, and gives them the next turn: they have waited while others went.
    pub fn release_first(&mut self, whose: K) {
        self.release(whose);
        if let Some(at) = self.order.iter().position(|one| *one == whose) {
            self.order.remove(at);
            self.order.push_front(whose);
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

    /// The item whose turn it is, and its bytes. One that is larger than a turn waits for as many turns as it is large.
    pub fn peek(&mut self) -> Option<(usize, &T)> {
        // How many in a row have no turn.
        let mut passed = 0;
        loop {
            let whose = *self.order.front()?;
            if self.held.contains(&whose) {
                passed += 1;
                if passed == self.order.len() {
                    return None;
                }
                self.order.rotate_left(1);
                continue;
            }
            passed = 0;
            let waiting = self.waiting.get_mut(&whose)?;
            let (bytes, _) = waiting.items.front()?;
            if waiting.credit >= *bytes {
                break;
            }
            waiting.credit += TURN_BYTES;
            self.order.rotate_left(1);
        }
        let (bytes, item) = self.waiting.get(self.order.front()?)?.items.front()?;
        Some((*bytes, item))
    }

    pub fn pop(&mut self) -> Option<T> {
        self.peek()?;
        let whose = *self.order.front()?;
        let waiting = self.waiting.get_mut(&whose)?;
        let (bytes, item) = waiting.items.pop_front()?;
        waiting.credit -= bytes;
        if waiting.items.is_empty() {
            let left = std::mem::take(&mut waiting.items);
            // A crowd's memory is given back.
            if left.capacity() <= SPARE_ITEMS_MAX {
                self.spare = left;
            }
            self.waiting.remove(&whose);
            self.order.pop_front();
        }
        self.items -= 1;
        self.bytes -= bytes;
        Some(item)
    }

    /// Everyone's oldest item.
    pub fn oldest(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().filter_map(|waiting| waiting.items.front()).map(|(_, item)| item)
    }

    /// Takes everyone's oldest items for as long as they meet the condition.
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
        self.order.retain(|whose| self.waiting.contains_key(whose));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(turns: &mut Turns<u8, (u8, usize)>, whose: u8, bytes: usize) {
        turns.push(whose, bytes, (whose, bytes));
    }

    fn order(turns: &mut Turns<u8, (u8, usize)>) -> Vec<(u8, usize)> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn a_small_item_does_not_wait_for_all_that_a_neighbour_has_queued() {
        let mut turns = Turns::default();
        for _ in 0..32 {
            push(&mut turns, 1, 2 << 20);
        }
        for _ in 0..1000 {
            push(&mut turns, 2, 500);
        }
        push(&mut turns, 3, 500);
        let place = order(&mut turns).iter().position(|(whose, _)| *whose == 3).unwrap();
        assert!(place <= TURN_BYTES / 500, "{place}");
    }

    #[test]
    fn everyone_gets_as_many_bytes_whatever_the_size_of_their_items() {
        let mut turns = Turns::default();
        for _ in 0..10 {
            push(&mut turns, 1, 100 << 10);
        }
        for _ in 0..1000 {
            push(&mut turns, 2, 1 << 10);
        }
        let order = order(&mut turns);
        let first_half = &order[..order.len() / 2];
        let bytes = |whose: u8| -> usize {
            first_half.iter().filter(|(of, _)| *of == whose).map(|(_, bytes)| bytes).sum()
        };
        assert!(bytes(1).abs_diff(bytes(2)) <= (100 << 10) + TURN_BYTES, "{} {}", bytes(1), bytes(2));
    }

    #[test]
    fn items_of_one_keep_their_order_and_none_is_left() {
        let mut turns = Turns::default();
        let sizes = [40 << 10, 10, 2 << 20, 3, TURN_BYTES, TURN_BYTES + 1, 0];
        for bytes in sizes {
            push(&mut turns, 1, bytes);
            push(&mut turns, 2, bytes);
        }
        assert_eq!((turns.len(), turns.bytes()), (14, 2 * sizes.iter().sum::<usize>()));
        let order = order(&mut turns);
        for whose in [1, 2] {
            let of_one: Vec<usize> =
                order.iter().filter(|(of, _)| *of == whose).map(|(_, bytes)| *bytes).collect();
            assert_eq!(of_one, sizes);
        }
        assert!(turns.is_empty() && turns.bytes() == 0 && turns.waiting.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn who_is_held_has_no_turn_until_released() {
        let mut turns = Turns::default();
        for (whose, bytes) in [(1, 2 << 20), (1, 10), (2, 20), (2, 21)] {
            push(&mut turns, whose, bytes);
        }
        let mut first = turns.pop().unwrap();
        while first.0 != 1 {
            first = turns.pop().unwrap();
        }
        assert_eq!(first, (1, 2 << 20));
        turns.hold(1);
        push(&mut turns, 3, 30);
        assert_eq!(order(&mut turns), [(3, 30)], "the others' were popped before");
        assert_eq!(turns.peek(), None);
        assert_eq!((turns.is_empty(), turns.bytes()), (false, 10));
        turns.release(1);
        assert_eq!(order(&mut turns), [(1, 10)]);
        assert!(turns.is_empty() && turns.bytes() == 0);
    }

    #[test]
    fn the_oldest_are_taken_up_to_the_first_that_does_not_meet_the_condition() {
        let mut turns = Turns::default();
        for (whose, bytes) in [(1, 5), (1, 50), (1, 6), (2, 7), (3, 70)] {
            push(&mut turns, whose, bytes);
        }
        let mut taken = turns.take_oldest(|(_, bytes)| *bytes < 10);
        taken.sort_unstable();
        assert_eq!(taken, [(1, 5), (2, 7)]);
        assert_eq!((turns.len(), turns.bytes()), (3, 126));
        let mut left = order(&mut turns);
        left.sort_unstable();
        assert_eq!(left, [(1, 6), (1, 50), (3, 70)]);
    }

    #[test]
    fn one_who_was_passed_over_goes_first_afterwards() {
        let mut turns = Turns::default();
        for whose in [1, 2, 3] {
            push(&mut turns, whose, 10);
            push(&mut turns, whose, 10);
        }
        // Everyone has had a turn by then, and 1 still has the rest of its own.
        assert_eq!(turns.pop(), Some((1, 10)));
        turns.hold(2);
        turns.release_first(2);
        assert_eq!(order(&mut turns)[..2], [(2, 10), (2, 10)]);
        // One who has nothing left has no turn.
        turns.hold(2);
        push(&mut turns, 1, 10);
        turns.release_first(2);
        assert_eq!(order(&mut turns), [(1, 10)]);
    }
}
