//! What a step of a case leaves: its entry in the history, a record for the system chain, events for the
//! projects of the case.
//!
//! Chains never hear of the data subject. A record has the case's id, the states, the person's id and the
//! salted digest of the note; an event of a project has words of the catalog and dates. Neither has a free
//! text that somebody typed.

use sealog_control::{
    Case, CaseDifference, CaseEntry, CaseOutcome, CaseRegime, CaseState, NewCaseEntry, NewCaseEvent,
    NewRecord, PersonId, Project,
};
use sealog_core::catalog::Catalog;
use sealog_core::id::Hash;
use sealog_core::time::iso_ms;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::dates::{CaseDates, start_ms};
use super::forward::STEP;
use sealog_service::records::system_chain::Recorder;
use sealog_service::records::system_chain::actions::{self, SystemAction};

/// What was done, in the words of [`NewCaseEntry::what`].
pub(super) const OPENED: &str = "opened";
pub(super) const MOVED: &str = "moved";
pub(super) const CHANGED: &str = "changed";
pub(super) const IDENTITY: &str = "identity";

/// The SHA-256 of salt and note: it tells nothing to whoever has not the salt, and proves the note to whoever
/// has.
pub fn digest_of(salt: &Hash, note: &str) -> Hash {
    Hash(Sha256::new().chain_update(salt.0).chain_update(note).finalize().into())
}

/// Whether an entry still has the note that its digest was made of.
pub fn is_note_intact(entry: &CaseEntry) -> bool {
    digest_of(&entry.entry.salt, &entry.entry.note) == entry.entry.digest
}

pub(super) struct Told<'a> {
    pub recorder: &'a Recorder,
    pub person_id: PersonId,
    pub note: String,
    pub what: &'static str,
}

impl Told<'_> {
    /// The entry of the history, and the record that has its digest.
    pub(super) fn entry(self, before: Option<&Case>, after: &Case) -> (NewCaseEntry, NewRecord) {
        let Told { recorder, person_id, note, what } = self;
        let salt = Hash(recorder.random());
        let digest = digest_of(&salt, &note);
        let differences = before.map_or_else(Vec::new, |before| differences(before, after));
        let from = before.map(|before| before.state);
        let moves = from != Some(after.state);
        let (from, to) = if moves { (from, Some(after.state)) } else { (None, None) };
        let mut metadata = Map::new();
        metadata.insert("case_id".into(), after.id.0.to_string().into());
        let action: &SystemAction = match (before, moves) {
            (None, _) => &actions::CASE_OPENED,
            (Some(_), true) => &actions::CASE_MOVED,
            (Some(_), false) => &actions::CASE_CHANGED,
        };
        if moves {
            metadata.insert("from".into(), from.map(CaseState::as_str).into());
            metadata.insert("to".into(), after.state.as_str().into());
        } else {
            // Names of fields: what they held is about the data subject.
            let fields: Vec<&str> = differences.iter().map(|known| known.field.as_str()).collect();
            metadata.insert("fields".into(), fields.into());
        }
        metadata.insert("note_sha256".into(), digest.to_string().into());
        let record = recorder.record(action, &format!("case/{}", after.id.0), Value::Object(metadata));
        let entry = NewCaseEntry {
            person_id: Some(person_id),
            at_ms: recorder.now_ms(),
            what: what.into(),
            from,
            to,
            note,
            salt,
            digest,
            differences,
        };
        (entry, record)
    }
}

/// Fields that differ, by the names that forms have for them.
fn differences(before: &Case, after: &Case) -> Vec<CaseDifference> {
    let mut found = Vec::new();
    let mut compare = |field: &str, from: String, to: String| {
        if from != to {
            found.push(CaseDifference { field: field.into(), from, to });
        }
    };
    let optional = |text: Option<&'static str>| text.unwrap_or("").to_owned();
    let day = |ms: Option<u64>| ms.map_or(String::new(), |ms| iso_ms(ms)[..10].to_owned());
    let days =
        |days: Option<(u32, u32)>| days.map_or(String::new(), |(days, more)| format!("{days} + {more}"));
    let person = |id: Option<PersonId>| id.map_or(String::new(), |id| id.0.to_string());
    let (a, b) = (&before.intake, &after.intake);
    compare("state", before.state.as_str().into(), after.state.as_str().into());
    compare("regime", a.regime.as_str().into(), b.regime.as_str().into());
    compare("custom_days", days(a.custom_days), days(b.custom_days));
    compare("request_type", a.request_type.as_str().into(), b.request_type.as_str().into());
    compare("requester", a.requester.clone(), b.requester.clone());
    compare("contact", a.contact.clone(), b.contact.clone());
    compare("wrote", a.wrote.clone(), b.wrote.clone());
    compare("channel", a.channel.as_str().into(), b.channel.as_str().into());
    compare("received", day(Some(a.received_at_ms)), day(Some(b.received_at_ms)));
    compare("assignee", person(before.assignee), person(after.assignee));
    let projects = |case: &Case| {
        let ids: Vec<String> = case.scope.projects.iter().map(ToString::to_string).collect();
        ids.join(", ")
    };
    compare("projects", projects(before), projects(after));
    compare("from", day(before.scope.from_ms), day(after.scope.from_ms));
    let last = |ms: Option<u64>| day(ms.map(|ms| ms.saturating_sub(1)));
    compare("until", last(before.scope.until_ms), last(after.scope.until_ms));
    let identifiers = |case: &Case| {
        let lines = case.identifiers.iter().map(|known| {
            let path = known.path.as_ref().map_or(String::new(), |path| format!("{path}="));
            format!("{} {path}{}", known.kind.as_str(), known.value)
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    compare("identifiers", identifiers(before), identifiers(after));
    let identity = |case: &Case| {
        case.identity
            .map_or(String::new(), |check| format!("{}, {}", check.outcome.as_str(), check.method.as_str()))
    };
    compare("identity", identity(before), identity(after));
    let extension = |case: &Case| optional(case.extension.map(|extension| extension.reason.as_str()));
    compare("extension", extension(before), extension(after));
    compare("confirmed", day(before.confirmed_at_ms), day(after.confirmed_at_ms));
    let answer = |case: &Case| optional(case.answer.map(|answer| answer.outcome.as_str()));
    compare("answer", answer(before), answer(after));
    found
}

/// The framework whose events a case leaves, and how it is called in actions. HIPAA has none that does not
/// name the patient.
fn framework_of(regime: CaseRegime) -> Option<&'static str> {
    match regime {
        CaseRegime::Gdpr | CaseRegime::UkGdpr => Some("gdpr"),
        CaseRegime::Ccpa => Some("ccpa"),
        CaseRegime::HipaaAccess | CaseRegime::HipaaAccounting | CaseRegime::Custom => None,
    }
}

/// Events of the catalog for those of the projects that have the framework enabled. `case` is as it will be,
/// with the revision to come.
pub(super) fn events(
    recorder: &Recorder,
    person_id: PersonId,
    before: Option<&Case>,
    case: &Case,
    dates: &CaseDates,
    projects: &[Project],
) -> Vec<NewCaseEvent> {
    let Some(framework) = framework_of(case.intake.regime) else { return Vec::new() };
    let Some(index) = Catalog::builtin().framework_index(framework) else { return Vec::new() };
    let enabled = projects.iter().filter(|project| project.frameworks.contains(index));
    let told = told_in(framework, before, case, dates);
    let mut events = Vec::new();
    for project in enabled {
        for (name, key, metadata) in &told {
            let action = format!("{framework}.{name}");
            let mut metadata = metadata.clone();
            metadata["request_id"] = case.id.0.to_string().into();
            metadata[STEP] = key.as_str().into();
            let body = json!({
                "action": action,
                "actor_id": person_id.0.to_string(),
                "actor_type": "person",
                "resource": format!("case/{}", case.id.0),
                "metadata": metadata,
            });
            events.push(NewCaseEvent {
                id: recorder.random_id(),
                project_id: project.id,
                key: format!("sealog-case/{}/{framework}/{key}", case.id.0),
                action,
                body: body.to_string(),
            });
        }
    }
    events
}

/// What is to be told: the name behind the framework's, what makes it unique in the case, and the fields.
fn told_in(
    framework: &str,
    before: Option<&Case>,
    case: &Case,
    dates: &CaseDates,
) -> Vec<(&'static str, String, Value)> {
    let is_ccpa = framework == "ccpa";
    let due_at = iso_ms(start_ms(dates.due.date));
    // Once for each project, also for one that was added later.
    let mut told = vec![(
        "request_received",
        "received".to_owned(),
        json!({
            "request_type": case.intake.request_type.as_str(),
            "received_at": iso_ms(case.intake.received_at_ms),
            "channel": case.intake.channel.as_str(),
            "due_at": due_at,
        }),
    )];
    let Some(before) = before else { return told };
    let key = case.revision.to_string();
    if let Some(check) = case.identity.filter(|check| before.identity != Some(*check)) {
        let name = if is_ccpa { "request_verified" } else { "request_identity_checked" };
        let fields = json!({ "method": check.method.as_str(), "outcome": check.outcome.as_str() });
        told.push((name, format!("{key}/identity"), fields));
    }
    if let Some(extension) = case.extension.filter(|_| before.extension.is_none() && !is_ccpa) {
        let fields = json!({
            "new_due_at": due_at,
            "reason": extension.reason.as_str(),
            "informed_at": iso_ms(extension.announced_at_ms),
        });
        told.push(("request_extended", format!("{key}/extended"), fields));
    }
    if let Some(answer) = case.answer.filter(|_| before.answer.is_none()) {
        let responded_at = iso_ms(answer.at_ms);
        let how = answer.how.map(sealog_control::CaseChannel::as_str);
        let ground = answer.ground.map(sealog_control::RefusalGround::as_str);
        let (name, fields) = match (answer.outcome, is_ccpa) {
            (CaseOutcome::Fulfilled, false) => {
                ("request_fulfilled", json!({ "responded_at": responded_at, "delivery_method": how }))
            }
            (CaseOutcome::Fulfilled, true) => (
                "request_completed",
                json!({ "responded_at": responded_at, "response_type": "fulfilled", "extended": case.extension.is_some() }),
            ),
            (CaseOutcome::Refused, false) => {
                ("request_refused", json!({ "responded_at": responded_at, "reason": ground }))
            }
            (CaseOutcome::Refused, true) => {
                ("request_denied", json!({ "responded_at": responded_at, "denial_basis": ground }))
            }
            // There is no event for a request that was taken back.
            (CaseOutcome::Withdrawn, _) => return told,
        };
        told.push((name, format!("{key}/answer"), fields));
    }
    told
}
