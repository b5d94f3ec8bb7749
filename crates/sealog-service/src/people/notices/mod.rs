//! Notices become text when they are sent: the outbox has the name of a template and its parameters. What is
//! due by the calendar is looked for by [`Reminders`].

mod case_texts;
mod html;
mod reminders;
mod texts;

use sealog_control::Control;
use std::sync::Arc;

use sealog_control::{KeptNotice, MutedNotice, Notice, PersonId};
use sealog_core::id::TenantId;
use sealog_store::StoreError;
use sealog_store::world::World;
use serde_json::{Value, json};

use crate::evidence::verification;
use crate::ingest::quota;
use crate::people::account;
use crate::people::contact::Text;
use crate::people::notify::{self, Kind};
use crate::people::sign_in::Token;

pub use case_texts::{CASE_ASSIGNED, CASE_DUE};
pub(crate) use html::html;
pub use reminders::Reminders;

/// Why a notice has no text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoText {
    /// Of a newer version, which may send it.
    UnknownTemplate(String),
    /// Nobody can write it.
    Damaged(String),
}

/// Whether the mail has a link with a secret, which is made for each attempt to send it: to what somebody was
/// invited to or asked for, or to where an optional notice is turned off.
pub(crate) fn has_secret(notice: &Notice) -> bool {
    matches!(notice.template.as_str(), account::RESET | account::INVITATION) || is_optional(notice)
}

/// Whether the person can turn notices of this kind off.
pub(crate) fn is_optional(notice: &Notice) -> bool {
    let is_kind = notify::find(&notice.template).is_some_and(|kind| kind.is_optional);
    is_kind && notice.person_id.is_some() && notice.tenant_id.is_some()
}

pub(crate) fn render(notice: &Notice, app_url: &str, secret: Option<&Token>) -> Result<Text, NoText> {
    let mut text = text_of(&notice.template, &notice.parameters, app_url, secret)?;
    if is_optional(notice) {
        text.body.push_str("\nChoose which of these notices you get in your account, under Notifications.\n");
    }
    Ok(text)
}

/// What a notice is about, in a line, for lists on pages. Nothing for one whose mail has a secret of its own,
/// or whose text is gone.
pub fn subject(notice: &KeptNotice) -> Option<String> {
    let text = text_of(&notice.template, notice.parameters.as_deref()?, "", None).ok()?;
    Some(text.subject)
}

/// The page that a notice leads to, as a path below the dashboard's address.
pub fn path(notice: &KeptNotice) -> Option<String> {
    let text = text_of(&notice.template, notice.parameters.as_deref()?, "", None).ok()?;
    let mut targets = text.body.lines().filter_map(|line| line.rsplit_once(": ")).map(|(_, to)| to);
    targets.find(|to| to.starts_with('/')).map(str::to_owned)
}

/// What the link of an optional notice turns off: which kind, where, for whom.
#[derive(Clone, Debug)]
pub struct Unsubscription {
    pub kind: &'static Kind,
    pub tenant_id: TenantId,
    pub person_id: PersonId,
}

impl Unsubscription {
    /// Of the secret in the link; nothing if there is no such notice any more.
    pub async fn find(outbox: &Control, token: &Token) -> Result<Option<Unsubscription>, StoreError> {
        let Some(notice) = outbox.notice_by_secret(token.digest()).await? else { return Ok(None) };
        let kind = notify::find(&notice.template).filter(|kind| kind.is_optional);
        let (Some(kind), Some(tenant_id), Some(person_id)) = (kind, notice.tenant_id, notice.person_id)
        else {
            return Ok(None);
        };
        Ok(Some(Unsubscription { kind, tenant_id, person_id }))
    }

    /// Twice is the same as once. Whoever has the mail has not signed in, and the record says so.
    pub async fn make(&self, people: &Control, world: &Arc<dyn World>) -> Result<(), StoreError> {
        let Unsubscription { kind, tenant_id, person_id } = *self;
        let metadata = json!({ "turned_off": [kind.name], "by": "link" });
        let record = notify::chosen(world, person_id, metadata);
        let muted = MutedNotice { tenant_id, person_id, notice: kind.name.into() };
        people.mute_notice(muted, vec![record]).await
    }
}

fn text_of(template: &str, parameters: &str, app_url: &str, secret: Option<&Token>) -> Result<Text, NoText> {
    let parameters: Value = serde_json::from_str(parameters).map_err(|error| {
        NoText::Damaged(format!("the parameters of the notice are not valid JSON: {error}"))
    })?;
    let text = match template {
        quota::TEMPLATE => quota::text(&parameters, app_url),
        account::RESET => secret.map(|secret| account::reset_text(app_url, secret)),
        account::INVITATION => {
            secret.and_then(|secret| account::invitation_text(&parameters, app_url, secret))
        }
        verification::FAILED => verification::failed_text(&parameters, app_url),
        verification::REPORT => verification::report_text(&parameters, app_url),
        account::NEW_DEVICE => account::new_device_text(&parameters, app_url),
        CASE_ASSIGNED => case_texts::assigned_text(&parameters, app_url),
        CASE_DUE => case_texts::due_text(&parameters, app_url),
        other => match texts::find(other) {
            Some(text) => text(&parameters, app_url),
            None => return Err(NoText::UnknownTemplate(format!("the template {other:?} is unknown"))),
        },
    };
    text.ok_or_else(|| NoText::Damaged(format!("the template {template:?} lacks a parameter")))
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;
    use sealog_store::world::SystemWorld;
    use serde_json::json;

    use super::*;
    use crate::people::notify::KINDS;

    /// One of each kind, with whatever any of them needs, and hostile names.
    fn notice(kind: &Kind) -> Notice {
        let id = Uuid::from_random([3; 16]);
        let parameters = json!({
            "organisation": "Evil\r\nBcc: https://evil.example <b>&\"'", "zone": "Europe/Paris", "name": "N <i>\n", "prefix": "at_live_ab",
            "project": "P</p>", "project_id": id.to_string(), "mode": "live", "days": 7, "end_ms": 1_800_000_000_000_u64,
            "email": "a@example.com", "run": id.to_string(), "at": 912, "reason": "hash", "address": "192.0.2.1",
            "browser": "B<script>", "at_ms": 1_800_000_000_000_u64, "plan": "entry", "month": 24_322, "used": 8,
            "events_per_month": 10, "percent": 80, "tenant_id": id.to_string(), "format": "csv", "verification_id": id.to_string(), "explanation": "x <b>",
            "date": "2026-11-15", "broken": 0, "unverified": 0, "left_out": 0, "chains": [],
            "case_id": id.to_string(), "case": "DSAR-2026-001 <b>", "regime": "GDPR", "type": "Access", "state": "Review",
            "due": "Friday 27 November 2026", "days_left": 3,
        });
        Notice {
            id: 1,
            key: "k".into(),
            tenant_id: Some(TenantId(id)),
            person_id: Some(PersonId(id)),
            to: "a@example.com".into(),
            template: kind.name.into(),
            parameters: parameters.to_string(),
            created_at_ms: 1,
            attempts: 0,
        }
    }

    #[test]
    fn every_kind_has_a_text_with_one_link_to_the_dashboard_and_the_same_in_html() {
        let token = Token::new(&SystemWorld);
        for kind in KINDS {
            let secret = Some(&token).filter(|_| has_secret(&notice(kind)));
            let text = render(&notice(kind), "https://log.example/app", secret);
            let text = text.unwrap_or_else(|error| panic!("{}: {error:?}", kind.name));
            assert!(!text.subject.is_empty() && !text.subject.contains(['\r', '\n']), "{}", text.subject);
            let html = html(&text);
            assert_eq!(html.matches("href=").count(), 1, "{}: {html}", kind.name);
            assert!(html.contains("href=\"https://log.example/app"), "{}: {html}", kind.name);
            for hostile in ["<b>", "<i>", "<script", "P</p>", "src=", "url(", "http://"] {
                assert!(!html.contains(hostile), "{}: {hostile} in {html}", kind.name);
            }
            // Each line of the text is in the page.
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let plain = html::plain(&html);
            let plain = words(&plain);
            for word in words(&text.body).iter().filter(|word| !word.contains("://")) {
                // The name of the link ends in a colon where its address follows.
                let word = word.trim_end_matches(':');
                let is_there = plain.iter().any(|known| known.trim_end_matches(':') == word);
                assert!(is_there, "{}: {word} is not in {plain:?}", kind.name);
            }
        }
    }

    #[test]
    fn a_template_of_a_newer_version_is_told_from_a_damaged_notice() {
        let of = |template: &str, parameters: &str| text_of(template, parameters, "", None).unwrap_err();
        assert!(matches!(of("from_the_future", "{}"), NoText::UnknownTemplate(_)));
        assert!(matches!(of("key_expired", "{}"), NoText::Damaged(_)));
        assert!(matches!(of("key_expired", "{"), NoText::Damaged(_)));
    }
}
