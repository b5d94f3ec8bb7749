//! What an event means beyond its fields, for schemas that ask for it.

use sealog_core::catalog::{ends_with_one_of, is_read};
use sealog_core::json::decode;
use sealog_core::metadata::{named, quoted};

use super::event::Event;

/// What was done to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Created,
    Read,
    Changed,
    Deleted,
}

/// By the last word of the action.
pub(super) fn done(event: &Event) -> Option<Done> {
    let action = event.text("action")?;
    let by_words = [
        (Done::Created, &["created"][..]),
        (Done::Changed, &["updated", "changed", "modified", "rotated"]),
        (Done::Deleted, &["deleted", "erased", "purged"]),
    ];
    let known = by_words.into_iter().find(|(_, words)| ends_with_one_of(&action, words));
    known.map(|(done, _)| done).or_else(|| is_read(&action).then_some(Done::Read))
}

/// The last part of the action, such as `login_failed`.
pub(super) fn verb(event: &Event) -> String {
    let action = event.text("action").unwrap_or_default();
    action.rsplit('.').next().unwrap_or_default().to_owned()
}

/// A field that says something.
pub(super) fn filled(event: &Event, name: &str) -> Option<String> {
    event.text(name).filter(|text| !text.is_empty())
}

/// A text in `metadata`; of a name that is there twice, the last one, as in required fields.
pub(super) fn member(event: &Event, name: &str) -> Option<String> {
    let text = decode(named(event.json("metadata")?, &quoted(name)).last()?)?;
    (!text.is_empty()).then_some(text)
}

/// The account that `resource` names: by its type, or by an action of users on a resource without one.
pub(super) fn account(event: &Event) -> Option<String> {
    let action = event.text("action").unwrap_or_default();
    let kind = filled(event, "resource_type")
        .unwrap_or_else(|| action.split('.').next().unwrap_or_default().to_owned());
    filled(event, "resource").filter(|_| ["user", "account"].contains(&kind.as_str()))
}
