//! Where an event is among the categories, types and outcomes of the Elastic Common Schema.

use sealog_core::catalog::{ends_with_one_of, is_failure};

use super::event::Event;
use super::meaning::{Done, done, member, verb};

const INFO: &str = "info";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Unknown,
    Success,
    Failure,
}

/// `event.category` and `event.type`: each category expects only some types.
pub(super) fn kinds(event: &Event) -> (&'static str, Vec<&'static str>) {
    let (action, verb) = (event.text("action").unwrap_or_default(), verb(event));
    let to_a_thing = match done(event) {
        Some(Done::Created) => "creation",
        Some(Done::Read) => "access",
        Some(Done::Changed) => "change",
        Some(Done::Deleted) => "deletion",
        None => INFO,
    };
    match (event.text("category").as_deref(), verb.as_str()) {
        (Some("auth"), "login" | "login_failed") => ("authentication", vec!["start"]),
        (Some("auth"), "logout" | "revoked") => ("authentication", vec!["end"]),
        (Some("auth"), "password_changed" | "mfa_enabled" | "mfa_disabled" | "locked_out")
        | (Some("identity"), "suspended") => ("iam", vec!["user", "change"]),
        (Some("auth"), _) => ("authentication", vec![INFO]),
        (Some("identity"), _) if ["access", INFO].contains(&to_a_thing) => ("iam", vec![INFO]),
        (Some("identity"), _) if action.starts_with("user.") => ("iam", vec!["user", to_a_thing]),
        (Some("identity"), _) => ("iam", vec![to_a_thing]),
        (Some("access_control"), "granted" | "assigned" | "revoked" | "removed") => {
            ("iam", vec!["admin", "change"])
        }
        _ if ends_with_one_of(&action, &["denied"]) => ("api", vec!["denied"]),
        (Some("access_control"), _) => ("iam", vec![INFO]),
        _ => ("api", vec![to_a_thing]),
    }
}

/// `metadata.outcome` if it has a word for it, then the name of the action. An action whose name says what
/// was done has succeeded; of one that the schema has no type for, nothing is claimed.
pub(super) fn outcome(event: &Event) -> Outcome {
    match member(event, "outcome").unwrap_or_default().to_lowercase().as_str() {
        "success" | "succeeded" | "successful" | "ok" | "allowed" => return Outcome::Success,
        "failure" | "failed" | "denied" | "error" | "rejected" => return Outcome::Failure,
        _ => {}
    }
    match event.text("action").unwrap_or_default() {
        action if is_failure(&action) => Outcome::Failure,
        _ if kinds(event).1 != [INFO] => Outcome::Success,
        _ => Outcome::Unknown,
    }
}
