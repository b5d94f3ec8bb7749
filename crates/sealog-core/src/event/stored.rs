//! Events as they are kept, returned and exported.

use std::borrow::Cow;
use std::io::Write;

use super::field::{Annotations, FIELDS, FieldId};
use super::input::Draft;
use crate::canonical::{EventText, Fields};
use crate::chain::{Head, Sealed};
use crate::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use crate::json::{self, Members};
use crate::time;

/// The version of newly sealed events: the meaning of their fields and the rule of their hash. Each stored
/// event keeps its own version.
pub const SCHEMA_VERSION: u32 = 1;

/// An event as it is kept: what was sealed, its text, and its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The [`SCHEMA_VERSION`] of the program that sealed it. It is kept with the record and is not hashed.
    pub schema_version: u32,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub sealed: Sealed,
    /// Equal to the time prefix of `log_id`, unless someone has tampered with a store that keeps it apart.
    pub timestamp_ms: u64,
    pub text: EventText,
    pub annotations: Annotations,
}

impl StoredEvent {
    pub fn new(chain: ChainId, sealed: Sealed, draft: Draft) -> StoredEvent {
        StoredEvent {
            schema_version: SCHEMA_VERSION,
            tenant_id: chain.tenant_id,
            project_id: chain.project_id,
            timestamp_ms: sealed.timestamp_ms(),
            sealed,
            text: draft.text,
            annotations: draft.annotations,
        }
    }

    pub fn head(&self) -> Head {
        self.sealed.head()
    }

    /// Returns true if this program knows the schema of the event. A store rejects an event with an unknown
    /// schema.
    pub fn has_known_schema(&self) -> bool {
        (1..=SCHEMA_VERSION).contains(&self.schema_version)
    }

    /// The value of a field; None where the event has none.
    pub fn value(&self, field: FieldId) -> Option<Value<'_>> {
        let (sealed, text) = (&self.sealed, || self.text.fields());
        let a = &self.annotations;
        Some(match field {
            FieldId::LogId => Value::Ulid(sealed.log_id),
            FieldId::TenantId => Value::Uuid(self.tenant_id.0),
            FieldId::ProjectId => Value::Uuid(self.project_id.0),
            FieldId::SchemaVersion => Value::Number(self.schema_version.into()),
            FieldId::Action => Value::Json(text().action),
            FieldId::Category => Value::Text(a.category.as_deref()?),
            FieldId::Severity => Value::Text(a.severity.as_deref()?),
            FieldId::ActorId => Value::Json(text().actor_id?),
            FieldId::ActorType => Value::Text(a.actor_type.as_deref()?),
            FieldId::Resource => Value::Json(text().resource?),
            FieldId::ResourceType => Value::Text(a.resource_type.as_deref()?),
            FieldId::SessionId => Value::Text(a.session_id.as_deref()?),
            FieldId::TsClient => Value::Text(a.ts_client.as_deref()?),
            FieldId::IpAddress => Value::Text(a.ip_address.as_deref()?),
            FieldId::Country => Value::Text(a.country.as_deref()?),
            FieldId::City => Value::Text(a.city.as_deref()?),
            FieldId::Metadata => Value::Json(text().metadata?),
            FieldId::Timestamp => Value::Time(self.timestamp_ms),
            FieldId::ChainSeq => Value::Number(sealed.chain_seq),
            FieldId::PrevHash => Value::Hash(sealed.prev_hash),
            FieldId::Hash => Value::Hash(sealed.hash),
        })
    }

    /// The JSON object that reads return: fields in the documented order, absent ones left out.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        let mut before = b'{';
        for field in &FIELDS {
            let Some(value) = self.value(field.id) else { continue };
            out.push(before);
            out.push(b'"');
            out.extend_from_slice(field.name.as_bytes());
            out.extend_from_slice(b"\":");
            value.put_json(out);
            before = b',';
        }
        out.push(b'}');
    }

    /// Reads what [`StoredEvent::put_json`] writes, from a response or an export. White space and the order
    /// of fields do not matter; the text of each value does.
    pub fn parse_json(text: &str) -> Result<StoredEvent, String> {
        parse_stored(text)
    }
}

/// What a stored event has in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'e> {
    Number(u64),
    Ulid(Ulid),
    Uuid(Uuid),
    Hash(Hash),
    /// In milliseconds.
    Time(u64),
    /// Canonical JSON, as it was hashed.
    Json(&'e str),
    Text(&'e str),
}

impl<'e> Value<'e> {
    fn put_json(self, out: &mut Vec<u8>) {
        let quoted = |out: &mut Vec<u8>, text: &[u8]| {
            out.push(b'"');
            out.extend_from_slice(text);
            out.push(b'"');
        };
        match self {
            Value::Number(number) => write!(out, "{number}").expect("memory takes everything"),
            Value::Ulid(id) => quoted(out, &id.to_text()),
            Value::Uuid(id) => quoted(out, &id.to_text()),
            Value::Hash(hash) => quoted(out, &hash.to_text()),
            Value::Time(ms) => {
                out.push(b'"');
                time::put_iso_ms(ms, out);
                out.push(b'"');
            }
            Value::Json(json) => out.extend_from_slice(json.as_bytes()),
            Value::Text(text) => json::put_string(text, out),
        }
    }

    /// The value without quotes and escapes. A canonical string that cannot be decoded was not sealed here,
    /// and stays as it is; so does an object.
    pub fn to_text(self) -> Cow<'e, str> {
        match self {
            Value::Number(number) => number.to_string().into(),
            Value::Ulid(id) => id.to_string().into(),
            Value::Uuid(id) => id.to_string().into(),
            Value::Hash(hash) => hash.to_string().into(),
            Value::Time(ms) => time::iso_ms(ms).into(),
            Value::Json(json) if json.starts_with('"') => json::decode(json).map_or(json.into(), Cow::Owned),
            Value::Json(text) | Value::Text(text) => text.into(),
        }
    }
}

fn parse_stored(text: &str) -> Result<StoredEvent, String> {
    let object = json::canonical(text).map_err(|error| error.to_string())?;
    if !object.starts_with('{') {
        return Err("an event must be a JSON object".into());
    }
    let mut members = std::collections::HashMap::new();
    for (key, value) in Members::of(&object) {
        if members.insert(&key[1..key.len() - 1], value).is_some() {
            return Err(format!("duplicate field `{}`", &key[1..key.len() - 1]));
        }
    }
    let raw = |name: &str| members.get(name).copied().filter(|value| *value != "null");
    let string_json = |name: &str| match raw(name) {
        Some(value) if !value.starts_with('"') => Err(format!("`{name}` is not a string")),
        value => Ok(value),
    };
    let string = |name: &str| {
        string_json(name)?
            .map(|value| {
                json::decode(value).ok_or_else(|| format!("`{name}` holds half of a surrogate pair"))
            })
            .transpose()
    };
    fn required<T>(
        name: &str,
        value: Option<String>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, String> {
        let value = value.ok_or_else(|| format!("`{name}` is missing"))?;
        parse(&value).ok_or_else(|| format!("`{name}` is malformed: {value}"))
    }
    // One spelling each: the text of the id is hashed, so a lower-case one is another text.
    let log_id =
        required("log_id", string("log_id")?, |text| Ulid::parse(text).filter(|id| id.to_string() == text))?;
    let uuid = |text: &str| Uuid::parse(text).filter(|id| id.to_string() == text);
    let chain_seq = raw("chain_seq").ok_or("`chain_seq` is missing")?;
    let mut values = [const { None }; Annotations::NAMES.len()];
    for (name, value) in Annotations::NAMES.iter().zip(&mut values) {
        *value = string(name)?;
    }
    let annotations = Annotations::from_values(values.each_ref().map(Option::as_deref));
    let metadata = raw("metadata");
    if metadata.is_some_and(|value| !value.starts_with('{')) {
        return Err("`metadata` is not an object".into());
    }
    Ok(StoredEvent {
        schema_version: raw("schema_version").map_or(Ok(SCHEMA_VERSION), |version| {
            parse_schema_version(version).ok_or_else(|| format!("`schema_version` is malformed: {version}"))
        })?,
        tenant_id: TenantId(required("tenant_id", string("tenant_id")?, uuid)?),
        project_id: ProjectId(required("project_id", string("project_id")?, uuid)?),
        sealed: Sealed {
            // The specification's integers have 63 bits.
            chain_seq: chain_seq
                .parse()
                .ok()
                .filter(|seq| i64::try_from(*seq).is_ok())
                .ok_or_else(|| format!("`chain_seq` is malformed: {chain_seq}"))?,
            log_id,
            prev_hash: required("prev_hash", string("prev_hash")?, Hash::parse)?,
            hash: required("hash", string("hash")?, Hash::parse)?,
        },
        timestamp_ms: required("timestamp", string("timestamp")?, time::parse_iso_ms)?,
        text: EventText::new(Fields {
            action: string_json("action")?.ok_or("`action` is missing")?,
            actor_id: string_json("actor_id")?,
            resource: string_json("resource")?,
            metadata,
        }),
        annotations,
    })
}

/// A positive integer in its one spelling.
pub(crate) fn parse_schema_version(text: &str) -> Option<u32> {
    text.parse().ok().filter(|version: &u32| *version > 0 && version.to_string() == text)
}

impl StoredEvent {
    /// The chain of this event, given the mode, which an event does not carry.
    pub fn chain(&self, mode: Mode) -> ChainId {
        ChainId { tenant_id: self.tenant_id, project_id: self.project_id, mode }
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::parse_single;
    use super::*;
    use crate::id::Random80;

    fn draft(body: &str) -> Draft {
        parse_single(body.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn an_event_with_an_action_alone_has_the_fields_that_are_always_there() {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let draft = draft(r#"{"action":"a.b"}"#);
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_700_000_000_123, Random80([0; 10]));
        let mut json = Vec::new();
        StoredEvent::new(chain, sealed, draft).put_json(&mut json);
        let json = String::from_utf8(json).unwrap();
        let names: Vec<_> = Members::of(&json).map(|(key, _)| key.trim_matches('"')).collect();
        let always = FIELDS.iter().filter(|field| field.is_always_there()).map(|field| field.name);
        assert_eq!(names, always.collect::<Vec<_>>());
    }

    #[test]
    fn stored_events_are_written_in_the_documented_order_and_read_back() {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let mut draft = draft(r#"{"action":"a.b","actor_id":"x","resource":"r/1","metadata":{"z":1e5}}"#);
        draft.annotations = Annotations {
            category: Some("cat".into()),
            severity: Some("info".into()),
            actor_type: Some("user".into()),
            resource_type: Some("r".into()),
            session_id: Some("s\"".into()),
            ts_client: Some("2026-11-15T00:00:00Z".into()),
            ip_address: Some("127.0.0.1".into()),
            country: Some("DE".into()),
            city: Some("Köln".into()),
        };
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_700_000_000_123, Random80([0; 10]));
        let event = StoredEvent::new(chain, sealed, draft);
        let mut json = Vec::new();
        event.put_json(&mut json);
        let json = String::from_utf8(json).unwrap();
        let names: Vec<_> = Members::of(&json).map(|(key, _)| key.trim_matches('"')).collect();
        assert_eq!(
            names.join(", "),
            "log_id, tenant_id, project_id, schema_version, action, category, severity, actor_id, actor_type, resource, resource_type, \
             session_id, ts_client, ip_address, country, city, metadata, timestamp, chain_seq, prev_hash, hash"
        );
        assert_eq!(names, FIELDS.each_ref().map(|field| field.name));
        assert!(json.contains(r#""timestamp":"2023-11-14T22:13:20.123Z""#));
        assert_eq!(StoredEvent::parse_json(&json), Ok(event.clone()));
        let spaced = json.replace("\":", "\" : ");
        assert_eq!(StoredEvent::parse_json(&spaced), Ok(event));
    }

    #[test]
    fn an_event_is_written_with_the_schema_version_that_is_kept_with_it() {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let draft = draft(r#"{"action":"a.b"}"#);
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_700_000_000_123, Random80([0; 10]));
        let new = StoredEvent::new(chain, sealed, draft);
        assert_eq!((new.schema_version, new.has_known_schema()), (1, true));
        for (schema_version, known) in [(0, false), (1, true), (2, false)] {
            assert_eq!(StoredEvent { schema_version, ..new.clone() }.has_known_schema(), known);
        }
        let later = StoredEvent { schema_version: 2, ..new.clone() };
        let mut json = Vec::new();
        later.put_json(&mut json);
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains(r#","schema_version":2,"action""#), "{json}");
        assert_eq!(StoredEvent::parse_json(&json), Ok(later));
        // Text that does not say is of the first version.
        assert_eq!(StoredEvent::parse_json(&json.replace(r#""schema_version":2,"#, "")), Ok(new));
        for wrong in ["0", "-1", "1.0", "\"1\"", "4294967296"] {
            let text = json.replace(r#""schema_version":2"#, &format!(r#""schema_version":{wrong}"#));
            assert!(StoredEvent::parse_json(&text).unwrap_err().starts_with("`schema_version` is malformed"));
        }
    }

    #[test]
    fn malformed_stored_events_are_refused_with_the_field() {
        for (text, problem) in [
            ("[]", "an event must be a JSON object"),
            ("{}", "`log_id` is missing"),
            (r#"{"log_id":1}"#, "`log_id` is not a string"),
            (
                r#"{"log_id":"01arz3ndektsv4rrffq69g5fav"}"#,
                "`log_id` is malformed: 01arz3ndektsv4rrffq69g5fav",
            ),
            (r#"{"hash":"a","hash":"a"}"#, "duplicate field `hash`"),
        ] {
            assert_eq!(StoredEvent::parse_json(text), Err(problem.to_owned()));
        }
    }
}
