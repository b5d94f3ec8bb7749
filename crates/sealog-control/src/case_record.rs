//! A case as it is kept, and how a row becomes one.

use sealog_core::id::{ProjectId, TenantId, Uuid};
use serde_json::{Value as Json, json};

use crate::case_words::{
    CaseChannel, CaseOutcome, CaseRegime, CaseState, CaseType, ExtensionReason, IdentifierKind,
    IdentityMethod, IdentityOutcome, RefusalGround,
};
use crate::db::{Db, DbError, Row, Table, Value, damaged, one, params, table};
use crate::person::PersonId;

crate::db::id!(CaseId);

/// A request of a data subject, and how far it has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Chosen by the caller from randomness.
    pub id: CaseId,
    pub tenant_id: TenantId,
    /// From 1 in each tenant, given when it is created: what people call it by.
    pub number: u64,
    /// Of the last write; whoever writes says which one that write has seen.
    pub revision: u64,
    pub state: CaseState,
    /// Where it goes on after a pause.
    pub state_before_pause: Option<CaseState>,
    pub intake: Intake,
    pub assignee: Option<PersonId>,
    pub scope: CaseScope,
    pub identifiers: Vec<Identifier>,
    pub identity: Option<IdentityCheck>,
    pub pauses: Vec<CasePause>,
    pub extension: Option<CaseExtension>,
    /// When the requester was told that the request has arrived.
    pub confirmed_at_ms: Option<u64>,
    pub answer: Option<CaseAnswer>,
    /// The last day for an answer, in days from 1970, as it was when somebody last worked it out.
    pub due_day: i64,
    pub created_by: PersonId,
    pub created_at_ms: u64,
    pub changed_at_ms: u64,
    pub closed_at_ms: Option<u64>,
}

impl Case {
    /// Nothing of it may be disclosed before.
    pub fn is_identity_confirmed(&self) -> bool {
        self.identity.is_some_and(|check| check.outcome == IdentityOutcome::Confirmed)
    }
}

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intake {
    pub regime: CaseRegime,
    /// Of a custom regime: days for the answer, and more if it is extended.
    pub custom_days: Option<(u32, u32)>,
    pub request_type: CaseType,
    /// Who asks, and how to answer: never in a chain.
    pub requester: String,
    pub contact: String,
    /// In the words of the requester.
    pub wrote: String,
    pub channel: CaseChannel,
    pub received_at_ms: u64,
}

/// Where to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseScope {
    pub projects: Vec<ProjectId>,
    /// Events from this time on.
    pub from_ms: Option<u64>,
    /// Events before this time.
    pub until_ms: Option<u64>,
}

/// Something that means the person in events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier {
    pub kind: IdentifierKind,
    /// Of a value in the metadata: where it stands, with dots between the keys.
    pub path: Option<String>,
    pub value: String,
    /// Who or what says that it means the person.
    pub source: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityCheck {
    pub method: IdentityMethod,
    pub outcome: IdentityOutcome,
    pub person_id: PersonId,
    pub at_ms: u64,
}

/// A time in which the person was asked for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CasePause {
    pub from_ms: u64,
    /// Nothing while it lasts.
    pub until_ms: Option<u64>,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseExtension {
    pub reason: ExtensionReason,
    /// When the requester was told.
    pub announced_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseAnswer {
    pub outcome: CaseOutcome,
    pub at_ms: u64,
    pub how: Option<CaseChannel>,
    pub ground: Option<RefusalGround>,
}

/// The column of the time of receipt is asked for by the register, that of the day by what is due.
pub(crate) const CASES: Table = table!(
    "cases",
    "id",
    "id, tenant_id, case_number, revision, state, state_before_pause, regime, custom_days, \
     custom_extension_days, request_type, requester, contact, wrote, channel, received_at_ms, \
     assignee, projects, from_ms, until_ms, identifiers, identity_method, identity_outcome, \
     identity_by, identity_at_ms, pauses, extension_reason, extension_announced_at_ms, \
     confirmed_at_ms, answer, answered_at_ms, answered_how, refusal_ground, due_day, changed_at_ms, \
     closed_at_ms, created_by, created_at_ms"
);

pub(crate) fn insert(db: &mut dyn Db, case: &Case) -> Result<(), DbError> {
    let mut values = values(case);
    values.extend([case.created_by.into(), case.created_at_ms.into()]);
    CASES.insert(db, &values, "").map(drop)
}

/// Writes it over the revision before its own. Whether that was the last one.
pub(crate) fn update(db: &mut dyn Db, case: &Case) -> Result<bool, DbError> {
    let sql = "UPDATE {cases} SET revision = ?4, state = ?5, state_before_pause = ?6, regime = ?7, custom_days = ?8, custom_extension_days = ?9, request_type = ?10, requester = ?11,
                    contact = ?12, wrote = ?13, channel = ?14, received_at_ms = ?15, assignee = ?16, projects = ?17, from_ms = ?18, until_ms = ?19, identifiers = ?20,
                    identity_method = ?21, identity_outcome = ?22, identity_by = ?23, identity_at_ms = ?24, pauses = ?25, extension_reason = ?26, extension_announced_at_ms = ?27,
                    confirmed_at_ms = ?28, answer = ?29, answered_at_ms = ?30, answered_how = ?31, refusal_ground = ?32, due_day = ?33, changed_at_ms = ?34, closed_at_ms = ?35
               WHERE id = ?1 AND tenant_id = ?2 AND case_number = ?3 AND revision = ?36";
    let mut values = values(case);
    values.push(case.revision.saturating_sub(1).into());
    Ok(db.execute(sql, &values)? > 0)
}

/// In the order of both statements above, up to the column that they end with alike.
fn values(case: &Case) -> Vec<Value> {
    let Intake { regime, custom_days, request_type, requester, contact, wrote, channel, received_at_ms } =
        &case.intake;
    let CaseScope { projects, from_ms, until_ms } = &case.scope;
    let projects: Vec<String> = projects.iter().map(ProjectId::to_string).collect();
    let (identity, answer, extension) = (case.identity, case.answer, case.extension);
    vec![
        case.id.into(),
        case.tenant_id.into(),
        case.number.into(),
        case.revision.into(),
        case.state.as_str().into(),
        case.state_before_pause.map(CaseState::as_str).into(),
        regime.as_str().into(),
        custom_days.map(|(days, _)| days).into(),
        custom_days.map(|(_, more)| more).into(),
        request_type.as_str().into(),
        requester.into(),
        contact.into(),
        wrote.into(),
        channel.as_str().into(),
        (*received_at_ms).into(),
        case.assignee.into(),
        crate::db::names(&projects),
        (*from_ms).into(),
        (*until_ms).into(),
        identifiers_as_json(&case.identifiers).to_string().into(),
        identity.map(|check| check.method.as_str()).into(),
        identity.map(|check| check.outcome.as_str()).into(),
        identity.map(|check| check.person_id).into(),
        identity.map(|check| check.at_ms).into(),
        pauses_as_json(&case.pauses).to_string().into(),
        extension.map(|extension| extension.reason.as_str()).into(),
        extension.map(|extension| extension.announced_at_ms).into(),
        case.confirmed_at_ms.into(),
        answer.map(|answer| answer.outcome.as_str()).into(),
        answer.map(|answer| answer.at_ms).into(),
        answer.and_then(|answer| answer.how).map(CaseChannel::as_str).into(),
        answer.and_then(|answer| answer.ground).map(RefusalGround::as_str).into(),
        case.due_day.into(),
        case.changed_at_ms.into(),
        case.closed_at_ms.into(),
    ]
}

pub(crate) fn find(db: &mut dyn Db, tenant_id: TenantId, id: CaseId) -> Result<Option<Case>, DbError> {
    let sql = format!("{} WHERE tenant_id = ?1 AND id = ?2", CASES.select);
    one(db, &sql, params![tenant_id, id], read)
}

pub(crate) fn read(row: &Row) -> Result<Case, DbError> {
    let projects = row.names("projects")?.into_iter().map(|id| Uuid::parse(&id).map(ProjectId));
    let projects = projects.collect::<Option<_>>();
    let custom_days: (Option<u32>, Option<u32>) =
        (row.get("custom_days")?, row.get("custom_extension_days")?);
    Ok(Case {
        id: row.get("id")?,
        tenant_id: row.get("tenant_id")?,
        number: row.get("case_number")?,
        revision: row.get("revision")?,
        state: row.word("state", CaseState::ALL, CaseState::as_str)?,
        state_before_pause: some_word(row, "state_before_pause", CaseState::parse)?,
        intake: Intake {
            regime: row.word("regime", CaseRegime::ALL, CaseRegime::as_str)?,
            custom_days: custom_days.0.zip(custom_days.1),
            request_type: row.word("request_type", CaseType::ALL, CaseType::as_str)?,
            requester: row.get("requester")?,
            contact: row.get("contact")?,
            wrote: row.get("wrote")?,
            channel: row.word("channel", CaseChannel::ALL, CaseChannel::as_str)?,
            received_at_ms: row.get("received_at_ms")?,
        },
        assignee: row.get("assignee")?,
        scope: CaseScope {
            projects: projects.ok_or_else(|| damaged("projects", "has something that is no id"))?,
            from_ms: row.get("from_ms")?,
            until_ms: row.get("until_ms")?,
        },
        identifiers: list(row, "identifiers", read_identifier)?,
        identity: read_identity(row)?,
        pauses: list(row, "pauses", read_pause)?,
        extension: read_extension(row)?,
        confirmed_at_ms: row.get("confirmed_at_ms")?,
        answer: read_answer(row)?,
        due_day: row.get("due_day")?,
        created_by: row.get("created_by")?,
        created_at_ms: row.get("created_at_ms")?,
        changed_at_ms: row.get("changed_at_ms")?,
        closed_at_ms: row.get("closed_at_ms")?,
    })
}

fn read_identity(row: &Row) -> Result<Option<IdentityCheck>, DbError> {
    let method = some_word(row, "identity_method", IdentityMethod::parse)?;
    let outcome = some_word(row, "identity_outcome", IdentityOutcome::parse)?;
    let (by, at_ms) =
        (row.get::<Option<PersonId>>("identity_by")?, row.get::<Option<u64>>("identity_at_ms")?);
    let check = method.zip(outcome).zip(by.zip(at_ms));
    Ok(check.map(|((method, outcome), (person_id, at_ms))| IdentityCheck {
        method,
        outcome,
        person_id,
        at_ms,
    }))
}

fn read_extension(row: &Row) -> Result<Option<CaseExtension>, DbError> {
    let reason = some_word(row, "extension_reason", ExtensionReason::parse)?;
    let announced: Option<u64> = row.get("extension_announced_at_ms")?;
    Ok(reason.zip(announced).map(|(reason, announced_at_ms)| CaseExtension { reason, announced_at_ms }))
}

fn read_answer(row: &Row) -> Result<Option<CaseAnswer>, DbError> {
    let outcome = some_word(row, "answer", CaseOutcome::parse)?;
    let at_ms: Option<u64> = row.get("answered_at_ms")?;
    let how = some_word(row, "answered_how", CaseChannel::parse)?;
    let ground = some_word(row, "refusal_ground", RefusalGround::parse)?;
    Ok(outcome.zip(at_ms).map(|(outcome, at_ms)| CaseAnswer { outcome, at_ms, how, ground }))
}

pub(crate) fn some_word<T>(
    row: &Row,
    column: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, DbError> {
    let Some(text) = row.get::<Option<String>>(column)? else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| damaged(column, &format!("has the unknown word {text:?}")))
}

/// A JSON array whose items are all as they should be.
pub(crate) fn list<T>(row: &Row, column: &str, read: fn(&Json) -> Option<T>) -> Result<Vec<T>, DbError> {
    let text: String = row.get(column)?;
    let items: Vec<Json> =
        serde_json::from_str(&text).map_err(|error| damaged(column, &format!("is no list: {error}")))?;
    let items = items.iter().map(read).collect::<Option<_>>();
    items.ok_or_else(|| damaged(column, "has an item that lacks something"))
}

fn identifiers_as_json(identifiers: &[Identifier]) -> Json {
    let items = identifiers.iter().map(|Identifier { kind, path, value, source }| {
        json!({ "kind": kind.as_str(), "path": path, "value": value, "source": source })
    });
    items.collect()
}

fn read_identifier(item: &Json) -> Option<Identifier> {
    Some(Identifier {
        kind: IdentifierKind::parse(item["kind"].as_str()?)?,
        path: item["path"].as_str().map(str::to_owned),
        value: item["value"].as_str()?.to_owned(),
        source: item["source"].as_str()?.to_owned(),
    })
}

fn pauses_as_json(pauses: &[CasePause]) -> Json {
    let items = pauses.iter().map(|CasePause { from_ms, until_ms, reason }| {
        json!({ "from_ms": from_ms, "until_ms": until_ms, "reason": reason })
    });
    items.collect()
}

fn read_pause(item: &Json) -> Option<CasePause> {
    Some(CasePause {
        from_ms: item["from_ms"].as_u64()?,
        until_ms: item["until_ms"].as_u64(),
        reason: item["reason"].as_str()?.to_owned(),
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Case>, DbError> {
    CASES.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, cases: &[Case]) -> Result<(), DbError> {
    cases.iter().try_for_each(|case| insert(db, case))
}
