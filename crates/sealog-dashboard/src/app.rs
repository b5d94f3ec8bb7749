//! What pages share.

use std::sync::Arc;

use sealog_engine::Service;
use sealog_service::evidence::search::Work;
use sealog_service::people::account::People;
use sealog_service::people::sign_in::Accounts;
use sealog_store::shares::TenantShares;

use crate::cookies::PEOPLE;
use crate::front::{Front, Site};
use crate::place::Place;
use crate::reads;
use crate::streams::{DOWNLOADS, LIVE_VIEWS, Streams};

/// What an operator has decided that pages have to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where API clients reach the server; it stands in the examples.
    pub base_url: String,
    pub docs_url: String,
    /// How much one search of events may work.
    pub search: Work,
}

/// What is told when the first owner has claimed the account: the link is worth nothing any more.
pub type OnClaimed = Arc<dyn Fn() + Send + Sync>;

/// Everything that pages share.
pub struct Dashboard {
    pub(crate) service: Arc<Service>,
    pub(crate) config: Config,
    pub(crate) site: Site,
    pub(crate) downloads: Streams,
    pub(crate) reads: TenantShares,
    pub(crate) searches: TenantShares,
    pub(crate) streams: Streams,
    pub(crate) on_claimed: OnClaimed,
}

impl Dashboard {
    /// Ends live views, which would keep their connections open: the server stops.
    pub fn stop_streams(&self) {
        self.streams.stop.stop();
    }

    pub fn new(service: Arc<Service>, config: Config, on_claimed: OnClaimed) -> Arc<Dashboard> {
        Arc::new(Dashboard {
            site: Site::new::<Dashboard>(&PEOPLE, &service.settings.app_url, &config.docs_url),
            service,
            config,
            downloads: Streams::new(DOWNLOADS),
            reads: reads::reads(),
            searches: reads::searches(),
            streams: Streams::new(LIVE_VIEWS),
            on_claimed,
        })
    }

    /// Whether mails leave, so that pages can say that one is on its way.
    pub(crate) fn has_mail(&self) -> bool {
        self.service.settings.smtp.is_some()
    }

    /// When live chains are verified each night, as people write it; nothing if they are not.
    pub(crate) fn verified_at(&self) -> Option<String> {
        self.service.settings.verification.map(|schedule| schedule.time())
    }
}

impl Front for Dashboard {
    type Kind = People;
    type Place = Option<Place>;
    const BASE: &'static str = "/app";

    fn accounts(&self) -> &Accounts<People> {
        &self.service.accounts
    }

    fn site(&self) -> &Site {
        &self.site
    }
}
