//! Events as ECS against the fields and values of its version 8.17.

use sealog_formats::output::{Format, render};
use serde_json::Value;

use crate::shapes;

/// Fields of the schema that events have; everything else must be beneath `sealog`, which is ours.
const FIELDS: [&str; 15] = [
    "@timestamp",
    "ecs.version",
    "event.action",
    "event.category",
    "event.hash",
    "event.id",
    "event.kind",
    "event.outcome",
    "event.provider",
    "event.sequence",
    "event.type",
    "organization.id",
    "source.geo.city_name",
    "source.geo.country_iso_code",
    "source.ip",
];
const USER: &str = "user.id";

/// The types that a category expects.
const TYPES: [(&str, &[&str]); 3] = [
    (
        "api",
        &[
            "access", "admin", "allowed", "change", "creation", "deletion", "denied", "end", "info", "start",
            "user",
        ],
    ),
    ("authentication", &["start", "end", "info"]),
    ("iam", &["admin", "change", "creation", "deletion", "group", "info", "user"]),
];

fn rendered(event: &str) -> Value {
    serde_json::from_str(&render(Format::Ecs, event).unwrap()).unwrap()
}

fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value.as_object().filter(|_| at != "sealog") {
        Some(members) => members.iter().for_each(|(name, value)| {
            paths(value, &if at.is_empty() { name.clone() } else { format!("{at}.{name}") }, found);
        }),
        None => found.push(at.to_owned()),
    }
}

#[test]
fn every_event_of_every_action_has_fields_and_values_of_the_schema() {
    for event in shapes::events() {
        let ecs = rendered(&event);
        let mut found = Vec::new();
        paths(&ecs, "", &mut found);
        for path in found.iter().filter(|path| *path != "sealog" && *path != USER) {
            assert!(FIELDS.contains(&path.as_str()), "{path}: {ecs}");
        }
        let of = &ecs["event"];
        assert_eq!(of["kind"], "event");
        assert!(["success", "failure", "unknown"].contains(&of["outcome"].as_str().unwrap()), "{ecs}");
        let categories = of["category"].as_array().unwrap();
        let types = of["type"].as_array().unwrap();
        assert_eq!(categories.len(), 1, "{ecs}");
        let (_, expected) = TYPES.iter().find(|(category, _)| categories[0] == *category).unwrap();
        assert!(
            !types.is_empty() && types.iter().all(|kind| expected.iter().any(|known| kind == known)),
            "{ecs}"
        );
    }
}

#[test]
fn category_type_and_outcome_follow_from_the_action() {
    for (category, action, metadata, expected) in [
        ("auth", "user.login", "", "authentication start success"),
        ("auth", "user.login_failed", "", "authentication start failure"),
        ("auth", "user.login", r#"{"outcome":"failure"}"#, "authentication start failure"),
        ("auth", "user.logout", "", "authentication end success"),
        ("auth", "session.revoked", "", "authentication end success"),
        ("auth", "user.password_changed", "", "iam user,change success"),
        ("auth", "auth.token_refreshed", "", "authentication info unknown"),
        ("identity", "user.created", "", "iam user,creation success"),
        ("identity", "user.suspended", "", "iam user,change success"),
        ("identity", "group.deleted", "", "iam deletion success"),
        ("identity", "group.listed", "", "iam info unknown"),
        ("access_control", "role.removed", "", "iam admin,change success"),
        ("access_control", "access.denied", "", "api denied failure"),
        ("access_control", "break_glass.activated", "", "iam info unknown"),
        ("content", "document.created", "", "api creation success"),
        ("hipaa", "hipaa.phi_accessed", r#"{"outcome":"Denied"}"#, "api access failure"),
        ("gdpr", "gdpr.data_erased", r#"{"outcome":"partly"}"#, "api deletion success"),
        ("payment", "payment.failed", "", "api info failure"),
        ("payment", "payment.processed", r#"{"outcome":"succeeded"}"#, "api info success"),
        ("backup", "backup.completed", r#"{"outcome":7}"#, "api info unknown"),
    ] {
        let shape =
            if metadata.is_empty() { "{}".to_owned() } else { format!(r#"{{"metadata":{metadata}}}"#) };
        let ecs = rendered(&shapes::event(action, Some(category), None, &shape));
        let words = |name: &str| {
            let words = ecs["event"][name].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            words.collect::<Vec<_>>().join(",")
        };
        let outcome = ecs["event"]["outcome"].as_str().unwrap();
        assert_eq!(
            format!("{} {} {outcome}", words("category"), words("type")),
            expected,
            "{action} {metadata}"
        );
    }
}
