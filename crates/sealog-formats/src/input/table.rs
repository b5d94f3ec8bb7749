//! Which field of an item becomes which field of an event.

/// The rows of an adapter.
#[derive(Debug)]
pub struct Mapping {
    pub name: &'static str,
    pub path: &'static str,
    pub rows: &'static [Row],
}

/// A field of an event, and where it comes from: the first place that has something.
#[derive(Debug)]
pub struct Row {
    pub to: &'static str,
    pub from: &'static [Place],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A member or an attribute of this name. Only a string will do.
    Named(&'static str),
    /// `type` of a CloudEvent, without the prefix that Sealog itself writes.
    CloudType,
    /// `data` of a CloudEvent, if it is an object; else an object that has it. `id`, `source` and `type` are
    /// added as `cloudevent`.
    CloudData,
    /// `eventName` of a log record.
    EventName,
    /// `timeUnixNano` of a log record, or else `observedTimeUnixNano`.
    LogTime,
    /// What a log record has beside the above: its other attributes, `body`, `severityText`, `traceId`,
    /// `spanId` and the attributes of its resource as `resource_attributes`.
    LogRest,
}

impl Place {
    /// For people.
    pub fn words(self) -> String {
        match self {
            Named(name) => format!("`{name}`"),
            CloudType => format!("`type`, without `{TYPE_PREFIX}` if it begins with it"),
            CloudData => "`data`: itself if it is an object, else as the member `data` (or `data_base64`); `id`, `source` and `type` are added as the member `cloudevent`".to_owned(),
            EventName => "`eventName`".to_owned(),
            LogTime => "`timeUnixNano`, or else `observedTimeUnixNano`".to_owned(),
            LogRest => "all other attributes; `body`, `severityText`, `traceId` and `spanId`, where they are given; the attributes of the resource as the member `resource_attributes`".to_owned(),
        }
    }
}

/// What types of events begin with that Sealog writes itself.
pub(crate) const TYPE_PREFIX: &str = "dev.sealog.";

use Place::{CloudData, CloudType, EventName, LogRest, LogTime, Named};

pub const MAPPINGS: [Mapping; 3] = [
    Mapping {
        name: "JSON",
        path: "/ingest/json",
        rows: &[
            Row { to: "action", from: &[Named("action")] },
            Row { to: "actor_id", from: &[Named("actor_id")] },
            Row { to: "resource", from: &[Named("resource")] },
            Row { to: "metadata", from: &[Named("metadata")] },
            Row { to: "severity", from: &[Named("severity")] },
            Row { to: "actor_type", from: &[Named("actor_type")] },
            Row { to: "resource_type", from: &[Named("resource_type")] },
            Row { to: "session_id", from: &[Named("session_id")] },
            Row { to: "ts_client", from: &[Named("ts_client")] },
        ],
    },
    Mapping { name: "CloudEvents 1.0", path: "/ingest/cloudevents", rows: CLOUD_EVENTS },
    Mapping { name: "OpenTelemetry logs", path: "/ingest/otlp/v1/logs", rows: LOGS },
];

pub(super) const CLOUD_EVENTS: &[Row] = &[
    Row { to: "action", from: &[Named("auditaction"), CloudType] },
    Row { to: "actor_id", from: &[Named("auditactor"), Named("authid")] },
    Row { to: "actor_type", from: &[Named("authtype")] },
    Row { to: "resource", from: &[Named("auditresource"), Named("subject")] },
    Row { to: "severity", from: &[Named("auditseverity")] },
    Row { to: "session_id", from: &[Named("auditsession")] },
    Row { to: "ts_client", from: &[Named("time")] },
    Row { to: "metadata", from: &[CloudData] },
];

pub(super) const LOGS: &[Row] = &[
    Row { to: "action", from: &[Named("audit.action"), EventName] },
    Row { to: "actor_id", from: &[Named("audit.actor"), Named("user.id")] },
    Row { to: "actor_type", from: &[Named("audit.actor_type")] },
    Row { to: "resource", from: &[Named("audit.resource")] },
    Row { to: "resource_type", from: &[Named("audit.resource_type")] },
    Row { to: "severity", from: &[Named("audit.severity")] },
    Row { to: "session_id", from: &[Named("audit.session"), Named("session.id")] },
    Row { to: "ts_client", from: &[LogTime] },
    Row { to: "metadata", from: &[LogRest] },
];

/// Whether an attribute of a log record has a row of its own: it is then no part of `metadata`.
pub(super) fn is_mapped(attribute: &str) -> bool {
    LOGS.iter().flat_map(|row| row.from).any(|place| matches!(place, Named(name) if *name == attribute))
}

#[cfg(test)]
mod tests {
    use sealog_core::event::INPUTS;

    use super::*;

    #[test]
    fn every_row_leads_to_a_field_that_a_client_may_send_and_each_at_most_once() {
        for mapping in MAPPINGS {
            for row in mapping.rows {
                assert!(INPUTS.contains(&row.to), "{}: {}", mapping.name, row.to);
                let times = mapping.rows.iter().filter(|other| other.to == row.to).count();
                assert_eq!(times, 1, "{}: {}", mapping.name, row.to);
            }
        }
    }

    /// Items of `/ingest/json` are parsed as they are: the table says what that means.
    #[test]
    fn json_has_all_fields_under_their_own_names() {
        let names: Vec<&str> = MAPPINGS[0].rows.iter().map(|row| row.to).collect();
        assert_eq!(names, INPUTS);
        for row in MAPPINGS[0].rows {
            assert_eq!(row.from, [Named(row.to)]);
        }
    }
}
