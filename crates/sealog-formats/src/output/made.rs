//! Values that are not simply a field of the event.

use sealog_core::json::quoted;

use super::ecs::{self, Outcome};
use super::event::{Event, plain};
use super::ocsf;
use crate::input::TYPE_PREFIX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    TimeMs,
    OcsfClass,
    OcsfCategory,
    OcsfActivity,
    OcsfActivityName,
    OcsfType,
    OcsfSeverity,
    OcsfSeverityName,
    OcsfStatus,
    OcsfStatusName,
    OcsfActorType,
    OcsfActorTypeName,
    OcsfUser,
    OcsfPrivilege,
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

/// What `authtype` may be, by the extension "Auth Context" of CloudEvents.
const AUTH_TYPES: [&str; 6] = ["app_user", "user", "service_account", "api_key", "system", "unauthenticated"];

impl Made {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Made::TimeMs => "`timestamp`, in milliseconds since 1970",
            Made::OcsfClass => "see above",
            Made::OcsfCategory => {
                "3 (Identity & Access Management), 6 (Application Activity) or 0, by the class"
            }
            Made::OcsfActivity => {
                "by class and the end of `action`, such as 1 for `user.login`; 99 where the class has none"
            }
            Made::OcsfActivityName => "the schema's name of `activity_id`; for 99, `action`",
            Made::OcsfType => "`class_uid` × 100 + `activity_id`",
            Made::OcsfSeverity => "`severity`: info 1, warning 3, critical 5, another one 99, none 0",
            Made::OcsfSeverityName => "the schema's name of `severity_id`; for 99, `severity`",
            Made::OcsfStatus => "as `event.outcome` of ECS: success 1, failure 2, unknown 0",
            Made::OcsfStatusName => "the schema's name of `status_id`",
            Made::OcsfActorType => "`actor_type`: user 1, admin 2, system 3, another one 99",
            Made::OcsfActorTypeName => "the schema's name of `type_id`; for 99, `actor_type`",
            Made::OcsfUser => {
                "Authentication: `actor_id`. Account Change: `resource` if it is a user or account; without a `resource`, `actor_id` for the category `auth`. User Access Management: `metadata.grantee`, else as for Account Change"
            }
            Made::OcsfPrivilege => "User Access Management: `metadata.permission`, else `metadata.role`",
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
            Made::OcsfClass => Value::Number(ocsf::class(event)),
            Made::OcsfCategory => Value::Number(ocsf::class(event) / 1000),
            Made::OcsfActivity => Value::Number(ocsf::activity(event).0),
            Made::OcsfActivityName => Value::Text(ocsf::activity(event).1),
            Made::OcsfType => Value::Number(ocsf::class(event) * 100 + ocsf::activity(event).0),
            Made::OcsfSeverity => Value::Number(ocsf::severity(event).0),
            Made::OcsfSeverityName => Value::Text(ocsf::severity(event).1),
            Made::OcsfStatus => Value::Number(ocsf::status(event).0),
            Made::OcsfStatusName => Value::Text(ocsf::status(event).1.to_owned()),
            Made::OcsfActorType => Value::Number(ocsf::account_type(event)?.0),
            Made::OcsfActorTypeName => Value::Text(ocsf::account_type(event)?.1),
            Made::OcsfUser => Value::Text(ocsf::user(event)?),
            Made::OcsfPrivilege => Value::Text(ocsf::privilege(event)?),
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
