//! One line on a terminal that says what is being measured; nothing when nobody looks.

use std::io::{IsTerminal, Write};
use std::time::Instant;

#[derive(Debug)]
pub struct Progress {
    shown: bool,
    start: Instant,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { shown: std::io::stderr().is_terminal(), start: Instant::now() }
    }

    pub fn say(&self, what: &str) {
        if self.shown {
            // A terminal that has gone away is no reason to stop measuring.
            let _ = write!(std::io::stderr(), "\r\x1b[K[{:>4} s] {what}", self.start.elapsed().as_secs());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
