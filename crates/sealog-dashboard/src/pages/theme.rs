//! The choice of a theme.

use std::sync::Arc;

use axum::response::Response;

use crate::app::Dashboard;
use crate::cookies::Theme;
use crate::problem::Problem;
use crate::request::{Asked, own_path, see_other, with_cookie};

pub(crate) async fn choose(_: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let theme = Theme::parse(asked.field("theme")).unwrap_or(Theme::System);
    let next = own_path(asked.field("next")).unwrap_or("/app");
    Ok(theme.cookies("/app").iter().fold(see_other(next), |response, cookie| with_cookie(response, cookie)))
}
