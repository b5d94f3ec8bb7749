//! What pages of the console share.

use std::sync::Arc;

use sealog_engine::Service;

use super::cookies::OpsCookies;
use super::request::BASE;
use crate::assets::Assets;

/// What the program knows of the instance that it is.
#[derive(Clone)]
pub struct Instance {
    /// Where operators reach the console, as they write it.
    pub url: String,
    pub docs_url: String,
    /// Which store it is, with the version of its format.
    pub store: String,
    /// Steps that have made the tables of control data.
    pub schema: usize,
    /// Asked in the thread pool: it waits for the disk.
    pub room: Arc<dyn Fn() -> Result<Room, String> + Send + Sync>,
}

/// The disk of the data directory.
#[derive(Clone, Debug)]
pub struct Room {
    pub dir: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Below which no events are accepted; nothing where the events are elsewhere.
    pub reserve_bytes: Option<u64>,
    /// Of control data; nothing where it is elsewhere.
    pub control_bytes: Option<u64>,
}

/// Everything that pages of the console share.
pub struct Console {
    pub(super) service: Arc<Service>,
    pub(super) instance: Instance,
    pub(super) cookies: OpsCookies,
    pub(super) assets: Assets,
}

impl Console {
    pub fn new(service: Arc<Service>, instance: Instance) -> Arc<Console> {
        Arc::new(Console {
            cookies: OpsCookies::new(&instance.url),
            assets: Assets::new(BASE),
            service,
            instance,
        })
    }
}
