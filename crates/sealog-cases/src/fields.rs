//! What the forms of a case may hold.

use std::collections::BTreeSet;

use jiff::civil;
use sealog_control::{
    CaseChannel, CaseRegime, CaseScope, CaseType, Identifier, IdentifierKind, Intake, PersonId,
};
use sealog_core::id::{ProjectId, Uuid};
use sealog_core::time::Date;

use super::dates::day_of;
use sealog_service::people::admin::FieldError;

/// A name, an address, an identifier.
pub const LINE_CHARACTERS_MAX: usize = 255;
/// What somebody wrote, and a note.
pub const TEXT_CHARACTERS_MAX: usize = 10_000;
pub const NOTE_CHARACTERS_MAX: usize = 2_000;
pub const IDENTIFIERS_MAX: usize = 100;
pub const PROJECTS_MAX: usize = 100;
/// Of a regime of one's own: ten years.
pub const DAYS_MAX: u32 = 3660;

/// As a form sends it.
#[derive(Clone, Debug, Default)]
pub struct IntakeInput {
    pub regime: String,
    pub custom_days: String,
    pub custom_extension_days: String,
    pub request_type: String,
    pub requester: String,
    pub contact: String,
    pub wrote: String,
    pub channel: String,
    /// A day, `YYYY-MM-DD`.
    pub received: String,
    /// The id of a member, or nothing.
    pub assignee: String,
}

#[derive(Clone, Debug, Default)]
pub struct ScopeInput {
    pub projects: Vec<String>,
    pub from: String,
    pub until: String,
}

#[derive(Clone, Debug, Default)]
pub struct IdentifierInput {
    pub kind: String,
    pub path: String,
    pub value: String,
    pub source: String,
}

impl IntakeInput {
    pub(super) fn read(&self, today: civil::Date) -> Result<(Intake, Option<PersonId>), FieldError> {
        let regime = word("regime", &self.regime, CaseRegime::parse)?;
        let custom_days = match regime {
            CaseRegime::Custom => Some((
                days("custom_days", &self.custom_days, 1)?,
                match self.custom_extension_days.trim() {
                    "" => 0,
                    text => days("custom_extension_days", text, 0)?,
                },
            )),
            _ => None,
        };
        let received = day("received", &self.received)?;
        let received = received.ok_or_else(|| FieldError::new("received", "must be a date"))?;
        if day_of(received.start_ms()) > today {
            return Err(FieldError::new("received", "must not be in the future"));
        }
        let assignee = match self.assignee.as_str() {
            "" => None,
            id => Some(Uuid::parse(id).map(PersonId).ok_or_else(|| unknown("assignee"))?),
        };
        let intake = Intake {
            regime,
            custom_days,
            request_type: word("request_type", &self.request_type, CaseType::parse)?,
            requester: some_line("requester", &self.requester)?,
            contact: line("contact", &self.contact)?,
            wrote: text("wrote", &self.wrote, TEXT_CHARACTERS_MAX)?,
            channel: word("channel", &self.channel, CaseChannel::parse)?,
            received_at_ms: received.start_ms(),
        };
        Ok((intake, assignee))
    }
}

impl ScopeInput {
    pub(super) fn read(&self) -> Result<CaseScope, FieldError> {
        if self.projects.len() > PROJECTS_MAX {
            return Err(FieldError::new("project", format!("must be at most {PROJECTS_MAX} projects")));
        }
        let projects = self.projects.iter().map(|id| Uuid::parse(id).map(ProjectId));
        let projects: Option<BTreeSet<ProjectId>> = projects.collect();
        let (from, until) = (day("from", &self.from)?, day("until", &self.until)?);
        let (from_ms, until_ms) = (from.map(Date::start_ms), until.map(Date::end_ms));
        if from_ms.zip(until_ms).is_some_and(|(from, until)| from >= until) {
            return Err(FieldError::new("until", "must not be before the first day"));
        }
        let projects = projects.ok_or_else(|| unknown("project"))?.into_iter().collect();
        Ok(CaseScope { projects, from_ms, until_ms })
    }
}

impl IdentifierInput {
    pub(super) fn read(&self) -> Result<Identifier, FieldError> {
        let kind = word("kind", &self.kind, IdentifierKind::parse)?;
        let path = match kind {
            IdentifierKind::Metadata => Some(some_line("path", &self.path)?),
            _ => None,
        };
        let value = some_line("value", &self.value)?;
        if kind == IdentifierKind::EmailHash {
            let is_digest = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_digest {
                return Err(FieldError::new("value", "must be 64 hexadecimal digits, a SHA-256"));
            }
        }
        Ok(Identifier { kind, path, value, source: some_line("source", &self.source)? })
    }
}

pub(super) fn unknown(field: &str) -> FieldError {
    FieldError::new(field, "must be one of the options")
}

pub(super) fn word<T>(field: &str, given: &str, parse: fn(&str) -> Option<T>) -> Result<T, FieldError> {
    parse(given).ok_or_else(|| unknown(field))
}

fn text(field: &str, given: &str, characters_max: usize) -> Result<String, FieldError> {
    // A browser sends two characters for the end of a line.
    let given = given.replace("\r\n", "\n");
    let given = given.trim();
    if given.chars().count() > characters_max {
        return Err(FieldError::new(field, format!("must have at most {characters_max} characters")));
    }
    if given.contains('\0') {
        return Err(FieldError::new(field, "must not contain the NUL character"));
    }
    Ok(given.to_owned())
}

fn line(field: &str, given: &str) -> Result<String, FieldError> {
    let given = text(field, given, LINE_CHARACTERS_MAX)?;
    if given.contains('\n') { Err(FieldError::new(field, "must be one line")) } else { Ok(given) }
}

fn some_line(field: &str, given: &str) -> Result<String, FieldError> {
    let given = line(field, given)?;
    if given.is_empty() { Err(FieldError::new(field, "must not be empty")) } else { Ok(given) }
}

/// Every step has one.
pub(super) fn note(given: &str) -> Result<String, FieldError> {
    let note = text("note", given, NOTE_CHARACTERS_MAX)?;
    if note.is_empty() { Err(FieldError::new("note", "must not be empty: give a reason")) } else { Ok(note) }
}

fn days(field: &str, given: &str, least: u32) -> Result<u32, FieldError> {
    let days = given.trim().parse::<u32>().ok().filter(|days| (least..=DAYS_MAX).contains(days));
    days.ok_or_else(|| FieldError::new(field, format!("must be a whole number from {least} to {DAYS_MAX}")))
}

pub(super) fn day(field: &str, given: &str) -> Result<Option<Date>, FieldError> {
    match given.trim() {
        "" => Ok(None),
        text => Date::parse(text)
            .map(Some)
            .ok_or_else(|| FieldError::new(field, "must be a date, such as 2026-12-31")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> IntakeInput {
        IntakeInput {
            regime: "gdpr".into(),
            request_type: "access".into(),
            requester: " Ada ".into(),
            wrote: "a\r\nb".into(),
            channel: "email".into(),
            received: "2026-11-02".into(),
            ..IntakeInput::default()
        }
    }

    const TODAY: civil::Date = civil::date(2026, 11, 15);

    #[test]
    fn an_intake_is_read_and_each_problem_names_its_field() {
        let (intake, assignee) = input().read(TODAY).unwrap();
        assert_eq!((intake.requester.as_str(), intake.wrote.as_str(), assignee), ("Ada", "a\nb", None));
        let field = |input: IntakeInput| input.read(TODAY).unwrap_err().field;
        assert_eq!(field(IntakeInput { regime: "x".into(), ..input() }), "regime");
        assert_eq!(field(IntakeInput { request_type: "".into(), ..input() }), "request_type");
        assert_eq!(field(IntakeInput { requester: " ".into(), ..input() }), "requester");
        assert_eq!(field(IntakeInput { requester: "a\nb".into(), ..input() }), "requester");
        assert_eq!(field(IntakeInput { contact: "a\0".into(), ..input() }), "contact");
        assert_eq!(field(IntakeInput { channel: "smoke".into(), ..input() }), "channel");
        assert_eq!(field(IntakeInput { received: "".into(), ..input() }), "received");
        assert_eq!(field(IntakeInput { received: "2026-11-16".into(), ..input() }), "received");
        assert_eq!(field(IntakeInput { assignee: "me".into(), ..input() }), "assignee");
        assert_eq!(field(IntakeInput { regime: "custom".into(), ..input() }), "custom_days");
    }

    #[test]
    fn what_is_written_is_bounded() {
        let wrote = |count| IntakeInput { wrote: "é".repeat(count), ..input() }.read(TODAY);
        assert!(wrote(TEXT_CHARACTERS_MAX).is_ok());
        assert_eq!(wrote(TEXT_CHARACTERS_MAX + 1).unwrap_err().field, "wrote");
        assert!(note(&"n".repeat(NOTE_CHARACTERS_MAX)).is_ok());
        assert!(note(&"n".repeat(NOTE_CHARACTERS_MAX + 1)).is_err());
        assert!(note(" \r\n ").is_err(), "every step says why");
        let project = "00000000-0000-4000-8000-000000000000".to_owned();
        let projects = vec![project; PROJECTS_MAX + 1];
        assert_eq!(ScopeInput { projects, ..ScopeInput::default() }.read().unwrap_err().field, "project");
    }

    #[test]
    fn an_identifier_has_what_its_kind_needs() {
        let input = |kind: &str, path: &str, value: &str| {
            let (kind, path, value) = (kind.into(), path.into(), value.into());
            IdentifierInput { kind, path, value, source: "CRM".into() }.read().map_err(|error| error.field)
        };
        assert!(input("actor_id", "ignored", "usr_1").is_ok_and(|known| known.path.is_none()));
        assert_eq!(input("metadata", "", "x").unwrap_err(), "path");
        assert!(input("metadata", "a.b", "x").is_ok());
        assert_eq!(input("mention", "", " ").unwrap_err(), "value");
        assert_eq!(input("email_hash", "", "abc").unwrap_err(), "value");
        assert!(input("email_hash", "", &"aF".repeat(32)).is_ok());
        assert_eq!(input("name", "", "x").unwrap_err(), "kind");
    }
}
