//! Processes that tests start and kill. They are examples, built as the test was and next to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The program of an example.
///
/// `cargo test` builds the examples of a package, but `cargo test --test NAME` does not, and an old one would
/// prove nothing. So each test program asks cargo once, which costs next to nothing when there is nothing to
/// do.
pub fn example(name: &str) -> PathBuf {
    static KNOWN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(name.to_owned()).or_insert_with(|| build(name)).clone()
}

fn build(name: &str) -> PathBuf {
    let (target, profile) = built();
    let mut build = cargo();
    // With the features that the whole workspace gives its dependencies, so that none is built again.
    build
        .args(["build", "--quiet", "--locked", "--workspace", "--example", name, "--target-dir"])
        .arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status();
    let path = profile.join("examples").join(name);
    assert!(
        built.is_ok_and(|status| status.success()) && path.exists(),
        "{} was not built; `cargo build --workspace --example {name}` says why",
        path.display()
    );
    path
}

/// Cargo as somebody calls it who is not run by it. A test has the variables of its package, and build
/// scripts that look at these (as that of `ring` does) would run again, with everything that depends on them,
/// at each change between a call from a test and one from outside.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|of_package| name.starts_with(of_package))
        {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    cargo
}

/// A program of the workspace. It is of another package: a run of this test alone may not have built it.
pub fn program(name: &str) -> PathBuf {
    let (target, profile) = built();
    let path = profile.join(name);
    if !path.exists() {
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--workspace", "--bin", name, "--target-dir"]);
        assert!(build.arg(target).status().is_ok_and(|status| status.success()), "{name} was not built");
    }
    path
}

/// Where this test was built: the target directory, and that of the profile in it.
pub fn built() -> (PathBuf, PathBuf) {
    let test = std::env::current_exe().expect("a process knows its program");
    let [_, _, profile, target] = *test.ancestors().take(4).collect::<Vec<_>>() else {
        panic!("a test is in TARGET/PROFILE/deps, and not {}", test.display())
    };
    (target.to_owned(), profile.to_owned())
}
