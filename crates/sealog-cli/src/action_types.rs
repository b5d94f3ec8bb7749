//! `sealog actions --emit`: the catalog as source code for applications, so that their compiler or type
//! checker finds a misspelt action and a missing required field.
//!
//! Names and descriptions come from people: they enter the source as JSON strings, which TypeScript and
//! Python read as they are, and as comments that nothing in them can end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

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
         export interface Required {\n",
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
         export type Action = keyof Required;\n\n\
         /** An event that the service accepts: `const event: CatalogEvent = { … }; await sealog.log(event)`. */\n\
         export type CatalogEvent = {\n\
         \x20 [Name in Action]: Fields & { action: Name } & ([Required[Name]] extends [never]\n\
         \x20   ? { metadata?: Metadata | null | undefined }\n\
         \x20   : { metadata: Needs<Required[Name]> });\n\
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
    let mut names = BTreeMap::new();
    for Action { name, description, required } in actions {
        let function = identifier(name, &mut names);
        let mut arguments = FIELDS.iter().map(|field| ((*field).to_owned(), 1)).collect();
        let keys: Vec<(String, &String)> =
            required.iter().map(|key| (identifier(key, &mut arguments), key)).collect();
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

/// A name that Python takes, and that no other has. `_event` and the keywords are not among them.
fn identifier(name: &str, taken: &mut BTreeMap<String, usize>) -> String {
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
    loop {
        let count = taken.entry(word.clone()).or_default();
        *count += 1;
        if *count == 1 {
            return word;
        }
        word = format!("{word}_{count}");
    }
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
        let py = written("py", &[("a.b", "", &["class", "metadata", "x-y", "x_y"]), ("a_b", "", &[])]);
        for part in
            ["def a_b(", "def a_b_2(", "class_: Value", "metadata_2: Value", "x_y: Value", "x_y_2: Value"]
        {
            assert!(py.contains(part), "{part}: {py}");
        }
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
