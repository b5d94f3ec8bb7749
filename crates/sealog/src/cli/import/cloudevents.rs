//! CloudEvents 1.0 in JSON as events.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::exit::Failure;

/// Attributes that become fields; all others become members of `metadata`, under their own names.
const FIELDS: [(&str, &str); 4] =
    [("type", "action"), ("subject", "resource"), ("authid", "actor_id"), ("time", "ts_client")];

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
    for required in ["id", "source", "type"] {
        if text(required)?.is_none_or(|value| value.is_empty()) {
            return Err(format!("it has no {required}, which every CloudEvent has"));
        }
    }
    let mut fields = Vec::new();
    for (attribute, field) in FIELDS {
        if let Some(value) = text(attribute)? {
            let value = if field == "action" { actions.get(&value).unwrap_or(&value) } else { &value };
            fields.push(format!("\"{field}\":{}", Value::from(value.as_str())));
        }
    }
    let data = attributes.get("data").map(|data| data.get()).filter(|data| *data != "null");
    let mut members = Vec::new();
    // An object is the metadata; anything else is a member of it.
    let open = match data {
        Some(data) if data.starts_with('{') => data[..data.len() - 1].trim_end(),
        Some(data) => {
            members.push(format!("\"data\":{data}"));
            "{"
        }
        None => "{",
    };
    for (name, value) in &attributes {
        if name != "data" && name != "specversion" && !FIELDS.iter().any(|(attribute, _)| attribute == name) {
            members.push(format!("{}:{}", Value::from(format!("ce_{name}")), value.get()));
        }
    }
    let comma = if open.ends_with('{') || members.is_empty() { "" } else { "," };
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
            Ok(r#"{"action":"user.login","resource":"d/1","actor_id":"u","ts_client":"T","metadata":{"n":1.0,"ce_id":"7","ce_source":"/s"}}"#.into())
        );
        assert_eq!(
            made(r#"{"specversion":"1.0","id":"7","source":"/s","type":"a.b","data":[1],"traceparent":"t"}"#),
            Ok(r#"{"action":"a.b","metadata":{"data":[1],"ce_id":"7","ce_source":"/s","ce_traceparent":"t"}}"#.into())
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
