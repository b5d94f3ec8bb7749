//! CloudEvents 1.0 in JSON as events.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::exit::Failure;

/// Which attribute becomes a field: the first of them that is there.
const FIELDS: [(&str, &[&str]); 7] = [
    ("action", &["auditaction", "type"]),
    ("actor_id", &["auditactor", "authid"]),
    ("actor_type", &["authtype"]),
    ("resource", &["auditresource", "subject"]),
    ("severity", &["auditseverity"]),
    ("session_id", &["auditsession"]),
    ("ts_client", &["time"]),
];
/// What every event has; kept in `metadata` as `cloudevent`.
const REQUIRED: [&str; 3] = ["id", "source", "type"];
/// In front of the action in events that Sealog itself has written.
const TYPE_PREFIX: &str = "dev.sealog.";

/// What types are called here.
#[derive(Debug)]
pub(super) struct Map(BTreeMap<String, String>);

impl Map {
    pub(super) fn parse(texts: &[String]) -> Result<Map, Failure> {
        let pair = |text: &String| match text.split_once('=') {
            Some((kind, action)) if !kind.is_empty() && !action.is_empty() => {
                Ok((kind.to_owned(), action.to_owned()))
            }
            _ => Err(Failure::usage(format!("--map takes TYPE=ACTION, and {text:?} is not that"))),
        };
        texts.iter().map(pair).collect::<Result<_, _>>().map(Map)
    }
}

pub(super) fn event(event: &RawValue, Map(actions): &Map) -> Result<Box<RawValue>, String> {
    let attributes: BTreeMap<String, &RawValue> =
        serde_json::from_str(event.get()).map_err(|error| format!("it is no JSON object: {error}"))?;
    let text = |name: &str| -> Result<Option<String>, String> {
        match attributes.get(name).map(|value| value.get()) {
            None | Some("null") => Ok(None),
            Some(value) => {
                serde_json::from_str(value).map(Some).map_err(|_| format!("its {name} is no text"))
            }
        }
    };
    match text("specversion")?.as_deref() {
        Some("1.0") => {}
        Some(other) => return Err(format!("its specversion is {other:?}, and 1.0 is what can be imported")),
        None => return Err("it has no specversion: it is no CloudEvent".into()),
    }
    for required in REQUIRED {
        if text(required)?.is_none_or(|value| value.is_empty()) {
            return Err(format!("it has no {required}, which every CloudEvent has"));
        }
    }
    let mut fields = Vec::new();
    for (field, from) in FIELDS {
        let mut found = None;
        for attribute in from {
            found = found.or(text(attribute)?);
        }
        if let Some(value) = found {
            let value = match field {
                "action" => actions
                    .get(&value)
                    .map_or(value.strip_prefix(TYPE_PREFIX).unwrap_or(&value), String::as_str),
                _ => &value,
            };
            fields.push(format!("\"{field}\":{}", Value::from(value)));
        }
    }
    let member = |name: &str| attributes.get(name).map(|value| value.get()).filter(|value| *value != "null");
    let mut members = Vec::new();
    // An object is the metadata; anything else is a member of it.
    let open = match member("data") {
        Some(data) if data.starts_with('{') => data[..data.len() - 1].trim_end(),
        _ => {
            for name in ["data", "data_base64"] {
                members.extend(member(name).map(|value| format!("\"{name}\":{value}")));
            }
            "{"
        }
    };
    let about = REQUIRED.map(|name| format!("\"{name}\":{}", member(name).unwrap_or("null")));
    members.push(format!("\"cloudevent\":{{{}}}", about.join(",")));
    let comma = if open.ends_with('{') { "" } else { "," };
    fields.push(format!("\"metadata\":{open}{comma}{}}}", members.join(",")));
    RawValue::from_string(format!("{{{}}}", fields.join(","))).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<String, String> {
        let map = Map::parse(&["com.example.in=user.login".to_owned()]).unwrap();
        event(&RawValue::from_string(text.into()).unwrap(), &map).map(|event| event.get().to_owned())
    }

    #[test]
    fn attributes_become_fields_and_data_becomes_metadata() {
        assert_eq!(
            made(r#"{"specversion":"1.0","id":"7","source":"/s","type":"com.example.in","subject":"d/1","time":"T","authid":"u","data":{"n":1.0}}"#),
            Ok(r#"{"action":"user.login","actor_id":"u","resource":"d/1","ts_client":"T","metadata":{"n":1.0,"cloudevent":{"id":"7","source":"/s","type":"com.example.in"}}}"#.into())
        );
        assert_eq!(
            made(r#"{"specversion":"1.0","id":"7","source":"/s","type":"dev.sealog.a.b","data":[1],"auditactor":"v","authid":"u"}"#),
            Ok(r#"{"action":"a.b","actor_id":"v","metadata":{"data":[1],"cloudevent":{"id":"7","source":"/s","type":"dev.sealog.a.b"}}}"#.into())
        );
    }

    #[test]
    fn what_is_no_cloudevent_says_why() {
        for (text, why) in [
            ("{}", "no specversion"),
            (r#"{"specversion":"0.3"}"#, "1.0 is what"),
            (r#"{"specversion":"1.0","id":"1","source":"/"}"#, "no type"),
            (r#"{"specversion":"1.0","id":1}"#, "id is no text"),
        ] {
            assert!(made(text).unwrap_err().contains(why), "{text}");
        }
    }
}
