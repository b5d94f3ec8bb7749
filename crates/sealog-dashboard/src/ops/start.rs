//! The beginning of the console, its files, and the choice of a theme.

use std::sync::Arc;

use axum::response::Response;

use super::console::Console;
use super::request::{BASE, OpsAsked};
use crate::cookies::Theme;
use crate::problem::Problem;
use crate::request::{own_path_beneath, see_other, with_cookie};

pub(super) async fn show(_: Arc<Console>, _: Arc<OpsAsked>) -> Result<Response, Problem> {
    Ok(see_other("/ops/tenants"))
}

pub(super) async fn asset(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    console.assets.get(&asked.request.path, &asked.request.headers).ok_or_else(Problem::not_found)
}

pub(super) async fn choose_theme(_: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let theme = Theme::parse(asked.request.field("theme")).unwrap_or(Theme::System);
    let next = own_path_beneath(BASE, asked.request.field("next")).unwrap_or(BASE);
    Ok(theme.cookies(BASE).iter().fold(see_other(next), |response, cookie| with_cookie(response, cookie)))
}
