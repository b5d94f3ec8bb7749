//! Every page and form of the console, in one table: its path, what it needs, and who answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use super::console::Console;
use super::gate::{self, Handler, OpsNeeds};
use super::{enrol, jobs, losses, outbox, sign_in, start, storage, system, tenant, tenants};
use crate::headers;

pub struct OpsRoute {
    pub path: &'static str,
    pub method: Method,
    pub needs: OpsNeeds,
    handler: Handler,
}

impl std::fmt::Debug for OpsRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.needs)
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $needs:ident => $module:ident::$handler:ident;)*) => {
        &[$(OpsRoute {
            path: $path,
            method: Method::$method,
            needs: OpsNeeds::$needs,
            handler: |console, asked| Box::pin($module::$handler(console, asked)),
        }),*]
    };
}

/// All of them. A test walks the table and asks for each as everybody.
pub fn ops_table() -> &'static [OpsRoute] {
    ROUTES
}

static ROUTES: &[OpsRoute] = routes! {
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
    /// For `sealog_server::serve_with_pages` or `serve_console`, which add what they know of a request ([`sealog_service::Visit`]).
    pub fn router(self: &Arc<Console>) -> Router {
        let mut router = Router::new();
        let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
        paths.dedup();
        for path in paths {
            let mut methods = MethodRouter::new();
            for route in ROUTES.iter().filter(|route| route.path == path) {
                let filter =
                    MethodFilter::try_from(route.method.clone()).expect("a method that HTTP itself has");
                let console = Arc::clone(self);
                methods = methods.on(filter, async move |parameters: RawPathParams, request: Request| {
                    let handler = Some(route.handler);
                    headers::add(
                        route.path,
                        gate::pass(&console, route.needs, handler, &parameters, request).await,
                    )
                });
            }
            router = router.route(path, methods);
        }
        // What is not in the table gets a page that says so.
        let console = Arc::clone(self);
        router.route(
            "/ops/{*rest}",
            axum::routing::get(async move |parameters: RawPathParams, request: Request| {
                headers::add("", gate::pass(&console, OpsNeeds::Nothing, None, &parameters, request).await)
            }),
        )
    }
}
