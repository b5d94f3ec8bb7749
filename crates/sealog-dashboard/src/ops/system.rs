//! Versions of what runs here, the geo database, and whether mails leave.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use crate::gate::of_control;
use crate::layout::VERSION;
use crate::problem::Problem;
use crate::request::html;
use crate::text::{day, moment, number, visible};

#[derive(Template)]
#[template(path = "ops/system.html")]
struct Page<'a> {
    shell: Shell<'a>,
    program: &'static str,
    store: &'a str,
    schema: usize,
    now: String,
    geo: Option<Geo>,
    has_mail: bool,
    waiting: String,
}

struct Geo {
    file: String,
    kind: String,
    built: String,
    bytes: String,
    refused: Option<String>,
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let geo = console.service.settings.geo.as_ref().map(|geo| geo.state());
    let waiting = console.service.control.pending_notices().await.map_err(of_control)?;
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::System),
        program: VERSION,
        store: &console.instance.store,
        schema: console.instance.schema,
        now: moment(console.service.world.now_ms()),
        geo: geo.map(|state| Geo {
            file: visible(&state.file.display().to_string()),
            kind: visible(&state.kind),
            built: day(state.built_at_s.saturating_mul(1000)),
            bytes: number(state.bytes),
            refused: state.refused.as_deref().map(visible),
        }),
        has_mail: console.service.settings.smtp.is_some(),
        waiting: number(waiting),
    }))
}
