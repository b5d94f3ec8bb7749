//! What clients send: from a request body to drafts.

use std::borrow::Cow;
use std::ops::Range;

use super::field::{Annotations, FIELDS, FieldId, Part};
pub use crate::canonical::FIELD_SCALARS_MAX;
use crate::canonical::{EventText, Fields};
use crate::json::{self, Discard, Kind, Members, Scanner, StringFacts, Watched};
use crate::reject::{FieldProblem, Reject};
use crate::time;

/// Most events in one request. Spec 8.
pub const BATCH_EVENTS_MAX: usize = 100;

/// An event that has been read and is well formed; the catalog has not seen it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub text: EventText,
    pub annotations: Annotations,
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

/// The fields that a client may send: those that are hashed, then those that may stand in `metadata` instead.
pub static INPUTS: [&str; INPUT_FIELDS.len()] = {
    let (mut names, mut at) = ([""; INPUT_FIELDS.len()], 0);
    while at < names.len() {
        names[at] = INPUT_FIELDS[at].field().name;
        at += 1;
    }
    names
};
const INPUT_FIELDS: [FieldId; 9] = {
    let (mut inputs, mut count) = ([FieldId::Action; 9], 0);
    let mut parts = [Part::Hashed, Part::Annotation].as_slice();
    while let [part, rest @ ..] = parts {
        let mut at = 0;
        while at < FIELDS.len() {
            if FIELDS[at].is_input && FIELDS[at].part as u8 == *part as u8 {
                inputs[count] = FIELDS[at].id;
                count += 1;
            }
            at += 1;
        }
        parts = rest;
    }
    assert!(count == inputs.len(), "as many as the table has");
    inputs
};
const ACTION: usize = place(FieldId::Action);
const ACTOR_ID: usize = place(FieldId::ActorId);
const RESOURCE: usize = place(FieldId::Resource);
const METADATA: usize = place(FieldId::Metadata);

/// The inputs that may be in `metadata` instead.
const OPTIONAL: Range<usize> = METADATA + 1..INPUTS.len();

/// Where a field stands among the inputs.
const fn place(field: FieldId) -> usize {
    let mut at = 0;
    while INPUT_FIELDS[at] as usize != field as usize {
        at += 1;
    }
    at
}

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
        let optional = |id: FieldId| match field(place(id)) {
            Some(text) => json::decode(text).map(String::into_boxed_str),
            None => stand_in(self.inside[place(id)]?),
        };
        let resource_type = optional(FieldId::ResourceType).or_else(|| {
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
                actor_type: optional(FieldId::ActorType),
                resource_type,
                severity: optional(FieldId::Severity).map(|text| Cow::Owned(text.into_string())),
                session_id: optional(FieldId::SessionId),
                ts_client: optional(FieldId::TsClient).filter(|text| time::is_rfc3339(text)),
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
