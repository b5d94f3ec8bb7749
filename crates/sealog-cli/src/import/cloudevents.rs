//! CloudEvents 1.0 in JSON as events. Which attribute becomes which field is the table of the adapter
//! (`POST /ingest/cloudevents`), and so is the code that goes through it.

use sealog_formats::input::{ActionNames, cloud_event};
use serde_json::value::RawValue;

use super::super::exit::Failure;

/// What types are called here, by `--map TYPE=ACTION`.
pub(super) fn names(texts: &[String]) -> Result<ActionNames, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((kind, action)) if !kind.is_empty() && !action.is_empty() => {
            Ok((kind.to_owned(), action.to_owned()))
        }
        _ => Err(Failure::usage(format!("--map must be TYPE=ACTION, not {text:?}"))),
    };
    texts.iter().map(pair).collect()
}

/// The same text for the same CloudEvent, however it is spaced: the key of its batch is made of it.
pub(super) fn event(event: &RawValue, names: &ActionNames) -> Result<Box<RawValue>, String> {
    let event = cloud_event(event.get(), names).map_err(|reject| reject.to_string())?;
    RawValue::from_string(event).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use sealog_formats::input::Adapter;

    use super::*;

    fn made(text: &str, map: &[&str]) -> Result<String, String> {
        let map: Vec<String> = map.iter().map(|text| (*text).to_owned()).collect();
        let event = event(&RawValue::from_string(text.into()).unwrap(), &names(&map).unwrap());
        event.map(|event| event.get().to_owned())
    }

    #[test]
    fn an_import_and_the_adapter_make_the_same_event_of_the_same_cloudevent() {
        for text in [
            r#"{"specversion":"1.0","id":"7","source":"/s","type":"user.login","subject":"d/1","time":"T","authid":"u","data":{"n":1.0}}"#,
            r#"{"specversion":"1.0","id":"7","source":"/s","type":"dev.sealog.a.b","data":[1],"auditactor":"v","authid":"u"}"#,
            r#"{ "data_base64": "AA==", "type": "x", "auditaction": "dev.sealog.y", "id": "7", "source": "/s", "specversion": "1.0" }"#,
            r#"{"specversion":"1.0","id":"7","source":"/s","type":"x","subject":5,"authtype":null}"#,
            r#"{"specversion":"0.3","id":"7","source":"/s","type":"x"}"#,
            r#"{"specversion":"1.0","id":"7","source":"/s"}"#,
        ] {
            let adapted = Adapter::CloudEvents.items(text.as_bytes()).unwrap().remove(0);
            let adapted = adapted.map(Cow::into_owned).map_err(|reject| reject.to_string());
            assert_eq!(made(text, &[]), adapted, "{text}");
        }
    }

    #[test]
    fn a_type_has_the_action_that_the_map_gives_it_unless_the_event_names_one_itself() {
        let map = ["com.example.in=user.login", "dev.sealog.a.b=c.d"];
        for (kind, action) in
            [("com.example.in", "user.login"), ("dev.sealog.a.b", "c.d"), ("dev.sealog.x.y", "x.y")]
        {
            let text = format!(r#"{{"specversion":"1.0","id":"7","source":"/s","type":"{kind}"}}"#);
            let event = made(&text, &map).unwrap();
            assert!(event.starts_with(&format!(r#"{{"action":"{action}","#)), "{event}");
            assert!(event.contains(&format!(r#""type":"{kind}""#)), "what it was stays in metadata: {event}");
        }
        let text =
            r#"{"specversion":"1.0","id":"7","source":"/s","type":"com.example.in","auditaction":"e.f"}"#;
        assert!(made(text, &map).unwrap().starts_with(r#"{"action":"e.f","#));
    }

    #[test]
    fn a_map_without_a_type_or_an_action_is_refused() {
        for text in ["", "x", "=user.login", "x="] {
            let refused = names(&[text.to_owned()]).unwrap_err();
            assert!(refused.message.contains("TYPE=ACTION"), "{text}");
        }
    }
}
