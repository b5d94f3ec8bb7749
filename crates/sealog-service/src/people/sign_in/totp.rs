//! Codes of an authenticator: RFC 6238 with what every authenticator app understands (SHA-1, 30 s, six
//! digits).

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// 160 bits, as RFC 4226 recommends.
pub const SECRET_BYTES: usize = 20;
const STEP_MS: u64 = 30 * 1000;
/// Clocks differ, and people are slow: the step before and the step after are right, too.
const DRIFT_STEPS: u64 = 1;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The time step of which this is the code, if it is one of now.
pub fn step_of(secret: &[u8], code: &str, now_ms: u64) -> Option<u64> {
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    if code.len() != 6 || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let now = now_ms / STEP_MS;
    // All of them, whichever is right. Six digits are guessed long before a comparison of them is timed.
    (now.saturating_sub(DRIFT_STEPS)..=now + DRIFT_STEPS).rfind(|step| code_at(secret, *step) == code)
}

/// The code of a time step.
pub fn code_at(secret: &[u8], step: u64) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret).expect("a key of any length will do");
    mac.update(&step.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let at = usize::from(digest[19] & 15);
    let number = u32::from_be_bytes([digest[at] & 127, digest[at + 1], digest[at + 2], digest[at + 3]]);
    format!("{:06}", number % 1_000_000)
}

/// As people type it into an authenticator.
pub fn base32(secret: &[u8]) -> String {
    let mut text = String::new();
    for five in secret.chunks(5) {
        let mut bytes = [0; 8];
        bytes[3..3 + five.len()].copy_from_slice(five);
        let bits = u64::from_be_bytes(bytes);
        let letters = (five.len() * 8).div_ceil(5);
        text.extend((0..letters).map(|at| char::from(BASE32[(bits >> (35 - 5 * at) & 31) as usize])));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B, the last six of its eight digits.
    #[test]
    fn codes_are_those_of_the_rfc() {
        let secret = b"12345678901234567890";
        for (second, code) in [
            (59, "287082"),
            (1111111109, "081804"),
            (1111111111, "050471"),
            (1234567890, "005924"),
            (2000000000, "279037"),
            (20000000000, "353130"),
        ] {
            assert_eq!(step_of(secret, code, second * 1000), Some(second / 30), "{second}");
        }
    }

    #[test]
    fn a_code_is_right_in_its_step_and_in_the_two_beside_it() {
        let secret = b"12345678901234567890";
        let at = |second: u64| step_of(secret, "050471", second * 1000);
        let step = 1111111111 / 30;
        let begins = step * 30;
        assert_eq!((at(begins - 31), at(begins + 60)), (None, None));
        assert_eq!((at(begins - 30), at(begins), at(begins + 59)), (Some(step), Some(step), Some(step)));
        assert_eq!(step_of(secret, " 050 471 ", begins * 1000), Some(step));
        for wrong in ["", "050472", "50471", "0504711", "05047a", "０５０４７１"] {
            assert_eq!(step_of(secret, wrong, begins * 1000), None, "{wrong}");
        }
        assert_eq!(step_of(secret, "755224", 0), Some(0), "there is no step before the first");
    }

    /// RFC 4648, section 10, without its padding.
    #[test]
    fn base32_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }
}
