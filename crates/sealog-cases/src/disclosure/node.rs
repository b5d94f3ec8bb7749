//! An event as a tree of named values: what reviewers see, and what masks are laid over. Numbers keep the
//! text that was sent, and a name that stands twice stays twice.

use std::fmt::Write as _;

use sealog_core::event::{FIELDS, Field, Shown, StoredEvent, Value};
use sealog_core::json::{self, Items, Members};

/// Deeper than anything that people write.
const DEPTH_MAX: usize = 32;
/// Of one path: its names, and what joins them.
const PATH_BYTES_MAX: usize = 500;
/// Of all paths of an event together. An event has room for a name of 100,000 bytes with 50,000 values below
/// it, whose paths would need five gigabytes. Within this bound, whatever is done with paths is linear.
const PATHS_BYTES_MAX: usize = 4 << 20;
pub const OVERSIZED: &str = "Not disclosed (nested too deeply, or too large to review)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Text(String),
    /// A number, `true`, `false` or `null`, as it was sent.
    Literal(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
    /// Stands in the place of what is not disclosed.
    Masked(String),
    /// What exceeds a bound on depth or paths, as it is stored. It is one value, which is searched as a text
    /// and written as [`OVERSIZED`].
    Oversized(String),
}

impl Node {
    pub fn parse(canonical: &str) -> Node {
        Parsing { paths: PATHS_BYTES_MAX }.parse(canonical, 0, "metadata".len())
    }

    pub fn is_masked(&self) -> bool {
        matches!(self, Node::Masked(_))
    }

    /// The text of a scalar.
    pub fn scalar(&self) -> Option<&str> {
        match self {
            Node::Text(text) | Node::Literal(text) => Some(text),
            Node::List(_) | Node::Object(_) | Node::Masked(_) | Node::Oversized(_) => None,
        }
    }

    /// Every value that is not made of others, with its path.
    pub fn leaves<'n>(&'n self, path: &str, take: &mut impl FnMut(&str, &'n Node)) {
        self.leaves_below(&mut path.to_owned(), take);
    }

    fn leaves_below<'n>(&'n self, path: &mut String, take: &mut impl FnMut(&str, &'n Node)) {
        match self {
            Node::Text(_) | Node::Literal(_) | Node::Masked(_) | Node::Oversized(_) => take(path, self),
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    below(path, Step::Item(at), |path| item.leaves_below(path, take));
                }
            }
            Node::Object(members) => {
                for (name, value) in members {
                    below(path, Step::Member(name), |path| value.leaves_below(path, take));
                }
            }
        }
    }

    /// As compact JSON. What was masked is a text there.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        match self {
            Node::Text(text) | Node::Masked(text) => json::put_string(text, out),
            Node::Oversized(_) => json::put_string(OVERSIZED, out),
            Node::Literal(text) => out.extend_from_slice(text.as_bytes()),
            Node::List(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.put_json(out);
                }
                out.push(b']');
            }
            Node::Object(members) => {
                out.push(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    json::put_string(name, out);
                    out.push(b':');
                    value.put_json(out);
                }
                out.push(b'}');
            }
        }
    }

    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.put_json(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// One step down a path.
#[derive(Clone, Copy, Debug)]
pub enum Step<'s> {
    Item(usize),
    Member(&'s str),
}

/// Calls `visit` with the path one step further down, and takes the step back.
pub fn below<T>(path: &mut String, step: Step<'_>, visit: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    // Writing to a string does not fail.
    let _ = match step {
        Step::Item(at) => write!(path, "[{at}]"),
        Step::Member(name) => write!(path, ".{name}"),
    };
    let answer = visit(path);
    path.truncate(length);
    answer
}

/// What is left of [`PATHS_BYTES_MAX`].
struct Parsing {
    paths: usize,
}

impl Parsing {
    /// `path` is how long the path to this value is.
    fn parse(&mut self, canonical: &str, depth: usize, path: usize) -> Node {
        let parsed = match canonical.as_bytes().first() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => None,
            Some(b'{') => self.object(canonical, depth, path),
            Some(b'[') => self.list(canonical, depth, path),
            Some(b'"') => Some(Node::Text(text(canonical))),
            _ => Some(Node::Literal(canonical.to_owned())),
        };
        parsed.unwrap_or_else(|| Node::Oversized(canonical.to_owned()))
    }

    fn object(&mut self, canonical: &str, depth: usize, path: usize) -> Option<Node> {
        let mut members = Vec::new();
        for (name, value) in Members::of(canonical) {
            let name = text(name);
            let path = self.take(path + 1 + name.len())?;
            members.push((name, self.parse(value, depth + 1, path)));
        }
        Some(Node::Object(members))
    }

    fn list(&mut self, canonical: &str, depth: usize, path: usize) -> Option<Node> {
        let mut items = Vec::new();
        for item in Items::of(canonical) {
            let digits = items.len().checked_ilog10().map_or(1, |log| log as usize + 1);
            let path = self.take(path + 2 + digits)?;
            items.push(self.parse(item, depth + 1, path));
        }
        Some(Node::List(items))
    }

    /// Accounts for a path of this length. None if it is too long, or if all of them have become too long.
    fn take(&mut self, path: usize) -> Option<usize> {
        self.paths = self.paths.checked_sub(path).filter(|_| path <= PATH_BYTES_MAX)?;
        Some(path)
    }
}

/// The value of a canonical string; where half of a surrogate pair keeps it from being text, what was sent.
fn text(canonical: &str) -> String {
    json::decode(canonical).unwrap_or_else(|| canonical.trim_matches('"').to_owned())
}

/// An event without its seal: a hash of what is not disclosed would tell it to whoever can guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventView {
    pub log_id: String,
    pub chain_seq: u64,
    pub timestamp_ms: u64,
    pub action: String,
    pub category: Option<String>,
    /// In the order of the API, those that the event has.
    pub fields: Vec<(&'static str, Node)>,
}

impl EventView {
    pub fn of(event: &StoredEvent) -> EventView {
        let node = |field: &Field| match event.value(field.id)? {
            Value::Json(json) => Some(Node::parse(json)),
            value => Some(Node::Text(value.to_text().into_owned())),
        };
        let shown = FIELDS.iter().filter(|field| field.shown != Shown::Never);
        EventView {
            log_id: event.sealed.log_id.to_string(),
            chain_seq: event.sealed.chain_seq,
            timestamp_ms: event.timestamp_ms,
            action: text(event.text.fields().action),
            category: event.annotations.category.as_deref().map(str::to_owned),
            fields: shown.filter_map(|field| Some((field.name, node(field)?))).collect(),
        }
    }

    pub fn field(&self, name: &str) -> Option<&Node> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, node)| node)
    }

    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(Node::scalar)
    }

    /// Every value that is not made of others, with its path (`actor_id`, `metadata.items[0].name`).
    pub fn leaves(&self) -> Vec<(String, &Node)> {
        let mut leaves = Vec::new();
        for (name, node) in &self.fields {
            node.leaves(name, &mut |path, leaf| leaves.push((path.to_owned(), leaf)));
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_written_as_it_was_sent_also_what_stands_twice() {
        let canonical = r#"{"a":[1,1.0,{"b":"x\"é"}],"a":null,"c":{},"d":[]}"#;
        assert_eq!(Node::parse(canonical).to_json(), canonical);
        let mut paths = Vec::new();
        Node::parse(canonical).leaves("metadata", &mut |path, _| paths.push(path.to_owned()));
        assert_eq!(paths, ["metadata.a[0]", "metadata.a[1]", "metadata.a[2].b", "metadata.a"]);
    }

    #[test]
    fn what_is_nested_too_deeply_is_one_value_that_is_not_disclosed() {
        let deep = format!("{}\"secret\"{}", "[".repeat(50_000), "]".repeat(50_000));
        let written = Node::parse(&deep).to_json();
        assert!(written.contains(OVERSIZED) && !written.contains("secret"));
        let nested = |depth| Node::parse(&format!("{}1{}", "[".repeat(depth), "]".repeat(depth))).to_json();
        assert!(!nested(32).contains(OVERSIZED) && nested(33).contains(OVERSIZED));
    }

    /// All that is kept of an event: paths, and values.
    fn bytes_of(node: &Node) -> usize {
        let mut bytes = 0;
        node.leaves("metadata", &mut |path, leaf| bytes += path.len() + leaf.scalar().map_or(0, str::len));
        bytes
    }

    #[test]
    fn the_paths_of_an_event_have_at_most_four_megabytes_whatever_its_names() {
        let values = vec!["1"; 60_000].join(",");
        let deep_name =
            |name: &str| format!("{}[{values}]{}", format!("{{\"{name}\":").repeat(30), "}".repeat(30));
        for (canonical, is_shown) in [
            (format!("[{values}]"), true),
            (format!("{{\"a\":[{values}],\"b\":[{values}]}}"), true),
            (format!("{{\"{}\":[{values}]}}", "k".repeat(100_000)), false),
            (format!("{{\"a\":{{\"{}\":[{values}]}}}}", "k".repeat(480)), false),
            (deep_name("name"), false),
            (format!("[{}]", vec![format!("[{values}]"); 8].join(",")), false),
        ] {
            let node = Node::parse(&canonical);
            assert!(bytes_of(&node) <= PATHS_BYTES_MAX + canonical.len(), "{}", bytes_of(&node));
            assert_eq!(!node.to_json().contains(OVERSIZED), is_shown, "{}", &canonical[..40]);
        }
    }

    #[test]
    fn what_is_too_large_to_review_leaves_the_rest_as_it_is() {
        let canonical = format!("{{\"a\":1,\"b\":{{\"{}\":2,\"c\":3}},\"d\":4}}", "k".repeat(600));
        assert_eq!(Node::parse(&canonical).to_json(), format!("{{\"a\":1,\"b\":\"{OVERSIZED}\",\"d\":4}}"));
        let named = |path: usize| {
            let name = "k".repeat(path - "metadata.".len());
            Node::parse(&format!("{{\"{name}\":1}}")).to_json()
        };
        assert!(!named(500).contains(OVERSIZED) && named(501).contains(OVERSIZED));
    }
}
