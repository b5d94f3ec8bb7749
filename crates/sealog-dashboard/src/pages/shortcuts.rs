//! The choice of shortcuts.

use std::sync::Arc;

use axum::response::Response;

use crate::app::Dashboard;
use crate::problem::Problem;
use crate::request::{Asked, see_other, with_cookie};
use crate::shortcuts;

pub(crate) async fn choose(_: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let are_on = asked.field("shortcuts") != "off";
    Ok(with_cookie(see_other("/app/account?done=shortcuts#shortcuts"), &shortcuts::cookie(are_on)))
}
