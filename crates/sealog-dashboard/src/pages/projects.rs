//! Projects of an organisation, with the heads of their chains.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_core::catalog::Catalog;
use sealog_core::id::{ChainId, Mode};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::{day, number, visible};

#[derive(Template)]
#[template(path = "pages/projects.html")]
struct Page<'a> {
    shell: Shell<'a>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    id: String,
    created: String,
    frameworks: String,
    chains: Vec<Chain>,
}

struct Chain {
    mode: &'static str,
    href: String,
    seq: String,
    hash: Option<String>,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let mut rows = Vec::new();
    for project in &place.projects {
        let mut chains = Vec::new();
        for mode in Mode::ALL {
            let chain = ChainId { tenant_id: place.tenant.id, project_id: project.id, mode };
            let head = app.store.head(chain).await?.durable;
            chains.push(Chain {
                mode: mode.as_str(),
                href: format!("/app/p/{}/{}/events", project.id, mode.as_str()),
                seq: number(head.chain_seq),
                hash: (head.chain_seq > 0).then(|| head.hash.to_string()),
            });
        }
        let known = Catalog::builtin().frameworks.iter().enumerate();
        let enabled = known.filter(|(index, _)| project.frameworks.contains(*index));
        rows.push(Row {
            name: visible(&project.name),
            id: project.id.to_string(),
            created: day(project.created_at_ms),
            frameworks: enabled.map(|(_, framework)| framework.label.as_str()).collect::<Vec<_>>().join(", "),
            chains,
        });
    }
    Ok(html(&Page { shell: Shell::new(&app, &asked, Some(Current::Projects)), rows }))
}
