//! Every page and form, in one table: its path, what it needs, and who answers.

use std::sync::Arc;

use axum::Router;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::Needs;
use crate::pages::{account, action, actions, claim, event, events, exports, forgot, framework, frameworks};
use crate::pages::{
    case, case_history, case_holidays, case_identifiers, case_identity, case_register, cases, new_case,
};
use crate::pages::{case_add, case_package, case_response, case_review, case_search};
use crate::pages::{invitation, keys, member, members, monitor_tokens, new_action, overview, permalink};
use crate::pages::{projects, reset, settings, unsubscribe};
use crate::pages::{
    saved_views, shortcuts, start, system_log, tail, theme, usage, verification, verification_all,
    verification_run,
};
use crate::routing::{self, Route, rows};
use crate::sign_in;

/// All of them. A test walks the table and asks for each as everybody.
pub fn table() -> &'static [Route<Dashboard>] {
    ROUTES
}

static ROUTES: &[Route<Dashboard>] = rows! {
    GET "/" Needs::Nothing => start::to_app;
    GET "/app" Needs::Nothing => start::show;
    GET "/app/signed-in" Needs::Nothing => start::signed_in;
    GET "/app/static/{hash}/{file}" Needs::Nothing => theme::asset;
    POST "/app/theme" Needs::Nothing => theme::choose;
    GET "/app/sign-in" Needs::Nothing => sign_in::show;
    POST "/app/sign-in" Needs::Nothing => sign_in::submit;
    GET "/app/sign-in/code" Needs::Password => sign_in::show_code;
    POST "/app/sign-in/code" Needs::Password => sign_in::submit_code;
    POST "/app/sign-out" Needs::Password => sign_in::sign_out;
    GET "/app/claim" Needs::Nothing => claim::show;
    POST "/app/claim" Needs::Nothing => claim::submit;
    GET "/app/forgot" Needs::Nothing => forgot::show;
    POST "/app/forgot" Needs::Nothing => forgot::submit;
    GET "/app/reset" Needs::Nothing => reset::show;
    POST "/app/reset" Needs::Nothing => reset::submit;
    GET "/app/invitation" Needs::Nothing => invitation::show;
    POST "/app/invitation" Needs::Nothing => invitation::submit;
    GET "/app/account" Needs::SignedIn => account::show;
    POST "/app/account/password" Needs::SignedIn => account::change_password;
    POST "/app/account/authenticator" Needs::SignedIn => account::offer_authenticator;
    POST "/app/account/authenticator/confirm" Needs::SignedIn => account::confirm_authenticator;
    POST "/app/account/authenticator/remove" Needs::SignedIn => account::remove_authenticator;
    POST "/app/account/recovery-codes" Needs::SignedIn => account::new_recovery_codes;
    POST "/app/account/sessions" Needs::SignedIn => account::end_sessions;
    POST "/app/account/shortcuts" Needs::SignedIn => shortcuts::choose;
    POST "/app/account/notifications" Needs::SignedIn => account::choose_notices;
    GET "/app/unsubscribe" Needs::Nothing => unsubscribe::show;
    POST "/app/unsubscribe" Needs::Nothing => unsubscribe::submit;
    GET "/app/p/{project}/{mode}" Needs::Member(Capability::ReadEvents) => overview::show;
    GET "/app/p/{project}/{mode}/frameworks" Needs::Member(Capability::ViewFrameworks) => frameworks::show;
    GET "/app/p/{project}/{mode}/frameworks/{framework}" Needs::Member(Capability::ViewFrameworks) => framework::show;
    GET "/app/p/{project}/{mode}/frameworks/{framework}/change" Needs::Member(Capability::ManageFrameworks) => framework::ask;
    POST "/app/p/{project}/{mode}/frameworks/{framework}/change" Needs::Member(Capability::ManageFrameworks) => framework::change;
    GET "/app/e/{log_id}" Needs::SignedIn => permalink::show;
    GET "/app/p/{project}/{mode}/tail" Needs::Member(Capability::ReadEvents) => tail::show;
    GET "/app/p/{project}/{mode}/views" Needs::Member(Capability::ReadEvents) => saved_views::show;
    POST "/app/p/{project}/{mode}/views/save" Needs::Member(Capability::ReadEvents) => saved_views::save;
    POST "/app/p/{project}/{mode}/views/share" Needs::Member(Capability::ShareViews) => saved_views::share;
    POST "/app/p/{project}/{mode}/views/pin" Needs::Member(Capability::ReadEvents) => saved_views::pin;
    POST "/app/p/{project}/{mode}/views/remove" Needs::Member(Capability::ReadEvents) => saved_views::remove;
    GET "/app/p/{project}/{mode}/events" Needs::Member(Capability::ReadEvents) => events::show;
    GET "/app/p/{project}/{mode}/events/{log_id}" Needs::Member(Capability::ReadEvents) => event::show;
    GET "/app/p/{project}/{mode}/events/{log_id}/hashed.txt" Needs::Member(Capability::ReadEvents) => event::hashed;
    GET "/app/p/{project}/{mode}/events/{log_id}/proof.txt" Needs::Member(Capability::ReadEvents) => event::proof;
    GET "/app/p/{project}/{mode}/verify" Needs::Member(Capability::Verify) => verification::show;
    POST "/app/p/{project}/{mode}/verify/start" Needs::Member(Capability::Verify) => verification::start;
    GET "/app/p/{project}/{mode}/verify/all" Needs::Member(Capability::Verify) => verification_all::show;
    POST "/app/p/{project}/{mode}/verify/all" Needs::Member(Capability::Verify) => verification_all::start;
    GET "/app/p/{project}/{mode}/verify/{run}" Needs::Member(Capability::Verify) => verification_run::show;
    POST "/app/p/{project}/{mode}/verify/{run}/cancel" Needs::Member(Capability::Verify) => verification_run::cancel;
    GET "/app/p/{project}/{mode}/verify/{run}/report.json" Needs::Member(Capability::Verify) => verification_run::report_json;
    GET "/app/p/{project}/{mode}/verify/{run}/report.txt" Needs::Member(Capability::Verify) => verification_run::report_text;
    GET "/app/p/{project}/{mode}/exports" Needs::Member(Capability::Export) => exports::show;
    POST "/app/p/{project}/{mode}/exports/create" Needs::Member(Capability::Export) => exports::create;
    GET "/app/p/{project}/{mode}/exports/{export}/download" Needs::Member(Capability::Export) => exports::download;
    GET "/app/p/{project}/{mode}/exports/{export}/manifest.json" Needs::Member(Capability::Export) => exports::manifest;
    GET "/app/o/{organisation}/system-log" Needs::Member(Capability::SystemLog) => system_log::show;
    GET "/app/o/{organisation}/actions" Needs::Member(Capability::ViewActions) => actions::show;
    GET "/app/o/{organisation}/actions/entry" Needs::Member(Capability::ViewActions) => action::show;
    GET "/app/o/{organisation}/actions/new" Needs::Member(Capability::ManageActions) => new_action::show;
    POST "/app/o/{organisation}/actions/create" Needs::Member(Capability::ManageActions) => new_action::create;
    POST "/app/o/{organisation}/actions/retire" Needs::Member(Capability::ManageActions) => action::retire;
    GET "/app/o/{organisation}/cases" Needs::Member(Capability::ViewCases) => cases::show;
    GET "/app/o/{organisation}/cases/new" Needs::Member(Capability::ManageCases) => new_case::show;
    POST "/app/o/{organisation}/cases/create" Needs::Member(Capability::ManageCases) => new_case::create;
    GET "/app/o/{organisation}/cases/add" Needs::Member(Capability::ManageCases) => case_add::show;
    POST "/app/o/{organisation}/cases/add" Needs::Member(Capability::ManageCases) => case_add::add;
    GET "/app/o/{organisation}/cases/register" Needs::Member(Capability::ViewCases) => case_register::show;
    GET "/app/o/{organisation}/cases/register.csv" Needs::Member(Capability::ViewCases) => case_register::csv;
    GET "/app/o/{organisation}/cases/holidays" Needs::Member(Capability::ManageCases) => case_holidays::show;
    POST "/app/o/{organisation}/cases/holidays" Needs::Member(Capability::ManageCases) => case_holidays::save;
    GET "/app/o/{organisation}/cases/{case}" Needs::Member(Capability::ViewCases) => case::show;
    POST "/app/o/{organisation}/cases/{case}/intake" Needs::Member(Capability::ManageCases) => case::save;
    POST "/app/o/{organisation}/cases/{case}/confirm" Needs::Member(Capability::ManageCases) => case::confirm;
    POST "/app/o/{organisation}/cases/{case}/move" Needs::Member(Capability::ManageCases) => case::step;
    GET "/app/o/{organisation}/cases/{case}/identity" Needs::Member(Capability::ViewCases) => case_identity::show;
    POST "/app/o/{organisation}/cases/{case}/identity" Needs::Member(Capability::ManageCases) => case_identity::save;
    GET "/app/o/{organisation}/cases/{case}/identifiers" Needs::Member(Capability::ViewCases) => case_identifiers::show;
    POST "/app/o/{organisation}/cases/{case}/identifiers/add" Needs::Member(Capability::ManageCases) => case_identifiers::add;
    POST "/app/o/{organisation}/cases/{case}/identifiers/remove" Needs::Member(Capability::ManageCases) => case_identifiers::remove;
    POST "/app/o/{organisation}/cases/{case}/scope" Needs::Member(Capability::ManageCases) => case_identifiers::set_scope;
    GET "/app/o/{organisation}/cases/{case}/search" Needs::Member(Capability::ViewCases) => case_search::show;
    POST "/app/o/{organisation}/cases/{case}/search/start" Needs::Member(Capability::ManageCases) => case_search::start;
    POST "/app/o/{organisation}/cases/{case}/search/stop" Needs::Member(Capability::ManageCases) => case_search::stop;
    POST "/app/o/{organisation}/cases/{case}/search/resume" Needs::Member(Capability::ManageCases) => case_search::resume;
    GET "/app/o/{organisation}/cases/{case}/review" Needs::Member(Capability::ViewCases) => case_review::show;
    POST "/app/o/{organisation}/cases/{case}/review/decide" Needs::Member(Capability::ManageCases) => case_review::decide;
    POST "/app/o/{organisation}/cases/{case}/review/mask" Needs::Member(Capability::ManageCases) => case_review::mask;
    GET "/app/o/{organisation}/cases/{case}/package" Needs::Member(Capability::ViewCases) => case_package::show;
    POST "/app/o/{organisation}/cases/{case}/package/build" Needs::Member(Capability::ManageCases) => case_package::build;
    POST "/app/o/{organisation}/cases/{case}/package/stop" Needs::Member(Capability::ManageCases) => case_package::stop;
    POST "/app/o/{organisation}/cases/{case}/package/{package}/download" Needs::Member(Capability::ManageCases) => case_package::download;
    GET "/app/o/{organisation}/cases/{case}/package/{package}/manifest.json" Needs::Member(Capability::ViewCases) => case_package::manifest;
    GET "/app/o/{organisation}/cases/{case}/response" Needs::Member(Capability::ViewCases) => case_response::show;
    GET "/app/o/{organisation}/cases/{case}/response/{letter}" Needs::Member(Capability::ViewCases) => case_response::print;
    GET "/app/o/{organisation}/cases/{case}/response/{letter}/text" Needs::Member(Capability::ViewCases) => case_response::text;
    POST "/app/o/{organisation}/cases/{case}/response/{letter}/save" Needs::Member(Capability::ManageCases) => case_response::save;
    GET "/app/o/{organisation}/cases/{case}/history" Needs::Member(Capability::ViewCases) => case_history::show;
    GET "/app/o/{organisation}/keys" Needs::Member(Capability::ViewKeys) => keys::show;
    POST "/app/o/{organisation}/keys/create" Needs::Member(Capability::TestKeys) => keys::create;
    POST "/app/o/{organisation}/keys/roll" Needs::Member(Capability::TestKeys) => keys::roll;
    POST "/app/o/{organisation}/keys/revoke" Needs::Member(Capability::TestKeys) => keys::revoke;
    GET "/app/o/{organisation}/monitor-tokens" Needs::Member(Capability::MonitorTokens) => monitor_tokens::show;
    POST "/app/o/{organisation}/monitor-tokens/create" Needs::Member(Capability::MonitorTokens) => monitor_tokens::create;
    POST "/app/o/{organisation}/monitor-tokens/revoke" Needs::Member(Capability::MonitorTokens) => monitor_tokens::revoke;
    GET "/app/o/{organisation}/usage" Needs::Member(Capability::ViewUsage) => usage::show;
    GET "/app/o/{organisation}/projects" Needs::Member(Capability::ViewProjects) => projects::show;
    POST "/app/o/{organisation}/projects/create" Needs::Member(Capability::ManageProjects) => projects::create;
    POST "/app/o/{organisation}/projects/rename" Needs::Member(Capability::ManageProjects) => projects::rename;
    GET "/app/o/{organisation}/members" Needs::Member(Capability::ManageMembers) => members::show;
    POST "/app/o/{organisation}/members/invite" Needs::Member(Capability::ManageMembers) => members::invite;
    POST "/app/o/{organisation}/members/withdraw" Needs::Member(Capability::ManageMembers) => members::withdraw;
    GET "/app/o/{organisation}/members/{person}" Needs::Member(Capability::ManageMembers) => member::show;
    POST "/app/o/{organisation}/members/{person}" Needs::Member(Capability::ManageMembers) => member::change;
    POST "/app/o/{organisation}/members/{person}/end" Needs::Member(Capability::ManageMembers) => member::end;
    GET "/app/o/{organisation}/settings" Needs::Member(Capability::ManageSettings) => settings::show;
    POST "/app/o/{organisation}/settings/name" Needs::Member(Capability::ManageSettings) => settings::rename;
    POST "/app/o/{organisation}/settings/authenticators" Needs::Member(Capability::ManageSettings) => settings::require_authenticators;
    POST "/app/o/{organisation}/settings/sessions" Needs::Member(Capability::ManageSettings) => settings::limit_sessions;
    POST "/app/o/{organisation}/settings/domains" Needs::Member(Capability::ManageSettings) => settings::limit_domains;
    POST "/app/o/{organisation}/settings/key-lifetime" Needs::Member(Capability::ManageSettings) => settings::limit_keys;
    POST "/app/o/{organisation}/settings/time-zone" Needs::Member(Capability::ManageSettings) => settings::set_time_zone;
    POST "/app/o/{organisation}/settings/cases" Needs::Member(Capability::ManageSettings) => settings::require_two_people;
    POST "/app/o/{organisation}/settings/privacy" Needs::Member(Capability::ManageSettings) => settings::set_privacy;
};

/// Where the operator's console would be, if it were on.
static WITHOUT_CONSOLE: &[Route<Dashboard>] = rows! {
    GET "/ops" Needs::Nothing => start::console_is_off;
    GET "/ops/{*rest}" Needs::Nothing => start::console_is_off;
};

impl Dashboard {
    /// For `sealog_server::serve_with_pages`, which adds what it knows of a request
    /// ([`sealog_service::Visit`]).
    pub fn router(self: &Arc<Dashboard>) -> Router {
        routing::router(self, ROUTES.iter())
    }

    /// The same where there is no console at all.
    pub(crate) fn router_without_console(self: &Arc<Dashboard>) -> Router {
        routing::router(self, ROUTES.iter().chain(WITHOUT_CONSOLE))
    }
}
