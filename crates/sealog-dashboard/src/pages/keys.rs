//! API keys of an organisation: what they are for and what state they are in, never the keys themselves.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{ApiKey, ListPage};

use crate::Dashboard;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::{day, moment, visible};

/// Of one project. Keys stay listed for ever, and nobody reads more of them.
const KEYS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "pages/keys.html")]
struct Page<'a> {
    shell: Shell<'a>,
    rows: Vec<Row>,
    is_cut: bool,
}

struct Row {
    name: String,
    prefix: String,
    project: String,
    mode: &'static str,
    created: String,
    last_used: String,
    expires: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Expired,
    Revoked,
}

impl State {
    fn of(key: &ApiKey, now_ms: u64) -> State {
        match (key.revoked_at_ms, key.expires_at_ms) {
            (Some(_), _) => State::Revoked,
            (None, Some(end)) if end <= now_ms => State::Expired,
            _ => State::Active,
        }
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let now_ms = app.world.now_ms();
    let (mut rows, mut is_cut) = (Vec::new(), false);
    for project in &asked.place().projects {
        let page = ListPage { after: None, limit: KEYS_MAX };
        let keys = app.control.administration.keys(project.id, page).await.map_err(of_control)?;
        is_cut |= keys.len() == KEYS_MAX;
        rows.extend(keys.iter().map(|key| Row {
            name: visible(&key.name),
            prefix: key.prefix.clone(),
            project: visible(&project.name),
            mode: key.mode.as_str(),
            created: day(key.created_at_ms),
            last_used: key.last_used_at_ms.map_or("Never".into(), moment),
            expires: key.expires_at_ms.map_or("Never".into(), day),
            state: State::of(key, now_ms),
        }));
    }
    Ok(html(&Page { shell: Shell::new(&app, &asked, Some(Current::Keys)), rows, is_cut }))
}
