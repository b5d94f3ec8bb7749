//! How many different values there were, about: a HyperLogLog of 4,096 registers.
//!
//! A value leaves no more behind than the place of its register and how rare its hash was, so a sketch names
//! nobody, and two of them are one by taking the larger registers.

use siphasher::sip::SipHasher13;

use crate::bytes::{Take, u16_len};

const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// Up to so many registers are kept one by one; then all of them.
const FEW_MAX: usize = REGISTERS / 4;
/// The rank of a hash without a bit behind those of the register.
const RANK_MAX: u8 = 64 - 12 + 1;

/// Of an estimate: `1.04 / sqrt(4096)`, rounded up. Two estimates of three are closer.
pub const STANDARD_ERROR_PERCENT: u32 = 2;

/// How many different values were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinct(Registers);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Registers {
    /// Sorted by their places. All others are zero.
    Few(Vec<(u16, u8)>),
    All(Box<[u8]>),
}

/// All that a value leaves behind: its register, and how rare its hash is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    place: u16,
    rank: u8,
}

impl Register {
    pub(super) fn of(value: &str) -> Register {
        // The key is no secret. It must never change, since sketches of different days and stores are put
        // together.
        let hash = SipHasher13::new_with_key(b"sealog distincts").hash(value.as_bytes());
        let [low, high, ..] = hash.to_le_bytes();
        let place = u16::from_le_bytes([low, high]) & 0x0fff;
        let rank = u8::try_from((hash >> PRECISION).trailing_zeros() + 1).unwrap_or(RANK_MAX).min(RANK_MAX);
        Register { place, rank }
    }
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct(Registers::Few(Vec::new()))
    }
}

impl Distinct {
    pub fn add(&mut self, value: &str) {
        self.raise(Register::of(value));
    }

    pub(super) fn raise(&mut self, Register { place, rank }: Register) {
        match &mut self.0 {
            Registers::All(all) => {
                let register = &mut all[usize::from(place)];
                *register = rank.max(*register);
            }
            Registers::Few(few) => match few.binary_search_by_key(&place, |(place, _)| *place) {
                Ok(at) => few[at].1 = rank.max(few[at].1),
                Err(at) if few.len() < FEW_MAX => few.insert(at, (place, rank)),
                Err(_) => {
                    let mut all = vec![0; REGISTERS].into_boxed_slice();
                    for (place, rank) in few.drain(..).chain([(place, rank)]) {
                        all[usize::from(place)] = rank;
                    }
                    self.0 = Registers::All(all);
                }
            },
        }
    }

    /// Those of both.
    pub fn merge(&mut self, other: &Distinct) {
        match &other.0 {
            Registers::Few(few) => {
                few.iter().for_each(|(place, rank)| self.raise(Register { place: *place, rank: *rank }))
            }
            Registers::All(all) => {
                for (place, rank) in (0..).zip(all).filter(|(_, rank)| **rank > 0) {
                    self.raise(Register { place, rank: *rank });
                }
            }
        }
    }

    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let (mut zeros, mut sum) = (0usize, 0.0);
        let mut look = |rank: u8| sum += 0.5f64.powi(i32::from(rank));
        match &self.0 {
            Registers::Few(few) => {
                few.iter().for_each(|(_, rank)| look(*rank));
                zeros = REGISTERS - few.len();
                sum += zeros as f64;
            }
            Registers::All(all) => {
                zeros += all.iter().filter(|rank| **rank == 0).count();
                all.iter().for_each(|rank| look(*rank));
            }
        }
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        // With few values, how many registers none has come to tells more.
        let estimate = if raw <= 2.5 * registers && zeros > 0 {
            registers * (registers / zeros as f64).ln()
        } else {
            raw
        };
        rounded(estimate)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Registers::Few(few) => {
                out.extend_from_slice(&u16_len(few.len()).to_le_bytes());
                for (place, rank) in few {
                    out.extend_from_slice(&place.to_le_bytes());
                    out.push(*rank);
                }
            }
            Registers::All(all) => {
                out.extend_from_slice(&u16::MAX.to_le_bytes());
                out.extend_from_slice(all);
            }
        }
    }

    pub(super) fn decode(take: &mut Take<'_>) -> Option<Distinct> {
        let length = take.u16()?;
        if length == u16::MAX {
            let all: Box<[u8]> = take.bytes(REGISTERS)?.into();
            return all.iter().all(|rank| *rank <= RANK_MAX).then_some(Distinct(Registers::All(all)));
        }
        if usize::from(length) > FEW_MAX {
            return None;
        }
        let mut few = Vec::with_capacity(usize::from(length));
        for _ in 0..length {
            few.push((take.u16()?, take.u8()?));
        }
        let sorted = few.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let sane =
            few.iter().all(|(place, rank)| usize::from(*place) < REGISTERS && (1..=RANK_MAX).contains(rank));
        (sorted && sane).then_some(Distinct(Registers::Few(few)))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate is positive and small"
)]
fn rounded(estimate: f64) -> u64 {
    estimate.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: std::ops::Range<u32>) -> Distinct {
        let mut distinct = Distinct::default();
        values.for_each(|value| distinct.add(&format!("usr_{value}")));
        distinct
    }

    #[test]
    fn an_estimate_is_within_a_few_percent_and_repeating_a_value_changes_nothing() {
        assert_eq!(Distinct::default().estimate(), 0);
        for count in [1, 2, 10, 100, 1000, 10_000, 100_000] {
            let mut distinct = of(0..count);
            let before = distinct.estimate();
            let error = before.abs_diff(u64::from(count));
            assert!(error * 100 <= u64::from(count * 3 * STANDARD_ERROR_PERCENT), "{count}: {before}");
            distinct.merge(&of(0..count));
            assert_eq!(distinct.estimate(), before);
        }
    }

    #[test]
    fn the_sketch_of_both_is_that_of_all_however_many_each_has() {
        for (first, second) in [(5, 10), (5, 5000), (5000, 5010), (900, 1100)] {
            let mut both = of(0..first);
            both.merge(&of(first / 2..second));
            assert_eq!(both, of(0..second), "{first} {second}");
        }
    }

    #[test]
    fn a_sketch_reads_back_and_a_malformed_one_does_not() {
        for distinct in [of(0..0), of(0..50), of(0..20_000)] {
            let mut bytes = Vec::new();
            distinct.encode(&mut bytes);
            assert!(bytes.len() <= 2 + REGISTERS);
            assert_eq!(Distinct::decode(&mut Take(&bytes)), Some(distinct));
        }
        for bytes in [
            &[1, 0, 0, 0][..],
            &[1, 0, 0, 0x10, 1],
            &[1, 0, 0, 0, 0],
            &[1, 0, 0, 0, 99],
            &[2, 0, 1, 0, 1, 1, 0, 1],
        ] {
            assert_eq!(Distinct::decode(&mut Take(bytes)), None, "{bytes:?}");
        }
    }
}
