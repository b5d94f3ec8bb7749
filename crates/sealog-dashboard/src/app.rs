//! What pages share.

use std::sync::Arc;

use sealog_control::Control;
use sealog_service::admin::Admin;
use sealog_service::background::Workers;
use sealog_service::cases::CaseDesk;
use sealog_service::disclosure::Disclosures;
use sealog_service::exports::Exporter;
use sealog_service::notify::Notifier;
use sealog_service::people::Accounts;
use sealog_service::verification::Verifications;
use sealog_store::Store;
use sealog_store::world::World;

use crate::assets::Assets;
use crate::cookies::Cookies;
use crate::reads::Reads;
use crate::streams::{DOWNLOADS, LIVE_VIEWS, Streams};

/// What an operator has decided that pages have to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where API clients reach the server; it stands in the examples.
    pub base_url: String,
    pub docs_url: String,
    pub app_url: String,
    /// Whether mails leave, so that pages can say that one is on its way.
    pub has_mail: bool,
    /// When live chains are verified each night, as people write it; nothing if they are not.
    pub verified_at: Option<String>,
}

/// What is told when the first owner has claimed the account: the link is worth nothing any more.
pub type OnClaimed = Arc<dyn Fn() + Send + Sync>;

/// Everything that pages share.
pub struct Dashboard {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) control: Arc<Control>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) accounts: Accounts,
    pub(crate) admin: Admin,
    pub(crate) config: Config,
    pub(crate) cookies: Cookies,
    pub(crate) assets: Assets,
    pub(crate) downloads: Streams,
    pub(crate) workers: Workers,
    pub(crate) verifications: Verifications,
    pub(crate) exporter: Exporter,
    pub(crate) disclosures: Disclosures,
    pub(crate) cases: CaseDesk,
    pub(crate) notifier: Notifier,
    pub(crate) reads: Reads,
    pub(crate) streams: Streams,
    pub(crate) on_claimed: OnClaimed,
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dashboard").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Dashboard {
    /// Ends live views, which would keep their connections open: the server stops.
    pub fn stop_streams(&self) {
        self.streams.stop.stop();
    }

    pub fn new(
        store: Arc<dyn Store>,
        control: Arc<Control>,
        world: Arc<dyn World>,
        config: Config,
        admin: Admin,
        workers: Workers,
        on_claimed: OnClaimed,
    ) -> Arc<Dashboard> {
        let verifications = Verifications {
            control: Arc::clone(&control),
            store: Arc::clone(&store),
            world: Arc::clone(&world),
            runner: workers.runner.wake.clone(),
            records: admin.wake().clone(),
        };
        let notifier = Notifier::new(&control, Arc::clone(&world));
        let exporter = Exporter {
            control: Arc::clone(&control),
            store: Arc::clone(&store),
            world: Arc::clone(&world),
            drain: Arc::clone(&workers.drain),
            notifier: notifier.clone(),
        };
        let disclosures = Disclosures::new(
            &control,
            Arc::clone(&store),
            Arc::clone(&world),
            Arc::clone(&workers.drain),
            &workers.runner.wake,
        );
        let cases =
            CaseDesk::new(&control, Arc::clone(&world), admin.wake().clone(), workers.case_events.clone());
        let accounts = Accounts::new(
            Arc::clone(&control),
            Arc::clone(&world),
            config.app_url.clone(),
            admin.wake().clone(),
            Arc::clone(admin.sign_ins()),
        );
        Arc::new(Dashboard {
            store,
            control,
            world,
            accounts,
            admin,
            cookies: Cookies::new(&config.app_url),
            assets: Assets::new("/app"),
            config,
            downloads: Streams::new(DOWNLOADS),
            workers,
            verifications,
            exporter,
            disclosures,
            cases,
            notifier,
            reads: Reads::new(),
            streams: Streams::new(LIVE_VIEWS),
            on_claimed,
        })
    }
}
