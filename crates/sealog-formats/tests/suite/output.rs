//! Every format against an example, and against text that wants to be more than text.

use sealog_formats::output::{Format, render};
use serde_json::Value;

/// As `GET /v1/events` returns it.
const LOGIN: &str = r#"{"log_id":"01M7CYVHQ240G2081040G20810","tenant_id":"018f3c5e-7a10-4b2d-9e44-5a617c02d831","project_id":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d","schema_version":1,"action":"user.login","category":"auth","severity":"info","actor_id":"u-17","actor_type":"user","resource":"session/42","resource_type":"session","session_id":"s-1","ts_client":"2026-11-14T13:00:00+01:00","ip_address":"192.0.2.1","country":"GB","city":"Boxford","metadata":{"price":1.0,"big":12345678901234567890,"tags":["a","é"]},"timestamp":"2026-11-14T12:00:01.250Z","chain_seq":2,"prev_hash":"ad08a66265ffd5d29c7e0e0831539e371cf5a3c99ee56369a2e925cb7fb4c315","hash":"3299704b81fd9c42f59fbc139460a3da5c839260f83502548c5f7791390782fe"}"#;

/// With nothing that may be absent, and an action that can be no name of the catalog.
const BARE: &str = r#"{"log_id":"01M7CYVHQ240G2081040G20810","tenant_id":"018f3c5e-7a10-4b2d-9e44-5a617c02d831","project_id":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d","schema_version":1,"action":"a|b=c\\d\ne","actor_id":"x=1|2\\\r\nsuid=admin","resource":"","metadata":{"k":"a=b\n"},"timestamp":"2026-11-14T12:00:01.250Z","chain_seq":4294967296,"prev_hash":"ad08a66265ffd5d29c7e0e0831539e371cf5a3c99ee56369a2e925cb7fb4c315","hash":"3299704b81fd9c42f59fbc139460a3da5c839260f83502548c5f7791390782fe"}"#;

fn golden(name: &str, rendered: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("SEALOG_BLESS").is_some() {
        std::fs::write(&path, format!("{rendered}\n")).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(rendered, expected.trim_end_matches('\n'), "{path}; SEALOG_BLESS=1 writes it anew");
}

#[test]
fn every_format_is_as_its_example() {
    for format in Format::ALL {
        golden(&format!("login.{}", format.as_str()), &render(format, LOGIN).unwrap());
        golden(&format!("bare.{}", format.as_str()), &render(format, BARE).unwrap());
    }
}

#[test]
fn json_is_the_text_that_the_service_has_sent() {
    assert_eq!(render(Format::Json, LOGIN).unwrap(), LOGIN);
}

#[test]
fn metadata_keeps_the_spelling_of_its_numbers() {
    for format in [Format::Ocsf, Format::Ecs, Format::Cef, Format::CloudEvents] {
        let text = render(format, LOGIN).unwrap();
        assert!(text.contains(r#"{"price":1.0,"big":12345678901234567890,"tags":["a","é"]}"#), "{text}");
    }
}

#[test]
fn an_event_is_one_line_whatever_it_holds() {
    for format in Format::ALL {
        for event in [LOGIN, BARE] {
            let text = render(format, event).unwrap();
            assert!(!text.contains(['\n', '\r']), "{text}");
        }
    }
}

/// Reads a line of CEF as a receiver does: bars and equals signs that are escaped are text.
fn parse_cef(line: &str) -> (Vec<String>, Vec<(String, String)>) {
    let mut header = vec![String::new()];
    let mut characters = line.chars();
    while header.len() < 8 {
        match characters.next().unwrap() {
            '\\' => header.last_mut().unwrap().push(characters.next().unwrap()),
            '|' => header.push(String::new()),
            other => header.last_mut().unwrap().push(other),
        }
    }
    header.pop();
    let extension: String = characters.collect();
    // Names are the words before equals signs that are not escaped.
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut text = String::new();
    let mut characters = extension.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.push(match characters.next().unwrap() {
                'n' => '\n',
                'r' => '\r',
                other => other,
            }),
            '=' => {
                let (before, name) = text.rsplit_once(' ').map_or(("", text.as_str()), |pair| pair);
                if let Some(last) = pairs.last_mut() {
                    last.1 = before.to_owned();
                }
                pairs.push((name.to_owned(), String::new()));
                text = String::new();
            }
            other => text.push(other),
        }
    }
    pairs.last_mut().unwrap().1 = text;
    (header, pairs)
}

#[test]
fn what_an_event_holds_cannot_add_a_field_to_cef() {
    let (header, pairs) = parse_cef(&render(Format::Cef, BARE).unwrap());
    assert_eq!(header[4], "a|b=c\\d e");
    let value = |name: &str| {
        let found: Vec<&String> =
            pairs.iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect();
        assert_eq!(found.len(), 1, "{name}: {pairs:?}");
        found[0].clone()
    };
    assert_eq!(value("suid"), "x=1|2\\\r\nsuid=admin");
    assert_eq!(value("cs6"), "{\"k\":\"a=b\\n\"}");
    assert_eq!(value("cn1"), "4294967296");
    // A label without a value would be a field of its own.
    let (_, pairs) =
        parse_cef(&render(Format::Cef, &BARE.replace(r#""metadata":{"k":"a=b\n"},"#, "")).unwrap());
    assert!(pairs.iter().all(|(name, _)| !name.starts_with("cs6")), "{pairs:?}");
}

#[test]
fn severities_of_ocsf_are_the_schemas() {
    for (severity, id, name) in [
        ("info", 1, "Informational"),
        ("warning", 3, "Medium"),
        ("critical", 5, "Critical"),
        ("odd", 99, "odd"),
    ] {
        let event = LOGIN.replace("\"severity\":\"info\"", &format!("\"severity\":\"{severity}\""));
        let ocsf: Value = serde_json::from_str(&render(Format::Ocsf, &event).unwrap()).unwrap();
        assert_eq!((&ocsf["severity_id"], &ocsf["severity"]), (&id.into(), &name.into()), "{severity}");
    }
}

#[test]
fn a_cloudevent_has_the_whole_event_and_no_empty_attribute() {
    let cloud: Value = serde_json::from_str(&render(Format::CloudEvents, BARE).unwrap()).unwrap();
    assert_eq!(cloud["data"], serde_json::from_str::<Value>(BARE).unwrap());
    assert!(cloud.get("subject").is_none(), "an empty subject is none");
    assert_eq!(cloud["chainseq"], "4294967296");
    for (name, value) in cloud.as_object().unwrap() {
        if let Some(text) = value.as_str() {
            assert!(!text.is_empty() && !text.chars().any(char::is_control), "{name}: {text:?}");
        }
    }
}

#[test]
fn what_is_no_event_is_said_to_be_none() {
    for text in ["", "[]", "{}", "{\"log_id\":1", r#"{"log_id":"x","action":"y","timestamp":"z"}"#] {
        for format in [Format::Ocsf, Format::Ecs, Format::Cef, Format::CloudEvents] {
            assert!(render(format, text).is_err(), "{text}");
        }
    }
}
