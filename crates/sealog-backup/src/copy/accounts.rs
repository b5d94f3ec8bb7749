//! Accounts of two stores, and which of them are newer.

use std::collections::BTreeSet;

use sealog_control::{ControlSnapshot, KeptSearch};

use super::trouble::{Kind, Trouble};

/// The flag that says which of two accounts are meant.
pub(super) const REPLACE_ACCOUNTS: &str = "replace-accounts";

/// The target's accounts must be older than the source's, or the same, or none. `may_be_older`: something
/// else says that they are.
pub(super) fn check_accounts(
    source: &ControlSnapshot,
    target: &ControlSnapshot,
    may_be_older: bool,
) -> Result<(), Trouble> {
    if let Some(newer) = newer_in(target, source) {
        return Err(Trouble::wrong_way(&format!("the target has {newer} that the source does not have")));
    }
    let older = source == target
        || *target == ControlSnapshot::default()
        || may_be_older
        || newer_in(source, target).is_some();
    if older {
        return Ok(());
    }
    Err(Trouble::new(
        Kind::Usage,
        format!(
            "both stores have the same events but different accounts, and neither is newer. To use the accounts of --from, add --{REPLACE_ACCOUNTS}"
        ),
    ))
}

/// Something that shows that these accounts went on after the others had become a copy of them: nothing is
/// ever deleted, and some changes are never taken back. Names, plans and rates show nothing, since they carry
/// no time.
fn newer_in(these: &ControlSnapshot, others: &ControlSnapshot) -> Option<String> {
    fn missing<'a, T, K: Ord>(these: &'a [T], others: &[T], key: impl Fn(&T) -> K) -> Option<&'a T> {
        let known: BTreeSet<K> = others.iter().map(&key).collect();
        these.iter().find(|item| !known.contains(&key(item)))
    }
    if let Some(tenant) = missing(&these.tenants, &others.tenants, |tenant| tenant.id) {
        return Some(format!("a tenant ({})", tenant.id));
    }
    if let Some((project, _)) = missing(&these.projects, &others.projects, |(project, _)| project.id) {
        return Some(format!("a project ({})", project.id));
    }
    if let Some((tenant_id, project_id)) =
        missing(&these.system_projects, &others.system_projects, |system| *system)
    {
        return Some(format!("a system project ({project_id}, of the tenant {tenant_id})"));
    }
    if let Some((key, _)) = missing(&these.keys, &others.keys, |(key, _)| key.id) {
        return Some(format!("a key ({})", key.id.0));
    }
    if let Some((token, _)) = missing(&these.monitor_tokens, &others.monitor_tokens, |(token, _)| token.id) {
        return Some(format!("a monitor token ({})", token.id.0));
    }
    if let Some((_, action)) = missing(&these.actions, &others.actions, |(tenant_id, action)| {
        (*tenant_id, action.action.action.clone())
    }) {
        return Some(format!("a custom action ({})", action.action.action));
    }
    if let Some(view) = missing(&these.saved_views, &others.saved_views, |view| view.id) {
        return Some(format!("a saved view ({})", view.id));
    }
    if let Some((person, _)) = missing(&these.persons, &others.persons, |(person, _)| person.id) {
        return Some(format!("a user ({})", person.id.0));
    }
    if let Some(member) =
        missing(&these.memberships, &others.memberships, |member| (member.tenant_id, member.person_id))
    {
        return Some(format!("a member ({}, of the tenant {})", member.person_id.0, member.tenant_id));
    }
    if let Some(user) = missing(&these.ops_users, &others.ops_users, |user| user.id) {
        return Some(format!("an operator ({})", user.id.0));
    }
    // Those of the schedule are removed after a time.
    let asked_for = |snapshot: &ControlSnapshot| {
        snapshot.jobs.iter().filter(|job| job.person_id.is_some()).cloned().collect::<Vec<_>>()
    };
    if let Some(job) = missing(&asked_for(these), &asked_for(others), |job| job.id) {
        return Some(format!("a job ({})", job.id.0));
    }
    if let Some(export) = missing(&these.exports, &others.exports, |export| export.new.id) {
        return Some(format!("an export ({})", export.new.id.0));
    }
    if let Some(entry) =
        missing(&these.case_entries, &others.case_entries, |entry| (entry.case_id, entry.revision))
    {
        return Some(format!("a case, or a step of it ({})", entry.case_id.0));
    }
    let search = |kept: &KeptSearch| kept.search.new.id;
    if let Some(kept) = missing(&these.case_searches, &others.case_searches, search) {
        return Some(format!("a search of a case ({})", kept.search.new.id.0));
    }
    if let Some(package) = missing(&these.case_packages, &others.case_packages, |package| package.new.id) {
        return Some(format!("a package of a case ({})", package.new.id.0));
    }
    let revoked = |snapshot: &ControlSnapshot| {
        let revoked = snapshot.keys.iter().filter(|(key, _)| key.revoked_at_ms.is_some());
        revoked.map(|(key, _)| key.id).collect::<Vec<_>>()
    };
    if let Some(key) = missing(&revoked(these), &revoked(others), |key| *key) {
        return Some(format!("a revocation (of the key {})", key.0));
    }
    let revoked = |snapshot: &ControlSnapshot| {
        let tokens = snapshot.monitor_tokens.iter();
        let revoked = tokens.filter(|(token, _)| token.revoked_at_ms.is_some());
        revoked.map(|(token, _)| token.id).collect::<Vec<_>>()
    };
    if let Some(token) = missing(&revoked(these), &revoked(others), |token| *token) {
        return Some(format!("a revocation (of the monitor token {})", token.0));
    }
    // A beginning and an end are two changes.
    let frameworks = |snapshot: &ControlSnapshot| {
        let projects = snapshot.projects.iter();
        let enabled = projects.flat_map(|(project, enabled)| enabled.iter().map(|one| (project.id, *one)));
        let changes = enabled.flat_map(|(project, one)| {
            let ended =
                one.disabled_at_ms.map(|_| (project, one.framework, one.enabled_at_ms, one.disabled_at_ms));
            [Some((project, one.framework, one.enabled_at_ms, None)), ended]
        });
        changes.flatten().collect::<Vec<_>>()
    };
    if let Some((project, ..)) = missing(&frameworks(these), &frameworks(others), |change| *change) {
        return Some(format!("a change of frameworks (of the project {project})"));
    }
    let sent = |snapshot: &ControlSnapshot| {
        let sent =
            snapshot.notices.iter().filter(|notice| notice.sent_at_ms.or(notice.given_up_at_ms).is_some());
        sent.map(|notice| notice.key.clone()).collect::<Vec<_>>()
    };
    missing(&sent(these), &sent(others), Clone::clone).map(|key| format!("a sent mail ({key})"))
}
