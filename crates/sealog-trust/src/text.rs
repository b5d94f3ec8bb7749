//! Texts of lines: how each value in them is spelled, and what is wrong with one that is not.
//!
//! A value has one spelling. A parser that took two would give two texts, hence two hashes, to one meaning.

use std::fmt;

use base64ct::{Base64, Encoding};
use sealog_core::hex;
use sealog_core::id::Hash;

/// Largest number of leaves, index and time: every language has room for it in a signed integer.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// A text that does not have the form it must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Counted from 1; 0 if the text as a whole is wrong.
    pub line: usize,
    pub field: &'static str,
    /// What the field has to be, as the rest of a sentence: "must be …".
    pub problem: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "`{}` {}", self.field, self.problem)
    }
}

impl std::error::Error for Malformed {}

pub(crate) fn malformed(field: &'static str, problem: &'static str) -> Malformed {
    Malformed { line: 0, field, problem }
}

/// Reads a text line by line. Every line ends with a line feed, the last one too.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Lines<'a> {
        Lines { rest: text, number: 0 }
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// The number of the line that was read last.
    pub(crate) fn wrong(&self, field: &'static str, problem: &'static str) -> Malformed {
        Malformed { line: self.number, field, problem }
    }

    pub(crate) fn next(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        self.number += 1;
        let (line, rest) = self
            .rest
            .split_once('\n')
            .ok_or_else(|| self.wrong(field, "must be on a line of its own that ends with a line feed"))?;
        self.rest = rest;
        Ok(line)
    }

    /// The value of a line `NAME VALUE`.
    pub(crate) fn value(&mut self, name: &'static str) -> Result<&'a str, Malformed> {
        let line = self.next(name)?;
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        value.ok_or_else(|| self.wrong(name, "must be the name of this line, before a space and the value"))
    }

    pub(crate) fn decimal(&self, field: &'static str, text: &str) -> Result<u64, Malformed> {
        decimal(text).ok_or_else(|| self.wrong(field, DECIMAL))
    }

    pub(crate) fn hex<const N: usize>(&self, field: &'static str, text: &str) -> Result<[u8; N], Malformed> {
        hex::decode(text).ok_or_else(|| match N {
            16 => self.wrong(field, "must have 32 hex digits in lower case"),
            _ => self.wrong(field, "must have 64 hex digits in lower case"),
        })
    }

    pub(crate) fn hash(&self, field: &'static str, text: &str) -> Result<Hash, Malformed> {
        hash(text).ok_or_else(|| self.wrong(field, BASE64_HASH))
    }

    /// Hashes, one a line, up to an empty line or the end of the text, neither of which is read.
    pub(crate) fn hashes(&mut self, field: &'static str, max: usize) -> Result<Vec<Hash>, Malformed> {
        let mut hashes = Vec::new();
        while !self.rest.is_empty() && !self.rest.starts_with('\n') {
            let line = self.next(field)?;
            if hashes.len() == max {
                return Err(self.wrong(field, "has more hashes than a tree of any size needs"));
            }
            hashes.push(self.hash(field, line)?);
        }
        Ok(hashes)
    }

    pub(crate) fn empty(&mut self) -> Result<(), Malformed> {
        match self.next("empty line")? {
            "" => Ok(()),
            _ => Err(self.wrong("empty line", "must be here")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Malformed { line: self.number + 1, field: "end", problem: "must be here; remove further lines" })
    }
}

const DECIMAL: &str = "must be a decimal number without leading zeros, at most 9223372036854775807";
const BASE64_HASH: &str = "must be 32 bytes in standard base64 with padding";

/// Decimal digits alone, without leading zeros.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let right = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| right && *number <= NUMBER_MAX)
}

/// Standard base64 with padding, of 32 bytes.
pub(crate) fn hash(text: &str) -> Option<Hash> {
    let mut bytes = [0; 32];
    let length = Base64::decode(text, &mut bytes).ok()?.len();
    (length == bytes.len()).then_some(Hash(bytes))
}

pub fn base64(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// Nothing if it is not standard base64 with padding, or in another spelling than [`base64`] writes.
pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    Base64::decode_vec(text).ok()
}

/// Whether a text can be a name of a key, or an origin: not empty, and without what separates names.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c < ' ' || c == '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_spelling_and_fits_a_signed_integer() {
        assert_eq!(decimal("0"), Some(0));
        assert_eq!(decimal("9223372036854775807"), Some(NUMBER_MAX));
        for text in
            ["", "00", "01", "+1", "-1", " 1", "1 ", "9223372036854775808", "18446744073709551616", "１"]
        {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn base64_has_one_spelling() {
        assert_eq!(unbase64("AAE="), Some(vec![0, 1]));
        assert_eq!(unbase64(""), Some(Vec::new()));
        // Padding is missing, doubled or inside; bits behind the value are set; another alphabet; space.
        for text in ["AAE", "AAE==", "AA=E", "AAF=", "A-E=", "AAE=\n", " AAE=", "A"] {
            assert_eq!(unbase64(text), None, "{text}");
        }
        let text = base64(&[255; 32]);
        assert_eq!(hash(&text), Some(Hash([255; 32])));
        assert_eq!(hash(&base64(&[255; 31])), None);
        assert_eq!(hash(&base64(&[255; 33])), None);
    }

    #[test]
    fn a_line_that_does_not_end_is_refused_by_its_number() {
        let mut lines = Lines::of("a\nb");
        assert_eq!(lines.next("first"), Ok("a"));
        let problem = lines.next("second").unwrap_err().to_string();
        assert!(problem.starts_with("line 2: `second` must be on a line"), "{problem}");
    }
}
