//! What may be compiled in: licences, sources, banned crates, dependencies that nothing uses.
//!
//! `cargo deny` and `cargo machete` know more, and a fresh machine builds them for twelve minutes. This reads
//! what `cargo metadata` says; `just advisories` runs `cargo deny` where it is installed.

use std::path::Path;

use serde_json::{Value, json};

use super::{dependencies, files_under, metadata_of, name, packages, read, root};

/// Permissive licences only: Sealog is Apache-2.0 and ships as one program.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "0BSD",
];

/// SQLite and ring bring their own C; nothing may pull in OpenSSL.
const BANNED: [&str; 2] = ["openssl-sys", "native-tls"];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn dependencies_have_permissive_licences_and_come_from_the_registry() {
    // Nothing of `fuzz/` is shipped.
    let metadata = metadata_of("Cargo.toml", &["--locked"]);
    assert!(packages(&metadata).len() > 100, "the whole graph is listed");
    assert_eq!(unwelcome(&metadata), Vec::<String>::new());
}

#[test]
fn licences_sources_and_crates_that_are_not_welcome_are_noticed() {
    let package = |name: &str, license: Value, source: Value| json!({"packages": [{"name": name, "license": license, "source": source}]});
    let of = |license: &str| unwelcome(&package("x", json!(license), json!(REGISTRY)));
    for fine in
        ["MIT", "MIT/GPL-3.0", "GPL-2.0 OR (MIT AND ISC)", "(Apache-2.0 WITH LLVM-exception) OR GPL-3.0"]
    {
        assert_eq!(of(fine), Vec::<String>::new(), "{fine}");
    }
    for wrong in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "MIT WITH something", ""] {
        assert_eq!(of(wrong), [format!("x has the licence {wrong:?}")]);
    }
    assert_eq!(unwelcome(&package("x", Value::Null, json!(REGISTRY))), ["x has the licence \"\""]);
    let elsewhere = json!("git+https://example.org/x");
    assert_eq!(unwelcome(&package("x", json!("MIT"), elsewhere)), ["x comes from git+https://example.org/x"]);
    assert_eq!(unwelcome(&package("openssl-sys", json!("MIT"), json!(REGISTRY))), ["openssl-sys is banned"]);
    assert_eq!(unwelcome(&package("ours", json!("none of these"), Value::Null)), Vec::<String>::new());
}

#[test]
fn every_dependency_is_used() {
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        for package in packages(&metadata_of(manifest, &["--no-deps"])) {
            let folder = super::manifest_path(package);
            let folder = folder.parent().expect("a manifest has a folder");
            assert_eq!(unused(package, &sources(folder)), Vec::<String>::new(), "{}", name(package));
        }
    }
}

#[test]
fn a_dependency_that_is_not_used_is_noticed() {
    let package =
        json!({"dependencies": [{"name": "http-body-util", "rename": null}, {"name": "a", "rename": "b"}]});
    assert_eq!(unused(&package, "use http_body_util::Full; b::f()"), Vec::<String>::new());
    assert_eq!(unused(&package, "use http_body_utils::Full; bb::f()"), ["http-body-util", "a"]);
}

/// Packages of other people that may not be compiled in, and why. A package without a source is ours.
fn unwelcome(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages(metadata) {
        let Some(source) = package["source"].as_str() else { continue };
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_permitted(&licence.replace('/', " OR ")) {
            wrong.push(format!("{} has the licence {licence:?}", name(package)));
        }
        if source != REGISTRY {
            wrong.push(format!("{} comes from {source}", name(package)));
        }
        if BANNED.contains(&&*name(package)) {
            wrong.push(format!("{} is banned", name(package)));
        }
    }
    wrong
}

/// Whether an SPDX expression can be met with [`LICENCES`] alone. OR binds less than AND, AND less than
/// parentheses.
fn is_permitted(expression: &str) -> bool {
    let operands = |operator: &str| {
        let (mut depth, mut parts) = (0, vec![Vec::new()]);
        for word in expression.replace('(', "( ").replace(')', " )").split_whitespace() {
            depth += i32::from(word == "(") - i32::from(word == ")");
            if depth == 0 && word == operator {
                parts.push(Vec::new());
            } else {
                parts.last_mut().expect("there is one at least").push(word.to_owned());
            }
        }
        parts.iter().map(|words| words.join(" ")).collect::<Vec<_>>()
    };
    let (any, all) = (operands("OR"), operands("AND"));
    match expression.trim().strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        _ if any.len() > 1 => any.iter().any(|part| is_permitted(part)),
        _ if all.len() > 1 => all.iter().all(|part| is_permitted(part)),
        Some(inner) => is_permitted(inner),
        None => LICENCES.contains(&expression.trim()),
    }
}

/// Dependencies of a package whose name is nowhere in its sources.
fn unused(package: &Value, sources: &str) -> Vec<String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let is_named = |word: &str| {
        sources.match_indices(word).any(|(at, _)| {
            !sources[..at].chars().next_back().is_some_and(is_part)
                && !sources[at + word.len()..].chars().next().is_some_and(is_part)
        })
    };
    dependencies(package)
        .iter()
        .filter(|dependency| {
            let known_as = dependency["rename"].as_str().map_or_else(|| name(dependency), str::to_owned);
            !is_named(&known_as.replace('-', "_"))
        })
        .map(name)
        .collect()
}

/// All Rust of a package, for `fuzz/` also the auditor's reader, which it compiles from its own place.
fn sources(folder: &Path) -> String {
    let mut files = files_under(folder);
    if folder == root().join("fuzz") {
        files.extend(files_under(&root().join("crates/sealog-verify/src")));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.iter().map(|path| read(path)).collect()
}
