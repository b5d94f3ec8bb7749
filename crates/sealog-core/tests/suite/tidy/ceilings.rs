//! The house stays light: lines of each crate and crates that the program is built of have a ceiling, which
//! ADR 33 raises with its reason.

use std::collections::BTreeSet;
use std::process::Command;

use super::{cycles, files_under, metadata, name, packages, read, root};

/// Lines of code: no comments, no blank lines, no tests. Templates, styles and scripts are lines, too.
const LINES: [(&str, usize); 19] = [
    ("sealog", 7_500),
    ("sealog-backup", 7_200),
    ("sealog-bench", 7_300),
    ("sealog-cases", 5_700),
    ("sealog-cli", 6_300),
    ("sealog-client", 4_600),
    ("sealog-control", 9_500),
    ("sealog-core", 3_800),
    ("sealog-dashboard", 16_000),
    ("sealog-docs", 1_200),
    ("sealog-engine", 1_100),
    ("sealog-formats", 1_600),
    ("sealog-server", 7_800),
    ("sealog-service", 10_900),
    ("sealog-store", 20_400),
    ("sealog-testing", 2_600),
    ("sealog-tlog", 4_300),
    ("sealog-trust", 3_300),
    ("sealog-verify", 700),
];
const ENDS: [&str; 5] = ["rs", "html", "css", "js", "sql"];

/// Crates that `sealog` is compiled of, its own among them.
const CRATES: usize = 253;

#[test]
fn no_crate_has_more_lines_than_its_ceiling() {
    let counted: Vec<(String, usize)> =
        packages(&metadata()).iter().map(name).map(|name| (name.clone(), lines_of(&name))).collect();
    assert_eq!(above(&counted, &LINES), Vec::<String>::new());
}

#[test]
fn the_program_is_compiled_of_no_more_crates_than_its_ceiling() {
    let arguments = ["tree", "--locked", "-p", "sealog", "--edges", "normal,build", "--prefix", "none"];
    let tree = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    // The first two words are name and version; what follows says whether it stood there before.
    let crates: BTreeSet<Vec<&str>> = text.lines().map(|line| line.split(' ').take(2).collect()).collect();
    assert!(crates.len() > 100, "the tree must be read");
    assert!(crates.len() <= CRATES, "{} crates, {CRATES} allowed: ADR 33", crates.len());
}

#[test]
fn a_crate_above_its_ceiling_or_without_one_is_noticed() {
    let ceilings = [("a", 10), ("b", 10), ("gone", 1)];
    let counted = [("a".to_owned(), 10), ("b".to_owned(), 11), ("new".to_owned(), 3)];
    let wrong =
        ["b: 11 lines, 10 allowed: ADR 33", "new: 3 lines, and no ceiling", "gone: a ceiling, and no crate"];
    assert_eq!(above(&counted, &ceilings), wrong);
}

#[test]
fn only_code_counts_as_a_line() {
    let text = "//! What.\nuse a; // why\n\n/* long\nstory */\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
    assert_eq!(lines("rs", text), 2);
    assert_eq!(lines("html", "<p>\n\n</p>\n"), 2);
}

fn above(counted: &[(String, usize)], ceilings: &[(&str, usize)]) -> Vec<String> {
    let of_crates =
        counted.iter().filter_map(|(name, lines)| match ceilings.iter().find(|(of, _)| of == name) {
            Some((_, most)) if lines > most => Some(format!("{name}: {lines} lines, {most} allowed: ADR 33")),
            Some(_) => None,
            None => Some(format!("{name}: {lines} lines, and no ceiling")),
        });
    let gone = ceilings.iter().filter(|(of, _)| !counted.iter().any(|(name, _)| name == of));
    of_crates.chain(gone.map(|(of, _)| format!("{of}: a ceiling, and no crate"))).collect()
}

fn lines_of(name: &str) -> usize {
    let home = if name == super::BENCH { root().join("bench") } else { root().join("crates").join(name) };
    let folders = ["src", "assets", "migrations"].map(|folder| home.join(folder));
    let files = folders.iter().filter(|folder| folder.is_dir()).flat_map(|folder| files_under(folder));
    files
        .filter(|path| !path.components().any(|part| part.as_os_str() == "vendor"))
        .filter_map(|path| {
            let end = path.extension()?.to_str()?;
            ENDS.contains(&end).then(|| lines(end, &read(&path)))
        })
        .sum()
}

fn lines(end: &str, text: &str) -> usize {
    let code = if end == "rs" { cycles::code(text) } else { text.to_owned() };
    code.lines().filter(|line| !line.trim().is_empty()).count()
}
