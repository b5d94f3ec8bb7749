//! Which field of an event becomes which field of another format.

use super::event::Event;
use super::made::{Made, Value};

/// The rows of a format.
#[derive(Debug)]
pub struct Mapping {
    pub name: &'static str,
    pub about: &'static str,
    pub rows: &'static [Row],
}

#[derive(Debug)]
pub struct Row {
    /// A path: `a.b` is the member `b` of `a`, `a[].b` that of the one item of `a`, and `a[]` that item.
    pub to: &'static str,
    pub from: Origin,
}

/// Where a value comes from. A row without one is left out.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// A field of the event, as it stands there.
    Field(&'static str),
    /// The same for all events.
    Text(&'static str),
    Made(Made),
}

impl Origin {
    pub(super) fn value(self, event: &Event) -> Option<Value> {
        match self {
            Field(name) => event.json(name).map(|json| Value::Json(json.to_owned())),
            Text(text) => Some(Value::Text(text.to_owned())),
            Origin::Made(made) => made.value(event),
        }
    }

    /// The field of the event that it writes, if it is one.
    pub(super) fn field(self) -> Option<&'static str> {
        match self {
            Field(name) => Some(name),
            Origin::Made(Made::OcsfActorTypeName) => Some("actor_type"),
            _ => None,
        }
    }

    /// For people.
    pub fn words(self) -> String {
        match self {
            Field(name) => format!("`{name}`"),
            Text(text) => format!("always `{text}`"),
            Origin::Made(made) => made.words().to_owned(),
        }
    }
}

use Origin::{Field, Text};

const fn made(to: &'static str, made: Made) -> Row {
    Row { to, from: Origin::Made(made) }
}

const fn field(to: &'static str, name: &'static str) -> Row {
    Row { to, from: Field(name) }
}

const fn text(to: &'static str, text: &'static str) -> Row {
    Row { to, from: Text(text) }
}

pub(super) const OCSF: Mapping = Mapping {
    name: "OCSF 1.5",
    about: "The class follows from the category: `auth` is Authentication (3002) for `login`, `login_failed` and `logout`, and Account Change (3001) for `password_changed`, `mfa_enabled`, `mfa_disabled` and `locked_out`; `identity` is Account Change; `access_control` is User Access Management (3005) for `granted`, `assigned`, `revoked` and `removed`. Everything else is API Activity (6003). These classes demand a user, a privilege, or an actor and an address: an event without them is API Activity, or, if that demands more than it has too, Base Event (0). No profile is used. Rows that the class of an event has no room for are left out; their fields are then under `unmapped`, by their own names.",
    rows: &[
        made("class_uid", Made::OcsfClass),
        made("category_uid", Made::OcsfCategory),
        made("activity_id", Made::OcsfActivity),
        made("activity_name", Made::OcsfActivityName),
        made("type_uid", Made::OcsfType),
        made("severity_id", Made::OcsfSeverity),
        made("severity", Made::OcsfSeverityName),
        made("status_id", Made::OcsfStatus),
        made("status", Made::OcsfStatusName),
        made("time", Made::TimeMs),
        text("metadata.version", "1.5.0"),
        text("metadata.product.name", "Sealog"),
        text("metadata.product.vendor_name", "Sealog"),
        field("metadata.event_code", "action"),
        field("metadata.uid", "log_id"),
        field("metadata.sequence", "chain_seq"),
        field("metadata.tenant_uid", "tenant_id"),
        field("metadata.original_time", "ts_client"),
        field("actor.user.uid", "actor_id"),
        made("actor.user.type_id", Made::OcsfActorType),
        made("actor.user.type", Made::OcsfActorTypeName),
        field("actor.session.uid", "session_id"),
        made("user.uid", Made::OcsfUser),
        made("privileges[]", Made::OcsfPrivilege),
        field("service.uid", "project_id"),
        field("api.operation", "action"),
        field("resources[].uid", "resource"),
        field("resources[].type", "resource_type"),
        field("src_endpoint.ip", "ip_address"),
        field("src_endpoint.location.country", "country"),
        field("src_endpoint.location.city", "city"),
        field("unmapped.project_id", "project_id"),
        field("unmapped.schema_version", "schema_version"),
        field("unmapped.category", "category"),
        field("unmapped.metadata", "metadata"),
        field("unmapped.prev_hash", "prev_hash"),
        field("unmapped.hash", "hash"),
    ],
};

pub(super) const ECS: Mapping = Mapping {
    name: "Elastic Common Schema 8",
    about: "What the schema has no field for is beneath `sealog`. `sealog.metadata` holds anything: give it the type `flattened` in Elasticsearch.",
    rows: &[
        field("@timestamp", "timestamp"),
        text("ecs.version", "8.17.0"),
        text("event.kind", "event"),
        text("event.provider", "sealog"),
        field("event.id", "log_id"),
        field("event.action", "action"),
        made("event.category", Made::EcsCategory),
        made("event.type", Made::EcsType),
        made("event.outcome", Made::EcsOutcome),
        field("event.sequence", "chain_seq"),
        field("event.hash", "hash"),
        field("user.id", "actor_id"),
        field("source.ip", "ip_address"),
        field("source.geo.country_iso_code", "country"),
        field("source.geo.city_name", "city"),
        field("organization.id", "tenant_id"),
        field("sealog.project_id", "project_id"),
        field("sealog.schema_version", "schema_version"),
        field("sealog.category", "category"),
        field("sealog.severity", "severity"),
        field("sealog.actor_type", "actor_type"),
        field("sealog.resource", "resource"),
        field("sealog.resource_type", "resource_type"),
        field("sealog.session_id", "session_id"),
        field("sealog.ts_client", "ts_client"),
        field("sealog.prev_hash", "prev_hash"),
        field("sealog.metadata", "metadata"),
    ],
};

/// The first seven are the header, in its order.
pub(super) const CEF: Mapping = Mapping {
    name: "CEF:0",
    about: "The first seven rows are the header, the others the extension. In the header `\\` and `|` are escaped, in the extension `\\`, `=` and line ends.",
    rows: &[
        text("CEF", "0"),
        text("Device Vendor", "Sealog"),
        text("Device Product", "Sealog"),
        field("Device Version", "schema_version"),
        field("Device Event Class ID", "action"),
        made("Name", Made::CefName),
        made("Severity", Made::CefSeverity),
        made("rt", Made::TimeMs),
        field("externalId", "log_id"),
        field("suid", "actor_id"),
        field("src", "ip_address"),
        field("cat", "category"),
        field("cn1", "chain_seq"),
        text("cn1Label", "chain_seq"),
        field("cs1", "hash"),
        text("cs1Label", "hash"),
        field("cs2", "prev_hash"),
        text("cs2Label", "prev_hash"),
        field("cs3", "resource"),
        text("cs3Label", "resource"),
        field("cs4", "tenant_id"),
        text("cs4Label", "tenant_id"),
        field("cs5", "project_id"),
        text("cs5Label", "project_id"),
        field("cs6", "metadata"),
        text("cs6Label", "metadata"),
    ],
};

pub(super) const CLOUD_EVENTS: Mapping = Mapping {
    name: "CloudEvents 1.0",
    about: "One event for each line, in structured mode. `data` is the whole event, byte for byte, so that its hash can be recomputed. `chainseq` is a string, because numbers of CloudEvents have 32 bits. Attributes have no control characters: each is U+FFFD there, and itself in `data`.",
    rows: &[
        text("specversion", "1.0"),
        field("id", "log_id"),
        made("source", Made::CloudSource),
        made("type", Made::CloudType),
        made("subject", Made::CloudSubject),
        field("time", "timestamp"),
        made("authtype", Made::CloudAuthType),
        made("authid", Made::CloudAuthId),
        made("chainseq", Made::CloudChainSeq),
        field("chainhash", "hash"),
        text("datacontenttype", "application/json"),
        made("data", Made::Whole),
    ],
};

#[cfg(test)]
mod tests {
    use sealog_core::event::FIELDS;

    use super::*;

    const ALL: [Mapping; 4] = [OCSF, ECS, CEF, CLOUD_EVENTS];

    #[test]
    fn every_row_comes_from_a_field_of_events_and_leads_to_a_place_of_its_own() {
        for mapping in ALL {
            for row in mapping.rows {
                if let Field(name) = row.from {
                    assert!(FIELDS.iter().any(|field| field.name == name), "{}: {name}", mapping.name);
                }
                let times = mapping.rows.iter().filter(|other| other.to == row.to).count();
                assert_eq!(times, 1, "{}: {}", mapping.name, row.to);
                let within = format!("{}.", row.to);
                let holds = mapping.rows.iter().any(|other| other.to.starts_with(&within));
                assert!(!holds, "{}: {} is a value and an object", mapping.name, row.to);
            }
        }
    }

    #[test]
    fn attributes_of_cloudevents_are_lower_case_letters_and_digits_and_at_most_20() {
        for row in CLOUD_EVENTS.rows {
            let fine = row.to.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            assert!(fine && row.to.len() <= 20, "{}", row.to);
        }
    }

    /// Nothing that is needed to verify an event gets lost on the way.
    #[test]
    fn every_hashed_field_is_somewhere_in_every_format() {
        for mapping in ALL {
            for name in
                ["log_id", "tenant_id", "action", "actor_id", "resource", "metadata", "hash", "prev_hash"]
            {
                let is_there = mapping.rows.iter().any(|row| match row.from {
                    Field(known) => known == name,
                    Origin::Made(Made::Whole) => true,
                    _ => false,
                });
                assert!(is_there, "{}: {name}", mapping.name);
            }
        }
    }
}
