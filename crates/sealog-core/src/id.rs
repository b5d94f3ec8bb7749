//! Identifiers, each its own type.

use std::fmt;

use crate::hex;

/// Crockford's base 32, the alphabet of ULIDs.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A ULID: 48 bits of Unix milliseconds, then 80 bits of randomness. Ordered as its text is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ulid(pub u128);

/// The 80 random bits of a ULID, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random80(pub [u8; 10]);

impl Ulid {
    pub const TEXT_LEN: usize = 26;
    /// Of that, the time.
    pub(crate) const TIME_LEN: usize = 10;
    const RANDOM_BITS: u32 = 80;

    pub fn new(timestamp_ms: u64, random: Random80) -> Ulid {
        let mut low = [0u8; 16];
        low[6..].copy_from_slice(&random.0);
        Ulid(u128::from(timestamp_ms) << Self::RANDOM_BITS | u128::from_be_bytes(low))
    }

    pub fn timestamp_ms(self) -> u64 {
        // 48 bits remain after the shift, so the value always fits.
        u64::try_from(self.0 >> Self::RANDOM_BITS).unwrap_or(u64::MAX)
    }

    /// Reads the 26 characters in either case. Letters outside the alphabet (`I`, `L`, `O`, `U`) are refused,
    /// not guessed at: an id has one spelling.
    pub fn parse(text: &str) -> Option<Ulid> {
        let bytes = text.as_bytes();
        // The first character carries 3 bits; above 7 the value would not fit in 128.
        if bytes.len() != Self::TEXT_LEN || bytes[0] > b'7' {
            return None;
        }
        let mut value = 0u128;
        for byte in bytes {
            let upper = byte.to_ascii_uppercase();
            let digit = ALPHABET.binary_search(&upper).ok()?;
            value = value << 5 | digit as u128;
        }
        Some(Ulid(value))
    }

    pub fn to_text(self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0u8; Self::TEXT_LEN];
        let (time, random) = text.split_at_mut(Self::TIME_LEN);
        time.copy_from_slice(&self.time_text());
        random.copy_from_slice(&self.random_text());
        text
    }

    /// The letters of the time, which come first.
    pub(crate) fn time_text(self) -> [u8; Self::TIME_LEN] {
        Self::letters(self.0 >> Self::RANDOM_BITS)
    }

    /// The letters of the random part. In two halves, each in a register of its own: shifting 128 bits takes
    /// several times as long.
    pub(crate) fn random_text(self) -> [u8; Self::TEXT_LEN - Self::TIME_LEN] {
        let mut text = [0u8; _];
        let (high, low) = text.split_at_mut(8);
        high.copy_from_slice(&Self::letters::<8>(self.0 >> 40));
        low.copy_from_slice(&Self::letters::<8>(self.0));
        text
    }

    /// The lowest bits, five to a letter.
    fn letters<const N: usize>(bits: u128) -> [u8; N] {
        const LOW: u128 = u64::MAX as u128;
        let mut rest = u64::try_from(bits & LOW).expect("64 bits");
        let mut letters = [0u8; N];
        for slot in letters.iter_mut().rev() {
            *slot = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        letters
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Ulid {
        Ulid(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_text()).unwrap_or_default())
    }
}

impl fmt::Debug for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `req_` and a ULID; part of every response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub Ulid);

impl RequestId {
    const PREFIX: [u8; 4] = *b"req_";

    /// The id as bytes, because every response has it in a header.
    pub fn to_text(self) -> [u8; Self::PREFIX.len() + Ulid::TEXT_LEN] {
        let mut text = [0; _];
        let (prefix, ulid) = text.split_at_mut(Self::PREFIX.len());
        prefix.copy_from_slice(&Self::PREFIX);
        ulid.copy_from_slice(&self.0.to_text());
        text
    }

    /// When the request came. Whatever is decided about it by the clock goes by this moment.
    pub fn received_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req_{}", self.0)
    }
}

/// A UUID: 16 bytes, written in lower case with hyphens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    pub const TEXT_LEN: usize = 36;

    /// A version 4 UUID from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Uuid {
        Uuid::with_version(4, bytes)
    }

    /// Puts version and variant (RFC 9562) in the place of six of the bits.
    fn with_version(version: u8, mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | version << 4;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    fn has_version(self, version: u8) -> bool {
        self.0[6] >> 4 == version && self.0[8] >> 6 == 0b10
    }

    pub fn parse(text: &str) -> Option<Uuid> {
        let text = text.as_bytes();
        if text.len() != Self::TEXT_LEN || [8, 13, 18, 23].iter().any(|&at| text[at] != b'-') {
            return None;
        }
        let mut digits = text.iter().filter(|&&byte| byte != b'-');
        let mut bytes = [0u8; 16];
        for byte in &mut bytes {
            *byte = hex::digit(*digits.next()?)? << 4 | hex::digit(*digits.next()?)?;
        }
        digits.next().is_none().then_some(Uuid(bytes))
    }

    pub fn to_text(self) -> [u8; Self::TEXT_LEN] {
        let mut text = [b'-'; Self::TEXT_LEN];
        let mut at = 0;
        for byte in self.0 {
            if matches!(at, 8 | 13 | 18 | 23) {
                at += 1;
            }
            text[at..at + 2].copy_from_slice(&hex::pair(byte));
            at += 2;
        }
        text
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_text()).unwrap_or_default())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The organisation that owns projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub Uuid);

/// The project of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(pub Uuid);

impl ProjectId {
    /// The UUID version of the projects that are reserved for system chains. It is made for uses like this
    /// one (RFC 9562, section 5.8); no other project has it.
    const SYSTEM_VERSION: u8 = 8;

    /// Makes the id of a project that tenants send events to: a UUID of version 4.
    pub fn from_random(bytes: [u8; 16]) -> ProjectId {
        ProjectId(Uuid::from_random(bytes))
    }

    /// Makes the id of the project that is reserved for a tenant's system chain: a UUID of version 8,
    /// otherwise random.
    pub fn system_from_random(bytes: [u8; 16]) -> ProjectId {
        ProjectId(Uuid::with_version(ProjectId::SYSTEM_VERSION, bytes))
    }

    /// Returns true if the id is reserved for a tenant's system chain.
    pub fn is_system(self) -> bool {
        self.0.has_version(ProjectId::SYSTEM_VERSION)
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Live and test events of a project never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    Live,
    Test,
}

impl Mode {
    pub const ALL: [Mode; 2] = [Mode::Live, Mode::Test];

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::Test => "test",
        }
    }
}

/// The chain of an event: the project, in one mode. The only place that knows the chain's scope.
///
/// The tenant is part of it although a project already implies its tenant: a caller must name both, so a
/// mix-up of tenants finds nothing instead of another tenant's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub mode: Mode,
}

impl ChainId {
    /// Returns true for a tenant's system chain, which records the changes by operators and people. It is
    /// sealed, read, verified and followed like any other, and counts toward no usage. Its mode is always
    /// live.
    pub fn is_system(self) -> bool {
        self.mode == Mode::Live && self.project_id.is_system()
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant_id, self.project_id, self.mode.as_str())
    }
}

/// SHA-256 of an event; 64 lower-case hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub const TEXT_LEN: usize = 64;
    /// The `prev_hash` of the first event of a chain.
    pub const ZERO: Hash = Hash([0; 32]);

    pub fn parse(text: &str) -> Option<Hash> {
        hex::decode(text).map(Hash)
    }

    pub fn to_text(self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0u8; Self::TEXT_LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&hex::pair(byte));
        }
        text
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_text()).unwrap_or_default())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulid_text_is_26_characters_and_reads_back_in_either_case() {
        let ulid = Ulid::new(1_700_000_000_123, Random80([0xAB; 10]));
        let text = ulid.to_string();
        assert_eq!(text.len(), 26);
        assert_eq!(Ulid::parse(&text), Some(ulid));
        assert_eq!(Ulid::parse(&text.to_lowercase()), Some(ulid));
        assert_eq!(ulid.timestamp_ms(), 1_700_000_000_123);
        // From the ULID specification's own example.
        assert_eq!(Ulid::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap().timestamp_ms(), 1_469_922_850_259);
    }

    #[test]
    fn ulid_text_sorts_as_the_id_does() {
        let ids = [0, 1, u128::MAX / 3, u128::MAX - 1, u128::MAX].map(Ulid);
        for pair in ids.windows(2) {
            assert!(pair[0].to_string() < pair[1].to_string());
        }
        assert_eq!(Ulid(u128::MAX).to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    }

    #[test]
    fn malformed_ulids_are_refused() {
        for text in [
            "",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
            "81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FA-",
            "01ARZ3NDEKTSV4RRFFQ69G5Fé",
        ] {
            assert_eq!(Ulid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn uuid_reads_back_and_malformed_ones_are_refused() {
        let uuid = Uuid::from_random([0xFF; 16]);
        assert_eq!(uuid.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        assert_eq!(Uuid::parse("FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF"), Some(uuid));
        for text in [
            "",
            "ffffffffffff4fffbfffffffffffffff",
            "ffffffff-ffff-4fff-bfff-fffffffffffg",
            "ffffffff-ffff-4fff-bff--ffffffffffff",
        ] {
            assert_eq!(Uuid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_system_project_is_told_by_the_version_of_its_id() {
        for bytes in [[0; 16], [0xFF; 16], [0x48; 16], [0x84; 16]] {
            let (project, system) = (ProjectId::from_random(bytes), ProjectId::system_from_random(bytes));
            assert!(!project.is_system() && system.is_system(), "{project} {system}");
        }
        let text = ProjectId::system_from_random([0xFF; 16]).to_string();
        assert_eq!(text, "ffffffff-ffff-8fff-bfff-ffffffffffff");
        let is_system = |text: &str| ProjectId(Uuid::parse(text).unwrap()).is_system();
        assert!(is_system(&text) && is_system("00000000-0000-8000-8000-000000000000"));
        for other in [
            "ffffffff-ffff-4fff-bfff-ffffffffffff",
            "ffffffff-ffff-7fff-bfff-ffffffffffff",
            "ffffffff-ffff-9fff-bfff-ffffffffffff",
            // Of another variant, where the digit is no version.
            "ffffffff-ffff-8fff-7fff-ffffffffffff",
            "ffffffff-ffff-8fff-cfff-ffffffffffff",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert!(!is_system(other), "{other}");
        }
    }

    #[test]
    fn a_system_chain_is_that_project_in_live_mode() {
        let tenant_id = TenantId(Uuid::from_random([1; 16]));
        let chain = |project_id, mode| ChainId { tenant_id, project_id, mode };
        let (project, system) = (ProjectId::from_random([2; 16]), ProjectId::system_from_random([2; 16]));
        assert!(chain(system, Mode::Live).is_system());
        assert!(!chain(system, Mode::Test).is_system());
        assert!(Mode::ALL.iter().all(|mode| !chain(project, *mode).is_system()));
    }

    #[test]
    fn a_hash_has_one_spelling() {
        let hash = Hash([0xAB; 32]);
        assert_eq!(Hash::parse(&hash.to_string()), Some(hash));
        assert_eq!(Hash::parse(&hash.to_string().to_uppercase()), None);
        assert_eq!(Hash::parse(&hash.to_string()[1..]), None);
    }
}
