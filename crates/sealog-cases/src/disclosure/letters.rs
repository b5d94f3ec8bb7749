//! Letters of cases: templates that people edit. What is kept is their text; nothing of it goes into a chain.

use jiff::civil::Date;
use sealog_control::{Case, CaseLetter, CaseRegime, CaseState, LetterKind, PersonId, RefusalGround};
use sealog_core::time::iso_ms;
use sealog_store::StoreError;
use serde_json::json;

use super::desk::Disclosures;
use super::words;
use crate::dates;
use sealog_service::records::system_chain::{Actor, Recorder, actions};

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

/// The right to complain, which the law requires in every refusal.
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

/// Why a request is refused, as the end of "We are unable to comply because". The law asks for reasons, so
/// the grounds that are a judgement leave room for them.
fn because(ground: Option<RefusalGround>) -> &'static str {
    match ground {
        None => "[the ground]",
        Some(RefusalGround::ManifestlyUnfounded) => "we consider the request manifestly unfounded: [explain]",
        Some(RefusalGround::Excessive) => {
            "we consider the request excessive, in particular repetitive: [explain]"
        }
        Some(RefusalGround::IdentityNotConfirmed) => "we could not confirm your identity",
        Some(RefusalGround::LegalObligation) => "a legal obligation requires us to keep the data",
        Some(RefusalGround::LegalClaims) => "we need the data for legal claims",
        Some(RefusalGround::RightsOfOthers) => "it would affect the rights and freedoms of others: [explain]",
        Some(RefusalGround::Exempt) => "the law does not apply to the request, or exempts it: [explain]",
    }
}

/// The letter before any edit. `name` is what people call the case; `extended` is the deadline with an
/// extension. The letter of an extension is sent before the extension is recorded, so `Case::due_day` is
/// still the earlier deadline then.
pub fn template(kind: LetterKind, case: &Case, name: &str, organisation: &str, extended: Date) -> String {
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
        "Dear {requester},\n\nWe received your request {name} on {received} and {so_far} under {}.",
        law(regime)
    );
    let body = match kind {
        LetterKind::Cover => {
            "With this letter you receive a copy of the entries in our audit log that record what you did, are about you, or name you. Start with your-data.html, which is made for reading. The same entries are in events.json and events.csv for other programs. explanation.html says why we keep these entries, who receives them, how long we keep them, and what rights you have.\n\nWe do not disclose information about other people, such as the names of employees. The entries show where we left something out.".to_owned()
        }
        LetterKind::Response => {
            "We have searched our audit log for entries that record what you did, are about you, or name you. We are sending you a copy with an explanation.\n\nIf the copy is protected by a password, we will send the password separately.".to_owned()
        }
        LetterKind::Refusal => {
            let ground = case.answer.and_then(|answer| answer.ground);
            format!("We are unable to comply because {}.\n\n{}", because(ground), complaint(regime))
        }
        LetterKind::Extension => format!(
            "We need more time to answer because of the complexity or the number of requests. You will have our answer by {} at the latest.\n\n{}",
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
    /// 0 until the first edit.
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
                body: template(kind, case, name, organisation, extended),
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
