//! What pages of the console share.

use std::sync::Arc;

use sealog_control::Control;
use sealog_service::admin::Admin;
use sealog_service::geo::Geo;
use sealog_service::ops::{Desk, OpsAccounts};
use sealog_store::Store;
use sealog_store::world::World;

use super::cookies::OpsCookies;
use super::request::BASE;
use crate::assets::Assets;

/// What the program knows of the instance that it is.
#[derive(Clone)]
pub struct Instance {
    /// Where operators reach the console, as they write it.
    pub url: String,
    pub docs_url: String,
    /// Whether mails leave.
    pub has_mail: bool,
    pub geo: Option<Arc<Geo>>,
    /// Which store it is, with the version of its format.
    pub store: String,
    /// Steps that have made the tables of control data.
    pub schema: usize,
    /// Asked in the thread pool: it waits for the disk.
    pub room: Arc<dyn Fn() -> Result<Room, String> + Send + Sync>,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("url", &self.url).field("store", &self.store).finish_non_exhaustive()
    }
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
    pub(super) store: Arc<dyn Store>,
    pub(super) control: Arc<Control>,
    pub(super) world: Arc<dyn World>,
    pub(super) admin: Admin,
    pub(super) accounts: OpsAccounts,
    pub(super) desk: Desk,
    pub(super) instance: Instance,
    pub(super) cookies: OpsCookies,
    pub(super) assets: Assets,
}

impl Console {
    pub fn new(
        store: Arc<dyn Store>,
        control: Arc<Control>,
        world: Arc<dyn World>,
        admin: Admin,
        instance: Instance,
    ) -> Arc<Console> {
        let desk = Desk {
            control: control.clone(),
            store: Arc::clone(&store),
            world: Arc::clone(&world),
            wake: admin.wake().clone(),
        };
        Arc::new(Console {
            accounts: OpsAccounts::new(Arc::clone(&control), Arc::clone(&world)),
            cookies: OpsCookies::new(&instance.url),
            assets: Assets::new(BASE),
            store,
            control,
            world,
            admin,
            desk,
            instance,
        })
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("url", &self.instance.url).finish_non_exhaustive()
    }
}
