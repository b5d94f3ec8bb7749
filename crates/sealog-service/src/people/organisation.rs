//! What an organisation has settled for itself: the names of its settings, and what stands under them. Who
//! may change them, and to what, is in [`crate::people::admin::settings`].

use sealog_control::Membership;
use sealog_core::id::TenantId;
use serde_json::Value;

/// `true` if every member needs an authenticator.
pub const TOTP_REQUIRED: &str = "security.totp_required";
/// `{"idle_minutes": n, "absolute_hours": n}`, either of which may be missing.
pub const SESSION: &str = "security.session";
/// A list of domains; addresses of people who are invited end in one of them.
pub const EMAIL_DOMAINS: &str = "security.email_domains";
/// The name of a time zone of the IANA database.
pub const TIME_ZONE: &str = "time_zone";
/// `true` if a person who decided about events of a case does not approve it.
pub const TWO_PEOPLE: &str = "cases.two_people";
/// Texts that packages for data subjects explain the organisation's processing with.
pub const PRIVACY: [&str; 5] =
    ["privacy.purposes", "privacy.categories", "privacy.recipients", "privacy.retention", "privacy.contact"];

const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// How long sessions of members last; nothing for as long as they may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLimits {
    pub idle_minutes: Option<u32>,
    pub absolute_hours: Option<u32>,
}

impl SessionLimits {
    /// Of a setting's value; what is no number limits nothing.
    pub fn parse(value: &str) -> SessionLimits {
        let value: Value = serde_json::from_str(value).unwrap_or_default();
        let number = |name: &str| value[name].as_u64().and_then(|number| u32::try_from(number).ok());
        SessionLimits { idle_minutes: number("idle_minutes"), absolute_hours: number("absolute_hours") }
    }
}

/// All settings that the page of settings has, but for those of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrganisationSettings {
    pub is_totp_required: bool,
    pub session: SessionLimits,
    pub email_domains: Vec<String>,
    /// UTC where none is set.
    pub time_zone: Option<String>,
    pub needs_two_people: bool,
    /// In the order of [`PRIVACY`].
    pub privacy: [Option<String>; 5],
}

impl OrganisationSettings {
    /// Of what is kept, by name.
    pub fn of(settings: &[(String, String)]) -> OrganisationSettings {
        let value =
            |name: &str| settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        OrganisationSettings {
            is_totp_required: value(TOTP_REQUIRED) == Some("true"),
            session: value(SESSION).map(SessionLimits::parse).unwrap_or_default(),
            email_domains: value(EMAIL_DOMAINS).map(domains).unwrap_or_default(),
            time_zone: value(TIME_ZONE).and_then(text),
            needs_two_people: value(TWO_PEOPLE) == Some("true"),
            privacy: PRIVACY.map(|name| value(name).and_then(text)),
        }
    }
}

/// The value of a setting that is a text.
pub fn text(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
}

pub(crate) fn domains(value: &str) -> Vec<String> {
    serde_json::from_str(value).unwrap_or_default()
}

/// Whether an address may belong to somebody who becomes a member: with no domains, any.
pub(crate) fn allows(domains: &[String], email: &str) -> bool {
    let domain = email.rsplit('@').next().unwrap_or_default();
    domains.is_empty() || domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain))
}

/// What the organisations of a person, together, ask of the person's session. A session is one for all of
/// them, so the strictest of them has its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionDemands {
    pub idle_ms: Option<u64>,
    pub absolute_ms: Option<u64>,
    /// The first one that needs an authenticator.
    pub totp_required_by: Option<TenantId>,
}

impl SessionDemands {
    /// The names that [`SessionDemands::of`] reads.
    pub(crate) const NAMES: [&str; 2] = [TOTP_REQUIRED, SESSION];

    /// `settings` may be of more organisations than the person is a member of now.
    pub(crate) fn of(settings: &[(TenantId, String, String)], memberships: &[Membership]) -> SessionDemands {
        let mut demands = SessionDemands::default();
        let is_member = |tenant_id| memberships.iter().any(|membership| membership.tenant_id == tenant_id);
        for (tenant_id, name, value) in settings.iter().filter(|(tenant_id, ..)| is_member(*tenant_id)) {
            match name.as_str() {
                TOTP_REQUIRED if value == "true" => {
                    demands.totp_required_by = demands.totp_required_by.or(Some(*tenant_id));
                }
                SESSION => {
                    let limits = SessionLimits::parse(value);
                    let idle_ms = limits.idle_minutes.map(|minutes| u64::from(minutes) * MINUTE_MS);
                    let absolute_ms = limits.absolute_hours.map(|hours| u64::from(hours) * HOUR_MS);
                    demands.idle_ms = shorter(demands.idle_ms, idle_ms);
                    demands.absolute_ms = shorter(demands.absolute_ms, absolute_ms);
                }
                _ => {}
            }
        }
        demands
    }
}

fn shorter(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use sealog_control::{Grants, PersonId, Role};
    use sealog_core::id::Uuid;

    use super::*;

    fn tenant(n: u8) -> TenantId {
        TenantId(Uuid::from_random([n; 16]))
    }

    fn member_of(n: u8) -> Membership {
        Membership {
            tenant_id: tenant(n),
            person_id: PersonId(Uuid::from_random([9; 16])),
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms: 0,
        }
    }

    #[test]
    fn the_strictest_organisation_decides_and_one_that_was_left_does_not() {
        let settings = [
            (tenant(1), SESSION.to_owned(), r#"{"idle_minutes":30}"#.to_owned()),
            (tenant(2), SESSION.to_owned(), r#"{"idle_minutes":60,"absolute_hours":2}"#.to_owned()),
            (tenant(3), SESSION.to_owned(), r#"{"idle_minutes":5}"#.to_owned()),
            (tenant(3), TOTP_REQUIRED.to_owned(), "true".to_owned()),
        ];
        let demands = SessionDemands::of(&settings, &[member_of(1), member_of(2)]);
        let expected = SessionDemands {
            idle_ms: Some(30 * MINUTE_MS),
            absolute_ms: Some(2 * HOUR_MS),
            totp_required_by: None,
        };
        assert_eq!(demands, expected);
        let demands = SessionDemands::of(&settings, &[member_of(3)]);
        assert_eq!((demands.idle_ms, demands.totp_required_by), (Some(5 * MINUTE_MS), Some(tenant(3))));
        assert_eq!(SessionDemands::of(&settings, &[]), SessionDemands::default());
    }

    #[test]
    fn an_address_is_allowed_by_its_whole_domain_in_any_case() {
        let domains = ["example.com".to_owned(), "b.example".to_owned()];
        for allowed in ["a@example.com", "A@Example.COM", "x@y@b.example"] {
            assert!(allows(&domains, allowed), "{allowed}");
        }
        for refused in ["a@sub.example.com", "a@example.com.evil", "a@xexample.com", "example.com@evil", ""] {
            assert!(!allows(&domains, refused), "{refused}");
        }
        assert!(allows(&[], "anybody@anywhere"));
    }
}
