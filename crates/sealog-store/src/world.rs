//! The clock and the source of randomness, so that tests can hold both still.

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use sealog_core::id::Random80;

use crate::reading::Reading;

pub trait World: Send + Sync + Debug {
    /// Unix milliseconds by the wall clock; may step back.
    fn now_ms(&self) -> u64;

    /// Milliseconds by a clock that nobody sets and that goes on while the machine is suspended. Only
    /// differences mean something. A world that has one clock alone never has a leap.
    fn boot_ms(&self) -> u64 {
        self.now_ms()
    }

    /// The time, and whether it may be sealed with.
    fn clock(&self) -> Reading {
        Reading::sane(self.now_ms())
    }

    fn fill_random(&self, bytes: &mut [u8]);

    fn random80(&self) -> Random80 {
        let mut bytes = [0; 10];
        self.fill_random(&mut bytes);
        Random80(bytes)
    }
}

/// The machine's own.
#[derive(Clone, Copy, Debug)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn boot_ms(&self) -> u64 {
        #[cfg(target_os = "linux")]
        const BOOT: ClockId = ClockId::Boottime;
        // Stands still while the machine is suspended, which then looks like a leap: held back for a while,
        // and believed.
        #[cfg(not(target_os = "linux"))]
        const BOOT: ClockId = ClockId::Monotonic;
        let time = clock_gettime(BOOT);
        u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes)
            .expect("without randomness neither salts nor ids can be made, and going on would be worse");
    }

    /// From a stock of each thread, so that not every id asks the kernel.
    fn random80(&self) -> Random80 {
        const STOCK: usize = 4000;
        thread_local!(static STOCKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
        STOCKED.with_borrow_mut(|stock| {
            if stock.is_empty() {
                stock.resize(STOCK, 0);
                self.fill_random(stock);
            }
            let mut bytes = [0; 10];
            bytes.copy_from_slice(&stock[stock.len() - 10..]);
            stock.truncate(stock.len() - 10);
            Random80(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_repeat_when_the_stock_is_filled_again() {
        let made: std::collections::HashSet<[u8; 10]> =
            (0..10_000).map(|_| SystemWorld.random80().0).collect();
        assert_eq!(made.len(), 10_000);
    }
}
