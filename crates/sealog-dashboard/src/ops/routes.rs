//! Every page and form of the console, in one table: its path, what it needs, and who answers.

use std::sync::Arc;

use axum::Router;

use super::console::Console;
use super::{enrol, jobs, losses, outbox, start, storage, system, tenant, tenants};
use crate::gate::Needs::{Nothing, Password, SignedIn};
use crate::pages::theme;
use crate::routing::{self, Route, rows};
use crate::sign_in;

/// All of them. A test walks the table and asks for each as everybody.
pub fn ops_table() -> &'static [Route<Console>] {
    ROUTES
}

static ROUTES: &[Route<Console>] = rows! {
    GET "/ops" SignedIn => start::show;
    GET "/ops/static/{hash}/{file}" Nothing => theme::asset;
    POST "/ops/theme" Nothing => theme::choose;
    GET "/ops/sign-in" Nothing => sign_in::show;
    POST "/ops/sign-in" Nothing => sign_in::submit;
    GET "/ops/sign-in/code" Password => sign_in::show_code;
    POST "/ops/sign-in/code" Password => sign_in::submit_code;
    POST "/ops/sign-out" Password => sign_in::sign_out;
    GET "/ops/enrol" Nothing => enrol::show;
    POST "/ops/enrol" Nothing => enrol::submit;
    GET "/ops/enrol/authenticator" Password => enrol::show_authenticator;
    POST "/ops/enrol/authenticator" Password => enrol::confirm_authenticator;
    GET "/ops/tenants" SignedIn => tenants::show;
    GET "/ops/tenants/{tenant}" SignedIn => tenant::show;
    POST "/ops/tenants/{tenant}/plan" SignedIn => tenant::change_plan;
    POST "/ops/tenants/{tenant}/rate" SignedIn => tenant::change_rate;
    POST "/ops/tenants/{tenant}/project-rate" SignedIn => tenant::change_project_rate;
    POST "/ops/tenants/{tenant}/close" SignedIn => tenant::close;
    GET "/ops/losses" SignedIn => losses::show;
    GET "/ops/losses/{tenant}/{project}/{mode}" SignedIn => losses::show_one;
    POST "/ops/losses/{tenant}/{project}/{mode}" SignedIn => losses::accept;
    GET "/ops/jobs" SignedIn => jobs::show;
    POST "/ops/jobs/cancel" SignedIn => jobs::cancel;
    GET "/ops/outbox" SignedIn => outbox::show;
    POST "/ops/outbox/retry" SignedIn => outbox::retry;
    POST "/ops/outbox/give-up" SignedIn => outbox::give_up;
    GET "/ops/storage" SignedIn => storage::show;
    GET "/ops/system" SignedIn => system::show;
};

impl Console {
    /// For `sealog_server::serve_with_pages` or `serve_console`, which add what they know of a request
    /// ([`sealog_service::Visit`]).
    pub fn router(self: &Arc<Console>) -> Router {
        routing::router(self, ROUTES.iter())
    }
}
