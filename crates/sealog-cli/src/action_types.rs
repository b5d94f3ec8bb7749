//! `sealog actions --emit`: the catalog as source code for applications, so that their compiler or type
//! checker finds a misspelt action and a missing required field.
//!
//! Names and descriptions come from people: they enter the source as JSON strings, which TypeScript and
//! Python read as they are, and as comments that nothing in them can end.

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
pub(super) const LANGUAGES: [(&str, Writer); 2] = [("py", python), ("ts", typescript)];

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
    for (Action { name, description, required }, function) in actions.iter().zip(identifiers(&names, &[])) {
        let keys: Vec<&str> = required.iter().map(String::as_str).collect();
        let keys: Vec<(String, &str)> = identifiers(&keys, &FIELDS).into_iter().zip(keys).collect();
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

/// A name that Python takes for each of these, all different and none reserved. Where two would be the same
/// word, both get digits of their own name's hash: a name that depended on what else there is would pass from
/// one action to another when an action is added, and applications would log the wrong one.
fn identifiers(names: &[&str], reserved: &[&str]) -> Vec<String> {
    let words: Vec<String> = names.iter().map(|name| word(name)).collect();
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
fn word(name: &str) -> String {
    let mut word: String = name
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' })
        .collect();
    if !word.starts_with(|first: char| first.is_ascii_lowercase()) {
        word.insert_str(0, "a_");
    }
    if KEYWORDS.contains(&word.as_str()) {
        word.push('_');
    }
    word
}

#[rustfmt::skip]
const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
    "return", "try", "while", "with", "yield",
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
        let before = identifiers(&["order.shipped", "user.login"], &[]);
        let after = identifiers(&["order shipped", "order.shipped", "user.login"], &[]);
        assert_eq!((before[0].as_str(), &before[1]), ("order_shipped", &after[2]));
        assert!(!after.contains(&before[0]), "whoever used the old name is told by the compiler");
        // A word that is the other's with its digits.
        let taken = ["a b", "a_b", &identifiers(&["a b", "a_b"], &[])[0]];
        let made = identifiers(&taken, &[]);
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
