//! Which events are by a person, on a person, or name them.

use sealog_control::case_found::{ADDED, BY_PERSON, MENTION, ON_PERSON};
use sealog_control::{Identifier, IdentifierKind};
use sealog_core::event::StoredEvent;
use sealog_core::json;
use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;

use super::hidden_values::{HiddenValues, ValueKind};
use super::node::{EventView, Node};
use super::subject::{SUBJECT_FIELDS, Subject};
use super::words;

/// Looks at events for one person.
#[derive(Clone, Debug)]
pub struct Finder {
    pub subject: Subject,
    /// The identifiers as texts hold them, and as stored text does, with its escapes.
    values: HiddenValues,
    stored: HiddenValues,
}

impl Finder {
    pub fn new(identifiers: &[Identifier]) -> Finder {
        let of = |kinds: &[IdentifierKind]| -> Vec<String> {
            let known = identifiers.iter().filter(|known| kinds.contains(&known.kind));
            known.map(|known| known.value.clone()).collect()
        };
        let subject = Subject::new(
            of(&[IdentifierKind::ActorId]),
            of(&[IdentifierKind::Resource]),
            of(&[IdentifierKind::Mention, IdentifierKind::EmailHash]),
        );
        let own = |value: String| (value, ValueKind::Own);
        let escaped = |value: &str| {
            let mut out = Vec::new();
            json::put_string(value, &mut out);
            let text = String::from_utf8_lossy(&out).into_owned();
            own(text[1..text.len() - 1].to_owned())
        };
        let at_path = identifiers.iter().filter(|known| known.kind == IdentifierKind::Metadata);
        let paths: Vec<(String, String)> =
            at_path.filter_map(|known| Some((known.path.clone()?, known.value.clone()))).collect();
        let subject = subject.with_paths(paths);
        let all = subject.values().chain(subject.paths.iter().map(|(_, value)| value.as_str()));
        Finder {
            stored: HiddenValues::new(all.map(escaped)),
            values: HiddenValues::new(subject.values().map(|value| own(value.to_owned()))),
            subject,
        }
    }

    /// What indexes can be asked for: most of what is by the person or on them.
    pub fn filters(&self) -> Vec<Filter> {
        let canonical = |value: &str| {
            let mut out = Vec::new();
            json::put_string(value, &mut out);
            Some(String::from_utf8_lossy(&out).into_owned())
        };
        let mut filters = Vec::new();
        for id in &self.subject.ids {
            filters.push(Filter { actor_id: canonical(id), ..Filter::default() });
        }
        for resource in &self.subject.resources {
            filters.push(Filter { resource: canonical(resource), ..Filter::default() });
        }
        let fields = self.subject.ids.iter().flat_map(|id| SUBJECT_FIELDS.map(|name| (name, id.as_str())));
        let at_path = self.subject.paths.iter().filter(|(path, _)| !path.contains('.'));
        let at_path = at_path.map(|(path, value)| (path.as_str(), value.as_str()));
        for (name, value) in fields.chain(at_path) {
            filters.push(Filter { fields: vec![FieldIs::new(name, value)], ..Filter::default() });
        }
        filters
    }

    /// Whether an event can be one of theirs, told from its text alone: of most it can be said quickly that
    /// it is not.
    pub fn is_possible(&self, event: &StoredEvent) -> bool {
        self.stored.finds_anywhere(event.text.as_str())
    }

    /// The kinds in which the event is one of theirs; 0 if it is not.
    pub fn kinds(&self, view: &EventView) -> u8 {
        let mut kinds = 0;
        if view.text_of("actor_id").is_some_and(|actor| self.subject.is(actor)) {
            kinds |= BY_PERSON;
        }
        if view.text_of("resource").is_some_and(|resource| self.subject.is_resource(resource)) {
            kinds |= ON_PERSON;
        }
        let Some(metadata) = view.field("metadata") else { return kinds };
        let mut kinds_in_metadata = 0;
        metadata.leaves("metadata", &mut |path, node| kinds_in_metadata |= self.leaf_kind(path, node));
        if kinds_in_metadata & MENTION == 0 && self.has_name(metadata) {
            kinds_in_metadata |= MENTION;
        }
        kinds | kinds_in_metadata
    }

    fn leaf_kind(&self, path: &str, node: &Node) -> u8 {
        // Its text is as it is stored. Rather one event too many than one too few: nothing of this is
        // disclosed.
        if let Node::Oversized(text) = node {
            return if self.stored.finds_anywhere(text) { MENTION } else { 0 };
        }
        let Some(value) = node.scalar() else { return 0 };
        let name = path.rsplit('.').next().unwrap_or(path).split('[').next().unwrap_or(path);
        let is_field = SUBJECT_FIELDS.contains(&name.to_ascii_lowercase().as_str());
        if (is_field && self.values.kind(value).is_some()) || self.subject.is_at(path, value) {
            ON_PERSON
        } else if self.values.finds(value) {
            MENTION
        } else {
            0
        }
    }

    /// Whether a member is called by one of the identifiers.
    fn has_name(&self, node: &Node) -> bool {
        match node {
            Node::Object(members) => {
                members.iter().any(|(name, value)| self.values.finds(name) || self.has_name(value))
            }
            Node::List(items) => items.iter().any(|item| self.has_name(item)),
            Node::Text(_) | Node::Literal(_) | Node::Masked(_) | Node::Oversized(_) => false,
        }
    }
}

/// In words for the person.
pub fn kinds_for_person(found: u8) -> String {
    let words = [
        (BY_PERSON, "you did it"),
        (ON_PERSON, "it concerns you"),
        (MENTION, "it mentions you"),
        (ADDED, "we believe that it is about you"),
    ];
    let said: Vec<&str> = words.iter().filter(|(bit, _)| found & bit != 0).map(|(_, words)| *words).collect();
    words::capital(&said.join("; "))
}

/// In words for reviewers.
pub fn kinds_for_reviewer(found: u8) -> String {
    let words = [
        (BY_PERSON, "By the person"),
        (ON_PERSON, "On the person"),
        (MENTION, "Mention"),
        (ADDED, "Added by hand"),
    ];
    let said: Vec<&str> = words.iter().filter(|(bit, _)| found & bit != 0).map(|(_, words)| *words).collect();
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::masks::tests::view;
    use super::*;

    fn identifier(kind: IdentifierKind, path: Option<&str>, value: &str) -> Identifier {
        Identifier { kind, path: path.map(str::to_owned), value: value.into(), source: "test".into() }
    }

    fn finder() -> Finder {
        Finder::new(&[
            identifier(IdentifierKind::ActorId, None, "p-20931"),
            identifier(IdentifierKind::Resource, None, "patient/p-20931"),
            identifier(IdentifierKind::Metadata, Some("card.owner"), "77"),
            identifier(IdentifierKind::Mention, None, "Jane \"J\" Doe"),
        ])
    }

    #[test]
    fn an_event_is_found_by_who_did_it_whom_it_is_on_and_who_is_named() {
        for (body, expected) in [
            (r#"{"action":"a","actor_id":"P-20931"}"#, BY_PERSON),
            (r#"{"action":"a","resource":"patient/p-20931"}"#, ON_PERSON),
            (r#"{"action":"a","resource":"account/p-20931"}"#, ON_PERSON),
            (r#"{"action":"a","metadata":{"patient_id":"p-20931"}}"#, ON_PERSON),
            (r#"{"action":"a","metadata":{"in":{"data_subject_id":["x","p-20931"]}}}"#, ON_PERSON),
            (r#"{"action":"a","metadata":{"card":{"owner":77}}}"#, ON_PERSON),
            (r#"{"action":"a","metadata":{"card":[{"owner":77}]}}"#, ON_PERSON),
            (r#"{"action":"a","actor_id":"77","resource":"order/77","metadata":{"user_id":"77"}}"#, 0),
            (r#"{"action":"a","metadata":{"note":"seen p-20931 today"}}"#, MENTION),
            (r#"{"action":"a","metadata":{"n":"by Jane \"J\" Doe"}}"#, MENTION),
            (r#"{"action":"a","metadata":{"shared":{"p-20931":true}}}"#, MENTION),
            (r#"{"action":"a","actor_id":"p-20931","metadata":{"user_id":"p-20931","note":"p-20931"}}"#, 7),
            (r#"{"action":"a","actor_id":"p-2093","metadata":{"n":"77"}}"#, 0),
            (r#"{"action":"a","actor_id":"p-2093","metadata":{"n":"177"}}"#, 0),
        ] {
            assert_eq!(finder().kinds(&view(body)), expected, "{body}");
        }
    }

    #[test]
    fn what_cannot_be_theirs_is_told_from_the_stored_text_and_nothing_of_theirs_is_passed_over() {
        let event = |body: &str| super::super::masks::tests::event(body);
        for (body, expected) in [
            (r#"{"action":"a","metadata":{"n":"by Jane \"J\" Doe"}}"#, true),
            (r#"{"action":"a","metadata":{"n":"P-20931"}}"#, true),
            (r#"{"action":"a","actor_id":"somebody"}"#, false),
        ] {
            assert_eq!(finder().is_possible(&event(body)), expected, "{body}");
        }
    }

    #[test]
    fn indexes_are_asked_for_actors_resources_and_known_fields() {
        let filters = finder().filters();
        assert!(filters.iter().any(|filter| filter.actor_id.as_deref() == Some("\"p-20931\"")));
        assert!(filters.iter().any(|filter| filter.resource.as_deref() == Some("\"patient/p-20931\"")));
        assert!(filters.iter().any(|filter| filter.fields == [FieldIs::new("patient_id", "p-20931")]));
    }
}
