//! What administrative commands find on the host, whoever has opened the store.

use std::sync::Arc;

use sealog_service::records::system_chain::Wake;
use sealog_store::world::World;

use sealog_engine::Opened;

/// What commands work on: the store of the running server, or the stopped one that a command has opened.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub opened: Opened,
    pub world: Arc<dyn World>,
    /// Where people reach the dashboard. Nothing where that is known only once a server listens.
    pub app_url: Option<String>,
    /// Where operators reach the console, or why that cannot be said.
    pub console_url: Result<String, String>,
    /// Tells the drain of this process that there are records. Where no server runs, the next one drains
    /// them.
    pub wake: Wake,
}
