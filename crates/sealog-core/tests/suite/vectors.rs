//! The test vectors are what is checked in, and every implementation agrees with them.

#[allow(dead_code)]
#[path = "../../examples/vectors.rs"]
mod written;

use std::process::Command;

use sealog_core::audit::{self, NotedHead};
use sealog_core::json;
use sha2::{Digest, Sha256};

#[test]
fn the_files_are_what_the_example_writes() {
    for (name, text) in written::files() {
        let path = written::directory().join(name);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is out of date; `cargo run -p sealog-core --example vectors` writes it",
            path.display()
        );
    }
}

#[test]
fn no_name_stands_twice() {
    let metadata = written::metadata_cases().into_iter().map(|case| case.name);
    let mut names: Vec<_> =
        metadata.chain(written::chain_cases().into_iter().map(|case| case.name)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn canonical_text_is_what_the_vectors_say() {
    for case in written::metadata_cases() {
        let input = case.input.unwrap_or_else(|| {
            let parts = case.input_parts.unwrap_or_default();
            parts.iter().map(|(text, times)| text.repeat(*times)).collect()
        });
        let canonical = json::canonical(&input).ok();
        match (case.canonical, case.canonical_sha256) {
            (Some(expected), None) => assert_eq!(canonical, expected, "{}", case.name),
            (None, Some(expected)) => {
                let digest = Sha256::digest(canonical.expect(case.name));
                let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(digest, expected, "{}", case.name);
            }
            _ => panic!("{} must have one of canonical and canonical_sha256", case.name),
        }
    }
}

#[test]
fn chains_are_judged_as_the_vectors_say() {
    for case in written::chain_cases() {
        let entries = case.events.iter().map(|text| audit::parse_entry(text).expect(case.name));
        let noted = case.expect.iter().map(|head| NotedHead::parse(head).expect(case.name)).collect();
        let outcome = audit::audit(entries, noted);
        let broken = outcome.broken.as_ref();
        let expected = &case.result;
        assert_eq!(
            (
                broken.is_none(),
                outcome.checked,
                outcome.first_seq,
                outcome.last_seq,
                broken.map(|fault| fault.at),
                broken.map(|fault| fault.hash.map(|hash| hash.to_string())),
                broken.map(|fault| fault.reason.as_str()),
            ),
            (
                expected.valid,
                expected.checked as u64,
                expected.first_seq,
                expected.last_seq,
                expected.broken_at,
                expected.broken_hash.clone(),
                expected.reason,
            ),
            "{}: {outcome:?}",
            case.name
        );
    }
}

#[test]
fn the_python_verifier_agrees_with_every_case() {
    agrees("python3", "sealog_verify.py");
}

#[test]
fn the_node_verifier_agrees_with_every_case() {
    agrees("node", "sealog_verify.mjs");
}

#[track_caller]
fn agrees(interpreter: &str, tool: &str) {
    let root = written::directory().join("..");
    let output = Command::new(interpreter)
        .arg(root.join("tools").join(tool))
        .arg("--vectors")
        .arg(written::directory())
        .output()
        .unwrap_or_else(|error| panic!("{interpreter} does not start: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let count = written::metadata_cases().len() + written::chain_cases().len();
    assert!(
        output.status.success() && stdout.lines().last() == Some(&format!("{count} passed, 0 failed")),
        "{count} cases, but {tool} says:\n{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
