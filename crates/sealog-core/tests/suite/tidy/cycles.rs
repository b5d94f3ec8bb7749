//! Modules of a crate do not use each other in a circle.
//!
//! A module is a file. It uses another one if it names it in an import or in a path (`crate::a::b()`,
//! `super::c`, a child's `d::e`). An import goes to the file that it names, so an item that a parent
//! re-exports is the parent's: whoever is below it imports from where the item is defined. Declaring a child
//! (`mod a;`) is no use of it; re-exporting something of it is. A parent may therefore use its children, or
//! they may use it, but not both.
//!
//! Text is read without a parser of Rust: comments, literals and everything under `#[cfg(test)]` are removed,
//! and what is left is searched for paths. That sees no use that is hidden in a macro's expansion, and no
//! call of a method that another file has given to a type.

use std::collections::{BTreeMap, BTreeSet};

/// The modules of a crate, by name, and the modules that each one uses. `lib` and `main` are the files of
/// these names.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The graph of the files of a crate: path below `src`, and text.
pub fn graph(files: &[(String, String)]) -> Graph {
    let stripped: Vec<(String, String)> =
        files.iter().map(|(path, text)| (path.clone(), code(text))).collect();
    let test_only: BTreeSet<Vec<String>> = files
        .iter()
        .zip(&stripped)
        .flat_map(|((path, text), (_, code))| {
            let declared = |text: &str| declarations(text).collect::<BTreeSet<_>>();
            let (all, used) = (declared(&without_comments(text)), declared(code));
            let parent = module_path(path);
            all.difference(&used)
                .map(|child| [&parent[..], std::slice::from_ref(child)].concat())
                .collect::<Vec<_>>()
        })
        .collect();
    let is_test = |module: &[String]| (1..=module.len()).any(|to| test_only.contains(&module[..to]));
    let modules: BTreeMap<Vec<String>, String> = stripped
        .iter()
        .filter(|(path, _)| is_reachable(path, files))
        .map(|(path, _)| (module_path(path), module_name(path)))
        .filter(|(module, _)| !is_test(module))
        .collect();
    let mut graph = Graph::new();
    for (path, code) in &stripped {
        let module = module_path(path);
        if is_test(&module) {
            continue;
        }
        let name = module_name(path);
        let uses = graph.entry(name.clone()).or_default();
        for used in paths(code, &module, &modules) {
            // What is named may be an item of a module, or an item of an item.
            let file = (0..=used.len()).rev().find_map(|to| modules.get(&used[..to]));
            uses.extend(file.filter(|file| **file != name).cloned());
        }
    }
    graph
}

/// Groups of modules that use each other, directly or through others.
pub fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reachable(graph, module))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, of_module) in &reached {
        let group: Vec<String> = of_module
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|of_other| of_other.contains(module)))
            .map(|other| (*other).to_owned())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

/// What is wrong with the modules of a crate, where these are known to stand in a circle: another one that
/// does, or one that does not any more.
pub fn wrong(crate_name: &str, graph: &Graph, known: &[&str]) -> Vec<String> {
    let cycles = cycles(graph);
    let mut wrong: Vec<String> = cycles
        .iter()
        .filter(|group| group.iter().any(|module| !known.contains(&module.as_str())))
        .map(|group| {
            let new = group.iter().filter(|module| !known.contains(&module.as_str()));
            let new: Vec<String> =
                new.map(|module| format!("{module} ({})", inside(graph, group, module))).collect();
            format!("{crate_name}: modules use each other in a circle: {}", new.join(", "))
        })
        .collect();
    for module in known {
        if !cycles.iter().flatten().any(|in_cycle| in_cycle == module) {
            wrong.push(format!("{crate_name}: {module} is in no circle any more; take it off the list"));
        }
    }
    wrong
}

/// Which of its circle a module uses.
fn inside(graph: &Graph, group: &[String], module: &str) -> String {
    let used: Vec<&str> =
        graph[module].iter().filter(|used| group.contains(used)).map(String::as_str).collect();
    format!("uses {}", used.join(", "))
}

fn reachable<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = graph[from].iter().map(String::as_str).collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(graph.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; `lib.rs` is the root, and `main.rs` if there is no
/// library.
fn module_path(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut segments: Vec<String> = path.split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| last == "mod")
        || matches!(segments[..], [ref root] if root == "lib" || root == "main")
    {
        segments.pop();
    }
    segments
}

fn module_name(path: &str) -> String {
    match path {
        "lib.rs" => "lib".to_owned(),
        "main.rs" => "main".to_owned(),
        _ => module_path(path).join("::"),
    }
}

/// Beside a library, no module of the crate can name the program.
fn is_reachable(path: &str, files: &[(String, String)]) -> bool {
    path != "main.rs" || !files.iter().any(|(other, _)| other == "lib.rs")
}

/// A piece of a Rust text: one character of code, a comment, or a literal with its quotes.
enum Piece<'a> {
    Code(&'a str),
    Comment,
    Text(&'a str),
    Character,
}

fn pieces(text: &str) -> impl Iterator<Item = (usize, Piece<'_>)> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut at = 0;
    std::iter::from_fn(move || {
        let (from, rest) = (at, &text[at..]);
        let after_word = at > 0 && is_word(bytes[at - 1]);
        let (length, piece) = if rest.is_empty() {
            return None;
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Piece::Comment)
        } else if rest.starts_with("/*") {
            (block_comment(rest), Piece::Comment)
        } else if let Some(length) = (!after_word).then(|| raw_string(rest)).flatten() {
            (length, Piece::Text(&rest[..length]))
        } else if rest.starts_with('"') {
            let length = quoted(rest, b'"');
            (length, Piece::Text(&rest[..length]))
        } else if rest.starts_with('\'') && is_char_literal(rest) {
            (quoted(rest, b'\''), Piece::Character)
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            (length, Piece::Code(&rest[..length]))
        };
        at += length;
        Some((from, piece))
    })
}

/// What the program is compiled of: no comments, no tests, and literals without their text.
pub fn code(text: &str) -> String {
    without_tests(&without_comments(text))
}

/// The code without comments, and with empty literals.
fn without_comments(text: &str) -> String {
    let code = pieces(text).map(|(_, piece)| match piece {
        Piece::Code(code) => code,
        Piece::Comment => "",
        Piece::Text(_) => "\"\"",
        Piece::Character => "' '",
    });
    code.collect()
}

/// The string literals outside of tests, each with the line where it begins and without the line breaks that
/// a backslash takes out of it.
pub fn literals(text: &str) -> impl Iterator<Item = (usize, String)> {
    let tests = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let text = &text[..tests];
    pieces(text).filter_map(move |(at, piece)| {
        let Piece::Text(literal) = piece else { return None };
        let mut lines = literal.split("\\\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let whole = lines.fold(first, |whole, line| whole + line.trim_start());
        Some((1 + text[..at].matches('\n').count(), whole))
    })
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn raw_string(text: &str) -> Option<usize> {
    let from =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = from.len() - from.trim_start_matches('#').len();
    let content = from[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end)? + end.len();
    Some(text.len() - content.len() + length)
}

/// Up to and with the quote that ends it.
fn quoted(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// And not a lifetime.
fn is_char_literal(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

/// The code without the items that only tests have.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut left = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        left.push_str(&rest[..at]);
        rest = &rest[at + MARK.len()..];
        rest = &rest[item_len(rest)..];
    }
    left.push_str(rest);
    left
}

/// Up to the end of an item: a semicolon, or the brace that closes its first one.
fn item_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The children that a module declares as files.
fn declarations(code: &str) -> impl Iterator<Item = String> + '_ {
    let words = words(code);
    (0..words.len().saturating_sub(2)).filter_map(move |at| match words[at..at + 3] {
        [(_, "mod"), (_, name), (_, ";")] => Some(name.to_owned()),
        _ => None,
    })
}

/// Names, `::` and other characters, each with its place.
fn words(code: &str) -> Vec<(usize, &str)> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(character) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if is_word(character) {
            rest.find(|character| !is_word(character)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            character.len_utf8()
        };
        if !character.is_whitespace() {
            words.push((at, &rest[..length]));
        }
        at += length;
    }
    words
}

/// Every path that the code of a module names in its own crate, from the root.
fn paths(code: &str, module: &[String], modules: &BTreeMap<Vec<String>, String>) -> Vec<Vec<String>> {
    let words = words(code);
    let word = |at: usize| words.get(at).map_or("", |(_, word)| *word);
    let mut found = Vec::new();
    // Modules inside of the file that are open here, and at which depth of braces.
    let (mut inline, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
    let mut at = 0;
    while at < words.len() {
        match word(at) {
            "mod" if word(at + 2) == "{" => {
                inline.push((word(at + 1).to_owned(), depth));
                depth += 1;
                at += 3;
                continue;
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inline.last().is_some_and(|(_, opened)| *opened == depth) {
                    inline.pop();
                }
            }
            // The path of a visibility is no use.
            "in" if word(at.wrapping_sub(1)) == "(" && word(at.wrapping_sub(2)) == "pub" => {
                while at < words.len() && word(at) != ")" {
                    at += 1;
                }
            }
            "use" if word(at.wrapping_sub(1)) != "." => {
                let here: Vec<String> =
                    module.iter().cloned().chain(inline.iter().map(|(name, _)| name.clone())).collect();
                let mut leaves = Vec::new();
                at = use_tree(&words, at + 1, &[], &mut leaves);
                found.extend(leaves.iter().filter_map(|path| resolve(path, &here, modules)));
                continue;
            }
            first if word(at + 1) == "::" && word(at.wrapping_sub(1)) != "::" => {
                let here: Vec<String> =
                    module.iter().cloned().chain(inline.iter().map(|(name, _)| name.clone())).collect();
                let mut path = vec![first.to_owned()];
                while word(at + 1) == "::" && is_name(word(at + 2)) {
                    path.push(word(at + 2).to_owned());
                    at += 2;
                }
                found.extend(resolve(&path, &here, modules));
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn is_name(word: &str) -> bool {
    word.chars().all(|character| character.is_alphanumeric() || character == '_') && !word.is_empty()
}

/// The leaves of an import, from behind `use` or inside of braces. Where it ends.
fn use_tree(
    words: &[(usize, &str)],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<Vec<String>>,
) -> usize {
    let word = |at: usize| words.get(at).map_or(";", |(_, word)| *word);
    let mut path = prefix.to_vec();
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while word(at) != "}" && word(at) != ";" {
                    at = use_tree(words, at, &path, leaves);
                    if word(at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "::" => at += 1,
            "as" => at += 2,
            "self" if !path.is_empty() => at += 1,
            "," | "}" => {
                leaves.push(path);
                return at;
            }
            ";" => {
                leaves.push(path);
                return at + usize::from(at < words.len());
            }
            name => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
}

/// From the root of the crate; nothing for a path into another crate.
fn resolve(path: &[String], here: &[String], modules: &BTreeMap<Vec<String>, String>) -> Option<Vec<String>> {
    let (mut base, mut rest) = (here.to_vec(), path);
    match path.first().map(String::as_str)? {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|first| first == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        // Otherwise it is another crate's, or was imported, and counted with the import.
        child if !modules.contains_key(&[here, &[child.to_owned()]].concat()) => return None,
        _ => {}
    }
    Some([&base[..], rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)], module: &str) -> Vec<String> {
        graph_of(files)[module].iter().cloned().collect()
    }

    fn graph_of(files: &[(&str, &str)]) -> Graph {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        graph(&files)
    }

    const EMPTY: [(&str, &str); 5] = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod x; mod y;"),
        ("a/x.rs", ""),
        ("a/y.rs", ""),
        ("b.rs", ""),
    ];

    fn with(path: &str, text: &str) -> Vec<String> {
        let files = EMPTY.map(|(known, empty)| (known, if known == path { text } else { empty }));
        let name = module_name(path);
        uses(&files, &name)
    }

    #[test]
    fn imports_and_paths_are_uses_however_they_are_written() {
        for (text, used) in [
            ("use crate::b;", &["b"][..]),
            ("use crate::b::Item;", &["b"]),
            ("pub(crate) use crate::b::{self, Item as Other, deep::{Er, Est}};", &["b"]),
            ("use crate::{a::y::{One, Two}, b::*};", &["a::y", "b"]),
            ("use super::y;", &["a::y"]),
            ("use super::{Item, y::Other};", &["a", "a::y"]),
            ("use super::super::b;", &["b"]),
            ("use crate::Item;", &["lib"]),
            ("fn f() { let x = crate::b::g(super::y::H); }", &["a::y", "b"]),
            ("struct S(crate::b::T);", &["b"]),
            (
                "impl<'a> crate::b::T<'a> for S { fn f() -> char { '\\'' } fn g() { super::h('a') } }",
                &["a", "b"],
            ),
            ("mod inner { use super::super::y; fn f() { super::g() } }", &["a::y"]),
        ] {
            assert_eq!(with("a/x.rs", text), used, "{text}");
        }
        assert_eq!(with("a/mod.rs", "mod x; mod y; fn f() { x::g(); } use self::y::Z;"), ["a::x", "a::y"]);
        assert_eq!(with("lib.rs", "mod a; mod b; pub use a::x::Item;"), ["a::x"]);
    }

    #[test]
    fn declarations_texts_and_tests_are_no_uses() {
        for text in [
            "mod x; pub mod y;",
            "// crate::b::f()\n/* use crate::b; /* crate::b::g() */ */ /// See [`crate::b`].",
            "const A: &str = \"crate::b::f() \\\" crate::b::g()\"; const B: &str = r#\"\" crate::b::f() \"#;",
            "#[cfg(test)]\nmod tests { use super::*; use crate::b; fn f() { if true { crate::b::g() } } }",
            "#[cfg(test)]\nuse crate::b::T;",
            "pub(in crate::b) struct S; pub(super) fn f() {} pub(crate) fn g() {}",
            "use std::b::T; use other::b; fn f() { other::b::g(); S::b() }",
        ] {
            assert_eq!(with("a/mod.rs", text), Vec::<String>::new(), "{text}");
        }
        // A file that only tests have is none of the crate's modules.
        let files = [
            ("lib.rs", "#[cfg(test)] mod t;"),
            ("t.rs", "use crate::X; mod u;"),
            ("t/u.rs", "use super::Y;"),
        ];
        assert_eq!(graph_of(&files), Graph::from([("lib".to_owned(), BTreeSet::new())]));
    }

    #[test]
    fn a_program_beside_a_library_is_not_what_its_modules_import_from() {
        let files =
            [("lib.rs", ""), ("main.rs", "mod cli; fn main() { cli::run() }"), ("cli.rs", "use crate::X;")];
        assert_eq!(cycles(&graph_of(&files)), Vec::<Vec<String>>::new());
        let alone = [("main.rs", "mod cli; fn main() { cli::run() }"), ("cli.rs", "use crate::X;")];
        assert_eq!(cycles(&graph_of(&alone)), [["cli", "main"]]);
    }

    #[test]
    fn a_circle_is_noticed_and_so_is_one_that_is_gone() {
        let straight = [
            ("lib.rs", "pub use a::A;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", ""),
        ];
        assert_eq!(wrong("x", &graph_of(&straight), &[]), Vec::<String>::new());
        assert_eq!(
            wrong("x", &graph_of(&straight), &["b"]),
            ["x: b is in no circle any more; take it off the list"]
        );

        let mut circle = straight;
        circle[3].1 = "fn f() { crate::a::g() }";
        assert_eq!(cycles(&graph_of(&circle)), [["a", "b", "c"]]);
        assert_eq!(
            wrong("x", &graph_of(&circle), &["b", "c"]),
            ["x: modules use each other in a circle: a (uses b)"]
        );
        assert_eq!(wrong("x", &graph_of(&circle), &["a", "b", "c"]), Vec::<String>::new());

        // A child that uses what its parent re-exports, or defines, where the parent uses the child.
        let mut circle = straight;
        circle[3].1 = "use crate::A;";
        assert_eq!(cycles(&graph_of(&circle)), [["a", "b", "c", "lib"]]);
    }
}
