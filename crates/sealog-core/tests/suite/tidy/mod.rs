//! House rules that the compiler does not check.
//!
//! Each rule is a function that lists what breaks it. One test holds it against the workspace as it is,
//! another against one that is broken on purpose: a rule that cannot fail is no rule.

mod ceilings;
mod cycles;
mod outbound;
mod policy;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Which crates of the workspace each crate may use, for its code, its tests and its build. `bench` may use
/// any, and none may use it.
///
/// All may use [`TESTING`] for their tests, and none for anything else.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("sealog-core", &[]),
    ("sealog-trust", &["sealog-core"]),
    ("sealog-store", &["sealog-core"]),
    ("sealog-control", &["sealog-core", "sealog-store"]),
    ("sealog-tlog", &["sealog-core", "sealog-control", "sealog-store", "sealog-trust"]),
    ("sealog-formats", &["sealog-core"]),
    ("sealog-docs", &["sealog-core", "sealog-formats"]),
    ("sealog-service", &["sealog-core", "sealog-formats", "sealog-store", "sealog-control"]),
    ("sealog-cases", &["sealog-core", "sealog-store", "sealog-control", "sealog-service"]),
    (
        "sealog-engine",
        &[
            "sealog-core",
            "sealog-store",
            "sealog-control",
            "sealog-service",
            "sealog-cases",
            "sealog-tlog",
            "sealog-trust",
        ],
    ),
    (
        "sealog-server",
        &[
            "sealog-core",
            "sealog-docs",
            "sealog-engine",
            "sealog-formats",
            "sealog-store",
            "sealog-control",
            "sealog-service",
            "sealog-tlog",
            "sealog-trust",
        ],
    ),
    (
        "sealog-dashboard",
        &[
            "sealog-core",
            "sealog-cases",
            "sealog-engine",
            "sealog-store",
            "sealog-control",
            "sealog-service",
            "sealog-tlog",
        ],
    ),
    ("sealog-client", &["sealog-core", "sealog-trust"]),
    ("sealog-cli", &["sealog-client", "sealog-core", "sealog-formats"]),
    (
        "sealog-backup",
        &[
            "sealog-cli",
            "sealog-client",
            "sealog-core",
            "sealog-engine",
            "sealog-store",
            "sealog-control",
            "sealog-service",
        ],
    ),
    (
        "sealog",
        &[
            "sealog-backup",
            "sealog-cases",
            "sealog-cli",
            "sealog-client",
            "sealog-core",
            "sealog-engine",
            "sealog-docs",
            "sealog-formats",
            "sealog-store",
            "sealog-control",
            "sealog-service",
            "sealog-server",
            "sealog-dashboard",
            "sealog-trust",
        ],
    ),
    ("sealog-verify", &["sealog-core", "sealog-trust"]),
    (TESTING, &["sealog-core", "sealog-store"]),
];
const TESTING: &str = "sealog-testing";

/// ADR 2.
const CORE_DEPENDENCIES: [&str; 3] = ["serde", "serde_json", "sha2"];

/// Modules that may still use each other in a circle: there are none left. No module may join the list, and
/// one that has left its circle is taken off it.
const IN_A_CIRCLE: [(&str, &[&str]); 0] = [];

const COMMENT_COLUMNS: usize = 110;

const BENCH: &str = "sealog-bench";
const STORE: &str = "sealog-store";
const MUTANTS: &str = "mutants";

/// Where text is looked at. What tools leave behind in these places is not ours.
const FOLDERS: [&str; 4] = ["crates", "tools", "docs", "scripts"];
const LEFT_BEHIND: [&str; 3] = ["target", "node_modules", "__pycache__"];

#[test]
fn crates_use_each_other_in_one_direction() {
    assert_eq!(wrong_directions(&metadata()), Vec::<String>::new());
}

#[test]
fn another_direction_is_noticed() {
    let breaks = |user: &str, used: &str| {
        let mut metadata = metadata();
        add_package(&mut metadata, "sealog-server", "crates/sealog-server");
        add_dependency(&mut metadata, user, json!({"name": used, "kind": null, "features": []}));
        wrong_directions(&metadata)
    };
    assert_eq!(breaks("sealog-core", "sealog-store"), ["sealog-core must not use sealog-store"]);
    assert_eq!(breaks("sealog-store", "sealog-control"), ["sealog-store must not use sealog-control"]);
    assert_eq!(breaks("sealog-control", "sealog-server"), ["sealog-control must not use sealog-server"]);
    assert_eq!(breaks("sealog-service", "sealog-server"), ["sealog-service must not use sealog-server"]);
    assert_eq!(breaks("sealog-control", "sealog-service"), ["sealog-control must not use sealog-service"]);
    assert_eq!(breaks("sealog-store", "sealog-server"), ["sealog-store must not use sealog-server"]);
    assert_eq!(breaks("sealog-verify", "sealog-store"), ["sealog-verify must not use sealog-store"]);
    assert_eq!(breaks("sealog-server", "sealog-store"), Vec::<String>::new());
}

#[test]
fn a_use_of_the_benchmarks_and_a_crate_without_a_place_are_noticed() {
    let mut broken = metadata();
    add_package(&mut broken, "some-bench", "bench");
    add_dependency(&mut broken, "some-bench", json!({"name": STORE, "kind": null, "features": []}));
    assert_eq!(wrong_directions(&broken), Vec::<String>::new());
    add_dependency(&mut broken, STORE, json!({"name": "some-bench", "kind": "dev", "features": []}));
    assert_eq!(wrong_directions(&broken), ["sealog-store must not use some-bench"]);

    let mut broken = metadata();
    add_package(&mut broken, "sealog-extra", "crates/sealog-extra");
    assert_eq!(wrong_directions(&broken), ["sealog-extra has no place in MAY_USE"]);
}

#[test]
fn what_tests_share_in_a_program_is_noticed() {
    for user in ["sealog-core", STORE, "sealog", TESTING] {
        let breaks = |kind: Value| {
            let mut broken = metadata();
            add_dependency(&mut broken, user, json!({"name": TESTING, "kind": kind, "features": []}));
            wrong_directions(&broken)
        };
        assert_eq!(breaks(json!("dev")), Vec::<String>::new());
        for kind in [Value::Null, json!("build")] {
            assert_eq!(breaks(kind), [format!("{user} must not use {TESTING}")]);
        }
    }
}

#[test]
fn the_core_depends_on_three_crates() {
    assert_eq!(core_dependencies(&metadata()), CORE_DEPENDENCIES);
}

#[test]
fn a_fourth_dependency_of_the_core_is_noticed_and_one_of_its_tests_is_not() {
    let mut broken = metadata();
    add_dependency(&mut broken, "sealog-core", json!({"name": "rand", "kind": "dev", "features": []}));
    assert_eq!(core_dependencies(&broken), CORE_DEPENDENCIES);
    for kind in [Value::Null, json!("build")] {
        let mut broken = broken.clone();
        add_dependency(&mut broken, "sealog-core", json!({"name": "rand", "kind": kind, "features": []}));
        assert!(core_dependencies(&broken).contains(&"rand".to_owned()));
    }
}

#[test]
fn unsafe_code_is_forbidden_everywhere() {
    let manifests: Vec<(String, String)> =
        packages(&metadata()).iter().map(|package| (name(package), read(&manifest_path(package)))).collect();
    assert_eq!(without_lints(&read(&root().join("Cargo.toml")), &manifests), Vec::<String>::new());
}

#[test]
fn a_crate_that_does_not_inherit_the_lints_is_noticed() {
    let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n\n[workspace.lints.clippy]\n";
    let good = ("good".to_owned(), "[lints]\nworkspace = true # all\n".to_owned());
    assert_eq!(without_lints(root, std::slice::from_ref(&good)), Vec::<String>::new());
    for manifest in [
        "[package]\nname = \"x\"\n",
        "[lints]\nworkspace = false\n",
        "[lints]\n# workspace = true\n",
        "[lints.rust]\nunsafe_code = \"allow\"\n",
        "[lints]\n[package]\nworkspace = true\n",
    ] {
        let bad = ("bad".to_owned(), manifest.to_owned());
        assert_eq!(
            without_lints(root, &[good.clone(), bad]),
            ["bad does not inherit the workspace's lints"],
            "{manifest}"
        );
    }
    for root in
        ["", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n", "[lints]\nunsafe_code = \"forbid\"\n"]
    {
        assert_eq!(without_lints(root, &[]), ["the workspace does not forbid unsafe code"], "{root}");
    }
}

#[test]
fn the_deliberate_bugs_are_in_no_build() {
    assert_eq!(mutant_enablers(&metadata()), Vec::<String>::new());
}

#[test]
fn a_build_with_the_deliberate_bugs_is_noticed() {
    let mut broken = metadata();
    package_mut(&mut broken, STORE)["features"]["default"] = json!([]);
    assert_eq!(mutant_enablers(&broken), ["sealog-store has default features"]);

    for user in ["sealog-verify", STORE] {
        let mut broken = metadata();
        add_dependency(&mut broken, user, json!({"name": STORE, "kind": "dev", "features": [MUTANTS]}));
        assert_eq!(mutant_enablers(&broken), [format!("{user} enables {MUTANTS} in a dependency")]);
    }

    let mut broken = metadata();
    package_mut(&mut broken, "sealog-verify")["features"] =
        json!({"default": ["fast"], "fast": [format!("{STORE}?/{MUTANTS}")]});
    assert_eq!(mutant_enablers(&broken), [format!("sealog-verify enables {MUTANTS} by default")]);

    // A feature that has to be asked for is what the feature itself is.
    let mut asked_for = metadata();
    package_mut(&mut asked_for, "sealog-verify")["features"] =
        json!({"broken": [format!("{STORE}/{MUTANTS}")]});
    assert_eq!(mutant_enablers(&asked_for), Vec::<String>::new());
}

#[test]
fn modules_do_not_use_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    let names: Vec<String> = packages(&metadata()).iter().map(name).collect();
    let found = |wanted: &str| names.iter().any(|name| name == wanted);
    assert!(found("sealog-core") && found(BENCH), "the crates must be found");
    for (known, _) in IN_A_CIRCLE {
        assert!(found(known), "{known} is no crate; take it off the list");
    }
    for name in &names {
        let known = IN_A_CIRCLE.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, known)| known);
        let source = match name.as_str() {
            BENCH => root().join("bench/src"),
            name => root().join("crates").join(name).join("src"),
        };
        let files: Vec<(String, String)> = files_under(&source)
            .iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .map(|path| {
                let below = path.strip_prefix(&source).expect("it was found there");
                (below.display().to_string(), read(path))
            })
            .collect();
        wrong.extend(cycles::wrong(name, &cycles::graph(&files), known));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_files_that_the_glossary_names_are_there() {
    let root = root();
    let missing = missing_files(&read(&root.join("docs/glossary.md")), |path| root.join(path).exists());
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_file_that_the_glossary_names_and_that_is_not_there_is_noticed() {
    let row = "| **Word** | says `no.rs` | store `a.rs`, `b/`, embedded `c/d.rs` (`Type`), `x` | |";
    let of = |there: &[&str]| missing_files(row, |path| there.contains(&path));
    let all = [
        "crates/sealog-store/src/a.rs",
        "crates/sealog-store/src/b/",
        "crates/sealog-store/src/embedded/c/d.rs",
    ];
    assert_eq!(of(&all), Vec::<String>::new());
    assert_eq!(of(&[]), all);
    assert_eq!(missing_files("| w | m | `a.rs` | |", |_| true), ["a.rs: of which crate?"]);
}

/// "Work of one request" says of each bound where it stands and which test shows it.
#[test]
fn the_constants_and_tests_that_the_architecture_names_are_there() {
    let crates = files_under(&root().join("crates"));
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let sources: Vec<_> =
        crates.into_iter().filter(is_rust).map(|path| (path.clone(), read(&path))).collect();
    let page = read(&root().join("docs/architecture.md"));
    assert_eq!(missing_names(&page, &sources), Vec::<String>::new());
}

#[test]
fn a_constant_or_a_test_that_is_named_and_not_there_is_noticed() {
    let sources = [("crates/a/src/b/c.rs".into(), "const LEAST: u8 = 1; fn one_is_less() {}".into())];
    let missing = |page: &str| missing_names(page, &sources);
    assert_eq!(
        missing("| 1, `c.rs: LEAST` | a `b/c.rs: one_is_…`, `c.rs: one_is_less` |"),
        Vec::<String>::new()
    );
    assert_eq!(missing("`c.rs: LEAST, MOST`, `d.rs: LEAST`"), ["c.rs: MOST", "d.rs: LEAST"]);
}

#[test]
fn no_text_names_a_directory_of_one_machine_or_leaves_work_open() {
    let files: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| files_under(&root().join(folder))).collect();
    assert!(files.iter().any(|path| path.ends_with("tests/suite/tidy/mod.rs")), "the walk must get here");
    let found: Vec<String> = files
        .iter()
        .flat_map(|path| {
            let shown = path.strip_prefix(root()).unwrap_or(path).display().to_string();
            untidy_lines(&read(path)).into_iter().map(move |line| format!("{shown}:{line}"))
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn comments_have_at_most_110_columns() {
    let folders = ["crates", "bench", "fuzz"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| files_under(folder));
    let sources = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let wide: Vec<String> = sources
        .flat_map(|path| {
            wide_comments(&read(&path)).into_iter().map(move |line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert_eq!(wide, Vec::<String>::new());
}

#[test]
fn a_comment_of_111_columns_is_noticed_and_a_wide_text_is_not() {
    let wide = |prefix: &str| format!("{prefix}{}", "x".repeat(111 - prefix.len()));
    for prefix in ["// ", "//! ", "    /// "] {
        assert_eq!(wide_comments(&format!("fn f() {{}}\n{}\n", wide(prefix))), [2_usize]);
        assert!(wide_comments(&wide(prefix)[..110]).is_empty());
    }
    assert!(wide_comments(&wide("let text = \"// ")).is_empty());
}

#[test]
fn machine_directories_and_open_work_are_noticed() {
    for directory in machine_directories() {
        for line in [
            format!("cd {directory}x"),
            format!("{directory}x"),
            format!("\"{directory}x\""),
            format!("file://{directory}x"),
        ] {
            assert_eq!(untidy_lines(&format!("fine\n{line}\n")), [format!("2: names {directory}")], "{line}");
        }
        for line in [
            format!("https://example.org{directory}x"),
            format!("src{directory}x"),
            format!("..{directory}x"),
        ] {
            assert_eq!(untidy_lines(&line), Vec::<String>::new(), "{line}");
        }
    }
    let word = open_work();
    for line in [word.to_owned(), format!("// {word}: later"), format!("({word})")] {
        assert_eq!(untidy_lines(&line), [format!("1: says {word}")], "{line}");
    }
    for line in [format!("{word}S"), format!("MY_{word}"), word.to_lowercase()] {
        assert_eq!(untidy_lines(&line), Vec::<String>::new(), "{line}");
    }
}

// ---- The rules ------------------------------------------------------------------------------------------

fn wrong_directions(metadata: &Value) -> Vec<String> {
    let packages = packages(metadata);
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let user = name(package);
        if manifest_path(package).starts_with(root().join("bench")) {
            continue;
        }
        let Some((_, may_use)) = MAY_USE.iter().find(|(known, _)| *known == user) else {
            wrong.push(format!("{user} has no place in MAY_USE"));
            continue;
        };
        for dependency in dependencies(package) {
            let used = name(dependency);
            let for_tests = used == TESTING && dependency["kind"].as_str() == Some("dev");
            if ours.contains(&used) && !may_use.contains(&used.as_str()) && !for_tests {
                wrong.push(format!("{user} must not use {used}"));
            }
        }
    }
    wrong
}

/// What the core is built from; its tests may use more.
fn core_dependencies(metadata: &Value) -> Vec<String> {
    let core =
        packages(metadata).iter().find(|package| name(package) == "sealog-core").expect("it is this crate");
    let mut names: Vec<String> = dependencies(core)
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .map(name)
        .collect();
    names.sort();
    names
}

/// `forbid` cannot be taken back by an attribute, so inheriting it is enough.
fn without_lints(workspace: &str, manifests: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    if !section(workspace, "[workspace.lints.rust]").any(|line| line == "unsafe_code = \"forbid\"") {
        wrong.push("the workspace does not forbid unsafe code".to_owned());
    }
    for (name, manifest) in manifests {
        if !section(manifest, "[lints]").any(|line| line == "workspace = true") {
            wrong.push(format!("{name} does not inherit the workspace's lints"));
        }
    }
    wrong
}

/// The lines of a section of a manifest, without comments. No manifest here has a `#` in a value of the
/// sections that are asked for.
fn section<'a>(manifest: &'a str, header: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.skip_while(move |line| *line != header).skip(1).take_while(|line| !line.starts_with('['))
}

fn mutant_enablers(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages(metadata) {
        let user = name(package);
        if user == STORE && package["features"].get("default").is_some() {
            wrong.push(format!("{STORE} has default features"));
        }
        let enables = |dependency: &Value| {
            name(dependency) == STORE
                && texts(&dependency["features"]).iter().any(|feature| feature == MUTANTS)
        };
        if dependencies(package).iter().any(enables) {
            wrong.push(format!("{user} enables {MUTANTS} in a dependency"));
        }
        if default_features(package).iter().any(|feature| feature.rsplit('/').next() == Some(MUTANTS)) {
            wrong.push(format!("{user} enables {MUTANTS} by default"));
        }
    }
    wrong
}

/// Everything that a package's default features lead to.
fn default_features(package: &Value) -> Vec<String> {
    let mut reached = vec!["default".to_owned()];
    let mut at = 0;
    while let Some(feature) = reached.get(at) {
        let next = texts(&package["features"][feature]);
        reached.extend(next.into_iter().filter(|feature| !reached.contains(feature)).collect::<Vec<_>>());
        at += 1;
    }
    reached
}

/// Line number and problem of each line that would not do on another machine or is a promise instead of a
/// text.
fn untidy_lines(text: &str) -> Vec<String> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for directory in machine_directories() {
            // Behind a name or a dot it is part of a longer path, not the beginning of one.
            let begins = |at: usize| {
                line[..at]
                    .chars()
                    .next_back()
                    .is_none_or(|before| !is_word(before) && !"-.~})".contains(before))
            };
            if line.match_indices(&directory).any(|(at, _)| begins(at)) {
                found.push(format!("{number}: names {directory}"));
            }
        }
        let word = open_work();
        let alone = |at: usize| {
            !line[..at].chars().next_back().is_some_and(is_word)
                && !line[at + word.len()..].chars().next().is_some_and(is_word)
        };
        if line.match_indices(word).any(|(at, _)| alone(at)) {
            found.push(format!("{number}: says {word}"));
        }
    }
    found
}

/// Numbers of lines that are a comment and too wide to be read beside another file.
fn wide_comments(text: &str) -> Vec<usize> {
    let is_wide = |line: &str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS;
    (1..).zip(text.lines()).filter(|(_, line)| is_wide(line)).map(|(number, _)| number).collect()
}

/// Of a table with the columns word, meaning and files: `store a.rs, b.rs` is of the crate `sealog-store`.
fn missing_files(glossary: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut missing = Vec::new();
    for row in glossary.lines().filter(|line| line.starts_with("| ")) {
        let Some(files) = row.split('|').nth(3) else { continue };
        let mut folder = None;
        for (at, part) in files.split('`').enumerate() {
            if at % 2 == 0 {
                folder = match part.split_whitespace().next_back() {
                    Some("embedded") => Some("crates/sealog-store/src/embedded".to_owned()),
                    Some("postgres") => Some("crates/sealog-store/src/postgres".to_owned()),
                    Some("sealog") => Some("crates/sealog/src".to_owned()),
                    Some(name) if name.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                        Some(format!("crates/sealog-{name}/src"))
                    }
                    _ => folder,
                };
            } else if part.ends_with(".rs") || part.ends_with('/') {
                match &folder {
                    None => missing.push(format!("{part}: of which crate?")),
                    Some(folder) => {
                        missing.extend(Some(format!("{folder}/{part}")).filter(|path| !exists(path)))
                    }
                }
            }
        }
    }
    missing
}

/// Of `FILE.rs: NAME, NAME` in a page, those that are in no file of that name. `…` ends a name that goes on.
fn missing_names(page: &str, sources: &[(PathBuf, String)]) -> Vec<String> {
    let places = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let named = places.filter_map(|text| text.split_once(".rs: "));
    let each = named.flat_map(|(file, names)| names.split(", ").map(move |name| (file, name)));
    let is_missing = |(file, name): &(&str, &str)| {
        let file = format!("{}.rs", file.split(' ').next_back().unwrap_or_default());
        let name = name.trim_end_matches("_…").rsplit("::").next().unwrap_or_default();
        !sources.iter().any(|(path, text)| path.ends_with(&file) && text.contains(name))
    };
    each.filter(is_missing).map(|(file, name)| format!("{file}.rs: {name}")).collect()
}

/// Put together here, so that this file does not break its own rule.
fn machine_directories() -> [String; 4] {
    ["home", "root", "Users", "work"].map(|name| format!("/{name}/"))
}

fn open_work() -> &'static str {
    concat!("TO", "DO")
}

// ---- The workspace as it is -----------------------------------------------------------------------------

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate stands in the workspace")
}

fn metadata() -> Value {
    metadata_of("Cargo.toml", &["--no-deps"])
}

fn metadata_of(manifest: &str, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--manifest-path", manifest])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs, since it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().expect("cargo lists packages")
}

fn dependencies(package: &Value) -> &[Value] {
    package["dependencies"].as_array().expect("cargo lists dependencies")
}

fn name(value: &Value) -> String {
    value["name"].as_str().expect("packages and dependencies have names").to_owned()
}

fn manifest_path(package: &Value) -> PathBuf {
    package["manifest_path"].as_str().expect("a package has a manifest").into()
}

fn texts(array: &Value) -> Vec<String> {
    array.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("a folder of the workspace can be read").path();
            if !path.is_dir() {
                files.push(path);
            } else if !LEFT_BEHIND.iter().any(|name| path.ends_with(name)) {
                folders.push(path);
            }
        }
    }
    files.sort();
    files
}

// ---- A workspace that is broken on purpose --------------------------------------------------------------

fn package_mut<'a>(metadata: &'a mut Value, wanted: &str) -> &'a mut Value {
    let packages = metadata["packages"].as_array_mut().expect("cargo lists packages");
    packages
        .iter_mut()
        .find(|package| name(package) == wanted)
        .unwrap_or_else(|| panic!("no package {wanted}"))
}

fn add_dependency(metadata: &mut Value, user: &str, dependency: Value) {
    let dependencies = package_mut(metadata, user)["dependencies"].as_array_mut();
    dependencies.expect("cargo lists dependencies").push(dependency);
}

/// Does nothing where the package exists by now.
fn add_package(metadata: &mut Value, name_of_new: &str, folder: &str) {
    if packages(metadata).iter().any(|package| name(package) == name_of_new) {
        return;
    }
    let manifest = root().join(folder).join("Cargo.toml").display().to_string();
    let package = json!({"name": name_of_new, "manifest_path": manifest, "dependencies": [], "features": {}});
    metadata["packages"].as_array_mut().expect("cargo lists packages").push(package);
}
