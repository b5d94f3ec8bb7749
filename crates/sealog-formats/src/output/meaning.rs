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

/// A text in `metadata`; of a name that is there twice, the last one, as in required fields.
pub(super) fn member(event: &Event, name: &str) -> Option<String> {
    let text = decode(named(event.json("metadata")?, &quoted(name)).last()?)?;
    (!text.is_empty()).then_some(text)
}
