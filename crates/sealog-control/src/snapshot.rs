//! All control data at one moment, for `sealog copy`. Each entity reads and writes its own part.

use std::sync::Arc;

use sealog_core::id::{Hash, ProjectId, TenantId};
use sealog_store::pool::Payer;

use crate::action::KnownAction;
use crate::authenticator::Authenticator;
use crate::case_entry::CaseEntry;
use crate::case_event::CaseEvent;
use crate::case_letter::CaseLetter;
use crate::case_package::CasePackage;
use crate::case_record::Case;
use crate::case_search::KeptSearch;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock};
use crate::device::Device;
use crate::epoch::Epochs;
use crate::exports::Export;
use crate::job::Job;
use crate::key::ApiKey;
use crate::known_log::KnownLog;
use crate::link::Link;
use crate::membership::Membership;
use crate::monitor_token::MonitorToken;
use crate::muted_notice::MutedNotice;
use crate::ops_user::OpsUser;
use crate::outbox::KeptNotice;
use crate::pending::PendingRecord;
use crate::person::Person;
use crate::project::{Enabled, Project};
use crate::saved_view::SavedView;
use crate::session::Session;
use crate::tenant::Tenant;
use crate::{
    action, authenticator, case_entry, case_event, case_letter, case_package, case_record, case_search,
    device, epoch, exports, job, key, known_log, link, membership, monitor_token, muted_notice, ops_user,
    outbox, pending, person, project, saved_view, session, settings, system_project, tenant, version,
};

impl Control {
    pub fn export(&self) -> Answer<'_, ControlSnapshot> {
        // Behind the changes before it and before those that come: one moment of everything.
        self.change(Lock::Order, export)
    }

    /// Puts this in the place of everything, in one step. For copies, into a store that serves nobody.
    pub fn replace(&self, snapshot: ControlSnapshot) -> Answer<'_, ()> {
        let (database, versions) = (Arc::clone(&self.database), Arc::clone(&self.versions));
        self.run(Payer::Operator, move || {
            let replaced = database.change(Lock::Version, |db, version| {
                replace(db, snapshot)?;
                version.map_or(Ok(()), |version| version::touch_all(db, version))
            });
            versions.note_all();
            replaced
        })
    }
}

/// Each kind in the order of creation; system projects, actions, settings, sessions and authenticators in
/// that of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSnapshot {
    pub tenants: Vec<Tenant>,
    /// With the history of their frameworks.
    pub projects: Vec<(Project, Vec<Enabled>)>,
    /// Those that are reserved for system chains.
    pub system_projects: Vec<(TenantId, ProjectId)>,
    pub keys: Vec<(ApiKey, Hash)>,
    pub monitor_tokens: Vec<(MonitorToken, Hash)>,
    pub actions: Vec<(TenantId, KnownAction)>,
    pub settings: Vec<(TenantId, String, String)>,
    /// With the hash of their password.
    pub persons: Vec<(Person, Option<String>)>,
    pub memberships: Vec<Membership>,
    pub sessions: Vec<Session<Person>>,
    /// With the digests of the recovery codes that are left.
    pub authenticators: Vec<(Authenticator, Vec<Hash>)>,
    pub links: Vec<Link>,
    pub saved_views: Vec<SavedView>,
    pub devices: Vec<Device<Person>>,
    pub muted_notices: Vec<MutedNotice>,
    pub notices: Vec<KeptNotice>,
    pub jobs: Vec<Job>,
    pub exports: Vec<Export>,
    pub cases: Vec<Case>,
    pub case_entries: Vec<CaseEntry>,
    pub case_events: Vec<CaseEvent>,
    pub case_searches: Vec<KeptSearch>,
    /// Without their content, which is made from events and decisions.
    pub case_packages: Vec<CasePackage>,
    pub case_letters: Vec<CaseLetter>,
    pub records: Vec<PendingRecord>,
    /// Those that were removed included.
    pub ops_users: Vec<OpsUser>,
    pub ops_sessions: Vec<Session<OpsUser>>,
    pub ops_devices: Vec<Device<OpsUser>>,
    pub epochs: Epochs,
    pub known_log: Option<KnownLog>,
}

/// Every table, each before those that it points at.
pub(crate) const TABLES: &[&str] = &[
    "pending",
    "case_letters",
    "case_package_pieces",
    "case_packages",
    "case_values",
    "case_found",
    "case_searches",
    "case_events",
    "case_entries",
    "cases",
    "exports",
    "jobs",
    "outbox",
    "attempts",
    "failures",
    "saved_views",
    "devices",
    "muted_notices",
    "recovery_codes",
    "authenticators",
    "links",
    "sessions",
    "memberships",
    "persons",
    "settings",
    "actions",
    "key_requests",
    "keys",
    "monitor_tokens",
    "system_projects",
    "project_frameworks",
    "projects",
    "tenants",
    "ops_devices",
    "ops_sessions",
    "ops_users",
    "epochs",
    "known_log",
];

fn export(db: &mut dyn Db) -> Result<ControlSnapshot, DbError> {
    Ok(ControlSnapshot {
        tenants: tenant::export(db)?,
        projects: project::export(db)?,
        system_projects: system_project::export(db)?,
        keys: key::export(db)?,
        monitor_tokens: monitor_token::export(db)?,
        actions: action::export(db)?,
        settings: settings::export(db)?,
        persons: person::export(db)?,
        memberships: membership::export(db)?,
        sessions: session::export(db)?,
        authenticators: authenticator::export(db)?,
        links: link::export(db)?,
        saved_views: saved_view::export(db)?,
        devices: device::export(db)?,
        muted_notices: muted_notice::export(db)?,
        notices: outbox::export(db)?,
        jobs: job::export(db)?,
        exports: exports::export(db)?,
        cases: case_record::export(db)?,
        case_entries: case_entry::export(db)?,
        case_events: case_event::export(db)?,
        case_searches: case_search::export(db)?,
        case_packages: case_package::export(db)?,
        case_letters: case_letter::export(db)?,
        records: pending::export(db)?,
        ops_users: ops_user::export(db)?,
        ops_sessions: session::export(db)?,
        ops_devices: device::export(db)?,
        epochs: epoch::export(db)?,
        known_log: known_log::export(db)?,
    })
}

fn replace(db: &mut dyn Db, snapshot: ControlSnapshot) -> Result<(), DbError> {
    for table in TABLES {
        db.execute(&format!("DELETE FROM {{{table}}}"), &[])?;
    }
    tenant::import(db, snapshot.tenants)?;
    project::import(db, snapshot.projects)?;
    system_project::import(db, &snapshot.system_projects)?;
    key::import(db, &snapshot.keys)?;
    monitor_token::import(db, &snapshot.monitor_tokens)?;
    action::import(db, &snapshot.actions)?;
    settings::import(db, &snapshot.settings)?;
    person::import(db, &snapshot.persons)?;
    membership::import(db, &snapshot.memberships)?;
    session::import(db, &snapshot.sessions)?;
    authenticator::import(db, &snapshot.authenticators)?;
    link::import(db, &snapshot.links)?;
    saved_view::import(db, &snapshot.saved_views)?;
    device::import(db, &snapshot.devices)?;
    muted_notice::import(db, &snapshot.muted_notices)?;
    outbox::import(db, &snapshot.notices)?;
    job::import(db, &snapshot.jobs)?;
    exports::import(db, &snapshot.exports)?;
    case_record::import(db, &snapshot.cases)?;
    case_entry::import(db, &snapshot.case_entries)?;
    case_event::import(db, &snapshot.case_events)?;
    case_search::import(db, &snapshot.case_searches)?;
    case_package::import(db, &snapshot.case_packages)?;
    case_letter::import(db, &snapshot.case_letters)?;
    pending::import(db, snapshot.records)?;
    ops_user::import(db, &snapshot.ops_users)?;
    session::import(db, &snapshot.ops_sessions)?;
    device::import(db, &snapshot.ops_devices)?;
    epoch::import(db, snapshot.epochs)?;
    known_log::import(db, snapshot.known_log.as_ref())
}
