//! `sealog actions --emit`: the catalog as source code for applications, so that their compiler or type
//! checker finds a misspelt action and a missing required field.
//!
//! Names and descriptions come from people: they enter the source as strings in quotes (of JSON, which
//! TypeScript and Python read as they are) and as comments that nothing in them can end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::output;

/// What an application has to know of an action.
pub(super) struct Action<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub required: &'a [String],
}

/// Names of languages, as `--emit` takes them, and what writes them.
type Writer = fn(&[Action<'_>]) -> String;
pub(super) const LANGUAGES: [(&str, Writer); 4] =
    [("go", go), ("py", python), ("rs", rust), ("ts", typescript)];

pub(super) fn emitted(language: &str, mut actions: Vec<Action<'_>>) -> Option<String> {
    actions.sort_by_key(|action| action.name);
    let (_, write) = LANGUAGES.iter().find(|(name, _)| *name == language)?;
    Some(write(&actions))
}

/// What differs between a file and what would be written now, in words. None if nothing does.
pub(super) fn difference(file: &str, now: &str) -> Option<String> {
    if file == now {
        return None;
    }
    let lines = |text: &str| text.lines().map(str::trim).map(str::to_owned).collect::<BTreeSet<String>>();
    let (before, after) = (lines(file), lines(now));
    let (new, gone) = (after.difference(&before).count(), before.difference(&after).count());
    Some(format!("{new} lines are new, {gone} are gone"))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// One line that ends no comment.
fn comment(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    output::plain(&words.join(" ")).replace("*/", "* /")
}

fn typescript(actions: &[Action<'_>]) -> String {
    let mut out = String::from(
        "// Written by `sealog actions --emit ts`. Do not edit: run the command again.\n\
         import type { Event, JsonValue, Metadata } from \"sealog\";\n\n\
         type Fields = Omit<Event, \"action\" | \"metadata\">;\n\
         type Needs<Key extends string> = Metadata & { [key in Key]: Exclude<JsonValue, null> };\n\n\
         /** What each action needs in its metadata. */\n\
         export interface RequiredFields {\n",
    );
    for Action { name, description, required } in actions {
        let keys: Vec<String> = required.iter().map(|key| quoted(key)).collect();
        let needs = if keys.is_empty() { "never".to_owned() } else { keys.join(" | ") };
        if !description.is_empty() {
            let _ = writeln!(out, "  /** {} */", comment(description));
        }
        let _ = writeln!(out, "  {}: {needs};", quoted(name));
    }
    out.push_str(
        "}\n\n\
         export type Action = keyof RequiredFields;\n\n\
         /** An event that the service accepts: `const event: CatalogEvent = { … }; await sealog.log(event)`. */\n\
         export type CatalogEvent = {\n\
         \x20 [Name in Action]: Fields & { action: Name } & ([RequiredFields[Name]] extends [never]\n\
         \x20   ? { metadata?: Metadata | null | undefined }\n\
         \x20   : { metadata: Needs<RequiredFields[Name]> });\n\
         }[Action];\n",
    );
    out
}

fn python(actions: &[Action<'_>]) -> String {
    let mut out = String::from(
        "# Written by `sealog actions --emit py`. Do not edit: run the command again.\n\
         \"\"\"Events of the catalog: one function for each action, with its required fields as arguments.\n\n\
         \x20   client.log(actions.user_login(actor_id=\"u-17\"))\n\"\"\"\n\n\
         from typing import Any, Dict, List, Mapping, Optional, Union\n\n\
         from sealog import Event\n\n\
         Value = Union[str, int, float, bool, List[Any], Dict[str, Any]]\n\n\n\
         def _event(\n\
         \x20   action: str, required: Dict[str, Value], metadata: Optional[Mapping[str, Any]], fields: Dict[str, Optional[str]]\n\
         ) -> Event:\n\
         \x20   event: Dict[str, Any] = {name: value for name, value in fields.items() if value is not None}\n\
         \x20   if metadata or required:\n\
         \x20       event[\"metadata\"] = {**(metadata or {}), **required}\n\
         \x20   event[\"action\"] = action\n\
         \x20   return event  # type: ignore[return-value]\n",
    );
    let names: Vec<&str> = actions.iter().map(|action| action.name).collect();
    let functions = identifiers(&names, &[], |name| word(name, &OF_PYTHON));
    for (Action { name, description, required }, function) in actions.iter().zip(functions) {
        let keys = arguments(required, &FIELDS, |name| word(name, &OF_PYTHON));
        let _ = write!(out, "\n\ndef {function}(\n    *,\n");
        for (argument, _) in &keys {
            let _ = writeln!(out, "    {argument}: Value,");
        }
        for field in &FIELDS[1..] {
            let _ = writeln!(out, "    {field}: Optional[str] = None,");
        }
        out.push_str("    metadata: Optional[Mapping[str, Any]] = None,\n) -> Event:\n");
        let text = comment(description);
        if !text.is_empty() {
            let _ = writeln!(out, "    # {text}");
        }
        let pairs: Vec<String> =
            keys.iter().map(|(argument, key)| format!("{}: {argument}", quoted(key))).collect();
        let fields: Vec<String> =
            FIELDS[1..].iter().map(|field| format!("{}: {field}", quoted(field))).collect();
        let _ = writeln!(
            out,
            "    return _event({}, {{{}}}, metadata, {{{}}})",
            quoted(name),
            pairs.join(", "),
            fields.join(", ")
        );
    }
    out
}

fn go(actions: &[Action<'_>]) -> String {
    let mut out = String::from(
        "// Code generated by `sealog actions --emit go`. DO NOT EDIT.\n\n\
         // Package actions has events of the catalog: one function for each action, with its\n\
         // required fields as arguments.\n\
         //\n\
         //\tclient.Log(ctx, actions.UserLogin(sealog.Event{ActorID: \"u-17\"}))\n\
         package actions\n\n\
         import sealog \"github.com/sealog/sealog/sdk/go\"\n\n\
         func with(event sealog.Event, action string, required map[string]any) sealog.Event {\n\
         \tevent.Action = action\n\
         \tfor name, value := range event.Metadata {\n\
         \t\tif _, isRequired := required[name]; !isRequired && len(required) > 0 {\n\
         \t\t\trequired[name] = value\n\
         \t\t}\n\
         \t}\n\
         \tif len(required) > 0 {\n\
         \t\tevent.Metadata = required\n\
         \t}\n\
         \treturn event\n\
         }\n",
    );
    let names: Vec<&str> = actions.iter().map(|action| action.name).collect();
    let functions = identifiers(&names, &[], |name| camel(&word(name, &[]), true));
    for (Action { name, description, required }, function) in actions.iter().zip(functions) {
        let reserved = ["event", "sealog", "with", "string", "any"];
        let keys = arguments(required, &reserved, |name| camel(&word(name, &OF_GO), false));
        let _ = writeln!(out, "\n// {function} logs {}. {}", comment(name), comment(description));
        let names: String = keys.iter().map(|(argument, _)| format!("{argument} any, ")).collect();
        let pairs: Vec<String> =
            keys.iter().map(|(argument, key)| format!("{}: {argument}", escaped(key, false))).collect();
        let _ = writeln!(
            out,
            "func {function}({names}event sealog.Event) sealog.Event {{\n\treturn with(event, {}, map[string]any{{{}}})\n}}",
            escaped(name, false),
            pairs.join(", ")
        );
    }
    // As gofmt leaves it.
    out.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn rust(actions: &[Action<'_>]) -> String {
    let mut out = String::from(
        "// Written by `sealog actions --emit rs`. Do not edit: run the command again.\n\
         // Events of the catalog: one function for each action, with its required fields as arguments.\n\
         //\n\
         //     client.log(actions::user_login().actor_id(\"u-17\")).await?;\n\
         #![allow(dead_code, non_snake_case, clippy::too_many_arguments)]\n\n\
         use sealog_client::{Event, Serialize};\n",
    );
    let names: Vec<&str> = actions.iter().map(|action| action.name).collect();
    let functions = identifiers(&names, &[], |name| word(name, &OF_RUST));
    for (Action { name, description, required }, function) in actions.iter().zip(functions) {
        let keys = arguments(required, &[], |name| word(name, &OF_RUST));
        let text = comment(description);
        let _ = writeln!(out);
        if !text.is_empty() {
            let _ = writeln!(out, "/// {text}");
        }
        let names: Vec<String> =
            keys.iter().map(|(argument, _)| format!("{argument}: impl Serialize")).collect();
        let sets: String =
            keys.iter().map(|(argument, key)| format!(".with({}, {argument})", escaped(key, true))).collect();
        let _ = writeln!(
            out,
            "#[must_use]\npub fn {function}({}) -> Event {{\n    Event::new({}){sets}\n}}",
            names.join(", "),
            escaped(name, true)
        );
    }
    out
}

/// A string of Go and Rust. Compilers refuse some characters as they are: those that turn the direction of
/// writing, and a byte order mark.
fn escaped(text: &str, is_rust: bool) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            // Both languages read two digits of a character in ASCII alone.
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c == '\u{feff}' || output::plain(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8() => {
                // All of these have four digits.
                let (open, close) = if is_rust { ("{", "}") } else { ("", "") };
                out.push_str(&format!("\\u{open}{:04x}{close}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Names of arguments, and the fields that they set.
fn arguments<'a>(
    fields: &'a [String],
    reserved: &[&str],
    named: impl Fn(&str) -> String,
) -> Vec<(String, &'a str)> {
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    identifiers(&fields, reserved, named).into_iter().zip(fields).collect()
}

/// `user_login` as `UserLogin` or `userLogin`.
fn camel(word: &str, is_upper: bool) -> String {
    let mut out = String::new();
    let (word, end) = word.split_at(word.trim_end_matches('_').len());
    // An argument that would be a keyword has one there.
    let end = if is_upper { "" } else { end };
    for part in word.split('_').filter(|part| !part.is_empty()) {
        let (first, rest) = part.split_at(1);
        match is_upper || !out.is_empty() {
            true => out.push_str(&(first.to_ascii_uppercase() + rest)),
            false => out.push_str(part),
        }
    }
    out + end
}

/// Arguments that every function has.
const FIELDS: [&str; 8] = [
    "metadata",
    "actor_id",
    "resource",
    "actor_type",
    "resource_type",
    "severity",
    "session_id",
    "ts_client",
];

/// A name that the language takes for each of these, all different and none reserved. Where two would be the
/// same word, both get digits of their own name's hash: a name that depended on what else there is would pass
/// from one action to another when an action is added, and applications would log the wrong one.
fn identifiers(names: &[&str], reserved: &[&str], named: impl Fn(&str) -> String) -> Vec<String> {
    let words: Vec<String> = names.iter().map(|name| named(name)).collect();
    let mut counts: BTreeMap<&str, usize> = reserved.iter().map(|word| (*word, 1)).collect();
    for word in &words {
        *counts.entry(word).or_default() += 1;
    }
    let with_digits = |digits: usize| -> Vec<String> {
        let named = names.iter().zip(&words).map(|(name, word)| match counts[word.as_str()] {
            1 => word.clone(),
            _ => format!("{word}_{}", &hex::encode(Sha256::digest(name))[..digits]),
        });
        named.collect()
    };
    let short = with_digits(8);
    // A word may end like the hash of another; no two names have the same hash.
    if short.iter().collect::<BTreeSet<_>>().len() == short.len() { short } else { with_digits(64) }
}

/// Never `_event`, nor a keyword.
fn word(name: &str, keywords: &[&str]) -> String {
    let mut word: String = name
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' })
        .collect();
    if !word.starts_with(|first: char| first.is_ascii_lowercase()) {
        word.insert_str(0, "a_");
    }
    if keywords.contains(&word.as_str()) {
        word.push('_');
    }
    word
}

#[rustfmt::skip]
const OF_PYTHON: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
    "return", "try", "while", "with", "yield",
];

#[rustfmt::skip]
const OF_GO: [&str; 25] = [
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for", "func", "go",
    "goto", "if", "import", "interface", "map", "package", "range", "return", "select", "struct", "switch", "type",
    "var",
];

#[rustfmt::skip]
const OF_RUST: [&str; 50] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match",
    "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn written(language: &str, actions: &[(&str, &str, &[&str])]) -> String {
        let required: Vec<Vec<String>> =
            actions.iter().map(|(_, _, keys)| keys.iter().map(|key| (*key).to_owned()).collect()).collect();
        let actions = actions.iter().zip(&required);
        let actions =
            actions.map(|((name, description, _), required)| Action { name, description, required });
        emitted(language, actions.collect()).unwrap()
    }

    #[test]
    fn names_and_descriptions_stay_in_their_quotes_and_comments() {
        let hostile = [("a\"; import os #", "x */ evil()\n\"\"\" evil()", ["k\"]\n\\"].as_slice())];
        let ts = written("ts", &hostile);
        assert!(ts.contains(r#"  "a\"; import os #": "k\"]\n\\";"#), "{ts}");
        assert!(ts.contains("/** x * / evil() \"\"\" evil() */"), "{ts}");
        let py = written("py", &hostile);
        assert!(py.contains("    # x * / evil() \"\"\" evil()\n"), "{py}");
        assert!(py.contains(r#"_event("a\"; import os #", {"k\"]\n\\": k____}, metadata"#), "{py}");
    }

    #[test]
    fn go_and_rust_get_a_function_with_an_argument_for_each_required_field() {
        let hostile = [("a\"; b", "x\n}} evil()", ["k\"]\n\\", "type", "event"].as_slice())];
        let go = written("go", &hostile);
        assert!(go.contains("// AB logs a\"; b. x }} evil()\nfunc AB(k____ any, type_ any, "), "{go}");
        assert!(
            go.contains(r#"with(event, "a\"; b", map[string]any{"k\"]\x0a\\": k____, "type": type_, "#),
            "{go}"
        );
        assert!(!go.contains(" event any"), "{go}");
        let rs = written("rs", &hostile);
        assert!(
            rs.contains("/// x }} evil()\n#[must_use]\npub fn a___b(k____: impl Serialize, type_: "),
            "{rs}"
        );
        assert!(rs.contains(r#"Event::new("a\"; b").with("k\"]\x0a\\", k____)"#), "{rs}");
    }

    #[test]
    fn characters_that_compilers_refuse_are_escaped() {
        for (language, escape) in [("go", r"\u202e"), ("rs", r"\u{202e}")] {
            let text = written(language, &[("a\u{202e}b", "\u{202e}", &["k\u{feff}"])]);
            assert!(!text.contains(['\u{202e}', '\u{feff}']) && text.contains(escape), "{text}");
        }
    }

    #[test]
    fn actions_and_fields_that_become_the_same_word_get_their_own() {
        let fields = ["class", "metadata", "x-y", "x_y"];
        let py = written("py", &[("a.b", "", &fields), ("a_b", "", &[]), ("a.c", "", &[])]);
        for part in [
            "def a_b_2e7336dc(",
            "def a_b_648fa9b3(",
            "def a_c(",
            "class_: Value",
            "metadata_45447b7a: Value",
            "x_y_",
        ] {
            assert!(py.contains(part), "{part}: {py}");
        }
        assert!(!py.contains("def a_b(") && !py.contains("    x_y: Value"), "{py}");
    }

    #[test]
    fn a_new_action_never_takes_the_name_of_another() {
        let identifiers = |names: &[&str]| identifiers(names, &[], |name| word(name, &[]));
        let before = identifiers(&["order.shipped", "user.login"]);
        let after = identifiers(&["order shipped", "order.shipped", "user.login"]);
        assert_eq!((before[0].as_str(), &before[1]), ("order_shipped", &after[2]));
        assert!(!after.contains(&before[0]), "whoever used the old name is told by the compiler");
        // A word that is the other's with its digits.
        let taken = ["a b", "a_b", &identifiers(&["a b", "a_b"])[0]];
        let made = identifiers(&taken);
        assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), 3, "{made:?}");
    }

    #[test]
    fn the_order_of_the_catalog_does_not_matter_and_a_change_is_named() {
        let one = written("ts", &[("b", "", &[]), ("a", "", &["k"])]);
        assert_eq!(one, written("ts", &[("a", "", &["k"]), ("b", "", &[])]));
        assert_eq!(difference(&one, &one), None);
        let other = written("ts", &[("a", "", &[]), ("b", "", &[])]);
        assert_eq!(difference(&one, &other).as_deref(), Some("1 lines are new, 1 are gone"));
    }
}
