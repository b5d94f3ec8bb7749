//! Letters of cases: templates that people edit. What is kept is their text; nothing of it goes into a chain.

use jiff::civil::Date;
use sealog_control::{
    Case, CaseLetter, CaseRegime, CaseState, CaseType, ExtensionReason, Grants, LetterKind, PersonId,
    RefusalGround,
};
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

/// What a letter says before the step that it belongs to is recorded: people are informed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Picked {
    pub ground: Option<RefusalGround>,
    pub reason: Option<ExtensionReason>,
}

/// Why the answer takes longer, as the end of "We need more time to answer".
fn longer_because(reason: Option<ExtensionReason>) -> &'static str {
    match reason {
        None => "because of the complexity or the number of requests",
        Some(ExtensionReason::Complexity) => "because your request is complex",
        Some(ExtensionReason::NumberOfRequests) => "because of the number of requests that we have received",
        Some(ExtensionReason::ReasonablyNecessary) => "because it is reasonably necessary: [explain]",
    }
}

/// What was done about a request of this type.
fn done_about(request_type: CaseType, included: Option<u64>) -> &'static str {
    match (request_type, included) {
        (CaseType::Access | CaseType::Portability | CaseType::Other, Some(0)) => {
            "We have searched our record of activity for entries that record what you did, are about you, or name you. We found none."
        }
        (CaseType::Access | CaseType::Portability | CaseType::Other, _) => {
            "We have searched our record of activity for entries that record what you did, are about you, or name you. We are sending you a copy with an explanation.\n\nIf the copy is protected by a password, we will send the password separately."
        }
        (CaseType::Erasure, _) => {
            "You asked us to erase your data. We have erased: [explain]. We keep the entries in our record of activity, because the law requires it or because we need them for legal claims: [explain]."
        }
        (CaseType::Rectification, _) => {
            "You asked us to correct your data. We have corrected: [explain]. Entries in our record of activity show what was stored at the time and are not changed."
        }
        (CaseType::Restriction, _) => {
            "You asked us to limit the use of your data. From now on we only store it, or use it where the law allows that: [explain]."
        }
        (CaseType::Objection, _) => {
            "You objected to the use of your data. We no longer use it for: [explain]."
        }
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
        Some(RefusalGround::IdentityNotConfirmed) => {
            "we could not confirm your identity. If you show us who you are, we will deal with your request"
        }
        Some(RefusalGround::LegalObligation) => "a legal obligation requires us to keep the data",
        Some(RefusalGround::LegalClaims) => "we need the data for legal claims",
        Some(RefusalGround::RightsOfOthers) => "it would affect the rights and freedoms of others: [explain]",
        Some(RefusalGround::Exempt) => "the law does not apply to the request, or exempts it: [explain]",
    }
}

/// The letter before any edit. `name` is what people call the case; `extended` is the deadline with an
/// extension. The letter of an extension is sent before the extension is recorded, so `Case::due_day` is
/// still the earlier deadline then.
pub fn template(
    kind: LetterKind,
    case: &Case,
    (name, organisation): (&str, &str),
    extended: Date,
    picked: Picked,
    included: Option<u64>,
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
        "Dear {requester},\n\nWe received your request {name} on {received} and {so_far} under {}.",
        law(regime)
    );
    let body = match kind {
        LetterKind::Cover => {
            "With this letter you receive a copy of the entries in our record of activity that record what you did, are about you, or name you. Start with 1-start-here.html, which says what we found. your-data.html has every entry for reading. The same entries are in events.json and events.csv for other programs. explanation.html says why we keep these entries, who receives them, how long we keep them, and what rights you have.\n\nWe do not disclose information about other people, such as the names of employees. The entries show where we left something out.".to_owned()
        }
        LetterKind::Response => {
            done_about(case.intake.request_type, included).to_owned()
        }
        LetterKind::Refusal => {
            let ground = case.answer.and_then(|answer| answer.ground).or(picked.ground);
            format!("We are unable to comply because {}.\n\n{}", because(ground), complaint(regime))
        }
        LetterKind::Extension => format!(
            "We need more time to answer {}. You will have our answer by {} at the latest.\n\n{}",
            longer_because(case.extension.map(|extension| extension.reason).or(picked.reason)),
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
        picked: Picked,
    ) -> Result<Vec<Letter>, StoreError> {
        let included = match self.current_search(case).await? {
            Some(search) => {
                let review = self.control.review_of(search.new.id, Grants::default()).await?;
                (review.open == 0).then_some(review.included)
            }
            None => None,
        };
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
                body: template(kind, case, (name, organisation), extended, picked, included),
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
