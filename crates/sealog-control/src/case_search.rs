//! Searches of cases: what was found for a data subject, frozen with its parameters. What is decided about it
//! is in [`crate::case_found`].
//!
//! A search is done by a job, which writes what it has found together with how far it has got: after a crash
//! it goes on there. A search that was stopped goes on with another job.

use sealog_core::id::TenantId;

use crate::case_found::{self, FoundCounts, FoundEvent, NewFound, SearchId, last_done};
use crate::case_record::CaseId;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, one, params, table};
use crate::job::{self, JobId, NewJob};
use crate::person::PersonId;
use crate::record::NewRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCaseSearch {
    pub id: SearchId,
    pub tenant_id: TenantId,
    pub case_id: CaseId,
    pub person_id: PersonId,
    /// What is looked for and where; a JSON object that those know who search.
    pub parameters: String,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseSearch {
    pub new: NewCaseSearch,
    /// The last one that worked on it.
    pub job_id: JobId,
    /// How far it has got, in the form of those who search.
    pub position: Option<String>,
    /// Events that were looked at.
    pub looked: u64,
    pub counts: FoundCounts,
    pub outcome: Option<SearchOutcome>,
    pub ended_at_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    Done,
    /// There are more events than one case can hold.
    TooMany,
}

impl SearchOutcome {
    const ALL: [SearchOutcome; 2] = [SearchOutcome::Done, SearchOutcome::TooMany];

    pub fn as_str(self) -> &'static str {
        match self {
            SearchOutcome::Done => "done",
            SearchOutcome::TooMany => "too_many",
        }
    }
}

/// What a piece of a search has come to.
#[derive(Clone, Debug, Default)]
pub struct SearchPiece {
    pub position: String,
    pub looked: u64,
    pub found: Vec<NewFound>,
    /// With their kinds.
    pub values: Vec<(String, String)>,
}

/// Bytes of a row with what belongs to it, at most by far.
const ROW_BYTES: u64 = 1024;

impl Control {
    /// Queues the job along with it. Nothing if the tenant has so many that have not ended.
    pub fn start_case_search(
        &self,
        new: NewCaseSearch,
        job: NewJob,
        unended_max: usize,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Option<CaseSearch>> {
        let room = self.tenant_room();
        self.change(Lock::Order, move |db| {
            let Some(job) = job::queue(db, job, unended_max, &records)? else { return Ok(None) };
            let search = CaseSearch {
                new,
                job_id: job.id,
                position: None,
                looked: 0,
                counts: FoundCounts::default(),
                outcome: None,
                ended_at_ms: None,
            };
            insert(db, &search)?;
            room.check(db, search.new.tenant_id)?;
            Ok(Some(search))
        })
    }

    /// Goes on with one that was stopped or has failed, in another job. Whether it has not ended, and there
    /// was room.
    pub fn resume_case_search(
        &self,
        id: SearchId,
        job: NewJob,
        unended_max: usize,
        records: Vec<NewRecord>,
    ) -> Answer<'_, bool> {
        let room = self.tenant_room();
        self.change(Lock::Order, move |db| {
            let Some(search) = find(db, id)?.filter(|search| search.ended_at_ms.is_none()) else {
                return Ok(false);
            };
            let Some(job) = job::queue(db, job, unended_max, &records)? else { return Ok(false) };
            room.check(db, search.new.tenant_id)?;
            let sql = "UPDATE {case_searches} SET job_id = ?2 WHERE id = ?1";
            Ok(db.execute(sql, params![id, job.id])? > 0)
        })
    }

    pub fn case_search(&self, id: SearchId) -> Answer<'_, Option<CaseSearch>> {
        self.read(move |db| find(db, id))
    }

    /// Newest first.
    pub fn case_searches(
        &self,
        tenant_id: TenantId,
        id: CaseId,
        limit: usize,
    ) -> Answer<'_, Vec<CaseSearch>> {
        self.read(move |db| {
            let sql = format!(
                "{} WHERE case_id = ?1 AND tenant_id = ?2 ORDER BY number DESC LIMIT ?3",
                SEARCHES.select
            );
            all(db, &sql, params![id, tenant_id, limit], read)
        })
    }

    /// Keeps what a piece has come to. Nothing is kept, and nothing answered, if the search is another job's
    /// by now; refused while the disk has no room to spare.
    pub fn advance_case_search(
        &self,
        id: SearchId,
        job_id: JobId,
        piece: SearchPiece,
    ) -> Answer<'_, Option<CaseSearch>> {
        let bytes = (piece.found.len() + piece.values.len()) as u64 * ROW_BYTES;
        self.change_bulky(bytes, move |db| {
            let Some(search) = find(db, id)?.filter(|search| search.job_id == job_id && search.outcome.is_none())
            else {
                return Ok(None);
            };
            let SearchPiece { position, looked, found, values } = piece;
            for found in &found {
                case_found::add(db, id, found)?;
            }
            case_found::add_values(db, id, &values)?;
            let counts = match found.is_empty() {
                true => search.counts,
                false => case_found::count_kinds(db, id)?,
            };
            let sql = "UPDATE {case_searches} SET position = ?2, looked = looked + ?3, events = ?4, by_person = ?5, on_person = ?6, mentions = ?7 WHERE id = ?1";
            let FoundCounts { events, by_person, on_person, mentions } = counts;
            db.execute(sql, params![id, position, looked, events, by_person, on_person, mentions])?;
            find(db, id)
        })
    }

    /// Ends it. One with too many events keeps none of them; of one that is done, they take the place of
    /// those of earlier searches, with all that was decided about those until this moment.
    pub fn end_case_search(
        &self,
        id: SearchId,
        job_id: JobId,
        outcome: SearchOutcome,
        now_ms: u64,
    ) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let Some(search) = find(db, id)? else { return Ok(false) };
            let before = last_done(db, search.new.case_id)?;
            let sql = "UPDATE {case_searches} SET outcome = ?3, ended_at_ms = ?4 WHERE id = ?1 AND job_id = ?2 AND outcome IS NULL";
            if db.execute(sql, params![id, job_id, outcome.as_str(), now_ms])? == 0 {
                return Ok(false);
            }
            if let Some(before) = before
                && last_done(db, search.new.case_id)? == Some(id)
            {
                case_found::carry_over(db, before, id)?;
            }
            let which = match outcome {
                SearchOutcome::TooMany => "search_id = ?1",
                SearchOutcome::Done => {
                    "search_id IN (SELECT earlier.id FROM {case_searches} AS earlier JOIN {case_searches} AS this ON this.case_id = earlier.case_id
                                   WHERE this.id = ?1 AND earlier.number < this.number)"
                }
            };
            for table in ["case_found", "case_values"] {
                db.execute(&format!("DELETE FROM {{{table}}} WHERE {which}"), params![id])?;
            }
            Ok(true)
        })
    }

    /// Values that are the person's, that must not be disclosed, or that somebody decided to disclose, with
    /// their kinds.
    pub fn case_values(&self, id: SearchId) -> Answer<'_, Vec<(String, String)>> {
        self.read(move |db| {
            let sql = "SELECT value, kind FROM {case_values} WHERE search_id = ?1 ORDER BY value, kind";
            all(db, sql, params![id], |row| Ok((row.get("value")?, row.get("kind")?)))
        })
    }
}

const SEARCHES: Table = table!(
    "case_searches",
    "id",
    "id, tenant_id, case_id, job_id, person_id, parameters, position, looked, events, by_person, \
     on_person, mentions, outcome, created_at_ms, ended_at_ms"
);

fn insert(db: &mut dyn Db, search: &CaseSearch) -> Result<(), DbError> {
    let (new, counts) = (&search.new, search.counts);
    let params = params![
        new.id,
        new.tenant_id,
        new.case_id,
        search.job_id,
        new.person_id,
        &new.parameters,
        &search.position,
        search.looked,
        counts.events,
        counts.by_person,
        counts.on_person,
        counts.mentions,
        search.outcome.map(SearchOutcome::as_str),
        new.created_at_ms,
        search.ended_at_ms,
    ];
    SEARCHES.insert(db, params, "").map(drop)
}

pub(crate) fn find(db: &mut dyn Db, id: SearchId) -> Result<Option<CaseSearch>, DbError> {
    one(db, &format!("{} WHERE id = ?1", SEARCHES.select), params![id], read)
}

fn read(row: &Row) -> Result<CaseSearch, DbError> {
    let outcome: Option<String> = row.get("outcome")?;
    Ok(CaseSearch {
        new: NewCaseSearch {
            id: row.get("id")?,
            tenant_id: row.get("tenant_id")?,
            case_id: row.get("case_id")?,
            person_id: row.get("person_id")?,
            parameters: row.get("parameters")?,
            created_at_ms: row.get("created_at_ms")?,
        },
        job_id: row.get("job_id")?,
        position: row.get("position")?,
        looked: row.get("looked")?,
        counts: FoundCounts {
            events: row.get("events")?,
            by_person: row.get("by_person")?,
            on_person: row.get("on_person")?,
            mentions: row.get("mentions")?,
        },
        outcome: match outcome {
            Some(_) => Some(row.word("outcome", &SearchOutcome::ALL, SearchOutcome::as_str)?),
            None => None,
        },
        ended_at_ms: row.get("ended_at_ms")?,
    })
}

/// With what was found, and with the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSearch {
    pub search: CaseSearch,
    pub found: Vec<FoundEvent>,
    pub values: Vec<(String, String)>,
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<KeptSearch>, DbError> {
    let searches = SEARCHES.all(db, read)?;
    searches
        .into_iter()
        .map(|search| {
            let sql = "SELECT value, kind FROM {case_values} WHERE search_id = ?1 ORDER BY value, kind";
            let values =
                all(db, sql, params![search.new.id], |row| Ok((row.get("value")?, row.get("kind")?)))?;
            Ok(KeptSearch { found: case_found::export(db, search.new.id)?, search, values })
        })
        .collect()
}

pub(crate) fn import(db: &mut dyn Db, searches: &[KeptSearch]) -> Result<(), DbError> {
    for KeptSearch { search, found, values } in searches {
        insert(db, search)?;
        found.iter().try_for_each(|found| case_found::insert(db, search.new.id, found))?;
        case_found::add_values(db, search.new.id, values)?;
    }
    Ok(())
}
