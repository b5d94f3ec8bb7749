//! The pages as a browser would ask for them, on a store and control data of their own.

#[path = "dashboard/actions.rs"]
mod actions;
#[path = "dashboard/cases.rs"]
mod cases;
#[path = "dashboard/context.rs"]
mod context;
#[path = "dashboard/disclosure.rs"]
mod disclosure;
#[path = "dashboard/events.rs"]
mod events;
#[path = "dashboard/exports.rs"]
mod exports;
#[path = "dashboard/figures.rs"]
mod figures;
#[path = "dashboard/harness.rs"]
mod harness;
#[path = "dashboard/keys.rs"]
mod keys;
#[path = "dashboard/members.rs"]
mod members;
#[path = "dashboard/notices.rs"]
mod notices;
#[path = "dashboard/ops.rs"]
mod ops;
#[path = "dashboard/ops_accounts.rs"]
mod ops_accounts;
#[path = "dashboard/ops_routes.rs"]
mod ops_routes;
#[path = "dashboard/people.rs"]
mod people;
#[path = "dashboard/retention.rs"]
mod retention;
#[path = "dashboard/roles.rs"]
mod roles;
#[path = "dashboard/rules.rs"]
mod rules;
#[path = "dashboard/sealing.rs"]
mod sealing;
#[path = "dashboard/search.rs"]
mod search;
#[path = "dashboard/settings.rs"]
mod settings;
#[path = "dashboard/shortcuts.rs"]
mod shortcuts;
#[path = "dashboard/system_log.rs"]
mod system_log;
#[path = "dashboard/tail.rs"]
mod tail;
#[path = "dashboard/verification.rs"]
mod verification;
#[path = "dashboard/views.rs"]
mod views;
