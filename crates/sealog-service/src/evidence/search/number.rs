//! Numbers as JSON writes them, compared exactly: whoever searches for amounts above a limit must not lose
//! one to the precision of a float.

use std::cmp::Ordering;

/// A decimal number: its sign, its digits without zeros at either end, and the place of the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    /// None for zero.
    digits: Vec<u8>,
    /// 0.d1d2d3… times ten to the power of this.
    power: i128,
}

impl Number {
    /// A number by the grammar of JSON.
    pub fn parse(text: &str) -> Option<Number> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, whole(exponent)?),
            None => (rest, 0),
        };
        let (before, after) = match mantissa.split_once('.') {
            Some((before, after)) => (before, Some(after)),
            None => (mantissa, None),
        };
        let digits_only = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = before.len() > 1 && before.starts_with('0');
        if !digits_only(before) || leading_zero || after.is_some_and(|after| !digits_only(after)) {
            return None;
        }
        let all: Vec<u8> = before.bytes().chain(after.unwrap_or("").bytes()).collect();
        let zeros = all.iter().take_while(|digit| **digit == b'0').count();
        let end = all.len() - all.iter().rev().take_while(|digit| **digit == b'0').count();
        if zeros == all.len() {
            return Some(Number { negative: false, digits: Vec::new(), power: 0 });
        }
        let power = i128::try_from(before.len()).ok()? - i128::try_from(zeros).ok()? + exponent;
        Some(Number { negative, digits: all[zeros..end].to_vec(), power })
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

/// An exponent. Beyond 18 digits it stops at the end of the range, where all numbers of one sign are out of
/// any use.
fn whole(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let value = if digits.len() > 18 { 1 << 100 } else { digits.parse().unwrap_or(0) };
    Some(if negative { -value } else { value })
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        let by_size = || (self.power, &self.digits).cmp(&(other.power, &other.digits));
        self.sign().cmp(&other.sign()).then_with(|| match self.sign() {
            1 => by_size(),
            -1 => by_size().reverse(),
            _ => Ordering::Equal,
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_however_they_are_written() {
        // Each line: equal numbers. The lines rise.
        let lines: [&[&str]; 14] = [
            &["-1e400"],
            &["-12345678901234567891"],
            &["-12345678901234567890", "-1234567890123456789e1"],
            &["-2"],
            &["-1.5", "-15e-1"],
            &["0", "-0", "0.0", "0e5", "-0.00E-3"],
            &["1e-400"],
            &["0.1", "1e-1", "0.10"],
            &["1", "1.0", "10e-1", "0.1e1", "0.0001E+4"],
            &["9.99"],
            &["10", "1e1", "1E+1"],
            &["12345678901234567890"],
            &["12345678901234567891"],
            &["1e99999999999999999999"],
        ];
        for (rank, line) in lines.iter().enumerate() {
            for (other_rank, other) in lines.iter().enumerate() {
                for (left, right) in line.iter().flat_map(|left| other.iter().map(move |right| (left, right)))
                {
                    let (a, b) = (Number::parse(left).unwrap(), Number::parse(right).unwrap());
                    assert_eq!(a.cmp(&b), rank.cmp(&other_rank), "{left} {right}");
                }
            }
        }
    }

    #[test]
    fn what_json_does_not_write_is_no_number() {
        for text in [
            "", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "1 ", "NaN", "1_000", "--1", "1.2.3",
            "1e1.5",
        ] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
    }
}
