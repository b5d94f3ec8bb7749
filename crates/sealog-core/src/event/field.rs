//! The fields of an event: one row each, in the order in which reads return them. Whatever handles fields
//! one by one reads this table: parsing, rows of the stores, searches, exports, imports, masks, packages,
//! flags of commands and the documentation.

use std::borrow::Cow;
use std::sync::Arc;

use Part::{Annotation, Hashed, Seal};
use Shown::{InText, Listed, Never};

/// What is known of a field.
#[derive(Debug)]
pub struct Field {
    pub id: FieldId,
    pub name: &'static str,
    pub part: Part,
    /// A client may send it.
    pub is_input: bool,
    /// Its place among the columns of a CSV export.
    pub csv: usize,
    /// What a search calls it, with an example, if it compares the value as text.
    pub search: Option<(&'static str, &'static str)>,
    /// Whether a package for a data subject has it.
    pub shown: Shown,
    /// Where a person was or what they used, which a package masks in events of other people.
    pub is_trace: bool,
    /// For people.
    pub label: &'static str,
    /// What a client puts there, in the help of commands.
    pub help: &'static str,
}

/// Which part of a stored event has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The service makes it, and every event has it.
    Seal,
    /// The text that the hash covers.
    Hashed,
    /// Beside the hashed text: a field of [`Annotations`].
    Annotation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Never,
    /// In files for programs. For people it is part of a sentence, or says nothing.
    InText,
    Listed,
}

/// A field, by its place in [`FIELDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldId {
    LogId,
    TenantId,
    ProjectId,
    SchemaVersion,
    Action,
    Category,
    Severity,
    ActorId,
    ActorType,
    Resource,
    ResourceType,
    SessionId,
    TsClient,
    IpAddress,
    Country,
    City,
    Metadata,
    Timestamp,
    ChainSeq,
    PrevHash,
    Hash,
}

impl Field {
    /// Every event has it.
    pub fn is_always_there(&self) -> bool {
        self.part == Seal || self.id == FieldId::Action
    }
}

impl FieldId {
    pub const fn field(self) -> &'static Field {
        &FIELDS[self as usize]
    }
}

const fn made(id: FieldId, name: &'static str, csv: usize) -> Field {
    Field {
        id,
        name,
        part: Seal,
        is_input: false,
        csv,
        search: None,
        shown: Never,
        is_trace: false,
        label: "",
        help: "",
    }
}

#[rustfmt::skip]
pub static FIELDS: [Field; 21] = [
    made(FieldId::LogId, "log_id", 1),
    made(FieldId::TenantId, "tenant_id", 17),
    made(FieldId::ProjectId, "project_id", 18),
    made(FieldId::SchemaVersion, "schema_version", 16),
    Field { id: FieldId::Action, name: "action", part: Hashed, is_input: true, csv: 3, search: Some(("action:", "user.login or user.*")), shown: Never, is_trace: false, label: "Action", help: "What happened: an action of the catalog, like user.login" },
    Field { id: FieldId::Category, name: "category", part: Annotation, is_input: false, csv: 8, search: Some(("category:", "auth")), shown: Never, is_trace: false, label: "Category", help: "" },
    Field { id: FieldId::Severity, name: "severity", part: Annotation, is_input: true, csv: 9, search: None, shown: Never, is_trace: false, label: "Severity", help: "Severity instead of the catalog's: info, warning or critical" },
    Field { id: FieldId::ActorId, name: "actor_id", part: Hashed, is_input: true, csv: 4, search: Some(("actor:", "usr_42")), shown: Listed, is_trace: false, label: "Who", help: "Actor who did it" },
    Field { id: FieldId::ActorType, name: "actor_type", part: Annotation, is_input: true, csv: 5, search: Some(("actor_type:", "service")), shown: InText, is_trace: false, label: "Kind of actor", help: "Type of the actor, such as user or service" },
    Field { id: FieldId::Resource, name: "resource", part: Hashed, is_input: true, csv: 6, search: Some(("resource:", "document/9 or document/*")), shown: Listed, is_trace: false, label: "Record", help: "Resource it was done to, such as document/42" },
    Field { id: FieldId::ResourceType, name: "resource_type", part: Annotation, is_input: true, csv: 7, search: Some(("resource_type:", "document")), shown: InText, is_trace: false, label: "Kind of record", help: "Type of the resource, instead of the part before its first slash" },
    Field { id: FieldId::SessionId, name: "session_id", part: Annotation, is_input: true, csv: 10, search: Some(("session:", "ses_7")), shown: Listed, is_trace: true, label: "Session", help: "Session it was done in" },
    Field { id: FieldId::TsClient, name: "ts_client", part: Annotation, is_input: true, csv: 11, search: None, shown: InText, is_trace: false, label: "Time at the sender", help: "Client time of the event in ISO 8601" },
    Field { id: FieldId::IpAddress, name: "ip_address", part: Annotation, is_input: false, csv: 12, search: None, shown: Listed, is_trace: true, label: "Network address", help: "" },
    Field { id: FieldId::Country, name: "country", part: Annotation, is_input: false, csv: 13, search: Some(("country:", "FR")), shown: Listed, is_trace: true, label: "Country", help: "" },
    Field { id: FieldId::City, name: "city", part: Annotation, is_input: false, csv: 14, search: Some(("city:", "Paris")), shown: Listed, is_trace: true, label: "City", help: "" },
    Field { id: FieldId::Metadata, name: "metadata", part: Hashed, is_input: true, csv: 15, search: None, shown: Listed, is_trace: false, label: "Details", help: "A JSON object" },
    made(FieldId::Timestamp, "timestamp", 2),
    made(FieldId::ChainSeq, "chain_seq", 0),
    made(FieldId::PrevHash, "prev_hash", 19),
    made(FieldId::Hash, "hash", 20),
];

/// The columns of a CSV export, in their order.
pub static CSV_COLUMNS: [&Field; FIELDS.len()] = {
    let (mut columns, mut at) = ([&FIELDS[0]; FIELDS.len()], 0);
    while at < FIELDS.len() {
        columns[FIELDS[at].csv] = &FIELDS[at];
        at += 1;
    }
    columns
};

/// The first line of a CSV export, without its end.
pub fn csv_header() -> String {
    CSV_COLUMNS.map(|field| field.name).join(",")
}

macro_rules! annotations {
    ($($(#[$about:meta])* $name:ident: $kind:ty,)*) => {
        /// Fields outside the canonical payload. They are never hashed.
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct Annotations {
            $($(#[$about])* pub $name: Option<$kind>,)*
        }

        impl Annotations {
            /// The fields in the order in which stores keep them, which is that of [`FIELDS`].
            pub const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

            /// In the order of [`Annotations::NAMES`].
            pub fn values(&self) -> [Option<&str>; Annotations::NAMES.len()] {
                [$(self.$name.as_deref()),*]
            }

            /// The other way round.
            pub fn from_values(values: [Option<&str>; Annotations::NAMES.len()]) -> Annotations {
                let [$($name),*] = values;
                Annotations { $($name: $name.map(|text| <$kind>::from(text.to_owned()))),* }
            }
        }
    };
}

annotations! {
    /// Usually borrowed from the catalog, which lives as long as the program.
    category: Cow<'static, str>,
    severity: Cow<'static, str>,
    actor_type: Box<str>,
    resource_type: Box<str>,
    session_id: Box<str>,
    ts_client: Box<str>,
    /// The same for all events of a request.
    ip_address: Arc<str>,
    country: Arc<str>,
    city: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_stands_where_its_id_says_and_has_a_column_of_its_own() {
        for (place, field) in FIELDS.iter().enumerate() {
            assert_eq!(field.id as usize, place, "{}", field.name);
        }
        let columns = CSV_COLUMNS.map(|field| field.name);
        for field in &FIELDS {
            assert_eq!(columns.iter().filter(|name| **name == field.name).count(), 1, "{}", field.name);
        }
    }

    #[test]
    fn annotations_are_the_rows_that_say_so() {
        let rows = FIELDS.iter().filter(|field| field.part == Annotation).map(|field| field.name);
        assert_eq!(rows.collect::<Vec<_>>(), Annotations::NAMES);
    }

    #[test]
    fn a_field_that_a_client_sends_has_a_help_and_one_that_people_see_has_a_label() {
        for field in &FIELDS {
            assert!(!field.is_input || !field.help.is_empty(), "{}", field.name);
            assert!(field.part == Seal || !field.label.is_empty(), "{}", field.name);
        }
    }
}
