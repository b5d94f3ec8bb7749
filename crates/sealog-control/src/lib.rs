//! Who the people are and what is set: control data. Small, changed by people, kept apart from events.
//!
//! One file for each entity has its types, its SQL, how a row becomes a value, its part of a snapshot, and
//! the trait by which it is asked for. Entities are synchronous code over a small seam ([`db`]); beneath it
//! are two drivers, a file of SQLite beside the logs and tables in PostgreSQL. [`Control`] runs them on
//! threads of its own, so that an event loop never waits for a database, and work on control data never
//! delays reads of events.
//!
//! Whole operations, never rows. Nothing is ever deleted that an event could point at: keys are revoked,
//! frameworks disabled, memberships ended. An export that gives way to another leaves an event that says what
//! it was.
//!
//! **What is durable when.** After `Ok` a change is durable and seen by every later call. After an error it
//! was not made, or is not known to have been made.

pub mod account;
pub mod action;
pub mod attempt;
pub mod authenticator;
pub mod case;
mod case_entry;
pub mod case_event;
pub mod case_found;
pub mod case_letter;
pub mod case_package;
mod case_record;
pub mod case_search;
mod case_words;
mod closed;
mod control;
mod copy;
pub mod credentials;
pub mod database;
pub mod db;
pub mod device;
pub mod ending;
pub mod epoch;
mod error;
pub mod exports;
pub mod failure;
pub mod first;
pub mod job;
pub mod key;
mod known_log;
pub mod link;
pub mod membership;
pub mod monitor_token;
pub mod muted_notice;
pub mod ops_user;
pub mod outbox;
pub mod outbox_desk;
pub mod pending;
pub mod person;
mod person_record;
mod postgres;
pub mod project;
mod record;
mod reserve;
mod role;
pub mod saved_view;
mod schema;
mod sent;
pub mod session;
pub mod settings;
pub mod snapshot;
mod sqlite;
pub mod system_project;
pub mod tenant;
mod tenant_room;
pub mod version;

use sealog_store::postgres as store_postgres;

pub use account::{Account, Code, SecondFactor};
pub use action::KnownAction;
pub use attempt::Counted;
pub use authenticator::Authenticator;
pub use case::{CaseSaved, CaseWrite};
pub use case_entry::{CaseDifference, CaseEntry, NewCaseEntry};
pub use case_event::{CaseEvent, CaseEventOutcome, CaseEvents, NewCaseEvent};
pub use case_found::{
    Decide, Decided, Decision, DecisionIs, FoundCounts, FoundEvent, FoundFilter, FoundGroup, MaskFound,
    NewFound, Review, Reviewing, SearchId, Which,
};
pub use case_letter::{CaseLetter, LetterKind};
pub use case_package::{CasePackage, NewCasePackage, PackageBuilt, PackageCreated, PackageId};
pub use case_record::{
    Case, CaseAnswer, CaseExtension, CaseId, CasePause, CaseScope, Identifier, IdentityCheck, Intake,
};
pub use case_search::{CaseSearch, KeptSearch, NewCaseSearch, SearchOutcome, SearchPiece};
pub use case_words::{
    CaseChannel, CaseOutcome, CaseRegime, CaseState, CaseType, ExtensionReason, IdentifierKind,
    IdentityMethod, IdentityOutcome, RefusalGround,
};
pub use closed::TenantClosed;
pub use control::{Answer, Control};
pub use copy::{copy_of_directory, copy_of_file, names_of_copy, projects_of_copy};
pub use db::{ListPage, Room, Schema};
pub use device::{Device, DeviceSeen};
pub use ending::{EndPage, EndPlace};
pub use epoch::Epochs;
pub use error::{ChangeError, OpenError};
pub use exports::{Export, ExportId, ExportTotals, NewExport};
pub use failure::{Failed, TellFailures, Wrong};
pub use first::FirstRun;
pub use job::{Job, JobBack, JobEnd, JobId, JobOutcome, JobState, NewJob};
pub use key::{Access, ApiKey, KeyAccess, KeyId, KeyRoll, KeyUse, NewKey};
pub use known_log::KnownLog;
pub use link::{Claimed, Guest, Invitation, Invited, Link, Purpose};
pub use membership::Updated;
pub use membership::{Grants, Member, MemberChange, MemberChanged, Membership, NewMember};
pub use monitor_token::{MonitorAccess, MonitorToken, MonitorTokenCreated, MonitorTokenId, NewMonitorToken};
pub use muted_notice::MutedNotice;
pub use ops_user::{NewOpsUser, OpsLink, OpsUser, OpsUserId};
pub use outbox::{KeptNotice, NewNotice, Notice, NoticeOutcome};
pub use outbox_desk::{NoticeState, OutboxRow};
pub use pending::PendingRecord;
pub use person::{NewPerson, Person, PersonId};
pub use person_record::PersonRecords;
pub use project::{NewProject, Project, ProjectChange};
pub use record::{NewRecord, Records};
pub use role::{Role, RoleRules};
pub use saved_view::{SavedView, ViewChange, ViewKept, ViewsMax, WhoseView};
pub use schema::SCHEMA;
pub use session::{Session, Shown};
pub use snapshot::ControlSnapshot;
pub use tenant::{NewTenant, Tenant, TenantChange};

/// What a server that starts would find in a PostgreSQL database: the tables of events and those of these
/// schemas.
pub fn look(url: &str, schemas: &[&Schema]) -> Result<store_postgres::Look, store_postgres::OpenError> {
    let steps: Vec<_> = schemas.iter().map(|schema| postgres::steps(schema)).collect();
    store_postgres::look(url, &steps)
}

/// What a server that starts would find of control data in a data directory: steps of the schema that were
/// made, and that this program knows. Nothing where there is no such file yet. An error is what it would
/// refuse.
pub fn look_in_directory(dir: &std::path::Path) -> Result<Option<(usize, usize)>, OpenError> {
    sqlite::look(dir, &SCHEMA)
}

/// Makes or updates the tables of control data in a PostgreSQL database; how many steps that took.
pub fn migrate(url: &str) -> Result<usize, store_postgres::OpenError> {
    migrate_all(url, &[&SCHEMA])
}

/// Makes or updates the tables of these schemas in a PostgreSQL database, as `sealog migrate` does; how many
/// steps that took.
pub fn migrate_all(url: &str, schemas: &[&Schema]) -> Result<usize, store_postgres::OpenError> {
    let mut made = 0;
    for schema in schemas {
        made += store_postgres::sessions::migrate(url, &postgres::steps(schema))?;
    }
    Ok(made)
}
