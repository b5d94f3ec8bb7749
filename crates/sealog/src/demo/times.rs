//! When events happen: more by day than by night, and few at the weekend.

use super::dice::Dice;

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;
const BY_HOUR: [f64; 24] = [
    2., 1., 1., 1., 1., 2., 4., 9., 16., 20., 21., 19., 15., 17., 20., 19., 17., 13., 9., 7., 6., 5., 4., 3.,
];
const WEEKEND: f64 = 0.3;

/// So many times from `begin_ms` on, for a whole number of hours, in order.
pub(super) fn spread(begin_ms: u64, hours: u64, count: u32, dice: &mut Dice) -> Vec<u64> {
    let weights: Vec<f64> = (0..hours).map(|hour| weight(begin_ms + hour * HOUR_MS)).collect();
    let all: f64 = weights.iter().sum();
    let (mut hour, mut before) = (0, 0.);
    let mut times = Vec::with_capacity(count as usize);
    for number in 0..count {
        let at = (f64::from(number) + dice.part()) / f64::from(count) * all;
        while hour + 1 < weights.len() && before + weights[hour] < at {
            before += weights[hour];
            hour += 1;
        }
        let part = ((at - before) / weights[hour]).clamp(0., 1.);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of an hour")]
        let inside_ms = (part * (HOUR_MS - 1) as f64) as u64;
        times.push(begin_ms + hour as u64 * HOUR_MS + inside_ms);
    }
    times
}

fn weight(at_ms: u64) -> f64 {
    let by_hour = BY_HOUR[(at_ms / HOUR_MS % 24) as usize];
    // The first of January 1970 was a Thursday.
    let is_weekend = matches!((at_ms / DAY_MS + 4) % 7, 0 | 6);
    if is_weekend { by_hour * WEEKEND } else { by_hour }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Monday, 00:00.
    const MONDAY_MS: u64 = 1_793_577_600_000;

    #[test]
    fn times_are_in_order_inside_their_hours_and_fewer_at_night_and_at_the_weekend() {
        let times = spread(MONDAY_MS, 7 * 24, 7000, &mut Dice::new(1));
        assert_eq!(times.len(), 7000);
        assert!(times.is_sorted());
        assert!(times[0] >= MONDAY_MS && *times.last().unwrap() < MONDAY_MS + 7 * DAY_MS);
        let count = |from: u64, hours: u64| {
            let from = MONDAY_MS + from * HOUR_MS;
            times.iter().filter(|at| (from..from + hours * HOUR_MS).contains(at)).count()
        };
        assert!(count(10, 1) > 5 * count(3, 1), "{} {}", count(10, 1), count(3, 1));
        assert!(count(0, 24) > 2 * count(5 * 24, 24));
    }
}
