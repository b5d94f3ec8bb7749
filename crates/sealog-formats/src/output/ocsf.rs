//! Which class of OCSF an event is, and what that class has room for.
//!
//! A class demands attributes. An event that does not have them is of a more general class: an audit log
//! must not invent a user.

use super::ecs::{Outcome, outcome};
use super::event::Event;
use super::meaning::{Done, account, done, filled, member, verb};

const BASE_EVENT: u64 = 0;
const ACCOUNT_CHANGE: u64 = 3001;
const AUTHENTICATION: u64 = 3002;
const USER_ACCESS: u64 = 3005;
const API_ACTIVITY: u64 = 6003;
/// For what a list of OCSF has no number for.
const OTHER: u64 = 99;

/// By the verb of the action, which is its last part.
const ACTIVITIES: [(u64, &str, u64, &str); 14] = [
    (AUTHENTICATION, "login", 1, "Logon"),
    (AUTHENTICATION, "login_failed", 1, "Logon"),
    (AUTHENTICATION, "logout", 2, "Logoff"),
    (ACCOUNT_CHANGE, "created", 1, "Create"),
    (ACCOUNT_CHANGE, "password_changed", 3, "Password Change"),
    (ACCOUNT_CHANGE, "suspended", 5, "Disable"),
    (ACCOUNT_CHANGE, "deleted", 6, "Delete"),
    (ACCOUNT_CHANGE, "locked_out", 9, "Lock"),
    (ACCOUNT_CHANGE, "mfa_enabled", 10, "MFA Factor Enable"),
    (ACCOUNT_CHANGE, "mfa_disabled", 11, "MFA Factor Disable"),
    (USER_ACCESS, "granted", 1, "Assign Privileges"),
    (USER_ACCESS, "assigned", 1, "Assign Privileges"),
    (USER_ACCESS, "revoked", 2, "Revoke Privileges"),
    (USER_ACCESS, "removed", 2, "Revoke Privileges"),
];

const NAMED_CLASSES: &[u64] = &[ACCOUNT_CHANGE, AUTHENTICATION, USER_ACCESS, API_ACTIVITY];

/// Attributes that only some classes have, and the field without which their object would name nothing.
const PLACES: [(&str, &[u64], Option<&str>); 8] = [
    ("actor.user.", NAMED_CLASSES, Some("actor_id")),
    ("actor.session.", NAMED_CLASSES, Some("session_id")),
    ("src_endpoint.", NAMED_CLASSES, Some("ip_address")),
    ("resources[].", &[USER_ACCESS, API_ACTIVITY], Some("resource")),
    ("user.", &[ACCOUNT_CHANGE, AUTHENTICATION, USER_ACCESS], None),
    ("privileges[]", &[USER_ACCESS], None),
    ("service.", &[AUTHENTICATION], None),
    ("api.", &[API_ACTIVITY], None),
];

/// Whether the class of the event has this attribute, and the event what it needs.
pub(super) fn has_room(event: &Event, path: &str) -> bool {
    let Some((_, classes, named_by)) = PLACES.iter().find(|(prefix, ..)| path.starts_with(prefix)) else {
        return true;
    };
    classes.contains(&class(event)) && named_by.is_none_or(|name| filled(event, name).is_some())
}

/// The class of its category if it has what that demands, then API Activity likewise, then Base Event.
pub(super) fn class(event: &Event) -> u64 {
    [wanted(event), API_ACTIVITY].into_iter().find(|class| fits(*class, event)).unwrap_or(BASE_EVENT)
}

fn wanted(event: &Event) -> u64 {
    let verb = verb(event);
    let knows = |class: u64| ACTIVITIES.iter().any(|(of, known, ..)| *of == class && *known == verb);
    match (event.text("category").as_deref(), verb.as_str()) {
        (Some("auth"), "password_changed" | "locked_out" | "mfa_enabled" | "mfa_disabled")
        | (Some("identity"), _) => ACCOUNT_CHANGE,
        (Some("auth"), _) if knows(AUTHENTICATION) => AUTHENTICATION,
        (Some("access_control"), _) if knows(USER_ACCESS) => USER_ACCESS,
        _ => API_ACTIVITY,
    }
}

fn fits(class: u64, event: &Event) -> bool {
    let has = |name: &str| filled(event, name).is_some();
    match class {
        API_ACTIVITY => has("ip_address") && (has("actor_id") || has("session_id")),
        USER_ACCESS => user_of(class, event).is_some() && privilege(event).is_some(),
        _ => user_of(class, event).is_some(),
    }
}

/// Whom the event concerns: `user` of the three classes that demand it.
pub(super) fn user(event: &Event) -> Option<String> {
    user_of(class(event), event)
}

fn user_of(class: u64, event: &Event) -> Option<String> {
    match class {
        AUTHENTICATION => filled(event, "actor_id"),
        USER_ACCESS => member(event, "grantee").or_else(|| account(event)),
        // People change their own password. Who deletes an account is another person than its owner.
        ACCOUNT_CHANGE => account(event).or_else(|| {
            let is_own = event.text("category")? == "auth" && filled(event, "resource").is_none();
            is_own.then(|| filled(event, "actor_id"))?
        }),
        _ => None,
    }
}

/// What was granted or revoked, by the fields that the catalog has for it.
pub(super) fn privilege(event: &Event) -> Option<String> {
    member(event, "permission").or_else(|| member(event, "role"))
}

/// Number and name. What the class has no number for keeps the name that the event has for it.
pub(super) fn activity(event: &Event) -> (u64, String) {
    let (class, verb, action) = (class(event), verb(event), event.text("action").unwrap_or_default());
    let of_class = ACTIVITIES.iter().find(|(of, known, ..)| *of == class && *known == verb);
    let known = of_class.map(|(_, _, id, name)| (*id, *name)).or_else(|| match done(event)? {
        _ if class != API_ACTIVITY => None,
        Done::Created => Some((1, "Create")),
        Done::Read => Some((2, "Read")),
        Done::Changed => Some((3, "Update")),
        Done::Deleted => Some((4, "Delete")),
    });
    known.map_or((OTHER, action), |(id, name)| (id, name.to_owned()))
}

pub(super) fn severity(event: &Event) -> (u64, String) {
    match event.text("severity").as_deref() {
        None => (0, "Unknown".into()),
        Some("info") => (1, "Informational".into()),
        Some("warning") => (3, "Medium".into()),
        Some("critical") => (5, "Critical".into()),
        Some(other) => (OTHER, other.to_owned()),
    }
}

pub(super) fn status(event: &Event) -> (u64, &'static str) {
    match outcome(event) {
        Outcome::Unknown => (0, "Unknown"),
        Outcome::Success => (1, "Success"),
        Outcome::Failure => (2, "Failure"),
    }
}

/// Of `actor.user`.
pub(super) fn account_type(event: &Event) -> Option<(u64, String)> {
    Some(match event.text("actor_type")?.as_str() {
        "user" => (1, "User".into()),
        "admin" => (2, "Admin".into()),
        "system" => (3, "System".into()),
        other => (OTHER, other.to_owned()),
    })
}
