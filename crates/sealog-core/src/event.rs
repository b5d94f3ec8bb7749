//! From a request body to a stored event.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

pub use crate::canonical::FIELD_SCALARS_MAX;
use crate::canonical::{EventText, Fields};
use crate::chain::{Head, Sealed};
use crate::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use crate::json::{self, Discard, Kind, Members, Scanner, StringFacts, Watched};
use crate::reject::{FieldProblem, Reject};
use crate::time;

/// Most events in one request. Spec 8.
pub const BATCH_EVENTS_MAX: usize = 100;
/// The version of newly sealed events: the meaning of their fields and the rule of their hash. Each stored
/// event keeps its own version.
pub const SCHEMA_VERSION: u32 = 1;

/// An event that has been read and is well formed; the catalog has not seen it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub text: EventText,
    pub annotations: Annotations,
}

/// Fields outside the canonical payload. They are never hashed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Annotations {
    /// Usually borrowed from the catalog, which lives as long as the program.
    pub category: Option<Cow<'static, str>>,
    pub severity: Option<Cow<'static, str>>,
    pub actor_type: Option<Box<str>>,
    pub resource_type: Option<Box<str>>,
    pub session_id: Option<Box<str>>,
    pub ts_client: Option<Box<str>>,
    /// The same for all events of a request.
    pub ip_address: Option<Arc<str>>,
    pub country: Option<Arc<str>>,
    pub city: Option<Arc<str>>,
}

impl Annotations {
    /// The fields in the order in which stores keep them.
    pub const NAMES: [&str; 9] = [
        "category",
        "severity",
        "actor_type",
        "resource_type",
        "session_id",
        "ts_client",
        "ip_address",
        "country",
        "city",
    ];

    /// In the order of [`Annotations::NAMES`].
    pub fn values(&self) -> [Option<&str>; Annotations::NAMES.len()] {
        [
            self.category.as_deref(),
            self.severity.as_deref(),
            self.actor_type.as_deref(),
            self.resource_type.as_deref(),
            self.session_id.as_deref(),
            self.ts_client.as_deref(),
            self.ip_address.as_deref(),
            self.country.as_deref(),
            self.city.as_deref(),
        ]
    }

    /// The other way round.
    pub fn from_values(values: [Option<&str>; Annotations::NAMES.len()]) -> Annotations {
        let [category, severity, actor_type, resource_type, session_id, ts_client, ip_address, country, city] =
            values;
        let owned = |value: Option<&str>| value.map(|value| Cow::Owned(value.to_owned()));
        Annotations {
            category: owned(category),
            severity: owned(severity),
            actor_type: actor_type.map(Into::into),
            resource_type: resource_type.map(Into::into),
            session_id: session_id.map(Into::into),
            ts_client: ts_client.map(Into::into),
            ip_address: ip_address.map(Into::into),
            country: country.map(Into::into),
            city: city.map(Into::into),
        }
    }
}

/// Most bytes that the text of an event can have: canonical text is never longer than what was sent, and a
/// body has at most this size. Spec 8.
pub const EVENT_BYTES_MAX: usize = 2 << 20;

/// The content of a batch body. Events past the limit are counted, not kept: a body of tiny events must not
/// become a hundred times its size.
#[derive(Debug)]
pub struct Batch {
    pub events: Vec<Result<Draft, Reject>>,
    pub count: usize,
}

/// Reads the body of `POST /v1/events`. The outer error is a body that is no JSON object, the inner one an
/// event that is wrong: idempotency is looked at between the two.
pub fn parse_single(body: &[u8]) -> Result<Result<Draft, Reject>, Reject> {
    let mut scanner = Scanner::watching(utf8(body)?, &INPUTS[OPTIONAL]);
    if scanner.peek().is_some_and(|byte| byte != b'{') {
        scanner.value(&mut Discard)?;
        scanner.end()?;
        return Err(Reject::InvalidJson { detail: "the body must be a JSON object".into() });
    }
    let draft = parse_event(&mut scanner, &mut Memory::for_body(body))?;
    scanner.end()?;
    Ok(draft)
}

/// Reads the body of `POST /v1/events/batch`.
pub fn parse_batch(body: &[u8]) -> Result<Batch, Reject> {
    let no_array =
        || Reject::InvalidJson { detail: "the body must be a JSON object with an `events` array".into() };
    let mut scanner = Scanner::watching(utf8(body)?, &INPUTS[OPTIONAL]);
    if scanner.peek().is_some_and(|byte| byte != b'{') {
        scanner.value(&mut Discard)?;
        scanner.end()?;
        return Err(no_array());
    }
    scanner.begin_object()?;
    let (mut first, mut key) = (true, Vec::new());
    let mut batch = None;
    let mut twice = false;
    let mut wrong_type = false;
    while scanner.next_key(&mut first, &mut key)? {
        if key != b"\"events\"" {
            scanner.value(&mut Discard)?;
            continue;
        }
        twice |= batch.is_some() || wrong_type;
        if scanner.peek() == Some(b'[') {
            batch = Some(parse_events(&mut scanner)?);
        } else {
            scanner.value(&mut Discard)?;
            wrong_type = true;
        }
    }
    scanner.end()?;
    if twice {
        return Err(Reject::InvalidJson { detail: "duplicate field `events`".into() });
    }
    batch.ok_or_else(no_array)
}

fn parse_events(scanner: &mut Scanner<'_>) -> Result<Batch, Reject> {
    scanner.begin_array()?;
    let (mut first, mut memory) = (true, Memory::default());
    let mut batch = Batch { events: Vec::new(), count: 0 };
    while scanner.next_item(&mut first)? {
        batch.count += 1;
        if batch.count > BATCH_EVENTS_MAX {
            scanner.value(&mut Discard)?;
        } else {
            batch.events.push(parse_event(scanner, &mut memory)?);
        }
    }
    Ok(batch)
}

fn utf8(body: &[u8]) -> Result<&str, Reject> {
    std::str::from_utf8(body)
        .map_err(|error| Reject::InvalidJson { detail: format!("not UTF-8 at byte {}", error.valid_up_to()) })
}

/// The fields that a client may send, in the order of `Inputs`.
pub static INPUTS: [&str; 9] = [
    "action",
    "actor_id",
    "resource",
    "metadata",
    "actor_type",
    "resource_type",
    "severity",
    "session_id",
    "ts_client",
];
const ACTION: usize = 0;
const ACTOR_ID: usize = 1;
const RESOURCE: usize = 2;
const METADATA: usize = 3;
const ACTOR_TYPE: usize = 4;
const RESOURCE_TYPE: usize = 5;
const SEVERITY: usize = 6;
const SESSION_ID: usize = 7;
const TS_CLIENT: usize = 8;

/// The inputs that may be in `metadata` instead.
const OPTIONAL: Range<usize> = ACTOR_TYPE..INPUTS.len();

/// What parsing an event needs for a moment; a batch uses it again for each.
#[derive(Default)]
struct Memory {
    key: Vec<u8>,
    /// Canonical text of the inputs.
    texts: Vec<u8>,
}

impl Memory {
    fn for_body(body: &[u8]) -> Memory {
        Memory { key: Vec::with_capacity(32), texts: Vec::with_capacity(body.len()) }
    }
}

fn parse_event(scanner: &mut Scanner<'_>, memory: &mut Memory) -> Result<Result<Draft, Reject>, Reject> {
    if scanner.peek() != Some(b'{') {
        scanner.value(&mut Discard)?;
        return Ok(Err(Reject::InvalidField { field: "event", problem: FieldProblem::NotAnObject }));
    }
    scanner.begin_object()?;
    let Memory { key, texts } = memory;
    let mut first = true;
    texts.clear();
    // Where the text of each input that was given and is not `null` stands in `texts`.
    let mut inputs: [Option<Range<usize>>; INPUTS.len()] = Default::default();
    let mut seen = [false; INPUTS.len()];
    // The first wrong field answers, but the rest of the body must still be JSON.
    let mut wrong = None;
    // Members of `metadata` that stand in for inputs.
    let mut inside = Some([const { None }; INPUTS.len()]);
    while scanner.next_key(&mut first, key)? {
        let name = &key[1..key.len() - 1];
        let Some(input) = INPUTS.iter().position(|input| input.as_bytes() == name) else {
            scanner.value(&mut Discard)?;
            continue;
        };
        if std::mem::replace(&mut seen[input], true) {
            return Err(Reject::InvalidJson { detail: format!("duplicate field `{}`", INPUTS[input]) });
        }
        let from = texts.len();
        match scanner.value(texts)? {
            Kind::Null => {}
            kind => match check_input(input, kind, &texts[from..])? {
                Some(problem) => {
                    wrong.get_or_insert(Reject::InvalidField { field: INPUTS[input], problem });
                }
                None => inputs[input] = Some(from..texts.len()),
            },
        }
        if input == METADATA {
            inside = match scanner.watched() {
                Watched::Unknown => None,
                Watched::Found(members) => {
                    let mut inside = [const { None }; INPUTS.len()];
                    for (number, range) in members {
                        inside[OPTIONAL.start + number] = Some(range.clone());
                    }
                    Some(inside)
                }
            };
        }
    }
    if let Some(reject) = wrong {
        return Ok(Err(reject));
    }
    let texts = json::as_text(texts);
    let at = |ranges: [Option<Range<usize>>; INPUTS.len()]| ranges.map(|range| texts.get(range?));
    let given = at(inputs);
    let inside = match inside {
        Some(inside) => at(inside),
        None => given[METADATA].map(optional_members).unwrap_or_default(),
    };
    Ok(Inputs { given, inside }.into_draft())
}

struct Inputs<'a> {
    /// Canonical text of each input that was given and is not `null`.
    given: [Option<&'a str>; INPUTS.len()],
    /// That of the members of `metadata` that are called as an optional input.
    inside: [Option<&'a str>; INPUTS.len()],
}

/// What is wrong with a value of an input field, apart from the rules for an action's name.
fn check_input(input: usize, kind: Kind, text: &[u8]) -> Result<Option<FieldProblem>, Reject> {
    if input == METADATA {
        return Ok((kind != Kind::Object).then_some(FieldProblem::NotAnObject));
    }
    if kind != Kind::String {
        return Ok(Some(FieldProblem::NotAString));
    }
    let facts = StringFacts::of(text);
    if facts.has_lone_surrogate && input <= RESOURCE {
        let detail = format!("`{}` holds half of a surrogate pair", INPUTS[input]);
        return Err(Reject::InvalidJson { detail });
    }
    if input == ACTION {
        return Ok(None);
    }
    Ok(if facts.scalars > FIELD_SCALARS_MAX {
        Some(FieldProblem::TooLong)
    } else if facts.has_nul {
        Some(FieldProblem::HasNul)
    } else if facts.has_lone_surrogate {
        Some(FieldProblem::HasLoneSurrogate)
    } else {
        None
    })
}

impl Inputs<'_> {
    fn into_draft(self) -> Result<Draft, Reject> {
        let field = |input: usize| self.given[input];
        let action = field(ACTION).filter(|text| *text != "\"\"").ok_or(Reject::MissingAction)?;
        let facts = StringFacts::of(action.as_bytes());
        if facts.scalars > FIELD_SCALARS_MAX || facts.has_nul {
            let action = json::decode(action).unwrap_or_default();
            return Err(Reject::ActionInvalid { action, suggestion: None });
        }
        let metadata = field(METADATA);
        // A top-level input, or else the same key inside `metadata`, where that can stand in for it.
        let optional = |input: usize| match field(input) {
            Some(text) => json::decode(text).map(String::into_boxed_str),
            None => stand_in(self.inside[input]?),
        };
        let resource_type = optional(RESOURCE_TYPE).or_else(|| {
            // A slash has one canonical spelling, and no other character's has a slash in it.
            let (kind, _) = field(RESOURCE)?.split_once('/')?;
            let kind = match kind.contains('\\') {
                true => json::decode(&format!("{kind}\""))?.into_boxed_str(),
                false => kind[1..].into(),
            };
            (!kind.is_empty()).then_some(kind)
        });
        Ok(Draft {
            annotations: Annotations {
                actor_type: optional(ACTOR_TYPE),
                resource_type,
                severity: optional(SEVERITY).map(|text| Cow::Owned(text.into_string())),
                session_id: optional(SESSION_ID),
                ts_client: optional(TS_CLIENT).filter(|text| time::is_rfc3339(text)),
                ..Annotations::default()
            },
            text: EventText::new(Fields {
                action,
                actor_id: field(ACTOR_ID),
                resource: field(RESOURCE),
                metadata,
            }),
        })
    }
}

/// The members of `metadata` with the name of an optional input; the last of duplicate keys.
fn optional_members(metadata: &str) -> [Option<&str>; INPUTS.len()] {
    let mut found = [None; INPUTS.len()];
    for (key, value) in Members::of(metadata) {
        let name = &key[1..key.len() - 1];
        if let Some(input) = OPTIONAL.clone().find(|input| INPUTS[*input] == name) {
            found[input] = Some(value);
        }
    }
    found
}

/// The value of a member of `metadata`, if it could have been an optional input.
fn stand_in(text: &str) -> Option<Box<str>> {
    if !text.starts_with('"') {
        return None;
    }
    let facts = StringFacts::of(text.as_bytes());
    let usable = facts.scalars <= FIELD_SCALARS_MAX && !facts.has_nul && !facts.has_lone_surrogate;
    usable.then(|| json::decode(text).map(String::into_boxed_str))?
}

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

/// The fields of an event that reads return, in this order. The flag is true if the field is always present.
pub const STORED_FIELDS: [(&str, bool); 21] = [
    ("log_id", true),
    ("tenant_id", true),
    ("project_id", true),
    ("schema_version", true),
    ("action", true),
    ("category", false),
    ("severity", false),
    ("actor_id", false),
    ("actor_type", false),
    ("resource", false),
    ("resource_type", false),
    ("session_id", false),
    ("ts_client", false),
    ("ip_address", false),
    ("country", false),
    ("city", false),
    ("metadata", false),
    ("timestamp", true),
    ("chain_seq", true),
    ("prev_hash", true),
    ("hash", true),
];

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

    /// The JSON object that reads return: fields in the documented order, absent ones left out.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        let fields = self.text.fields();
        let a = &self.annotations;
        out.extend_from_slice(b"{\"log_id\":\"");
        out.extend_from_slice(&self.sealed.log_id.to_text());
        out.extend_from_slice(b"\",\"tenant_id\":\"");
        out.extend_from_slice(&self.tenant_id.0.to_text());
        out.extend_from_slice(b"\",\"project_id\":\"");
        out.extend_from_slice(&self.project_id.0.to_text());
        out.extend_from_slice(b"\",\"schema_version\":");
        put_number(out, u64::from(self.schema_version));
        put_raw(out, "action", Some(fields.action));
        put_text(out, "category", a.category.as_deref());
        put_text(out, "severity", a.severity.as_deref());
        put_raw(out, "actor_id", fields.actor_id);
        put_text(out, "actor_type", a.actor_type.as_deref());
        put_raw(out, "resource", fields.resource);
        put_text(out, "resource_type", a.resource_type.as_deref());
        put_text(out, "session_id", a.session_id.as_deref());
        put_text(out, "ts_client", a.ts_client.as_deref());
        put_text(out, "ip_address", a.ip_address.as_deref());
        put_text(out, "country", a.country.as_deref());
        put_text(out, "city", a.city.as_deref());
        put_raw(out, "metadata", fields.metadata);
        out.extend_from_slice(b",\"timestamp\":\"");
        time::put_iso_ms(self.timestamp_ms, out);
        out.extend_from_slice(b"\",\"chain_seq\":");
        put_number(out, self.sealed.chain_seq);
        out.extend_from_slice(b",\"prev_hash\":\"");
        out.extend_from_slice(&self.sealed.prev_hash.to_text());
        out.extend_from_slice(b"\",\"hash\":\"");
        out.extend_from_slice(&self.sealed.hash.to_text());
        out.extend_from_slice(b"\"}");
    }

    /// Reads what [`StoredEvent::put_json`] writes, from a response or an export. White space and the order
    /// of fields do not matter; the text of each value does.
    pub fn parse_json(text: &str) -> Result<StoredEvent, String> {
        parse_stored(text)
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    write!(out, "{number}").expect("memory takes everything");
}

fn put_raw(out: &mut Vec<u8>, name: &str, json: Option<&str>) {
    if let Some(json) = json {
        put_name(out, name);
        out.extend_from_slice(json.as_bytes());
    }
}

fn put_text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        put_name(out, name);
        json::put_string(value, out);
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
    use super::*;
    use crate::id::Random80;
    use crate::reject::Code;

    fn single(body: &str) -> Result<Draft, Reject> {
        parse_single(body.as_bytes()).and_then(|draft| draft)
    }

    #[track_caller]
    fn refused(body: &str, code: Code, message: &str) {
        let reject = single(body).unwrap_err();
        assert_eq!((reject.code(), reject.to_string().as_str()), (code, message), "{body}");
    }

    #[test]
    fn a_body_costs_a_few_steps_for_each_byte_whatever_it_holds() {
        let events = |event: &str, count: usize| format!("{{\"events\":[{}]}}", vec![event; count].join(","));
        let members =
            |key: &str| (0..20_000).map(|n| format!("\"{key}{n}\":{n}")).collect::<Vec<_>>().join(",");
        for body in [
            format!(
                "{{\"action\":\"a\",\"metadata\":{{\"x\":{}{}}}}}",
                "[".repeat(100_000),
                "]".repeat(100_000)
            ),
            format!("{{\"action\":\"a\",\"metadata\":{{{}}}}}", members("k")),
            format!("{{\"action\":\"a\",\"metadata\":{{{}}}}}", vec!["\"severity\":1"; 20_000].join(",")),
            // Keys with escapes are looked at once more.
            format!(
                "{{\"action\":\"a\",\"metadata\":{{{}}}}}",
                vec!["\"\\u0073everity\":1"; 20_000].join(",")
            ),
            format!("{{\"action\":\"a\",\"metadata\":{{\"x\":\"{}\"}}}}", "\\u0041".repeat(40_000)),
            format!("{{{},\"action\":\"a\"}}", members("ignored")),
            format!("{{\"action\":\"{}\"}}", "é".repeat(100_000)),
            format!("{}{{\"action\":\"a\"}}", " ".repeat(200_000)),
            events("{\"action\":\"a\",\"metadata\":{\"severity\":\"x\",\"session_id\":\"y\"}}", 100),
            events("1", 100_000),
            "[".repeat(200_000),
        ] {
            for parse in [|body: &[u8]| drop(parse_single(body)), |body: &[u8]| drop(parse_batch(body))] {
                let ((), steps) = crate::steps::of(|| parse(body.as_bytes()));
                assert!(steps <= 8 * body.len(), "{steps} steps for {} bytes: {:.80}", body.len(), body);
            }
        }
    }

    #[test]
    fn the_four_fields_become_canonical_text() {
        let draft = single(r#" {"action":"user.login", "actor_id":"\u00e9", "resource":"doc/1", "metadata":{ "b": 1.0, "a":"\/" } } "#).unwrap();
        assert_eq!(
            draft.text.as_str(),
            r#""action":"user.login","actor_id":"é","resource":"doc/1","metadata":{"b":1.0,"a":"/"}}"#
        );
    }

    #[test]
    fn null_counts_as_absent() {
        let draft =
            single(r#"{"action":"a.b","actor_id":null,"resource":null,"metadata":null,"severity":null}"#)
                .unwrap();
        assert_eq!(draft.text.as_str(), r#""action":"a.b","actor_id":null,"resource":null,"metadata":null}"#);
        assert_eq!(draft.annotations, Annotations::default());
    }

    #[test]
    fn an_action_that_is_missing_null_or_empty_is_missing() {
        for body in ["{}", r#"{"action":null}"#, r#"{"action":""}"#] {
            refused(body, Code::ValidationMissingAction, "action field required");
        }
    }

    #[test]
    fn a_body_that_is_no_object_is_invalid_json() {
        for body in ["[]", "1", "\"x\"", "null", "", "{", "{\"action\":\"a\"", "{} x", "[", "\u{feff}{}"] {
            assert_eq!(single(body).unwrap_err().code(), Code::ValidationInvalidJson, "{body}");
        }
        assert_eq!(parse_single(b"{\"action\":\"\xff\"}").unwrap_err().code(), Code::ValidationInvalidJson);
    }

    #[test]
    fn an_input_field_given_twice_is_invalid_json_and_an_ignored_one_is_not() {
        refused(
            r#"{"action":"a","action":"a"}"#,
            Code::ValidationInvalidJson,
            "the body is not valid JSON: duplicate field `action`",
        );
        refused(
            r#"{"action":"a","\u0061ction":"b"}"#,
            Code::ValidationInvalidJson,
            "the body is not valid JSON: duplicate field `action`",
        );
        assert!(single(r#"{"action":"a","x":1,"x":2,"hash":"h","hash":"h"}"#).is_ok());
    }

    #[test]
    fn wrong_types_name_the_field() {
        refused(r#"{"action":5}"#, Code::ValidationInvalidField, "action must be a string");
        refused(r#"{"action":"a","actor_id":{}}"#, Code::ValidationInvalidField, "actor_id must be a string");
        refused(
            r#"{"action":"a","metadata":[]}"#,
            Code::ValidationInvalidField,
            "metadata must be an object",
        );
        refused(
            r#"{"action":"a","ts_client":1}"#,
            Code::ValidationInvalidField,
            "ts_client must be a string",
        );
    }

    #[test]
    fn fields_have_at_most_255_scalar_values() {
        let of = |field: &str, value: &str| {
            format!("{{\"action\":\"a\",\"{field}\":\"{value}\"}}")
                .replace("\"action\":\"a\",\"action\"", "\"action\"")
        };
        for field in ["actor_id", "resource", "actor_type", "session_id"] {
            assert!(single(&of(field, &"😀".repeat(255))).is_ok());
            refused(
                &of(field, &"😀".repeat(256)),
                Code::ValidationInvalidField,
                &format!("{field} must have at most 255 characters"),
            );
        }
        assert!(single(&of("action", &"é".repeat(255))).is_ok());
        assert_eq!(single(&of("action", &"é".repeat(256))).unwrap_err().code(), Code::ActionInvalid);
    }

    #[test]
    fn nul_and_lone_surrogates_are_refused_outside_metadata_only() {
        refused(
            r#"{"action":"a","actor_id":"\u0000"}"#,
            Code::ValidationInvalidField,
            "actor_id must not contain the NUL character",
        );
        assert_eq!(single(r#"{"action":"a\u0000"}"#).unwrap_err().code(), Code::ActionInvalid);
        for field in ["action", "actor_id", "resource"] {
            let body = format!(r#"{{"{field}":"\ud800"}}"#);
            assert_eq!(single(&body).unwrap_err().code(), Code::ValidationInvalidJson);
        }
        assert_eq!(
            single(r#"{"action":"a","severity":"\ud800"}"#).unwrap_err().code(),
            Code::ValidationInvalidField
        );
        assert!(single(r#"{"action":"a","metadata":{"\u0000":"\ud800"}}"#).is_ok());
    }

    #[test]
    fn optional_inputs_fall_back_to_metadata_and_resource() {
        let draft = single(
            r#"{"action":"a","resource":"doc/1/2","session_id":"top",
                "metadata":{"session_id":"in","severity":"x","severity":"warn","actor_type":5,"ts_client":"2026-11-15T00:00:00Z"}}"#,
        )
        .unwrap();
        let a = draft.annotations;
        assert_eq!(a.session_id.as_deref(), Some("top"));
        assert_eq!(a.severity.as_deref(), Some("warn"));
        assert_eq!(a.actor_type, None);
        assert_eq!(a.resource_type.as_deref(), Some("doc"));
        assert_eq!(a.ts_client.as_deref(), Some("2026-11-15T00:00:00Z"));
    }

    #[test]
    fn a_fallback_is_found_however_its_key_is_spelled_and_only_among_the_members_of_metadata() {
        let a = single(
            r#"{"session_id":null,"metadata":{"\u0073everity":"warn","x":{"actor_type":"no"},"session_id" : "in"},"action":"a"}"#,
        )
        .unwrap()
        .annotations;
        assert_eq!((a.severity.as_deref(), a.session_id.as_deref()), (Some("warn"), Some("in")));
        assert_eq!(a.actor_type, None);
        // What was found in one event's metadata is not found again in the next.
        let body = r#"{"events":[{"action":"a","metadata":{"severity":"warn"}},{"action":"a"},{"action":"a","metadata":{}}]}"#;
        let severities: Vec<_> = parse_batch(body.as_bytes())
            .unwrap()
            .events
            .into_iter()
            .map(|event| event.unwrap().annotations.severity)
            .collect();
        assert_eq!(severities, [Some("warn".into()), None, None]);
    }

    #[test]
    fn a_fallback_that_would_be_refused_is_not_used() {
        let long = "x".repeat(256);
        let draft = single(&format!(
            r#"{{"action":"a","resource":"plain","metadata":{{"session_id":"{long}","actor_type":"\u0000","severity":"\udc00","ts_client":"yesterday"}}}}"#
        ))
        .unwrap();
        assert_eq!(draft.annotations, Annotations::default());
    }

    #[test]
    fn a_batch_needs_an_events_array_once() {
        for body in [
            "[]",
            "{}",
            r#"{"events":null}"#,
            r#"{"events":{}}"#,
            r#"{"events":[],"events":[]}"#,
            r#"{"events":1,"events":[]}"#,
            r#"{"events":[{]}"#,
        ] {
            assert_eq!(
                parse_batch(body.as_bytes()).unwrap_err().code(),
                Code::ValidationInvalidJson,
                "{body}"
            );
        }
        assert_eq!(parse_batch(br#"{"x":[],"events":[]}"#).unwrap().count, 0);
    }

    #[test]
    fn a_batch_keeps_each_events_own_error_and_counts_all() {
        let batch = parse_batch(br#"{"events":[{"action":"a"},5,{}]}"#).unwrap();
        let codes: Vec<_> =
            batch.events.iter().map(|event| event.as_ref().map_err(Reject::code).map(|_| ())).collect();
        assert_eq!(codes, [Ok(()), Err(Code::ValidationInvalidField), Err(Code::ValidationMissingAction)]);

        let many = format!("{{\"events\":[{}]}}", vec!["{}"; 101].join(","));
        let batch = parse_batch(many.as_bytes()).unwrap();
        assert_eq!((batch.count, batch.events.len()), (101, 100));
    }

    #[test]
    fn an_event_with_an_action_alone_has_the_fields_that_are_always_there() {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let draft = single(r#"{"action":"a.b"}"#).unwrap();
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_700_000_000_123, Random80([0; 10]));
        let mut json = Vec::new();
        StoredEvent::new(chain, sealed, draft).put_json(&mut json);
        let json = String::from_utf8(json).unwrap();
        let names: Vec<_> = Members::of(&json).map(|(key, _)| key.trim_matches('"')).collect();
        let always = STORED_FIELDS.iter().filter(|(_, always)| *always).map(|(name, _)| *name);
        assert_eq!(names, always.collect::<Vec<_>>());
    }

    #[test]
    fn stored_events_are_written_in_the_documented_order_and_read_back() {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let mut draft =
            single(r#"{"action":"a.b","actor_id":"x","resource":"r/1","metadata":{"z":1e5}}"#).unwrap();
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
        assert_eq!(names, STORED_FIELDS.map(|(name, _)| name));
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
        let draft = single(r#"{"action":"a.b"}"#).unwrap();
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
