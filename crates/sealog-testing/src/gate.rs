//! A place where a test holds threads up, and sees that they are there.

use std::sync::{Condvar, Mutex};

/// Holds up whoever passes while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    /// Whether it is closed, and how many wait before it.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub fn close(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    pub fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

/// Opens a gate when a test ends, however it ends: a store behind a closed gate cannot be closed.
#[derive(Debug)]
pub struct Opener<'a>(pub &'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}
