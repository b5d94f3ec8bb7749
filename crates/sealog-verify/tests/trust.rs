//! The cases of `vectors/trust/verify.json` through the three programs, as an auditor runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("vectors/trust/verify.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn run(mut program: Command, case: &Value) -> Output {
    let directory = TempDir::new().unwrap();
    for (name, text) in case["files"].as_object().unwrap() {
        std::fs::write(directory.path().join(name), text.as_str().unwrap()).unwrap();
    }
    let arguments = case["arguments"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    program.args(arguments).current_dir(directory.path()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn agrees(output: &Output, case: &Value, who: &str) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let (wanted, code) = (case["text"].as_str().unwrap(), i64::from(output.status.code().unwrap_or(-1)));
    assert_eq!(Some(code), case["exit"].as_i64(), "{who}: {}: {stdout}{stderr}", case["name"]);
    if code == 2 {
        assert_eq!((&*stdout, &*stderr), ("", &*format!("{who}{wanted}\n")), "{}", case["name"]);
    } else {
        assert_eq!((&*stdout, &*stderr), (wanted, ""), "{who}: {}", case["name"]);
    }
}

#[test]
fn the_program_says_what_every_case_says() {
    for case in cases() {
        let program = Command::new(env!("CARGO_BIN_EXE_sealog-verify"));
        agrees(&run(program, &case), &case, "sealog-verify: ");
    }
}

/// Their own tests run every case without a process for each; here one of each exit code and form is enough.
#[test]
fn python_and_node_say_the_same_as_programs() {
    let cases = cases();
    let names =
        ["the same in JSON", "the tail was cut off, and the head is known", "malformed proof: nothing"];
    for case in names.map(|name| cases.iter().find(|case| case["name"] == name).unwrap()) {
        let mut python = Command::new("python3");
        python.arg(root().join("tools/sealog_verify.py").canonicalize().unwrap());
        agrees(&run(python, case), case, "sealog_verify: ");
        let mut node = Command::new("node");
        node.arg(root().join("tools/sealog_verify.mjs").canonicalize().unwrap());
        agrees(&run(node, case), case, "");
    }
}

#[test]
fn a_file_larger_than_any_proof_is_refused_before_it_fills_the_memory() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    for (flag, wanted) in [
        ("--proof", "`proof` must have at most 1179648 bytes"),
        ("--checkpoint", "`note` must have at most 1048576 bytes"),
        ("--policy", "`policy` must have at most 262144 bytes"),
        ("--consistency", "`consistency` must have at most 65536 bytes"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_sealog-verify"));
        let output = program.arg(flag).arg(&path).arg("/dev/null").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.ends_with(&format!("{wanted}\n")), "{said}");
    }
}

#[test]
fn a_key_and_a_policy_are_not_given_together_and_a_missing_file_exits_with_2() {
    for arguments in [&["--key", "x", "--policy", "y", "z"][..], &["--proof", "not-there", "z"]] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_sealog-verify"));
        assert_eq!(program.args(arguments).output().unwrap().status.code(), Some(2));
    }
}
