//! What a tenant has, page by page, as it is read by the process that has the store open. Every page names
//! its tenant, and has nothing of another one.

use sealog_cli::exit::{Exit, Failure};
use sealog_control::{
    ApiKey, Case, CaseEntry, CaseId, CaseLetter, CasePackage, CaseSearch, Control, FoundEvent, FoundFilter,
    Grants, KnownAction, ListPage, Member, MonitorToken, PackageId, PersonId, Project, SearchId, Tenant,
};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::time::iso_ms;
use sealog_core::verify::Item;
use sealog_engine::Opened;
use sealog_service::people::admin::projects::framework_ids;
use sealog_store::{Range, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Rows of control data on a page.
const ROWS: usize = 200;
/// Bytes of events on a page, but for the last of them.
const EVENT_BYTES: usize = 1 << 20;
/// Searches and packages of a case. A person starts each.
const OF_CASE_MAX: usize = 10_000;
/// After every time; databases count in signed numbers.
const END_MS: u64 = i64::MAX as u64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The tenant and its chains, with where they begin and end now.
    Chains,
    Events {
        project_id: String,
        mode: String,
        from: u64,
        to: u64,
    },
    Rows {
        of: Rows,
        after: Option<String>,
    },
    PackagePiece {
        id: String,
        piece: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    Projects,
    Keys,
    MonitorTokens,
    Actions,
    Settings,
    Members,
    Cases,
    /// Of a case.
    Entries(String),
    Letters(String),
    Searches(String),
    Packages(String),
    /// Of a search.
    Found(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Page {
    Chains {
        tenant: Value,
        chains: Vec<Chain>,
    },
    /// JSON objects, and where the next page begins.
    Lines {
        lines: Vec<String>,
        next: Option<String>,
    },
    /// In hex; nothing where there is none.
    Piece(Option<String>),
}

/// A chain as it was when its export began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    pub project_id: String,
    pub mode: String,
    pub is_system: bool,
    /// Events before it were deleted for their age: test events alone.
    pub first_seq: u64,
    pub last_seq: u64,
    pub last_hash: String,
}

/// Nothing of it is written, and nothing is left in the tenant's system chain: that is for the caller.
pub async fn read_page(opened: &Opened, tenant_id: TenantId, part: Part) -> Result<Page, Failure> {
    let control = opened.control();
    let tenant = control.tenant(tenant_id).await.map_err(failed)?;
    let tenant = tenant.ok_or_else(|| Failure::new(Exit::NotFound, format!("no tenant {tenant_id}")))?;
    match part {
        Part::Chains => chains(opened, &tenant).await,
        Part::Events { project_id, mode, from, to } => {
            let mode = Mode::ALL.into_iter().find(|known| known.as_str() == mode).ok_or_else(unknown)?;
            let chain = ChainId { tenant_id, project_id: ProjectId(id(&project_id)?), mode };
            events(opened, chain, from, to).await
        }
        Part::Rows { of, after } => rows(control, tenant_id, of, after).await,
        Part::PackagePiece { id: package, piece } => {
            let found = control.case_package(PackageId(id(&package)?)).await.map_err(failed)?;
            let own = found.filter(|package| package.new.tenant_id == tenant_id);
            let Some((package, attempt)) = own.and_then(|own| Some((own.new.id, own.built?.0))) else {
                return Ok(Page::Piece(None));
            };
            let content = control.package_piece(package, attempt, piece).await.map_err(failed)?;
            Ok(Page::Piece(content.map(hex::encode)))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it so")]
fn failed(error: StoreError) -> Failure {
    error.to_string().into()
}

fn unknown() -> Failure {
    Failure::usage("there is no such part of a tenant")
}

fn id(text: &str) -> Result<Uuid, Failure> {
    Uuid::parse(text).ok_or_else(unknown)
}

async fn chains(opened: &Opened, tenant: &Tenant) -> Result<Page, Failure> {
    let store = opened.store();
    let mut chains = Vec::new();
    for (chain, _) in store.heads().await.map_err(failed)? {
        if chain.tenant_id != tenant.id {
            continue;
        }
        let head = store.head(chain).await.map_err(failed)?;
        // What it is known to have had: an end that is lost is found missing.
        let end = head.end();
        chains.push(Chain {
            project_id: chain.project_id.to_string(),
            mode: chain.mode.as_str().to_owned(),
            is_system: chain.is_system(),
            first_seq: head.first_seq(),
            last_seq: end.chain_seq,
            last_hash: end.hash.to_string(),
        });
    }
    let closed_at_ms = opened.control().closed_at_ms(tenant.id).await.map_err(failed)?;
    let tenant = json!({
        "tenant_id": tenant.id.to_string(),
        "name": tenant.name,
        "plan": tenant.plan,
        "contact_email": tenant.contact_email,
        "trial_ends_at": time(tenant.billing.trial_ends_at_ms),
        "billing_active": tenant.billing.billing_active,
        "rate_limit_rps": tenant.rate_limit_rps,
        "created_at": iso_ms(tenant.created_at_ms),
        "closed_at": time(closed_at_ms),
    });
    Ok(Page::Chains { tenant, chains })
}

async fn events(opened: &Opened, chain: ChainId, from: u64, to: u64) -> Result<Page, Failure> {
    let range = Range { from, to, bytes_max: EVENT_BYTES };
    let chunk = opened.store().range(chain, range).await.map_err(failed)?;
    let lines = chunk.items.iter().filter_map(|item| match item {
        Item::Event(event) => {
            let mut line = Vec::new();
            event.put_json(&mut line);
            Some(String::from_utf8(line).expect("JSON is UTF-8"))
        }
        // Left out as a list of events leaves it out: the check of the archive finds the gap.
        Item::Damaged { .. } => None,
    });
    Ok(Page::Lines { lines: lines.collect(), next: chunk.resume.map(|next| next.to_string()) })
}

async fn rows(
    control: &Control,
    tenant_id: TenantId,
    of: Rows,
    after: Option<String>,
) -> Result<Page, Failure> {
    let behind = || after.as_deref().map(id).transpose();
    let page = || Ok::<_, Failure>(ListPage { after: behind()?, limit: ROWS });
    let number = || after.as_deref().map_or(Ok(0), |text| text.parse::<u64>().map_err(|_| unknown()));
    // A page that is full has another one behind it, if only an empty one.
    let next = |count: usize, last: Option<String>| last.filter(|_| count == ROWS);
    Ok(match of {
        Rows::Projects => {
            let found = control.projects(tenant_id, page()?).await.map_err(failed)?;
            lines(&found, project, next(found.len(), found.last().map(|last| last.id.to_string())))
        }
        Rows::Keys => {
            let found = control.keys_of_tenant(tenant_id, None, page()?).await.map_err(failed)?;
            let last = found.last().map(|(last, _)| last.id.0.to_string());
            lines(&found, |(found, _)| key(found), next(found.len(), last))
        }
        Rows::MonitorTokens => {
            let found = control.monitor_tokens_of_tenant(tenant_id, page()?).await.map_err(failed)?;
            let last = found.last().map(|(last, _)| last.id.0.to_string());
            lines(&found, |(found, _)| monitor_token(found), next(found.len(), last))
        }
        Rows::Actions => lines(&control.known_actions(tenant_id).await.map_err(failed)?, action, None),
        Rows::Settings => {
            let found = control.settings(tenant_id).await.map_err(failed)?;
            lines(&found, |(name, value)| json!({ "name": name, "value": value }), None)
        }
        Rows::Members => {
            let found = control.members(tenant_id, page()?).await.map_err(failed)?;
            let last = found.last().map(|last| last.person.id.0.to_string());
            lines(&found, member, next(found.len(), last))
        }
        Rows::Cases => {
            let found = control.cases_received(tenant_id, 0, END_MS, page()?).await.map_err(failed)?;
            lines(&found, case, next(found.len(), found.last().map(|last| last.id.0.to_string())))
        }
        Rows::Entries(of) => {
            let (of, above) = (CaseId(id(&of)?), number()?);
            let found = control.case_entries(tenant_id, of, above, ROWS).await.map_err(failed)?;
            lines(&found, entry, next(found.len(), found.last().map(|last| last.revision.to_string())))
        }
        Rows::Letters(of) => {
            let found = control.case_letters(tenant_id, CaseId(id(&of)?)).await.map_err(failed)?;
            lines(&found, letter, None)
        }
        Rows::Searches(of) => {
            let of = CaseId(id(&of)?);
            let found = control.case_searches(tenant_id, of, OF_CASE_MAX).await.map_err(failed)?;
            lines(&found, search, None)
        }
        Rows::Packages(of) => {
            let of = CaseId(id(&of)?);
            let found = control.case_packages(tenant_id, of, OF_CASE_MAX).await.map_err(failed)?;
            lines(&found, package, None)
        }
        Rows::Found(of) => {
            let (of, offset) = (SearchId(id(&of)?), number()?);
            let search = control.case_search(of).await.map_err(failed)?;
            if search.is_none_or(|search| search.new.tenant_id != tenant_id) {
                return Ok(Page::Lines { lines: Vec::new(), next: None });
            }
            let found =
                control.found_events(of, FoundFilter::default(), Grants::default(), offset, ROWS).await;
            let found = found.map_err(failed)?;
            let last = (offset + found.len() as u64).to_string();
            lines(&found, found_event, next(found.len(), Some(last)))
        }
    })
}

fn lines<T>(found: &[T], row: impl Fn(&T) -> Value, next: Option<String>) -> Page {
    Page::Lines { lines: found.iter().map(|found| row(found).to_string()).collect(), next }
}

fn time(ms: Option<u64>) -> Value {
    ms.map_or(Value::Null, |ms| iso_ms(ms).into())
}

fn person(id: Option<PersonId>) -> Value {
    id.map_or(Value::Null, |id| id.0.to_string().into())
}

fn ids(projects: &[ProjectId]) -> Value {
    projects.iter().map(ProjectId::to_string).collect()
}

fn project(project: &Project) -> Value {
    json!({
        "project_id": project.id.to_string(),
        "name": project.name,
        "frameworks": framework_ids(project.frameworks),
        "frameworks_ever": framework_ids(project.frameworks_ever),
        "rate_limit_rps": project.rate_limit_rps,
        "created_at": iso_ms(project.created_at_ms),
    })
}

/// Without the digest: who has that can try keys without the server.
fn key(key: &ApiKey) -> Value {
    json!({
        "key_id": key.id.0.to_string(),
        "project_id": key.project_id.to_string(),
        "name": key.name,
        "mode": key.mode.as_str(),
        "prefix": key.prefix,
        "created_by": person(key.created_by),
        "replaced_by": key.replaced_by.map(|id| id.0.to_string()),
        "expires_at": time(key.expires_at_ms),
        "revoked_at": time(key.revoked_at_ms),
        "last_used_at": time(key.last_used_at_ms),
        "created_at": iso_ms(key.created_at_ms),
    })
}

/// Without the digest, as a key.
fn monitor_token(token: &MonitorToken) -> Value {
    json!({
        "token_id": token.id.0.to_string(),
        "project_id": token.project_id.to_string(),
        "name": token.name,
        "prefix": token.prefix,
        "created_by": person(token.created_by),
        "expires_at": time(token.expires_at_ms),
        "revoked_at": time(token.revoked_at_ms),
        "last_used_at": time(token.last_used_at_ms),
        "created_at": iso_ms(token.created_at_ms),
    })
}

fn action(KnownAction { action, retired_at_ms }: &KnownAction) -> Value {
    json!({
        "action": action.action,
        "description": action.description,
        "category": action.category,
        "severity": action.severity,
        "required_fields": action.required_fields,
        "optional_fields": action.optional_fields,
        "retired_at": time(*retired_at_ms),
    })
}

/// Without password and authenticator, which are the person's, in all of the person's tenants.
fn member(Member { person, membership }: &Member) -> Value {
    let Grants { projects, from_ms, until_ms } = &membership.grants;
    json!({
        "user_id": person.id.0.to_string(),
        "email": person.email,
        "role": membership.role.as_str(),
        "projects": projects.as_deref().map(ids),
        "events_from": time(*from_ms),
        "events_until": time(*until_ms),
        "ends_at": time(membership.ends_at_ms),
        "created_at": iso_ms(membership.created_at_ms),
    })
}

fn case(case: &Case) -> Value {
    let intake = &case.intake;
    let identifiers: Value = case
        .identifiers
        .iter()
        .map(|found| {
            json!({ "kind": found.kind.as_str(), "path": found.path, "value": found.value, "source": found.source })
        })
        .collect();
    let pauses: Value = case
        .pauses
        .iter()
        .map(|pause| json!({ "from": iso_ms(pause.from_ms), "until": time(pause.until_ms), "reason": pause.reason }))
        .collect();
    let identity = case.identity.map(|check| {
        json!({ "method": check.method.as_str(), "outcome": check.outcome.as_str(), "by": person(Some(check.person_id)), "at": iso_ms(check.at_ms) })
    });
    let extension = case.extension.map(|extension| {
        json!({ "reason": extension.reason.as_str(), "announced_at": iso_ms(extension.announced_at_ms) })
    });
    let answer = case.answer.map(|answer| {
        json!({ "outcome": answer.outcome.as_str(), "at": iso_ms(answer.at_ms), "how": answer.how.map(sealog_control::CaseChannel::as_str), "ground": answer.ground.map(sealog_control::RefusalGround::as_str) })
    });
    let custom = intake.custom_days.map(|(days, more)| json!({ "days": days, "extension_days": more }));
    json!({
        "kind": "case",
        "case_id": case.id.0.to_string(),
        "number": case.number,
        "state": case.state.as_str(),
        "regime": intake.regime.as_str(),
        "custom": custom,
        "type": intake.request_type.as_str(),
        "requester": intake.requester,
        "contact": intake.contact,
        "request": intake.wrote,
        "channel": intake.channel.as_str(),
        "received_at": iso_ms(intake.received_at_ms),
        "assignee": person(case.assignee),
        "projects": ids(&case.scope.projects),
        "events_from": time(case.scope.from_ms),
        "events_until": time(case.scope.until_ms),
        "identifiers": identifiers,
        "identity": identity,
        "pauses": pauses,
        "extension": extension,
        "confirmed_at": time(case.confirmed_at_ms),
        "answer": answer,
        "created_by": person(Some(case.created_by)),
        "created_at": iso_ms(case.created_at_ms),
        "closed_at": time(case.closed_at_ms),
    })
}

/// With the salt: a reader of the archive checks the digest that the system chain has of the note.
fn entry(CaseEntry { case_id, revision, entry }: &CaseEntry) -> Value {
    let differences: Value = entry
        .differences
        .iter()
        .map(|changed| json!({ "field": changed.field, "from": changed.from, "to": changed.to }))
        .collect();
    json!({
        "kind": "entry",
        "case_id": case_id.0.to_string(),
        "revision": revision,
        "what": entry.what,
        "from": entry.from.map(sealog_control::CaseState::as_str),
        "to": entry.to.map(sealog_control::CaseState::as_str),
        "note": entry.note,
        "salt": entry.salt.to_string(),
        "digest": entry.digest.to_string(),
        "changed": differences,
        "by": person(entry.person_id),
        "at": iso_ms(entry.at_ms),
    })
}

fn letter(letter: &CaseLetter) -> Value {
    json!({
        "kind": "letter",
        "case_id": letter.case_id.0.to_string(),
        "letter": letter.kind.as_str(),
        "body": letter.body,
        "by": person(Some(letter.person_id)),
        "at": iso_ms(letter.changed_at_ms),
    })
}

fn search(search: &CaseSearch) -> Value {
    let parameters: Value = serde_json::from_str(&search.new.parameters).unwrap_or_default();
    json!({
        "kind": "search",
        "search_id": search.new.id.0.to_string(),
        "case_id": search.new.case_id.0.to_string(),
        "parameters": parameters,
        "looked": search.looked,
        "events": search.counts.events,
        "outcome": search.outcome.map(sealog_control::SearchOutcome::as_str),
        "by": person(Some(search.new.person_id)),
        "at": iso_ms(search.new.created_at_ms),
    })
}

fn found_event(found: &FoundEvent) -> Value {
    json!({
        "kind": "found",
        "project_id": found.new.project_id.to_string(),
        "chain_seq": found.new.chain_seq,
        "log_id": found.new.log_id,
        "decision": found.decision.map(sealog_control::Decision::as_str),
        "reason": found.reason,
        "masks": found.masks,
        "by": person(found.decided_by),
        "at": time(found.decided_at_ms),
    })
}

fn package(package: &CasePackage) -> Value {
    let built = package.built.as_ref().map(|(_, built)| built);
    let manifest: Option<Value> = built.and_then(|built| serde_json::from_str(&built.manifest).ok());
    json!({
        "kind": "package",
        "package_id": package.new.id.0.to_string(),
        "case_id": package.new.case_id.0.to_string(),
        "search_id": package.search_id.0.to_string(),
        "events": package.events,
        "bytes": built.map(|built| built.bytes),
        "sha256": built.map(|built| built.sha256.to_string()),
        "manifest": manifest,
        "by": person(Some(package.new.person_id)),
        "at": iso_ms(package.new.created_at_ms),
        "dropped_at": time(package.dropped_at_ms),
    })
}
