//! From samples to the few numbers that are reported.

/// Several repeats of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Nothing for no repeats.
    pub fn of(repeats: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = repeats.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min: first, max: last })
    }
}

/// Times of single operations in one repeat, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    pub samples: usize,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Percentiles {
    /// Nothing for no samples.
    pub fn of_ns(samples_ns: &mut [u64]) -> Option<Percentiles> {
        samples_ns.sort_unstable();
        let last = *samples_ns.last()?;
        // The smallest value that is at least as large as this many thousandths of all.
        let at = |thousandths: usize| {
            let rank = (samples_ns.len() * thousandths).div_ceil(1000).max(1);
            samples_ns[rank - 1] as f64 / 1e3
        };
        Some(Percentiles {
            samples: samples_ns.len(),
            p50: at(500),
            p90: at(900),
            p95: at(950),
            p99: at(990),
            p999: at(999),
            max: last as f64 / 1e3,
        })
    }
}

/// The median of one number over all repeats; 0 for none.
pub fn median(repeats: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(repeats).map_or(0.0, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut samples: Vec<u64> = (1..=1000).rev().map(|us| us * 1000).collect();
        let of = Percentiles::of_ns(&mut samples).unwrap();
        assert_eq!((of.p50, of.p90, of.p99, of.p999, of.max), (500.0, 900.0, 990.0, 999.0, 1000.0));
        let of = Percentiles::of_ns(&mut [7000]).unwrap();
        assert_eq!((of.samples, of.p50, of.p99, of.max), (1, 7.0, 7.0, 7.0));
        assert!(Percentiles::of_ns(&mut []).is_none());
    }
}
