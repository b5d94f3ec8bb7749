//! Processes that tests start and kill. They are examples, built as the test was and next to it.

use std::path::PathBuf;
use std::process::Command;

/// The program of an example.
///
/// `cargo test` builds the examples of a package, but `cargo test --test NAME` does not, and an old one would prove nothing. So cargo is asked each time, which
/// costs next to nothing when there is nothing to do.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let [_, _, profile_dir, target_dir] = *test.ancestors().take(4).collect::<Vec<_>>() else {
        panic!("a test is in TARGET/PROFILE/deps, and not {}", test.display())
    };
    let mut build = Command::new(env!("CARGO"));
    // With the features that the whole workspace gives its dependencies, so that none is built again.
    build
        .args(["build", "--quiet", "--locked", "--workspace", "--example", name, "--target-dir"])
        .arg(target_dir);
    if profile_dir.ends_with("release") {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    let path = profile_dir.join("examples").join(name);
    assert!(
        built.is_ok_and(|status| status.success()) && path.exists(),
        "{} was not built; `cargo build --workspace --example {name}` says why",
        path.display()
    );
    path
}
