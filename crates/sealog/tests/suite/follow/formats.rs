//! `--format`: what a receiver gets of events with awkward values, line by line.
//!
//! The lines were written by hand from the page about mappings (`/docs/mappings`), not by the program: `{…}`
//! stands for what the service decides.

use serde_json::Value;

use crate::support::stage::*;

/// An event as it is sent, and its line in each format.
struct Case {
    sent: &'static str,
    json: &'static str,
    ocsf: &'static str,
    ecs: &'static str,
    cef: &'static str,
    cloudevents: &'static str,
}

/// A name that only a custom action can have.
const CUSTOM: &str = r#"{"action":"bill|sent=yes\\ü"}"#;

const CASES: [Case; 4] = [
    // Nothing that may be absent.
    Case {
        sent: r#"{"action":"user.login"}"#,
        json: r#"{"log_id":"{log_id}","tenant_id":"{tenant_id}","project_id":"{project_id}","schema_version":1,"action":"user.login","category":"auth","severity":"info","ip_address":"127.0.0.1","timestamp":"{timestamp}","chain_seq":1,"prev_hash":"{prev_hash}","hash":"{hash}"}"#,
        ocsf: r#"{"class_uid":0,"category_uid":0,"activity_id":99,"activity_name":"user.login","type_uid":99,"severity_id":1,"severity":"Informational","status_id":1,"status":"Success","time":{ms},"metadata":{"version":"1.5.0","product":{"name":"Sealog","vendor_name":"Sealog"},"event_code":"user.login","uid":"{log_id}","sequence":1,"tenant_uid":"{tenant_id}"},"unmapped":{"project_id":"{project_id}","schema_version":1,"category":"auth","prev_hash":"{prev_hash}","hash":"{hash}","ip_address":"127.0.0.1"}}"#,
        ecs: r#"{"@timestamp":"{timestamp}","ecs":{"version":"8.17.0"},"event":{"kind":"event","provider":"sealog","id":"{log_id}","action":"user.login","category":["authentication"],"type":["start"],"outcome":"success","sequence":1,"hash":"{hash}"},"source":{"ip":"127.0.0.1"},"organization":{"id":"{tenant_id}"},"sealog":{"project_id":"{project_id}","schema_version":1,"category":"auth","severity":"info","prev_hash":"{prev_hash}"}}"#,
        cef: "CEF:0|Sealog|Sealog|1|user.login|User login|3|rt={ms} externalId={log_id} src=127.0.0.1 cat=auth cn1=1 cn1Label=chain_seq cs1={hash} cs1Label=hash cs2={prev_hash} cs2Label=prev_hash cs4={tenant_id} cs4Label=tenant_id cs5={project_id} cs5Label=project_id",
        cloudevents: r#"{"specversion":"1.0","id":"{log_id}","source":"/t/{tenant_id}/p/{project_id}","type":"dev.sealog.user.login","time":"{timestamp}","chainseq":"1","chainhash":"{hash}","datacontenttype":"application/json","data":{event}}"#,
    },
    // Bars, equals signs, backslashes and line ends where a format has a meaning for them; a resource that is
    // empty; letters of other scripts, and a line separator that is none for JSON.
    Case {
        sent: r#"{"action":"bill|sent=yes\\ü","actor_id":"x=1|2\\\r\nsuid=admin","actor_type":"api_key","resource":"","metadata":{"k|=":"a=b\nc","price":1.0,"big":12345678901234567890,"tags":["\u00e9","日本","\u2028"]}}"#,
        json: "{\"log_id\":\"{log_id}\",\"tenant_id\":\"{tenant_id}\",\"project_id\":\"{project_id}\",\"schema_version\":1,\"action\":\"bill|sent=yes\\\\ü\",\"actor_id\":\"x=1|2\\\\\\r\\nsuid=admin\",\"actor_type\":\"api_key\",\"resource\":\"\",\"ip_address\":\"127.0.0.1\",\"metadata\":{\"k|=\":\"a=b\\nc\",\"price\":1.0,\"big\":12345678901234567890,\"tags\":[\"é\",\"日本\",\"\u{2028}\"]},\"timestamp\":\"{timestamp}\",\"chain_seq\":2,\"prev_hash\":\"{prev_hash}\",\"hash\":\"{hash}\"}",
        ocsf: "{\"class_uid\":6003,\"category_uid\":6,\"activity_id\":99,\"activity_name\":\"bill|sent=yes\\\\ü\",\"type_uid\":600399,\"severity_id\":0,\"severity\":\"Unknown\",\"status_id\":0,\"status\":\"Unknown\",\"time\":{ms},\"metadata\":{\"version\":\"1.5.0\",\"product\":{\"name\":\"Sealog\",\"vendor_name\":\"Sealog\"},\"event_code\":\"bill|sent=yes\\\\ü\",\"uid\":\"{log_id}\",\"sequence\":2,\"tenant_uid\":\"{tenant_id}\"},\"actor\":{\"user\":{\"uid\":\"x=1|2\\\\\\r\\nsuid=admin\",\"type_id\":99,\"type\":\"api_key\"}},\"api\":{\"operation\":\"bill|sent=yes\\\\ü\"},\"src_endpoint\":{\"ip\":\"127.0.0.1\"},\"unmapped\":{\"project_id\":\"{project_id}\",\"schema_version\":1,\"metadata\":{\"k|=\":\"a=b\\nc\",\"price\":1.0,\"big\":12345678901234567890,\"tags\":[\"é\",\"日本\",\"\u{2028}\"]},\"prev_hash\":\"{prev_hash}\",\"hash\":\"{hash}\",\"resource\":\"\"}}",
        ecs: "{\"@timestamp\":\"{timestamp}\",\"ecs\":{\"version\":\"8.17.0\"},\"event\":{\"kind\":\"event\",\"provider\":\"sealog\",\"id\":\"{log_id}\",\"action\":\"bill|sent=yes\\\\ü\",\"category\":[\"api\"],\"type\":[\"info\"],\"outcome\":\"unknown\",\"sequence\":2,\"hash\":\"{hash}\"},\"user\":{\"id\":\"x=1|2\\\\\\r\\nsuid=admin\"},\"source\":{\"ip\":\"127.0.0.1\"},\"organization\":{\"id\":\"{tenant_id}\"},\"sealog\":{\"project_id\":\"{project_id}\",\"schema_version\":1,\"actor_type\":\"api_key\",\"resource\":\"\",\"prev_hash\":\"{prev_hash}\",\"metadata\":{\"k|=\":\"a=b\\nc\",\"price\":1.0,\"big\":12345678901234567890,\"tags\":[\"é\",\"日本\",\"\u{2028}\"]}}}",
        cef: "CEF:0|Sealog|Sealog|1|bill\\|sent=yes\\\\ü|Bill\\|sent=yes\\\\ü|Unknown|rt={ms} externalId={log_id} suid=x\\=1|2\\\\\\r\\nsuid\\=admin src=127.0.0.1 cn1=2 cn1Label=chain_seq cs1={hash} cs1Label=hash cs2={prev_hash} cs2Label=prev_hash cs3= cs3Label=resource cs4={tenant_id} cs4Label=tenant_id cs5={project_id} cs5Label=project_id cs6={\"k|\\=\":\"a\\=b\\\\nc\",\"price\":1.0,\"big\":12345678901234567890,\"tags\":[\"é\",\"日本\",\"\u{2028}\"]} cs6Label=metadata",
        cloudevents: "{\"specversion\":\"1.0\",\"id\":\"{log_id}\",\"source\":\"/t/{tenant_id}/p/{project_id}\",\"type\":\"dev.sealog.bill|sent=yes\\\\ü\",\"time\":\"{timestamp}\",\"authtype\":\"api_key\",\"authid\":\"x=1|2\\\\\u{fffd}\u{fffd}suid=admin\",\"chainseq\":\"2\",\"chainhash\":\"{hash}\",\"datacontenttype\":\"application/json\",\"data\":{event}}",
    },
    // Everything that a client can send.
    Case {
        sent: r#"{"action":"user.suspended","actor_id":"svc|1","actor_type":"service_account","resource":"user/é=|1","severity":"critical","session_id":"s=1|2","ts_client":"2026-11-14T13:00:00+01:00","metadata":{"note":"pipe | equals = back\\slash"}}"#,
        json: r#"{"log_id":"{log_id}","tenant_id":"{tenant_id}","project_id":"{project_id}","schema_version":1,"action":"user.suspended","category":"identity","severity":"critical","actor_id":"svc|1","actor_type":"service_account","resource":"user/é=|1","resource_type":"user","session_id":"s=1|2","ts_client":"2026-11-14T13:00:00+01:00","ip_address":"127.0.0.1","metadata":{"note":"pipe | equals = back\\slash"},"timestamp":"{timestamp}","chain_seq":3,"prev_hash":"{prev_hash}","hash":"{hash}"}"#,
        ocsf: r#"{"class_uid":3001,"category_uid":3,"activity_id":5,"activity_name":"Disable","type_uid":300105,"severity_id":5,"severity":"Critical","status_id":1,"status":"Success","time":{ms},"metadata":{"version":"1.5.0","product":{"name":"Sealog","vendor_name":"Sealog"},"event_code":"user.suspended","uid":"{log_id}","sequence":3,"tenant_uid":"{tenant_id}","original_time":"2026-11-14T13:00:00+01:00"},"actor":{"user":{"uid":"svc|1","type_id":99,"type":"service_account"},"session":{"uid":"s=1|2"}},"user":{"uid":"user/é=|1"},"src_endpoint":{"ip":"127.0.0.1"},"unmapped":{"project_id":"{project_id}","schema_version":1,"category":"identity","metadata":{"note":"pipe | equals = back\\slash"},"prev_hash":"{prev_hash}","hash":"{hash}","resource":"user/é=|1","resource_type":"user"}}"#,
        ecs: r#"{"@timestamp":"{timestamp}","ecs":{"version":"8.17.0"},"event":{"kind":"event","provider":"sealog","id":"{log_id}","action":"user.suspended","category":["iam"],"type":["user","change"],"outcome":"success","sequence":3,"hash":"{hash}"},"user":{"id":"svc|1"},"source":{"ip":"127.0.0.1"},"organization":{"id":"{tenant_id}"},"sealog":{"project_id":"{project_id}","schema_version":1,"category":"identity","severity":"critical","actor_type":"service_account","resource":"user/é=|1","resource_type":"user","session_id":"s=1|2","ts_client":"2026-11-14T13:00:00+01:00","prev_hash":"{prev_hash}","metadata":{"note":"pipe | equals = back\\slash"}}}"#,
        cef: r#"CEF:0|Sealog|Sealog|1|user.suspended|User suspended|9|rt={ms} externalId={log_id} suid=svc|1 src=127.0.0.1 cat=identity cn1=3 cn1Label=chain_seq cs1={hash} cs1Label=hash cs2={prev_hash} cs2Label=prev_hash cs3=user/é\=|1 cs3Label=resource cs4={tenant_id} cs4Label=tenant_id cs5={project_id} cs5Label=project_id cs6={"note":"pipe | equals \= back\\\\slash"} cs6Label=metadata"#,
        cloudevents: r#"{"specversion":"1.0","id":"{log_id}","source":"/t/{tenant_id}/p/{project_id}","type":"dev.sealog.user.suspended","subject":"user/é=|1","time":"{timestamp}","authtype":"service_account","authid":"svc|1","chainseq":"3","chainhash":"{hash}","datacontenttype":"application/json","data":{event}}"#,
    },
    // An actor that is empty and of a type that no format knows; an action without a class of its own.
    Case {
        sent: r#"{"action":"payment.failed","actor_id":"","actor_type":"robot","resource":"inv_9","severity":"warning"}"#,
        json: r#"{"log_id":"{log_id}","tenant_id":"{tenant_id}","project_id":"{project_id}","schema_version":1,"action":"payment.failed","category":"payment","severity":"warning","actor_id":"","actor_type":"robot","resource":"inv_9","ip_address":"127.0.0.1","timestamp":"{timestamp}","chain_seq":4,"prev_hash":"{prev_hash}","hash":"{hash}"}"#,
        ocsf: r#"{"class_uid":0,"category_uid":0,"activity_id":99,"activity_name":"payment.failed","type_uid":99,"severity_id":3,"severity":"Medium","status_id":2,"status":"Failure","time":{ms},"metadata":{"version":"1.5.0","product":{"name":"Sealog","vendor_name":"Sealog"},"event_code":"payment.failed","uid":"{log_id}","sequence":4,"tenant_uid":"{tenant_id}"},"unmapped":{"project_id":"{project_id}","schema_version":1,"category":"payment","prev_hash":"{prev_hash}","hash":"{hash}","actor_id":"","actor_type":"robot","resource":"inv_9","ip_address":"127.0.0.1"}}"#,
        ecs: r#"{"@timestamp":"{timestamp}","ecs":{"version":"8.17.0"},"event":{"kind":"event","provider":"sealog","id":"{log_id}","action":"payment.failed","category":["api"],"type":["info"],"outcome":"failure","sequence":4,"hash":"{hash}"},"user":{"id":""},"source":{"ip":"127.0.0.1"},"organization":{"id":"{tenant_id}"},"sealog":{"project_id":"{project_id}","schema_version":1,"category":"payment","severity":"warning","actor_type":"robot","resource":"inv_9","prev_hash":"{prev_hash}"}}"#,
        cef: "CEF:0|Sealog|Sealog|1|payment.failed|Payment failed|6|rt={ms} externalId={log_id} suid= src=127.0.0.1 cat=payment cn1=4 cn1Label=chain_seq cs1={hash} cs1Label=hash cs2={prev_hash} cs2Label=prev_hash cs3=inv_9 cs3Label=resource cs4={tenant_id} cs4Label=tenant_id cs5={project_id} cs5Label=project_id",
        cloudevents: r#"{"specversion":"1.0","id":"{log_id}","source":"/t/{tenant_id}/p/{project_id}","type":"dev.sealog.payment.failed","subject":"inv_9","time":"{timestamp}","chainseq":"4","chainhash":"{hash}","datacontenttype":"application/json","data":{event}}"#,
    },
];

/// A line with what the service has decided in its places.
fn filled(line: &str, case: &Case, event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    let ms = sealog_core::time::parse_iso_ms(&text("timestamp")).unwrap();
    let mut line = line.replace("{event}", case.json).replace("{ms}", &ms.to_string());
    for name in ["log_id", "tenant_id", "project_id", "timestamp", "prev_hash", "hash"] {
        line = line.replace(&format!("{{{name}}}"), &text(name));
    }
    line
}

#[test]
fn every_format_writes_awkward_values_as_the_table_of_mappings_has_it() {
    let stage = Stage::new();
    let post = |path: &str, key: &str, body: &str| {
        let authorization = format!("Bearer {key}");
        let (status, answer) =
            stage.server().request("POST", path, &[("Authorization", &authorization)], body);
        assert!([201, 202].contains(&status), "{path}: {body}: {answer}");
    };
    for (number, case) in CASES.iter().enumerate() {
        if number == 1 {
            let tenant = stage.events()[0]["tenant_id"].as_str().unwrap().to_owned();
            post(&format!("/operator/v1/tenants/{tenant}/actions"), OPERATOR_TOKEN, CUSTOM);
        }
        post("/v1/events", &stage.key, case.sent);
    }
    let mut events = stage.events();
    events.reverse();
    assert_eq!(events[0]["prev_hash"], "0".repeat(64));
    type LineOf = fn(&Case) -> &'static str;
    let lines_of: [(&str, LineOf); 5] = [
        ("json", |case| case.json),
        ("ocsf", |case| case.ocsf),
        ("ecs", |case| case.ecs),
        ("cef", |case| case.cef),
        ("cloudevents", |case| case.cloudevents),
    ];
    for (format, line) in lines_of {
        let (code, written, noted) = stage.run(&["follow", "--once", "--format", format]);
        assert_eq!((code, noted.as_str()), (Some(0), ""), "{format}");
        let expected: Vec<String> =
            CASES.iter().zip(&events).map(|(case, event)| filled(line(case), case, event)).collect();
        // By line ends alone: other separators are part of a line.
        let lines: Vec<&str> = written.trim_end_matches('\n').split('\n').collect();
        assert_eq!(lines, expected, "{format}");
        if format != "cef" {
            for line in lines {
                serde_json::from_str::<Value>(line)
                    .unwrap_or_else(|error| panic!("{format}: {error}: {line}"));
            }
        }
    }
}

/// What leaves as CloudEvents can come back as such: the mappings of both directions agree on the names.
#[test]
fn what_is_followed_as_cloudevents_is_taken_by_the_adapter() {
    let stage = Stage::new();
    let authorization = format!("Bearer {}", stage.key);
    let headers = [("Authorization", authorization.as_str())];
    for case in [&CASES[0], &CASES[2]] {
        assert_eq!(stage.server().request("POST", "/v1/events", &headers, case.sent).0, 202);
    }
    let (code, written, noted) = stage.run(&["follow", "--once", "--format", "cloudevents"]);
    assert_eq!(code, Some(0), "{noted}");
    let (status, answer) = stage.server().request("POST", "/ingest/cloudevents", &headers, &written);
    assert_eq!(status, 202, "{answer}");
    let events = stage.events();
    for (copy, first) in [(&events[0], &events[2]), (&events[1], &events[3])] {
        for name in ["action", "category", "actor_id", "actor_type", "resource"] {
            assert_eq!(copy[name], first[name], "{name}");
        }
        assert_eq!(copy["metadata"]["cloudevent"]["id"], first["log_id"]);
        assert_eq!(copy["metadata"]["hash"], first["hash"]);
    }
}

#[test]
fn the_worst_events_leave_in_every_format_one_to_a_line() {
    let stage = Stage::new();
    let worst = sealog_testing::worst::worst_events("usr_1");
    let sent: String = worst.iter().map(|(_, body)| format!("{body}\n")).collect();
    let (code, _, noted) = stage.piped(&["log", "--file", "-"], &sent);
    assert_eq!(code, Some(0), "{noted}");
    for format in ["json", "ocsf", "ecs", "cef", "cloudevents"] {
        let (code, written, noted) = stage.run(&["follow", "--once", "--format", format]);
        assert_eq!((code, noted.as_str()), (Some(0), ""), "{format}");
        let lines: Vec<&str> = written.trim_end_matches('\n').split('\n').collect();
        assert_eq!(lines.len(), worst.len(), "{format}");
        for (line, (name, body)) in lines.iter().zip(&worst) {
            // What is written of a byte that was sent is an escape of a few, and not a path for each value.
            assert!(line.len() < 4 * body.len() + 16_000, "{format}, {name}: {} bytes", line.len());
        }
    }
}
