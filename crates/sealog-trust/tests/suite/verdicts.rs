//! The verdict on events, proofs and checkpoints: every step is needed, and no changed bit passes.

use std::sync::LazyLock;

use sealog_trust::verdict::{STEPS, Step};
use serde_json::Value;

use crate::vectors::written::{self, verify};

/// Made once, and checked by their making: each comes to the reasons that it names.
static CASES: LazyLock<Vec<Value>> = LazyLock::new(verify::cases);

#[test]
fn the_file_is_what_the_example_writes() {
    for (name, text) in written::files(&[("verify", CASES.clone())]) {
        let stored = std::fs::read_to_string(written::root().join(&name)).unwrap_or_default();
        assert!(
            stored == text,
            "{name} is out of date; `cargo run -p sealog-trust --example trust_vectors` writes it"
        );
    }
}

#[test]
fn a_verdict_that_leaves_out_a_step_fails_a_case() {
    for skipped in &STEPS {
        let others: Vec<Step> = STEPS.into_iter().filter(|step| step.name != skipped.name).collect();
        assert_eq!(others.len(), STEPS.len() - 1);
        let caught = CASES.iter().find(|case| {
            let (exit, text) = verify::run(case, &others);
            case["exit"] != exit || case["text"] != text
        });
        assert!(caught.is_some(), "no case needs the step `{}`", skipped.name);
    }
}

#[test]
fn no_changed_bit_of_an_event_a_proof_or_a_checkpoint_passes() {
    let case = CASES.iter().find(|case| case["name"] == "both witnesses").unwrap();
    assert_eq!(verify::run(case, &STEPS).0, 0);
    let files = ["witnesses.tlog-proof", "events.ndjson"];
    for file in files {
        let text = case["files"][file].as_str().unwrap();
        // The proof is of the fourth event: behind it nothing is shown, and before it only hashed fields are.
        let from = if file == "events.ndjson" { text.match_indices('\n').nth(2).unwrap().0 + 1 } else { 0 };
        let to =
            if file == "events.ndjson" { text.match_indices('\n').nth(3).unwrap().0 } else { text.len() };
        for at in from..to {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] ^= 1 << (at % 7);
            // What is not UTF-8 is refused by each parser before anything else.
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            let mut changed_case = case.clone();
            changed_case["files"][file] = changed.into();
            let (exit, said) = verify::run(&changed_case, &STEPS);
            assert_ne!(exit, 0, "{file}: byte {at}: {said}");
        }
    }
}
