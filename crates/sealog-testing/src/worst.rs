//! Events that are as bad as the limits allow, each in one way: deep, wide, with long names, with many
//! values, in many scripts. Whatever reads events is fed with all of them.

/// A little less than the 256 KiB that one event may have.
const BYTES: usize = 250_000;

/// Bodies of `POST /v1/events`, with what is bad about them. Each one is about `person`, and names no other
/// action.
pub fn worst_events(person: &str) -> Vec<(&'static str, String)> {
    let event = |metadata: String| {
        assert!(metadata.len() < BYTES + 8_000, "{}", metadata.len());
        format!(r#"{{"action":"user.login","actor_id":"{person}","metadata":{metadata}}}"#)
    };
    let values = |bytes: usize| vec!["1"; bytes / 2].join(",");
    let people = |count: usize| -> String {
        let ids: Vec<String> = (0..count).map(|at| format!("\"usr_{at:05}\"")).collect();
        ids.join(",")
    };
    let nested_people: Vec<String> = (1..500).map(|length| format!("\"{}\"", "a".repeat(length))).collect();
    let dotted = "a.".repeat(200);
    vec![
        (
            "a long name above many values",
            event(format!("{{\"{}\":[{}]}}", "k".repeat(BYTES / 2), values(BYTES / 2))),
        ),
        ("many long names", {
            let members: Vec<String> =
                (0..480).map(|at| format!("\"{}{at}\":{at}", "k".repeat(490))).collect();
            event(format!("{{{}}}", members.join(",")))
        }),
        ("names full of dots", {
            let members: Vec<String> = (0..500).map(|at| format!("\"{dotted}{at}\":\"usr_{at}\"")).collect();
            event(format!("{{{}}}", members.join(",")))
        }),
        ("deep", event(format!("{{\"in\":{}1{}}}", "[".repeat(BYTES / 2), "]".repeat(BYTES / 2)))),
        ("deep objects", event(format!("{}1{}", "{\"a\":".repeat(BYTES / 6), "}".repeat(BYTES / 6)))),
        ("many values", event(format!("{{\"in\":[{}]}}", values(BYTES)))),
        ("many values, thirty levels down", {
            event(format!("{}[{}]{}", "{\"level\":".repeat(30), values(BYTES - 300), "}".repeat(30)))
        }),
        ("many other people", event(format!("{{\"user_id\":[{}]}}", people(20_000)))),
        ("people whose names begin alike, and a text that begins so, too", {
            let (people, text) = (nested_people.join(","), "aaab".repeat(30_000));
            event(format!("{{\"user_id\":[{people}],\"text\":\"{text}\"}}"))
        }),
        ("one long text", event(format!("{{\"note\":\"{}\"}}", "x ".repeat(BYTES / 2)))),
        ("many scripts", event(format!("{{\"note\":\"{}\"}}", "ß한é\u{5e9}\u{202e}Σ".repeat(BYTES / 14)))),
        (
            "a letter with all accents",
            event(format!("{{\"note\":\"a{}\"}}", "\u{323}\u{307}".repeat(BYTES / 4))),
        ),
        ("escapes", event(format!("{{\"note\":\"{}\"}}", "\\u0001".repeat(BYTES / 6)))),
        ("one name many times", {
            event(format!("{{{}}}", vec!["\"user_id\":\"usr_77\""; BYTES / 19].join(",")))
        }),
    ]
}
