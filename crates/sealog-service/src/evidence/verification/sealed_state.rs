//! Control data compared with the system chain: which keys and monitor
//! tokens there are and which are revoked, who is a member
//! and as what. Each change of them is sealed, so whoever edits a row leaves a difference.
//!
//! ```text
//! t0  the head of the system chain and the records that wait for it are noted
//! t1  the tables are read, then the records of the chain, and with those that wait they make what should be
//!     there
//! t2  the head and what waits are looked at again: if either has changed meanwhile, all of it begins anew
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealog_control::{ApiKey, ListPage, Member, MonitorToken, PendingRecord};
use sealog_core::event;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId};
use sealog_core::json;
use sealog_core::query::Filter;
use sealog_core::time::iso_ms;
use sealog_store::{List, Store, StoreError};
use serde_json::{Value, json};

use super::baseline_job;
use crate::people::admin::people::grants;
use crate::records::system_chain::actions::{self, SystemAction};
use sealog_control::Control;

/// Rows and records that are read at once.
const PAGE: usize = 100;
const PAGE_BYTES: usize = 1 << 20;
/// A tenant with more records, keys or members than this is not compared, which is a finding of its own: one
/// tenant must neither fill the memory nor keep the others from being compared.
const ITEMS_MAX: usize = 200_000;
/// How often it is begun anew where changes come meanwhile. The next night tries again.
const TRIES: usize = 5;

static REPLAYED: [&SystemAction; 8] = [
    &actions::KEY_CREATED,
    &actions::KEY_ROLLED,
    &actions::KEY_REVOKED,
    &actions::MONITOR_TOKEN_CREATED,
    &actions::MONITOR_TOKEN_REVOKED,
    &actions::MEMBER_ADDED,
    &actions::MEMBER_CHANGED,
    &actions::BASELINE,
];

/// What the tables hold of a tenant.
#[derive(Debug, PartialEq)]
pub(super) struct Rows {
    pub keys: Vec<Credential>,
    pub members: Vec<Member>,
}

/// A key or a monitor token, as far as records tell of it.
#[derive(Debug, PartialEq)]
pub(super) struct Credential {
    /// As records name it.
    name: String,
    project_id: ProjectId,
    mode: Mode,
    prefix: String,
    expires_at_ms: Option<u64>,
    revoked_at_ms: Option<u64>,
}

impl From<ApiKey> for Credential {
    fn from(key: ApiKey) -> Credential {
        let ApiKey { id, project_id, mode, prefix, expires_at_ms, revoked_at_ms, .. } = key;
        let name = format!("key/{}", id.0);
        Credential { name, project_id, mode, prefix, expires_at_ms, revoked_at_ms }
    }
}

impl From<MonitorToken> for Credential {
    fn from(token: MonitorToken) -> Credential {
        let mode = token.chain().mode;
        let MonitorToken { id, project_id, prefix, expires_at_ms, revoked_at_ms, .. } = token;
        let name = format!("monitor_token/{}", id.0);
        Credential { name, project_id, mode, prefix, expires_at_ms, revoked_at_ms }
    }
}

impl Rows {
    /// Nothing where there are more.
    async fn read(
        control: &Arc<Control>,
        tenant_id: TenantId,
        items_max: usize,
    ) -> Result<Option<Rows>, StoreError> {
        let mut rows = Rows { keys: Vec::new(), members: Vec::new() };
        let mut after = None;
        loop {
            let page = ListPage { after, limit: PAGE };
            let keys = control.keys_of_tenant(tenant_id, None, page).await?;
            after = keys.last().map(|(key, _)| key.id.0);
            let is_last = keys.len() < PAGE;
            rows.keys.extend(keys.into_iter().map(|(key, _)| key.into()));
            if is_last {
                break;
            }
            if rows.keys.len() > items_max {
                return Ok(None);
            }
        }
        after = None;
        loop {
            let page = ListPage { after, limit: PAGE };
            let tokens = control.monitor_tokens_of_tenant(tenant_id, page).await?;
            after = tokens.last().map(|(token, _)| token.id.0);
            let is_last = tokens.len() < PAGE;
            rows.keys.extend(tokens.into_iter().map(|(token, _)| token.into()));
            if is_last {
                break;
            }
            if rows.keys.len() > items_max {
                return Ok(None);
            }
        }
        loop {
            let after = rows.members.last().map(|member| member.person.id.0);
            let members = control.members(tenant_id, ListPage { after, limit: PAGE }).await?;
            let is_last = members.len() < PAGE;
            rows.members.extend(members);
            if is_last {
                return Ok(Some(rows));
            }
            if rows.members.len() > items_max {
                return Ok(None);
            }
        }
    }

    /// As a baseline names them.
    pub(super) fn named(&self) -> (Vec<Value>, Vec<Value>) {
        let key = |key: &Credential| {
            json!({
                "key": key.name,
                "project_id": key.project_id.to_string(),
                "mode": key.mode.as_str(),
                "prefix": key.prefix,
                "expires_at": key.expires_at_ms.map(iso_ms),
                "revoked": key.revoked_at_ms.is_some(),
            })
        };
        let member = |member: &Member| {
            json!({
                "member": member_name(member),
                "role": member.membership.role.as_str(),
                "ends_at": member.membership.ends_at_ms.map(iso_ms),
            })
        };
        (self.keys.iter().map(key).collect(), self.members.iter().map(member).collect())
    }
}

fn member_name(member: &Member) -> String {
    format!("member/{}", member.person.id.0)
}

/// What the records make, by resource.
#[derive(Debug, Default)]
struct Sealed {
    keys: BTreeMap<String, SealedKey>,
    members: BTreeMap<String, SealedMember>,
}

#[derive(Debug, Default)]
struct SealedKey {
    project_id: Value,
    mode: Value,
    prefix: Value,
    expires_at: Value,
    is_revoked: bool,
    /// A roll has put another key in its place, and this one ends then.
    replaced_until: Option<Value>,
}

#[derive(Debug)]
struct SealedMember {
    role: Value,
    /// Nothing where no record has said it: that of an invitation is not in the record of its acceptance.
    ends_at: Option<Value>,
    grants: Option<Value>,
}

impl Sealed {
    fn apply(&mut self, action: &str, resource: &str, metadata: &Value) {
        let is = |known: &SystemAction| known.action == action;
        if is(&actions::KEY_CREATED) || is(&actions::KEY_ROLLED) || is(&actions::MONITOR_TOKEN_CREATED) {
            self.keys.insert(resource.to_owned(), sealed_key(metadata));
            if let Some(old) = metadata["replaces"].as_str().and_then(|old| self.keys.get_mut(old)) {
                old.replaced_until = Some(metadata["replaced_until"].clone());
            }
        } else if is(&actions::KEY_REVOKED) || is(&actions::MONITOR_TOKEN_REVOKED) {
            self.keys.entry(resource.to_owned()).or_insert_with(|| sealed_key(metadata)).is_revoked = true;
        } else if is(&actions::MEMBER_ADDED) {
            let role = metadata["role"].clone();
            self.members.insert(resource.to_owned(), SealedMember { role, ends_at: None, grants: None });
        } else if is(&actions::MEMBER_CHANGED) {
            let new = |field: &str| metadata[field].get("to").cloned();
            let Some(member) = self.members.get_mut(resource) else { return };
            if let Some(role) = new("role") {
                member.role = role;
            }
            member.ends_at = new("ends_at").or(member.ends_at.take());
            member.grants = new("grants").or(member.grants.take());
        } else if is(&actions::BASELINE) {
            let listed = |name: &str| metadata[name].as_array().cloned().unwrap_or_default();
            for key in listed("keys") {
                let name = key["key"].as_str().unwrap_or_default().to_owned();
                let is_revoked = key["revoked"] == true;
                self.keys.insert(name, SealedKey { is_revoked, ..sealed_key(&key) });
            }
            for member in listed("members") {
                let name = member["member"].as_str().unwrap_or_default().to_owned();
                let (role, ends_at) = (member["role"].clone(), Some(member["ends_at"].clone()));
                self.members.insert(name, SealedMember { role, ends_at, grants: None });
            }
        }
    }

    /// What the tables have otherwise. Nothing that they hold is in the words but ids and roles.
    fn differences(&self, rows: &Rows) -> Vec<String> {
        let mut found = Vec::new();
        for key in &rows.keys {
            let name = &key.name;
            match self.keys.get(name) {
                None => found.push(format!("{name} exists without a record of its creation")),
                Some(sealed) => found.extend(sealed.difference(key).map(|what| format!("{name} {what}"))),
            }
        }
        for member in &rows.members {
            let name = member_name(member);
            match self.members.get(&name) {
                None => found.push(format!("{name} exists without a record of its addition")),
                Some(sealed) => found.extend(sealed.difference(member).map(|what| format!("{name} {what}"))),
            }
        }
        let keys = rows.keys.iter().map(|key| key.name.clone());
        let names: BTreeSet<String> = keys.chain(rows.members.iter().map(member_name)).collect();
        let recorded = self.keys.keys().chain(self.members.keys());
        let gone = recorded.filter(|name| !names.contains(*name));
        found.extend(gone.map(|name| format!("{name} is recorded but missing")));
        found
    }
}

fn sealed_key(metadata: &Value) -> SealedKey {
    let field = |name: &str| metadata[name].clone();
    SealedKey {
        project_id: field("project_id"),
        mode: field("mode"),
        prefix: field("prefix"),
        expires_at: field("expires_at"),
        ..SealedKey::default()
    }
}

fn time(ms: Option<u64>) -> Value {
    ms.map(iso_ms).into()
}

impl SealedKey {
    fn difference(&self, key: &Credential) -> Option<&'static str> {
        let is_same = self.project_id == key.project_id.to_string()
            && self.mode == key.mode.as_str()
            && self.prefix == key.prefix;
        let is_revoked = key.revoked_at_ms.is_some();
        let end = key.revoked_at_ms.or(key.expires_at_ms);
        if !is_same {
            return Some("differs from its record in project, mode or prefix");
        }
        match (self.is_revoked, &self.replaced_until) {
            (true, _) if is_revoked => None,
            (true, _) => Some("is recorded as revoked but is active"),
            (false, Some(until)) if *until == time(end) => None,
            (false, Some(_)) => Some("was replaced, and its end differs from its record"),
            (false, None) if is_revoked => Some("is revoked without a record"),
            (false, None) if self.expires_at == time(key.expires_at_ms) => None,
            (false, None) => Some("has another expiry than its record"),
        }
    }
}

impl SealedMember {
    fn difference(&self, member: &Member) -> Option<String> {
        let now = &member.membership;
        if self.role != now.role.as_str() {
            let sealed = self.role.as_str().unwrap_or("nothing");
            return Some(format!("has the role {}, but its record has {sealed}", now.role.as_str()));
        }
        if self.ends_at.as_ref().is_some_and(|end| *end != time(now.ends_at_ms)) {
            return Some("has another end than its record".into());
        }
        let sealed = self.grants.as_ref();
        sealed
            .filter(|sealed| **sealed != grants(&now.grants))
            .map(|_| "has other grants than its record".into())
    }
}

/// Compares all control data with the system chains of a store that nobody changes meanwhile. Nothing while
/// the baseline of a restore waits.
pub async fn compare_all(
    store: &dyn Store,
    control: &Arc<Control>,
) -> Result<Option<Vec<String>>, StoreError> {
    if baseline_job::is_waiting(control).await? {
        return Ok(None);
    }
    let (mut found, mut after) = (unnamed(store, control).await?, None);
    loop {
        let tenants = control.tenants(ListPage { after, limit: PAGE }).await?;
        for tenant in &tenants {
            found.extend(of_tenant(store, control, tenant.id).await?);
        }
        match tenants.last() {
            Some(last) if tenants.len() == PAGE => after = Some(last.id.0),
            _ => return Ok(Some(found)),
        }
    }
}

/// System chains that no tenant names, in words for the operator: whoever exchanges the id of a tenant's
/// system project hides what was recorded.
pub(super) async fn unnamed(store: &dyn Store, control: &Arc<Control>) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (chain, _) in store.heads().await?.into_iter().filter(|(chain, _)| chain.is_system()) {
        // The row is there before the first record is sealed.
        let tenant_id = control.tenant_of_system_project(chain.project_id).await?;
        if tenant_id != Some(chain.tenant_id) {
            found.push(format!("no tenant refers to the system chain {chain}: its records are not visible"));
        }
    }
    Ok(found)
}

/// What differs of a tenant, in words for the operator.
pub(super) async fn of_tenant(
    store: &dyn Store,
    control: &Arc<Control>,
    tenant_id: TenantId,
) -> Result<Vec<String>, StoreError> {
    let compared = compare(store, control, tenant_id).await?;
    if compared.is_none() {
        tracing::warn!(
            %tenant_id,
            "the control data of a tenant kept changing and was not compared; the next comparison tries again"
        );
    }
    let differences = compared.map(|(_, differences)| differences).unwrap_or_default();
    Ok(differences.into_iter().map(|what| format!("tenant {tenant_id}: {what}")).collect())
}

/// Compares the control data of a tenant with its system chain. Also what its tables hold, for a baseline.
/// Nothing where changes kept coming.
pub(super) async fn compare(
    store: &dyn Store,
    control: &Arc<Control>,
    tenant_id: TenantId,
) -> Result<Option<(Rows, Vec<String>)>, StoreError> {
    compare_at_most(store, control, tenant_id, ITEMS_MAX).await
}

async fn compare_at_most(
    store: &dyn Store,
    control: &Arc<Control>,
    tenant_id: TenantId,
    items_max: usize,
) -> Result<Option<(Rows, Vec<String>)>, StoreError> {
    let too_many = || {
        let rows = Rows { keys: Vec::new(), members: Vec::new() };
        let what = format!("was not compared: it has more than {items_max} keys, members or records of them");
        Ok(Some((rows, vec![what])))
    };
    for _ in 0..TRIES {
        let before = Standing::of(store, control, tenant_id, items_max).await?;
        let Some(rows) = Rows::read(control, tenant_id, items_max).await? else { return too_many() };
        let mut records = Vec::new();
        if let Some((chain, _)) = before.head {
            for action in REPLAYED {
                read_records(store, chain, action, items_max, &mut records).await?;
            }
        }
        if records.len() + before.waiting.len() > items_max {
            return too_many();
        }
        if Standing::of(store, control, tenant_id, items_max).await? != before {
            continue;
        }
        records.sort_by_key(|(seq, ..)| *seq);
        let mut sealed = Sealed::default();
        for (_, action, resource, metadata) in &records {
            sealed.apply(action, resource, metadata);
        }
        // What waits is done as far as the tables are concerned: both were committed together.
        for record in &before.waiting {
            if let Some((action, resource, metadata)) = parse(&record.draft) {
                sealed.apply(&action, &resource, &metadata);
            }
        }
        let differences = sealed.differences(&rows);
        return Ok(Some((rows, differences)));
    }
    Ok(None)
}

/// The end of a tenant's system chain, and what waits for it. The chain is asked for each time: that of a new
/// tenant begins with its first record.
#[derive(PartialEq)]
struct Standing {
    head: Option<(ChainId, u64)>,
    waiting: Vec<PendingRecord>,
}

impl Standing {
    async fn of(
        store: &dyn Store,
        control: &Arc<Control>,
        tenant_id: TenantId,
        items_max: usize,
    ) -> Result<Standing, StoreError> {
        let mut head = None;
        if let Some(project_id) = control.known_system_project(tenant_id).await? {
            let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
            head = Some((chain, store.head(chain).await?.durable.chain_seq));
        }
        Ok(Standing { head, waiting: control.pending_records(tenant_id, items_max + 1).await? })
    }
}

type Record = (u64, String, String, Value);

/// Adds the records of an action, and stops where there are more than may be held.
async fn read_records(
    store: &dyn Store,
    chain: ChainId,
    action: &SystemAction,
    items_max: usize,
    records: &mut Vec<Record>,
) -> Result<(), StoreError> {
    let filter = Filter { action: Some(format!("\"{}\"", action.action)), ..Filter::default() };
    let mut before_seq = None;
    loop {
        let list = List { filter: filter.clone(), before_seq, limit: PAGE, bytes_max: PAGE_BYTES };
        let chunk = store.list(chain, list).await?;
        for event in &chunk.items {
            let fields = event.text.fields();
            let resource = fields.resource.and_then(json::decode).unwrap_or_default();
            let metadata = serde_json::from_str(fields.metadata.unwrap_or("null")).unwrap_or_default();
            let seq = event.sealed.chain_seq;
            records.push((seq, action.action.to_owned(), resource, metadata));
        }
        match chunk.resume {
            Some(resume) if records.len() <= items_max => before_seq = Some(resume),
            _ => return Ok(()),
        }
    }
}

fn parse(draft: &str) -> Option<(String, String, Value)> {
    let draft = event::parse_single(draft.as_bytes()).ok()?.ok()?;
    let fields = draft.text.fields();
    let action = json::decode(fields.action)?;
    let resource = fields.resource.and_then(json::decode)?;
    Some((action, resource, serde_json::from_str(fields.metadata?).ok()?))
}

#[cfg(test)]
mod tests {
    use sealog_control::NewTenant;
    use sealog_core::plan::Billing;
    use sealog_store::reference::ReferenceStore;
    use sealog_testing::{StillWorld, append, draft, system_chain, wait};

    use super::*;

    /// Issue 23.22. It was an error, which ended the comparison of every tenant behind this one.
    #[test]
    fn a_tenant_with_more_than_is_compared_is_a_finding_and_no_error() {
        let (store, control) = (ReferenceStore::new(StillWorld::new()), Arc::new(Control::in_memory()));
        let chain = system_chain(1);
        let tenant = NewTenant {
            id: chain.tenant_id,
            name: "Acme".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: 1,
        };
        wait(control.create_tenant(tenant, vec![])).unwrap();
        wait(control.system_project(chain.tenant_id, chain.project_id)).unwrap().unwrap();
        let created = |n: usize| {
            draft(&format!(r#"{{"action":"sealog.key_created","resource":"key/{n}","metadata":{{}}}}"#))
        };
        for from in [0, 100] {
            append(&store, chain, (from..from + 100).map(created).collect());
        }
        let compared = |items_max| {
            let compared = compare_at_most(&store, &control, chain.tenant_id, items_max);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(compared).unwrap().unwrap().1
        };
        assert_eq!(compared(200).len(), 200, "each record lacks its key");
        for items_max in [1, 199] {
            let found = compared(items_max);
            assert!(found.len() == 1 && found[0].contains("was not compared"), "{found:?}");
        }
    }
}
