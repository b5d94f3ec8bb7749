//! API keys: `at_live_` or `at_test_`, 43 characters of base62 (256 bits), and 6 characters of checksum;
//! monitor tokens, which have the form of a key behind another prefix; and the form of idempotency keys.

use sha2::{Digest, Sha256};

use crate::id::{Hash, Mode};
use crate::reject::{FieldProblem, Reject};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_LEN: usize = 43;
const CHECKSUM_LEN: usize = 6;
/// Characters of a key that may be shown after its creation.
pub const DISPLAY_LEN: usize = 12;

fn prefix(mode: Mode) -> &'static str {
    match mode {
        Mode::Live => "at_live_",
        Mode::Test => "at_test_",
    }
}

/// Of a monitor token. [`parse_authorization`] does not know it: a route that takes a token asks for it
/// ([`parse_monitor_token`]).
const MONITOR_PREFIX: &str = "sm_live_";

/// Makes a key from random bytes. Shown once, stored only as its hash.
pub fn generate(mode: Mode, random: [u8; 32]) -> String {
    generate_after(prefix(mode), random)
}

/// Makes a monitor token, which reads proofs of a live chain and neither reads nor writes events.
pub fn generate_monitor_token(random: [u8; 32]) -> String {
    generate_after(MONITOR_PREFIX, random)
}

fn generate_after(prefix: &str, random: [u8; 32]) -> String {
    let mut secret = [0u8; SECRET_LEN];
    let mut number = random;
    for slot in secret.iter_mut().rev() {
        // Long division of the 256-bit number by 62; the remainder is the next digit.
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            // The remainder is below 62, so the quotient fits in a byte.
            *byte = (value / 62).to_le_bytes()[0];
            remainder = value % 62;
        }
        *slot = BASE62[remainder as usize];
    }
    // In one piece from the beginning: the caller can wipe what it gets, and nothing else of it is on the
    // heap.
    let mut key = String::with_capacity(prefix.len() + SECRET_LEN + CHECKSUM_LEN);
    key.push_str(prefix);
    key.extend(secret.iter().copied().map(char::from));
    key.push_str(&checksum(&key[prefix.len()..]));
    key
}

/// Lets a mistyped or truncated key be refused, and a leaked one be recognised, without asking a store.
fn checksum(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    digest.iter().take(CHECKSUM_LEN).map(|byte| char::from(BASE62[usize::from(*byte) % 62])).collect()
}

/// A token that may be a key; whether it is one, the store knows by the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presented<'a> {
    pub mode: Mode,
    pub digest: Hash,
    /// What follows the prefix.
    rest: &'a str,
}

/// Reads the value of an `Authorization` header. Spec 5. Unless its digest is that of a key, the token has to
/// be looked at further: [`Presented::check_form`].
pub fn parse_authorization(header: Option<&str>) -> Result<Presented<'_>, Reject> {
    let header = header.ok_or(Reject::MissingHeader)?;
    let (scheme, token) = header.split_once(' ').ok_or(Reject::InvalidFormat)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Reject::InvalidFormat);
    }
    let token = token.trim_matches(' ');
    let with_prefix = |mode: &Mode| token.strip_prefix(prefix(*mode)).map(|rest| (*mode, rest));
    let (mode, rest) = Mode::ALL.iter().find_map(with_prefix).ok_or(Reject::InvalidFormat)?;
    // No key has another length, and nobody is to have a header full of text hashed.
    if rest.len() != SECRET_LEN + CHECKSUM_LEN {
        check_form(rest)?;
    }
    Ok(Presented { mode, digest: digest(token), rest })
}

/// The digest of the monitor token in an `Authorization` header; nothing for what is none, which may be a
/// key.
pub fn parse_monitor_token(header: Option<&str>) -> Result<Option<Hash>, Reject> {
    let Some((scheme, token)) = header.and_then(|header| header.split_once(' ')) else { return Ok(None) };
    let token = token.trim_matches(' ');
    let Some(rest) = token.strip_prefix(MONITOR_PREFIX) else { return Ok(None) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Reject::InvalidFormat);
    }
    // Every token has the form, so one that was mistyped is refused without a look at the store.
    check_form(rest)?;
    Ok(Some(digest(token)))
}

impl Presented<'_> {
    /// Checks the form of a key. Every key has it, so callers check only tokens with an unknown digest: it
    /// saves a read of the store.
    pub fn check_form(&self) -> Result<(), Reject> {
        check_form(self.rest)
    }
}

/// Of what follows the prefix.
fn check_form(rest: &str) -> Result<(), Reject> {
    if rest.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Reject::InvalidFormat);
    }
    let well_formed = rest.len() == SECRET_LEN + CHECKSUM_LEN
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && checksum(&rest[..SECRET_LEN]) == rest[SECRET_LEN..];
    if well_formed { Ok(()) } else { Err(Reject::KeyNotFound) }
}

/// The digest of a key, which the store keeps instead of the key.
pub fn digest(key: &str) -> Hash {
    Hash(Sha256::digest(key.as_bytes()).into())
}

/// Revocation and expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyState {
    pub revoked: bool,
    pub expires_at_ms: Option<u64>,
}

impl KeyState {
    /// Revoked wins over expired.
    pub fn check(&self, now_ms: u64) -> Result<(), Reject> {
        if self.revoked {
            Err(Reject::KeyRevoked)
        } else if self.expires_at_ms.is_some_and(|end| now_ms >= end) {
            Err(Reject::KeyExpired)
        } else {
            Ok(())
        }
    }
}

/// Of an `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Checks the form of an `Idempotency-Key`: 1 to 255 characters from `!` to `~`.
pub fn parse_idempotency_key(value: &[u8]) -> Result<Hash, Reject> {
    let valid =
        (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    if !valid {
        return Err(Reject::InvalidField { field: "Idempotency-Key", problem: FieldProblem::NotAKey });
    }
    Ok(Hash(Sha256::digest(value).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reject::Code;

    fn code(header: Option<&str>) -> Code {
        let presented = parse_authorization(header);
        presented.and_then(|presented| presented.check_form()).unwrap_err().code()
    }

    #[test]
    fn a_generated_key_is_recognised_with_its_mode() {
        for (mode, random) in [(Mode::Live, [0; 32]), (Mode::Test, [0xFF; 32]), (Mode::Live, [7; 32])] {
            let key = generate(mode, random);
            assert_eq!(key.len(), 8 + 43 + 6);
            let header = format!("bEaReR {key}");
            let presented = parse_authorization(Some(&header)).unwrap();
            assert_eq!(presented, Presented { mode, digest: digest(&key), rest: &key[8..] });
            assert_eq!(presented.check_form(), Ok(()));
        }
        assert_ne!(generate(Mode::Live, [1; 32]), generate(Mode::Live, [2; 32]));
    }

    #[test]
    fn a_monitor_token_has_the_form_of_a_key_and_is_none() {
        let token = generate_monitor_token([7; 32]);
        assert_eq!(token.strip_prefix("sm_live_"), generate(Mode::Live, [7; 32]).strip_prefix("at_live_"));
        let header = format!("bEaReR {token}");
        assert_eq!(code(Some(&header)), Code::AuthInvalidFormat);
        assert_eq!(parse_monitor_token(Some(&header)), Ok(Some(digest(&token))));
        assert_eq!(parse_monitor_token(Some(&format!("{header}x"))), Err(Reject::KeyNotFound));
        assert_eq!(parse_monitor_token(Some("Bearer sm_live_")), Err(Reject::InvalidFormat));
        assert_eq!(parse_monitor_token(Some(&format!("Basic {token}"))), Err(Reject::InvalidFormat));
        let key = generate(Mode::Live, [7; 32]);
        for header in [None, Some(token.as_str()), Some("Bearer"), Some(&format!("Bearer {key}"))] {
            assert_eq!(parse_monitor_token(header), Ok(None), "{header:?}");
        }
    }

    #[test]
    fn headers_that_are_no_bearer_token_are_told_apart() {
        assert_eq!(code(None), Code::AuthMissingHeader);
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Basic at_live_x",
            "at_live_x",
            "Bearer sk_live_x",
            "Bearer at_live_",
            "Bearer at_live_a b",
            "Bearer at_live_a2345678901234567890123456789012345678901234567 9",
        ] {
            assert_eq!(code(Some(header)), Code::AuthInvalidFormat, "{header}");
        }
    }

    #[test]
    fn a_wrong_checksum_or_length_is_an_unknown_key() {
        let key = generate(Mode::Live, [3; 32]);
        let mut wrong = key.clone().into_bytes();
        let last = wrong.len() - 1;
        wrong[last] = if wrong[last] == b'a' { b'b' } else { b'a' };
        for key in [
            String::from_utf8(wrong).unwrap(),
            key[..key.len() - 1].to_owned(),
            format!("{key}x"),
            "at_live_short".into(),
            format!("{}-{}", &key[..20], &key[21..]),
        ] {
            assert_eq!(code(Some(&format!("Bearer {key}"))), Code::AuthKeyNotFound);
        }
    }

    #[test]
    fn revoked_wins_over_expired_and_expiry_is_exact() {
        let state = |revoked, expires_at_ms| {
            KeyState { revoked, expires_at_ms }.check(1000).map_err(|reject| reject.code())
        };
        assert_eq!(state(false, None), Ok(()));
        assert_eq!(state(false, Some(1001)), Ok(()));
        assert_eq!(state(false, Some(1000)), Err(Code::AuthKeyExpired));
        assert_eq!(state(true, Some(1000)), Err(Code::AuthKeyRevoked));
    }
}
