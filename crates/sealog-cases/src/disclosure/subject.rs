//! The person whom a case is about: the identifiers that mean them.

use std::collections::{HashMap, HashSet};

use super::fold;

/// Members of `metadata` that name whom an event is about. The first ones are those of the catalog.
pub const SUBJECT_FIELDS: [&str; 9] = [
    "data_subject_id",
    "patient_id",
    "consumer_id",
    "user_id",
    "customer_id",
    "subject_id",
    "person_id",
    "member_id",
    "employee_id",
];

/// Identifiers that mean one person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// What the person is called as an actor and in fields.
    pub ids: Vec<String>,
    /// Resources that are the person, whole (`patient/9`).
    pub resources: Vec<String>,
    /// Texts that mean the person where they stand in metadata, such as a digest of an address.
    pub mentions: Vec<String>,
    /// Values that mean the person at one path of the metadata, and nobody elsewhere: `card.owner = 1001`
    /// says nothing of an actor 1001 or of `order/1001`.
    pub paths: Vec<(String, String)>,
    keys: HashSet<Vec<u8>>,
    keys_at: HashMap<String, HashSet<Vec<u8>>>,
}

impl Subject {
    pub fn new(ids: Vec<String>, resources: Vec<String>, mentions: Vec<String>) -> Subject {
        let all = ids.iter().chain(&resources).chain(&mentions);
        let keys = all.map(|value| fold::key(value)).collect();
        Subject { ids, resources, mentions, paths: Vec::new(), keys, keys_at: HashMap::new() }
    }

    /// With values at paths, which stand below `metadata`.
    #[must_use]
    pub fn with_paths(mut self, paths: Vec<(String, String)>) -> Subject {
        for (path, value) in &paths {
            self.keys_at.entry(path.clone()).or_default().insert(fold::key(value));
        }
        self.paths = paths;
        self
    }

    /// Whether a value is one of the identifiers, wherever it stands. Those of paths are not: see
    /// [`Subject::is_at`].
    pub fn is(&self, value: &str) -> bool {
        self.keys.contains(&fold::key(value))
    }

    /// Whether a value is the person's at this path of an event (`metadata.cards[0].owner`).
    pub fn is_at(&self, path: &str, value: &str) -> bool {
        if self.keys_at.is_empty() {
            return false;
        }
        let Some(inner) = path.strip_prefix("metadata.") else { return false };
        self.keys_at.get(&without_places(inner)).is_some_and(|keys| keys.contains(&fold::key(value)))
    }

    /// Whether a resource is the person: as a whole, or by what stands behind its type.
    pub fn is_resource(&self, resource: &str) -> bool {
        self.is(resource) || resource.split_once('/').is_some_and(|(_, id)| self.is(id))
    }

    /// All of them that mean the person wherever they stand.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().chain(&self.resources).chain(&self.mentions).map(String::as_str)
    }
}

/// `cards[0].owner` is at the path `cards.owner`, whichever item it is in.
fn without_places(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('[') {
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + 1 + digits;
        let is_place = digits > 0 && rest[end..].starts_with(']');
        let taken = if is_place { end + 1 } else { at + 1 };
        out.push_str(if is_place { &rest[..at] } else { &rest[..taken] });
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_path_is_the_persons_there_in_any_item_and_nowhere_else() {
        let subject = Subject::default().with_paths(vec![("card.owner".into(), "Müller".into())]);
        assert!(
            subject.is_at("metadata.card.owner", "MÜLLER")
                && subject.is_at("metadata.card[3].owner[0]", "müller")
        );
        assert!(!subject.is_at("metadata.owner", "Müller") && !subject.is_at("card.owner", "Müller"));
        assert!(!subject.is("Müller") && !subject.is_resource("order/Müller"));
        assert_eq!(without_places("a[0][12].b[x].c[7"), "a.b[x].c[7");
    }
}
