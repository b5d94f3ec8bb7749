//! Every page and form of the console, in one table: its path, what it needs, and who answers.

use std::sync::Arc;

use axum::Router;

use super::console::Console;
use super::gate::OpsNeeds::{Nothing, Operator, Password};
use super::gate::{self, Handler, OpsNeeds};
use super::{enrol, jobs, losses, outbox, sign_in, start, storage, system, tenant, tenants};
use crate::headers;
use crate::routing::{self, row_type, rows};

row_type!(OpsRoute, OpsNeeds, Handler);

/// All of them. A test walks the table and asks for each as everybody.
pub fn ops_table() -> &'static [OpsRoute] {
    ROUTES
}

static ROUTES: &[OpsRoute] = rows! { OpsRoute:
    GET "/ops" Operator => start::show;
    GET "/ops/static/{hash}/{file}" Nothing => start::asset;
    POST "/ops/theme" Nothing => start::choose_theme;
    GET "/ops/sign-in" Nothing => sign_in::show;
    POST "/ops/sign-in" Nothing => sign_in::submit;
    GET "/ops/sign-in/code" Password => sign_in::show_code;
    POST "/ops/sign-in/code" Password => sign_in::submit_code;
    POST "/ops/sign-out" Password => sign_in::sign_out;
    GET "/ops/enrol" Nothing => enrol::show;
    POST "/ops/enrol" Nothing => enrol::submit;
    GET "/ops/enrol/authenticator" Password => enrol::show_authenticator;
    POST "/ops/enrol/authenticator" Password => enrol::confirm_authenticator;
    GET "/ops/tenants" Operator => tenants::show;
    GET "/ops/tenants/{tenant}" Operator => tenant::show;
    POST "/ops/tenants/{tenant}/plan" Operator => tenant::change_plan;
    POST "/ops/tenants/{tenant}/rate" Operator => tenant::change_rate;
    POST "/ops/tenants/{tenant}/project-rate" Operator => tenant::change_project_rate;
    GET "/ops/losses" Operator => losses::show;
    GET "/ops/losses/{tenant}/{project}/{mode}" Operator => losses::show_one;
    POST "/ops/losses/{tenant}/{project}/{mode}" Operator => losses::accept;
    GET "/ops/jobs" Operator => jobs::show;
    POST "/ops/jobs/cancel" Operator => jobs::cancel;
    GET "/ops/outbox" Operator => outbox::show;
    POST "/ops/outbox/retry" Operator => outbox::retry;
    POST "/ops/outbox/give-up" Operator => outbox::give_up;
    GET "/ops/storage" Operator => storage::show;
    GET "/ops/system" Operator => system::show;
};

impl Console {
    /// For `sealog_server::serve_with_pages` or `serve_console`, which add what they know of a request
    /// ([`sealog_service::Visit`]).
    pub fn router(self: &Arc<Console>) -> Router {
        let console = Arc::clone(self);
        // What is not in the table gets a page that says so.
        routing::router(ROUTES, "/ops/{*rest}", move |row: Option<&'static OpsRoute>, parameters, request| {
            let console = Arc::clone(&console);
            async move {
                let (path, needs) = row.map_or(("", Nothing), |row| (row.path, row.needs));
                let handler = row.map(|row| row.handler);
                headers::add(path, gate::pass(&console, needs, handler, &parameters, request).await)
            }
        })
    }
}
