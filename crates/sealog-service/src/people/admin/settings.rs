//! Settings of an organisation. Each change is checked here and leaves an event; texts that may name people
//! leave only that they were changed.

use sealog_core::id::TenantId;
use serde_json::{Map, Value, json};

use super::{Actor, Admin, AdminError, FieldError};
use crate::people::organisation::{
    EMAIL_DOMAINS, OrganisationSettings, PRIVACY, SESSION, SessionLimits, TIME_ZONE, TOTP_REQUIRED,
    TWO_PEOPLE,
};
use crate::records::system_chain::{actions, change};
use crate::zone;

/// Within what people are signed in for without it (`people/kind.rs`).
pub const IDLE_MINUTES: (u32, u32) = (5, 12 * 60);
pub const ABSOLUTE_HOURS: (u32, u32) = (1, 7 * 24);
pub const DOMAINS_MAX: usize = 50;
pub const PRIVACY_CHARACTERS_MAX: usize = 4000;

impl Admin {
    pub async fn organisation_settings(
        &self,
        tenant_id: TenantId,
    ) -> Result<OrganisationSettings, AdminError> {
        Ok(OrganisationSettings::of(&self.administration().settings(tenant_id).await?))
    }

    /// Whether every member needs an authenticator. A person who asks for it has one: nobody locks themselves
    /// out.
    pub async fn require_authenticators(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        is_required: bool,
    ) -> Result<(), AdminError> {
        if let (Actor::Person(person_id), true) = (actor, is_required) {
            let authenticator = self.people().authenticator(person_id).await?;
            if !authenticator.is_some_and(|authenticator| authenticator.is_confirmed()) {
                let problem = "needs an authenticator on your own account first: set one up in your account";
                return Err(FieldError::new("totp_required", problem).into());
            }
        }
        let before = self.organisation_settings(tenant_id).await?.is_totp_required;
        let mut metadata = Map::new();
        change(&mut metadata, "totp_required", before, is_required);
        let value = is_required.then(|| "true".to_owned());
        self.put_settings(actor, tenant_id, vec![(TOTP_REQUIRED, value)], metadata).await
    }

    /// An empty text for as long as sessions may last.
    pub async fn set_session_limits(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        idle_minutes: &str,
        absolute_hours: &str,
    ) -> Result<(), AdminError> {
        let limits = SessionLimits {
            idle_minutes: number("idle_minutes", idle_minutes, IDLE_MINUTES)?,
            absolute_hours: number("absolute_hours", absolute_hours, ABSOLUTE_HOURS)?,
        };
        if let (Some(minutes), Some(hours)) = (limits.idle_minutes, limits.absolute_hours)
            && minutes > hours * 60
        {
            return Err(FieldError::new("idle_minutes", "must not be longer than the session itself").into());
        }
        let before = self.organisation_settings(tenant_id).await?.session;
        let mut metadata = Map::new();
        change(&mut metadata, "session_idle_minutes", before.idle_minutes, limits.idle_minutes);
        change(&mut metadata, "session_absolute_hours", before.absolute_hours, limits.absolute_hours);
        let value = (limits != SessionLimits::default()).then(|| {
            json!({ "idle_minutes": limits.idle_minutes, "absolute_hours": limits.absolute_hours })
                .to_string()
        });
        self.put_settings(actor, tenant_id, vec![(SESSION, value)], metadata).await
    }

    /// Between white space or commas; none for any. Members stay members, whatever their address.
    pub async fn set_email_domains(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        text: &str,
    ) -> Result<(), AdminError> {
        let mut domains: Vec<String> = Vec::new();
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        for word in words {
            let domain = word.strip_prefix('@').unwrap_or(word).to_ascii_lowercase();
            if !is_domain(&domain) {
                let problem = "contains an invalid domain; write each as example.com, in ASCII";
                return Err(FieldError::new("email_domains", problem).into());
            }
            if !domains.contains(&domain) {
                domains.push(domain);
            }
            if domains.len() > DOMAINS_MAX {
                let problem = format!("must have at most {DOMAINS_MAX} domains");
                return Err(FieldError::new("email_domains", problem).into());
            }
        }
        let before = self.organisation_settings(tenant_id).await?.email_domains;
        let mut metadata = Map::new();
        change(&mut metadata, "email_domains", json!(before), json!(domains));
        let value = (!domains.is_empty()).then(|| json!(domains).to_string());
        self.put_settings(actor, tenant_id, vec![(EMAIL_DOMAINS, value)], metadata).await
    }

    /// By the name of the IANA database; UTC, or an empty text, for none.
    pub async fn set_time_zone(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        name: &str,
    ) -> Result<(), AdminError> {
        let name = name.trim();
        let zone = match name {
            "" => zone::UTC.to_owned(),
            name => zone::canonical(name).ok_or_else(|| {
                FieldError::new("time_zone", "must be the name of a time zone, such as Europe/Paris, or UTC")
            })?,
        };
        let zone = Some(zone).filter(|zone| zone != zone::UTC);
        let before = self.organisation_settings(tenant_id).await?.time_zone;
        let mut metadata = Map::new();
        change(&mut metadata, "time_zone", before, zone.clone());
        let value = zone.map(|zone| json!(zone).to_string());
        self.put_settings(actor, tenant_id, vec![(TIME_ZONE, value)], metadata).await
    }

    /// Whether the person who reviews a case and the one who approves it are two.
    pub async fn require_two_people(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        is_required: bool,
    ) -> Result<(), AdminError> {
        let before = self.organisation_settings(tenant_id).await?.needs_two_people;
        let mut metadata = Map::new();
        change(&mut metadata, "cases_two_people", before, is_required);
        let value = is_required.then(|| "true".to_owned());
        self.put_settings(actor, tenant_id, vec![(TWO_PEOPLE, value)], metadata).await
    }

    /// Texts in the order of [`PRIVACY`]; an empty one for none.
    pub async fn set_privacy(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        texts: [&str; 5],
    ) -> Result<(), AdminError> {
        let before = self.organisation_settings(tenant_id).await?.privacy;
        let (mut values, mut changed) = (Vec::new(), Map::new());
        for ((name, text), before) in PRIVACY.into_iter().zip(texts).zip(before) {
            // A form sends lines with both characters.
            let text = text.replace("\r\n", "\n").trim().to_owned();
            if text.chars().count() > PRIVACY_CHARACTERS_MAX {
                let problem = format!("must have at most {PRIVACY_CHARACTERS_MAX} characters");
                return Err(FieldError::new(name, problem).into());
            }
            if text.contains('\0') {
                return Err(FieldError::new(name, "must not contain the NUL character").into());
            }
            let text = Some(text).filter(|text| !text.is_empty());
            // That it was changed, and not the text itself: it may name people, and events cannot be
            // corrected.
            let what = match (&before, &text) {
                (before, text) if before == text => continue,
                (None, _) => "set",
                (_, None) => "removed",
                _ => "changed",
            };
            changed.insert(name.trim_start_matches("privacy.").to_owned(), what.into());
            values.push((name, text.map(|text| json!(text).to_string())));
        }
        let mut metadata = Map::new();
        if !changed.is_empty() {
            metadata.insert("privacy".into(), Value::Object(changed));
        }
        self.put_settings(actor, tenant_id, values, metadata).await
    }

    /// What changes nothing leaves no record.
    async fn put_settings(
        &self,
        actor: Actor,
        tenant_id: TenantId,
        values: Vec<(&'static str, Option<String>)>,
        metadata: Map<String, Value>,
    ) -> Result<(), AdminError> {
        if metadata.is_empty() {
            return Ok(());
        }
        let resource = format!("tenant/{tenant_id}");
        let record =
            self.recorder(actor).record(&actions::SETTINGS_CHANGED, &resource, Value::Object(metadata));
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let set = self.made(self.administration().set_settings(tenant_id, values, vec![record])).await?;
        if set { Ok(()) } else { Err(AdminError::NotFound) }
    }
}

/// Nothing for an empty text.
fn number(field: &str, text: &str, (least, most): (u32, u32)) -> Result<Option<u32>, FieldError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    let problem = || FieldError::new(field, format!("must be a whole number from {least} to {most}"));
    number.map(Some).ok_or_else(problem)
}

/// Two labels at least, as RFC 1123 has them.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_two_labels_of_letters_digits_and_hyphens() {
        for good in ["example.com", "a.b", "xn--bcher-kva.example", "1.2", &format!("{}.b", "a".repeat(63))] {
            assert!(is_domain(good), "{good}");
        }
        let long = format!("{}.b", "a".repeat(64));
        for bad in ["", "a", "a.", ".a", "a..b", "-a.b", "a-.b", "a_b.c", "bücher.example", "a@b.c", &long] {
            assert!(!is_domain(bad), "{bad}");
        }
    }

    #[test]
    fn a_number_is_within_its_limits_or_left_out() {
        let read = |text| number("n", text, (5, 720)).ok();
        assert_eq!((read(""), read(" 5 "), read("720")), (Some(None), Some(Some(5)), Some(Some(720))));
        for bad in ["4", "721", "-5", "5.0", "x", "99999999999"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
