//! What administrative commands find on the host, whoever has opened the store.

use std::sync::Arc;

use sealog_cli::exit::Failure;
use sealog_engine::trust_log::Settings as TrustSettings;
use sealog_engine::{Begins, Opened, Trust};
use sealog_service::records::system_chain::Wake;
use sealog_store::world::World;

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
    pub signed_log: SignedLog,
}

/// The signed log of the store.
#[derive(Clone, Debug)]
pub(crate) enum SignedLog {
    /// With `trust.enabled = false`.
    Off,
    OfServer(Arc<Trust>),
    /// Where no server runs, it is opened when a command asks for it.
    OfStopped(TrustSettings),
}

impl Host {
    pub(crate) async fn trust(&self) -> Result<Arc<Trust>, Failure> {
        match &self.signed_log {
            SignedLog::Off => Err(Failure::usage("the signed log is off: trust.enabled is false")),
            SignedLog::OfServer(trust) => Ok(Arc::clone(trust)),
            SignedLog::OfStopped(settings) => {
                let (opened, settings) = (self.opened.clone(), settings.clone());
                let world = Arc::clone(&self.world);
                let known = opened.control().known_log().await.map_err(|error| error.to_string())?;
                let open = move || opened.trust(settings, world, Begins::OnCommand, known);
                let trust = tokio::task::spawn_blocking(open).await.map_err(|error| error.to_string())?;
                trust.map(Arc::new).map_err(sealog_backup::unopened)
            }
        }
    }
}
