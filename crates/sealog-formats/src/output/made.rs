//! Values that are not simply a field of the event.

use sealog_core::json::quoted;

use super::ecs::{self, Outcome};
use super::event::{Event, plain};
use crate::input::TYPE_PREFIX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    TimeMs,
    OcsfClass,
    OcsfCategory,
    OcsfActivity,
    OcsfType,
    OcsfSeverity,
    OcsfUser,
    EcsCategory,
    EcsType,
    EcsOutcome,
    CefName,
    CefSeverity,
    CloudSource,
    CloudType,
    CloudSubject,
    CloudAuthType,
    CloudAuthId,
    CloudChainSeq,
    Whole,
}

/// A value that is ready to be written.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    /// JSON as it stands.
    Json(String),
}

impl Value {
    pub(super) fn into_json(self) -> String {
        match self {
            Value::Text(text) => quoted(&text),
            Value::Number(number) => number.to_string(),
            Value::Json(json) => json,
        }
    }

    /// For formats without types.
    pub(super) fn into_text(self) -> String {
        match self {
            Value::Text(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Json(json) => plain(&json),
        }
    }
}

const AUTHENTICATION: u64 = 3002;
const ACCOUNT_CHANGE: u64 = 3001;
const USER_ACCESS: u64 = 3005;
const API_ACTIVITY: u64 = 6003;
/// OCSF's word for an activity that its class has no number for.
const OTHER: u64 = 99;

/// By the verb of the action, which is its last part.
const ACTIVITIES: [(u64, &str, u64); 17] = [
    (AUTHENTICATION, "login", 1),
    (AUTHENTICATION, "login_failed", 1),
    (AUTHENTICATION, "logout", 2),
    (ACCOUNT_CHANGE, "created", 1),
    (ACCOUNT_CHANGE, "password_changed", 3),
    (ACCOUNT_CHANGE, "suspended", 5),
    (ACCOUNT_CHANGE, "deleted", 6),
    (ACCOUNT_CHANGE, "locked_out", 9),
    (ACCOUNT_CHANGE, "mfa_enabled", 10),
    (ACCOUNT_CHANGE, "mfa_disabled", 11),
    (USER_ACCESS, "granted", 1),
    (USER_ACCESS, "assigned", 1),
    (USER_ACCESS, "revoked", 2),
    (API_ACTIVITY, "created", 1),
    (API_ACTIVITY, "viewed", 2),
    (API_ACTIVITY, "updated", 3),
    (API_ACTIVITY, "deleted", 4),
];

/// What `authtype` may be, by the extension "Auth Context" of CloudEvents.
const AUTH_TYPES: [&str; 6] = ["app_user", "user", "service_account", "api_key", "system", "unauthenticated"];

impl Made {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Made::TimeMs => "`timestamp`, in milliseconds since 1970",
            Made::OcsfClass => "by `category`: see above",
            Made::OcsfCategory => {
                "3 (Identity & Access Management) or 6 (Application Activity), by the class"
            }
            Made::OcsfActivity => {
                "by class and the last part of `action`, such as 1 for `user.login`; 99 (Other) where the class has none"
            }
            Made::OcsfType => "`class_uid` × 100 + `activity_id`",
            Made::OcsfSeverity => "`severity`: info 1, warning 3, critical 5, another one 99, none 0",
            Made::OcsfUser => {
                "`actor_id` for Authentication, `resource` for Account Change and User Access Management"
            }
            Made::EcsCategory => {
                "`auth` is `authentication`, or `iam` where a password, a second factor or a lock changes; `identity` and `access_control` are `iam`; all others, and denied access, are `api`"
            }
            Made::EcsType => {
                "by the end of `action`: such as `start` for `user.login`, `end` for `user.logout`, `creation` for `document.created`, `user` and `deletion` for `user.deleted`; `info` where the category has no other"
            }
            Made::EcsOutcome => {
                "`metadata.outcome` if it says so; `failure` for actions that end in failed, denied, refused, rejected or blocked; `success` for others with a type; else `unknown`"
            }
            Made::CefName => "`action` in words: `user.login` is `User login`",
            Made::CefSeverity => "`severity`: info 3, warning 6, critical 9, another one or none `Unknown`",
            Made::CloudSource => "`/t/` `tenant_id` `/p/` `project_id`",
            Made::CloudType => "`dev.sealog.` and `action`",
            Made::CloudSubject => "`resource`, unless it is empty",
            Made::CloudAuthType => {
                "with an `actor_id`: `actor_type` if the extension Auth Context has it, else `unknown`"
            }
            Made::CloudAuthId => "`actor_id`, unless it is empty",
            Made::CloudChainSeq => "`chain_seq`, as a string",
            Made::Whole => "the whole event",
        }
    }

    pub(super) fn value(self, event: &Event) -> Option<Value> {
        let text = |name: &str| event.text(name);
        Some(match self {
            Made::TimeMs => Value::Number(event.timestamp_ms()?),
            Made::OcsfClass => Value::Number(class(event)),
            Made::OcsfCategory => Value::Number(class(event) / 1000),
            Made::OcsfActivity => Value::Number(activity(event)),
            Made::OcsfType => Value::Number(class(event) * 100 + activity(event)),
            Made::OcsfSeverity => Value::Number(match text("severity").as_deref() {
                None => 0,
                Some("info") => 1,
                Some("warning") => 3,
                Some("critical") => 5,
                Some(_) => OTHER,
            }),
            Made::OcsfUser => match class(event) {
                AUTHENTICATION => Value::Text(text("actor_id")?),
                ACCOUNT_CHANGE | USER_ACCESS => Value::Text(text("resource")?),
                _ => return None,
            },
            Made::EcsCategory => list(&[ecs::kinds(event).0]),
            Made::EcsType => list(&ecs::kinds(event).1),
            Made::EcsOutcome => Value::Text(
                match ecs::outcome(event) {
                    Outcome::Unknown => "unknown",
                    Outcome::Success => "success",
                    Outcome::Failure => "failure",
                }
                .to_owned(),
            ),
            Made::CefName => Value::Text(in_words(&text("action")?)),
            Made::CefSeverity => Value::Text(
                match text("severity").as_deref() {
                    Some("info") => "3",
                    Some("warning") => "6",
                    Some("critical") => "9",
                    _ => "Unknown",
                }
                .to_owned(),
            ),
            Made::CloudSource => Value::Text(format!("/t/{}/p/{}", text("tenant_id")?, text("project_id")?)),
            Made::CloudType => Value::Text(printable(&format!("{TYPE_PREFIX}{}", text("action")?))),
            Made::CloudSubject => Value::Text(printable(&text("resource").filter(|text| !text.is_empty())?)),
            Made::CloudAuthType => {
                text("actor_id").filter(|text| !text.is_empty())?;
                let known = text("actor_type").filter(|kind| AUTH_TYPES.contains(&kind.as_str()));
                Value::Text(known.unwrap_or_else(|| "unknown".into()))
            }
            Made::CloudAuthId => Value::Text(printable(&text("actor_id").filter(|text| !text.is_empty())?)),
            Made::CloudChainSeq => Value::Text(text("chain_seq")?),
            Made::Whole => Value::Json(event.whole().to_owned()),
        })
    }
}

fn class(event: &Event) -> u64 {
    match event.text("category").as_deref() {
        Some("auth") => AUTHENTICATION,
        Some("identity") => ACCOUNT_CHANGE,
        Some("access_control") => USER_ACCESS,
        _ => API_ACTIVITY,
    }
}

fn activity(event: &Event) -> u64 {
    let (class, action) = (class(event), event.text("action").unwrap_or_default());
    let verb = action.rsplit('.').next().unwrap_or("");
    ACTIVITIES.iter().find(|(of, known, _)| *of == class && *known == verb).map_or(OTHER, |(_, _, id)| *id)
}

fn list(words: &[&str]) -> Value {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    Value::Json(format!("[{}]", words.join(",")))
}

fn in_words(action: &str) -> String {
    let words = action.replace(['.', '_'], " ");
    let mut characters = words.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => words,
    }
}

/// Attributes of CloudEvents have no control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
