//! The beginning of the console.

use std::sync::Arc;

use axum::response::Response;

use super::console::{Console, OpsAsked};
use crate::problem::Problem;
use crate::request::see_other;

pub(super) async fn show(_: Arc<Console>, _: Arc<OpsAsked>) -> Result<Response, Problem> {
    Ok(see_other("/ops/tenants"))
}
