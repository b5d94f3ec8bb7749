//! The router for everything but the two requests that bring events: the tables of the API and of the
//! operator's interface, and pages.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::routing::{MethodFilter, MethodRouter, any};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use sealog_core::id::RequestId;
use sealog_core::reject::Reject;
use sealog_formats::input::Adapter;
use sealog_service::ingest::Client;

use crate::app::App;
use crate::client_address::is_local;
use crate::respond::{self, Answer, Failure};
use crate::routes::{self, Operation, Path};
use crate::{api, exposition, operator, operator_routes, replication, tlog, tlog_routes};

/// Most that a page reads of a form, unless its own router says otherwise.
const FORM_BYTES_MAX: usize = 64 << 10;

/// What the server knows of a request beside what the client sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub request_id: RequestId,
    /// The other end of the connection, which may be a proxy.
    pub peer: IpAddr,
    /// Who is behind it.
    pub client: IpAddr,
    /// It came in where `/metrics` is and nothing else.
    pub for_metrics: bool,
}

/// Pages have the paths that the API leaves. Panics if they take one of its paths, or have a fallback: a path
/// that nobody has is answered with the envelope.
pub(crate) fn new(app: Arc<App>, pages: Router) -> Router {
    let mut router = Router::new();
    for known in &routes::PATHS {
        router = add(router, "", known, answer);
    }
    if app.service.trust().is_some() {
        for known in &tlog_routes::PATHS {
            router = add(router, "", known, answer_tlog);
        }
    }
    for known in &operator_routes::PATHS {
        router = add(router, operator_routes::BEGINNING, known, answer_operator);
    }
    router = replication::add(router, &app);
    // Here pages have nothing, even those that take all paths that are left.
    for beginning in [routes::BEGINNING, operator_routes::BEGINNING, tlog_routes::BEGINNING] {
        router = route(router, &format!("{beginning}{{*rest}}"), &any(not_found));
    }
    let pages = pages.layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
    router
        .fallback(not_found)
        .merge(pages.with_state(()))
        .method_not_allowed_fallback(async || Failure::from(Reject::MethodNotAllowed))
        .with_state(app)
}

async fn not_found() -> Failure {
    Reject::PathNotFound.into()
}

/// Adds a row of a table.
fn add<O, A, F>(
    router: Router<Arc<App>>,
    beginning: &'static str,
    known: &'static Path<O>,
    answer: A,
) -> Router<Arc<App>>
where
    O: Copy + Send + Sync + 'static,
    A: Fn(Arc<App>, O, Asked) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let mut methods = MethodRouter::new();
    for (method, operation) in known.operations {
        let path = Pattern { beginning, pattern: known.pattern };
        let filter = MethodFilter::try_from(method.clone()).expect("a method that HTTP itself has");
        let handler = async move |State(app): State<Arc<App>>, request: Request| {
            respond::into_router(answer(app, *operation, Asked::new(path, request)).await)
        };
        methods = methods.on(filter, handler);
    }
    let methods = methods.fallback(async || Failure::method_not_allowed(&allowed(known.operations)));
    route(router, &format!("{beginning}{}", known.pattern), &methods)
}

/// Adds a path. In the tables `{*name}` may also be nothing; axum's is not.
fn route(router: Router<Arc<App>>, path: &str, methods: &MethodRouter<Arc<App>>) -> Router<Arc<App>> {
    let router = router.route(path, methods.clone());
    match path.split_once("{*") {
        Some((before, _)) => router.route(before, methods.clone()),
        None => router,
    }
}

/// `HEAD` is answered wherever `GET` is.
fn allowed<O>(operations: &[(Method, O)]) -> String {
    let allowed: Vec<&str> = operations.iter().map(|(known, _)| known.as_str()).collect();
    allowed.join(", ").replace("GET", "GET, HEAD")
}

#[derive(Clone, Copy, Debug)]
struct Pattern {
    beginning: &'static str,
    pattern: &'static str,
}

/// A request that has found its row.
#[derive(Debug)]
struct Asked {
    path: Pattern,
    parts: Parts,
    body: Body,
    origin: Origin,
}

impl Asked {
    fn new(path: Pattern, request: Request) -> Asked {
        let (parts, body) = request.into_parts();
        let origin = *parts.extensions.get().expect("the server says where a request comes from");
        Asked { path, parts, body, origin }
    }

    /// Not axum's, which are percent-decoded: ids are compared as they were written.
    fn parameters(&self) -> Vec<&str> {
        let rest = self.parts.uri.path().strip_prefix(self.path.beginning);
        rest.and_then(|rest| routes::parameters(self.path.pattern, rest)).expect("the router has found it")
    }
}

async fn answer(app: Arc<App>, operation: Operation, mut asked: Asked) -> Answer {
    let mut body = std::mem::take(&mut asked.body);
    let (headers, Origin { request_id, peer, client, for_metrics }) = (&asked.parts.headers, asked.origin);
    let query = asked.parts.uri.query().unwrap_or("");
    let parameters = asked.parameters();
    let parameter = parameters.first().copied().unwrap_or("");
    match operation {
        Operation::LogEvent | Operation::LogBatch => unreachable!("answered without the router"),
        Operation::IngestJson | Operation::IngestCloudEvents | Operation::IngestLogs => {
            let adapter = match operation {
                Operation::IngestJson => Adapter::Json,
                Operation::IngestCloudEvents => Adapter::CloudEvents,
                _ => api::ingest::of_logs(headers),
            };
            let client = Client::new(client);
            api::ingest::post(&app, headers, &mut body, adapter, client, request_id).await
        }
        Operation::ListEvents => api::list::get(&app, query, headers, request_id).await,
        Operation::VerifyChain => api::verify::get(&app, query, headers, request_id).await,
        Operation::ReadEvent => api::read::get(&app, parameter, headers, request_id).await,
        Operation::ListActions => api::actions::get(&app, headers, request_id).await,
        Operation::Health => Ok(respond::with_type(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")),
        Operation::Ready => {
            // The reason in full names paths, hosts and chains.
            let may_know =
                || is_local(peer, headers, &app.config.trusted_proxies) || app.auth.operator(headers).is_ok();
            let (peer, trouble) = (app.config.peer.as_deref(), app.service.trust_trouble());
            Ok(app.last_ready.answer(&*app.service.store, &*app.keys, peer, trouble, may_know))
        }
        Operation::Metrics => {
            if !for_metrics {
                exposition::admit(&app, headers, peer)?;
            }
            exposition::get(&app, request_id).await
        }
        Operation::OpenApi => Ok(app.openapi.answer(headers, (&app.config, &app.service.settings.plans))),
        Operation::Docs => {
            app.docs.answer(parameter, query, headers, (&app.config, &app.service.settings.plans))
        }
    }
}

async fn answer_tlog(app: Arc<App>, operation: tlog_routes::Operation, asked: Asked) -> Answer {
    tlog::get(&app, operation, &asked.parameters(), &asked.parts, asked.origin.request_id).await
}

async fn answer_operator(app: Arc<App>, operation: operator_routes::Operation, mut asked: Asked) -> Answer {
    let mut body = std::mem::take(&mut asked.body);
    let request_id = asked.origin.request_id;
    operator::handle(&app, operation, &asked.parameters(), &asked.parts, &mut body, request_id).await
}
