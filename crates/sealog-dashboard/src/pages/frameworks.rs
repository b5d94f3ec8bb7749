//! Frameworks of a project: which are enabled, and how much of what they require was seen.

use std::ops::Range;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_core::catalog::Catalog;
use sealog_core::id::{ChainId, Mode};
use sealog_store::counts::day_of;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::figures::{self, Counting, Figures};
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html, see_other};
use crate::text::visible;

/// Days back that an action counts as seen.
pub(crate) const DAYS: u32 = 365;

#[derive(Template)]
#[template(path = "pages/frameworks.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    behind: Option<String>,
    may_change: bool,
    cards: Vec<Card>,
    notice: Option<&'static str>,
}

struct Card {
    label: &'static str,
    source: &'static str,
    retention: &'static str,
    href: String,
    is_enabled: bool,
    in_plan: bool,
    seen: usize,
    required: usize,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let Some((project, mode)) = &place.chain else { return Err(Problem::not_found()) };
    if *mode == Mode::Test {
        return Ok(see_other(&format!("/app/p/{}/live/frameworks", project.id)));
    }
    let (figures, days) = seen(&app, &asked).await?;
    figures::seal_view(&app, &asked, "frameworks", &days).await?;
    let in_plan = app.service.admin.plan(&place.tenant.plan).map(|plan| plan.frameworks);
    let card = |(index, framework): (usize, &'static sealog_core::catalog::Framework)| {
        let (seen, required) = figures::coverage(&framework.framework, &figures);
        Card {
            label: &framework.label,
            source: &framework.source,
            retention: &framework.retention,
            href: format!("/app/p/{}/live/frameworks/{}", project.id, framework.framework),
            is_enabled: project.frameworks.contains(index),
            in_plan: in_plan.is_some_and(|plan| plan.contains(index)),
            seen,
            required,
        }
    };
    let mut cards: Vec<Card> = Catalog::builtin().frameworks.iter().enumerate().map(card).collect();
    cards.sort_by_key(|card| (!card.is_enabled, !card.in_plan));
    let notice = match asked.query_value("done").as_deref() {
        Some("enable") => Some("Framework enabled. Its actions are accepted from now on."),
        Some("disable") => Some("Framework disabled. Existing events stay."),
        _ => None,
    };
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Frameworks)),
        project: visible(&project.name),
        behind: figures.behind(&place.membership.grants),
        may_change: place.may(Capability::ManageFrameworks),
        cards,
        notice,
    };
    Ok(html(&page))
}

/// What was seen of the project's live events in a year, as far as the person may look, and which days those
/// are.
pub(crate) async fn seen(app: &Dashboard, asked: &Asked) -> Result<(Figures, Range<u32>), Problem> {
    let place = asked.place();
    let Some((project, _)) = &place.chain else { return Err(Problem::not_found()) };
    let chain = ChainId { tenant_id: place.tenant.id, project_id: project.id, mode: Mode::Live };
    let until = day_of(app.service.world.now_ms()) + 1;
    let days = figures::granted(until.saturating_sub(DAYS)..until, &place.membership.grants);
    let (figures, _) = figures::read(app, chain, days.clone(), days.start..days.start, Counting::All).await?;
    Ok((figures, days))
}
