//! Steps that an input causes, counted in tests: what one request can cost is asserted in steps and never in
//! time.

/// Counts steps of this thread. Nothing in a build that is used.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn count(_steps: usize) {}

#[cfg(test)]
pub(crate) use counted::{count, of};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn count(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// What came out, and how many steps it took.
    pub(crate) fn of<T>(act: impl FnOnce() -> T) -> (T, usize) {
        STEPS.set(0);
        let result = act();
        (result, STEPS.get())
    }
}
