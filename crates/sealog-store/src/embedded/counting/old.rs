//! Segments whose counts have to be found or made: those that were full before this start, and those whose
//! counts are damaged.

/// The newest first. Each is looked at once, however many there are.
#[derive(Debug, Default)]
pub(crate) struct Old {
    /// The next one last.
    due: Vec<u64>,
    /// Whether those are among them that were there at the start.
    is_begun: bool,
}

impl Old {
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Those that were there, in order.
    pub(crate) fn begin(&mut self, numbers: impl Iterator<Item = u64>) {
        self.due = numbers.collect();
        self.is_begun = true;
    }

    /// Comes next. Before the beginning nothing has to be kept: whoever begins looks at all of them.
    pub(crate) fn add(&mut self, number: u64) {
        if self.is_begun {
            self.due.push(number);
        }
    }

    /// Stays the next one until it is done.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.last().copied()
    }

    /// Others may have come behind it meanwhile.
    pub(crate) fn done(&mut self, number: u64) {
        if let Some(at) = self.due.iter().rposition(|due| *due == number) {
            self.due.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_a_damaged_one_before_all() {
        let mut old = Old::default();
        old.add(7);
        assert_eq!((old.next(), old.is_begun()), (None, false));
        old.begin([1, 2, 3].into_iter());
        assert_eq!((old.next(), old.next()), (Some(3), Some(3)), "until it is done");
        old.add(9);
        old.done(3);
        assert_eq!(old.next(), Some(9));
        old.done(9);
        old.done(9);
        assert_eq!(old.next(), Some(2));
    }

    /// To look through all of them for each would take minutes.
    #[test]
    fn of_300_000_segments_each_is_looked_at_once() {
        let mut old = Old::default();
        old.begin(0..300_000);
        for expected in (0..300_000).rev() {
            assert_eq!(old.next(), Some(expected));
            old.done(expected);
        }
        assert_eq!(old.next(), None);
    }
}
