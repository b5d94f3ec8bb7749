//! Chance that can be repeated.

use sealog_store::world::{SystemWorld, World};

/// A small pseudo-random generator: tests print its seed, so that a failure can be repeated.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 11) % end
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// How often a test does the same at random moments: so often, or as the environment says, for a long run by
/// hand.
pub fn rounds(usual: u64) -> u64 {
    match std::env::var("SEALOG_ROUNDS") {
        Ok(text) => text.parse().expect("SEALOG_ROUNDS is a number"),
        Err(_) => usual,
    }
}

/// A seed from the environment, to repeat a failure, or a new one; printed either way.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("SEALOG_SEED") {
        Ok(text) => text.parse().expect("SEALOG_SEED is a number"),
        Err(_) => {
            let mut bytes = [0; 8];
            SystemWorld.fill_random(&mut bytes);
            u64::from_le_bytes(bytes) >> 1
        }
    };
    println!("{test}: seed {seed} (repeat with SEALOG_SEED={seed})");
    seed
}
