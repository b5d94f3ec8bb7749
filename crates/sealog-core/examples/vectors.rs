//! Writes the test vectors: `cargo run -p sealog-core --example vectors`. `vectors/README.md` says what they
//! are.
//!
//! What is to come out stands here as it was thought out, never as the implementation gives it: canonical
//! texts are spelled out, and results name the event and the reason. Only the hashes are computed, and the
//! other implementations compute those again. `tests/suite/vectors.rs` includes this file, compares it with
//! what is checked in, and runs every case.

use std::path::{Path, PathBuf};

use sealog_core::canonical;
use sealog_core::chain::Head;
use sealog_core::event::{self, Annotations, StoredEvent};
use sealog_core::id::{ChainId, Mode, ProjectId, Random80, TenantId, Ulid, Uuid};
use serde::Serialize;
use sha2::{Digest, Sha256};

fn main() -> std::io::Result<()> {
    for (name, text) in files() {
        std::fs::write(directory().join(name), text)?;
    }
    Ok(())
}

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Name and content of each file.
pub(crate) fn files() -> [(&'static str, String); 2] {
    fn pretty<T: Serialize>(cases: Vec<T>) -> String {
        let text = serde_json::to_string_pretty(&Cases { cases });
        text.expect("strings, numbers and lists have JSON text") + "\n"
    }
    [("metadata.json", pretty(metadata_cases())), ("chains.json", pretty(chain_cases()))]
}

#[derive(Serialize)]
struct Cases<T> {
    cases: Vec<T>,
}

// ---- Canonical text -------------------------------------------------------------------------------------

#[derive(Debug, Serialize)]
pub(crate) struct MetadataCase {
    pub(crate) name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_parts: Option<Vec<(&'static str, usize)>>,
    /// `Some(None)` is written as `null`: not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) canonical: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) canonical_sha256: Option<String>,
}

pub(crate) fn metadata_cases() -> Vec<MetadataCase> {
    let mut cases = Vec::new();
    let mut add = |name, input: &str, canonical: Option<&str>| {
        cases.push(MetadataCase {
            name,
            input: Some(input.into()),
            input_parts: None,
            canonical: Some(canonical.map(Into::into)),
            canonical_sha256: None,
        });
    };
    for (name, text) in UNCHANGED {
        add(name, text, Some(text));
    }
    for (name, text, canonical) in RESPELLED {
        add(name, text, Some(canonical));
    }
    for (name, text) in INVALID {
        add(name, text, None);
    }
    let mut add = |name, parts: &[(&'static str, usize)], canonical: Option<String>| {
        cases.push(MetadataCase {
            name,
            input: None,
            input_parts: Some(parts.to_vec()),
            canonical: canonical.is_none().then_some(None),
            canonical_sha256: canonical
                .map(|text| Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()),
        });
    };
    let deep = 120_000;
    add("arrays 120,000 deep", &[("[", deep), ("]", deep)], Some("[".repeat(deep) + &"]".repeat(deep)));
    add("arrays 120,000 deep, one of them not closed", &[("[", deep), ("]", deep - 1)], None);
    add("arrays 120,000 deep, none of them closed", &[("[", deep)], None);
    add(
        "objects and arrays in turn, 120,000 deep, with white space",
        &[("{ \"a\" : [ ", deep / 2), ("1", 1), ("\n]\t}", deep / 2)],
        Some("{\"a\":[".repeat(deep / 2) + "1" + &"]}".repeat(deep / 2)),
    );
    add(
        "deep brackets that close in the wrong order",
        &[("{\"a\":[", deep / 2), ("1", 1), ("}]", deep / 2)],
        None,
    );
    add(
        "one key 60,000 times",
        &[("{\"first\":0", 1), (",\n \"k\\u0065y\": 1.0", 60_000), ("}", 1)],
        Some("{\"first\":0".to_owned() + &",\"key\":1.0".repeat(60_000) + "}"),
    );
    add(
        "a list of 60,000 escapes",
        &[("[\"\\u0001\"", 1), (", \"\\u00e9\\/\"", 60_000), ("]", 1)],
        Some("[\"\\u0001\"".to_owned() + &",\"é/\"".repeat(60_000) + "]"),
    );
    add(
        "a string of 200,000 characters",
        &[("\"", 1), ("x\\ud83d\\ude00", 100_000), ("\"", 1)],
        Some("\"".to_owned() + &"x😀".repeat(100_000) + "\""),
    );
    add("a number of 100,000 digits", &[("-1", 1), ("0", 99_999), (".5", 1)], {
        Some("-1".to_owned() + &"0".repeat(99_999) + ".5")
    });
    add(
        "100,000 spaces round a value",
        &[(" ", 100_000), ("null", 1), ("\n", 100_000)],
        Some("null".to_owned()),
    );
    add("a string of 100,000 backslashes", &[("\"", 1), ("\\", 100_000), ("\"", 1)], {
        Some("\"".to_owned() + &"\\".repeat(100_000) + "\"")
    });
    add("a string of 100,001 backslashes does not end", &[("\"", 1), ("\\", 100_001), ("\"", 1)], None);
    cases
}

/// Canonical as they stand.
const UNCHANGED: &[(&str, &str)] = &[
    ("empty object", "{}"),
    ("empty array", "[]"),
    ("empty string", "\"\""),
    ("null", "null"),
    ("true", "true"),
    ("false", "false"),
    ("every kind of value", r#"{"a":1,"b":"x","c":true,"d":false,"e":null,"f":[],"g":{}}"#),
    ("key order is kept", r#"{"b":1,"a":2,"c":3,"B":4}"#),
    ("integer-like keys keep their order", r#"{"10":1,"2":2,"1":3,"-1":4,"01":5}"#),
    ("duplicate keys are kept", r#"{"a":1,"a":2,"b":3,"a":1}"#),
    ("an empty key", r#"{"":{"":""}}"#),
    ("keys that JavaScript treats apart", r#"{"__proto__":1,"constructor":2,"toString":3,"length":4}"#),
    ("integer", "[0,1,-1,10,42]"),
    ("minus zero", "-0"),
    ("a fraction with a zero at the end", "[1.0,1.10,0.0,-0.0,100.000]"),
    ("an exponent", "[1e5,1E5,1e+5,1E-5,0e0,-0e-0,1.5e+07]"),
    ("an integer past 2^53", "[9007199254740993,-9007199254740993]"),
    ("an integer past 2^64", "[12345678901234567890,123456789012345678901234567890]"),
    ("numbers past the range of a double", "[1e400,-1E+400,1e-400]"),
    ("more digits than a double has", "0.1000000000000000055511151231257827021181583404541015625"),
    ("a small exponent that serialisers spell out", "[1e2,1e21,1e-7,0.0000001]"),
    ("the short escapes", r#""\"\\\b\f\n\r\t""#),
    ("other control characters", r#""\u0000\u0001\u0007\u000b\u000e\u001b\u001f""#),
    ("delete and the C1 control characters stand for themselves", "\"\u{7f}\u{80}\u{9f}\""),
    ("characters of two, three and four bytes", "\"é߿ࠀ€\u{ffff}\u{10000}😀\u{10ffff}\""),
    ("line separators of JavaScript stand for themselves", "\"\u{2028}\u{2029}\""),
    ("a byte order mark inside a string stands for itself", "\"\u{feff}\""),
    ("characters that HTML escapes stand for themselves", "\"</script>&<>'`\""),
    ("composed and decomposed characters are different texts", "{\"\u{e9}\":1,\"e\u{301}\":2}"),
    ("right-to-left marks and joined emoji", "\"\u{202e}\u{200f}👩\u{200d}👩\u{200d}👧\u{fe0f}\""),
    ("an escaped backslash before what looks like an escape", r#""\\u0041\\ud800\\n\\/""#),
    ("brackets, commas and colons inside strings", r#"{"{[,:]}":"}],\":{"}"#),
    ("white space inside strings is kept", "\" a  b \u{a0} \""),
    ("a lone high surrogate", r#""\ud800""#),
    ("a lone low surrogate", r#""\udc00""#),
    ("the first and the last of each half", r#""\udbff x \udfff x \udc00 x \ud800""#),
    ("two halves in the wrong order", r#""\ude00\ud83d""#),
    ("a lone surrogate as a key", r#"{"\ud83d":"\ude00"}"#),
];

/// With another canonical text.
const RESPELLED: &[(&str, &str, &str)] = &[
    (
        "white space outside strings is removed",
        " { \"a b\" :\t[ 1 ,\r\n 2 ] , \"c\" : { } , \"d\":[ ] } \n",
        r#"{"a b":[1,2],"c":{},"d":[]}"#,
    ),
    ("white space round a scalar", "\r\n\t -0.0 \t\r\n", "-0.0"),
    ("an escaped slash", r#""a\/b/c""#, "\"a/b/c\""),
    ("letters that were escaped", r#""\u0041\u007A\u0020\u007e""#, "\"Az ~\""),
    ("an escaped character of two bytes, in either case", r#""\u00e9\u00E9""#, "\"éé\""),
    ("an escaped character of three bytes", r#""\u20ac\u2028\ufeff\uffff""#, "\"€\u{2028}\u{feff}\u{ffff}\""),
    ("a surrogate pair, in either case and mixed", r#""\ud83d\ude00\uD83D\uDE00\uD83d\uDe00""#, "\"😀😀😀\""),
    ("the first and the last surrogate pair", r#""\ud800\udc00\udbff\udfff""#, "\"\u{10000}\u{10ffff}\""),
    ("escaped delete", r#""\u007f\u0080""#, "\"\u{7f}\u{80}\""),
    (
        "characters with a short escape, written long",
        r#""\u0022\u005c\u005C\u0008\u000c\u000C\u000a\u000A\u000d\u000D\u0009""#,
        r#""\"\\\\\b\f\f\n\n\r\r\t""#,
    ),
    (
        "control characters in upper-case hex",
        r#""\u001F\u000B\u001a\u001A""#,
        r#""\u001f\u000b\u001a\u001a""#,
    ),
    ("a lone surrogate in upper-case hex", r#""\uDFFF\uD800 \uDc0A""#, r#""\udfff\ud800 \udc0a""#),
    ("a high surrogate before a pair", r#""\ud83d\uD83D\ude00""#, "\"\\ud83d😀\""),
    ("a pair before a low surrogate", r#""\ud83d\ude00\uDE00""#, "\"😀\\ude00\""),
    (
        "a high surrogate before another escape",
        r#""\ud83d\u0041\uD83D\n\uD83D\/\uD83D\\""#,
        r#""\ud83dA\ud83d\n\ud83d/\ud83d\\""#,
    ),
    ("a high surrogate before a character", r#""\uD83Dx\uD83D😀\uD83D""#, "\"\\ud83dx\\ud83d😀\\ud83d\""),
    (
        "keys are strings like all others",
        r#"{"\u0062\/":1,"\u00E9":2,"\uD800":3,"\u000A":4}"#,
        r#"{"b/":1,"é":2,"\ud800":3,"\n":4}"#,
    ),
    ("keys that become the same are both kept", r#"{"a":1, "\u0061":2}"#, r#"{"a":1,"a":2}"#),
    (
        "everything at once",
        "{ \"n\" : [ 1.0 , 1e5 , -0 , 12345678901234567890 ] ,\n\t\"s\" : \"\\u00e9\\/\\ud83d\\ude00\\uD800\\u001F\" , \"s\" : null }",
        r#"{"n":[1.0,1e5,-0,12345678901234567890],"s":"é/😀\ud800\u001f","s":null}"#,
    ),
];

/// Not JSON.
const INVALID: &[(&str, &str)] = &[
    ("nothing", ""),
    ("only white space", " \n"),
    ("two values", "1 2"),
    ("two objects", "{}{}"),
    ("a comma after the value", "{},"),
    ("a comma at the end of an array", "[1,]"),
    ("a comma at the start of an array", "[,1]"),
    ("two commas in an array", "[1,,2]"),
    ("a comma alone in an array", "[,]"),
    ("a comma at the end of an object", "{\"a\":1,}"),
    ("a comma alone in an object", "{,}"),
    ("no comma in an array", "[1 2]"),
    ("no comma in an object", "{\"a\":1 \"b\":2}"),
    ("no colon", "{\"a\" 1}"),
    ("two colons", "{\"a\"::1}"),
    ("a colon in an array", "[1:2]"),
    ("no value", "{\"a\":}"),
    ("no key", "{:1}"),
    ("a key alone", "{\"a\"}"),
    ("a key without quotes", "{a:1}"),
    ("a number for a key", "{1:1}"),
    ("an array that does not end", "[1"),
    ("an object that does not end", "{\"a\":1"),
    ("a closing bracket too many", "[1]]"),
    ("a closing bracket alone", "]"),
    ("an array closed as an object", "[1}"),
    ("an object closed as an array", "{\"a\":1]"),
    ("single quotes", "'a'"),
    ("a string that does not end", "\"a"),
    ("a string that ends in an escaped quote", "\"a\\\""),
    ("a line feed in a string", "\"a\nb\""),
    ("a tab in a string", "\"\t\""),
    ("a NUL in a string", "\"\0\""),
    ("U+001F in a string", "\"\u{1f}\""),
    ("an unknown escape", "\"\\x41\""),
    ("an escape in upper case", "\"\\N\""),
    ("an escaped single quote", "\"\\'\""),
    ("an escaped line feed", "\"\\\n\""),
    ("\\u in upper case", "\"\\U0041\""),
    ("\\u with three digits", "\"\\u004\""),
    ("\\u with a letter past f", "\"\\u004g\""),
    ("\\u with a sign", "\"\\u+041\""),
    ("\\u with a space", "\"\\u 041\""),
    ("\\u with full-width digits", "\"\\u００４１\""),
    ("a high surrogate before a broken escape", "\"\\ud800\\u\""),
    ("a high surrogate before an escape with wrong digits", "\"\\ud800\\udc0g\""),
    ("an escape outside a string", "\\u0031"),
    ("a leading zero", "01"),
    ("a leading zero behind a minus", "-01"),
    ("two zeros", "00"),
    ("a plus sign", "+1"),
    ("a minus alone", "-"),
    ("two minus signs", "--1"),
    ("a space behind the minus", "- 1"),
    ("a point at the end", "1."),
    ("a point at the start", ".5"),
    ("a point without digits before the exponent", "1.e5"),
    ("two points", "1.2.3"),
    ("an exponent without digits", "1e"),
    ("an exponent with a sign and no digits", "1e+"),
    ("an exponent with a fraction", "1e1.5"),
    ("hexadecimal", "0x1F"),
    ("digits with underscores", "1_000"),
    ("full-width digits", "１２"),
    ("NaN", "NaN"),
    ("Infinity", "[-Infinity]"),
    ("True in capitals", "True"),
    ("a literal cut short", "[tru]"),
    ("a literal with more behind it", "nullx"),
    ("undefined", "undefined"),
    ("a byte order mark before the value", "\u{feff}{}"),
    ("a no-break space outside a string", "\u{a0}1"),
    ("a form feed outside a string", "[\u{c}1]"),
    ("a vertical tab outside a string", "[\u{b}1]"),
    ("a line separator outside a string", "[1,\u{2028}2]"),
    ("a NUL behind the value", "1\0"),
    ("a comment", "[1/**/]"),
    ("a line comment", "1//"),
    ("a string that is the rest of a key", "{\"a\"b\":1}"),
];

// ---- Chains ---------------------------------------------------------------------------------------------

#[derive(Debug, Serialize)]
pub(crate) struct ChainCase {
    pub(crate) name: &'static str,
    pub(crate) events: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) expect: Vec<String>,
    pub(crate) result: ChainResult,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChainResult {
    pub(crate) valid: bool,
    pub(crate) checked: usize,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken_at: Option<u64>,
    /// `Some(None)` is written as `null`: it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken_hash: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
}

const TENANT: TenantId = TenantId(Uuid(*b"\x01\x8f\x3c\x5e\x7a\x10\x4b\x2d\x9e\x44\x5a\x61\x7c\x02\xd8\x31"));
const PROJECT: ProjectId =
    ProjectId(Uuid(*b"\x9b\x1d\xeb\x4d\x3b\x7d\x4b\xad\x9b\xdd\x2b\x0d\x7b\x3d\xcb\x6d"));
const OTHER_TENANT: TenantId = TenantId(Uuid([0xAB; 16]));
const OTHER_PROJECT: ProjectId = ProjectId(Uuid([0xCD; 16]));
const NOON: u64 = 1_794_657_600_000; // 2026-11-14T12:00:00.000Z

/// Seals the bodies of requests, at the given milliseconds after noon, with the given byte as randomness.
fn seal(requests: &[(i64, u8, &str)]) -> Vec<StoredEvent> {
    let (mut head, mut events) = (Head::EMPTY, Vec::new());
    for (after_ms, random, body) in requests {
        let draft = event::parse_single(body.as_bytes()).and_then(|draft| draft).expect("an acceptable body");
        let now_ms = NOON.saturating_add_signed(*after_ms);
        let sealed = head.seal(TENANT, &draft.text, now_ms, Random80([*random; 10]));
        head = sealed.head();
        events.push(StoredEvent::new(
            ChainId { tenant_id: TENANT, project_id: PROJECT, mode: Mode::Live },
            sealed,
            draft,
        ));
    }
    events
}

/// The chain that most cases start from.
fn plain() -> Vec<StoredEvent> {
    seal(&[
        (
            0,
            0x10,
            r#"{"action":"user.login","actor_id":"u-17","resource":"session/9","metadata":{"ip":"203.0.113.9","mfa":true}}"#,
        ),
        (
            1250,
            0x20,
            r#"{"action":"document.created","actor_id":"u-17","resource":"document/42","metadata":{"title":"Q3","price":1.0,"tags":["a","b"]}}"#,
        ),
        (
            2500,
            0x30,
            r#"{"action":"document.shared","actor_id":"u-17","resource":"document/42","metadata":{"with":"u-23"}}"#,
        ),
        (9999, 0x40, r#"{"action":"document.deleted","actor_id":"u-23","resource":"document/42"}"#),
        (86_400_000, 0x50, r#"{"action":"user.logout","actor_id":"u-17"}"#),
    ])
}

fn raw(event: &StoredEvent) -> String {
    let mut text = Vec::new();
    event.put_json(&mut text);
    String::from_utf8(text).expect("events are UTF-8")
}

fn raws(events: &[StoredEvent]) -> Vec<String> {
    events.iter().map(raw).collect()
}

/// Replaces what must stand exactly once in the text.
fn edit(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in {text}");
    text.replace(from, to)
}

/// Computes the hash anew, as someone does who wants to hide a change.
fn rehash(event: &mut StoredEvent) {
    let sealed = &mut event.sealed;
    sealed.hash = canonical::hash(
        sealed.prev_hash,
        sealed.log_id,
        event.tenant_id,
        event.text.as_str(),
        event.timestamp_ms,
    );
}

/// Computes links and hashes anew from an index to the end.
fn rehash_from(events: &mut [StoredEvent], index: usize) {
    for at in index..events.len() {
        if at > 0 {
            events[at].sealed.prev_hash = events[at - 1].sealed.hash;
        }
        rehash(&mut events[at]);
    }
}

/// The event with another text in the place of its own.
fn with_text(event: &StoredEvent, body: &str) -> StoredEvent {
    let draft = event::parse_single(body.as_bytes()).and_then(|draft| draft).expect("an acceptable body");
    StoredEvent { text: draft.text, ..event.clone() }
}

fn noted(event: &StoredEvent) -> String {
    format!("{}:{}", event.sealed.chain_seq, event.sealed.hash)
}

fn valid(checked: usize, first_seq: u64, last_seq: u64) -> ChainResult {
    ChainResult {
        valid: true,
        checked,
        first_seq,
        last_seq,
        broken_at: None,
        broken_hash: None,
        reason: None,
    }
}

fn broken(
    checked: usize,
    first_seq: u64,
    at: u64,
    hash: Option<String>,
    reason: &'static str,
) -> ChainResult {
    ChainResult {
        valid: false,
        checked,
        first_seq,
        last_seq: at,
        broken_at: Some(at),
        broken_hash: Some(hash),
        reason: Some(reason),
    }
}

/// Broken at this event, with the hash that it shows.
fn broken_at(checked: usize, first_seq: u64, event: &StoredEvent, reason: &'static str) -> ChainResult {
    broken(checked, first_seq, event.sealed.chain_seq, Some(event.sealed.hash.to_string()), reason)
}

pub(crate) fn chain_cases() -> Vec<ChainCase> {
    let mut cases = Vec::new();
    let mut add = |name, events: Vec<String>, expect: &[String], result| {
        cases.push(ChainCase { name, events, expect: expect.to_vec(), result });
    };
    valid_chains(&mut add);
    noted_heads(&mut add);
    changed_fields(&mut add);
    changed_sequences(&mut add);
    malformed_events(&mut add);
    precedence(&mut add);
    cases
}

type Add<'a> = &'a mut dyn FnMut(&'static str, Vec<String>, &[String], ChainResult);

fn valid_chains(add: Add<'_>) {
    let five = plain();
    add("no events", vec![], &[], valid(0, 1, 0));
    add("five events", raws(&five), &[], valid(5, 1, 5));
    add(
        "one event with nothing but its action",
        raws(&seal(&[(0, 1, r#"{"action":"deploy.completed"}"#)])),
        &[],
        valid(1, 1, 1),
    );
    let absent = raws(&five).pop().unwrap_or_default();
    let spelled = edit(&absent, ",\"timestamp\"", ",\"resource\":null,\"metadata\":null,\"timestamp\"");
    add(
        "absent fields may be written as null",
        [&raws(&five)[..4], &[spelled]].concat(),
        &[],
        valid(5, 1, 5),
    );
    add(
        "empty strings are not absent",
        raws(&seal(&[(0, 1, r#"{"action":"a.b","actor_id":"","resource":"","metadata":{}}"#)])),
        &[],
        valid(1, 1, 1),
    );
    add(
        "text of all scripts",
        raws(&seal(&[
            (
                0,
                1,
                r#"{"action":"größe.geändert","actor_id":"użytkownik-ß","resource":"文書/四十二","metadata":{"ключ":"значение","مفتاح":"قيمة","emoji":"👩‍👩‍👧 😀","\u00e9":"e\u0301"}}"#,
            ),
            (
                1,
                2,
                "{\"action\":\"a.b\",\"actor_id\":\"\u{7f}\u{80}\u{2028}\u{2029}\u{feff}\u{ffff}\u{10ffff}\",\"metadata\":{\"\u{202e}\":\"</script>&\"}}",
            ),
        ])),
        &[],
        valid(2, 1, 2),
    );
    add(
        "escapes of every kind, and lone surrogates inside metadata",
        raws(&seal(&[(
            0,
            1,
            r#"{"action":"a\"b\\c\/d","actor_id":"\b\f\n\r\t\u0001\u001F","resource":"\u0041\ud83d\ude00","metadata":{"\u0000":"\u0000","\uD83D":"\uDE00\ud83d","\\u0041":"\\"}}"#,
        )])),
        &[],
        valid(1, 1, 1),
    );
    add(
        "numbers keep their literal",
        raws(&seal(&[(
            0,
            1,
            r#"{"action":"a.b","metadata":{"n":[1.0,1e5,1E+400,-0,-0.0,0.10,12345678901234567890,1e-7,9007199254740993]}}"#,
        )])),
        &[],
        valid(1, 1, 1),
    );
    add(
        "integer-like and duplicate keys keep their order",
        raws(&seal(&[(
            0,
            1,
            r#"{"action":"a.b","metadata":{"10":1,"2":2,"10":3,"__proto__":{"1":0,"0":1},"":""}}"#,
        )])),
        &[],
        valid(1, 1, 1),
    );
    add(
        "metadata with the names of the event's own fields",
        raws(&seal(&[
            (
                0,
                1,
                r#"{"action":"a.b","metadata":{"hash":"x","chain_seq":7,"log_id":null,"events":[{"action":"c.d"}],"metadata":{"timestamp":0}}}"#,
            ),
            (1, 2, r#"{"action":"a.b","actor_id":"x\",\"resource\":null,\"hash\":\"y","resource":"}"}"#),
        ])),
        &[],
        valid(2, 1, 2),
    );
    let deep =
        format!(r#"{{"action":"a.b","metadata":{{"deep":{}{}}}}}"#, "[".repeat(1500), "]".repeat(1500));
    add("metadata 1,500 deep", raws(&seal(&[(0, 1, &deep)])), &[], valid(1, 1, 1));

    let mut annotated = five[..2].to_vec();
    annotated[0].annotations = Annotations {
        category: Some("auth".into()),
        severity: Some("info".into()),
        actor_type: Some("user".into()),
        resource_type: Some("session".into()),
        session_id: Some("s-\"1\"".into()),
        ts_client: Some("2026-11-14T13:00:00+01:00".into()),
        ip_address: Some("2001:db8::1".into()),
        country: Some("DE".into()),
        city: Some("Köln".into()),
    };
    add("every annotation", raws(&annotated), &[], valid(2, 1, 2));
    annotated[0].annotations.city = Some("Bonn".into());
    annotated[0].annotations.category = None;
    add("annotations are not hashed and may change", raws(&annotated), &[], valid(2, 1, 2));
    let unknown: Vec<_> = raws(&five[..2])
        .iter()
        .map(|text| {
            edit(
                text,
                "\"schema_version\":1",
                "\"schema_version\":2,\"new\":[1],\"city\":{\"x\":0},\"new\":2",
            )
        })
        .collect();
    add("other fields are not looked at", unknown, &[], valid(2, 1, 2));
    let indented: Vec<_> = raws(&five[..2])
        .iter()
        .map(|text| {
            text.replace("\":", "\" : ")
                .replace(",\"", "\n,\t\"")
                .replace("[\"a\"\n,\t\"b\"]", "[ \"\\u0061\" , \"b\" ]")
                .replace("\"session/9\"", "\"session\\/9\"")
        })
        .collect();
    add("text that was indented and escaped anew on the way", indented, &[], valid(2, 1, 2));
    let moved: Vec<_> = raws(&five[..2])
        .iter()
        .map(|text| {
            let (front, back) =
                text[1..text.len() - 1].split_once(",\"metadata\":").expect("both have metadata");
            format!("{{\"metadata\":{back},{front}}}")
        })
        .collect();
    add("the order of an event's fields does not matter", moved, &[], valid(2, 1, 2));

    let body = r#"{"action":"a.b"}"#;
    add(
        "the clock steps back and time stands still",
        raws(&seal(&[
            (5000, 9, body),
            (4000, 8, body),
            (-3_600_000, 7, body),
            (5000, 6, body),
            (5001, 5, body),
        ])),
        &[],
        valid(5, 1, 5),
    );
    add(
        "counting up carries into the next millisecond",
        raws(&seal(&[(0, 0xFF, body), (0, 1, body), (0, 0xFF, body), (1, 0, body)])),
        &[],
        valid(4, 1, 4),
    );
    add(
        "many events in one millisecond",
        raws(&seal(&[(0, 0xFE, body), (0, 0, body), (0, 0, body), (0, 0, body)])),
        &[],
        valid(4, 1, 4),
    );
    add(
        "the last millisecond of the year 9999",
        raws(&seal(&[(i64::MAX, 1, body), (i64::MAX, 1, body)])),
        &[],
        valid(2, 1, 2),
    );
    add(
        "the first milliseconds of 1970",
        raws(&seal(&[(i64::MIN, 1, body), (1 - 1_794_657_600_000, 1, body)])),
        &[],
        valid(2, 1, 2),
    );

    let mut newest_first = raws(&five);
    newest_first.reverse();
    add("newest first", newest_first, &[], valid(5, 1, 5));
    add("two events, newest first", vec![raw(&five[1]), raw(&five[0])], &[], valid(2, 1, 2));
    add("part of a chain", raws(&five[2..]), &[], valid(3, 3, 5));
    add("part of a chain, newest first", vec![raw(&five[3]), raw(&five[2])], &[], valid(2, 3, 4));
    add("a single event from the middle", vec![raw(&five[2])], &[], valid(1, 3, 3));
    add("a cut tail that nobody noted", raws(&five[..3]), &[], valid(3, 1, 3));
    add("a chain without its first events is part of a chain", raws(&five[1..]), &[], valid(4, 2, 5));

    let mut rewritten = five.clone();
    rewritten[1] = with_text(&five[1], r#"{"action":"document.created","actor_id":"u-99"}"#);
    rehash_from(&mut rewritten, 1);
    add("a chain that was rewritten to its end, without a noted head", raws(&rewritten), &[], valid(5, 1, 5));
    let relabelled: Vec<_> =
        five.iter().map(|event| StoredEvent { project_id: OTHER_PROJECT, ..event.clone() }).collect();
    add("project_id is not hashed: another one throughout", raws(&relabelled), &[], valid(5, 1, 5));
}

fn noted_heads(add: Add<'_>) {
    let five = plain();
    let heads: Vec<_> = five.iter().map(noted).collect();
    let zeros = "0".repeat(64);
    add("the expected head is the last event", raws(&five), &heads[4..], valid(5, 1, 5));
    add("the expected head lies inside", raws(&five), &heads[2..3], valid(5, 1, 5));
    add(
        "all heads are expected, in any order",
        raws(&five),
        &[&heads[3..], &heads[..3]].concat(),
        valid(5, 1, 5),
    );
    add(
        "an expected head, newest first",
        raws(&five).into_iter().rev().collect(),
        &heads[4..],
        valid(5, 1, 5),
    );
    add("the expected head is the event before the first", raws(&five[2..]), &heads[1..2], valid(3, 3, 5));
    add(
        "an expected head further before the first event is not checked",
        raws(&five[2..]),
        &[format!("1:{zeros}")],
        valid(3, 3, 5),
    );
    add("another hash is expected", raws(&five), &[format!("3:{zeros}")], broken_at(3, 1, &five[2], "head"));
    add(
        "another hash is expected, newest first",
        raws(&five).into_iter().rev().collect(),
        &[format!("3:{zeros}")],
        broken_at(3, 1, &five[2], "head"),
    );
    add(
        "one of two expected heads is wrong",
        raws(&five),
        &[heads[4].clone(), format!("4:{zeros}")],
        broken_at(4, 1, &five[3], "head"),
    );
    add(
        "another hash is expected before the first event",
        raws(&five[2..]),
        &[format!("2:{zeros}")],
        broken_at(1, 3, &five[2], "link"),
    );
    let expected = |index: usize| Some(five[index].sealed.hash.to_string());
    add(
        "the tail was cut below the expected head",
        raws(&five[..3]),
        &heads[4..],
        broken(3, 1, 4, expected(4), "tail"),
    );
    add("the last event was cut", raws(&five[..4]), &heads[4..], broken(4, 1, 5, expected(4), "tail"));
    add(
        "the tail was cut below two expected heads",
        raws(&five[..2]),
        &[heads[4].clone(), heads[3].clone(), heads[1].clone()],
        broken(2, 1, 3, expected(3), "tail"),
    );
    add("the tail of a part was cut", raws(&five[2..4]), &heads[4..], broken(2, 3, 5, expected(4), "tail"));
    add(
        "the tail was cut, newest first",
        vec![raw(&five[1]), raw(&five[0])],
        &heads[4..],
        broken(2, 1, 3, expected(4), "tail"),
    );
    add("nothing is left", vec![], &heads[4..], broken(0, 1, 1, expected(4), "tail"));

    let mut rewritten = five.clone();
    rewritten[1] = with_text(&five[1], r#"{"action":"document.created","actor_id":"u-99"}"#);
    rehash_from(&mut rewritten, 1);
    add(
        "a chain that was rewritten to its end, with a noted head",
        raws(&rewritten),
        &heads[4..],
        broken_at(5, 1, &rewritten[4], "head"),
    );
    add("a head from before the rewriting still agrees", raws(&rewritten), &heads[..1], valid(5, 1, 5));
}

fn changed_fields(add: Add<'_>) {
    let five = plain();
    let three = raws(&five[..3]);
    // One edit in the text of the second event.
    let mut changed = |name, from: &str, to: &str, reason| {
        let events = vec![three[0].clone(), edit(&three[1], from, to), three[2].clone()];
        add(name, events, &[], broken_at(2, 1, &five[1], reason));
    };
    changed("action changed", "\"document.created\"", "\"document.updated\"", "hash");
    changed("actor_id changed", "\"u-17\"", "\"u-18\"", "hash");
    changed("actor_id removed", ",\"actor_id\":\"u-17\"", "", "hash");
    changed("actor_id empty instead of what it was", "\"u-17\"", "\"\"", "hash");
    changed("resource changed", "\"document/42\"", "\"document/43\"", "hash");
    changed("metadata: a value changed", "\"Q3\"", "\"Q4\"", "hash");
    changed("metadata: a number spelled otherwise", "1.0", "1", "hash");
    changed(
        "metadata: keys in another order",
        "\"title\":\"Q3\",\"price\":1.0",
        "\"price\":1.0,\"title\":\"Q3\"",
        "hash",
    );
    changed("metadata: a key twice", "\"title\":\"Q3\"", "\"title\":\"Q3\",\"title\":\"Q3\"", "hash");
    changed("metadata: items in another order", "[\"a\",\"b\"]", "[\"b\",\"a\"]", "hash");
    changed(
        "metadata: null instead of an object",
        "{\"title\":\"Q3\",\"price\":1.0,\"tags\":[\"a\",\"b\"]}",
        "null",
        "hash",
    );
    changed("timestamp changed by a millisecond", "T12:00:01.250Z", "T12:00:01.251Z", "hash");
    changed("timestamp changed by a year", "2026-11-14", "2027-11-14", "hash");
    changed("tenant_id changed", &TENANT.to_string(), &OTHER_TENANT.to_string(), "chain");
    changed("project_id changed", &PROJECT.to_string(), &OTHER_PROJECT.to_string(), "chain");
    let log_id = five[1].sealed.log_id;
    changed("log_id changed", &log_id.to_string(), &Ulid(log_id.0 + 1).to_string(), "hash");
    changed(
        "log_id changed in its time",
        &log_id.to_string(),
        &Ulid(log_id.0 + (1 << 80)).to_string(),
        "hash",
    );
    changed("prev_hash changed", &five[0].sealed.hash.to_string(), &five[2].sealed.hash.to_string(), "link");

    let other = "f".repeat(64);
    let events =
        vec![three[0].clone(), edit(&three[1], &five[1].sealed.hash.to_string(), &other), three[2].clone()];
    add("hash changed", events, &[], broken(2, 1, 2, Some(other.clone()), "hash"));
    let last_changed = [&three[..2], &[edit(&three[2], "u-23", "u-24")]].concat();
    add("the last event changed", last_changed.clone(), &[], broken_at(3, 1, &five[2], "hash"));
    add(
        "the last event changed, newest first",
        last_changed.into_iter().rev().collect(),
        &[],
        broken_at(3, 1, &five[2], "hash"),
    );
    let first_changed = [&[edit(&three[0], "true", "false")], &three[1..]].concat();
    add("the first event changed", first_changed, &[], broken_at(1, 1, &five[0], "hash"));
    let null_added = edit(&raw(&five[4]), "\"timestamp\"", "\"resource\":\"\",\"timestamp\"");
    add(
        "an absent resource became empty",
        [raws(&five[..4]), vec![null_added]].concat(),
        &[],
        broken_at(5, 1, &five[4], "hash"),
    );
    let moved: Vec<_> =
        five.iter().map(|event| StoredEvent { tenant_id: OTHER_TENANT, ..event.clone() }).collect();
    add("another tenant_id throughout", raws(&moved), &[], broken_at(1, 1, &five[0], "hash"));
    let zeros_changed = edit(&three[0], &"0".repeat(64), &other);
    add(
        "the first prev_hash is not 64 zeros",
        [&[zeros_changed], &three[1..]].concat(),
        &[],
        broken_at(1, 1, &five[0], "link"),
    );
    let part_changed = [&[edit(&raw(&five[2]), "u-23", "u-24")], &raws(&five[3..])[..]].concat();
    add("the first event of a part changed", part_changed, &[], broken_at(1, 3, &five[2], "hash"));

    let mut rewritten = five.clone();
    rewritten[1] = with_text(&five[1], r#"{"action":"document.created","actor_id":"u-99"}"#);
    rehash(&mut rewritten[1]);
    add(
        "an event was changed and its hash computed anew",
        raws(&rewritten),
        &[],
        broken_at(3, 1, &five[2], "link"),
    );

    let mut disordered = five[..3].to_vec();
    disordered[2].sealed.log_id = five[1].sealed.log_id;
    disordered[2].timestamp_ms = five[1].timestamp_ms;
    rehash(&mut disordered[2]);
    add(
        "the same log_id twice, with the right hash",
        raws(&disordered),
        &[],
        broken_at(3, 1, &disordered[2], "order"),
    );
    disordered[2].sealed.log_id = Ulid(five[0].sealed.log_id.0 + 5);
    disordered[2].timestamp_ms = five[0].timestamp_ms;
    rehash(&mut disordered[2]);
    add(
        "a log_id that goes back, with the right hash",
        raws(&disordered),
        &[],
        broken_at(3, 1, &disordered[2], "order"),
    );
    let mut mistimed = five[..3].to_vec();
    mistimed[1].timestamp_ms += 1;
    rehash_from(&mut mistimed, 1);
    add(
        "a timestamp that is not the log_id's, with the right hash",
        raws(&mistimed),
        &[],
        broken_at(2, 1, &mistimed[1], "order"),
    );
    let mut mistimed = vec![five[0].clone()];
    mistimed[0].timestamp_ms -= 1;
    rehash(&mut mistimed[0]);
    add(
        "the first timestamp is not the log_id's, with the right hash",
        raws(&mistimed),
        &[],
        broken_at(1, 1, &mistimed[0], "order"),
    );
}

fn changed_sequences(add: Add<'_>) {
    let five = plain();
    let all = raws(&five);
    let pick = |indexes: &[usize]| indexes.iter().map(|&index| all[index].clone()).collect::<Vec<_>>();
    let renumbered = |index: usize, chain_seq: u64| {
        let mut event = five[index].clone();
        event.sealed.chain_seq = chain_seq;
        event
    };
    add("an event dropped", pick(&[0, 1, 3, 4]), &[], broken_at(3, 1, &five[3], "gap"));
    add("an event dropped, newest first", pick(&[4, 3, 1, 0]), &[], broken_at(3, 1, &five[3], "gap"));
    add("three events dropped", pick(&[0, 4]), &[], broken_at(2, 1, &five[4], "gap"));
    let hidden = renumbered(3, 3);
    add(
        "an event dropped and the others numbered anew",
        vec![all[0].clone(), all[1].clone(), raw(&hidden), raw(&renumbered(4, 4))],
        &[],
        broken_at(3, 1, &hidden, "link"),
    );
    add("two events swapped", pick(&[0, 2, 1, 3, 4]), &[], broken_at(2, 1, &five[2], "gap"));
    let (low, high) = (renumbered(2, 2), renumbered(1, 3));
    add(
        "two events swapped with their numbers",
        vec![all[0].clone(), raw(&low), raw(&high), all[3].clone()],
        &[],
        broken_at(2, 1, &low, "link"),
    );
    add("an event twice", pick(&[0, 1, 1, 2]), &[], broken_at(3, 1, &five[1], "gap"));
    add("an event twice, newest first", pick(&[2, 1, 1, 0]), &[], broken_at(2, 3, &five[1], "gap"));
    add("the last event twice", pick(&[0, 1, 1]), &[], broken_at(3, 1, &five[1], "gap"));
    add("a page twice", pick(&[0, 1, 0, 1]), &[], broken_at(3, 1, &five[0], "gap"));
    add("two parts in the wrong order", pick(&[3, 4, 0, 1, 2]), &[], broken_at(3, 4, &five[0], "gap"));
    add(
        "pages of a newest-first list, each turned round",
        pick(&[3, 4, 1, 2]),
        &[],
        broken_at(3, 4, &five[1], "gap"),
    );
    add("newest first with two swapped", pick(&[4, 2, 3, 1, 0]), &[], broken_at(2, 5, &five[2], "gap"));

    let draft = with_text(&five[2], r#"{"action":"permission.granted","actor_id":"u-99"}"#);
    let mut inserted = draft.clone();
    inserted.sealed.log_id = Ulid(five[1].sealed.log_id.0 + 1);
    inserted.timestamp_ms = five[1].timestamp_ms;
    inserted.sealed.prev_hash = five[1].sealed.hash;
    rehash(&mut inserted);
    add(
        "an event inserted",
        vec![all[0].clone(), all[1].clone(), raw(&inserted), all[2].clone()],
        &[],
        broken_at(4, 1, &five[2], "gap"),
    );
    let shifted = renumbered(2, 4);
    add(
        "an event inserted and the others numbered anew",
        vec![all[0].clone(), all[1].clone(), raw(&inserted), raw(&shifted)],
        &[],
        broken_at(4, 1, &shifted, "link"),
    );
    let foreign = StoredEvent { project_id: OTHER_PROJECT, ..five[2].clone() };
    add(
        "an event of another project",
        vec![all[0].clone(), all[1].clone(), raw(&foreign), all[3].clone()],
        &[],
        broken_at(3, 1, &foreign, "chain"),
    );
    let other_chain: Vec<_> = seal(&[(0, 0x77, r#"{"action":"user.login"}"#)])
        .into_iter()
        .map(|event| StoredEvent { project_id: OTHER_PROJECT, ..event })
        .collect();
    add(
        "two projects one after the other",
        [pick(&[0, 1]), raws(&other_chain)].concat(),
        &[],
        broken_at(3, 1, &other_chain[0], "chain"),
    );
    let other_beginning =
        seal(&[(0, 0x77, r#"{"action":"user.login"}"#), (5, 0x78, r#"{"action":"user.logout"}"#)]);
    add(
        "two chains of one project, as live and test events are",
        [pick(&[0, 1]), raws(&other_beginning)].concat(),
        &[],
        broken_at(3, 1, &other_beginning[0], "gap"),
    );
    add(
        "the continuation of another chain",
        [pick(&[0]), vec![raw(&other_beginning[1])]].concat(),
        &[],
        broken_at(2, 1, &other_beginning[1], "link"),
    );
    let nought = renumbered(0, 0);
    add("chain_seq 0", vec![raw(&nought), all[1].clone()], &[], broken_at(1, 0, &nought, "gap"));
    let first = renumbered(2, 1);
    add("a part numbered from 1", vec![raw(&first)], &[], broken_at(1, 1, &first, "link"));
}

fn malformed_events(add: Add<'_>) {
    let five = plain();
    let three = raws(&five[..3]);
    let hash = five[1].sealed.hash.to_string();
    let mut malformed = |name, from: &str, to: &str, hash: Option<&str>| {
        let events = vec![three[0].clone(), edit(&three[1], from, to), three[2].clone()];
        add(name, events, &[], broken(2, 1, 2, hash.map(Into::into), "malformed"));
    };
    let (log_id, tenant) = (five[1].sealed.log_id.to_string(), TENANT.to_string());
    let shown = Some(hash.as_str());
    let log_id_field = format!("\"log_id\":\"{log_id}\",");
    malformed("log_id missing", &log_id_field, "", shown);
    malformed("log_id in lower case", &log_id, &log_id.to_lowercase(), shown);
    malformed("log_id with a letter that ULIDs do not have", &log_id, &log_id.replacen('0', "O", 1), shown);
    malformed("tenant_id in upper case", &tenant, &tenant.to_uppercase(), shown);
    malformed("tenant_id without hyphens", &tenant, &tenant.replace('-', ""), shown);
    malformed("project_id null", &format!("\"{PROJECT}\""), "null", shown);
    malformed("action missing", "\"action\":\"document.created\",", "", shown);
    malformed("action null", "\"document.created\"", "null", shown);
    malformed("action twice", "\"action\":", "\"action\":\"user.login\",\"action\":", shown);
    malformed(
        "a field twice, once with an escape",
        "\"actor_id\":",
        "\"actor\\u005fid\":\"u-18\",\"actor_id\":",
        shown,
    );
    malformed("actor_id a number", "\"u-17\"", "17", shown);
    malformed("resource an object", "\"document/42\"", "{}", shown);
    malformed("metadata an array", "{\"title\":\"Q3\",\"price\":1.0,\"tags\":[\"a\",\"b\"]}", "[]", shown);
    malformed("metadata a string", "{\"title\":\"Q3\",\"price\":1.0,\"tags\":[\"a\",\"b\"]}", "\"\"", shown);
    malformed("timestamp a number", "\"2026-11-14T12:00:01.250Z\"", "1794657601250", shown);
    malformed("timestamp without milliseconds", "12:00:01.250Z", "12:00:01Z", shown);
    malformed("timestamp with microseconds", "12:00:01.250Z", "12:00:01.250000Z", shown);
    malformed("timestamp with an offset", "12:00:01.250Z", "12:00:01.250+00:00", shown);
    malformed("timestamp on a day that does not exist", "2026-11-14", "2026-02-29", shown);
    malformed("timestamp at 24 o'clock", "T12:00:01.250Z", "T24:00:00.000Z", shown);
    malformed("timestamp with a leap second", "T12:00:01.250Z", "T23:59:60.000Z", shown);
    malformed("chain_seq missing", "\"chain_seq\":2,", "", shown);
    malformed("chain_seq a string", "\"chain_seq\":2", "\"chain_seq\":\"2\"", shown);
    malformed("chain_seq with a fraction", "\"chain_seq\":2", "\"chain_seq\":2.0", shown);
    malformed("chain_seq with an exponent", "\"chain_seq\":2", "\"chain_seq\":2e0", shown);
    malformed("chain_seq past 64 bits", "\"chain_seq\":2", "\"chain_seq\":18446744073709551618", shown);
    malformed("chain_seq twice", "\"chain_seq\":2", "\"chain_seq\":2,\"chain_seq\":2", shown);
    malformed("prev_hash missing", &format!("\"prev_hash\":\"{}\",", five[0].sealed.hash), "", shown);
    malformed("prev_hash null", &format!("\"{}\"", five[0].sealed.hash), "null", shown);
    malformed("hash missing", &format!(",\"hash\":\"{hash}\""), "", None);
    malformed("hash in upper case", &hash, &hash.to_uppercase(), None);
    malformed("hash of 63 digits", &hash, &hash[1..], None);
    malformed(
        "hash twice",
        &format!("\"hash\":\"{hash}\""),
        &format!("\"hash\":\"{hash}\",\"hash\":\"{hash}\""),
        None,
    );
    malformed("an empty object", &three[1], "{}", None);

    let events = vec![three[2].clone(), edit(&three[1], "\"u-17\"", "17"), three[0].clone()];
    add("a malformed event, newest first", events, &[], broken(2, 1, 2, Some(hash.clone()), "malformed"));
    let events = vec![three[2].clone(), edit(&three[1], "\"chain_seq\":2,", ""), three[0].clone()];
    add("an event without chain_seq, newest first", events, &[], broken(2, 1, 2, Some(hash), "malformed"));
    let events = vec![edit(&raw(&five[2]), "\"chain_seq\":3,", ""), raw(&five[3])];
    add(
        "the first event lacks its chain_seq",
        events,
        &[],
        broken(1, 1, 1, Some(five[2].sealed.hash.to_string()), "malformed"),
    );
    let events = vec![edit(&raw(&five[2]), "\"document.shared\"", "5"), raw(&five[3])];
    add(
        "the first event of a part is malformed",
        events,
        &[],
        broken(1, 3, 3, Some(five[2].sealed.hash.to_string()), "malformed"),
    );
}

/// Where several rules are broken, the first one in the list names the reason, at the first event that breaks
/// any.
fn precedence(add: Add<'_>) {
    let five = plain();
    let three = raws(&five[..3]);
    let with_third = |event: &StoredEvent| vec![three[0].clone(), three[1].clone(), raw(event)];
    let zeros = "0".repeat(64);
    let mut event = StoredEvent { project_id: OTHER_PROJECT, ..five[3].clone() };
    add("chain before gap", with_third(&event), &[], broken_at(3, 1, &event, "chain"));
    event.project_id = PROJECT;
    event.text = five[0].text.clone();
    add("gap before link and hash", with_third(&event), &[], broken_at(3, 1, &event, "gap"));
    event.sealed.chain_seq = 3;
    add("link before hash", with_third(&event), &[], broken_at(3, 1, &event, "link"));
    let mut event = five[2].clone();
    event.text = five[0].text.clone();
    event.sealed.log_id = five[0].sealed.log_id;
    add("hash before order", with_third(&event), &[], broken_at(3, 1, &event, "hash"));
    add("hash before head", with_third(&event), &[format!("3:{zeros}")], broken_at(3, 1, &event, "hash"));
    rehash(&mut event);
    add("order before head", with_third(&event), &[format!("3:{zeros}")], broken_at(3, 1, &event, "order"));
    let malformed =
        edit(&raw(&StoredEvent { project_id: OTHER_PROJECT, ..five[3].clone() }), "\"u-23\"", "23");
    add(
        "malformed before chain and gap",
        vec![three[0].clone(), three[1].clone(), malformed],
        &[],
        broken(3, 1, 4, Some(five[3].sealed.hash.to_string()), "malformed"),
    );
    let events = vec![edit(&three[0], "u-17", "u-18"), three[2].clone(), three[1].clone()];
    add("the first of several broken events", events, &[], broken_at(1, 1, &five[0], "hash"));
    let events = vec![three[0].clone(), edit(&three[1], "u-17", "u-18")];
    add("a changed event before a cut tail", events, &[noted(&five[4])], broken_at(2, 1, &five[1], "hash"));
    add(
        "a wrong head before a cut tail",
        three[..2].to_vec(),
        &[noted(&five[4]), format!("1:{zeros}")],
        broken_at(1, 1, &five[0], "head"),
    );
}
