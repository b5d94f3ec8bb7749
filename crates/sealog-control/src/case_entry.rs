//! What was done to a case: one entry for each of its revisions, never changed.

use sealog_core::id::Hash;
use serde_json::{Value as Json, json};

use crate::case_record::{CaseId, list, some_word};
use crate::case_words::CaseState;
use crate::db::{Db, DbError, Row, Table, all, params, table};
use crate::person::PersonId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseEntry {
    pub case_id: CaseId,
    /// That the case has had since.
    pub revision: u64,
    pub entry: NewCaseEntry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCaseEntry {
    /// Nothing for what Sealog did itself.
    pub person_id: Option<PersonId>,
    pub at_ms: u64,
    /// What it was, in a word that those know who show it.
    pub what: String,
    /// If the case went from one state to another, or began.
    pub from: Option<CaseState>,
    pub to: Option<CaseState>,
    pub note: String,
    /// The chain has the digest, which is the SHA-256 of salt and note: nobody who has only that can guess
    /// the note.
    pub salt: Hash,
    pub digest: Hash,
    /// Fields that were changed, for whoever has written to the case at the same time.
    pub differences: Vec<CaseDifference>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseDifference {
    pub field: String,
    pub from: String,
    pub to: String,
}

const ENTRIES: Table = table!(
    "case_entries",
    "case_id",
    "case_id, revision, person_id, at_ms, what, from_state, to_state, note, salt, digest, differences"
);

pub(crate) fn insert(db: &mut dyn Db, entry: &CaseEntry) -> Result<(), DbError> {
    let CaseEntry { case_id, revision, entry } = entry;
    let NewCaseEntry { person_id, at_ms, what, from, to, note, salt, digest, differences } = entry;
    let differences = differences
        .iter()
        .map(|CaseDifference { field, from, to }| json!({ "field": field, "from": from, "to": to }));
    let params = params![
        *case_id,
        *revision,
        *person_id,
        *at_ms,
        what,
        from.map(CaseState::as_str),
        to.map(CaseState::as_str),
        note,
        *salt,
        *digest,
        differences.collect::<Json>().to_string(),
    ];
    ENTRIES.insert(db, params, "").map(drop)
}

/// In their order, those above a revision.
pub(crate) fn above(
    db: &mut dyn Db,
    case_id: CaseId,
    revision: u64,
    limit: usize,
) -> Result<Vec<CaseEntry>, DbError> {
    let sql = format!("{} WHERE case_id = ?1 AND revision > ?2 ORDER BY revision LIMIT ?3", ENTRIES.select);
    all(db, &sql, params![case_id, revision, limit], read)
}

fn read(row: &Row) -> Result<CaseEntry, DbError> {
    Ok(CaseEntry {
        case_id: row.get("case_id")?,
        revision: row.get("revision")?,
        entry: NewCaseEntry {
            person_id: row.get("person_id")?,
            at_ms: row.get("at_ms")?,
            what: row.get("what")?,
            from: some_word(row, "from_state", CaseState::parse)?,
            to: some_word(row, "to_state", CaseState::parse)?,
            note: row.get("note")?,
            salt: row.get("salt")?,
            digest: row.get("digest")?,
            differences: list(row, "differences", read_difference)?,
        },
    })
}

fn read_difference(item: &Json) -> Option<CaseDifference> {
    let text = |name: &str| Some(item[name].as_str()?.to_owned());
    Some(CaseDifference { field: text("field")?, from: text("from")?, to: text("to")? })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<CaseEntry>, DbError> {
    ENTRIES.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, entries: &[CaseEntry]) -> Result<(), DbError> {
    entries.iter().try_for_each(|entry| insert(db, entry))
}
