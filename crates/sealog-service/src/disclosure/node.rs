//! An event as a tree of named values: what reviewers see, and what masks are laid over. Numbers keep the text that was
//! sent, and a name that stands twice stays twice.

use sealog_core::event::StoredEvent;
use sealog_core::json::{self, Items, Members};

/// Deeper than anything that people write; what lies below is one value that is searched as a text and not
/// disclosed.
const DEPTH_MAX: usize = 32;
pub const TOO_DEEP: &str = "Not disclosed (nested too deeply)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Text(String),
    /// A number, `true`, `false` or `null`, as it was sent.
    Literal(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
    /// Stands in the place of what is not disclosed.
    Masked(String),
    /// Nested too deeply to be shown, as it is stored. It is written as [`TOO_DEEP`].
    Deep(String),
}

impl Node {
    pub fn parse(canonical: &str) -> Node {
        parse(canonical, 0)
    }

    pub fn is_masked(&self) -> bool {
        matches!(self, Node::Masked(_))
    }

    /// The text of a scalar.
    pub fn scalar(&self) -> Option<&str> {
        match self {
            Node::Text(text) | Node::Literal(text) => Some(text),
            Node::List(_) | Node::Object(_) | Node::Masked(_) | Node::Deep(_) => None,
        }
    }

    /// Every value that is not made of others, with its path.
    pub fn leaves<'n>(&'n self, path: &str, take: &mut impl FnMut(&str, &'n Node)) {
        match self {
            Node::Text(_) | Node::Literal(_) | Node::Masked(_) | Node::Deep(_) => take(path, self),
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    item.leaves(&format!("{path}[{at}]"), take);
                }
            }
            Node::Object(members) => {
                for (name, value) in members {
                    value.leaves(&format!("{path}.{name}"), take);
                }
            }
        }
    }

    /// As compact JSON. What was masked is a text there.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        match self {
            Node::Text(text) | Node::Masked(text) => json::put_string(text, out),
            Node::Deep(_) => json::put_string(TOO_DEEP, out),
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

fn parse(canonical: &str, depth: usize) -> Node {
    match canonical.as_bytes().first() {
        Some(b'{' | b'[') if depth >= DEPTH_MAX => Node::Deep(canonical.to_owned()),
        Some(b'{') => {
            let member = |(name, value)| (text(name), parse(value, depth + 1));
            Node::Object(Members::of(canonical).map(member).collect())
        }
        Some(b'[') => Node::List(Items::of(canonical).map(|item| parse(item, depth + 1)).collect()),
        Some(b'"') => Node::Text(text(canonical)),
        _ => Node::Literal(canonical.to_owned()),
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
        let (fields, annotations) = (event.text.fields(), &event.annotations);
        let plain = |value: Option<&str>| value.map(|value| Node::Text(value.to_owned()));
        let fields = [
            ("actor_id", fields.actor_id.map(Node::parse)),
            ("actor_type", plain(annotations.actor_type.as_deref())),
            ("resource", fields.resource.map(Node::parse)),
            ("resource_type", plain(annotations.resource_type.as_deref())),
            ("session_id", plain(annotations.session_id.as_deref())),
            ("ts_client", plain(annotations.ts_client.as_deref())),
            ("ip_address", plain(annotations.ip_address.as_deref())),
            ("country", plain(annotations.country.as_deref())),
            ("city", plain(annotations.city.as_deref())),
            ("metadata", fields.metadata.map(Node::parse)),
        ];
        EventView {
            log_id: event.sealed.log_id.to_string(),
            chain_seq: event.sealed.chain_seq,
            timestamp_ms: event.timestamp_ms,
            action: text(event.text.fields().action),
            category: annotations.category.as_deref().map(str::to_owned),
            fields: fields.into_iter().filter_map(|(name, node)| Some((name, node?))).collect(),
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
        assert!(written.contains(TOO_DEEP) && !written.contains("secret"));
    }
}
