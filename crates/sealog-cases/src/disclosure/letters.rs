//! Letters of cases: templates that people edit. What is kept is their text; nothing of it goes into a chain.

use jiff::civil::Date;
use sealog_control::{Case, CaseLetter, CaseRegime, CaseState, LetterKind, PersonId};
use sealog_core::time::iso_ms;
use sealog_store::StoreError;
use serde_json::json;

use super::desk::Disclosures;
use super::words;
use crate::dates;
use sealog_service::system_chain::{Actor, Recorder, actions};

/// Of a letter: a form of 64 KiB holds it in any script.
pub const LETTER_CHARS_MAX: usize = 6_000;

/// The law, as a letter names it.
pub fn law(regime: CaseRegime) -> &'static str {
    match regime {
        CaseRegime::Gdpr => "the General Data Protection Regulation (EU) 2016/679",
        CaseRegime::UkGdpr => "the UK General Data Protection Regulation",
        CaseRegime::Ccpa => "the California Consumer Privacy Act",
        CaseRegime::HipaaAccess | CaseRegime::HipaaAccounting => "the HIPAA Privacy Rule (45 CFR Part 164)",
        CaseRegime::Custom => "the law that applies to it",
    }
}

/// What people call a case (`DSAR-2026-014`), by the year in which it came.
pub fn case_name(case: &Case) -> String {
    format!("DSAR-{}-{:03}", &iso_ms(case.intake.received_at_ms)[..4], case.number)
}

/// What is said of complaints, which the law wants in every refusal.
fn complaint(regime: CaseRegime) -> &'static str {
    match regime {
        CaseRegime::Gdpr => {
            "You may complain to a data protection supervisory authority, in particular where you live or work, and you may go to court."
        }
        CaseRegime::UkGdpr => {
            "You may complain to the Information Commissioner's Office, and you may go to court."
        }
        CaseRegime::Ccpa => {
            "You may complain to the California Privacy Protection Agency or the Attorney General of California."
        }
        CaseRegime::HipaaAccess | CaseRegime::HipaaAccounting => {
            "You may complain to us, or to the Office for Civil Rights of the U.S. Department of Health and Human Services."
        }
        CaseRegime::Custom => "You may complain to the authority that supervises us.",
    }
}

/// A letter that nobody has edited. `name` is what people call the case; `ground` is why it is refused, in
/// words; `extended` is the day to which an extension leads. The letter of an extension is sent before that
/// is noted, so `Case::due_day` is still the earlier one then.
pub fn template(
    kind: LetterKind,
    case: &Case,
    name: &str,
    organisation: &str,
    ground: Option<&str>,
    extended: Date,
) -> String {
    let received = words::day(case.intake.received_at_ms);
    let regime = case.intake.regime;
    let requester = match case.intake.requester.trim() {
        "" => "Sir or Madam",
        requester => requester,
    };
    let so_far = match kind {
        LetterKind::Extension => "are dealing with it",
        LetterKind::Cover | LetterKind::Response | LetterKind::Refusal => "have dealt with it",
    };
    let begin = format!(
        "Dear {requester},\n\nwe received your request {name} on {received} and {so_far} under {}.",
        law(regime)
    );
    let body = match kind {
        LetterKind::Cover => {
            "With this letter you receive a copy of the entries of our audit log that are by you, about you, or name you. Open your-data.html first: it is made to be read. The same entries are in events.json and events.csv for programs. explanation.html tells why the entries exist, who receives them, how long they are kept, and which rights you have.\n\nWhat belongs to other people, such as the names of employees, is not disclosed; the entries say where that is so.".to_owned()
        }
        LetterKind::Response => {
            "We have searched our audit log for everything that is by you, about you, or names you, and send you a copy with an explanation.\n\nIf the copy is protected by a password, you receive the password on another way.".to_owned()
        }
        LetterKind::Refusal => {
            let ground = ground.unwrap_or("[the ground]");
            format!("We cannot do what you ask for. The reason is: {ground}.\n\n{}", complaint(regime))
        }
        LetterKind::Extension => format!(
            "We need more time to answer, because of the complexity or the number of requests. You will have our answer by {} at the latest.\n\n{}",
            words::day(dates::start_ms(extended)),
            complaint(regime)
        ),
    };
    format!("{begin}\n\n{body}\n\nYours faithfully\n{organisation}\n")
}

/// A letter as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub kind: LetterKind,
    pub body: String,
    /// 0 while nobody has edited it.
    pub revision: u64,
    pub changed: Option<(PersonId, u64)>,
}

/// Why a letter was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSaved {
    Empty,
    TooLong,
    /// Somebody else has edited it meanwhile.
    Stale,
    /// The case is closed.
    Closed,
    Missing,
    Store(StoreError),
}

impl From<StoreError> for NotSaved {
    fn from(error: StoreError) -> NotSaved {
        NotSaved::Store(error)
    }
}

impl Disclosures {
    /// One of each kind, edited or from its template.
    pub async fn letters(
        &self,
        case: &Case,
        name: &str,
        organisation: &str,
        ground: Option<&str>,
    ) -> Result<Vec<Letter>, StoreError> {
        let edited = self.control.case_letters(case.tenant_id, case.id).await?;
        let calendar = dates::calendar(&self.control, case.tenant_id).await?;
        let extended = dates::extended_due(case, &calendar, self.world.now_ms());
        let letter = |kind: LetterKind| match edited.iter().find(|letter| letter.kind == kind) {
            Some(letter) => Letter {
                kind,
                body: letter.body.clone(),
                revision: letter.revision,
                changed: Some((letter.person_id, letter.changed_at_ms)),
            },
            None => Letter {
                kind,
                body: template(kind, case, name, organisation, ground, extended),
                revision: 0,
                changed: None,
            },
        };
        Ok(LetterKind::ALL.map(letter).into())
    }

    pub async fn save_letter(
        &self,
        person_id: PersonId,
        case: &Case,
        kind: LetterKind,
        body: &str,
        revision: u64,
    ) -> Result<(), NotSaved> {
        if case.state == CaseState::Closed {
            return Err(NotSaved::Closed);
        }
        let body = body.replace("\r\n", "\n").replace('\0', "");
        if body.trim().is_empty() {
            return Err(NotSaved::Empty);
        }
        if body.chars().nth(LETTER_CHARS_MAX).is_some() {
            return Err(NotSaved::TooLong);
        }
        let recorder = Recorder::new(Actor::Person(person_id), self.world.clone());
        let metadata = json!({ "letter": kind.as_str(), "revision": revision + 1 });
        let record = recorder.record(&actions::CASE_LETTER_CHANGED, &format!("case/{}", case.id.0), metadata);
        let letter = CaseLetter {
            case_id: case.id,
            kind,
            body,
            revision,
            person_id,
            changed_at_ms: self.world.now_ms(),
        };
        let saved = self.control.save_letter(case.tenant_id, letter, vec![record]).await?;
        self.drain.wake.wake();
        match saved {
            Some(true) => Ok(()),
            Some(false) => Err(NotSaved::Stale),
            None => Err(NotSaved::Missing),
        }
    }
}
