//! Events that a search of a case has found, and what was decided about each: include or exclude, and what is
//! masked.
//!
//! An event has a revision. Who decides says which one they have seen; what somebody else has changed
//! meanwhile is left as it is, and counted. Who decides also names the search whose events they have seen: it
//! is refused once another one is the current one, and what was decided until then is carried over by the
//! transaction that makes it so.

use sealog_core::id::{ProjectId, TenantId};

use crate::case_record::{self, CaseId};
use crate::case_words::CaseState;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Value, all, count, damaged, names, one, params};
use crate::membership::Grants;
use crate::person::PersonId;
use crate::record::{self, Records};

/// Bits of [`FoundEvent::found`].
pub const BY_PERSON: u8 = 1;
pub const ON_PERSON: u8 = 2;
pub const MENTION: u8 = 4;
/// A person has added it, whatever it says.
pub const ADDED: u8 = 8;

crate::db::id!(SearchId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFound {
    pub project_id: ProjectId,
    pub chain_seq: u64,
    pub log_id: String,
    pub timestamp_ms: u64,
    pub action: String,
    pub category: Option<String>,
    /// Bits of [`FoundEvent`].
    pub found: u8,
    /// Texts that a reviewer should read.
    pub flags: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEvent {
    pub new: NewFound,
    pub decision: Option<Decision>,
    /// Why it is excluded.
    pub reason: Option<String>,
    /// Paths that a reviewer chose; without them those that are suggested.
    pub masks: Option<Vec<String>>,
    pub decided_by: Option<PersonId>,
    pub decided_at_ms: Option<u64>,
    pub revision: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Include,
    Exclude,
}

impl Decision {
    const ALL: [Decision; 2] = [Decision::Include, Decision::Exclude];

    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Include => "include",
            Decision::Exclude => "exclude",
        }
    }
}

/// An event can be of several kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundCounts {
    pub events: u64,
    pub by_person: u64,
    pub on_person: u64,
    pub mentions: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFilter {
    pub decision: Option<DecisionIs>,
    /// Bits of which an event has one; 0 for any.
    pub found: u8,
    /// Whether an event has texts that a reviewer should read.
    pub is_flagged: Option<bool>,
    pub action: Option<String>,
}

/// The events of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    pub action: String,
    pub events: u64,
    pub open: u64,
    /// Those of the open ones with texts that a reviewer should read.
    pub to_read: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionIs {
    Open,
    Made(Decision),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Review {
    pub included: u64,
    pub excluded: u64,
    pub open: u64,
    /// Grows with every decision.
    pub mark: u64,
}

/// In which case, and while it is in which states.
#[derive(Clone, Debug)]
pub struct Reviewing {
    pub tenant_id: TenantId,
    pub case_id: CaseId,
    pub search_id: SearchId,
    pub states: &'static [CaseState],
    pub person_id: PersonId,
    pub now_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Decide {
    pub reviewing: Reviewing,
    pub which: Which,
    /// Events with texts that a reviewer should read stay as they are.
    pub leaves_flagged: bool,
    pub decision: Option<Decision>,
    pub reason: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Which {
    /// Each with the revision that was seen.
    These(Vec<(ProjectId, u64, u64)>),
    /// All that match and are not decided: what somebody else has decided stays.
    Open(FoundFilter),
}

#[derive(Clone, Debug)]
pub struct MaskFound {
    pub reviewing: Reviewing,
    pub project_id: ProjectId,
    pub chain_seq: u64,
    pub revision: u64,
    pub masks: Option<Vec<String>>,
    /// Masked or shown from now on, wherever they stand, with their kinds; and those whose kind is taken
    /// away.
    pub values: Vec<(String, String)>,
    pub without: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// `left` were changed by others; `unknown` are none that the search has found; `to_read` have texts that
    /// a reviewer should read first.
    Done { changed: u64, left: u64, unknown: u64, to_read: u64 },
    /// The case is in this state, in which nothing is decided; or there is a newer search.
    Locked(Option<CaseState>),
}

/// What lies outside of somebody's grants is in no list and no number that they see.
impl Control {
    /// Newest first.
    pub fn found_events(
        &self,
        id: SearchId,
        filter: FoundFilter,
        grants: Grants,
        offset: u64,
        limit: usize,
    ) -> Answer<'_, Vec<FoundEvent>> {
        self.read(move |db| {
            let mut params = vec![id.into(), limit.into(), offset.into()];
            let sql = format!(
                "{SELECT} WHERE search_id = ?1{}{} {NEWEST_FIRST} LIMIT ?2 OFFSET ?3",
                conditions(&filter, &mut params),
                granted(&grants, &mut params)
            );
            all(db, &sql, &params, read)
        })
    }

    /// The next one that is not decided behind `after` in the order of the list, or else the first one; with
    /// how many of the list come before it.
    pub fn next_open(
        &self,
        id: SearchId,
        filter: FoundFilter,
        grants: Grants,
        after: Option<(ProjectId, u64)>,
    ) -> Answer<'_, Option<(FoundEvent, u64)>> {
        self.read(move |db| {
            let open = FoundFilter { decision: Some(DecisionIs::Open), ..filter.clone() };
            let after = match after {
                Some((project_id, seq)) => place(db, id, project_id, seq)?,
                None => None,
            };
            let mut next = None;
            for after in [after, None] {
                let mut params = vec![id.into()];
                let sql = format!(
                    "{SELECT} WHERE search_id = ?1{}{}{} {NEWEST_FIRST} LIMIT 1",
                    conditions(&open, &mut params),
                    granted(&grants, &mut params),
                    after.map_or(String::new(), |place| beyond(place, ["<", ">", "<"], &mut params))
                );
                next = one(db, &sql, &params, read)?;
                if next.is_some() || after.is_none() {
                    break;
                }
            }
            let Some(next) = next else { return Ok(None) };
            let new = &next.new;
            let mut params = vec![id.into()];
            let sql = format!(
                "SELECT count(*) AS count FROM {{case_found}} WHERE search_id = ?1{}{}{}",
                conditions(&filter, &mut params),
                granted(&grants, &mut params),
                beyond((new.timestamp_ms, new.project_id, new.chain_seq), [">", "<", ">"], &mut params)
            );
            let before = count(db, &sql, &params)?;
            Ok(Some((next, before)))
        })
    }

    /// By action; those with most to decide first.
    pub fn found_groups(
        &self,
        id: SearchId,
        filter: FoundFilter,
        grants: Grants,
        limit: usize,
    ) -> Answer<'_, Vec<FoundGroup>> {
        self.read(move |db| {
            let of = |which: &str| format!("CAST(sum(CASE WHEN {which} THEN 1 ELSE 0 END) AS bigint)");
            let mut params = vec![id.into(), limit.into()];
            let sql = format!(
                "SELECT action, count(*) AS events, {} AS undecided, {} AS to_read FROM {{case_found}}
                 WHERE search_id = ?1{}{} GROUP BY action ORDER BY undecided DESC, events DESC, action LIMIT ?2",
                of("decision IS NULL"),
                of("decision IS NULL AND flags > 0"),
                conditions(&filter, &mut params),
                granted(&grants, &mut params)
            );
            all(db, &sql, &params, |row| {
                Ok(FoundGroup {
                    action: row.get("action")?,
                    events: row.get("events")?,
                    open: row.get("undecided")?,
                    to_read: row.get("to_read")?,
                })
            })
        })
    }

    /// How many decisions about the events of a case are this person's.
    pub fn decisions_of(&self, case_id: CaseId, person_id: PersonId) -> Answer<'_, u64> {
        self.read(move |db| decided_by(db, case_id, person_id))
    }

    pub fn found_event(
        &self,
        id: SearchId,
        project_id: ProjectId,
        chain_seq: u64,
    ) -> Answer<'_, Option<FoundEvent>> {
        self.read(move |db| {
            let sql = format!("{SELECT} WHERE search_id = ?1 AND project_id = ?2 AND chain_seq = ?3");
            one(db, &sql, params![id, project_id, chain_seq], read)
        })
    }

    pub fn count_found(&self, id: SearchId, filter: FoundFilter, grants: Grants) -> Answer<'_, u64> {
        self.read(move |db| {
            let mut params = vec![id.into()];
            let sql = format!(
                "SELECT count(*) AS count FROM {{case_found}} WHERE search_id = ?1{}{}",
                conditions(&filter, &mut params),
                granted(&grants, &mut params)
            );
            count(db, &sql, &params)
        })
    }

    /// How many are in, out and open, and a number that is another one after each decision.
    pub fn review_of(&self, id: SearchId, grants: Grants) -> Answer<'_, Review> {
        self.read(move |db| review(db, id, &grants))
    }

    /// Decides about events, while the case is in one of `states`. The records are told how many it were.
    pub fn decide_found(&self, decide: Decide, records: Records<u64>) -> Answer<'_, Decided> {
        self.change(Lock::Order, move |db| {
            let Decide { reviewing, which, leaves_flagged, decision, reason } = decide;
            if let Some(locked) = locked(db, &reviewing)? {
                return Ok(locked);
            }
            let id = reviewing.search_id;
            let decision: Value = decision.map(Decision::as_str).into();
            let unread = if leaves_flagged { " AND flags = 0" } else { "" };
            let set = format!("UPDATE {{case_found}} SET decision = ?2, reason = ?3, decided_by = ?4, decided_at_ms = ?5, revision = revision + 1 WHERE search_id = ?1{unread}");
            let set_params: Vec<Value> = vec![
                id.into(),
                decision,
                reason.into(),
                reviewing.person_id.into(),
                reviewing.now_ms.into(),
            ];
            let (mut changed, mut left, mut unknown, mut to_read) = (0, 0, 0, 0);
            match which {
                Which::Open(filter) => {
                    let filter = FoundFilter { decision: Some(DecisionIs::Open), ..filter };
                    let mut params = set_params;
                    let conditions = conditions(&filter, &mut params);
                    changed = db.execute(&format!("{set}{conditions}"), &params)?;
                    if leaves_flagged {
                        to_read = count_of(db, id, &FoundFilter { is_flagged: Some(true), ..filter })?;
                    }
                }
                Which::These(events) => {
                    let set = format!("{set} AND project_id = ?6 AND chain_seq = ?7 AND revision = ?8");
                    let find =
                        format!("{SELECT} WHERE search_id = ?1 AND project_id = ?2 AND chain_seq = ?3");
                    for (project_id, chain_seq, revision) in events {
                        let mut params = set_params.clone();
                        params.extend([project_id.into(), chain_seq.into(), revision.into()]);
                        if db.execute(&set, &params)? > 0 {
                            changed += 1;
                            continue;
                        }
                        match one(db, &find, params![id, project_id, chain_seq], read)? {
                            None => unknown += 1,
                            Some(found) if leaves_flagged && found.revision == revision => to_read += 1,
                            Some(_) => left += 1,
                        }
                    }
                }
            }
            tell(db, &reviewing, changed, records)?;
            Ok(Decided::Done { changed, left, unknown, to_read })
        })
    }

    /// Chooses what is masked of one event, with what that says of values; nothing for what is suggested.
    pub fn mask_found(&self, mask: MaskFound, records: Records<u64>) -> Answer<'_, Decided> {
        self.change(Lock::Order, move |db| {
            let MaskFound { reviewing, project_id, chain_seq, revision, masks, values, without } = mask;
            if let Some(locked) = locked(db, &reviewing)? {
                return Ok(locked);
            }
            let id = reviewing.search_id;
            // Who masks an event means to disclose the rest of it.
            let sql = "UPDATE {case_found} SET masks = ?5, decision = 'include', reason = NULL, decided_by = ?6, decided_at_ms = ?7, revision = revision + 1
                       WHERE search_id = ?1 AND project_id = ?2 AND chain_seq = ?3 AND revision = ?4";
            let masks: Value = masks.map_or(Value::Null, |masks| names(&masks));
            let params = params![id, project_id, chain_seq, revision, masks, reviewing.person_id, reviewing.now_ms];
            let changed = db.execute(sql, params)?;
            if changed > 0 {
                remove_values(db, id, &without)?;
                add_values(db, id, &values)?;
            }
            tell(db, &reviewing, changed, records)?;
            Ok(Decided::Done { changed, left: 1 - changed, unknown: 0, to_read: 0 })
        })
    }
}

/// Values of one statement. All statements have so many, so that a database plans only one.
const VALUES_OF_STATEMENT: usize = 100;

/// Adds values with their kinds to what a search knows, a hundred by a statement: one event can have 100,000,
/// and every other change waits until they are in.
pub(crate) fn add_values(db: &mut dyn Db, id: SearchId, values: &[(String, String)]) -> Result<(), DbError> {
    let rows = |row: usize| format!("(?1, ?{}, ?{})", 2 * row + 2, 2 * row + 3);
    let sql = "INSERT INTO {case_values} (search_id, value, kind) VALUES {rows} ON CONFLICT DO NOTHING";
    each_hundred(db, sql, rows, id, values)
}

fn remove_values(db: &mut dyn Db, id: SearchId, values: &[(String, String)]) -> Result<(), DbError> {
    let rows = |row: usize| format!("(?{}, ?{})", 2 * row + 2, 2 * row + 3);
    let sql = "DELETE FROM {case_values} WHERE search_id = ?1 AND (value, kind) IN (VALUES {rows})";
    each_hundred(db, sql, rows, id, values)
}

fn each_hundred(
    db: &mut dyn Db,
    sql: &str,
    row: impl Fn(usize) -> String,
    id: SearchId,
    values: &[(String, String)],
) -> Result<(), DbError> {
    let rows: Vec<String> = (0..VALUES_OF_STATEMENT).map(row).collect();
    let sql = sql.replace("{rows}", &rows.join(", "));
    for chunk in values.chunks(VALUES_OF_STATEMENT) {
        let mut params = vec![id.into()];
        for (value, kind) in filled(chunk) {
            params.extend([Value::from(value), kind.into()]);
        }
        db.execute(&sql, &params)?;
    }
    Ok(())
}

/// As many as a statement has: the last one is repeated, which changes nothing.
fn filled(chunk: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    chunk.iter().chain(chunk.last().into_iter().cycle()).take(VALUES_OF_STATEMENT)
}

/// Of a case, the search whose events are decided about.
pub(crate) fn last_done(db: &mut dyn Db, case_id: CaseId) -> Result<Option<SearchId>, DbError> {
    let sql =
        "SELECT id FROM {case_searches} WHERE case_id = ?1 AND outcome = 'done' ORDER BY number DESC LIMIT 1";
    one(db, sql, params![case_id], |row| row.get("id"))
}

/// Why nothing may be decided, if that is so.
fn locked(db: &mut dyn Db, reviewing: &Reviewing) -> Result<Option<Decided>, DbError> {
    let case = case_record::find(db, reviewing.tenant_id, reviewing.case_id)?;
    let is_current = last_done(db, reviewing.case_id)? == Some(reviewing.search_id);
    Ok(match case {
        Some(case) if reviewing.states.contains(&case.state) && is_current => None,
        Some(case) => Some(Decided::Locked(Some(case.state).filter(|_| is_current))),
        None => Some(Decided::Locked(None)),
    })
}

fn tell(db: &mut dyn Db, reviewing: &Reviewing, changed: u64, records: Records<u64>) -> Result<(), DbError> {
    if changed > 0 {
        record::insert(db, reviewing.tenant_id, &records.tell(None, &changed))?;
    }
    Ok(())
}

fn conditions(filter: &FoundFilter, params: &mut Vec<Value>) -> String {
    let mut sql = String::new();
    match filter.decision {
        None => {}
        Some(DecisionIs::Open) => sql.push_str(" AND decision IS NULL"),
        Some(DecisionIs::Made(decision)) => sql.push_str(&format!(" AND decision = '{}'", decision.as_str())),
    }
    if filter.found != 0 {
        sql.push_str(&format!(" AND (found & {}) <> 0", filter.found));
    }
    match filter.is_flagged {
        None => {}
        Some(true) => sql.push_str(" AND flags > 0"),
        Some(false) => sql.push_str(" AND flags = 0"),
    }
    if let Some(action) = &filter.action {
        params.push(action.into());
        sql.push_str(&format!(" AND action = ?{}", params.len()));
    }
    sql
}

/// The order of lists.
const NEWEST_FIRST: &str = "ORDER BY timestamp_ms DESC, project_id, chain_seq DESC";

type Place = (u64, ProjectId, u64);

/// Where an event is in that order.
fn place(db: &mut dyn Db, id: SearchId, project_id: ProjectId, seq: u64) -> Result<Option<Place>, DbError> {
    let sql = format!("{SELECT} WHERE search_id = ?1 AND project_id = ?2 AND chain_seq = ?3");
    let found = one(db, &sql, params![id, project_id, seq], read)?;
    Ok(found.map(|found| (found.new.timestamp_ms, project_id, seq)))
}

/// Events on one side of a place, by how each of its three parts compares.
fn beyond(
    (at_ms, project_id, seq): Place,
    [time, project, number]: [&str; 3],
    params: &mut Vec<Value>,
) -> String {
    let first = params.len() + 1;
    params.extend([at_ms.into(), project_id.into(), seq.into()]);
    let (at, of, seq) = (format!("?{first}"), format!("?{}", first + 1), format!("?{}", first + 2));
    format!(
        " AND (timestamp_ms {time} {at} OR (timestamp_ms = {at} AND (project_id {project} {of} OR (project_id = {of} AND chain_seq {number} {seq}))))"
    )
}

fn count_of(db: &mut dyn Db, id: SearchId, filter: &FoundFilter) -> Result<u64, DbError> {
    let mut params = vec![id.into()];
    let conditions = conditions(filter, &mut params);
    let sql = format!("SELECT count(*) AS count FROM {{case_found}} WHERE search_id = ?1{conditions}");
    count(db, &sql, &params)
}

/// Of those that stand: what others decided again is theirs.
pub(crate) fn decided_by(db: &mut dyn Db, case_id: CaseId, person_id: PersonId) -> Result<u64, DbError> {
    let Some(id) = last_done(db, case_id)? else { return Ok(0) };
    let sql = "SELECT count(*) AS count FROM {case_found} WHERE search_id = ?1 AND decided_by = ?2 AND decision IS NOT NULL";
    count(db, sql, params![id, person_id])
}

/// Those that somebody may see.
fn granted(grants: &Grants, params: &mut Vec<Value>) -> String {
    let mut put = |value: Value| {
        params.push(value);
        params.len()
    };
    let mut sql = String::new();
    if let Some(from_ms) = grants.from_ms {
        sql.push_str(&format!(" AND timestamp_ms >= ?{}", put(from_ms.into())));
    }
    if let Some(until_ms) = grants.until_ms {
        sql.push_str(&format!(" AND timestamp_ms < ?{}", put(until_ms.into())));
    }
    if let Some(projects) = &grants.projects {
        let places: Vec<String> = projects.iter().map(|id| format!("?{}", put((*id).into()))).collect();
        // A list must not be empty; nothing equals NULL.
        let places = if places.is_empty() { "NULL".to_owned() } else { places.join(", ") };
        sql.push_str(&format!(" AND project_id IN ({places})"));
    }
    sql
}

pub(crate) fn review(db: &mut dyn Db, id: SearchId, grants: &Grants) -> Result<Review, DbError> {
    let of = |which: &str| format!("COALESCE(sum(CASE WHEN {which} THEN 1 ELSE 0 END), 0)");
    let mut params = vec![id.into()];
    let granted = granted(grants, &mut params);
    // A sum of whole numbers is a decimal in PostgreSQL.
    let sql = format!(
        "SELECT CAST({} AS bigint) AS included, CAST({} AS bigint) AS excluded, CAST({} AS bigint) AS undecided, CAST(COALESCE(sum(revision), 0) AS bigint) AS mark
         FROM {{case_found}} WHERE search_id = ?1{granted}",
        of("decision = 'include'"),
        of("decision = 'exclude'"),
        of("decision IS NULL")
    );
    let found = one(db, &sql, &params, |row| {
        Ok(Review {
            included: row.get("included")?,
            excluded: row.get("excluded")?,
            open: row.get("undecided")?,
            mark: row.get("mark")?,
        })
    })?;
    Ok(found.unwrap_or_default())
}

pub(crate) fn count_kinds(db: &mut dyn Db, id: SearchId) -> Result<FoundCounts, DbError> {
    let of = |bit: u8| {
        format!("CAST(COALESCE(sum(CASE WHEN (found & {bit}) <> 0 THEN 1 ELSE 0 END), 0) AS bigint)")
    };
    let sql = format!(
        "SELECT count(*) AS events, {} AS by_person, {} AS on_person, {} AS mentions FROM {{case_found}} WHERE search_id = ?1",
        of(BY_PERSON),
        of(ON_PERSON),
        of(MENTION)
    );
    let counted = one(db, &sql, params![id], |row| {
        Ok(FoundCounts {
            events: row.get("events")?,
            by_person: row.get("by_person")?,
            on_person: row.get("on_person")?,
            mentions: row.get("mentions")?,
        })
    })?;
    Ok(counted.unwrap_or_default())
}

const SELECT: &str = "SELECT project_id, chain_seq, log_id, timestamp_ms, action, category, found, flags, decision, reason, masks, decided_by, decided_at_ms, revision FROM {case_found}";

/// Nobody has decided about it in this search yet; [`carry_over`] brings what was decided in the one before.
pub(crate) fn add(db: &mut dyn Db, id: SearchId, new: &NewFound) -> Result<(), DbError> {
    let found = FoundEvent {
        new: new.clone(),
        decision: None,
        reason: None,
        masks: None,
        decided_by: None,
        decided_at_ms: None,
        revision: 1,
    };
    insert(db, id, &found)
}

/// What was decided about events and values of `before` holds for `id`, too.
///
/// Every decision belongs to one search, which is the current one when it is made ([`locked`]). So this runs
/// in the transaction that makes another search the current one, and at no other time: people decide until
/// then, and what is copied earlier is not all that they decide.
pub(crate) fn carry_over(db: &mut dyn Db, before: SearchId, id: SearchId) -> Result<(), DbError> {
    let sql = "UPDATE {case_found} AS this SET decision = earlier.decision, reason = earlier.reason, masks = earlier.masks,
                   decided_by = earlier.decided_by, decided_at_ms = earlier.decided_at_ms, revision = earlier.revision
               FROM {case_found} AS earlier
               WHERE this.search_id = ?1 AND earlier.search_id = ?2 AND earlier.project_id = this.project_id AND earlier.chain_seq = this.chain_seq";
    db.execute(sql, params![id, before])?;
    let sql = "DELETE FROM {case_values} WHERE search_id = ?1 AND kind IN ('shown', 'chosen')";
    db.execute(sql, params![id])?;
    let sql = "INSERT INTO {case_values} (search_id, value, kind)
               SELECT id, value, kind FROM {case_values} JOIN {case_searches} ON id = ?1
               WHERE search_id = ?2 AND kind IN ('shown', 'chosen')";
    db.execute(sql, params![id, before]).map(drop)
}

/// One that is there gets the other kinds in which it was found.
pub(crate) fn insert(db: &mut dyn Db, id: SearchId, event: &FoundEvent) -> Result<(), DbError> {
    let sql = "INSERT INTO {case_found} (search_id, project_id, chain_seq, log_id, timestamp_ms, action, category, found, flags, decision, reason, masks, decided_by, decided_at_ms, revision)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
               ON CONFLICT (search_id, project_id, chain_seq) DO UPDATE SET found = case_found.found | excluded.found";
    let new = &event.new;
    let params = params![
        id,
        new.project_id,
        new.chain_seq,
        &new.log_id,
        new.timestamp_ms,
        &new.action,
        &new.category,
        new.found,
        new.flags,
        event.decision.map(Decision::as_str),
        &event.reason,
        event.masks.as_ref().map_or(Value::Null, |masks| names(masks)),
        event.decided_by,
        event.decided_at_ms,
        event.revision,
    ];
    db.execute(sql, params).map(drop)
}

fn read(row: &Row) -> Result<FoundEvent, DbError> {
    let decision: Option<String> = row.get("decision")?;
    let masks: Option<String> = row.get("masks")?;
    let masks = masks.map(|text| serde_json::from_str(&text)).transpose();
    Ok(FoundEvent {
        new: NewFound {
            project_id: row.get("project_id")?,
            chain_seq: row.get("chain_seq")?,
            log_id: row.get("log_id")?,
            timestamp_ms: row.get("timestamp_ms")?,
            action: row.get("action")?,
            category: row.get("category")?,
            found: row.get("found")?,
            flags: row.get("flags")?,
        },
        decision: match decision {
            Some(_) => Some(row.word("decision", &Decision::ALL, Decision::as_str)?),
            None => None,
        },
        reason: row.get("reason")?,
        masks: masks.map_err(|error| damaged("masks", &format!("is no list: {error}")))?,
        decided_by: row.get("decided_by")?,
        decided_at_ms: row.get("decided_at_ms")?,
        revision: row.get("revision")?,
    })
}

pub(crate) fn export(db: &mut dyn Db, id: SearchId) -> Result<Vec<FoundEvent>, DbError> {
    all(db, &format!("{SELECT} WHERE search_id = ?1 ORDER BY project_id, chain_seq"), params![id], read)
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Uuid;

    use super::*;

    #[derive(Default)]
    struct Counting {
        statements: std::collections::HashSet<String>,
        rows: Vec<Value>,
        executed: usize,
    }

    impl Db for Counting {
        fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, DbError> {
            self.statements.insert(sql.to_owned());
            self.rows.extend(params[1..].chunks(2).map(|row| row[0].clone()));
            self.executed += 1;
            Ok(0)
        }

        fn query(&mut self, _: &str, _: &[Value]) -> Result<Vec<Row>, DbError> {
            unreachable!("values are written and not read")
        }
    }

    #[test]
    fn values_go_in_and_out_a_hundred_by_a_statement_of_one_text() {
        let values: Vec<_> = (0..30_001).map(|at| (format!("usr_{at}"), "chosen".to_owned())).collect();
        for write in [add_values, remove_values] {
            let mut db = Counting::default();
            write(&mut db, SearchId(Uuid([1; 16])), &values).unwrap();
            assert_eq!((db.executed, db.statements.len()), (301, 1));
            db.rows.dedup();
            let written: Vec<Value> = values.iter().map(|(value, _)| value.into()).collect();
            assert_eq!(db.rows, written, "each of them, and the last one as often as there is room");
        }
    }
}
