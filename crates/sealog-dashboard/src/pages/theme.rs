//! The look of either site: its files, and the choice of a theme.

use std::sync::Arc;

use axum::response::Response;

use crate::cookies::Theme;
use crate::front::Front;
use crate::problem::Problem;
use crate::request::{Asked, own_path_beneath, see_other, with_cookie};

pub(crate) async fn asset<F: Front>(front: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    front.site().assets.get(&asked.path, &asked.headers).ok_or_else(Problem::not_found)
}

pub(crate) async fn choose<F: Front>(_: Arc<F>, asked: Arc<Asked<F>>) -> Result<Response, Problem> {
    let theme = Theme::parse(asked.field("theme")).unwrap_or(Theme::System);
    let next = own_path_beneath(F::BASE, asked.field("next")).unwrap_or(F::BASE);
    let cookies = theme.cookies(F::BASE);
    Ok(cookies.iter().fold(see_other(next), |response, cookie| with_cookie(response, cookie)))
}
