//! What `sealog replicate` reads, beneath the operator's interface: whoever gets here has shown the
//! operator's token. Not described for clients, since it is a matter between two programs of Sealog.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use hyper::{StatusCode, Uri};
use sealog_core::id::Mode;
use sealog_core::reject::{Code, Reject};
use sealog_service::records::replication::Replication;
use sealog_store::StoreError;

use crate::app::App;
use crate::operator_routes::BEGINNING;
use crate::respond::{self, Answer, Failure};

const BYTES: &str = "application/octet-stream";

/// Which bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    to: u64,
}

/// Adds the paths, if replication is on.
pub(crate) fn add(router: Router<Arc<App>>, app: &App) -> Router<Arc<App>> {
    if app.replication.is_none() {
        return router;
    }
    router
        .route(&format!("{BEGINNING}replication/moment"), get(moment))
        .route(&format!("{BEGINNING}replication/salt"), get(salt))
        .route(&format!("{BEGINNING}replication/control/{{sha256}}"), get(control))
        .route(&format!("{BEGINNING}replication/log/{{sha256}}"), get(log))
        .route(&format!("{BEGINNING}replication/segments/{{mode}}/{{number}}"), get(segment))
}

fn service(app: &App) -> Result<&Replication, Failure> {
    app.replication.as_ref().ok_or_else(|| Reject::PathNotFound.into())
}

async fn moment(State(app): State<Arc<App>>) -> Response {
    let answer = async {
        let moment = service(&app)?.moment().await.map_err(failed)?;
        app.metrics.replica_seen_ms.store(app.service.world.now_ms(), Ordering::Relaxed);
        Ok::<_, Failure>(respond::json(StatusCode::OK, moment.to_string()))
    };
    respond::into_router(answer.await)
}

async fn salt(State(app): State<Arc<App>>) -> Response {
    let answer = async { found(service(&app)?.salt().await) };
    respond::into_router(answer.await)
}

async fn control(State(app): State<Arc<App>>, Path(sha256): Path<String>, uri: Uri) -> Response {
    let answer = async {
        let Stretch { from, to } = stretch(&uri)?;
        found(service(&app)?.control(&sha256, from, to).await)
    };
    respond::into_router(answer.await)
}

async fn log(State(app): State<Arc<App>>, Path(sha256): Path<String>, uri: Uri) -> Response {
    let answer = async {
        let Stretch { from, to } = stretch(&uri)?;
        found(service(&app)?.log(&sha256, from, to).await)
    };
    respond::into_router(answer.await)
}

async fn segment(
    State(app): State<Arc<App>>,
    Path((mode, number)): Path<(String, u64)>,
    uri: Uri,
) -> Response {
    let answer = async {
        let mode = Mode::ALL.into_iter().find(|known| known.as_str() == mode).ok_or(Reject::PathNotFound)?;
        let Stretch { from, to } = stretch(&uri)?;
        found(service(&app)?.segment(mode, number, from, to).await)
    };
    respond::into_router(answer.await)
}

fn stretch(uri: &Uri) -> Result<Stretch, Failure> {
    let query = uri.query().unwrap_or("");
    let number = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name)?.1.parse().ok()
    };
    let (from, to) = (number("from").ok_or(Reject::PathNotFound)?, number("to").ok_or(Reject::PathNotFound)?);
    Ok(Stretch { from, to })
}

/// Bytes, or a 404: a segment that was dropped, or a copy that gave way to a newer one.
fn found(read: Result<Option<Vec<u8>>, StoreError>) -> Answer {
    let bytes = read.map_err(failed)?.ok_or(Reject::PathNotFound)?;
    Ok(respond::with_type(StatusCode::OK, BYTES, bytes))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the last who needs it")]
fn failed(error: StoreError) -> Failure {
    tracing::error!(%error, "failed to answer a replica");
    Failure::new(Code::ReadQueryFailed, "cannot read the store; the server's log has the reason")
}
