//! Chance that is the same each time: `SplitMix64`. A demo that a document shows looks the same on every
//! machine.

#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// From 0 to `end`, which is not among them.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

pub(super) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A number that belongs to a text.
pub(super) fn number_of(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |number, byte| mix(number ^ u64::from(byte)))
}
