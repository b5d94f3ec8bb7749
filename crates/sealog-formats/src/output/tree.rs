//! Formats that are JSON: each row's value at its path.

use sealog_core::json::quoted;

use super::event::Event;
use super::made::Value;
use super::table::{Mapping, Row};

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

/// Where a format has what it has no place for.
const UNMAPPED: &str = "unmapped";

/// The event as one JSON object. A field whose every place is one that the format does not have for this
/// event goes to [`UNMAPPED`].
pub(super) fn object(mapping: &Mapping, event: &Event, has_room: impl Fn(&str) -> bool) -> String {
    let mut root = Node::default();
    let (kept, left): (Vec<&Row>, Vec<&Row>) = mapping.rows.iter().partition(|row| has_room(row.to));
    for row in &kept {
        if let Some(json) = row.from.value(event).map(Value::into_json) {
            root.put(row.to, json);
        }
    }
    for name in left.into_iter().filter_map(|row| row.from.field()) {
        let is_elsewhere = kept.iter().any(|row| row.from.field() == Some(name));
        if let Some(json) = event.json(name).filter(|_| !is_elsewhere) {
            root.node(UNMAPPED).put(name, json.to_owned());
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
        self.node(first).put(rest, json);
    }

    fn node(&mut self, name: &'static str) -> &mut Node {
        let known = self.members.iter().position(|(known, _)| *known == name);
        let at = known.unwrap_or_else(|| {
            self.members.push((name, Member::Node(Node::default())));
            self.members.len() - 1
        });
        match &mut self.members[at].1 {
            Member::Node(node) => node,
            Member::Json(_) => unreachable!("a test of the tables: no path is the beginning of another"),
        }
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (number, (name, member)) in self.members.iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            // `name[]` is a list of one.
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
