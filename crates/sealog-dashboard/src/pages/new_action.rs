//! A new action of the organisation, which its keys can send at once.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::catalog::{Catalog, CustomAction};
use sealog_service::people::admin::{Actor, AdminError, FieldError};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::problem::{Problem, of_admin};
use crate::request::{Asked, encoded, html, html_with, see_other};

#[derive(Template)]
#[template(path = "pages/new_action.html")]
struct Page<'a> {
    shell: Shell<'a>,
    actions: String,
    categories: Vec<&'static str>,
    severities: Vec<&'static str>,
    action: &'a str,
    description: &'a str,
    category: &'a str,
    severity: &'a str,
    required: &'a str,
    optional: &'a str,
    /// Beside the field of this name.
    error: Option<FieldError>,
}

impl<'a> Page<'a> {
    fn new(app: &'a Dashboard, asked: &'a Asked) -> Page<'a> {
        Page {
            shell: Shell::new(app, asked, Some(Current::Actions)),
            actions: format!("/app/o/{}/actions", asked.place().tenant.id),
            categories: words(|entry| &entry.category),
            severities: words(|entry| &entry.severity),
            action: asked.field("action"),
            description: asked.field("description"),
            category: asked.field("category"),
            severity: asked.field("severity"),
            required: asked.field("required_fields"),
            optional: asked.field("optional_fields"),
            error: None,
        }
    }

    fn error(&self, field: &str) -> Option<&str> {
        self.error.as_ref().filter(|error| error.field == field).map(|error| error.problem.as_str())
    }
}

/// Words that the catalog has.
fn words(of: fn(&'static sealog_core::catalog::Entry) -> &'static str) -> Vec<&'static str> {
    let mut words: Vec<&str> = Catalog::builtin().entries.iter().map(of).collect();
    words.sort_unstable();
    words.dedup();
    words
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    Ok(html(&Page::new(&app, &asked)))
}

pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked);
    let tenant_id = asked.place().tenant.id;
    let text = |text: &str| Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned);
    let action = CustomAction {
        action: page.action.trim().to_owned(),
        description: text(page.description),
        category: text(page.category),
        severity: text(page.severity),
        required_fields: names(page.required),
        optional_fields: names(page.optional),
    };
    let actor = Actor::Person(asked.person().person.id);
    match app.service.admin.create_action(actor, tenant_id, action).await {
        Ok(made) => {
            let entry = format!("{}/entry?action={}&done=create", page.actions, encoded(&made.action));
            Ok(see_other(&entry))
        }
        Err(AdminError::Field(error)) => {
            Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { error: Some(error), ..page }))
        }
        Err(error) => Err(of_admin(error)),
    }
}

/// One in a line, or with commas between them.
fn names(text: &str) -> Vec<String> {
    let names = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
