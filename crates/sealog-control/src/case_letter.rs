//! Letters of cases, as people have edited them. One that nobody has edited is made from its template.

use sealog_core::id::TenantId;

use crate::case_record::{self, CaseId};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, one, params, table};
use crate::person::PersonId;
use crate::record::{self, NewRecord};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterKind {
    /// In the package.
    Cover,
    Response,
    Refusal,
    Extension,
}

impl LetterKind {
    pub const ALL: [LetterKind; 4] =
        [LetterKind::Cover, LetterKind::Response, LetterKind::Refusal, LetterKind::Extension];

    pub fn as_str(self) -> &'static str {
        match self {
            LetterKind::Cover => "cover",
            LetterKind::Response => "response",
            LetterKind::Refusal => "refusal",
            LetterKind::Extension => "extension",
        }
    }

    pub fn parse(text: &str) -> Option<LetterKind> {
        LetterKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseLetter {
    pub case_id: CaseId,
    pub kind: LetterKind,
    pub body: String,
    /// Of the text that is kept; of one that is to be kept, the one that was seen.
    pub revision: u64,
    pub person_id: PersonId,
    pub changed_at_ms: u64,
}

impl Control {
    /// Of a case, those that were edited.
    pub fn case_letters(&self, tenant_id: TenantId, id: CaseId) -> Answer<'_, Vec<CaseLetter>> {
        self.read(move |db| match case_record::find(db, tenant_id, id)? {
            Some(_) => {
                all(db, &format!("{} WHERE case_id = ?1 ORDER BY kind", LETTERS.select), params![id], read)
            }
            None => Ok(Vec::new()),
        })
    }

    /// Keeps a text over the revision that was seen, 0 for the first. Whether nobody else was there before;
    /// nothing if there is no such case.
    pub fn save_letter(
        &self,
        tenant_id: TenantId,
        letter: CaseLetter,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<bool>> {
        self.change(Lock::Order, move |db| {
            if case_record::find(db, tenant_id, letter.case_id)?.is_none() {
                return Ok(None);
            }
            let sql = "SELECT revision FROM {case_letters} WHERE case_id = ?1 AND kind = ?2";
            let known: Option<u64> =
                one(db, sql, params![letter.case_id, letter.kind.as_str()], |row| row.get("revision"))?;
            if known.unwrap_or(0) != letter.revision {
                return Ok(Some(false));
            }
            let letter = CaseLetter { revision: letter.revision + 1, ..letter };
            insert(db, &letter)?;
            record::insert(db, tenant_id, &records)?;
            Ok(Some(true))
        })
    }
}

const LETTERS: Table =
    table!("case_letters", "case_id", "case_id, kind, body, revision, person_id, changed_at_ms");

fn insert(db: &mut dyn Db, letter: &CaseLetter) -> Result<(), DbError> {
    let in_place = "ON CONFLICT (case_id, kind) DO UPDATE SET body = excluded.body, revision = excluded.revision, person_id = excluded.person_id, changed_at_ms = excluded.changed_at_ms";
    let CaseLetter { case_id, kind, body, revision, person_id, changed_at_ms } = letter;
    let params = params![*case_id, kind.as_str(), body, *revision, *person_id, *changed_at_ms];
    LETTERS.insert(db, params, in_place).map(drop)
}

fn read(row: &Row) -> Result<CaseLetter, DbError> {
    Ok(CaseLetter {
        case_id: row.get("case_id")?,
        kind: row.word("kind", &LetterKind::ALL, LetterKind::as_str)?,
        body: row.get("body")?,
        revision: row.get("revision")?,
        person_id: row.get("person_id")?,
        changed_at_ms: row.get("changed_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<CaseLetter>, DbError> {
    all(db, &format!("{} ORDER BY case_id, kind", LETTERS.select), &[], read)
}

pub(crate) fn import(db: &mut dyn Db, letters: &[CaseLetter]) -> Result<(), DbError> {
    letters.iter().try_for_each(|letter| insert(db, letter))
}
