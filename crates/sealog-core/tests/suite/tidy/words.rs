//! Texts for people name who acts.
//!
//! "Whoever", "nobody" and "is told" hide the client, the server or the operator, and readers stumble over
//! them. Pages of documentation, templates of pages, and the literals of programs (help, errors, log lines)
//! have none of these words.

use std::path::Path;

use super::{cycles, files_under, read, root};

/// In lower case. A word is on the list only if good English never needs it: "goes on" is not.
const UNWELCOME: [&str; 8] =
    ["whoever", "somebody", "nobody", "anybody", "is told", "are told", "left empty", "comes to nothing"];

const PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Crates whose literals are not checked: helpers of tests, and those whose texts are in templates.
const WITHOUT_LITERALS: [&str; 3] = ["sealog-testing", "sealog-dashboard", "sealog-cases"];

#[test]
fn pages_of_documentation_name_who_acts() {
    let docs = root().join("docs");
    // Records of decisions (docs/adr) are not rewritten.
    let mut pages: Vec<_> =
        files_under(&docs).into_iter().filter(|path| path.parent() == Some(docs.as_path())).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    assert!(pages.iter().any(|path| path.ends_with("docs/spec.md")), "the walk must get here");
    pages.extend(PAGES.map(|name| root().join(name)));
    let found: Vec<String> = pages.iter().flat_map(|path| named(path, &unwelcome(&read(path)))).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn templates_name_who_acts() {
    let templates: Vec<_> = sources("html").map(|(_, path)| path).collect();
    assert!(templates.iter().any(|path| path.ends_with("sign_in.html")), "the walk must get here");
    let found: Vec<String> = templates.iter().flat_map(|path| named(path, &unwelcome(&read(path)))).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn help_errors_and_log_lines_name_who_acts() {
    let programs: Vec<_> = sources("rs")
        .filter(|(name, _)| !WITHOUT_LITERALS.contains(&&**name))
        .map(|(_, path)| path)
        .collect();
    assert!(programs.iter().any(|path| path.ends_with("sealog/src/main.rs")), "the walk must get here");
    let found: Vec<String> =
        programs.iter().flat_map(|path| named(path, &unwelcome_literals(&read(path)))).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_text_that_hides_who_acts_is_noticed() {
    for word in UNWELCOME {
        for text in [word.to_owned(), format!("({word}, too)"), word.to_uppercase(), format!("x\n{word}.")] {
            let line = text.lines().count();
            assert_eq!(unwelcome(&text), [(line, word)], "{text}");
        }
        for text in [format!("{word}s"), format!("x{word}"), format!("_{word}_")] {
            assert!(unwelcome(&text).is_empty(), "{text}");
        }
    }
    // A line may end between two words.
    assert_eq!(unwelcome("the client is\n  told, then\n"), [(1_usize, "is told")]);
    assert!(unwelcome("It is. Told twice, the client\nis back.").is_empty());
}

#[test]
fn a_literal_that_hides_who_acts_is_noticed_and_a_comment_is_not() {
    let code = |literal: &str| {
        format!("/// nobody\nfn f() {{\n    // somebody\n    say({literal}); // whoever\n}}\n")
    };
    for literal in
        ["\"nobody came\"", "r#\"nobody \"came\"\"#", "'\"', \"\\\"nobody\\\"\"", "\"left\", \"nobody\""]
    {
        assert_eq!(unwelcome_literals(&code(literal)), [(4_usize, "nobody")], "{literal}");
    }
    assert_eq!(unwelcome_literals(&code("\"is \\\n        told\"")), [(4_usize, "is told")]);
    assert!(unwelcome_literals(&code("'n', nobody, \"some\"")).is_empty());
    // Nor is one of a test.
    let tested =
        format!("{}#[cfg(test)]\nmod tests {{\n    const NAME: &str = \"nobody\";\n}}\n", code("\"fine\""));
    assert!(unwelcome_literals(&tested).is_empty());
}

/// Files below `src` of each crate whose names end so, with the name of the crate.
fn sources(end: &str) -> impl Iterator<Item = (String, std::path::PathBuf)> {
    let crates = root().join("crates");
    let files =
        files_under(&crates).into_iter().filter(move |path| path.extension().is_some_and(|is| is == end));
    files.filter_map(move |path| {
        let below = path.strip_prefix(&crates).ok()?;
        let mut parts = below.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let name = parts.next()?;
        let is_source = parts.next()? == "src";
        is_source.then_some((name, path))
    })
}

fn named(path: &Path, found: &[(usize, &'static str)]) -> Vec<String> {
    let shown = path.strip_prefix(root()).unwrap_or(path).display();
    found.iter().map(|(line, word)| format!("{shown}:{line}: {word}")).collect()
}

/// Each unwelcome word of a text with the number of its line.
fn unwelcome(text: &str) -> Vec<(usize, &'static str)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let lines: Vec<String> = text.lines().map(|line| line.trim().to_lowercase()).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let with_next = format!("{line} {}", lines.get(at + 1).map_or("", String::as_str));
        for word in UNWELCOME {
            let alone = |from: usize| {
                !with_next[..from].chars().next_back().is_some_and(is_word)
                    && !with_next[from + word.len()..].chars().next().is_some_and(is_word)
            };
            let here = with_next.match_indices(word).filter(|(from, _)| *from < line.len() && alone(*from));
            found.extend(here.map(|_| (at + 1, word)));
        }
    }
    found
}

/// The same for the literals of a program, each at the line where it begins.
fn unwelcome_literals(code: &str) -> Vec<(usize, &'static str)> {
    let literals = cycles::literals(code);
    literals
        .flat_map(|(line, text)| unwelcome(&text).into_iter().map(move |(_, word)| (line, word)))
        .collect()
}
