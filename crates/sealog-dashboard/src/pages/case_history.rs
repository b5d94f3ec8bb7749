//! What was done to a case, by whom and why; and the events that it has left in its projects.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_cases::is_note_intact;

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Other, Tab, find, names, other};
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::visible;

#[derive(Template)]
#[template(path = "pages/case_history.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    rows: Vec<Row>,
    events: Vec<EventRow>,
}

struct Row {
    revision: u64,
    told: Other,
    digest: String,
    salt: String,
    is_intact: bool,
}

struct EventRow {
    action: String,
    project: String,
    /// Where it stands in the chain, with a link there for those who may see the project.
    seq: Option<(String, u64)>,
    state: String,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "history").await?;
    let entries = app.service.cases.entries(&case).await?;
    let names = names(&app, &case, &entries).await?;
    let rows = entries.iter().rev().map(|entry| Row {
        revision: entry.revision,
        told: other(entry, &names),
        digest: entry.entry.digest.to_string(),
        salt: entry.entry.salt.to_string(),
        is_intact: is_note_intact(entry),
    });
    let place = asked.place();
    let events = app.service.cases.events(&case).await?;
    let events = events.iter().map(|event| {
        let project = place.projects.iter().find(|project| project.id == event.new.project_id);
        let href = |seq: u64| format!("/app/p/{}/live/events?q=seq%3A{seq}..{seq}", event.new.project_id);
        EventRow {
            action: visible(&event.new.action),
            project: project
                .map_or_else(|| event.new.project_id.to_string(), |project| visible(&project.name)),
            seq: event.chain_seq.map(|seq| (href(seq), seq)),
            state: match (&event.cause, event.ended_at_ms) {
                (Some(cause), Some(_)) => format!("Not written: {}", visible(cause)),
                (Some(cause), None) => format!("Waiting, tried {} times: {}", event.attempts, visible(cause)),
                (None, None) => "Waiting".to_owned(),
                (None, Some(_)) => String::new(),
            },
        }
    });
    Ok(html(&Page {
        shell: Shell::new(&app, &asked, Some(Current::Cases)),
        frame: Frame::new(&app, &asked, &case, Tab::History).await?,
        rows: rows.collect(),
        events: events.collect(),
    }))
}
