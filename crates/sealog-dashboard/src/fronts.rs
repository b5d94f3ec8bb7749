//! What is shown at which address.

use std::sync::Arc;

use axum::Router;

use crate::app::Dashboard;
use crate::ops::Console;

/// What people see: the dashboard, and the operator's console where it is on.
pub struct Pages {
    pub dashboard: Arc<Dashboard>,
    pub console: Option<Arc<Console>>,
    /// On an address of its own, and nowhere else.
    pub console_is_apart: bool,
}

impl Pages {
    /// Of the main address.
    pub fn router(&self) -> Router {
        match &self.console {
            None => self.dashboard.router_without_console(),
            Some(console) if !self.console_is_apart => self.dashboard.router().merge(console.router()),
            // Its own address is nobody's business here.
            Some(_) => self.dashboard.router(),
        }
    }

    /// Of the console's own address.
    pub fn console_router(&self) -> Router {
        self.console.as_ref().map_or_else(Router::new, Console::router)
    }
}
