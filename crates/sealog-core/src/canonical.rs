//! The exact bytes that are hashed.

use sha2::{Digest, Sha256};

use crate::id::{Hash, TenantId, Ulid};
use crate::json;

/// Longest `action`, `actor_id`, `resource` and optional input, in Unicode scalar values. Spec 8.
pub const FIELD_SCALARS_MAX: usize = 255;

/// The part of an event's payload that its sender decides:
/// `"action":A,"actor_id":R,"resource":S,"metadata":M}` in canonical text.
///
/// Kept as one text because it is stored, hashed and returned byte for byte; the fields are slices of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    text: Box<str>,
    /// Where the action, the actor and the resource end. Found once, since every event is asked for its
    /// fields several times.
    ends: [u32; 3],
}

/// The JSON text of each field, nothing for an absent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    pub action: &'a str,
    pub actor_id: Option<&'a str>,
    pub resource: Option<&'a str>,
    pub metadata: Option<&'a str>,
}

/// The text before each field.
const NAMES: [&str; 4] = ["\"action\":", ",\"actor_id\":", ",\"resource\":", ",\"metadata\":"];

impl EventText {
    /// Each field is canonical JSON text.
    pub fn new(fields: Fields<'_>) -> EventText {
        let values = [Some(fields.action), fields.actor_id, fields.resource, fields.metadata];
        let values = values.map(|value| value.unwrap_or("null"));
        let pieces = NAMES.iter().copied().zip(values);
        let length = pieces.clone().map(|(name, value)| name.len() + value.len()).sum::<usize>() + 1;
        let mut text = String::with_capacity(length);
        let mut ends = [0; 4];
        for ((name, value), end) in pieces.zip(&mut ends) {
            text.push_str(name);
            text.push_str(value);
            *end = u32::try_from(text.len()).expect("an event is smaller than 4 GiB");
        }
        text.push('}');
        let [action, actor_id, resource, _] = ends;
        EventText { text: text.into_boxed_str(), ends: [action, actor_id, resource] }
    }

    /// Takes text from a store. Nothing if it does not have the shape; whether it is the right text only its
    /// hash can tell.
    pub fn from_stored(text: String) -> Option<EventText> {
        let ends = cut(text.as_bytes())?.ends;
        let [action, actor_id, resource] = ends.map(|end| u32::try_from(end).ok());
        Some(EventText { text: text.into_boxed_str(), ends: [action?, actor_id?, resource?] })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn fields(&self) -> Fields<'_> {
        let ends = self.ends.map(|end| end as usize);
        Cut { ends }.fields(&self.text).expect("both ways to make an EventText give it this shape")
    }
}

/// Cuts the text of an event into its fields.
pub fn split(text: &str) -> Option<Fields<'_>> {
    cut(text.as_bytes())?.fields(text)
}

/// Returns true for UTF-8 that can be cut into the fields of an event. Without the hash, no more can be
/// checked.
pub fn is_text(text: &[u8]) -> bool {
    (text.is_ascii() || std::str::from_utf8(text).is_ok()) && cut(text).is_some()
}

/// Where the action, the actor and the resource of a text end.
struct Cut {
    ends: [usize; 3],
}

impl Cut {
    fn fields<'a>(&self, text: &'a str) -> Option<Fields<'a>> {
        let [action, actor_id, resource] = self.ends;
        let field = |number: usize, after: usize, end: usize| text.get(after + NAMES[number].len()..end);
        // A string begins with a quote, an object with a brace.
        let nullable = |field: &&str| !field.starts_with('n');
        Some(Fields {
            action: field(0, 0, action)?,
            actor_id: Some(field(1, action, actor_id)?).filter(nullable),
            resource: Some(field(2, actor_id, resource)?).filter(nullable),
            metadata: Some(field(3, resource, text.len().checked_sub(1)?)?).filter(nullable),
        })
    }
}

/// Finds the fields of a text; nothing if it does not have the shape.
fn cut(text: &[u8]) -> Option<Cut> {
    let skip =
        |at: usize, name: &str| text.get(at..)?.starts_with(name.as_bytes()).then_some(at + name.len());
    let string = |at: usize| {
        let rest = text.get(at..)?;
        let length = json::string_len(rest).filter(|_| rest[0] == b'"')?;
        (length <= rest.len()).then_some(at + length)
    };
    let nullable = |at: usize| skip(at, "null").or_else(|| string(at));
    let action = string(skip(0, NAMES[0])?)?;
    let actor_id = nullable(skip(action, NAMES[1])?)?;
    let resource = nullable(skip(actor_id, NAMES[2])?)?;
    let metadata = text.get(skip(resource, NAMES[3])?..)?.strip_suffix(b"}")?;
    let right = metadata == b"null" || metadata.starts_with(b"{");
    right.then_some(Cut { ends: [action, actor_id, resource] })
}

/// Spec 2.3: SHA-256 over `prev_hash`, the payload and the time.
pub fn hash(prev_hash: Hash, log_id: Ulid, tenant_id: TenantId, text: &str, timestamp_ms: u64) -> Hash {
    Preimage::default().hash(prev_hash, log_id, tenant_id, text.as_bytes(), timestamp_ms)
}

/// The hashed text of an event in one piece, because SHA-256 is faster on that than on parts. The next event
/// reuses its memory and its common prefix.
#[derive(Debug, Default)]
pub struct Preimage {
    bytes: Vec<u8>,
    /// The tenant in the text.
    tenant_id: Option<TenantId>,
    /// The time of the `log_id` in the text.
    log_id_ms: Option<u64>,
    /// The last time that was hashed, and its digits: many events have the same.
    timestamp: Option<(u64, Decimal)>,
}

impl Preimage {
    pub fn hash(
        &mut self,
        prev_hash: Hash,
        log_id: Ulid,
        tenant_id: TenantId,
        text: &[u8],
        timestamp_ms: u64,
    ) -> Hash {
        // Everything before the text has a fixed length.
        const BEFORE_ID: &[u8] = b"{\"log_id\":\"";
        const BEFORE_TENANT: &[u8] = b"\",\"tenant_id\":\"";
        const BEFORE_TEXT: &[u8] = b"\",";
        const ID_AT: usize = Hash::TEXT_LEN + BEFORE_ID.len();
        const TENANT_AT: usize = ID_AT + Ulid::TEXT_LEN + BEFORE_TENANT.len();
        const LENGTH: usize = TENANT_AT + 36 + BEFORE_TEXT.len();
        if self.tenant_id != Some(tenant_id) {
            self.tenant_id = Some(tenant_id);
            self.bytes.clear();
            self.bytes.reserve(LENGTH + text.len() + 20);
            self.bytes.resize(Hash::TEXT_LEN, 0);
            self.bytes.extend_from_slice(BEFORE_ID);
            self.bytes.resize(ID_AT + Ulid::TEXT_LEN, 0);
            self.bytes.extend_from_slice(BEFORE_TENANT);
            self.bytes.extend_from_slice(&tenant_id.0.to_text());
            self.bytes.extend_from_slice(BEFORE_TEXT);
            self.log_id_ms = None;
        }
        self.bytes.truncate(LENGTH);
        self.bytes[..Hash::TEXT_LEN].copy_from_slice(&prev_hash.to_text());
        let (time, random) = self.bytes[ID_AT..ID_AT + Ulid::TEXT_LEN].split_at_mut(Ulid::TIME_LEN);
        if self.log_id_ms.replace(log_id.timestamp_ms()) != Some(log_id.timestamp_ms()) {
            time.copy_from_slice(&log_id.time_text());
        }
        random.copy_from_slice(&log_id.random_text());
        self.bytes.extend_from_slice(text);
        let timestamp = match &mut self.timestamp {
            Some((of, decimal)) if *of == timestamp_ms => decimal,
            other => &mut other.insert((timestamp_ms, Decimal::of(timestamp_ms))).1,
        };
        self.bytes.extend_from_slice(timestamp.digits());
        Hash(Sha256::digest(&self.bytes).into())
    }
}

/// A number in decimal digits, without the allocation that `to_string` would make for every event.
#[derive(Debug)]
struct Decimal {
    /// At the end.
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    fn of(mut number: u64) -> Decimal {
        let mut digits = [0; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            digits[from] = b'0' + (number % 10).to_le_bytes()[0];
            number /= 10;
            if number == 0 {
                return Decimal { digits, from };
            }
        }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Uuid;

    #[test]
    fn the_hash_is_sha256_of_prev_hash_payload_and_milliseconds() {
        let log_id = Ulid::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        let tenant_id = TenantId(Uuid::parse("11111111-2222-4333-8444-555555555555").unwrap());
        let text = EventText::new(Fields {
            action: "\"user.login\"",
            actor_id: Some("\"u\""),
            resource: None,
            metadata: Some("{\"a\":1.0}"),
        });
        let spelled_out = format!(
            "{}{}{}",
            "0".repeat(64),
            "{\"log_id\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"tenant_id\":\"11111111-2222-4333-8444-555555555555\",\
             \"action\":\"user.login\",\"actor_id\":\"u\",\"resource\":null,\"metadata\":{\"a\":1.0}}",
            log_id.timestamp_ms()
        );
        let expected = Hash(Sha256::digest(spelled_out).into());
        assert_eq!(hash(Hash::ZERO, log_id, tenant_id, text.as_str(), log_id.timestamp_ms()), expected);
    }

    #[test]
    fn a_preimage_that_is_used_again_gives_the_same_hashes_as_a_new_one() {
        let mut used = Preimage::default();
        let log_id = Ulid::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap();
        for number in 0..200u8 {
            let tenant_id = TenantId(Uuid([number / 3 % 2; 16]));
            let text = "x".repeat(usize::from(number) * 37 % 190);
            // Times and ids stay for a while, then change, each at its own pace.
            let (prev_hash, time) = (Hash([number; 32]), u64::from(number / 5) * 7_777);
            let log_id = Ulid(log_id.0 + u128::from(number) + (u128::from(number / 7) << 80));
            assert_eq!(
                used.hash(prev_hash, log_id, tenant_id, text.as_bytes(), time),
                hash(prev_hash, log_id, tenant_id, &text, time),
                "{number}"
            );
        }
    }

    #[test]
    fn text_splits_into_the_fields_it_was_made_of() {
        let all = Fields {
            action: r#""a\"b""#,
            actor_id: Some(r#""x,\"actor_id\":null""#),
            resource: Some("\"\""),
            metadata: Some(r#"{"action":"z"}"#),
        };
        assert_eq!(EventText::new(all).fields(), all);
        let stored = EventText::new(all).as_str().to_owned();
        assert_eq!(split(&stored), Some(all));
        assert_eq!(EventText::from_stored(stored), Some(EventText::new(all)));
        let none = Fields { action: "\"a\"", actor_id: None, resource: None, metadata: None };
        assert_eq!(EventText::new(none).fields(), none);
        assert_eq!(
            EventText::from_stored(EventText::new(none).as_str().to_owned()),
            Some(EventText::new(none))
        );
    }

    #[test]
    fn text_of_another_shape_is_refused() {
        for text in [
            "",
            "\"action\":\"a\"",
            "\"action\":null,\"actor_id\":null,\"resource\":null,\"metadata\":null}",
            "\"action\":\"a\",\"resource\":null,\"actor_id\":null,\"metadata\":null}",
            "\"action\":\"a\",\"actor_id\":1,\"resource\":null,\"metadata\":null}",
            "\"action\":\"a\",\"actor_id\":null,\"resource\":null,\"metadata\":[]}",
            "\"action\":\"a",
        ] {
            assert_eq!(EventText::from_stored(text.to_owned()), None, "{text}");
            assert!(!is_text(text.as_bytes()), "{text}");
        }
        let text = "\"action\":\"ä\",\"actor_id\":null,\"resource\":\"ö\",\"metadata\":{\"a\":\"ü\"}}";
        assert!(is_text(text.as_bytes()));
        for at in (0..text.len()).filter(|at| !text.is_char_boundary(*at)) {
            // A byte that cannot stand there.
            let mut broken = text.as_bytes().to_vec();
            broken[at] = b'x';
            assert!(!is_text(&broken), "{at}");
        }
    }

    #[test]
    fn decimals_are_written_as_to_string_does() {
        for number in [0, 9, 10, 1_700_000_000_123, u64::MAX] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
        }
    }
}
