//! What shippers send becomes events: by the table, item by item, and nothing of `metadata` is written anew.

use sealog_core::event::parse_single;
use sealog_core::reject::{Code, Reject};
use sealog_formats::input::{ATTRIBUTES_MAX, Adapter, DEPTH_MAX, EVENTS_BYTES_MAX, ITEMS_MAX};
use serde_json::{Value, json};

fn items(adapter: Adapter, body: &str) -> Vec<Result<String, Reject>> {
    let items = adapter.items(body.as_bytes()).unwrap();
    items.into_iter().map(|item| item.map(std::borrow::Cow::into_owned)).collect()
}

fn values(adapter: Adapter, body: &str) -> Vec<Value> {
    items(adapter, body).into_iter().map(|item| serde_json::from_str(&item.unwrap()).unwrap()).collect()
}

fn refused(adapter: Adapter, body: &[u8]) -> Code {
    adapter.items(body).unwrap_err().code()
}

#[test]
fn an_array_lines_and_one_object_are_the_same_events() {
    let (a, b) = (r#"{"action":"user.login","metadata":{"n":1.0}}"#, r#"{"action":"user.logout"}"#);
    for body in [format!("[{a},\n {b}]"), format!("{a}\n{b}"), format!("{a}\r\n\r\n{b}\n")] {
        let found: Vec<String> = items(Adapter::Json, &body).into_iter().map(Result::unwrap).collect();
        assert_eq!(found.iter().map(|item| item.trim()).collect::<Vec<_>>(), [a, b], "{body:?}");
    }
    assert_eq!(items(Adapter::Json, "{\n\"action\":\n\"user.login\"\n}").len(), 1);
}

#[test]
fn a_line_that_is_no_json_is_one_bad_item_and_an_array_that_is_none_a_bad_body() {
    let found = items(Adapter::Json, "{\"action\":\"user.login\"}\n{oops\n{\"action\":\"user.logout\"}");
    let fine: Vec<bool> = found
        .iter()
        .map(|item| matches!(parse_single(item.as_ref().unwrap().as_bytes()), Ok(Ok(_))))
        .collect();
    assert_eq!(fine, [true, false, true]);
    assert_eq!(refused(Adapter::Json, b"[{\"action\":\"user.login\"},{oops]"), Code::ValidationInvalidJson);
    assert_eq!(refused(Adapter::Json, b"\xff"), Code::ValidationInvalidJson);
}

#[test]
fn a_body_without_items_is_empty_and_one_with_10001_is_too_large() {
    assert_eq!(refused(Adapter::Json, b"[]"), Code::ValidationBatchEmpty);
    assert_eq!(refused(Adapter::OtlpJson, b"{}"), Code::ValidationBatchEmpty);
    assert_eq!(refused(Adapter::OtlpProtobuf, b""), Code::ValidationBatchEmpty);
    for (separator, open, close) in [(",", "[", "]"), ("\n", "", "")] {
        let body = |count: usize| format!("{open}{}{close}", vec!["{}"; count].join(separator));
        assert_eq!(Adapter::Json.items(body(ITEMS_MAX).as_bytes()).unwrap().len(), ITEMS_MAX);
        assert_eq!(refused(Adapter::Json, body(ITEMS_MAX + 1).as_bytes()), Code::ValidationBatchTooLarge);
    }
}

#[test]
fn a_cloudevent_becomes_an_event_by_the_table() {
    let event = json!({
        "specversion": "1.0", "id": "a-1", "source": "/shop", "type": "dev.sealog.user.login", "subject": "session/1",
        "time": "2026-11-14T12:00:00Z", "authid": "u-17", "authtype": "user", "data": { "ip": "x" },
    });
    assert_eq!(
        values(Adapter::CloudEvents, &event.to_string()),
        [json!({
            "action": "user.login", "actor_id": "u-17", "actor_type": "user", "resource": "session/1", "ts_client": "2026-11-14T12:00:00Z",
            "metadata": { "ip": "x", "cloudevent": { "id": "a-1", "source": "/shop", "type": "dev.sealog.user.login" } },
        })]
    );
    let mut other = event.clone();
    other["auditaction"] = "payment.failed".into();
    other["auditactor"] = "u-18".into();
    other["data"] = json!([1]);
    let batch = values(Adapter::CloudEvents, &json!([event, other]).to_string());
    assert_eq!((&batch[1]["action"], &batch[1]["actor_id"]), (&json!("payment.failed"), &json!("u-18")));
    assert_eq!(batch[1]["metadata"]["data"], json!([1]));
}

#[test]
fn data_of_a_cloudevent_is_not_written_anew() {
    let body = r#"{"specversion":"1.0","id":"1","source":"s","type":"user.login","data":{"price":1.0,"big":12345678901234567890,"e":"\ud800"}}"#;
    let item = items(Adapter::CloudEvents, body).remove(0).unwrap();
    assert!(
        item.contains(r#""metadata":{"price":1.0,"big":12345678901234567890,"e":"\ud800","cloudevent":"#),
        "{item}"
    );
}

#[test]
fn a_cloudevent_without_what_each_has_is_one_bad_item() {
    let good = json!({ "specversion": "1.0", "id": "1", "source": "s", "type": "user.login" });
    let mut batch = vec![good.clone()];
    for (field, value) in
        [("specversion", json!("0.3")), ("id", json!("")), ("source", json!(7)), ("type", Value::Null)]
    {
        let mut bad = good.clone();
        bad[field] = value;
        batch.push(bad);
    }
    batch.push(json!(7));
    let found = items(Adapter::CloudEvents, &json!(batch).to_string());
    assert!(found[0].is_ok());
    for (item, field) in found[1..].iter().zip(["specversion", "id", "source", "type", "event"]) {
        let reject = item.as_ref().unwrap_err();
        assert!(reject.to_string().starts_with(field), "{reject}");
        assert_eq!(reject.code(), Code::ValidationInvalidField);
    }
}

/// A request as the specification of OTLP shows it.
fn logs() -> Value {
    json!({ "resourceLogs": [{
        "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": "shop" } }] },
        "scopeLogs": [{ "scope": { "name": "audit" }, "logRecords": [{
            "timeUnixNano": "1794657601250000000", "observedTimeUnixNano": "1794657602000000000",
            "severityNumber": 9, "severityText": "INFO", "body": { "stringValue": "signed in" },
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
            "attributes": [
                { "key": "audit.action", "value": { "stringValue": "user.login" } },
                { "key": "audit.actor", "value": { "stringValue": "u-17" } },
                { "key": "audit.resource", "value": { "stringValue": "session/1" } },
                { "key": "tries", "value": { "intValue": "3" } },
                { "key": "share", "value": { "doubleValue": 0.5 } },
                { "key": "mfa", "value": { "boolValue": true } },
                { "key": "list", "value": { "arrayValue": { "values": [{ "intValue": "1" }, { "stringValue": "a\"b" }] } } },
                { "key": "map", "value": { "kvlistValue": { "values": [{ "key": "k", "value": { "stringValue": "v" } }] } } },
            ],
        }, { "attributes": [] }] }],
    }] })
}

fn logged() -> Value {
    json!({
        "action": "user.login", "actor_id": "u-17", "resource": "session/1", "ts_client": "2026-11-14T12:00:01.250Z",
        "metadata": {
            "body": "signed in", "severityText": "INFO", "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
            "tries": 3, "share": 0.5, "mfa": true, "list": [1, "a\"b"], "map": { "k": "v" },
            "resource_attributes": { "service.name": "shop" },
        },
    })
}

#[test]
fn a_log_record_becomes_an_event_by_the_table() {
    let found = values(Adapter::OtlpJson, &logs().to_string());
    assert_eq!(found[0], logged());
    assert_eq!(found[1], json!({ "metadata": { "resource_attributes": { "service.name": "shop" } } }));
}

/// A field of Protocol Buffers with a length.
fn piece(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        field.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    field.extend_from_slice(content);
    field
}

fn attribute(name: &str, value: &[u8]) -> Vec<u8> {
    [piece(1, name.as_bytes()), piece(2, value)].concat()
}

fn fixed64(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3 | 1], value.to_le_bytes().to_vec()].concat()
}

/// The same request, as a collector sends it.
fn logs_protobuf() -> Vec<u8> {
    let text = |text: &str| piece(1, text.as_bytes());
    let list = [piece(1, &[0x18, 1]), piece(1, &text("a\"b"))].concat();
    let map = piece(1, &attribute("k", &text("v")));
    let record = [
        fixed64(1, 1_794_657_601_250_000_000),
        vec![0x10, 9],
        piece(3, b"INFO"),
        piece(5, &text("signed in")),
        piece(6, &attribute("audit.action", &text("user.login"))),
        piece(6, &attribute("audit.actor", &text("u-17"))),
        piece(6, &attribute("audit.resource", &text("session/1"))),
        piece(6, &attribute("tries", &[0x18, 3])),
        piece(6, &attribute("share", &fixed64(4, 0.5f64.to_bits()))),
        piece(6, &attribute("mfa", &[0x10, 1])),
        piece(6, &attribute("list", &piece(5, &list))),
        piece(6, &attribute("map", &piece(6, &map))),
        piece(
            9,
            &[0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c],
        ),
        piece(10, &[0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74]),
        fixed64(11, 1_794_657_602_000_000_000),
    ]
    .concat();
    let scope = [piece(1, &piece(1, b"audit")), piece(2, &record), piece(2, b"")].concat();
    let resource = piece(1, &attribute("service.name", &text("shop")));
    piece(1, &[piece(1, &resource), piece(2, &scope)].concat())
}

#[test]
fn protobuf_and_json_of_a_log_record_are_the_same_event() {
    let found: Vec<Value> = Adapter::OtlpProtobuf
        .items(&logs_protobuf())
        .unwrap()
        .into_iter()
        .map(|item| serde_json::from_str(&item.unwrap()).unwrap())
        .collect();
    assert_eq!(found, values(Adapter::OtlpJson, &logs().to_string()));
}

#[test]
fn protobuf_that_is_cut_off_or_none_is_refused_and_nothing_panics() {
    let whole = logs_protobuf();
    for length in 1..whole.len() {
        assert_eq!(refused(Adapter::OtlpProtobuf, &whole[..length]), Code::ValidationInvalidJson, "{length}");
    }
    let mut seed = 7u64;
    for _ in 0..2000 {
        let mut changed = whole.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(seed >> 33).unwrap() % changed.len();
            changed[at] = (seed >> 20).to_le_bytes()[0];
        }
        for item in Adapter::OtlpProtobuf.items(&changed).into_iter().flatten().flatten() {
            assert!(sealog_core::json::canonical(&item).is_ok(), "{item}");
        }
    }
}

/// A request with these records, each of the one resource.
fn request(resource: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    let records: Vec<u8> = records.iter().flat_map(|record| piece(2, record)).collect();
    piece(1, &[piece(1, resource), piece(2, &records)].concat())
}

fn request_json(resource: &Value, records: &[Value]) -> String {
    json!({ "resourceLogs": [{ "resource": resource, "scopeLogs": [{ "logRecords": records }] }] })
        .to_string()
}

/// The only item of a body.
fn only(adapter: Adapter, body: &[u8]) -> Result<String, Reject> {
    let mut items = adapter.items(body).unwrap();
    assert_eq!(items.len(), 1);
    items.remove(0).map(std::borrow::Cow::into_owned)
}

#[test]
fn values_that_are_nested_more_than_32_deep_are_one_bad_item() {
    assert_eq!(DEPTH_MAX, 32);
    let lists = |depth: usize| {
        let list = |inner: Value| json!({ "arrayValue": { "values": [inner] } });
        let value = (0..depth).fold(json!({ "intValue": "1" }), |inner, _| list(inner));
        json!({ "attributes": [{ "key": "deep", "value": value }] })
    };
    let maps = |depth: usize| {
        let map = |inner: Value| json!({ "kvlistValue": { "values": [{ "key": "k", "value": inner }] } });
        let value = (0..depth).fold(json!({ "intValue": "1" }), |inner, _| map(inner));
        json!({ "body": value })
    };
    for record in [&lists as &dyn Fn(usize) -> Value, &maps] {
        let nested = |depth| only(Adapter::OtlpJson, request_json(&json!({}), &[record(depth)]).as_bytes());
        assert!(nested(DEPTH_MAX).is_ok());
        assert_eq!(nested(DEPTH_MAX + 1).unwrap_err().code(), Code::ValidationInvalidJson);
    }
    let lists = |depth: usize| (0..depth).fold(vec![0x18, 1], |inner, _| piece(5, &piece(1, &inner)));
    let maps = |depth: usize| {
        (0..depth).fold(vec![0x18, 1], |inner, _| piece(6, &piece(1, &attribute("k", &inner))))
    };
    for value in [&lists as &dyn Fn(usize) -> Vec<u8>, &maps] {
        let nested = |depth| {
            only(Adapter::OtlpProtobuf, &request(b"", &[piece(6, &attribute("deep", &value(depth)))]))
        };
        assert!(nested(DEPTH_MAX).is_ok());
        assert_eq!(nested(DEPTH_MAX + 1).unwrap_err().code(), Code::ValidationInvalidJson);
        // Deep enough to end a process that follows it by recursion.
        assert_eq!(nested(10_000).unwrap_err().code(), Code::ValidationInvalidJson);
    }
}

#[test]
fn a_length_is_believed_only_as_far_as_the_body_reaches() {
    for length in [2u64, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, u64::MAX] {
        let mut prefix = Vec::new();
        let mut rest = length;
        while rest >= 0x80 {
            prefix.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        prefix.push(u8::try_from(rest).unwrap());
        // At every level: the request, a resource, a record, an attribute, its value, a text.
        for tags in [&[0x0a][..], &[0x0a, 0x12], &[0x0a, 0x12, 0x12], &[0x0a, 0x12, 0x12, 0x32, 0x12, 0x0a]] {
            let mut body = [&tags[tags.len() - 1..], &prefix, b"x"].concat();
            for tag in tags[..tags.len() - 1].iter().rev() {
                // An attribute without a name is none, whatever its value is.
                let name = if *tag == 0x32 { piece(1, b"k") } else { Vec::new() };
                body = piece(tag >> 3, &[name, body].concat());
            }
            let code = match Adapter::OtlpProtobuf.items(&body) {
                Ok(mut items) => items.remove(0).unwrap_err().code(),
                Err(reject) => reject.code(),
            };
            assert_eq!(code, Code::ValidationInvalidJson, "{length} behind {tags:?}");
        }
    }
}

/// The attributes of a resource are written into each of its records: 16 KB of them and 10,000 records would
/// be 160 MB.
#[test]
fn the_events_of_a_body_have_at_most_8_mib_together() {
    type Body<'a> = &'a dyn Fn(usize, usize) -> Vec<u8>;
    assert_eq!(EVENTS_BYTES_MAX, 8 << 20);
    let attribute_json = |bytes: usize| json!({ "attributes": [{ "key": "k", "value": { "stringValue": "x".repeat(bytes) } }] });
    let protobuf = |bytes: usize, count: usize| {
        let text = piece(1, "x".repeat(bytes).as_bytes());
        request(&piece(1, &attribute("k", &text)), &vec![Vec::new(); count])
    };
    let json = |bytes: usize, count: usize| {
        request_json(&attribute_json(bytes), &vec![json!({}); count]).into_bytes()
    };
    let bodies: [(Adapter, Body<'_>); 2] = [(Adapter::OtlpProtobuf, &protobuf), (Adapter::OtlpJson, &json)];
    for (adapter, body) in bodies {
        assert_eq!(refused(adapter, &body(16 << 10, ITEMS_MAX)), Code::ValidationBodyTooLarge);
        // Each is this text and the names around it.
        let one = only(adapter, &body(1000, 1)).unwrap().len();
        let most = EVENTS_BYTES_MAX / one;
        let full = body(1000, most);
        let items = adapter.items(&full).unwrap();
        let bytes: usize = items.iter().flatten().map(|item| item.len()).sum();
        assert!(items.len() == most && bytes <= EVENTS_BYTES_MAX && bytes > EVENTS_BYTES_MAX - one);
        let reject = adapter.items(&body(1000, most + 1)).unwrap_err();
        assert!(reject.to_string().contains("8388608"), "{reject}");
        // One record, all of whose bytes need an escape of six.
        let controls = "\u{1}".repeat(2 << 20);
        let body = match adapter {
            Adapter::OtlpJson => {
                request_json(&json!({}), &[json!({ "body": { "stringValue": controls } })]).into_bytes()
            }
            _ => request(b"", &[piece(5, &piece(1, controls.as_bytes()))]),
        };
        assert_eq!(refused(adapter, &body), Code::ValidationBodyTooLarge);
    }
}

#[test]
fn a_record_with_more_than_1024_attributes_is_one_bad_item_and_such_a_resource_a_bad_body() {
    assert_eq!(ATTRIBUTES_MAX, 1024);
    let protobuf = |count: usize| piece(6, &attribute("k", &[0x18, 1])).repeat(count);
    let json = |count: usize| json!({ "attributes": vec![json!({ "key": "k", "value": { "intValue": "1" } }); count] });
    for (count, is_fine) in [(ATTRIBUTES_MAX, true), (ATTRIBUTES_MAX + 1, false)] {
        let found = only(Adapter::OtlpProtobuf, &request(b"", &[protobuf(count)]));
        assert_eq!(found.is_ok(), is_fine, "{count}");
        let found = only(Adapter::OtlpJson, request_json(&json!({}), &[json(count)]).as_bytes());
        assert_eq!(found.is_ok(), is_fine, "{count}");
        let resource = piece(1, &attribute("k", &[0x18, 1])).repeat(count);
        assert_eq!(Adapter::OtlpProtobuf.items(&request(&resource, &[Vec::new()])).is_ok(), is_fine);
        assert_eq!(
            Adapter::OtlpJson.items(request_json(&json(count), &[json!({})]).as_bytes()).is_ok(),
            is_fine
        );
    }
}

/// As the format has it: a field that is not repeated counts for the last time that it stands there.
#[test]
fn of_several_values_the_last_one_counts_and_one_that_is_none_changes_nothing() {
    let value = [piece(1, b"first"), vec![0x18, 7], piece(9, b"of a later version")].concat();
    let named = [piece(1, b"early"), piece(2, &value), piece(1, b"late")].concat();
    let item = only(Adapter::OtlpProtobuf, &request(b"", &[piece(6, &named)])).unwrap();
    assert_eq!(item, r#"{"metadata":{"late":7}}"#);
    let map =
        piece(6, &[piece(1, &named), piece(1, &piece(2, &value)), piece(1, &attribute("a", b""))].concat());
    let item = only(Adapter::OtlpProtobuf, &request(b"", &[piece(5, &map)])).unwrap();
    assert_eq!(item, r#"{"metadata":{"body":{"late":7,"a":null}}}"#, "a pair without a name is none");
}
