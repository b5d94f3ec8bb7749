//! The person whom a case is about: the identifiers that mean them.

use std::collections::HashSet;

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
    lower: HashSet<String>,
}

impl Subject {
    pub fn new(ids: Vec<String>, resources: Vec<String>, mentions: Vec<String>) -> Subject {
        let all = ids.iter().chain(&resources).chain(&mentions);
        let lower = all.map(|value| value.to_ascii_lowercase()).collect();
        Subject { ids, resources, mentions, lower }
    }

    /// Values that are the person's where they stand, and mean nobody elsewhere.
    #[must_use]
    pub fn with_own<'v>(mut self, values: impl Iterator<Item = &'v str>) -> Subject {
        self.lower.extend(values.map(str::to_ascii_lowercase));
        self
    }

    /// Whether a value is one of the identifiers.
    pub fn is(&self, value: &str) -> bool {
        self.lower.contains(&value.to_ascii_lowercase())
    }

    /// Whether a resource is the person: as a whole, or by what stands behind its type.
    pub fn is_resource(&self, resource: &str) -> bool {
        self.is(resource) || resource.split_once('/').is_some_and(|(_, id)| self.is(id))
    }

    /// All of them.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().chain(&self.resources).chain(&self.mentions).map(String::as_str)
    }
}
