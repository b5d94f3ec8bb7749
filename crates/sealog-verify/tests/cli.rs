//! The program as an auditor runs it: files and pipes in, a verdict and an exit code out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use sealog_core::chain::Head;
use sealog_core::event::{self, StoredEvent};
use sealog_core::id::{ChainId, Mode, ProjectId, Random80, TenantId, Uuid};
use serde_json::Value;
use tempfile::TempDir;

const CHAIN: ChainId = ChainId {
    tenant_id: TenantId(Uuid([0x11; 16])),
    project_id: ProjectId(Uuid([0x22; 16])),
    mode: Mode::Live,
};

// ---- Harness --------------------------------------------------------------------------------------------

/// The next event of a chain and its text.
fn seal(head: &mut Head) -> (StoredEvent, String) {
    let n = head.chain_seq;
    let body = format!(
        r#"{{"action":"document.updated","actor_id":"u-{}","resource":"document/{n}","metadata":{{"n":{n}.0,"text":"a \"quoted\" {{text}} [\\]","list":[1,[2,{{}}]]}}}}"#,
        n % 7
    );
    let draft = event::parse_single(body.as_bytes()).unwrap().unwrap();
    let sealed = head.seal(CHAIN.tenant_id, &draft.text, 1_700_000_000_000 + n * 10, Random80([7; 10]));
    *head = sealed.head();
    let event = StoredEvent::new(CHAIN, sealed, draft);
    let mut text = Vec::new();
    event.put_json(&mut text);
    (event, String::from_utf8(text).unwrap())
}

struct Chain {
    events: Vec<StoredEvent>,
    texts: Vec<String>,
}

impl Chain {
    fn of(length: usize) -> Chain {
        let mut head = Head::EMPTY;
        let (events, texts) = (0..length).map(|_| seal(&mut head)).unzip();
        Chain { events, texts }
    }

    /// `SEQ:HASH` of an event.
    fn head(&self, seq: usize) -> String {
        format!("{seq}:{}", self.events[seq - 1].sealed.hash)
    }

    fn ndjson(&self) -> String {
        self.texts.join("\n") + "\n"
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealog-verify"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program with a text on standard input.
fn verify(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = program().args(arguments).arg("-").stdin(Stdio::piped()).spawn().unwrap();
    // It stops reading at the first break, so the pipe may close early.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    child.wait_with_output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn is_valid(output: &Output, events: usize) {
    let first_line =
        if events == 1 { "VALID: 1 event, ".to_owned() } else { format!("VALID: {events} events, ") };
    assert!(stdout(output).starts_with(&first_line), "{output:?}");
    assert_eq!((code(output), stderr(output)), (0, ""));
}

#[track_caller]
fn is_unreadable(output: &Output, message: &str) {
    assert_eq!(
        (code(output), stdout(output), stderr(output)),
        (2, "", &*format!("sealog-verify: {message}\n"))
    );
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn file(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

// ---- Forms of input -------------------------------------------------------------------------------------

#[test]
fn every_form_of_input_holds_the_same_events() {
    let chain = Chain::of(6);
    let (front, back) = chain.texts.split_at(3);
    let page = |texts: &[String]| {
        format!(r#"{{"events":[{}],"next_cursor":"x\"]}}","n":{{"events":[1]}}}}"#, texts.join(","))
    };
    let late_page = |texts: &[String]| {
        format!("{{ \"next_cursor\" : null ,\n \"events\" : [\n{}\n] }}", texts.join(" ,\n"))
    };
    let array = |texts: &[String]| format!("[{}]", texts.join(","));
    let indented = chain.ndjson().replace("\":", "\" :\n\t ").replace(",\"", "\r\n,  \"");
    for (form, input) in [
        ("NDJSON", chain.ndjson()),
        ("NDJSON without a line feed at the end", chain.texts.join("\n")),
        ("NDJSON with CRLF and empty lines", chain.texts.join("\r\n\r\n") + "\r\n\r\n"),
        ("objects without anything between them", chain.texts.concat()),
        ("indented objects", indented),
        ("a page", page(&chain.texts)),
        ("a page whose events come last", late_page(&chain.texts)),
        ("two pages", page(front) + &page(back)),
        ("an empty page at the end", page(&chain.texts) + "\n" + &page(&[])),
        ("an array", array(&chain.texts)),
        ("an empty array before it", format!("[ ]{}", array(&chain.texts))),
        ("two arrays", format!("{}\n{}", array(front), array(back))),
        ("an array of pages", format!("[{},{}]", page(front), late_page(back))),
        ("an array of arrays", format!("[{},[],{}]", array(front), array(back))),
        ("a page, then NDJSON", page(front) + &back.join("\n")),
        ("an array, then a page", array(front) + &late_page(back)),
    ] {
        let output = verify(&["--json"], &input);
        let result: Value =
            serde_json::from_str(stdout(&output)).unwrap_or_else(|_| panic!("{form}: {output:?}"));
        assert_eq!((&result["valid"], &result["checked"]), (&true.into(), &6.into()), "{form}");
        assert_eq!(result["head"], chain.head(6), "{form}");
        assert_eq!(verify(&["--json"], gzip(&input)), output, "{form}, packed");
    }
}

#[test]
fn gzip_is_told_by_content_and_not_by_name() {
    let (directory, chain) = (TempDir::new().unwrap(), Chain::of(4));
    let packed = file(&directory, "events.ndjson", gzip(&chain.ndjson()));
    let plain = file(&directory, "events.ndjson.gz", chain.ndjson());
    is_valid(&program().arg(packed).output().unwrap(), 4);
    is_valid(&program().arg(plain).output().unwrap(), 4);
    // As `cat a.gz b.gz` makes it.
    let members = [gzip(&chain.texts[..2].concat()), gzip(&chain.texts[2..].concat())].concat();
    is_valid(&verify(&[], members), 4);
}

#[test]
fn several_files_are_one_sequence_and_one_may_be_standard_input() {
    let (directory, chain) = (TempDir::new().unwrap(), Chain::of(6));
    let first = file(&directory, "1", chain.texts[..2].join("\n"));
    let second = file(&directory, "2", gzip(&chain.texts[2..4].join("\n")));
    let mut child = program().args([&first, &second, Path::new("-")]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(chain.texts[4..].join("\n").as_bytes()).unwrap();
    is_valid(&child.wait_with_output().unwrap(), 6);
    let swapped = program().args([&second, &first]).output().unwrap();
    assert_eq!(code(&swapped), 10);
    assert!(stdout(&swapped).starts_with("BROKEN at chain_seq 1 (gap)\n"), "{swapped:?}");
    assert!(stdout(&swapped).contains("after chain_seq 4 comes 1 "), "{swapped:?}");
}

#[test]
fn newest_first_is_turned_round_also_over_several_pages_and_files() {
    let (directory, mut chain) = (TempDir::new().unwrap(), Chain::of(7));
    let oldest_first = verify(&[], chain.ndjson());
    is_valid(&oldest_first, 7);
    chain.texts.reverse();
    assert_eq!(verify(&[], chain.ndjson()), oldest_first);
    let page =
        |name, texts: &[String]| file(&directory, name, format!("{{\"events\":[{}]}}", texts.join(",")));
    let pages = [page("1", &chain.texts[..3]), page("2", &chain.texts[3..6]), page("3", &chain.texts[6..])];
    assert_eq!(program().args(pages).output().unwrap(), oldest_first);
}

#[test]
fn a_hundred_thousand_events_are_checked_in_little_memory() {
    let mut child = program().args(["--json", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (mut head, mut bytes) = (Head::EMPTY, 0);
    for _ in 0..100_000 {
        let (_, text) = seal(&mut head);
        bytes += text.len();
        stdin.write_all(text.as_bytes()).unwrap();
    }
    // All but what fits in the pipe has been read by now, and the process waits for more.
    if let Some(peak_kib) = peak_memory_kib(child.id()) {
        assert!(bytes > 40 << 20 && peak_kib < 16 << 10, "{peak_kib} KiB for {bytes} bytes of events");
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let expected = format!(
        r#"{{"valid":true,"checked":100000,"first_seq":1,"last_seq":100000,"head":"100000:{}","confirmed":0,"unchecked":[]}}"#,
        head.hash
    );
    assert_eq!((code(&output), stdout(&output)), (0, &*(expected + "\n")));
}

/// The most memory that a process has had so far, where the system tells.
fn peak_memory_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

// ---- Verdicts -------------------------------------------------------------------------------------------

#[test]
fn a_valid_chain_is_reported_with_its_head_and_what_to_do_with_it() {
    let chain = Chain::of(3);
    let head = chain.head(3);
    assert_eq!(
        stdout(&verify(&[], chain.ndjson())),
        format!(
            "VALID: 3 events, chain_seq 1 to 3\n\
             tenant_id  11111111-1111-1111-1111-111111111111\n\
             project_id 22222222-2222-2222-2222-222222222222\n\
             Every hash was computed again, and every event names the hash before it.\n\
             No head noted earlier was compared (--expect): if events were cut off at the end,\n\
             this does not show.\n\
             \n\
             Head: {head}\n\
             Write this down where Sealog's operator cannot change it, and give it next time:\n  \
               --expect {head}\n\
             Then a chain that was rewritten or cut short since today will not pass.\n"
        )
    );
}

#[test]
fn an_input_that_starts_later_says_what_was_not_checked() {
    let chain = Chain::of(5);
    let output = verify(&[], chain.texts[2..].join("\n"));
    is_valid(&output, 3);
    assert!(
        stdout(&output)
            .contains("\nThe input starts at chain_seq 3: what came before was not checked (2 events).\n")
    );
    assert!(!stdout(&verify(&[], chain.ndjson())).contains("The input starts at"));
}

#[test]
fn a_broken_chain_is_reported_in_words_and_with_exit_code_10() {
    let chain = Chain::of(4);
    let text = chain.ndjson().replace("document/2", "document/9");
    let output = verify(&[], text);
    let broken = chain.events[2].sealed.hash;
    let expected = format!(
        "BROKEN at chain_seq 3 (hash)\n\
         tenant_id  11111111-1111-1111-1111-111111111111\n\
             project_id 22222222-2222-2222-2222-222222222222\n\
         What is wrong:  its hash does not match its content: the event was changed after\n                \
                         it was sealed.\n\
         What it means:  this event does not say what it said when it was sealed.\n\
         Its hash:       {broken}\n\
         Consistent:     chain_seq 1 to 2\n\
         Nothing behind the first break was examined.\n"
    );
    assert_eq!((code(&output), stdout(&output), stderr(&output)), (10, &*expected, ""));
}

#[test]
fn json_is_the_whole_result_in_one_line() {
    let chain = Chain::of(4);
    let (head, last_hash) = (chain.head(4), chain.events[3].sealed.hash);
    let noted = [chain.head(1), chain.head(4)];
    let valid = verify(&["--json", "--expect", &noted[0], "--expect", &noted[1]], chain.ndjson());
    let expected = format!(
        r#"{{"valid":true,"checked":4,"first_seq":1,"last_seq":4,"head":"{head}","confirmed":2,"unchecked":[]}}"#
    );
    assert_eq!((code(&valid), stdout(&valid), stderr(&valid)), (0, &*(expected + "\n"), ""));

    let part = verify(&["--json", "--expect", &noted[0]], chain.texts[2..].concat());
    let expected = format!(
        r#"{{"valid":true,"checked":2,"first_seq":3,"last_seq":4,"head":"{head}","confirmed":0,"unchecked":["{}"]}}"#,
        noted[0]
    );
    assert_eq!((code(&part), stdout(&part)), (0, &*(expected + "\n")));

    let broken = verify(&["--json"], [&chain.texts[..2], &chain.texts[3..]].concat().concat());
    let expected = format!(
        r#"{{"valid":false,"checked":3,"first_seq":1,"last_seq":4,"broken_at":4,"broken_hash":"{last_hash}","reason":"gap","message":"after chain_seq 2 comes 4 (one or more events before it are missing, or the order was changed)","head":null,"confirmed":0,"unchecked":[]}}"#
    );
    assert_eq!((code(&broken), stdout(&broken), stderr(&broken)), (10, &*(expected + "\n"), ""));

    let malformed = verify(&["--json"], chain.texts[0].replace("\"u-0\"", "0"));
    let expected = format!(
        r#"{{"valid":false,"checked":1,"first_seq":1,"last_seq":1,"broken_at":1,"broken_hash":"{}","reason":"malformed","message":"a field that is checked is missing, duplicate or malformed (`actor_id` is not a string)","head":null,"confirmed":0,"unchecked":[]}}"#,
        chain.events[0].sealed.hash
    );
    assert_eq!((code(&malformed), stdout(&malformed)), (10, &*(expected + "\n")));
}

#[test]
fn an_expected_head_is_confirmed_contradicted_or_missed() {
    let chain = Chain::of(5);
    let right = verify(&["--expect", &chain.head(5)], chain.ndjson());
    is_valid(&right, 5);
    assert!(stdout(&right).contains("\nIt agrees with the head that was noted earlier.\n"));

    let wrong = verify(&["--expect", &format!("4:{}", chain.events[4].sealed.hash)], chain.ndjson());
    assert_eq!(code(&wrong), 10);
    assert!(stdout(&wrong).starts_with("BROKEN at chain_seq 4 (head)\n"), "{wrong:?}");

    let shorter = verify(&["--expect", &chain.head(5)], chain.texts[..3].concat());
    assert_eq!(code(&shorter), 10);
    assert!(stdout(&shorter).starts_with("BROKEN at chain_seq 4 (tail)\n"), "{shorter:?}");
    assert!(stdout(&shorter).contains(&format!("Noted hash:     {}\n", chain.events[4].sealed.hash)));

    let nothing = verify(&["--expect", &chain.head(5)], "");
    assert_eq!(code(&nothing), 10);
    assert!(stdout(&nothing).starts_with("BROKEN at chain_seq 1 (tail)\n"), "{nothing:?}");

    let before = verify(&["--expect", &chain.head(1)], chain.texts[2..].concat());
    is_valid(&before, 3);
    assert!(stdout(&before).contains("\nNOT CHECKED, as it lies before the events given: --expect 1:"));
}

#[test]
fn quiet_leaves_the_exit_code_and_the_json() {
    let chain = Chain::of(3);
    let silent = |output: &Output| output.stdout.is_empty() && output.stderr.is_empty();
    let valid = verify(&["--quiet"], chain.ndjson());
    assert!(code(&valid) == 0 && silent(&valid));
    let broken = verify(&["-q"], chain.ndjson().replace("u-1", "u-2"));
    assert!(code(&broken) == 10 && silent(&broken));
    assert!(stdout(&verify(&["--quiet", "--json"], chain.ndjson())).starts_with("{\"valid\":true,"));
    is_unreadable(&verify(&["--quiet"], ""), "there are no events in the input");
}

#[test]
fn what_a_forged_event_says_cannot_steer_the_terminal() {
    let text =
        Chain::of(1).texts[0].replacen("\"log_id\":\"", "\"log_id\":\"\\u001b[2J\\u009b1A\\u202eVALID\\n", 1);
    let output = verify(&[], &text);
    assert_eq!(code(&output), 10);
    assert!(stdout(&output).bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{output:?}");
    assert!(stdout(&output).contains("\\u{1b}[2J\\u{9b}1A\\u{202e}VALID\\u{a}"));
    let json: Value = serde_json::from_str(stdout(&verify(&["--json"], &text))).unwrap();
    assert_eq!(json["reason"], "malformed");
}

#[test]
fn the_chains_of_the_vectors_are_judged_as_they_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/chains.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let strings = |field: &str| -> Vec<String> {
            let values = case[field].as_array().cloned().unwrap_or_default();
            values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
        };
        let (events, expect) = (strings("events"), strings("expect"));
        let mut arguments = vec!["--json"];
        expect.iter().for_each(|head| arguments.extend(["--expect", head]));
        let output = verify(&arguments, events.join("\n"));
        if events.is_empty() && expect.is_empty() {
            is_unreadable(&output, "there are no events in the input");
            continue;
        }
        let result: Value =
            serde_json::from_str(stdout(&output)).unwrap_or_else(|_| panic!("{case}: {output:?}"));
        for field in ["valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason"] {
            assert_eq!(result[field], case["result"][field], "{field} of {}", case["name"]);
        }
        assert_eq!(code(&output), if case["result"]["valid"] == true { 0 } else { 10 }, "{}", case["name"]);
        // The same in one array, which takes another way through the reader.
        assert_eq!(verify(&arguments, format!("[{}]", events.join(","))), output, "{}", case["name"]);
    }
}

// ---- What cannot be used --------------------------------------------------------------------------------

#[test]
fn wrong_usage_exits_with_2() {
    let zeros = "0".repeat(64);
    let long = format!("18446744073709551616:{zeros}");
    let upper = format!("1:{}", "A".repeat(64));
    let (nought, signed, short) = (format!("0:{zeros}"), format!("+1:{zeros}"), format!("1:{}", &zeros[1..]));
    for expect in ["1", "x", ":", &long, &upper, &nought, &signed, &short] {
        let output = verify(&["--expect", expect], Chain::of(1).ndjson());
        assert_eq!((code(&output), stdout(&output)), (2, ""), "{expect}");
        assert!(stderr(&output).contains("64 lower-case hex digits"), "{output:?}");
    }
    for arguments in [&[][..], &["--unknown", "-"]] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!((code(&output), stdout(&output)), (2, ""), "{arguments:?}");
    }
}

#[test]
fn help_tells_of_order_and_exit_codes() {
    let help = program().arg("--help").output().unwrap();
    assert_eq!(code(&help), 0);
    for part in [
        "Newest first, as list\n  pages are, they are all held in memory",
        "10  broken",
        "SEQ:HASH",
        "--quiet",
    ] {
        assert!(stdout(&help).contains(part), "{part}");
    }
}

#[test]
fn an_input_without_events_exits_with_2() {
    for input in ["", " \n", "[]", r#"{"events":[]}"#, r#"[[],{"events":[],"next_cursor":null}]"#] {
        is_unreadable(&verify(&[], input), "there are no events in the input");
    }
    is_unreadable(&verify(&[], gzip("")), "there are no events in the input");
}

#[test]
fn a_file_that_is_not_there_exits_with_2() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("none");
    let output = program().arg(&path).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (2, ""));
    assert!(stderr(&output).starts_with(&format!("sealog-verify: {}: ", path.display())), "{output:?}");
    assert_eq!(code(&program().arg(directory.path()).output().unwrap()), 2);
}

#[test]
fn text_that_is_not_events_exits_with_2_and_says_where() {
    let event = &Chain::of(1).texts[0];
    let (length, offset) = (event.len(), event.len() + 1);
    let unusual = "expected an event, a page of events or an array of them";
    for (input, message) in [
        (format!("{event}\nx"), format!("at byte {offset}: {unusual}")),
        (format!("{event}\n5"), format!("at byte {offset}: {unusual}")),
        (format!("{event},{event}"), format!("at byte {length}: {unusual}")),
        (format!("{event}]"), format!("at byte {length}: {unusual}")),
        ("\u{feff}{}".to_owned(), format!("at byte 0: {unusual}")),
        (format!("[{event},]"), format!("at byte {}: {unusual}", offset + 1)),
        (format!("[,{event}]"), format!("at byte 1: {unusual}")),
        (format!("[{event} {event}]"), format!("at byte {}: expected ',' or ']'", offset + 1)),
        (format!("[{event}"), format!("at byte {offset}: the text ends inside an array of events")),
        (event[..length - 1].to_owned(), format!("at byte {}: the text ends inside an object", length - 1)),
        (event[..length - 2].to_owned(), format!("at byte {}: the text ends inside a string", length - 2)),
        (r#"{"a":[1,{"#.to_owned(), "at byte 9: the text ends inside a value".to_owned()),
        (r#"{"a":}"#.to_owned(), "at byte 5: expected a value".to_owned()),
        (r#"{"a" 1}"#.to_owned(), "at byte 5: expected ':'".to_owned()),
        (r#"{"a":1 2}"#.to_owned(), "at byte 7: expected ',' or '}'".to_owned()),
        (r#"{"a":tru}"#.to_owned(), "at byte 0: this object is not valid JSON: expected a value".to_owned()),
        (
            r#" {"a":[1 2]}"#.to_owned(),
            "at byte 1: this object is not valid JSON: expected ',' or ']'".to_owned(),
        ),
        (r#"{"a":1,}"#.to_owned(), "at byte 0: this object is not valid JSON: ".to_owned()),
        (
            r#"{"a":"\x"}"#.to_owned(),
            "at byte 0: this object is not valid JSON: an unknown escape".to_owned(),
        ),
        (r#"{"events":[],}"#.to_owned(), "at byte 12: not valid JSON: ".to_owned()),
        (
            r#"{"events":[],"events":[]}"#.to_owned(),
            "at byte 12: the object around these events is neither".to_owned(),
        ),
        (
            r#"{"events":[],"log_id":""}"#.to_owned(),
            "at byte 12: the object around these events is neither".to_owned(),
        ),
        (
            r#"{"hash":"","events":[]}"#.to_owned(),
            "at byte 22: the object around these events is neither".to_owned(),
        ),
    ] {
        let output = verify(&[], &input);
        assert_eq!((code(&output), stdout(&output)), (2, ""), "{input}");
        assert!(
            stderr(&output).starts_with(&format!("sealog-verify: standard input: {message}")),
            "{input}: {output:?}"
        );
    }
    let not_utf8 = [b"{\"action\":\"\xff\"}".as_slice(), b"\n"].concat();
    is_unreadable(
        &verify(&[], not_utf8),
        "standard input: at byte 14: the object that ends here is not UTF-8",
    );
}

#[test]
fn a_damaged_gzip_file_exits_with_2() {
    let packed = gzip(&Chain::of(200).ndjson());
    let cut = verify(&[], &packed[..packed.len() / 2]);
    assert_eq!((code(&cut), stdout(&cut)), (2, ""));
    let mut changed = packed.clone();
    let checksum = changed.len() - 5;
    changed[checksum] ^= 1;
    let changed = verify(&[], changed);
    assert_eq!((code(&changed), stdout(&changed)), (2, ""));
}

#[test]
fn an_object_larger_than_any_event_is_refused_before_it_fills_the_memory() {
    let more = 17 << 20;
    let output = verify(&[], format!("{{\"action\":\"{}\"}}", "x".repeat(more)));
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("this is more text than an event of Sealog can have"), "{output:?}");
    // White space does not count: indenting a deep value can take more than that.
    let indented = Chain::of(1).texts[0].replace("[1,", &format!("[{}1,", " ".repeat(more)));
    is_valid(&verify(&[], indented), 1);
}

#[test]
fn a_break_counts_more_than_what_is_unreadable_behind_it() {
    let chain = Chain::of(3);
    let output = verify(&[], [&chain.texts[0], &chain.texts[2], "{"].join("\n"));
    assert_eq!(code(&output), 10);
    let output = verify(&[], [&chain.texts[0], &chain.texts[1], "{"].join("\n"));
    assert_eq!(code(&output), 2);
}
