//! The catalog of actions, and the organisation's own: found by name, framework and category.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::KnownAction;
use sealog_core::catalog::{Catalog, Entry};
use sealog_service::records::system_chain::actions::PAGE_VIEWED;
use serde_json::json;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, encoded, html};
use crate::text::{number, visible};
use crate::views;

/// Actions of one page; others are on the next.
const ACTIONS_ON_PAGE: usize = 100;

#[derive(Template)]
#[template(path = "pages/actions.html")]
struct Page<'a> {
    shell: Shell<'a>,
    here: String,
    search: String,
    frameworks: Vec<Choice>,
    categories: Vec<Choice>,
    kinds: Vec<Choice>,
    rows: Vec<Row>,
    found: String,
    next: Option<String>,
    previous: Option<String>,
    may_manage: bool,
    notice: Option<&'static str>,
}

struct Choice {
    value: String,
    label: String,
    is_chosen: bool,
}

struct Row {
    href: String,
    action: String,
    category: String,
    severity: String,
    description: String,
    frameworks: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Needs no framework.
    Core,
    /// One of its frameworks is enabled for a project.
    Enabled,
    /// None is.
    NeedsFramework,
    Custom,
    Retired,
}

/// An action of either kind.
enum Known<'k> {
    BuiltIn(&'static Entry),
    Custom(&'k KnownAction),
}

impl Known<'_> {
    fn name(&self) -> &str {
        match self {
            Known::BuiltIn(entry) => &entry.action,
            Known::Custom(known) => &known.action.action,
        }
    }

    fn category(&self) -> &str {
        match self {
            Known::BuiltIn(entry) => &entry.category,
            Known::Custom(known) => known.action.category.as_deref().unwrap_or(""),
        }
    }

    fn description(&self) -> &str {
        match self {
            Known::BuiltIn(entry) => &entry.description,
            Known::Custom(known) => known.action.description.as_deref().unwrap_or(""),
        }
    }

    fn has_framework(&self, id: &str) -> bool {
        matches!(self, Known::BuiltIn(entry) if entry.frameworks.iter().any(|of| of.framework == id))
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let here = format!("/app/o/{}/actions", place.tenant.id);
    let resource = format!("organisation/{}", place.tenant.id);
    views::seal(&app, &asked, &PAGE_VIEWED, &resource, json!({ "page": "actions" })).await?;
    let value = |name| asked.query_value(name).unwrap_or_default();
    let (search, framework, category, kind) =
        (value("search"), value("framework"), value("category"), value("kind"));
    let custom = app.service.control.known_actions(place.tenant.id).await.map_err(of_control)?;
    let catalog = Catalog::builtin();
    let wanted = search.trim().to_lowercase();
    let matches = |known: &Known<'_>| {
        let is_kind = match kind.as_str() {
            "custom" => matches!(known, Known::Custom(_)),
            "built-in" => matches!(known, Known::BuiltIn(_)),
            _ => true,
        };
        let is_named = || {
            known.name().to_lowercase().contains(&wanted)
                || known.description().to_lowercase().contains(&wanted)
        };
        is_kind
            && (framework.is_empty() || known.has_framework(&framework))
            && (category.is_empty() || known.category() == category)
            && (wanted.is_empty() || is_named())
    };
    let own = custom.iter().map(Known::Custom);
    let found: Vec<Known<'_>> =
        own.chain(catalog.entries.iter().map(Known::BuiltIn)).filter(matches).collect();
    let at = value("at").parse::<usize>().unwrap_or(0).min(found.len());
    let query = |at: usize| {
        let pairs = [
            ("search", search.as_str()),
            ("framework", &framework),
            ("category", &category),
            ("kind", &kind),
        ];
        let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let pairs: String = pairs.map(|(name, value)| format!("{name}={}&", encoded(value))).collect();
        format!("{here}?{pairs}at={at}")
    };
    let enabled = place
        .projects
        .iter()
        .fold(sealog_core::catalog::FrameworkSet::NONE, |set, project| set.union(project.frameworks));
    let row = |known: &Known<'_>| row(&here, known, enabled);
    let mut categories: Vec<&str> = catalog.entries.iter().map(|entry| entry.category.as_str()).collect();
    categories.extend(custom.iter().filter_map(|known| known.action.category.as_deref()));
    categories.sort_unstable();
    categories.dedup();
    let choice = |value: &str, label: &str, chosen: &str| Choice {
        value: value.to_owned(),
        label: visible(label),
        is_chosen: value == chosen,
    };
    let kinds = [("", "All"), ("built-in", "Built in"), ("custom", "Custom")];
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Actions)),
        frameworks: catalog
            .frameworks
            .iter()
            .map(|known| choice(&known.framework, &known.label, &framework))
            .collect(),
        categories: categories.into_iter().map(|known| choice(known, known, &category)).collect(),
        kinds: kinds.map(|(value, label)| choice(value, label, &kind)).into(),
        rows: found.iter().skip(at).take(ACTIONS_ON_PAGE).map(row).collect(),
        found: number(found.len() as u64),
        next: (at + ACTIONS_ON_PAGE < found.len()).then(|| query(at + ACTIONS_ON_PAGE)),
        previous: (at > 0).then(|| query(at.saturating_sub(ACTIONS_ON_PAGE))),
        may_manage: place.may(Capability::ManageActions),
        notice: (value("done") == "retire")
            .then_some("Action retired. Events with it are rejected from now on."),
        search,
        here,
    };
    Ok(html(&page))
}

fn row(here: &str, known: &Known<'_>, enabled: sealog_core::catalog::FrameworkSet) -> Row {
    let (severity, frameworks, state) = match known {
        Known::BuiltIn(entry) => {
            let labels: Vec<&str> = entry.frameworks.iter().map(|of| of.label.as_str()).collect();
            let state = match Catalog::builtin().frameworks_of(entry).intersects(enabled) {
                _ if !entry.gated => State::Core,
                true => State::Enabled,
                false => State::NeedsFramework,
            };
            (entry.severity.clone(), labels.join(", "), state)
        }
        Known::Custom(known) => {
            let state = if known.retired_at_ms.is_some() { State::Retired } else { State::Custom };
            (known.action.severity.clone().unwrap_or_default(), String::new(), state)
        }
    };
    Row {
        href: format!("{here}/entry?action={}", encoded(known.name())),
        action: visible(known.name()),
        category: visible(known.category()),
        severity: visible(&severity),
        description: visible(known.description()),
        frameworks,
        state,
    }
}
