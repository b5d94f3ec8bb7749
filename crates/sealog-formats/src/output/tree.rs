//! Formats that are JSON: each row's value at its path.

use sealog_core::json::quoted;

use super::event::Event;
use super::made::Value;
use super::table::Mapping;

/// An object with the members in the order in which they came.
#[derive(Debug, Default)]
struct Node {
    members: Vec<(&'static str, Member)>,
}

#[derive(Debug)]
enum Member {
    Json(String),
    Node(Node),
}

/// The event as one JSON object.
pub(super) fn object(mapping: &Mapping, event: &Event) -> String {
    let mut root = Node::default();
    for row in mapping.rows {
        if let Some(json) = row.from.value(event).map(Value::into_json) {
            root.put(row.to, json);
        }
    }
    let mut out = String::new();
    root.write(&mut out);
    out
}

impl Node {
    fn put(&mut self, path: &'static str, json: String) {
        let Some((first, rest)) = path.split_once('.') else {
            self.members.push((path, Member::Json(json)));
            return;
        };
        let known = self.members.iter().position(|(name, _)| *name == first);
        let at = known.unwrap_or_else(|| {
            self.members.push((first, Member::Node(Node::default())));
            self.members.len() - 1
        });
        if let Member::Node(node) = &mut self.members[at].1 {
            node.put(rest, json);
        }
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (number, (name, member)) in self.members.iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            // `name[]` is a list of the one object.
            let (name, is_list) = name.strip_suffix("[]").map_or((*name, false), |name| (name, true));
            out.push_str(&quoted(name));
            out.push(':');
            if is_list {
                out.push('[');
            }
            match member {
                Member::Json(json) => out.push_str(json),
                Member::Node(node) => node.write(out),
            }
            if is_list {
                out.push(']');
            }
        }
        out.push('}');
    }
}
