//! Objects of JSON, member by member, and the text of an object as it is written.

use sealog_core::json::{self, Members};

/// The value of a member of a canonical object, as canonical text: the last one, where a name stands twice.
/// `null` is nothing.
pub(super) fn member<'a>(canonical_object: &'a str, name: &str) -> Option<&'a str> {
    let mut members =
        Members::of(canonical_object).filter(|(key, _)| is_key(key, name)).map(|(_, value)| value);
    let mut found = members.next()?;
    for later in members {
        found = later;
    }
    (found != "null").then_some(found)
}

fn is_key(canonical_key: &str, name: &str) -> bool {
    // Canonical text has one spelling of each name, and these need no escape.
    &canonical_key[1..canonical_key.len() - 1] == name
}

/// An object that is written member by member.
#[derive(Debug)]
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn new() -> Object {
        Object(vec![b'{'])
    }

    /// From a canonical object, to which something is added.
    pub(super) fn with(canonical_object: &str) -> Object {
        Object(canonical_object.as_bytes()[..canonical_object.len() - 1].to_vec())
    }

    /// A member whose value is JSON already.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        json::put_string(name, &mut self.0);
        self.0.push(b':');
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(super) fn put_text(&mut self, name: &str, value: &str) {
        self.put(name, &json::quoted(value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    pub(super) fn end(mut self) -> String {
        self.0.push(b'}');
        String::from_utf8(self.0).unwrap_or_default()
    }
}
